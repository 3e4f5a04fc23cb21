/* SPDX-License-Identifier: MIT */
/*
 * The experts of one request, for engines that return them with the response (as routing replay
 * in training needs them): which experts every position was routed to, in every layer with
 * experts, with the state of each entry, so that nothing is mistaken for a choice that is none.
 *
 * They come out of memory while all passes that matter are within the session's
 * experts_window_bytes (of requests that ended, the last 16384 of this recording and the last 16384
 * of those before it), else out of the trace file, through a connection of this call. After a
 * rotation what is in memory still counts, and so do the last 64 files that were left behind, as
 * long as they have their names and have not been replaced.
 */
#ifndef MOETRACE_EXPERTS_H
#define MOETRACE_EXPERTS_H
#ifndef MOETRACE_IN_UMBRELLA
#error "include <moetrace/moetrace.h>"
#endif

MOETRACE_BEGIN_DECLS

/* What is known of a position in a layer. Only the first five come with ids. */
enum moetrace_row_state {
	MOETRACE_ROW_COMPUTED = 0,
	MOETRACE_ROW_REUSED = 1,     /* its KV cache was there; the ids are those of its source */
	MOETRACE_ROW_UNRESOLVED = 2, /* a verify row whose acceptance was not reported */
	MOETRACE_ROW_REJECTED = 3,   /* a verify row that was not accepted, and no other row */
	MOETRACE_ROW_DRAFT = 4,      /* a row of a draft slice */
	MOETRACE_ROW_ABSENT = 5,     /* the layer does not see the position, or has no experts */
	MOETRACE_ROW_UNWRITTEN = 6,  /* nobody handed the layer over */
	MOETRACE_ROW_DROPPED = 7,    /* handed over, lost by the recorder */
	MOETRACE_ROW_UNRECORDED = 8, /* no row: not recorded, or reused from an unknown source */
};

enum moetrace_experts_layers {
	MOETRACE_EXPERTS_MOE_LAYERS = 0, /* the layers with experts, in their order */
	MOETRACE_EXPERTS_ALL_LAYERS = 1, /* all layers of the model; entries of dense ones are 0 and
	                                    absent: the form that SGLang's clients expect */
};

struct moetrace_routed_experts_opts {
	size_t size;              /* set by MOETRACE_INIT() */
	uint32_t model;           /* from moetrace_model_add(); 0: the first target model */
	const uint32_t *attempt;  /* NULL: the last */
	uint32_t first_position;
	uint32_t n_positions;     /* 0: up to the end of the request, or as far as it is now */
	uint32_t type;            /* enum moetrace_type of the ids: U8, U16 or I32; 0: I32 */
	uint32_t layers;          /* enum moetrace_experts_layers */
	uint32_t base64;          /* 1: ids as text, too */
};

/* An answer: read only, all of it memory of one moetrace_routed_experts_free(). */
struct moetrace_routed_experts {
	size_t size;           /* of this struct as the library knows it */
	uint32_t attempt;
	uint32_t first_position;
	uint32_t n_positions;
	uint32_t n_layers;
	uint32_t k;            /* entries a position and layer: the largest of the layers */
	uint32_t type;         /* enum moetrace_type of ids */
	uint32_t from_memory;  /* 1: the file was not read */
	const void *ids;       /* [n_positions][n_layers][k], logical, of type; entries without an id
	                          have all bits set (-1, 255, 65535), save those of dense layers */
	size_t ids_bytes;
	const uint8_t *states; /* [n_positions][n_layers] enum moetrace_row_state */
	const char *base64;    /* ids as they lie in memory, little-endian, by RFC 4648 with padding,
	                          without line breaks; NULL: not asked for */
};

/**
 * The experts of a request that is open or has ended, in the last recording that it was open in.
 * Passes that have ended before the call are in the answer. Waits for the writing thread; reads
 * the file in the calling thread.
 *
 * @opts         NULL: all defaults.
 * @ret_experts  Set to NULL on failure.
 *
 * Returns  MOETRACE_OK
 *          MOETRACE_E_INVALID    a NULL argument, a handle, model, attempt or type that is none,
 *                                or all layers of a model that did not tell their number
 *          MOETRACE_E_LIMIT      ids of the model do not fit in the type, or the answer would have
 *                                more than 2^30 of them
 *          MOETRACE_E_NOT_FOUND  the request, or the attempt, is in no recording, or in that of a
 *                                file that was left behind and is not there any more
 *          MOETRACE_E_NOMEM
 *          MOETRACE_E_IO         the file could not be written or read
 *          MOETRACE_E_STATE      this is a forked child
 * Owner    caller; release with moetrace_routed_experts_free().
 * Threads  any; not part of the hot path.
 */
MOETRACE_API MOETRACE_MUST_USE
int moetrace_request_routed_experts(struct moetrace_session *session, uint64_t request,
				    const struct moetrace_routed_experts_opts *opts,
				    struct moetrace_routed_experts **ret_experts);

/** Free what moetrace_request_routed_experts() gave; NULL is fine. */
MOETRACE_API
void moetrace_routed_experts_free(struct moetrace_routed_experts *experts);

MOETRACE_END_DECLS

#endif
