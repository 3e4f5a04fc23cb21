/* SPDX-License-Identifier: MIT */
/*
 * Which pass, layer and role the launches of a thread belong to. A lane notes here what its thread
 * says; the callback of a collector that runs on the same thread, in the middle of a launch, reads it.
 * Passes told from the host are in host_ties.h.
 *
 * Invariant: what describes a launch was written by the launching thread before it, so nothing here
 * orders memory between threads but `on` and `whole`. Nothing allocates, locks or waits.
 */
#ifndef MT_TIES_H
#define MT_TIES_H

#include <stdatomic.h>
#include <stdint.h>

#include <moetrace/cuda.h>

#include "libtrace/collector.h"
#include "libtrace/ring.h"

/* One a lane. */
#define MT_MAX_TIES 256u
/* Passes of which it is remembered that all their launches were seen. */
#define MT_WHOLE_PASSES 65536u

struct mt_tie {
	_Atomic uintptr_t thread; /* that began the open pass; 0: none is open */
	_Atomic uintptr_t stream; /* that the pass runs in */
	_Atomic uint64_t pass;    /* its number */
	_Atomic uint64_t n_pass;  /* of all passes, which one it is */
	_Atomic uint32_t model;   /* its model */
	_Atomic uint64_t on;      /* of mt_ties when it began */
	_Atomic uintptr_t marker; /* thread that set the mark; 0: none */
	_Atomic uint64_t mark;    /* of mt_mark() */
	_Atomic uint64_t n_mark;  /* of all marks, which one it is */
};

/* A pass of the host's, by the ring that it holds. */
struct mt_host_tie {
	_Atomic uint64_t pass;    /* its number; 0: none is open */
	_Atomic uintptr_t thread; /* that began it */
	_Atomic uint64_t parent;  /* number of the pass that it is a part of; 0: none */
	_Atomic uint64_t n_marks; /* of mt_ties when it began */
	_Atomic uint64_t on;      /* of mt_ties when it began */
	_Atomic uint32_t model;
};

/* Passes between their begin and the recorder; a device is done with them in the order of their begins. */
struct mt_way {
	_Atomic uint64_t n_begun;
	_Atomic uint64_t n_arrived; /* or given up */
};

struct mt_ties {
	_Atomic uint32_t is_used; /* somebody asks; else nothing is noted */
	_Atomic uint64_t on;      /* what records kernels is on: a new number each time; 0: off */
	_Atomic uint64_t n_on;    /* times that it was switched on */
	_Atomic uint64_t n_marks;
	_Atomic uint64_t n_passes; /* that began */
	_Atomic uint64_t n_ended;
	_Atomic uint64_t n_whole;  /* that ended, and it was on all the time */
	_Atomic uint32_t has_unseen; /* passes of the host's were left out */
	_Atomic uint32_t n_ties;   /* lanes that there are */
	struct mt_tie ties[MT_MAX_TIES];
	struct mt_host_tie hosts[MT_N_RINGS];
	struct mt_way ways[MOETRACE_CUDA_MAX_DEVICES];
	_Atomic uint64_t whole[MT_WHOLE_PASSES]; /* their numbers, each at its place */
};

/*
 * The place of a pass among the last @n ones; GPUs, whose numbers begin alike, lie apart. Numbers of
 * the host's passes grow by MT_MAX_RINGS: spread, else those of a ring would share few places.
 */
static inline uint64_t mt_pass_place(uint64_t number, uint64_t n)
{
	uint64_t turn = number / MT_MAX_RINGS + (number % MT_MAX_RINGS << 58);

	if (!(number >> 63))
		return (turn * UINT64_C(0x9e3779b97f4a7c15) >> 32) * n >> 32;
	return (number + (number >> 56 & 15) * (n / 16)) % n;
}

static inline int mt_ties_are_used(const struct mt_ties *ties)
{
	return atomic_load_explicit(&ties->is_used, memory_order_relaxed) != 0;
}

/* The tie of a new lane; NULL: nobody asks, or there are too many. */
static inline struct mt_tie *mt_ties_add(struct mt_ties *ties)
{
	uint32_t n = ties ? atomic_load(&ties->n_ties) : MT_MAX_TIES;

	while (n < MT_MAX_TIES)
		if (atomic_compare_exchange_weak(&ties->n_ties, &n, n + 1))
			return &ties->ties[n];
	return NULL;
}

static inline void mt_tie_unmark(struct mt_tie *tie)
{
	atomic_store_explicit(&tie->marker, 0, memory_order_relaxed);
}

static inline void mt_tie_begin(struct mt_ties *ties, struct mt_tie *tie, uintptr_t thread,
				uintptr_t stream, uint32_t model, uint64_t number)
{
	/* Acquire: pairs with whoever switched the records on, so that launches come after it. */
	atomic_store_explicit(&tie->on, atomic_load_explicit(&ties->on, memory_order_acquire),
			      memory_order_relaxed);
	mt_tie_unmark(tie);
	atomic_store_explicit(&tie->stream, stream, memory_order_relaxed);
	atomic_store_explicit(&tie->model, model, memory_order_relaxed);
	atomic_store_explicit(&tie->pass, number, memory_order_relaxed);
	atomic_store_explicit(&tie->thread, thread, memory_order_relaxed);
	atomic_store_explicit(&tie->n_pass,
			      atomic_fetch_add_explicit(&ties->n_passes, 1, memory_order_relaxed),
			      memory_order_relaxed);
}

/* A pass that began when it was @on has ended. */
static inline void mt_ties_ended(struct mt_ties *ties, uint64_t on, uint64_t number)
{
	/* Release: whoever switches off for it comes after its launches. */
	atomic_fetch_add_explicit(&ties->n_ended, 1, memory_order_release);
	/* It is switched off after the number is taken back: then no launch has come too late. */
	if (!on || on != atomic_load_explicit(&ties->on, memory_order_acquire))
		return;
	/* Pairs with mt_ties_are_whole(). */
	atomic_store_explicit(&ties->whole[mt_pass_place(number, MT_WHOLE_PASSES)], number, memory_order_release);
	atomic_fetch_add_explicit(&ties->n_whole, 1, memory_order_release);
}

static inline void mt_tie_end(struct mt_ties *ties, struct mt_tie *tie)
{
	uint64_t on = atomic_load_explicit(&tie->on, memory_order_relaxed);
	uint64_t number = atomic_load_explicit(&tie->pass, memory_order_relaxed);

	if (!atomic_load_explicit(&tie->thread, memory_order_relaxed))
		return;
	atomic_store_explicit(&tie->thread, 0, memory_order_relaxed);
	mt_tie_unmark(tie);
	mt_ties_ended(ties, on, number);
}

/* A pass began on a device, and @n of its passes came to the recorder. NULL: nobody asks. */
static inline void mt_ties_set_out(struct mt_ties *ties, uint32_t device)
{
	if (ties)
		atomic_fetch_add_explicit(&ties->ways[device].n_begun, 1, memory_order_relaxed);
}

static inline void mt_ties_arrived(struct mt_ties *ties, uint32_t device, uint64_t n)
{
	/* Release: whoever sees it finds the passes in the recorder's rings. */
	if (ties)
		atomic_fetch_add_explicit(&ties->ways[device].n_arrived, n, memory_order_release);
}

/*
 * Whether a pass that has begun may be on its way from its device still: not all are there that had
 * begun when this was first asked, which @n_begun remembers; 0 before.
 */
static inline int mt_ties_pass_is_on_its_way(struct mt_ties *ties, uint64_t number, uint64_t *n_begun)
{
	struct mt_way *way = &ties->ways[number >> 56 & (MOETRACE_CUDA_MAX_DEVICES - 1)];

	if (!(number >> 63))
		return 0;
	if (!*n_begun)
		*n_begun = atomic_load_explicit(&way->n_begun, memory_order_relaxed);
	return atomic_load_explicit(&way->n_arrived, memory_order_acquire) < *n_begun;
}

static inline int mt_ties_are_whole(struct mt_ties *ties, uint64_t number)
{
	return atomic_load_explicit(&ties->whole[mt_pass_place(number, MT_WHOLE_PASSES)],
				    memory_order_acquire) == number;
}

static inline void mt_tie_mark(struct mt_ties *ties, struct mt_tie *tie, uintptr_t thread,
			       uint64_t mark)
{
	atomic_store_explicit(&tie->mark, mark, memory_order_relaxed);
	atomic_store_explicit(&tie->n_mark,
			      atomic_fetch_add_explicit(&ties->n_marks, 1, memory_order_relaxed),
			      memory_order_relaxed);
	atomic_store_explicit(&tie->marker, thread, memory_order_relaxed);
}

static inline uint64_t mt_tie_mark_of(struct mt_tie *tie, uintptr_t thread)
{
	return atomic_load_explicit(&tie->marker, memory_order_relaxed) == thread ?
		       atomic_load_explicit(&tie->mark, memory_order_relaxed) :
		       0;
}

/* The newest mark of a thread, not counting the first @n_before of all; 0: it made none. */
static inline uint64_t mt_ties_mark(struct mt_ties *ties, uintptr_t thread, uint64_t n_before)
{
	uint32_t n_ties = atomic_load_explicit(&ties->n_ties, memory_order_relaxed);
	uint64_t newest = n_before, mark = 0;

	for (uint32_t i = 0; i < n_ties; i++) {
		uint64_t here = mt_tie_mark_of(&ties->ties[i], thread);
		uint64_t n = atomic_load_explicit(&ties->ties[i].n_mark, memory_order_relaxed) + 1;

		if (!here || n <= newest)
			continue;
		newest = n;
		mark = here;
	}
	return mark;
}

/*
 * The open pass that a launch of a thread into a stream belongs to: of those in that stream the one that
 * began last, else the thread's only one. Returns its number, 0: there is none, or it is not clear
 * which; and its mark, or where it has none its model.
 */
static inline uint64_t mt_ties_pass(struct mt_ties *ties, uintptr_t thread, uintptr_t stream,
				    uint64_t *ret_mark)
{
	uint32_t n_ties = atomic_load_explicit(&ties->n_ties, memory_order_relaxed);
	struct mt_tie *here = NULL, *open = NULL;
	uint64_t newest = 0;
	uint32_t n_open = 0;

	*ret_mark = 0;
	for (uint32_t i = 0; i < n_ties; i++) {
		struct mt_tie *tie = &ties->ties[i];
		uint64_t n = atomic_load_explicit(&tie->n_pass, memory_order_relaxed) + 1;

		if (atomic_load_explicit(&tie->thread, memory_order_relaxed) != thread)
			continue;
		open = tie;
		n_open++;
		if (atomic_load_explicit(&tie->stream, memory_order_relaxed) != stream || n < newest)
			continue;
		here = tie;
		newest = n;
	}
	if (!here && n_open == 1)
		here = open;
	if (!here)
		return 0;
	*ret_mark = mt_tie_mark_of(here, thread);
	if (!*ret_mark)
		*ret_mark = mt_mark(0, atomic_load_explicit(&here->model, memory_order_relaxed),
				    MT_MARK_NO_ROLE, MT_MARK_NO_LAYER);
	return atomic_load_explicit(&here->pass, memory_order_relaxed);
}

#endif
