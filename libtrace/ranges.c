/* SPDX-License-Identifier: MIT */
/*
 * The ring of ranges, and the writer's part: rows of table range, in the order in which ranges ended.
 * In flight mode they are kept with the passes.
 */
#include "libtrace/ranges.h"

#include <stdlib.h>
#include <string.h>

#include "libtrace/writer_internal.h"

#define RING_BYTES (UINT64_C(256) << 10) /* 2048 ranges */

int mt_ranges_make(struct moetrace_session *session)
{
	struct mt_ring *none = NULL;
	struct mt_ring *ring = NULL;
	uint8_t *data = NULL;

	if (atomic_load(&session->ranges))
		return MOETRACE_OK;
	if (posix_memalign((void **)&ring, MT_LINE_BYTES, sizeof(*ring)) ||
	    posix_memalign((void **)&data, MT_LINE_BYTES, RING_BYTES)) {
		free(ring);
		return mt_session_error(session, MOETRACE_E_NOMEM, "out of memory");
	}
	memset(ring, 0, sizeof(*ring));
	/* Touched here, so that nobody waits for the kernel later. */
	memset(data, 0, RING_BYTES);
	mt_ring_open(ring, data, RING_BYTES);
	if (atomic_compare_exchange_strong(&session->ranges, &none, ring))
		return MOETRACE_OK;
	free(data);
	free(ring);
	return MOETRACE_OK;
}

void mt_ranges_free(struct moetrace_session *session)
{
	struct mt_ring *ring = atomic_load(&session->ranges);

	if (!ring)
		return;
	free(ring->data);
	free(ring);
}

/* A small number for a thread; -1: out of memory. */
static int64_t number_of(struct mt_writer *writer, uint64_t thread)
{
	uint64_t *grown;
	uint32_t i = writer->n_threads;

	while (i > 0 && writer->threads[i - 1] != thread)
		i--;
	if (i > 0)
		return i;
	grown = realloc(writer->threads, (writer->n_threads + 1ul) * sizeof(*grown));
	if (!grown)
		return -1;
	writer->threads = grown;
	grown[writer->n_threads++] = thread;
	return writer->n_threads;
}

int mt_writer_write_range(struct mt_writer *writer, const struct mt_record_range *range)
{
	struct mt_range_row row = {
		.recording_id = writer->recording_id,
		.name_id = range->name,
		.start_ns = (int64_t)range->start_ns,
		.end_ns = (int64_t)range->record.time_ns,
	};

	/* Of an earlier recording that ended before it was taken. */
	if (range->record.time_ns < writer->start_ns)
		return MOETRACE_OK;
	row.thread = number_of(writer, range->thread);
	if (row.thread < 0)
		return MOETRACE_E_NOMEM;
	writer->n_ranges++;
	return mt_store_range(writer->store, &row);
}

int mt_writer_write_ranges(struct mt_writer *writer)
{
	struct mt_ring *ring = atomic_load(&writer->session->ranges);
	uint64_t head = ring ? mt_ring_head(ring) : 0;
	struct mt_record *record;
	int status = MOETRACE_OK;

	while (ring && !status && (record = mt_ring_peek(ring, head))) {
		/* It ended after the recording: of the next one. */
		if (writer->recording_id && record->time_ns > writer->end_ns)
			break;
		if (mt_writer_is_late_range(writer, record))
			status = MOETRACE_OK;
		else if (writer->flight.recording_id && !writer->flight.is_writing)
			status = mt_flight_record(writer, 0, record);
		else if (writer->recording_id && record->type == MT_RECORD_RANGE)
			status = mt_writer_write_range(writer,
						       (const struct mt_record_range *)record);
		mt_ring_take(ring, record);
	}
	return status;
}
