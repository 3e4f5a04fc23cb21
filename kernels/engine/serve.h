/* SPDX-License-Identifier: MIT */
/*
 * Serving a workload: the loop that admits requests, forms passes, runs the model, samples and
 * tells the recorder. A token is a byte, so the model's vocabulary must have 256 entries. The text
 * that a request gets depends on the model, its prompt, the seed and its place in the workload, and
 * on nothing else: not on batch, chunk, threads, positions of the KV cache, prefix reuse or
 * recording.
 */
#ifndef MTK_ENGINE_SERVE_H
#define MTK_ENGINE_SERVE_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/engine/error.h"
#include "kernels/engine/model.h"
#include "kernels/engine/scheduler.h"
#include "kernels/engine/workload.h"

struct moetrace_session;
struct mtk_backend;
struct mtk_oea;

/*
 * What was served. The time of a pass is that of the whole round: forming it, the model, sampling
 * and every call of the recorder, so that recording is charged to the phase that it slows. A mixed
 * pass cannot be timed by phase; its time is shared between the phases by their rows. A decode row
 * of a mixed pass really costs more than a prefill row, so that split flatters decode a little;
 * decode_only_ns and decode_only_rows cover the passes with decode rows alone, without any split.
 */
struct mtk_serve_stats {
	uint32_t n_requests; /* in the workload */
	uint32_t n_done;     /* aborted ones included */
	uint32_t n_aborted;  /* by the limit n_abort */
	uint64_t n_retracts;
	uint64_t n_reuses;	     /* admissions that took over a prefix */
	uint64_t n_reused_positions; /* of all of them; they are in no pass */
	uint32_t n_active;
	uint64_t n_generated; /* tokens sampled */
	uint64_t n_prefill_passes;
	uint64_t n_decode_passes;
	uint64_t n_mixed_passes;
	uint64_t prefill_rows;
	uint64_t decode_rows;
	uint64_t decode_only_rows;
	uint64_t prefill_ns;
	uint64_t decode_ns;
	uint64_t decode_only_ns;
	uint64_t total_ns; /* from the first admission to the end of the last pass */
	bool interrupted;  /* the observer ended the run */
};

/**
 * Called after every pass.
 *
 * Returns true to go on; false ends the run at this boundary and aborts the open requests.
 */
typedef bool mtk_serve_observe_fn(void *context, const struct mtk_serve_stats *stats);

struct mtk_serve_options {
	struct mtk_schedule_limits limits;
	uint32_t n_threads;
	struct mtk_backend *backend; /* of the model, until the server is destroyed; NULL: the CPU */
	float temperature; /* not above 0: greedy */
	uint64_t seed;
	const struct mtk_oea *oea;     /* the rule of decode rows, which fits the model; NULL: none.
					  A request's text then depends on those beside it, and on
					  retracts, which compute decode rows again as prefill.
					  Copied. */
	const struct mtk_choice *choice; /* who chooses the experts; NULL: the router */
	bool reuses_prefixes;	       /* see prefix.h; not with a choice, whose experts differ
					  between requests of the same tokens */
	mtk_serve_observe_fn *observe; /* NULL: never interrupted */
	void *observe_context;
};

struct mtk_server;

/* The memory that a server takes beside its model; 0 where its limits are out of range. */
size_t mtk_server_size(const struct mtk_model *model, const struct mtk_workload *workload,
		       const struct mtk_serve_options *options);

/**
 * Make everything a run needs, and check every request against the limits: what can be refused is
 * refused here, before anything is recorded.
 *
 * @model     In use until the server is destroyed, as @workload.
 *
 * Returns  MOETRACE_OK
 *          MOETRACE_E_UNSUPPORTED  the vocabulary does not have 256 entries
 *          MOETRACE_E_INVALID      a limit is out of range, or prefixes are to be reused under a
 *                                  choice or in lockstep
 *          MOETRACE_E_LIMIT        a prompt is longer than the context, a request than the KV
 *                                  cache, the choice does not hold every position of a request,
 *                                  or no thread can be made
 *          MOETRACE_E_NOMEM
 * Owner    caller; release with mtk_server_destroy().
 */
int mtk_server_create(const struct mtk_model *model, const struct mtk_workload *workload,
		      const struct mtk_serve_options *options, struct mtk_server **ret_server,
		      struct mtk_error *error);

/* NULL is allowed. */
void mtk_server_destroy(struct mtk_server *server);

/* What the recorder is to know; all zero: nothing is recorded. */
struct mtk_serve_recording {
	struct moetrace_session *session; /* recording already, or NULL */
	const char *model_name;
	bool records_tokens;
	bool records_kernels; /* the times of the engine's operations */
	bool records_margins; /* and flags of rows */
	/* Handles of the model and of the rule, of an earlier server of the session; 0: it is added,
	   and its handle written here. NULL: it is added. */
	uint32_t *model;
	uint32_t *rule;
};

/**
 * Serve the workload, once a server.
 *
 * @ret_stats  Filled also when the run fails: what was served until then.
 *
 * Returns  MOETRACE_OK, also when the observer ended the run (ret_stats->interrupted)
 *          MOETRACE_E_STATE  it was run before
 *          any other         the model or the recorder failed; open requests are ended as failed
 */
int mtk_server_run(struct mtk_server *server, const struct mtk_serve_recording *recording,
		   struct mtk_serve_stats *ret_stats, struct mtk_error *error);

/* Request @index of the workload with what it generated; valid as long as the server. */
const struct mtk_sequence *mtk_server_sequence(const struct mtk_server *server, uint32_t index);

#endif
