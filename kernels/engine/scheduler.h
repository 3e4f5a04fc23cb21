/* SPDX-License-Identifier: MIT */
/*
 * The batch scheduler: which rows of which requests the next pass computes. It knows no model and
 * no cache, only counts, so that its policy is tested by itself.
 *
 * Requests are admitted in the order of the workload, up to n_batch at a time; one that finishes
 * makes room for the next at once (continuous batching). A pass holds first one decode row of every
 * admitted request whose prompt is computed, then up to n_chunk prompt rows of the others, oldest
 * first (chunked prefill); a pass with both is mixed. A request is in a pass with one slice at
 * most.
 *
 * A cache may hold fewer positions than the requests need. An admitted request then takes those of
 * all its known tokens, its prompt and what it generated; one is admitted where they are free, and
 * when the next tokens do not fit any more, the request admitted last is retracted: it waits again,
 * before all that were not admitted yet, and computes its known tokens anew as prefill. No token
 * is sampled twice, and the oldest request is never retracted, so that every request ends.
 *
 * In lockstep every pass holds one row of each admitted request, its prompt's tokens too, and all
 * of them are decode rows: as if each prompt were text that was being generated. The next requests
 * are admitted when all of the batch are done, so that those of a batch are at the same position.
 *
 * The token sampled last is never computed, so a request that is done has computed n_prompt +
 * n_generated - 1 positions. Where max_new_tokens would pass the end of the context, the request
 * ends there, as if it had asked for less: with FINISH_LENGTH.
 */
#ifndef MTK_ENGINE_SCHEDULER_H
#define MTK_ENGINE_SCHEDULER_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/engine/error.h"
#include "kernels/engine/workload.h"

enum mtk_finish {
	MTK_FINISH_NONE, /* waiting or running */
	MTK_FINISH_LENGTH,
	MTK_FINISH_STOP,  /* the stop byte was generated; it is the last of the text */
	MTK_FINISH_ABORT, /* it generated as much as the limit n_abort, and was not done */
};

struct mtk_sequence {
	const struct mtk_workload_request *request;
	unsigned char *text;  /* generated; [n_limit], made at the first admission */
	uint32_t n_limit;     /* tokens it may generate, at least 1 */
	uint32_t n_prompt;    /* tokens of the prompt */
	uint32_t n_computed;  /* positions that need no forward pass any more: forwarded and not
				 dropped since, or taken over at admission */
	uint32_t n_generated; /* tokens sampled */
	uint32_t n_retracts;  /* times that its positions were dropped */
	uint32_t slot;	      /* of the KV cache; the caller's */
	enum mtk_finish finish;
};

struct mtk_slice {
	uint32_t sequence;
	uint32_t first_position;
	uint32_t n_rows;
	bool is_decode; /* else prefill */
	bool samples;	/* the last row's logits give the next token */
};

struct mtk_schedule_limits {
	uint32_t n_batch;   /* requests at a time, at least 1 */
	uint32_t n_chunk;   /* prefill rows a pass, at least 1 */
	uint32_t n_context; /* positions a request, at least 1 */
	int32_t stop_byte;  /* negative: none */
	uint32_t n_kv_positions; /* of all requests at a time; 0: as many as they need */
	uint32_t n_abort;	 /* a request ends after so many tokens, as aborted; 0: none does */
	bool is_lockstep;
};

/* One pass: slices in row order, and the rows themselves. The arrays belong to the scheduler. */
struct mtk_schedule_pass {
	struct mtk_slice *slices; /* [n_batch] */
	int32_t *token_ids;	  /* [n_batch + n_chunk], as the four that follow */
	int32_t *positions;
	uint32_t *slots;
	uint8_t *want_logits;
	uint32_t *requests;	  /* of the workload */
	uint32_t n_slices;
	uint32_t n_rows;
	uint32_t n_decode_rows;
	uint32_t n_samples; /* slices that sample */
};

struct mtk_scheduler;

/**
 * Make a scheduler over @workload, which must outlive it.
 *
 * Returns  MOETRACE_OK
 *          MOETRACE_E_INVALID  a limit is 0, or n_batch + n_chunk or n_context above 2^31 - 1
 *          MOETRACE_E_LIMIT    a prompt is longer than the context, or a request alone may need
 *                              more than n_kv_positions; @error names the line
 *          MOETRACE_E_NOMEM
 * Owner    caller; release with mtk_scheduler_destroy().
 */
int mtk_scheduler_create(const struct mtk_workload *workload,
			 const struct mtk_schedule_limits *limits,
			 struct mtk_scheduler **ret_scheduler, struct mtk_error *error);

/* NULL is allowed. */
void mtk_scheduler_destroy(struct mtk_scheduler *scheduler);

/* Sequence i is request i of the workload; i below its n_requests. */
struct mtk_sequence *mtk_scheduler_sequence(struct mtk_scheduler *scheduler, uint32_t index);

/* Requests admitted and not done. */
uint32_t mtk_scheduler_n_active(const struct mtk_scheduler *scheduler);

/**
 * Retract the request admitted last if the positions that the next pass may need are not there.
 * Called until nothing is left to retract, before requests are admitted and the pass is formed.
 *
 * @ret_sequence  Whose positions the caller drops; it is not active any more.
 *
 * Returns whether one was retracted.
 */
bool mtk_scheduler_retract(struct mtk_scheduler *scheduler, uint32_t *ret_sequence);

/*
 * Positions of the KV cache that the active requests leave, as their known tokens take them;
 * UINT64_MAX without a limit.
 */
uint64_t mtk_scheduler_n_free_positions(const struct mtk_scheduler *scheduler);

/* Whether a request waits and there is room for it. */
bool mtk_scheduler_can_admit(const struct mtk_scheduler *scheduler);

/**
 * Admit the next request, again if it was retracted. Before the next pass is formed the caller sets
 * its slot and, where some of its positions need not be computed, its n_computed; at least the last
 * known token is left to compute.
 *
 * Pre  mtk_scheduler_can_admit().
 *
 * Returns  MOETRACE_OK or MOETRACE_E_NOMEM (nothing was admitted)
 */
int mtk_scheduler_admit(struct mtk_scheduler *scheduler, uint32_t *ret_sequence);

/**
 * Form the next pass over the admitted requests; without any it has no rows.
 *
 * Returns the pass, valid until the next call of this function.
 */
const struct mtk_schedule_pass *mtk_scheduler_pass_form(struct mtk_scheduler *scheduler);

/**
 * Take the result of the pass formed last: its rows are computed, and each slice that samples
 * gets its token. Requests that finish leave the batch.
 *
 * @tokens  [n_samples], in row order; each 0 .. 255.
 */
void mtk_scheduler_pass_complete(struct mtk_scheduler *scheduler, const unsigned char *tokens);

#endif
