/* SPDX-License-Identifier: MIT */
/*
 * A model of a known shape: the true sizes and the true routing of a preset, with synthetic
 * weights. What is exact is the part with experts: router, its biases and hash tables, the experts
 * with their latent, activation and biases, the shared experts. The attention is a plain
 * grouped-query attention of the model's sizes; dense layers are left out; the vocabulary is the
 * 256 bytes, with as many rows of embedding and head. Weights follow from the preset and the seed.
 */
#ifndef MTK_ENGINE_SHAPE_H
#define MTK_ENGINE_SHAPE_H

#include "kernels/engine/error.h"
#include "kernels/engine/model.h"
#include "kernels/presets/presets.h"

struct mtk_shape_settings {
	const struct mtk_preset *preset;
	uint32_t n_layers; /* the first so many layers with experts; 0: all of them */
	uint32_t n_context;
	bool has_shared_slots;	    /* shared experts are slots of the choice, not beside it */
	uint64_t expert_pool_bytes; /* what the layers' weights alias; 0: each has its own */
	uint64_t seed;
};

/**
 * Plan a model: all sizes, no memory for weights. mtk_model_bytes(), mtk_workspace_size() and
 * mtk_kv_cache_size() say what it will take; nothing can be run on it.
 *
 * Returns  MOETRACE_OK
 *          MOETRACE_E_INVALID      @error names the field
 *          MOETRACE_E_UNSUPPORTED  the preset's routing or sizes are not known, or MOETRACE_CPU
 *                                  names a level that is not available
 *          MOETRACE_E_NOMEM
 * Owner    caller; release with mtk_model_destroy().
 */
int mtk_shape_plan(const struct mtk_shape_settings *settings, struct mtk_error *error,
		   struct mtk_model **ret_model);

/* Take the memory of a planned model and fill it: MOETRACE_OK or MOETRACE_E_NOMEM. */
int mtk_shape_fill(struct mtk_model *model, const struct mtk_shape_settings *settings,
		   struct mtk_error *error);

/* How many of the preset's layers have experts, as far as is known. */
uint32_t mtk_shape_moe_layers(const struct mtk_preset *preset);

#endif
