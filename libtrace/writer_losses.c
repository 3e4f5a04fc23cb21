/* SPDX-License-Identifier: MIT */
/*
 * What a recording lacks, as the writer finds it: what the hot path lost, what was used wrongly,
 * what was cut off at the end or waited for a file that takes no more.
 *
 * Invariant: a loss is told once, in the recording that the hot path counted it for. What it counts
 * for one that has ended already goes to the one after it, unless nothing was recorded meanwhile.
 */
#include "libtrace/writer_internal.h"

#include <string.h>

static int write_gap(struct mt_writer *writer, enum mt_loss_kind kind, const struct mt_lost *lost)
{
	static const char *const streams[] = { "pass",     "pass", "layer", "dispatch",
					       "pass",     "pass", "kernel", "range",
					       "collective" };
	static const char *const reasons[] = { "no_ring", "ring_full", "ring_full", "ring_full",
					       "device_ring_full", "device", "ring_full",
					       "ring_full", "ring_full" };
	struct mt_open_gap *gap = &writer->gaps[kind];
	struct mt_gap_row row;

	if (!gap->gap_id || gap->commit + 1 < writer->n_commits) {
		gap->gap_id = ++writer->last_gap_id;
		gap->start_ns = lost->first_ns;
		gap->n_lost = 0;
		gap->bytes_lost = 0;
	}
	gap->commit = writer->n_commits;
	gap->n_lost += lost->n;
	gap->bytes_lost += lost->n_bytes;
	row = (struct mt_gap_row){
		.gap_id = gap->gap_id,
		.recording_id = writer->recording_id,
		.stream = streams[kind],
		.start_ns = (int64_t)gap->start_ns,
		.end_ns = (int64_t)(lost->last_ns > gap->start_ns ? lost->last_ns : gap->start_ns),
		.n_lost = (int64_t)gap->n_lost,
		.bytes_lost = (int64_t)gap->bytes_lost,
		.reason = reasons[kind],
	};
	return mt_store_gap(writer->store, &row);
}

int mt_writer_lose(struct mt_writer *writer, enum mt_loss_kind kind, const struct mt_lost *lost)
{
	if (kind == MT_LOSS_LAYER_RING_FULL)
		writer->losses.layers += lost->n;
	else if (kind == MT_LOSS_DISPATCH_RING_FULL)
		writer->losses.dispatches += lost->n;
	else if (kind == MT_LOSS_KERNEL_RING_FULL)
		writer->losses.kernels += lost->n;
	else if (kind == MT_LOSS_RANGE_RING_FULL)
		writer->losses.ranges += lost->n;
	else if (kind == MT_LOSS_COLLECTIVE_RING_FULL)
		writer->losses.collectives += lost->n;
	else
		writer->losses.passes += lost->n;
	writer->losses.bytes += lost->n_bytes;
	return writer->recording_id ? write_gap(writer, kind, lost) : MOETRACE_OK;
}

void mt_writer_losses_seen(const struct mt_writer *writer, struct mt_loss_counts *ret_counts)
{
	memset(ret_counts, 0, sizeof(*ret_counts));
	for (uint32_t turn = 0; turn < MT_N_LOSS_TURNS; turn++)
		mt_losses_add(ret_counts, &writer->losses_seen[turn]);
}

/* Is the turn one of the recordings that have not started for the writer? */
static int is_ahead(const struct mt_writer *writer, uint32_t turn)
{
	for (uint32_t i = 1; i <= MT_N_AHEAD; i++)
		if ((writer->newest_id + i) % MT_N_LOSS_TURNS == turn)
			return 1;
	return 0;
}

/* Of one kind, and of one turn: what was lost since the last look. */
static void add_lost(struct mt_writer *writer, uint32_t turn, enum mt_loss_kind kind,
		     const struct mt_loss_counts *now, struct mt_lost *lost)
{
	const struct mt_loss_counts *seen = &writer->losses_seen[turn];
	struct mt_loss *loss = &writer->session->losses[turn][kind];
	uint64_t first_ns, last_ns;

	if (now->n[kind] == seen->n[kind])
		return;
	lost->n += now->n[kind] - seen->n[kind];
	lost->n_bytes += now->n_bytes[kind] - seen->n_bytes[kind];
	first_ns = atomic_exchange(&loss->first_ns, 0);
	last_ns = atomic_load(&loss->last_ns);
	/* A loss whose time was taken by the look before lies between that look and now. */
	if (!first_ns)
		first_ns = writer->last_loss_ns;
	if (!lost->first_ns || first_ns < lost->first_ns)
		lost->first_ns = first_ns;
	if (last_ns > lost->last_ns)
		lost->last_ns = last_ns;
}

/* What was lost since the last look, by kind; 0: nothing. */
static int look(struct mt_writer *writer, struct mt_lost *ret_lost)
{
	int is_any = 0;

	memset(ret_lost, 0, MT_N_LOSS * sizeof(*ret_lost));
	for (uint32_t turn = 0; turn < MT_N_LOSS_TURNS; turn++) {
		struct mt_loss_counts now;

		if (is_ahead(writer, turn))
			continue;
		mt_losses_read_turn(writer->session, turn, &now);
		for (int i = 0; i < MT_N_LOSS; i++)
			add_lost(writer, turn, i, &now, &ret_lost[i]);
		writer->losses_seen[turn] = now;
	}
	for (int i = 0; i < MT_N_LOSS; i++)
		is_any |= ret_lost[i].n != 0;
	writer->last_loss_ns = mt_writer_now_ns(writer);
	return is_any;
}

/* Is all that was in the rings at the look in the memory of flight mode? */
static int is_taken(const struct mt_writer *writer)
{
	struct mt_ring_pool *pool = &writer->session->pool;

	for (uint32_t i = 0; i < pool->n_streams; i++)
		if (mt_ring_tail(&pool->rings[i]) < writer->lost_heads[i])
			return 0;
	return 1;
}

/*
 * A loss lies behind the BEGIN of the pass whose layer it is, so that it is let go no earlier: it
 * waits until what was in the rings has been taken. At the end it has been.
 */
static int collect_in_flight(struct mt_writer *writer, int is_end)
{
	int status = MOETRACE_OK;

	do {
		if (!writer->has_lost) {
			writer->has_lost = look(writer, writer->lost);
			mt_ring_heads(&writer->session->pool, writer->lost_heads);
			if (!writer->has_lost)
				return MOETRACE_OK;
		}
		if (!is_end && !is_taken(writer))
			return MOETRACE_OK;
		for (int i = 0; !status && i < MT_N_LOSS; i++)
			if (writer->lost[i].n)
				status = mt_flight_lose(writer, i, &writer->lost[i]);
		writer->has_lost = 0;
	} while (is_end && !status);
	return status;
}

int mt_writer_collect_losses(struct mt_writer *writer, int is_end)
{
	struct mt_lost lost[MT_N_LOSS];
	int status = MOETRACE_OK;

	/* What is lost while a dump is written, or between two files, is told afterwards. */
	if (writer->flight.is_writing || !mt_writer_current_id(writer))
		return MOETRACE_OK;
	if (writer->flight.recording_id)
		return collect_in_flight(writer, is_end);
	if (!look(writer, lost))
		return MOETRACE_OK;
	for (int i = 0; !status && i < MT_N_LOSS; i++)
		if (lost[i].n)
			status = mt_writer_lose(writer, i, &lost[i]);
	return status;
}

void mt_writer_forget_losses(struct mt_writer *writer)
{
	for (uint32_t turn = 0; turn < MT_N_LOSS_TURNS; turn++) {
		mt_losses_read_turn(writer->session, turn, &writer->losses_seen[turn]);
		for (int i = 0; i < MT_N_LOSS; i++)
			atomic_store(&writer->session->losses[turn][i].first_ns, 0);
	}
	writer->last_loss_ns = mt_writer_now_ns(writer);
}

int mt_writer_collect_misuse(struct mt_writer *writer)
{
	static const struct {
		const char *source;
		const char *sentence;
	} kinds[] = {
#define MT_MISUSE_ROW(name, source, sentence) { source, sentence },
		MT_MISUSE_MAP(MT_MISUSE_ROW)
#undef MT_MISUSE_ROW
	};
	int status = MOETRACE_OK;

	for (int i = 0; !status && i < MT_N_MISUSE; i++) {
		uint64_t n = atomic_load(&writer->session->misuse[i]);

		if (n == writer->misuse_seen[i])
			continue;
		if (!writer->misuse_seen[i])
			writer->misuse_first_ns[i] = mt_writer_now_ns(writer);
		writer->losses.misuse += n - writer->misuse_seen[i];
		writer->misuse_seen[i] = n;
		status = mt_store_diagnostic(writer->store, i + 1,
					     (int64_t)writer->misuse_first_ns[i], "warning",
					     kinds[i].source, kinds[i].sentence, (int64_t)n);
	}
	return status;
}

int mt_writer_write_cut_gap(struct mt_writer *writer, uint64_t end_ns, uint64_t n_lost,
			    const char *reason)
{
	struct mt_gap_row row = {
		.gap_id = ++writer->last_gap_id,
		.recording_id = writer->recording_id,
		.stream = "pass",
		.start_ns = (int64_t)end_ns,
		.end_ns = (int64_t)mt_writer_now_ns(writer),
		.n_lost = (int64_t)n_lost,
		.bytes_lost = MT_NULL,
		.reason = reason,
	};

	if (row.end_ns < row.start_ns)
		row.end_ns = row.start_ns;
	return n_lost ? mt_store_gap(writer->store, &row) : MOETRACE_OK;
}

void mt_writer_note_taken(struct mt_writer *writer, uint32_t ring, const struct mt_record *record)
{
	if (record->type == MT_RECORD_BEGIN &&
	    ((const struct mt_record_begin *)record)->skip == MT_SKIP_NONE)
		writer->has_begun[ring] = 1;
	else if (record->type == MT_RECORD_END)
		writer->has_begun[ring] = 0;
}

/* Does a pass of the recording begin with the ring's next record? */
static int has_begin(const struct mt_writer *writer, struct mt_ring *ring)
{
	struct mt_record *record;

	while ((record = mt_ring_peek(ring, mt_ring_head(ring))) && record->type == MT_RECORD_PAD)
		mt_ring_take(ring, record);
	return record && record->type == MT_RECORD_BEGIN &&
	       ((const struct mt_record_begin *)record)->skip == MT_SKIP_NONE &&
	       ((const struct mt_record_begin *)record)->recording_id == writer->recording_id;
}

uint64_t mt_writer_count_untold(struct mt_writer *writer)
{
	struct moetrace_session *session = writer->session;
	uint64_t n = 0;

	for (uint32_t i = 0; i < session->pool.n_rings; i++) {
		/* Asked first: what a ring's last holder told is in it. */
		int is_held = mt_ring_is_held(&session->pool, i);
		uint32_t latched = atomic_load(&session->passes[i].recording_id);

		if (!writer->has_begun[i])
			n += (is_held && latched == writer->recording_id) ||
			     has_begin(writer, &session->pool.rings[i]);
	}
	return n;
}

uint64_t mt_writer_discard_rings(struct mt_writer *writer)
{
	uint64_t n_passes = 0;

	for (uint32_t i = 0; i < writer->session->pool.n_streams; i++) {
		struct mt_ring *ring = &writer->session->pool.rings[i];
		uint64_t head = mt_ring_head(ring);
		struct mt_record *record;

		while ((record = mt_ring_peek(ring, head))) {
			n_passes += record->type == MT_RECORD_BEGIN;
			mt_writer_note_taken(writer, i % writer->session->pool.n_rings, record);
			mt_ring_take(ring, record);
		}
	}
	return n_passes;
}

void mt_writer_count_failure(struct mt_writer *writer)
{
	uint64_t n_lost = writer->assembly.counts.passes - writer->committed.passes;
	struct mt_loss_counts seen, now;

	for (uint32_t i = 0; i < MT_N_RINGS; i++)
		n_lost += writer->assembly.passes[i].is_open != 0;
	n_lost += mt_writer_discard_rings(writer) + writer->flight.n_passes;
	writer->losses.passes += n_lost;
	writer->discarded_passes += n_lost;
	/* No commit will take what the hot path lost since the last one. */
	mt_writer_losses_seen(writer, &seen);
	mt_writer_forget_losses(writer);
	mt_writer_losses_seen(writer, &now);
	writer->losses.passes += mt_lost_passes(&now) - mt_lost_passes(&seen);
	/* With those whose gaps were in the transaction that failed. */
	n_lost = writer->losses.passes - writer->committed_losses;
	writer->has_last_words = 1;
	writer->last_gap = (struct mt_gap_row){
		.gap_id = ++writer->last_gap_id,
		.recording_id = mt_writer_current_id(writer),
		.stream = "pass",
		.start_ns = (int64_t)writer->committed_ns,
		.end_ns = (int64_t)mt_writer_now_ns(writer),
		.n_lost = (int64_t)n_lost,
		.bytes_lost = MT_NULL,
		.reason = "io_error",
	};
	mt_writer_publish(writer);
}
