/* SPDX-License-Identifier: MIT */
/*
 * Records a program that runs models with llama.cpp, through its evaluation callback: nothing in
 * llama.cpp is changed. Four lines go into the program:
 *
 *   moetrace_llama_open(session, n_batch, &recorder);
 *   params.cb_eval = moetrace_llama_callback();       before the context is made
 *   params.cb_eval_user_data = recorder;
 *   moetrace_llama_model_add(recorder, "name");       after the warm-up, one llama_decode()
 *   moetrace_llama_decode(recorder, ctx, batch);      in place of llama_decode()
 *
 * and a pair of calls a request, moetrace_llama_request_begin() and _end(), by its sequence id.
 * What the recorder must know of the model (which layers have experts, how many, top-k, what the
 * weights include) it reads off the graph of the warm-up.
 *
 * While nothing is recorded the callback wants no tensor and the graph is computed in one piece.
 * While recording it wants one tensor a layer, the last form of its weights: there llama.cpp waits
 * for the device. One recorder serves one context; its calls are made by the thread that decodes.
 */
#ifndef MOETRACE_LLAMA_H
#define MOETRACE_LLAMA_H

#include <llama.h>
#include <moetrace/moetrace.h>

#ifdef __cplusplus
extern "C" {
#endif

#define MOETRACE_LLAMA_MAX_SEQUENCES 256

struct moetrace_llama; /* opaque */

/**
 * Make a recorder.
 *
 * @session   NULL is fine: nothing is recorded.
 * @max_rows  The context's n_batch.
 *
 * Returns MOETRACE_OK, MOETRACE_E_INVALID (no rows, or nowhere to put it) or MOETRACE_E_NOMEM.
 */
int moetrace_llama_open(struct moetrace_session *session, uint32_t max_rows,
			struct moetrace_llama **ret_recorder);

/** Free it, after the context is freed. Requests still open are ended as aborted. */
void moetrace_llama_close(struct moetrace_llama *recorder);

/** For llama_context_params.cb_eval; cb_eval_user_data is the recorder. */
ggml_backend_sched_eval_callback moetrace_llama_callback(void);

/**
 * Describe the model to the session, from what the callback saw so far: call it after one
 * llama_decode(), with the same max_rows.
 *
 * Returns MOETRACE_OK, MOETRACE_E_STATE (no layer with experts was seen, or added before), or
 * what moetrace_model_add() returns.
 */
int moetrace_llama_model_add(struct moetrace_llama *recorder, const char *name);

/** llama_decode(), recorded: every graph that it computes becomes a pass. Returns its result. */
int32_t moetrace_llama_decode(struct moetrace_llama *recorder, struct llama_context *ctx,
			      struct llama_batch batch);

/**
 * A request begins in a sequence, at position 0, after another one there has ended. Rows of
 * sequences without a request are recorded as rows of no request.
 *
 * @external_id  NULL: none.
 * @n_prompt     Rows at positions below are prefill, the others decode.
 *
 * Returns as moetrace_request_begin(); MOETRACE_E_INVALID also for a sequence out of range.
 */
int moetrace_llama_request_begin(struct moetrace_llama *recorder, llama_seq_id sequence,
				 const char *external_id, uint32_t n_prompt);

/** The handle of a sequence's request, for moetrace_request_reuse() and the like; 0: none. */
uint64_t moetrace_llama_request(const struct moetrace_llama *recorder, llama_seq_id sequence);

/** The request of a sequence ends; nothing happens where there is none. Its handle, or 0. */
uint64_t moetrace_llama_request_end(struct moetrace_llama *recorder, llama_seq_id sequence,
				    enum moetrace_request_end_state end_state);

/* What could not be recorded, since the recorder was made. */
struct moetrace_llama_counts {
	uint64_t n_graphs;	    /* passes */
	uint64_t n_unplaced_layers; /* layers with other rows than the batch explains: not handed
				       over */
	uint64_t n_copied_bytes;    /* fetched from devices */
};

void moetrace_llama_counts(const struct moetrace_llama *recorder,
			   struct moetrace_llama_counts *ret_counts);

#ifdef __cplusplus
}
#endif

#endif
