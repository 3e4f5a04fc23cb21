/* SPDX-License-Identifier: MIT */
/*
 * Requests: sequences that passes compute. A request has positions 0, 1, 2, ...; the prompt
 * comes first. Slices of passes say which positions a pass computes; from these the recorder
 * works out, when the request ends, whether all of it was recorded (its verdict).
 *
 * Order that the caller keeps: a request begins before a pass names it, and no pass that names
 * it begins after its end. Passes that run when it ends (an abort) still count for it.
 *
 * Requests may begin, change and end while the session is idle. Every recording that a
 * request is open in gets a row for it, with the attributes set so far; tokens go into the
 * recording that runs when they are given.
 *
 * An attempt is one computation of a request's positions, numbered from 0. It computes a
 * position once, or takes it over from another computation (moetrace_request_reuse()); doing
 * both, or computing a position twice, makes the request partial ('repeated') and counts as
 * misuse. When the runtime drops what was computed and begins anew, moetrace_request_retract()
 * opens the next attempt; the rows of the first stay in the file. A pass belongs to the attempt
 * that was open when it began. Verdicts speak of the last attempt.
 *
 * Rows of draft and MTP models, and draft and rejected rows of any model, are kept in the file
 * and count neither as computed nor against the request.
 *
 * Threads: any. Not part of the hot path: calls may allocate and take a short lock; they
 * never wait for the disk.
 */
#ifndef MOETRACE_REQUEST_H
#define MOETRACE_REQUEST_H
#ifndef MOETRACE_IN_UMBRELLA
#error "include <moetrace/moetrace.h>"
#endif

MOETRACE_BEGIN_DECLS

#define MOETRACE_NO_REQUEST UINT64_C(0)                  /* rows that belong to no request */
#define MOETRACE_POSITIONS_UNKNOWN UINT64_C(0xffffffffffffffff)

struct moetrace_request_info {
	size_t size;               /* set by MOETRACE_INIT() */
	const char *external_id;   /* the runtime's own id; NULL: none */
	uint32_t prompt_positions; /* tokens of the prompt; 0: unknown */
};

/**
 * Begin a request.
 *
 * @info         NULL: nothing is known of it. Copied.
 * @ret_request  Its handle, not reused within the session; set to MOETRACE_NO_REQUEST on
 *               failure.
 *
 * Returns  MOETRACE_OK
 *          MOETRACE_E_INVALID  session or ret_request is NULL
 *          MOETRACE_E_NOMEM
 *          MOETRACE_E_STATE    this is a forked child
 */
MOETRACE_API MOETRACE_MUST_USE
int moetrace_request_begin(struct moetrace_session *session,
			   const struct moetrace_request_info *info, uint64_t *ret_request);

/**
 * Attach a property, such as "domain" or "user_class". Setting a key again replaces it.
 *
 * @key    Not empty.
 * @value  NULL: the key alone.
 *
 * Returns  MOETRACE_OK, MOETRACE_E_INVALID, MOETRACE_E_NOMEM, MOETRACE_E_STATE as above;
 *          A request that is not open is found out later and counted as misuse.
 */
MOETRACE_API
int moetrace_request_attribute_set(struct moetrace_session *session, uint64_t request,
				   const char *key, const char *value);

/**
 * Store token ids of a request, in the recording that runs. No other call stores them (though
 * external ids and attributes are the caller's text, and a hash layer's experts follow from
 * the token). A position given again replaces the earlier token.
 *
 * @first_position  Position of the first token. Positions past the last forwarded one are
 *                  allowed: the last sampled token has no experts, but may be stored.
 * @token_ids       [n_tokens], copied.
 *
 * Returns  as moetrace_request_attribute_set().
 */
MOETRACE_API
int moetrace_request_tokens(struct moetrace_session *session, uint64_t request,
			    uint32_t first_position, const uint32_t *token_ids, uint32_t n_tokens);

enum moetrace_request_end_state {
	MOETRACE_REQUEST_FINISHED = 1,
	MOETRACE_REQUEST_ABORTED = 2,
	MOETRACE_REQUEST_FAILED = 3,
};

/**
 * End a request. Its handle is not valid afterwards.
 *
 * @end_state    How it ended; independent of the verdict on its recording.
 * @n_positions  Length of the sequence that went through the model, from position 0, reused
 *               positions included. The last sampled token normally did not. A finished request
 *               whose prompt is longer is partial. MOETRACE_POSITIONS_UNKNOWN: the highest
 *               position computed or reused in the last attempt plus one, of a finished request
 *               at least its prompt; if passes were lost meanwhile, the request is partial.
 *
 * Returns  as moetrace_request_attribute_set().
 */
MOETRACE_API
int moetrace_request_end(struct moetrace_session *session, uint64_t request,
			 enum moetrace_request_end_state end_state, uint64_t n_positions);

#define MOETRACE_ATTEMPT_LAST UINT32_C(0xffffffff)

/* Positions of a request's open attempt that no pass computes: their KV cache was there. */
struct moetrace_reuse {
	size_t size;              /* set by MOETRACE_INIT() */
	uint32_t first_position;
	uint32_t n_positions;     /* at least 1 */
	uint64_t source_request;  /* the request whose KV cache it is, open or ended, or the request
	                             itself (an earlier attempt); MOETRACE_NO_REQUEST: unknown, unless
	                             kv_slots says it */
	uint32_t source_attempt;  /* MOETRACE_ATTEMPT_LAST: its last one, of the request itself the one
	                             before. Ignored without source_request. */
	const uint64_t *kv_slots; /* [n_positions] the KV slot of each position: the recorder finds who
	                             computed it from the slots that passes named
	                             (moetrace_pass_info.kv_slots). NULL: not told. Ignored with
	                             source_request. */
};

/**
 * Say that the request's open attempt does not compute some positions but reuses them: a prefix
 * hit, or what was saved before a retract. The source may itself have reused them: the recorder
 * follows the chain to the attempt that computed them, and stores a link for each part.
 *
 * The source's passes may still be running; they have ended when this request ends. What the
 * recorder does not find then (the source is not told, was computed before this recording, or
 * ended so long ago that it was forgotten; of KV slots, also what lay there when a pass was lost
 * whole, which may have written over it) is stored as an unknown source and makes the request
 * partial ('reuse_unknown'). It remembers the 16384 requests that ended or were reused last, and
 * 4 Mi KV slots.
 *
 * Call it when the hit is known, before the request's passes that rely on it end. Links given
 * while the session is idle are lost to a later recording, as computed positions are.
 *
 * @reuse  Copied. Positions that the attempt has reused before are counted as misuse, and left
 *         with the earlier source.
 *
 * Returns  as moetrace_request_attribute_set(); MOETRACE_E_INVALID too without positions, past
 *          position 2^32, or for a source_request that is no handle of the session.
 */
MOETRACE_API
int moetrace_request_reuse(struct moetrace_session *session, uint64_t request,
			   const struct moetrace_reuse *reuse);

/**
 * The runtime has dropped the request's KV cache and will compute its positions again: open the
 * next attempt. Passes of the request that run meanwhile belong to the attempt that they began
 * in. Ends a pause.
 *
 * Returns  as moetrace_request_attribute_set().
 */
MOETRACE_API
int moetrace_request_retract(struct moetrace_session *session, uint64_t request);

/**
 * The runtime has set the request aside and kept what it computed; and goes on with it. Its
 * attempt stays. Pausing a paused request, or resuming another, is counted as misuse.
 *
 * Returns  as moetrace_request_attribute_set().
 */
MOETRACE_API
int moetrace_request_pause(struct moetrace_session *session, uint64_t request);
MOETRACE_API
int moetrace_request_resume(struct moetrace_session *session, uint64_t request);

MOETRACE_END_DECLS

#endif
