/* SPDX-License-Identifier: MIT */
/*
 * The back end of an NVIDIA GPU. A pass that has one row a sequence, as decoding has, is one launch
 * of a graph captured for the next power of two of rows; the rest is padding, which a number on the
 * device masks: it is stored nowhere, reaches no expert and selects nothing. Other passes, prefill
 * and mixed ones, are launched kernel by kernel and need no padding. A pass is recorded by its own
 * kernels where a lane can be had (<moetrace/cuda.h>), else out of what they chose.
 */
#ifndef MTK_ENGINE_CUDA_BACKEND_H
#define MTK_ENGINE_CUDA_BACKEND_H

#include <stdbool.h>

#include "kernels/engine/backend.h"

enum mtk_cuda_precision {
	/* Inputs of every operation in fp32: the CPU's results within rounding, in any batch alike. */
	MTK_CUDA_FP32,
	/* Inputs of 16 bits, of the weights' type, for the tensor cores; sums stay in fp32. */
	MTK_CUDA_16BIT,
};

/* How the passes of a context get into its lane; the first is for use, the others to compare. */
enum mtk_cuda_recording {
	MTK_CUDA_RECORD_FUSED,	/* by the routers' kernels, a launch where one cannot */
	MTK_CUDA_RECORD_LAUNCH, /* by a launch a layer */
	MTK_CUDA_RECORD_GATHER, /* by a launch a pass, for all layers */
	MTK_CUDA_RECORD_ADOPT,	/* out of the buffer that has all layers' ids, without weights */
};

struct mtk_cuda_backend_settings {
	uint32_t device;
	enum mtk_cuda_precision precision;
	bool without_graphs;
	bool without_cublas;
	enum mtk_cuda_recording recording;
	uint32_t n_local_experts; /* 0: all; see cuda_weights.h */
};

/**
 * Bring a model to a GPU.
 *
 * @model  In use until the back end is destroyed. A planned one gets weights of no meaning.
 *
 * Returns  MOETRACE_OK
 *          MOETRACE_E_UNSUPPORTED  there is no driver or GPU (see mtk_cuda_open()), or the model,
 *                                  or the precision with it, is for the CPU only
 *          MOETRACE_E_NOMEM        the weights do not fit
 *          MOETRACE_E_IO           the device failed
 * Owner    caller; release with mtk_backend_cuda_destroy().
 */
int mtk_backend_cuda_create(const struct mtk_model *model,
			    const struct mtk_cuda_backend_settings *settings,
			    struct mtk_error *error, struct mtk_backend **ret_backend);

/* NULL is allowed. Contexts are destroyed before. */
void mtk_backend_cuda_destroy(struct mtk_backend *backend);

/* The GPU's name, and what multiplies matrices on it, for people. */
const char *mtk_backend_cuda_description(const struct mtk_backend *backend);

#endif
