/* SPDX-License-Identifier: MIT */
/*
 * The configuration of a Qwen3-MoE model, from the `architecture` and `config` strings in the
 * __metadata__ of its safetensors file. A configuration that is read has only dimensions that the
 * engine can run: products of two of them do not overflow 64 bits, heads divide evenly, top_k is at
 * most n_experts. A setting that would change the computation and that the engine does not have
 * (attention bias, RoPE scaling, sliding window, dense layers) is refused by name, never ignored.
 */
#ifndef MTK_ENGINE_QWEN3MOE_CONFIG_H
#define MTK_ENGINE_QWEN3MOE_CONFIG_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/engine/error.h"
#include "kernels/engine/safetensors.h"

struct mtk_qwen3moe_config {
	uint32_t vocab_size;			/* tokens; 1..2^20 */
	uint32_t hidden_size;			/* 1..65536 */
	uint32_t n_layers;			/* 1..1024 */
	uint32_t n_heads;			/* query heads; 1..1024 */
	uint32_t n_kv_heads;			/* divides n_heads */
	uint32_t head_dim;			/* even; 2..1024 */
	uint32_t moe_intermediate_size;		/* 1..65536 */
	uint32_t n_experts;			/* 1..4096 */
	uint32_t top_k;				/* 1..n_experts, at most 64 */
	bool norm_topk_prob;			/* weights renormalised over the top_k */
	bool tie_word_embeddings;		/* the output head is the embedding */
	double rms_norm_eps;			/* above 0, below 1 */
	double rope_theta;			/* above 1, below 1e12 */
};

/**
 * Read the configuration of @file.
 *
 * Returns  MOETRACE_OK
 *          MOETRACE_E_FORMAT       a key is missing, of the wrong type or impossible
 *          MOETRACE_E_UNSUPPORTED  another architecture, or a setting that the engine does not have
 */
int mtk_qwen3moe_config_read(const struct mtk_safetensors *file,
			     struct mtk_qwen3moe_config *ret_config, struct mtk_error *error);

#endif
