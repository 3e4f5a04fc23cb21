/* SPDX-License-Identifier: MIT */
/* A stand-in for llama.cpp's llama.h; see ggml.h beside it. */
#ifndef STAND_IN_LLAMA_H
#define STAND_IN_LLAMA_H

#include "ggml-backend.h"
#include "ggml.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef int32_t llama_pos;
typedef int32_t llama_token;
typedef int32_t llama_seq_id;

struct llama_model;
struct llama_context;

struct llama_batch {
	int32_t n_tokens;
	llama_token *token;
	float *embd;
	llama_pos *pos;
	int32_t *n_seq_id;
	llama_seq_id **seq_id;
	int8_t *logits;
};

struct llama_model_params {
	int32_t n_gpu_layers;
};

struct llama_context_params {
	uint32_t n_ctx;
	uint32_t n_batch;
	uint32_t n_ubatch;
	uint32_t n_threads;
	uint32_t n_threads_batch;
	ggml_backend_sched_eval_callback cb_eval;
	void *cb_eval_user_data;
};

void llama_log_set(ggml_log_callback log_callback, void *user_data);
void llama_backend_init(void);
void llama_backend_free(void);
struct llama_model_params llama_model_default_params(void);
struct llama_context_params llama_context_default_params(void);
struct llama_model *llama_model_load_from_file(const char *path, struct llama_model_params params);
void llama_free_model(struct llama_model *model);
struct llama_context *llama_init_from_model(struct llama_model *model,
						   struct llama_context_params params);
void llama_free(struct llama_context *ctx);
uint32_t llama_n_ubatch(const struct llama_context *ctx);
struct llama_batch llama_batch_init(int32_t n_tokens, int32_t embd, int32_t n_seq_max);
void llama_batch_free(struct llama_batch batch);
void llama_kv_cache_clear(struct llama_context *ctx);
int32_t llama_decode(struct llama_context *ctx, struct llama_batch batch);
float *llama_get_logits_ith(struct llama_context *ctx, int32_t i);

#ifdef __cplusplus
}
#endif

#endif
