/* SPDX-License-Identifier: MIT */
/*
 * What the engine tells the recorder while it serves: the model once, each request from admission
 * to its end, and each pass with its slices and the choice of every layer. Without a session every
 * function does nothing and succeeds, so that the serving loop is the same with and without
 * recording. The calls of a pass allocate nothing.
 */
#ifndef MTK_ENGINE_SERVE_RECORD_H
#define MTK_ENGINE_SERVE_RECORD_H

#include <stdbool.h>
#include <stdint.h>

#include <moetrace/cuda.h>
#include <moetrace/moetrace.h>

#include "kernels/engine/backend.h"
#include "kernels/engine/choice.h"
#include "kernels/engine/error.h"
#include "kernels/engine/model.h"
#include "kernels/engine/prefix.h"
#include "kernels/engine/scheduler.h"
#include "kernels/oea/oea.h"

struct mtk_serve_recorder {
	struct moetrace_session *session; /* NULL: nothing is recorded */
	bool records_tokens;
	uint32_t model;
	uint64_t *requests;		     /* [n_sequences] handles */
	struct moetrace_slice *slices;	     /* [n_batch] */
	struct moetrace_selection selection; /* what is the same in every layer is set once */
	uint32_t rule;			     /* handle of the rule that the engine runs under */
	struct moetrace_pass *pass;	     /* in flight, or NULL */
	int64_t *kv_slots;		     /* [rows of a pass]; NULL: slots are not told */
	uint64_t *reused_slots;		     /* [n_context] */
	uint32_t n_context;
	struct moetrace_cuda_lane *lane;     /* where passes run that record themselves; or NULL */
	bool has_ended;			     /* its pass, which was launched whole */
	uint64_t n_passes;		     /* the engine's own number of the pass */
	uint32_t names[MTK_N_OPS];	     /* handles; 0: operations are not timed */
	struct moetrace_kernel_time *times;  /* [n_times_max] of the pass; NULL: not timed */
	uint64_t lap_ns;		     /* end of the last operation */
	uint32_t n_times;
	uint32_t n_times_max;
};

/**
 * Describe the model of @backend to @session and make room for @n_sequences requests and @n_batch slices.
 *
 * @session       NULL: nothing is recorded.
 * @choice        Who chooses instead of the router, which is told of each layer; NULL: nobody.
 * @model_name    Stored; the engine gives the name of the file or of the shape.
 * @model         Its handle where @session knows it already; 0: it does not.
 *
 * Returns  MOETRACE_OK, MOETRACE_E_NOMEM, or the status of moetrace_model_add()
 * Owner    caller; release with mtk_serve_recorder_release(), which does not close the session.
 */
int mtk_serve_recorder_init(struct mtk_serve_recorder *recorder, struct moetrace_session *session,
			    bool records_tokens, const struct mtk_backend *backend,
			    const struct mtk_choice *choice, const char *model_name,
			    uint32_t model, uint32_t n_sequences, uint32_t n_batch,
			    struct mtk_error *error);

/* The model alone: MOETRACE_OK, MOETRACE_E_NOMEM, or the status of moetrace_model_add(). */
int mtk_serve_record_model(struct moetrace_session *session, const struct mtk_backend *backend,
			   const struct mtk_choice *choice, const char *model_name,
			   uint32_t *ret_model, struct mtk_error *error);

void mtk_serve_recorder_release(struct mtk_serve_recorder *recorder);

/* Name the rule that the engine runs under; @oea NULL: none. */
int mtk_serve_record_rule(struct mtk_serve_recorder *recorder, const struct mtk_oea *oea,
			  struct mtk_error *error);

/* Time the operations of @n_layers layers, too. */
int mtk_serve_record_operations(struct mtk_serve_recorder *recorder, uint32_t n_layers,
				struct mtk_error *error);

/* The operation hook of the model; @ctx is the recorder. */
void mtk_serve_record_operation(void *ctx, enum mtk_op op, uint32_t layer);

/* A request was admitted: its id, attributes and, if asked for, the tokens of its prompt. */
int mtk_serve_record_begin(struct mtk_serve_recorder *recorder, uint32_t index,
			   const struct mtk_sequence *sequence, struct mtk_error *error);

/**
 * From now on passes tell the KV slot of each row, its sequence's slot times n_context plus its
 * position: prefixes may be reused where they lie.
 *
 * Returns  MOETRACE_OK or MOETRACE_E_NOMEM
 */
int mtk_serve_record_slots(struct mtk_serve_recorder *recorder, uint32_t n_rows, uint32_t n_context,
			   struct mtk_error *error);

/*
 * A request took over positions: told by their KV slots where they lie as they were computed, else
 * by whose they are.
 */
int mtk_serve_record_reuse(struct mtk_serve_recorder *recorder, uint32_t index,
			   const struct mtk_sequence *sequence, const struct mtk_prefix_hit *hit,
			   struct mtk_error *error);

/* A request's positions were dropped; they are computed again later. */
int mtk_serve_record_retract(struct mtk_serve_recorder *recorder, uint32_t index,
			     const struct mtk_sequence *sequence, struct mtk_error *error);

/* A request ended in @end_state, after the pass that computed its last position. */
int mtk_serve_record_end(struct mtk_serve_recorder *recorder, uint32_t index,
			 const struct mtk_sequence *sequence,
			 enum moetrace_request_end_state end_state, struct mtk_error *error);

void mtk_serve_record_pass_begin(struct mtk_serve_recorder *recorder,
				 const struct mtk_schedule_pass *pass, uint32_t n_padding_rows);

/* The launched hook of the model: a pass in the lane is ended, which the end below then leaves out. */
void mtk_serve_record_launched(void *ctx);

/* The base_experts hook of the model, for the next call of the one below. */
void mtk_serve_record_base(void *ctx, uint32_t layer, uint32_t n_rows, uint32_t width,
			   const int32_t *ids);

/* The row_facts hook of the model, for the next call of the one below. */
void mtk_serve_record_facts(void *ctx, uint32_t layer, uint32_t n_rows, const float *margins,
			    const uint8_t *flags);

/* The select_experts hook of the model; @ctx is the recorder. */
void mtk_serve_record_layer(void *ctx, uint32_t layer, uint32_t n_rows, uint32_t width,
			    const int32_t *ids, const float *weights);

void mtk_serve_record_pass_end(struct mtk_serve_recorder *recorder);

#endif
