/* SPDX-License-Identifier: MIT */
/*
 * Requests: sequences that passes compute. A request has positions 0, 1, 2, ...; the prompt
 * comes first. Slices of passes say which positions a pass computes; from these the recorder
 * works out, when the request ends, whether all of it was recorded (its verdict).
 *
 * Order that the caller keeps: a request begins before a pass names it, and ends after
 * moetrace_pass_end() of the last pass that named it has returned.
 *
 * Requests may begin, change and end while the session is idle. Every recording that a
 * request is open in gets a row for it, with the attributes set so far; tokens go into the
 * recording that runs when they are given.
 *
 * Not yet told apart: positions that a prefix cache supplied, and the recomputation of a
 * preempted request. The first make the request partial ('missing'), the second, too
 * ('repeated': a position was computed twice), and counts as misuse.
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
 * @n_positions  Length of the sequence that went through the model, from position 0. The
 *               last sampled token normally did not. MOETRACE_POSITIONS_UNKNOWN: the highest
 *               position seen plus one, verify and draft slices aside.
 *
 * Returns  as moetrace_request_attribute_set().
 */
MOETRACE_API
int moetrace_request_end(struct moetrace_session *session, uint64_t request,
			 enum moetrace_request_end_state end_state, uint64_t n_positions);

MOETRACE_END_DECLS

#endif
