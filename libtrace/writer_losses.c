/* SPDX-License-Identifier: MIT */
/*
 * What a recording lacks, as the writer finds it: what the hot path lost, what was used wrongly,
 * what was cut off at the end or waited for a file that takes no more.
 *
 * Invariant: a loss is told once.
 */
#include "libtrace/writer_internal.h"

static int write_gap(struct mt_writer *writer, enum mt_loss_kind kind, const struct mt_lost *lost)
{
	static const char *const streams[] = { "pass",     "pass", "layer", "dispatch",
					       "pass",     "pass", "kernel", "range",
					       "collective" };
	static const char *const reasons[] = { "no_ring", "ring_full", "ring_full", "ring_full",
					       "device_ring_full", "device", "ring_full",
					       "ring_full", "ring_full" };
	struct mt_open_gap *gap = &writer->gaps[kind];
	/* A loss whose time was taken by the look before lies between that look and now. */
	uint64_t first_ns = lost->first_ns ? lost->first_ns : writer->last_loss_ns;
	struct mt_gap_row row;

	if (!gap->gap_id || gap->commit + 1 < writer->n_commits) {
		gap->gap_id = ++writer->last_gap_id;
		gap->start_ns = first_ns;
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

int mt_writer_collect_losses(struct mt_writer *writer)
{
	int is_flight = writer->flight.recording_id != 0;
	struct mt_loss_counts now;
	int status = MOETRACE_OK;

	/* What is lost while a dump is written, or between two files, is of the recording after it. */
	if (writer->flight.is_writing || !mt_writer_current_id(writer))
		return MOETRACE_OK;
	mt_losses_read(writer->session, &now);
	for (int i = 0; !status && i < MT_N_LOSS; i++) {
		struct mt_loss *loss = &writer->session->losses[i];
		struct mt_lost lost = { .n = now.n[i] - writer->losses_seen.n[i],
				     .n_bytes = now.n_bytes[i] - writer->losses_seen.n_bytes[i] };

		if (!lost.n)
			continue;
		lost.first_ns = atomic_exchange(&loss->first_ns, 0);
		lost.last_ns = atomic_load(&loss->last_ns);
		status = is_flight ? mt_flight_lose(writer, i, &lost) :
				     mt_writer_lose(writer, i, &lost);
	}
	writer->losses_seen = now;
	writer->last_loss_ns = mt_writer_now_ns(writer);
	return status;
}

void mt_writer_forget_losses(struct mt_writer *writer)
{
	mt_losses_read(writer->session, &writer->losses_seen);
	for (int i = 0; i < MT_N_LOSS; i++)
		atomic_store(&writer->session->losses[i].first_ns, 0);
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
			n_passes += record->type == MT_RECORD_BEGIN;
			mt_ring_take(ring, record);
		}
	}
	return n_passes;
}

void mt_writer_count_failure(struct mt_writer *writer)
{
	uint64_t n_lost = writer->assembly.counts.passes - writer->committed.passes;
	struct mt_loss_counts now;

	for (uint32_t i = 0; i < MT_MAX_RINGS; i++)
		n_lost += writer->assembly.passes[i].is_open != 0;
	n_lost += mt_writer_discard_rings(writer) + writer->flight.n_passes;
	writer->losses.passes += n_lost;
	writer->discarded_passes += n_lost;
	/* No commit will take what the hot path lost since the last one. */
	mt_losses_read(writer->session, &now);
	writer->losses.passes += mt_lost_passes(&now) - mt_lost_passes(&writer->losses_seen);
	writer->losses_seen = now;
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
