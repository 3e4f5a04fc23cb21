/* SPDX-License-Identifier: MIT */
/*
 * What is told of a recording after its end. A thread may be held wherever it is, for as long as it
 * likes: between its look at which recording is on and the first record of its pass, between a loss
 * and its count, in the end of a range. The end of the recording waits for it no longer than was
 * asked.
 *
 * Invariant: a pass is told once. Those that the end finds in the hands of a thread it counts
 * itself, and remembers their rings; a pass that comes out of a ring after the end of its recording
 * and is none of these is counted when it comes. It goes to its own recording while that is in this
 * file, else to the one that runs, else into a diagnostic. What has not come when the session is
 * closed nobody counts.
 */
#include "libtrace/writer_internal.h"

#include <stdio.h>
#include <string.h>

#include "libtrace/hot.h"

/* ---- passes whose recording has ended ---- */

static void count_late(struct mt_writer *writer, uint32_t recording_id, enum mt_loss_kind kind,
		       uint64_t time_ns)
{
	const uint32_t n_turns = MT_N_LOSS_TURNS - MT_N_AHEAD;

	/* Counters of older recordings are those of newer ones by now. */
	if (recording_id + n_turns <= writer->newest_id)
		recording_id = writer->newest_id - n_turns + 1;
	mt_count_loss(writer->session, recording_id, kind, 0, time_ns);
}

int mt_writer_note_taken(struct mt_writer *writer, uint32_t ring, const struct mt_record *record)
{
	const struct mt_record_begin *begin = (const struct mt_record_begin *)record;
	const uint32_t current_id = mt_writer_current_id(writer);

	if (record->type == MT_RECORD_END)
		writer->has_begun[ring] = 0;
	if (record->type != MT_RECORD_BEGIN || begin->skip != MT_SKIP_NONE)
		return 0;
	writer->has_begun[ring] = 1;
	if (current_id && begin->recording_id >= current_id)
		return 1;
	if (begin->recording_id != writer->told_ids[ring])
		count_late(writer, begin->recording_id, MT_LOSS_PASS_CUT, record->time_ns);
	writer->told_ids[ring] = 0;
	return 0;
}

/* Does a pass of the recording begin with the ring's next record? */
static int has_begin(struct mt_ring *ring, uint32_t recording_id)
{
	struct mt_record *record;

	while ((record = mt_ring_peek(ring, mt_ring_head(ring))) && record->type == MT_RECORD_PAD)
		mt_ring_take(ring, record);
	return record && record->type == MT_RECORD_BEGIN &&
	       ((const struct mt_record_begin *)record)->skip == MT_SKIP_NONE &&
	       ((const struct mt_record_begin *)record)->recording_id == recording_id;
}

/* Has a thread latched the recording in this ring, and not told its pass? */
static int is_latched(struct moetrace_session *session, uint32_t ring, uint32_t recording_id)
{
	uint32_t latched = recording_id;

	/* Pairs with mt_pass_refuse(): one of the two counts it. A failed end did in vain. */
	return mt_ring_is_held(&session->pool, ring) &&
	       (atomic_compare_exchange_strong(&session->passes[ring].recording_id, &latched,
					       recording_id | MT_TOLD) ||
		latched == (recording_id | MT_TOLD));
}

uint64_t mt_writer_count_untold(struct mt_writer *writer)
{
	struct moetrace_session *session = writer->session;
	const uint32_t recording_id = mt_writer_current_id(writer);
	uint64_t n = 0;

	for (uint32_t i = 0; i < session->pool.n_rings; i++) {
		/* In this order: what a ring's last holder told is in it. */
		if (writer->has_begun[i] || (!is_latched(session, i, recording_id) &&
					     !has_begin(&session->pool.rings[i], recording_id)))
			continue;
		writer->told_ids[i] = recording_id;
		n++;
	}
	return n;
}

/* ---- losses of recordings that have ended ---- */

uint32_t mt_writer_id_of_turn(const struct mt_writer *writer, uint32_t turn)
{
	uint32_t back = (writer->newest_id + MT_N_LOSS_TURNS - turn) % MT_N_LOSS_TURNS;

	return back < MT_N_LOSS_TURNS - MT_N_AHEAD && back < writer->newest_id
		       ? writer->newest_id - back
		       : 0;
}

void mt_writer_note_file_id(struct mt_writer *writer, uint32_t recording_id)
{
	writer->file_ids[writer->n_file_ids++ % MT_N_LOSS_TURNS] = recording_id;
}

uint32_t mt_writer_ended_here(const struct mt_writer *writer, uint32_t recording_id)
{
	uint32_t found = 0;

	if (mt_writer_current_id(writer) && recording_id >= mt_writer_current_id(writer))
		return 0;
	/* One that was switched to and never began is counted with the one before it. */
	for (uint32_t i = 0; i < MT_N_LOSS_TURNS; i++)
		if (writer->file_ids[i] <= recording_id && writer->file_ids[i] > found)
			found = writer->file_ids[i];
	return found;
}

/* In the rows of a recording of this file, which has ended. */
static int tell_in(struct mt_writer *writer, uint32_t recording_id, enum mt_loss_kind kind,
		   const struct mt_lost *lost)
{
	const char *counter = mt_writer_loss_counter(kind);
	struct mt_gap_row row;
	int status;

	mt_writer_gap_row(kind, &row);
	row.gap_id = ++writer->last_gap_id;
	row.recording_id = recording_id;
	row.start_ns = (int64_t)lost->first_ns;
	row.end_ns = (int64_t)(lost->last_ns > lost->first_ns ? lost->last_ns : lost->first_ns);
	row.n_lost = (int64_t)lost->n;
	row.bytes_lost = counter ? (int64_t)lost->n_bytes : MT_NULL;
	status = mt_store_gap(writer->store, &row);
	if (!status && counter)
		status = mt_store_stat_add(writer->store, recording_id, counter, row.n_lost);
	if (!status && counter)
		status = mt_store_stat_add(writer->store, recording_id, "dropped_bytes",
					   row.bytes_lost);
	return status;
}

/* Nothing runs, and the file is closed. */
static int say(struct mt_writer *writer, uint32_t recording_id, enum mt_loss_kind kind,
	       const struct mt_lost *lost)
{
	struct mt_gap_row row;
	char text[256];

	mt_writer_gap_row(kind, &row);
	snprintf(text, sizeof(text),
		 "recording %u lacks %llu more of stream '%s' ('%s') than its file says: that was "
		 "closed before a thread told of them",
		 recording_id, (unsigned long long)lost->n, row.stream, row.reason);
	return mt_store_diagnostic(writer->store, ++writer->last_diagnostic_id,
				   (int64_t)mt_writer_now_ns(writer), "warning", "writer", text, 1);
}

/* What was lost of a recording that has ended; what the one that runs takes over is left. */
static int tell_turn(struct mt_writer *writer, uint32_t turn, uint32_t recording_id)
{
	struct mt_lost lost[MT_N_LOSS];
	uint32_t here = mt_writer_ended_here(writer, recording_id);
	int status = MOETRACE_OK;

	if (!here && mt_writer_current_id(writer))
		return MOETRACE_OK;
	memset(lost, 0, sizeof(lost));
	/* It is none of the recording that runs. */
	mt_writer_look_at_turn(writer, turn, lost, &writer->losses_at_start);
	for (int i = 0; !status && i < MT_N_LOSS; i++)
		if (lost[i].n)
			status = here ? tell_in(writer, here, i, &lost[i])
				      : say(writer, recording_id, i, &lost[i]);
	return status;
}

int mt_writer_collect_late(struct mt_writer *writer)
{
	int status = MOETRACE_OK;

	for (uint32_t turn = 0; !status && turn < MT_N_LOSS_TURNS; turn++) {
		uint32_t recording_id = mt_writer_id_of_turn(writer, turn);

		if (recording_id &&
		    (!mt_writer_current_id(writer) || recording_id < mt_writer_current_id(writer)))
			status = tell_turn(writer, turn, recording_id);
	}
	return status;
}

/* ---- ranges ---- */

int mt_writer_is_late_range(struct mt_writer *writer, const struct mt_record *record)
{
	const int is_current = mt_writer_current_id(writer) && record->time_ns >= writer->start_ns;

	if (record->type != MT_RECORD_RANGE || is_current || !writer->ended.recording_id ||
	    record->time_ns < writer->ended.start_ns || record->time_ns > writer->ended.end_ns)
		return 0;
	count_late(writer, writer->ended.recording_id, MT_LOSS_RANGE_CUT, record->time_ns);
	return 1;
}
