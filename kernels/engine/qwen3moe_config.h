/* SPDX-License-Identifier: MIT */
/*
 * The configuration of a Qwen3-MoE model, from the `architecture` and `config` strings in the
 * __metadata__ of its safetensors file. A setting that would change the computation and that the
 * engine does not have (attention bias, RoPE scaling, sliding window, dense layers) is refused by
 * name, never ignored; a setting that does not touch it is skipped.
 */
#ifndef MTK_ENGINE_QWEN3MOE_CONFIG_H
#define MTK_ENGINE_QWEN3MOE_CONFIG_H

#include <stdint.h>

#include "kernels/engine/error.h"
#include "kernels/engine/model.h"
#include "kernels/engine/safetensors.h"

/**
 * Read the configuration of @file, for sequences of up to @n_context positions.
 *
 * Returns  MOETRACE_OK            the configuration also passes mtk_model_config_check()
 *          MOETRACE_E_FORMAT       a key is missing, of the wrong type or out of range
 *          MOETRACE_E_INVALID      dimensions that do not go together, or a context that the model
 *                                  was not made for
 *          MOETRACE_E_UNSUPPORTED  another architecture, or a setting that the engine does not have
 *          MOETRACE_E_NOMEM
 */
int mtk_qwen3moe_config_read(const struct mtk_safetensors *file, uint32_t n_context,
			     struct mtk_model_config *ret_config, struct mtk_error *error);

#endif
