/* SPDX-License-Identifier: MIT */
/*
 * Shared by the sources of the hot path (pass.c, select.c, select_wide.c, counters.c, timing.c). Nothing here
 * allocates, locks, logs, makes a system call or waits.
 */
#ifndef MT_HOT_H
#define MT_HOT_H

#include <string.h>

#include "libtrace/session.h"

#include "libtrace/clock.h"
#include "libtrace/narrow.h"

/* Kept free in the ring while a pass runs, so that its end always fits, behind padding. */
#define MT_END_BYTES ((sizeof(struct mt_record_end) + MT_LINE_BYTES) * 2)

/* Something of a recording is lost. */
void mt_count_loss(struct moetrace_session *session, uint32_t recording_id, enum mt_loss_kind kind,
		   uint64_t n_bytes, uint64_t now_ns);

/* The same for @n records at once. */
void mt_count_losses(struct moetrace_session *session, uint32_t recording_id,
		     enum mt_loss_kind kind, uint64_t n, uint64_t n_bytes, uint64_t now_ns);

/* The recording of a pass that runs. */
static inline uint32_t mt_recording_of(const struct moetrace_pass *pass)
{
	return atomic_load_explicit(&pass->recording_id, memory_order_relaxed) & ~MT_TOLD;
}

/* A pass that holds a ring cannot begin. 0: its recording has ended, and has counted it. */
static inline int mt_pass_refuse(struct moetrace_pass *pass)
{
	uint32_t recording_id = mt_recording_of(pass);

	/* Pairs with mt_writer_count_untold(): one of the two counts it. */
	return atomic_compare_exchange_strong(&pass->recording_id, &recording_id, 0);
}

/* A layer's records did not fit: the pass says so at its end. */
void mt_drop_layer(struct moetrace_pass *pass, uint32_t layer, uint64_t n_bytes, uint64_t now_ns);

/* The time of what happens to the pass now; a late one's says whoever hands it over. */
static inline uint64_t mt_pass_now(const struct moetrace_pass *pass)
{
	return pass->time_ns ? pass->time_ns : mt_session_ns(pass->session, mt_monotonic_ns());
}

/* A number that no other living thread has; not thread-local memory, which may be allocated. */
static inline uintptr_t mt_thread_number(void)
{
#if defined(__x86_64__) && defined(__GNUC__)
	return (uintptr_t)__builtin_thread_pointer();
#else
	return (uintptr_t)pthread_self();
#endif
}

/* The stream that the calling thread writes this pass's layers into. */
static inline struct mt_ring *mt_stream_of(struct moetrace_pass *pass)
{
	uintptr_t self = mt_thread_number();
	uintptr_t owner = atomic_load_explicit(&pass->owner, memory_order_relaxed);

	if (owner == 0 && atomic_compare_exchange_strong_explicit(&pass->owner, &owner, self,
								  memory_order_relaxed,
								  memory_order_relaxed))
		owner = self;
	return owner == self ? pass->ring : mt_ring_side(&pass->session->pool, pass->ring);
}

static inline struct mt_reservation mt_stream_reserve(const struct moetrace_pass *pass,
						      struct mt_ring *stream,
						      enum mt_record_type type, uint64_t n_bytes)
{
	return stream == pass->ring ? mt_ring_reserve_alone(stream, type, n_bytes, MT_END_BYTES) :
				      mt_ring_reserve(stream, type, n_bytes);
}

#define MT_GROUP_LINES 8u

static inline void mt_prefetch_line(const uint8_t *line)
{
#if defined(__x86_64__) && defined(__GNUC__)
	__asm__ volatile("prefetchw %0" : : "m"(*line));
#else
	__builtin_prefetch(line, 1);
#endif
}

/*
 * Ask for a group of lines that will be written soon. A ring is larger than the caches, and a
 * store that misses holds up those behind it; asked for together, lines come together. Without
 * the hint "to write", a line that the writer thread has read would have to be asked for twice.
 */
static inline void mt_prefetch_group(const uint8_t *at)
{
	mt_prefetch_line(at);
	mt_prefetch_line(at + MT_LINE_BYTES);
	mt_prefetch_line(at + 2ul * MT_LINE_BYTES);
	mt_prefetch_line(at + 3ul * MT_LINE_BYTES);
	mt_prefetch_line(at + 4ul * MT_LINE_BYTES);
	mt_prefetch_line(at + 5ul * MT_LINE_BYTES);
	mt_prefetch_line(at + 6ul * MT_LINE_BYTES);
	mt_prefetch_line(at + 7ul * MT_LINE_BYTES);
}

/* A selection, checked, with its defaults filled in. */
struct mt_checked {
	const struct mt_layer *layer;
	struct mt_matrix ids;
	struct mt_matrix weights; /* type NONE: none, or not to be stored */
	struct mt_matrix base;    /* type NONE: none */
	uint32_t rule;
	uint32_t n_rows;
	uint32_t n_padding;
	uint32_t weight_format;
};

/* Each returns 0, or -1 after counting what is wrong as misuse. */
int mt_check_selection(const struct moetrace_pass *pass, const struct moetrace_selection *selection,
		       struct mt_checked *ret_checked);
int mt_check_matrix(struct moetrace_session *session, struct mt_matrix *matrix, const void *data,
		    uint32_t type, size_t row_bytes, uint32_t k);
/*
 * The map that explains physical ids of the pass: @epoch, or with 0 the one in force when it
 * began.
 */
int mt_check_epoch(const struct moetrace_pass *pass, uint32_t epoch, uint32_t *ret_epoch);

/* Must the writer settle this selection before it can be stored? */
static inline int mt_is_wide(const struct moetrace_pass *pass,
			     const struct moetrace_selection *selection)
{
	if (pass->mode != MOETRACE_MODE_PER_TOKEN)
		return selection->id_space != MOETRACE_ID_LOGICAL;
	return selection->id_space != MOETRACE_ID_LOGICAL || selection->physical_ids ||
	       selection->n_candidates || selection->order == MOETRACE_ORDER_UNORDERED;
}

/* What the selection tells of its rows, as far as it is stored: MT_FACT_*. */
static inline uint8_t mt_facts_of(const struct moetrace_pass *pass,
				  const struct moetrace_selection *selection)
{
	if (pass->mode != MOETRACE_MODE_PER_TOKEN)
		return 0;
	return (uint8_t)((selection->margins ? MT_FACT_MARGINS : 0) |
			 (selection->row_flags ? MT_FACT_FLAGS : 0));
}

static inline void mt_copy_facts(uint8_t facts, uint32_t n_rows,
				 const struct moetrace_selection *selection, float *margins,
				 uint8_t *row_flags)
{
	if (facts & MT_FACT_MARGINS)
		memcpy(margins, selection->margins, (size_t)n_rows * sizeof(*margins));
	if (facts & MT_FACT_FLAGS)
		memcpy(row_flags, selection->row_flags, n_rows);
}

void mt_select_wide(struct moetrace_pass *pass, const struct moetrace_selection *selection);

#endif
