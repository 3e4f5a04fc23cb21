/* SPDX-License-Identifier: MIT */
/*
 * What was lost, as others than the hot path look at it. Losses are counted by recording, so that
 * what the next one loses while the writer still ends the one before is found where it belongs.
 */
#include "libtrace/session.h"

#include <string.h>

void mt_losses_read_turn(struct moetrace_session *session, uint32_t turn,
			 struct mt_loss_counts *ret_counts)
{
	struct mt_loss *losses = session->losses[turn];

	for (int i = 0; i < MT_N_LOSS; i++) {
		/* Pairs with mt_count_losses(). */
		ret_counts->n[i] = atomic_load_explicit(&losses[i].n, memory_order_acquire);
		ret_counts->n_bytes[i] = atomic_load(&losses[i].n_bytes);
	}
}

void mt_losses_add(struct mt_loss_counts *to, const struct mt_loss_counts *counts)
{
	for (int i = 0; i < MT_N_LOSS; i++) {
		to->n[i] += counts->n[i];
		to->n_bytes[i] += counts->n_bytes[i];
	}
}

void mt_losses_read(struct moetrace_session *session, struct mt_loss_counts *ret_counts)
{
	struct mt_loss_counts counts;

	memset(ret_counts, 0, sizeof(*ret_counts));
	for (uint32_t turn = 0; turn < MT_N_LOSS_TURNS; turn++) {
		mt_losses_read_turn(session, turn, &counts);
		mt_losses_add(ret_counts, &counts);
	}
}

/* What is still running when its recording ends, the end itself tells, and only late this. */
int mt_is_lost_pass(enum mt_loss_kind kind)
{
	return kind == MT_LOSS_PASS_NO_RING || kind == MT_LOSS_PASS_RING_FULL ||
	       kind == MT_LOSS_PASS_DEVICE_FULL || kind == MT_LOSS_PASS_DEVICE;
}

uint64_t mt_lost_passes(const struct mt_loss_counts *counts)
{
	uint64_t n = 0;

	for (int i = 0; i < MT_N_LOSS; i++)
		n += mt_is_lost_pass(i) ? counts->n[i] : 0;
	return n;
}

static uint64_t last_ns(struct mt_loss *loss)
{
	/* Pairs with mt_count_losses(). */
	return atomic_load_explicit(&loss->n, memory_order_acquire) ?
		       atomic_load(&loss->last_ns) :
		       0;
}

uint64_t mt_lost_passes_ns(struct moetrace_session *session)
{
	uint64_t latest_ns = 0;

	for (uint32_t turn = 0; turn < MT_N_LOSS_TURNS; turn++)
		for (int i = 0; i < MT_N_LOSS; i++) {
			uint64_t ns = mt_is_lost_pass(i) ? last_ns(&session->losses[turn][i]) : 0;

			latest_ns = ns > latest_ns ? ns : latest_ns;
		}
	return latest_ns;
}
