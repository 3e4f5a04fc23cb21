/* SPDX-License-Identifier: MIT */
/*
 * Passes that a runtime tells from the host, for launches in no pass of a lane: who begins and ends
 * one notes it here, the callback of a collector on a launching thread reads it. Nothing allocates,
 * locks or waits, and nothing is noted while nobody asks.
 *
 * Invariant: a pass that ends or begins while it is read is taken for none: its number is cleared
 * first and written last, and looked at again after the rest was read.
 */
#ifndef MT_HOST_TIES_H
#define MT_HOST_TIES_H

#include "libtrace/ties.h"

/* The pass that holds the ring @i. */
static inline void mt_host_tie_begin(struct mt_ties *ties, uint32_t i, uintptr_t thread,
				     uint32_t model, uint64_t number, uint64_t parent)
{
	struct mt_host_tie *tie = &ties->hosts[i];

	/* Acquire: pairs with whoever switched the records on, so that launches come after it. */
	atomic_store_explicit(&tie->on, atomic_load_explicit(&ties->on, memory_order_acquire),
			      memory_order_relaxed);
	/* Release: pair with mt_host_tie_read(). */
	atomic_store_explicit(&tie->thread, thread, memory_order_release);
	atomic_store_explicit(&tie->parent, parent, memory_order_release);
	atomic_store_explicit(&tie->model, model, memory_order_release);
	atomic_store_explicit(&tie->n_marks,
			      atomic_load_explicit(&ties->n_marks, memory_order_relaxed),
			      memory_order_release);
	atomic_store_explicit(&tie->pass, number, memory_order_release);
	atomic_fetch_add_explicit(&ties->n_passes, 1, memory_order_relaxed);
}

static inline void mt_host_tie_end(struct mt_ties *ties, uint32_t i)
{
	struct mt_host_tie *tie = &ties->hosts[i];
	uint64_t number = atomic_load_explicit(&tie->pass, memory_order_relaxed);

	if (!number)
		return;
	atomic_store_explicit(&tie->pass, 0, memory_order_relaxed);
	mt_ties_ended(ties, atomic_load_explicit(&tie->on, memory_order_relaxed), number);
}

/* A pass was begun that is not recorded: its launches could be taken for those of the open one. */
static inline void mt_host_ties_left_out(struct mt_ties *ties)
{
	atomic_store_explicit(&ties->has_unseen, 1, memory_order_relaxed);
}

struct mt_open_host {
	uint64_t number;
	uintptr_t thread;
	uint64_t parent;
	uint64_t n_marks;
	uint32_t model;
};

static inline int mt_host_tie_read(struct mt_host_tie *tie, struct mt_open_host *ret_open)
{
	/* Acquire: pair with mt_host_tie_begin(). */
	ret_open->number = atomic_load_explicit(&tie->pass, memory_order_acquire);
	if (!ret_open->number)
		return 0;
	ret_open->thread = atomic_load_explicit(&tie->thread, memory_order_acquire);
	ret_open->parent = atomic_load_explicit(&tie->parent, memory_order_acquire);
	ret_open->model = atomic_load_explicit(&tie->model, memory_order_acquire);
	ret_open->n_marks = atomic_load_explicit(&tie->n_marks, memory_order_acquire);
	return atomic_load_explicit(&tie->pass, memory_order_relaxed) == ret_open->number;
}

/* The passes that are open, of a thread, or with 0 of all: up to 3, more make no difference. */
static inline uint32_t mt_host_ties_find(struct mt_ties *ties, uintptr_t thread,
					 struct mt_open_host *ret_open)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < MT_N_RINGS && n < 3; i++)
		if (mt_host_tie_read(&ties->hosts[i], &ret_open[n]))
			n += !thread || ret_open[n].thread == thread;
	return n;
}

/* The only one, where a pass that is split counts as its part; NULL: it is not clear which. */
static inline const struct mt_open_host *mt_host_ties_only(const struct mt_open_host *open,
							   uint32_t n)
{
	if (n == 1 || (n == 2 && open[0].parent == open[1].number))
		return &open[0];
	return n == 2 && open[1].parent == open[0].number ? &open[1] : NULL;
}

static inline int mt_ties_has_lane_pass(struct mt_ties *ties, uintptr_t thread)
{
	uint32_t n_ties = atomic_load_explicit(&ties->n_ties, memory_order_relaxed);

	for (uint32_t i = 0; i < n_ties; i++) {
		uintptr_t here = atomic_load_explicit(&ties->ties[i].thread, memory_order_relaxed);

		if (here && (!thread || here == thread))
			return 1;
	}
	return 0;
}

/* Whether the host has not ended a pass yet. */
static inline int mt_ties_pass_is_open(struct mt_ties *ties, uint64_t number)
{
	uint32_t n_ties = atomic_load_explicit(&ties->n_ties, memory_order_relaxed);

	for (uint32_t i = 0; i < MT_N_RINGS; i++)
		if (atomic_load_explicit(&ties->hosts[i].pass, memory_order_relaxed) == number)
			return 1;
	for (uint32_t i = 0; i < n_ties; i++)
		if (atomic_load_explicit(&ties->ties[i].thread, memory_order_relaxed) &&
		    atomic_load_explicit(&ties->ties[i].pass, memory_order_relaxed) == number)
			return 1;
	return 0;
}

/*
 * The pass that a launch of a thread belongs to which mt_ties_pass() knows of no lane: the only one that
 * the thread began; where it began none, the only one that is open at all, which is known by time
 * alone. Returns its number, 0: there is none, or it is not clear which; and what the thread said with
 * mt_tie_mark() since that pass began, or its model.
 */
static inline uint64_t mt_host_ties_pass(struct mt_ties *ties, uintptr_t thread, uint64_t *ret_mark)
{
	struct mt_open_host open[3];
	const struct mt_open_host *found;
	uint64_t by_time = 0;
	uint64_t mark;
	uint32_t n;

	*ret_mark = 0;
	if (mt_ties_has_lane_pass(ties, thread))
		return 0;
	n = mt_host_ties_find(ties, thread, open);
	if (!n && !atomic_load_explicit(&ties->has_unseen, memory_order_relaxed) &&
	    !mt_ties_has_lane_pass(ties, 0)) {
		n = mt_host_ties_find(ties, 0, open);
		by_time = MT_MARK_BY_TIME;
	}
	found = mt_host_ties_only(open, n);
	if (!found)
		return 0;
	mark = mt_ties_mark(ties, thread, found->n_marks);
	if (mt_mark_model(mark) != found->model)
		mark = mt_mark(0, found->model, MT_MARK_NO_ROLE, MT_MARK_NO_LAYER);
	*ret_mark = mark | by_time;
	return found->number;
}

#endif
