/* SPDX-License-Identifier: MIT */
/*
 * What a recording lacks, as the writer finds it: what the hot path lost, what was used wrongly,
 * what was cut off at the end or waited for a file that takes no more.
 *
 * Invariant: a loss is told once, in the recording that the hot path counted it for; one that has ended
 * already is writer_late.c's, but where its file is closed the one that runs takes it over.
 */
#include "libtrace/writer_internal.h"

#include <string.h>

static const struct {
	const char *stream;
	const char *reason;
	const char *counter; /* NULL: told beside what is dropped */
} loss_kinds[MT_N_LOSS] = {
	[MT_LOSS_PASS_NO_RING] = { "pass", "no_ring", "dropped_passes" },
	[MT_LOSS_PASS_RING_FULL] = { "pass", "ring_full", "dropped_passes" },
	[MT_LOSS_LAYER_RING_FULL] = { "layer", "ring_full", "dropped_layers" },
	[MT_LOSS_DISPATCH_RING_FULL] = { "dispatch", "ring_full", "dropped_dispatches" },
	[MT_LOSS_PASS_DEVICE_FULL] = { "pass", "device_ring_full", "dropped_passes" },
	[MT_LOSS_PASS_DEVICE] = { "pass", "device", "dropped_passes" },
	[MT_LOSS_KERNEL_RING_FULL] = { "kernel", "ring_full", "dropped_kernels" },
	[MT_LOSS_RANGE_RING_FULL] = { "range", "ring_full", "dropped_ranges" },
	[MT_LOSS_COLLECTIVE_RING_FULL] = { "collective", "ring_full", "dropped_collectives" },
	[MT_LOSS_PASS_CUT] = { "pass", "stop_timeout", NULL },
	[MT_LOSS_RANGE_CUT] = { "range", "stop_timeout", NULL },
};

const char *mt_writer_loss_counter(enum mt_loss_kind kind)
{
	return loss_kinds[kind].counter;
}

void mt_writer_gap_row(enum mt_loss_kind kind, struct mt_gap_row *ret_row)
{
	*ret_row = (struct mt_gap_row){ .stream = loss_kinds[kind].stream, .reason = loss_kinds[kind].reason };
}

static int write_gap(struct mt_writer *writer, enum mt_loss_kind kind, const struct mt_lost *lost)
{
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
	mt_writer_gap_row(kind, &row);
	row.gap_id = gap->gap_id;
	row.recording_id = writer->recording_id;
	row.start_ns = (int64_t)gap->start_ns;
	row.end_ns = (int64_t)(lost->last_ns > gap->start_ns ? lost->last_ns : gap->start_ns);
	row.n_lost = (int64_t)gap->n_lost;
	row.bytes_lost = loss_kinds[kind].counter ? (int64_t)gap->bytes_lost : MT_NULL;
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
	else if (mt_is_lost_pass(kind))
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

void mt_writer_look_at_turn(struct mt_writer *writer, uint32_t turn, struct mt_lost *lost,
			    struct mt_loss_counts *counts)
{
	struct mt_loss_counts *seen = &writer->losses_seen[turn];
	struct mt_loss_counts now;

	mt_losses_read_turn(writer->session, turn, &now);
	for (int i = 0; i < MT_N_LOSS; i++) {
		add_lost(writer, turn, i, &now, &lost[i]);
		if (counts) {
			counts->n[i] += now.n[i] - seen->n[i];
			counts->n_bytes[i] += now.n_bytes[i] - seen->n_bytes[i];
		}
	}
	*seen = now;
}

/* What was lost since the last look, by kind; 0: nothing. */
static int look(struct mt_writer *writer, struct mt_lost *ret_lost)
{
	int is_any = 0;

	memset(ret_lost, 0, MT_N_LOSS * sizeof(*ret_lost));
	for (uint32_t turn = 0; turn < MT_N_LOSS_TURNS; turn++) {
		uint32_t recording_id = mt_writer_id_of_turn(writer, turn);

		if (recording_id && !mt_writer_ended_here(writer, recording_id))
			mt_writer_look_at_turn(writer, turn, ret_lost, NULL);
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

	/* What is lost while a dump is written, or between two recordings, is told afterwards. */
	if (!mt_writer_current_id(writer) || writer->flight.is_writing)
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

uint64_t mt_writer_discard_rings(struct mt_writer *writer)
{
	uint64_t n_passes = 0;

	for (uint32_t i = 0; i < writer->session->pool.n_streams; i++) {
		struct mt_ring *ring = &writer->session->pool.rings[i];
		uint64_t head = mt_ring_head(ring);
		struct mt_record *record;

		while ((record = mt_ring_peek(ring, head))) {
			n_passes += (uint64_t)mt_writer_note_taken(
				writer, i % writer->session->pool.n_rings, record);
			mt_ring_take(ring, record);
		}
	}
	return n_passes;
}

uint64_t mt_writer_count_unstored(struct mt_writer *writer)
{
	uint64_t n_lost = writer->assembly.counts.passes - writer->committed.passes;

	for (uint32_t i = 0; i < MT_N_RINGS; i++)
		n_lost += writer->assembly.passes[i].is_open != 0;
	return n_lost + mt_writer_count_untold(writer);
}

void mt_writer_count_failure(struct mt_writer *writer)
{
	uint64_t n_lost = mt_writer_discard_rings(writer) + writer->flight.n_passes;
	struct mt_loss_counts seen, now;

	n_lost += mt_writer_count_unstored(writer);
	writer->losses.passes += n_lost;
	writer->discarded_passes += n_lost;
	/* No commit will take what the hot path lost since the last one. */
	mt_writer_losses_seen(writer, &seen);
	mt_writer_forget_losses(writer);
	mt_writer_losses_seen(writer, &now);
	writer->losses.passes += mt_lost_passes(&now) - mt_lost_passes(&seen);
	writer->losses.passes += now.n[MT_LOSS_PASS_CUT] - seen.n[MT_LOSS_PASS_CUT];
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
