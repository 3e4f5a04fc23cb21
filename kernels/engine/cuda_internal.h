/* SPDX-License-Identifier: MIT */
/*
 * The inside of the GPU's back end: what its contexts and forward passes share. Everything that a
 * captured graph names stays where it is as long as the context.
 */
#ifndef MTK_ENGINE_CUDA_INTERNAL_H
#define MTK_ENGINE_CUDA_INTERNAL_H

#include <moetrace/cuda.h>

#include "kernels/align/align_cuda.h"
#include "kernels/cuda/cublas.h"
#include "kernels/cuda/device.h"
#include "kernels/engine/cuda_backend.h"
#include "kernels/engine/cuda_weights.h"
#include "kernels/engine/kv_layout.h"

/* Captured sizes are 1, 2, 4, ... up to this. */
#define MTK_CUDA_GRAPH_ROWS 256u
#define MTK_CUDA_N_GRAPHS   9

/* Rows of an expert from which on one product of the library fills the GPU. */
#define MTK_CUDA_CUBLAS_EXPERT_ROWS 1024

struct mtk_cuda_state {
	struct mtk_cuda_backend_settings settings;
	struct mtk_cuda_device device;
	struct mtk_cuda_weights weights;
	enum mtk_dtype activations; /* of what operations read */
	void *stream;
	struct mtk_cublas *cublas; /* NULL: our own kernels do all products */
	uint32_t cublas_expert_rows; /* from so many rows an expert on it does theirs, too */
	char description[MTK_BACKEND_TEXT_BYTES];
};

/* The inputs of a pass as they lie in one block, on both sides, for so many rows. */
struct mtk_cuda_inputs {
	uint32_t *n_valid_rows; /* [1] */
	int32_t *token_ids;
	int32_t *positions;
	uint32_t *slots;
	uint32_t *wanted_rows;
	uint8_t *is_decode;
};

struct mtk_cuda_context {
	struct mtk_cuda_state *state;
	const struct mtk_model *model;
	uint32_t n_rows_max; /* padding included */
	uint32_t n_width_max;
	struct mtk_oea *rules; /* [n_layers], resolved; k0 is 0: none here. NULL: no rule */
	const struct mtk_choice *choice;
	struct mtk_kv_cache *kv; /* slots alone */
	int kv_status; /* of copies between slots since the last pass */
	size_t kv_layer_bytes;
	char *keys;
	char *values;
	/* Device memory; [rows] is n_rows_max. */
	void *inputs;
	float *hidden;	       /* [rows][n_hidden] */
	void *normed;	       /* [rows][n_hidden], of the activations' type, as attention */
	float *qkv;
	void *attention;
	void *attention_scratch; /* NULL with fp32 inputs, where a row's bits are those of any batch */
	float *attention_out;
	float *router_logits;
	int32_t *ids;	       /* [n_layers][rows][n_width_max], as the next */
	float *weights;
	int32_t *base_ids;     /* [n_layers][rows][router's width]; NULL without a rule, as the next */
	float *base_weights;
	uint32_t *n_base;
	uint32_t *is_loaded;
	float *margins;	       /* [n_layers][rows], as the next; of passes that tell row_facts */
	uint8_t *row_flags;
	int32_t *given_ids;    /* [n_layers][rows][top_k]; NULL without a choice, as the next */
	int32_t *row_numbers;
	struct mtk_align_cuda_result align;
	uint32_t *align_scratch;
	void *gathered;	       /* [slots][n_in]: inputs by expert, for the library; as the next */
	float *gate_up_out;    /* [slots][n_gate_up] */
	void *middle;
	float *expert_out;
	float *moe_out;
	float *shared_gate_up;
	void *shared_middle;
	float *shared_gates;
	float *shared_out;
	float *logits;
	int32_t *greedy_ids;
	/* Host memory that the device reads and writes. */
	void *host_inputs;
	int64_t *host_first_slots; /* where each expert's slots begin, for the library */
	int32_t *host_given_ids;
	double *choice_scratch;
	void *graphs[MTK_CUDA_N_GRAPHS];
	bool graphs_have_facts; /* they write margins and row_flags */
	struct moetrace_cuda_lane *lane;
	bool lane_has_margins;
	/* Stores of single layers in a graph run on a branch of it, beside what follows the router. */
	void *side;
	void *forked; /* events: what the side stream follows, and what follows it */
	void *joined;
	bool has_branch; /* it must be joined before the capture ends */
	/* What hooks are given, made when the first are. */
	int32_t *host_ids;
	float *host_weights;
	int32_t *host_base_ids;
	float *host_margins;
	uint8_t *host_row_flags;
	/* Device memory of the context, freed together. */
	void *blocks[64];
	uint32_t n_blocks;
};

/* A pass on its way. */
struct mtk_cuda_pass {
	struct mtk_cuda_context *context;
	uint32_t n_rows; /* that are launched: with padding */
	bool is_graph;
	bool has_rule;	 /* rules act */
	bool has_facts;	 /* the hook row_facts is told of it */
	uint32_t n_wanted;
	struct mtk_cuda_inputs inputs; /* on the device */
	const struct mtk_forward_hooks *taps; /* that look at each layer; NULL: none do */
	uint32_t layer;
	struct mtk_error *error;
};

/* Where the inputs of so many rows lie in a block; its bytes. */
struct mtk_cuda_inputs mtk_cuda_inputs_of(void *block, uint32_t n_rows);
size_t mtk_cuda_inputs_bytes(uint32_t n_rows);

int mtk_cuda_context_create(struct mtk_backend *backend,
			    const struct mtk_context_settings *settings, void **ret_context,
			    struct mtk_error *error);
void mtk_cuda_context_destroy(void *context);

/* What was captured holds no more: it is captured again when it is needed. */
void mtk_cuda_graphs_forget(struct mtk_cuda_context *context);

/* The alignment of a pass of so many rows of a width. */
struct mtk_align_settings mtk_cuda_align_settings(const struct mtk_cuda_context *context,
						  uint32_t n_rows, uint32_t width);

/* Launch a whole pass, from the embedding to the sampled ids, into the context's stream. */
int mtk_cuda_pass_launch(struct mtk_cuda_pass *pass);

/* Say what the launches that follow are for, in the pass's layer (enum moetrace_kernel_role). */
void mtk_cuda_pass_mark(const struct mtk_cuda_pass *pass, uint32_t role);

/* The experts of a layer, from the router on (cuda_moe.c). */
int mtk_cuda_pass_moe(struct mtk_cuda_pass *pass);
/* The end of a graph: what runs on a branch of it is waited for. */
int mtk_cuda_pass_join(struct mtk_cuda_pass *pass);
/* What all layers chose, into the lane's ring, where it is set to be gathered. */
#define MTK_CUDA_GATHER_LAYERS 32u /* a launch */
int mtk_cuda_pass_gather(struct mtk_cuda_pass *pass);

/* y = matrix * x, of the activations' type, rows one after another. */
int mtk_cuda_pass_linear(struct mtk_cuda_pass *pass, const struct mtk_cuda_matrix *matrix,
			 uint32_t n_rows, const void *x, const float *bias, float *y);

/* Whether margins and flags of rows are of the layer's choice in this pass: a router's own. */
bool mtk_cuda_pass_has_facts(const struct mtk_cuda_pass *pass, uint32_t layer);

/* Entries of a row of a layer, in this pass. */
uint32_t mtk_cuda_pass_width(const struct mtk_cuda_pass *pass, uint32_t layer);

/* The operations of struct mtk_backend_ops (cuda_forward.c). */
int mtk_cuda_forward(void *context, const struct mtk_batch *batch,
		     const struct mtk_forward_hooks *hooks,
		     const struct mtk_forward_result *result, struct mtk_error *error);
uint32_t mtk_cuda_padding_rows(void *context, const struct mtk_batch *batch);

#endif
