/* SPDX-License-Identifier: MIT */
/*
 * The request ledger: what the writer knows of requests, and the verdicts. A request is open
 * until it has ended and the passes that ran then have closed; after that it is remembered for
 * a while, so that what it computed can be found as the source of a prefix hit. Its parts:
 * ledger.c (requests), attempt.c (what an attempt computed, and the verdict), reuse.c (links to
 * what others computed), verify.c (rows whose acceptance is not known yet).
 * Used by the writer thread alone.
 */
#ifndef MT_LEDGER_H
#define MT_LEDGER_H

#include <stddef.h>
#include <stdint.h>

#include "libtrace/coverage.h"
#include "libtrace/queue.h"
#include "libtrace/slots.h"
#include "libtrace/store/store.h"

/* Why a request or a pass is partial; bits in the order in which they are named. */
enum mt_reason {
	MT_REASON_LOST = 1,
	MT_REASON_BEGAN_BEFORE = 2,
	MT_REASON_UNWRITTEN = 4,
	MT_REASON_UNRESOLVED = 8,
	MT_REASON_MISSING = 16,
	MT_REASON_INVALID = 32,
	MT_REASON_UNENDED = 64, /* of passes only */
	MT_REASON_REPEATED = 128,
	MT_REASON_REUSE_UNKNOWN = 256,
	MT_REASON_DISABLED = 512,
	MT_REASON_SAMPLED = 1024,
	MT_REASON_COUNTED = 2048,
};

#define MT_REASONS_BYTES 192
/* The names, comma-separated, into @ret_text; NULL if there are none. */
const char *mt_reasons_text(uint32_t reasons, char *ret_text);

/* Requests that have ended and are remembered; verify slices a request that may wait. */
#define MT_LEDGER_MAX_ENDED 16384u
#define MT_LEDGER_MAX_WAITING 256u

struct mt_ledger_attribute {
	struct mt_ledger_attribute *next;
	char *key;
	char *value;
};

/* What a target model computed in an attempt. */
struct mt_ledger_model {
	struct mt_ledger_model *next;
	uint32_t model_id;
	struct mt_coverage computed; /* whole: in every layer */
	struct mt_coverage seen;     /* with positions of partial passes */
	struct mt_coverage given_up; /* of verify slices that waited for too long */
};

/* Positions [begin, end) of an attempt that another one computed. */
struct mt_link {
	uint64_t begin;
	uint64_t end;
	uint64_t source;           /* handle, of the request that is waited for, or computed them */
	int64_t source_request_id; /* MT_NULL: unknown */
	uint32_t source_attempt;
	uint32_t flaws;            /* reasons why the source's rows are not whole */
	int is_waiting;            /* not in the file: the source is not found yet */
};

struct mt_attempt {
	uint32_t attempt;
	uint64_t begin_ns;
	uint64_t n_lost_passes;  /* of the session, when it began or the recording started */
	uint32_t reasons;        /* of the passes that served it */
	uint64_t seen_end;       /* one past its highest position */
	int64_t first_pass_id;   /* that has rows of it; 0: none */
	struct mt_ledger_model *models;
	struct mt_link *links;   /* by position, apart from each other */
	size_t n_links;
	size_t links_capacity;
};

/* A verify slice whose acceptance is not known. */
struct mt_waiting {
	struct mt_waiting *next;        /* of the request, newest first */
	struct mt_waiting *next_number; /* in its bucket */
	struct mt_request *request;
	uint64_t number; /* of the pass */
	int64_t pass_id;
	uint32_t slice;
	uint32_t attempt;
	uint32_t model_id;
	int is_target;
	uint32_t pass_reasons;
	uint32_t first_position;
	uint32_t n_rows;
	uint32_t *positions; /* or NULL */
};

struct mt_request {
	struct mt_request *next; /* in its bucket */
	uint64_t handle;
	char *external_id;
	int64_t prompt_positions; /* MT_NULL: unknown */
	uint64_t begin_ns;
	struct mt_ledger_attribute *attributes;
	uint32_t attempt;         /* the open one */
	uint64_t attempt_begin_ns;
	uint64_t attempt_lost_passes; /* of the session, when it began */
	int is_paused;
	uint64_t pause_begin_ns;

	/* The end, from the call on. */
	int has_ended;
	uint32_t end_state;
	uint64_t end_ns;
	uint64_t last_begin_ns;   /* of a pass that names it */
	uint64_t end_positions;   /* MOETRACE_POSITIONS_UNKNOWN: left to us */
	uint64_t end_lost_passes;
	uint64_t n_positions;     /* as its row says, once it is written */
	uint32_t n_running;       /* slices of open passes */
	int is_remembered;
	struct mt_request *newer; /* in the list of those that are remembered, if it is */
	struct mt_request *older;

	/* In this recording. */
	int64_t request_id; /* 0: no row */
	uint32_t reasons;   /* of all attempts: MT_REASON_REPEATED or 0 */
	uint32_t n_pauses;
	uint64_t paused_ns;
	struct mt_attempt *attempts; /* by number, without holes */
	uint32_t n_attempts;
	struct mt_waiting *waiting;
	uint32_t n_waiting;
};

#define MT_LEDGER_WAITING_BUCKETS 1024u

struct mt_ledger {
	struct mt_store *store;
	struct mt_request **buckets;
	size_t n_buckets; /* power of two */
	size_t n_requests;
	struct mt_request *newest; /* remembered: ended or found as a source last */
	struct mt_request *oldest;
	size_t n_remembered;
	struct mt_request *past_newest; /* ended in earlier recordings, by newer and older alone */
	struct mt_request *past_oldest;
	size_t n_past;
	struct mt_waiting *waiting[MT_LEDGER_WAITING_BUCKETS];
	struct mt_slots slots;
	uint64_t slots_lost_ns; /* the last loss of a pass that slots know of; 0: none */
	int64_t last_request_id;
	int64_t recording_id; /* 0: idle */
	uint64_t recording_start_ns;
	uint64_t n_repeated;  /* positions or links that an attempt had before: misuse to count */
};

int mt_ledger_open(struct mt_ledger *ledger, struct mt_store *store);
void mt_ledger_close(struct mt_ledger *ledger);

/* Each returns MOETRACE_OK, MOETRACE_E_NOT_FOUND (no such open request) or the store's status. */
int mt_ledger_begin(struct mt_ledger *ledger, struct mt_message *message);
int mt_ledger_attribute(struct mt_ledger *ledger, struct mt_message *message);
int mt_ledger_tokens(struct mt_ledger *ledger, const struct mt_message *message);
int mt_ledger_end(struct mt_ledger *ledger, const struct mt_message *message);
int mt_ledger_retract(struct mt_ledger *ledger, const struct mt_message *message);
int mt_ledger_pause(struct mt_ledger *ledger, const struct mt_message *message);
int mt_ledger_resume(struct mt_ledger *ledger, const struct mt_message *message);
int mt_ledger_reuse(struct mt_ledger *ledger, const struct mt_message *message);

/*
 * A pass that was lost at @lost_ns may have written to any slot: what was known of them is not
 * known any more.
 */
void mt_ledger_slots_lost(struct mt_ledger *ledger, uint64_t lost_ns);

/* A recording starts: every open request gets a row. It ends: the rows stay unfinished. */
int mt_ledger_start(struct mt_ledger *ledger, int64_t recording_id, uint64_t start_ns,
		    uint64_t n_lost_passes);
int mt_ledger_stop(struct mt_ledger *ledger);

/* The request that a pass may name. */
struct mt_request *mt_ledger_find(struct mt_ledger *ledger, uint64_t handle);

/* A slice of an open pass names the request, which stays in place until it is released. */
static inline void mt_ledger_hold(struct mt_request *request, uint64_t begin_ns)
{
	request->n_running++;
	if (begin_ns > request->last_begin_ns)
		request->last_begin_ns = begin_ns;
}
int mt_ledger_release(struct mt_ledger *ledger, struct mt_request *request);

/* Rows of a slice, as the ledger sees them. */
struct mt_ledger_slice {
	uint64_t number; /* of its pass */
	int64_t pass_id;
	uint32_t slice;
	uint32_t attempt;
	uint32_t model_id;
	int is_target;
	uint32_t phase;
	uint32_t first_position;
	uint32_t n_rows;
	const uint32_t *positions; /* or NULL */
	const uint8_t *accepted;   /* of a verify slice, or NULL: not known yet */
	uint32_t pass_reasons;     /* why its pass is partial; 0: it is complete */
};
int mt_ledger_slice(struct mt_ledger *ledger, struct mt_request *request,
		    const struct mt_ledger_slice *slice);

/* verify.c. A slice waits; its acceptance comes: MOETRACE_E_NOT_FOUND if it does not wait. */
int mt_ledger_wait(struct mt_ledger *ledger, struct mt_request *request,
		   const struct mt_ledger_slice *slice);
int mt_ledger_accept(struct mt_ledger *ledger, uint64_t number, uint32_t slice,
		     const uint8_t *accepted, uint32_t n_rows, int64_t *ret_pass_id);
void mt_ledger_forget_waiting(struct mt_ledger *ledger, struct mt_request *request);
/* Add the positions of its rows; MOETRACE_E_NOMEM. */
int mt_waiting_positions(const struct mt_waiting *waiting, struct mt_coverage *coverage);

/* attempt.c */
struct mt_attempt *mt_attempt_find(struct mt_request *request, uint32_t attempt);
int mt_attempt_open(struct mt_request *request, uint64_t n_lost_passes);
void mt_attempts_free(struct mt_request *request);
/* What only the verdict needs. */
void mt_attempts_free_models(struct mt_request *request);
/* What the attempt has of a model, from now on if it had nothing; NULL: out of memory. */
struct mt_ledger_model *mt_attempt_model(struct mt_attempt *attempt, uint32_t model_id);
/* Does a target model have [begin, end) in part? */
int mt_attempt_overlaps(const struct mt_attempt *attempt, uint64_t begin, uint64_t end);
/* Is the position computed; its run ends at *ret_end; *ret_flaws is 0 if the run is whole. */
int mt_attempt_run(const struct mt_attempt *attempt, uint64_t begin, uint64_t end,
		   uint64_t *ret_end, uint32_t *ret_flaws);
/* Why the request, which has ended, is partial, and its length; MOETRACE_E_NOMEM. */
int mt_attempt_judge(struct mt_ledger *ledger, struct mt_request *request,
		     uint32_t *ret_reasons, uint64_t *ret_positions);

/* reuse.c. Find sources that were not found before; @is_final: they are unknown from now on. */
int mt_reuse_resolve(struct mt_ledger *ledger, struct mt_request *request, int is_final);
/* The first link that ends after @position; n_links if there is none. */
size_t mt_reuse_find(const struct mt_attempt *attempt, uint64_t position);

/* ledger.c: an open or remembered request. */
struct mt_request *mt_ledger_known(struct mt_ledger *ledger, uint64_t handle);
/*
 * A request that ended in an earlier recording, while it is remembered: what an answer out of
 * memory needs, its row, attempts and links. @request_id 0: whichever the handle is of.
 */
struct mt_request *mt_ledger_past(struct mt_ledger *ledger, uint64_t handle, int64_t request_id);
void mt_ledger_touch(struct mt_ledger *ledger, struct mt_request *request);

#endif
