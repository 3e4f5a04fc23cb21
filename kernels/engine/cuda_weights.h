/* SPDX-License-Identifier: MIT */
/*
 * A model's weights in the memory of a GPU: uploaded once, plain rows, of the types of the file.
 * The model itself is not needed for its weights afterwards, only for its settings. Of a planned
 * model, which has no weights, they are made where they lie: for measurements.
 */
#ifndef MTK_ENGINE_CUDA_WEIGHTS_H
#define MTK_ENGINE_CUDA_WEIGHTS_H

#include "kernels/engine/error.h"
#include "kernels/engine/model_internal.h"

struct mtk_cuda_matrix {
	enum mtk_dtype dtype;
	uint32_t n_out;
	uint32_t n_in;
	void *data; /* NULL: there is none */
};

struct mtk_cuda_layer {
	float *input_norm;
	float *post_attention_norm;
	float *query_norm;
	float *key_norm;
	struct mtk_cuda_matrix qkv;
	struct mtk_cuda_matrix output;
	struct mtk_cuda_matrix router;
	float *router_bias;
	float *correction_bias;
	int32_t *hash_table;
	struct mtk_cuda_matrix gate_up; /* of all experts, one after another */
	struct mtk_cuda_matrix down;
	float *gate_up_bias;
	float *down_bias;
	struct mtk_cuda_matrix shared_gate_up;
	struct mtk_cuda_matrix shared_down;
	struct mtk_cuda_matrix shared_gate;
};

struct mtk_cuda_weights {
	struct mtk_cuda_layer *layers;
	struct mtk_cuda_matrix embedding;
	struct mtk_cuda_matrix head; /* may be the embedding */
	float *final_norm;
	float *cosines;
	float *sines;
	int32_t *expert_map; /* of ids to experts that are here; NULL: all are */
	uint32_t n_experts;  /* with weights here */
	size_t n_bytes;
	/* The blocks of memory, and what is being built. */
	void **blocks;
	size_t n_blocks;
	size_t n_blocks_max;
	uint64_t seed;
};

/**
 * Bring a model's weights to the current GPU.
 *
 * @n_local_experts  Only so many of its experts, the first ones, are here: pairs of others are left
 *                   out, as on one rank of several. 0: all are.
 * @stream           Waited for.
 *
 * Returns  MOETRACE_OK
 *          MOETRACE_E_UNSUPPORTED  the model has something that is not made for a GPU
 *          MOETRACE_E_NOMEM        it does not fit
 *          MOETRACE_E_IO           the device failed
 * Owner    caller; release with mtk_cuda_weights_release(), also after a failure.
 */
int mtk_cuda_weights_init(struct mtk_cuda_weights *weights, const struct mtk_model *model,
			  uint32_t n_local_experts, void *stream, struct mtk_error *error);

void mtk_cuda_weights_release(struct mtk_cuda_weights *weights);

#endif
