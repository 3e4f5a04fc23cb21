/* SPDX-License-Identifier: MIT */
/*
 * Times that the runtime measures itself: operations of a pass, by layer, collectives between ranks
 * and named ranges. A runtime that computes on the host has no other way to tell what its layers
 * cost; on a GPU the collectors do. All points in time are moetrace_clock_ns(). Threads: any; calls
 * that take a pass are as moetrace_select_experts().
 */
#ifndef MOETRACE_TIMING_H
#define MOETRACE_TIMING_H
#ifndef MOETRACE_IN_UMBRELLA
#error "include <moetrace/moetrace.h>"
#endif

MOETRACE_BEGIN_DECLS

/* CLOCK_MONOTONIC in nanoseconds. Belongs to the hot path: it makes no system call. */
MOETRACE_API
uint64_t moetrace_clock_ns(void);

/* What an operation is for. */
enum moetrace_kernel_role {
	MOETRACE_ROLE_OTHER = 0,
	MOETRACE_ROLE_GATE = 1,       /* the router's logits */
	MOETRACE_ROLE_TOPK = 2,       /* the choice of experts */
	MOETRACE_ROLE_ALIGN = 3,      /* grouping rows by expert, permuting */
	MOETRACE_ROLE_DISPATCH = 4,   /* rows go to the ranks of their experts */
	MOETRACE_ROLE_EXPERTS = 5,    /* the experts' own products */
	MOETRACE_ROLE_COMBINE = 6,    /* outputs of experts become rows again */
	MOETRACE_ROLE_SHARED = 7,     /* shared experts */
	MOETRACE_ROLE_ATTENTION = 8,
	MOETRACE_ROLE_NORM = 9,
	MOETRACE_ROLE_EMBED = 10,
	MOETRACE_ROLE_HEAD = 11,
	MOETRACE_ROLE_COLLECTIVE = 12, /* between ranks, whatever it moves */
	MOETRACE_ROLE_COPY = 13,
};

/* Of a kernel of a GPU: what its name says, see docs/collectors.md. */
#define MOETRACE_ROLE_BY_NAME UINT32_MAX

/* The name's operations move data between ranks; the others compute. */
#define MOETRACE_KERNEL_MOVES_DATA 1u

/**
 * Name an operation for moetrace_pass_kernels(). Not part of the hot path.
 *
 * @name      Copied.
 * @role      enum moetrace_kernel_role
 * @flags     MOETRACE_KERNEL_MOVES_DATA or 0.
 * @ret_name  Its handle, never 0 and valid as long as the session; set to 0 on failure. What was
 *            named alike before has the same handle.
 *
 * Returns  MOETRACE_OK
 *          MOETRACE_E_INVALID  session, ret_name or name is NULL, name is empty, or role or flags
 *                              are none
 *          MOETRACE_E_LIMIT    more than a million names
 *          MOETRACE_E_NOMEM
 *          MOETRACE_E_STATE    this is a forked child
 */
MOETRACE_API MOETRACE_MUST_USE
int moetrace_kernel_name_add(struct moetrace_session *session, const char *name, uint32_t role,
			     uint32_t flags, uint32_t *ret_name);

/* An operation that belongs to no layer. */
#define MOETRACE_NO_LAYER UINT32_MAX

struct moetrace_kernel_time {
	uint64_t start_ns;    /* moetrace_clock_ns() when it began */
	uint64_t end_ns;      /* and when it ended */
	uint32_t name;        /* of moetrace_kernel_name_add() */
	uint32_t layer_index; /* among the model's MoE layers, from 0; or MOETRACE_NO_LAYER */
};

/**
 * Hand over how long operations of this pass took: all at once before moetrace_pass_end(), or in
 * several calls. They become rows of table kernel on the host's device; what does not fit is
 * counted (table gap, stream 'kernel') and makes no pass partial. Recordings of mode stat keep none.
 * Belongs to the hot path: it never waits.
 *
 * @pass     NULL: nothing happens.
 * @times    [n_times] in any order; free for reuse when the call returns. If one of them is
 *           impossible, the call is counted as misuse and ignored.
 */
MOETRACE_API
void moetrace_pass_kernels(struct moetrace_pass *pass, const struct moetrace_kernel_time *times,
			   uint32_t n_times);

/* What a collective does. */
enum moetrace_collective_kind {
	MOETRACE_COLLECTIVE_OTHER = 0,
	MOETRACE_COLLECTIVE_ALL_REDUCE = 1,
	MOETRACE_COLLECTIVE_ALL_GATHER = 2,
	MOETRACE_COLLECTIVE_REDUCE_SCATTER = 3,
	MOETRACE_COLLECTIVE_ALL_TO_ALL = 4,
	MOETRACE_COLLECTIVE_BROADCAST = 5,
	MOETRACE_COLLECTIVE_REDUCE = 6,
	MOETRACE_COLLECTIVE_SEND = 7,
	MOETRACE_COLLECTIVE_RECEIVE = 8,
	MOETRACE_COLLECTIVE_BARRIER = 9,
	MOETRACE_COLLECTIVE_DISPATCH = 10, /* rows go to the ranks of their experts */
	MOETRACE_COLLECTIVE_COMBINE = 11,  /* and what the experts made of them comes back */
};

#define MOETRACE_UNKNOWN_BYTES UINT64_MAX

struct moetrace_collective {
	size_t size;          /* MOETRACE_INIT() sets it, and everything else to 0 */
	uint64_t start_ns;    /* moetrace_clock_ns() when it began on this rank */
	uint64_t end_ns;      /* and when it ended there */
	uint64_t bytes;       /* that this rank handed in; MOETRACE_UNKNOWN_BYTES */
	uint32_t kind;        /* enum moetrace_collective_kind */
	uint32_t n_ranks;     /* that took part, with this one; 0: not told */
	uint32_t layer_index; /* among the model's MoE layers, from 0; or MOETRACE_NO_LAYER */
	/* Of moetrace_range_name_add(); 0: not told. */
	uint32_t name;        /* what it is for, or its communicator */
	uint32_t algorithm;   /* e.g. of "ring" */
	uint32_t protocol;    /* e.g. of "LL128" */
	uint32_t n_channels;  /* 0: not told */
};

/**
 * Tell of a collective between ranks that this pass took part in, when it is over. It becomes a row
 * of table collective; what does not fit is counted (table gap, stream 'collective') and makes no
 * pass partial. Recordings of mode stat keep none. Belongs to the hot path: it never waits.
 *
 * @pass        NULL: nothing happens.
 * @collective  Free for reuse when the call returns. It may have begun before the pass, where a rank had
 *              to wait for others, and it ended in it: what was over when moetrace_pass_begin() was
 *              called is of no pass, so call that before. One that is impossible, like this, is counted
 *              as misuse and ignored.
 */
MOETRACE_API
void moetrace_pass_collective(struct moetrace_pass *pass,
			      const struct moetrace_collective *collective);

/**
 * Name a range for moetrace_range_push(). Not part of the hot path.
 *
 * @name      Copied.
 * @ret_name  Its handle, never 0 and valid as long as the session; set to 0 on failure. The same
 *            name again gives the same handle.
 *
 * Returns  what moetrace_kernel_name_add() returns
 */
MOETRACE_API MOETRACE_MUST_USE
int moetrace_range_name_add(struct moetrace_session *session, const char *name, uint32_t *ret_name);

/* A range on its way: the caller keeps it from push to pop, and nothing in it is the caller's. */
struct moetrace_range {
	uint64_t start_ns;
	uint64_t tool;
	uint32_t name;     /* 0: it is not recorded */
	uint32_t has_tool;
};

/**
 * Begin a piece of time with a name: a step of the runtime, loading, a batch. Ranges may lie in each
 * other and across passes, and may end on another thread than they began on. Each becomes a row of
 * table range when it ends; what does not fit is counted (table gap, stream 'range'). Recordings in
 * flight mode keep them with the passes. Belongs to the hot path: it never waits.
 *
 * @session    NULL: nothing happens, and nothing is recorded at its pop.
 * @name       Of moetrace_range_name_add(); another number is counted as misuse.
 * @ret_range  To be handed to moetrace_range_pop() once.
 */
MOETRACE_API
void moetrace_range_push(struct moetrace_session *session, uint32_t name,
			 struct moetrace_range *ret_range);

/**
 * End a range. Of the recording that runs now; without one nothing is recorded. A range that was
 * never pushed is counted as misuse and ignored where that shows: its name is none of
 * moetrace_range_name_add(), or it begins in the future. Belongs to the hot path: it never waits.
 *
 * @session  That of its push; NULL: nothing is recorded.
 * @range    As moetrace_range_push() left it.
 */
MOETRACE_API
void moetrace_range_pop(struct moetrace_session *session, struct moetrace_range *range);

MOETRACE_END_DECLS

#endif
