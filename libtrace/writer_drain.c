/* SPDX-License-Identifier: MIT */
/*
 * The writer takes records out of the rings and gives them to the assembly, or to the memory of
 * flight mode. Invariants: records are taken in the order of their times, a pass's side stream
 * before its END; nothing is taken beyond the positions that were noted, nor of a recording that
 * has not started yet for the writer; when the file's limit is reached, the recording ends.
 */
#include "libtrace/writer_internal.h"

#include <time.h>

#include "libtrace/clock.h"

/* How long a producer may take to finish copying a record that a message waits for. */
#define RECORD_PATIENCE_NS MT_NS_PER_S

int mt_writer_is_over_limit(const struct mt_writer *writer)
{
	struct mt_store_stats stats;

	mt_store_stats_get(writer->store, &stats);
	/* What is pending goes into the journal and, later, into the file; see reserve_bytes(). */
	return writer->parts_bytes + stats.database_bytes + stats.journal_bytes +
		       2 * stats.pending_bytes + mt_writer_reserve_bytes(writer) >=
	       writer->limit_bytes;
}

/*
 * The next record of a stream before @limit, or NULL; waits for its producer if it must, once a record:
 * one that is held in the middle of it is not waited for with each message.
 */
static struct mt_record *next_record(struct mt_writer *writer, uint32_t stream, uint64_t limit,
				     int must_wait)
{
	struct mt_ring *ring = &writer->session->pool.rings[stream];
	const struct timespec pause = { 0, 20 * 1000 };
	struct mt_record *record = mt_ring_peek(ring, limit);
	uint64_t tail = mt_ring_tail(ring);
	uint64_t until_ns;

	if (record || !must_wait || tail >= limit || writer->given_up[stream] == tail + 1)
		return record;
	until_ns = mt_monotonic_ns() + RECORD_PATIENCE_NS;
	while (!record && mt_monotonic_ns() < until_ns) {
		nanosleep(&pause, NULL);
		record = mt_ring_peek(ring, limit);
	}
	if (!record)
		writer->given_up[stream] = tail + 1;
	return record;
}

/*
 * The stream whose next record is the oldest, so that passes close in the order they ended in.
 * Of equals the main streams come first: a pass's BEGIN before its layers.
 */
static int oldest(struct mt_record *const *records, uint32_t n_streams)
{
	int found = -1;

	for (uint32_t i = 0; i < n_streams; i++)
		if (records[i] &&
		    (found < 0 || records[i]->time_ns < records[found]->time_ns))
			found = (int)i;
	return found;
}

static void note_peaks(struct mt_writer *writer)
{
	for (uint32_t i = 0; i < writer->session->pool.n_streams; i++) {
		uint64_t waiting_bytes = mt_ring_waiting_bytes(&writer->session->pool.rings[i]);

		if (waiting_bytes > writer->ring_peak_bytes)
			writer->ring_peak_bytes = waiting_bytes;
	}
}

static void take(struct mt_writer *writer, uint32_t stream, struct mt_record *record)
{
	struct mt_ring_pool *pool = &writer->session->pool;
	uint32_t ring = stream % pool->n_rings;

	(void)mt_writer_note_taken(writer, ring, record);
	mt_writer_check(writer, writer->flight.recording_id ?
			      mt_flight_record(writer, ring, record) :
			      mt_assembly_record(&writer->assembly, ring, record));
	mt_ring_take(&pool->rings[stream], record);
}

/* Before a pass ends: its records in the side stream, which may lie past this look's limit. */
static void take_side(struct mt_writer *writer, uint32_t ring, const struct mt_record *end)
{
	uint32_t side = ring + writer->session->pool.n_rings;
	uint64_t limit = ((const struct mt_record_end *)end)->side_position;
	struct mt_record *record;

	while (!writer->status &&
	       (record = next_record(writer, side, limit, 1)))
		take(writer, side, record);
}

void mt_writer_count_repeated(struct mt_writer *writer)
{
	while (writer->ledger.n_repeated) {
		writer->ledger.n_repeated--;
		mt_misuse(writer->session, MT_MISUSE_POSITION);
	}
}

/*
 * The next record of a stream that may be taken now. A pass of a recording that has not started
 * yet for the writer waits in its ring, and so does everything behind it, in both streams.
 */
static struct mt_record *next_of(struct mt_writer *writer, uint32_t stream, const uint64_t *heads,
				 int must_wait)
{
	struct mt_ring_pool *pool = &writer->session->pool;
	struct mt_record *record = next_record(writer, stream, heads[stream], must_wait);
	uint32_t main = stream % pool->n_rings;
	const struct mt_record *first = record;

	if (record && stream != main)
		first = mt_ring_peek(&pool->rings[main], heads[main]);
	if (first && first->type == MT_RECORD_BEGIN &&
	    ((const struct mt_record_begin *)first)->recording_id > writer->newest_id)
		return NULL;
	return record;
}

void mt_writer_drain(struct mt_writer *writer, const uint64_t *heads, int must_wait)
{
	struct mt_ring_pool *pool = &writer->session->pool;
	struct mt_record *records[MT_MAX_STREAMS];
	int stream;

	note_peaks(writer);
	for (uint32_t i = 0; i < pool->n_streams; i++)
		records[i] = next_of(writer, i, heads, must_wait);
	while (!writer->status && !writer->is_full &&
	       (stream = oldest(records, pool->n_streams)) >= 0) {
		uint32_t side = (uint32_t)stream + pool->n_rings;

		if (records[stream]->type == MT_RECORD_END) {
			take_side(writer, (uint32_t)stream, records[stream]);
			records[side] = next_of(writer, side, heads, 0);
		}
		take(writer, (uint32_t)stream, records[stream]);
		records[stream] = next_of(writer, (uint32_t)stream, heads, must_wait);
		writer->is_full = writer->recording_id && mt_writer_is_over_limit(writer);
	}
	mt_writer_count_repeated(writer);
	if (writer->is_full && !writer->status)
		mt_writer_end_full(writer);
}
