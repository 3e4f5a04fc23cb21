/* SPDX-License-Identifier: MIT */
/*
 * Where forward passes run. A back end has a model in the form that it computes with, and makes
 * contexts: a KV cache and scratch memory, for the passes of one batch after another. Those who
 * serve (serve.h) or evaluate (eval.h) know nothing else of it. The CPU is the definition; another
 * back end gives the same within its tolerance, and the same experts but for near ties.
 */
#ifndef MTK_ENGINE_BACKEND_H
#define MTK_ENGINE_BACKEND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/engine/error.h"
#include "kernels/engine/model.h"

struct moetrace_cuda_lane;
struct moetrace_session;
struct mtk_backend;
struct mtk_kv_cache;

struct mtk_context_settings {
	uint32_t n_slots; /* sequences at a time */
	uint32_t n_context;
	uint32_t n_rows_max; /* of a pass */
	uint32_t n_threads;  /* of the CPU */
	const struct mtk_oea *oea; /* NULL: no rule. Copied. */
	const struct mtk_choice *choice; /* of the batches that will come; NULL: the router's */
};

/* What a pass gives of the rows whose logits are wanted, in row order; each may be NULL. */
struct mtk_forward_result {
	float *logits;	     /* [][n_vocab] */
	int32_t *greedy_ids; /* [] the ids of the largest logits */
};

/* How a layer is computed, for the recorder. */
#define MTK_BACKEND_TEXT_BYTES 128
struct mtk_backend_texts {
	char router[MTK_BACKEND_TEXT_BYTES];
	char experts[2 * MTK_BACKEND_TEXT_BYTES];
	char reason[MTK_ROUTE_REASON_BYTES + 320];
};

struct mtk_backend_ops {
	const char *name;
	int (*context_create)(struct mtk_backend *backend,
			      const struct mtk_context_settings *settings, void **ret_context,
			      struct mtk_error *error);
	void (*context_destroy)(void *context);
	/* Its slots are the caller's to acquire and release; what they hold may be elsewhere. */
	struct mtk_kv_cache *(*cache)(void *context);
	/*
	 * Run a pass, as mtk_model_forward() does, and wait for it. NULL hooks are allowed; with
	 * hooks, they are called before the function returns, layers in order.
	 */
	int (*forward)(void *context, const struct mtk_batch *batch,
		       const struct mtk_forward_hooks *hooks,
		       const struct mtk_forward_result *result, struct mtk_error *error);
	void (*describe)(const struct mtk_backend *backend, const struct mtk_layer_info *layer,
			 struct mtk_backend_texts *ret_texts);
	/*
	 * Have the passes of the context recorded where they run: a lane of the session for them,
	 * or NULL, where the hooks must do it. With margins the lane gets what the hook row_facts
	 * is told. NULL: the hooks always do.
	 */
	struct moetrace_cuda_lane *(*record)(void *context, struct moetrace_session *session,
					     uint32_t model, bool with_margins);
	/* Rows that a batch is filled up with; NULL: none. */
	uint32_t (*padding_rows)(void *context, const struct mtk_batch *batch);
};

struct mtk_backend {
	const struct mtk_backend_ops *ops;
	const struct mtk_model *model;
	void *state; /* the back end's own */
};

/* The back end of the CPU, which has no state: the model alone must outlive its contexts. */
struct mtk_backend mtk_backend_cpu(const struct mtk_model *model);

#endif
