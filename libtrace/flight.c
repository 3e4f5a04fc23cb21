/* SPDX-License-Identifier: MIT */
/*
 * Flight mode, the writer's part: what is taken from the rings and the queue goes into the log in
 * the order in which it was taken, and a dump does with it, in that order, what is otherwise done
 * at once. Invariants: while nothing is written the ledger is idle and stands where the log
 * begins; a pass whose BEGIN was let go has no open pass, so that the rest of it is passed over;
 * losses are entries, too, so that a dump tells those of its own time.
 */
#include <stdio.h>
#include <string.h>

#include "libtrace/collect.h"
#include "libtrace/writer_internal.h"

/* A pass of the recording whose rows are wanted. */
static int is_kept_begin(const struct mt_flight *flight, const struct mt_record *entry)
{
	const struct mt_record_begin *begin = (const struct mt_record_begin *)entry;

	return entry->type == MT_RECORD_BEGIN && begin->recording_id == flight->recording_id &&
	       begin->skip == MT_SKIP_NONE;
}

/* A range that ended while the recording ran. */
static int is_kept_range(const struct mt_flight *flight, const struct mt_record *entry)
{
	return entry->type == MT_RECORD_RANGE && entry->time_ns >= flight->start_ns;
}

static uint64_t *let_go_number(struct mt_flight *flight, uint64_t number)
{
	return &flight->let_go_numbers[mt_number_index(number)];
}

/* What a message says is so, whether or not a recording runs. */
static int do_message(struct mt_writer *writer, const struct mt_record *entry)
{
	struct mt_message *message = mt_flight_message_unpack(entry);
	int is_accept = message && message->type == MT_MESSAGE_ACCEPT;
	int status = MOETRACE_OK;

	if (!message)
		return MOETRACE_E_NOMEM;
	if (!is_accept)
		status = mt_writer_do_request(writer, message);
	else if (writer->recording_id && message->number > *let_go_number(&writer->flight,
									   message->number))
		status = mt_assembly_accept(&writer->assembly, message);
	if (status == MOETRACE_E_NOT_FOUND) {
		mt_misuse(writer->session, is_accept ? MT_MISUSE_ACCEPT : MT_MISUSE_REQUEST);
		status = MOETRACE_OK;
	}
	mt_message_free(message);
	return status;
}

/* Let the oldest entry go. */
static int let_go(struct mt_writer *writer, const struct mt_record *entry)
{
	struct mt_flight *flight = &writer->flight;
	int status = MOETRACE_OK;

	if (is_kept_begin(flight, entry)) {
		flight->n_passes--;
		flight->n_let_go++;
	}
	if (entry->type == MT_RECORD_BEGIN) {
		uint64_t number = ((const struct mt_record_begin *)entry)->number;
		uint64_t *last = let_go_number(flight, number);

		*last = number > *last ? number : *last;
		mt_assembly_note_number(&writer->assembly, number);
	} else if (entry->type == MT_FLIGHT_MESSAGE) {
		status = do_message(writer, entry);
	} else if (entry->type == MT_FLIGHT_LOSS) {
		const struct mt_flight_loss *loss = (const struct mt_flight_loss *)entry;

		flight->n_lost_passes += mt_is_lost_pass(loss->kind) ? loss->lost.n : 0;
	}
	mt_flight_log_take(&flight->log, entry);
	return status;
}

/* Room for an entry, whatever must go for it; *ret_entry NULL: it is larger than the memory. */
static int make_room(struct mt_writer *writer, uint64_t n_bytes, struct mt_record **ret_entry)
{
	struct mt_flight_log *log = &writer->flight.log;
	struct mt_record *oldest;
	int status = MOETRACE_OK;

	*ret_entry = mt_flight_log_add(log, n_bytes);
	while (!status && !*ret_entry && (oldest = mt_flight_log_peek(log))) {
		status = let_go(writer, oldest);
		*ret_entry = mt_flight_log_add(log, n_bytes);
	}
	if (!status && !*ret_entry && !mt_flight_log_peek(log))
		*ret_entry = mt_flight_log_add(log, n_bytes);
	return status;
}

int mt_flight_record(struct mt_writer *writer, uint32_t ring, const struct mt_record *record)
{
	struct mt_flight *flight = &writer->flight;
	struct mt_record *entry;
	int status;

	if (record->type == MT_RECORD_PAD)
		return MOETRACE_OK;
	status = make_room(writer, record->n_bytes, &entry);
	/* Without its record a pass that is too large for the memory has no BEGIN any more. */
	if (status || !entry) {
		flight->n_let_go += !status && is_kept_begin(flight, record);
		return status;
	}
	memcpy(entry, record, record->n_bytes);
	entry->reserved = ring;
	flight->n_passes += is_kept_begin(flight, entry);
	return MOETRACE_OK;
}

int mt_flight_message(struct mt_writer *writer, struct mt_message *message)
{
	struct mt_record *entry;
	int status = make_room(writer, mt_flight_message_bytes(message), &entry);

	if (status)
		return status;
	if (entry) {
		mt_flight_message_pack(entry, message);
		return MOETRACE_OK;
	}
	/* All that came before it has been let go, so that its time has come. */
	status = message->type == MT_MESSAGE_ACCEPT ? MOETRACE_OK :
						      mt_writer_do_request(writer, message);
	if (status != MOETRACE_E_NOT_FOUND)
		return status;
	mt_misuse(writer->session, MT_MISUSE_REQUEST);
	return MOETRACE_OK;
}

int mt_flight_lose(struct mt_writer *writer, enum mt_loss_kind kind, const struct mt_lost *lost)
{
	struct mt_record *entry;
	struct mt_flight_loss *loss;
	int status = make_room(writer, sizeof(*loss), &entry);

	if (status)
		return status;
	loss = (struct mt_flight_loss *)entry;
	entry->type = MT_FLIGHT_LOSS;
	entry->time_ns = lost->last_ns;
	loss->kind = kind;
	loss->lost = *lost;
	return MOETRACE_OK;
}

int mt_flight_trim(struct mt_writer *writer, uint64_t until_ns)
{
	struct mt_flight *flight = &writer->flight;
	const struct mt_record *entry;
	int status = MOETRACE_OK;

	if (!flight->recording_id || !flight->keep_ns || until_ns < flight->keep_ns)
		return MOETRACE_OK;
	while (!status && (entry = mt_flight_log_peek(&flight->log)) &&
	       entry->time_ns < until_ns - flight->keep_ns)
		status = let_go(writer, entry);
	return status;
}

/* ---- start and end ---- */

int mt_flight_reserve(struct mt_writer *writer, const struct mt_message *start)
{
	if (!start->request) {
		mt_flight_log_close(&writer->flight.log);
		return MOETRACE_OK;
	}
	if (mt_flight_log_open(&writer->flight.log, start->request) == MOETRACE_OK)
		return MOETRACE_OK;
	return mt_session_error(writer->session, MOETRACE_E_NOMEM,
				"start: out of memory: flight_bytes %llu",
				(unsigned long long)start->request);
}

void mt_flight_start(struct mt_writer *writer, const struct mt_message *start)
{
	struct mt_flight *flight = &writer->flight;
	struct mt_loss_counts seen;

	flight->recording_id = start->recording_id;
	flight->is_writing = 0;
	flight->keep_ns = start->source;
	flight->start_ns = start->time_ns;
	flight->n_passes = 0;
	flight->n_let_go = 0;
	mt_writer_losses_seen(writer, &seen);
	flight->n_lost_passes = mt_lost_passes(&seen);
	memset(flight->let_go_numbers, 0, sizeof(flight->let_go_numbers));
	mt_assembly_end_numbers(&writer->assembly);
	/* Nothing reaches the file, and the ledger stays idle. */
	writer->recording_id = 0;
	writer->assembly.recording_id = 0;
}

/* What comes before the first pass, range or loss that is kept is told to the ledger. */
static int settle_begin(struct mt_writer *writer)
{
	const struct mt_record *entry;
	int status = MOETRACE_OK;

	while (!status && (entry = mt_flight_log_peek(&writer->flight.log)) &&
	       !is_kept_begin(&writer->flight, entry) && !is_kept_range(&writer->flight, entry) &&
	       entry->type != MT_FLIGHT_LOSS)
		status = let_go(writer, entry);
	return status;
}

/* When the oldest pass began, or the oldest range ended. */
static uint64_t first_kept_ns(struct mt_flight *flight)
{
	uint64_t position = flight->log.tail;
	uint64_t first_ns = UINT64_MAX;
	const struct mt_record *entry;

	while ((entry = mt_flight_log_next(&flight->log, &position)))
		if ((is_kept_begin(flight, entry) || is_kept_range(flight, entry)) &&
		    entry->time_ns < first_ns)
			first_ns = entry->time_ns;
	return first_ns == UINT64_MAX ? flight->start_ns : first_ns;
}

/* What was let go on purpose: all that is older than a dump, or all. */
static int say_bounds(struct mt_writer *writer, int is_dump)
{
	const struct mt_flight *flight = &writer->flight;
	char text[256];
	int status = mt_store_stat(writer->store, flight->recording_id, "flight_let_go_passes",
				   (int64_t)flight->n_let_go);

	if (status || !flight->n_let_go)
		return status;
	snprintf(text, sizeof(text),
		 "recording %u is what flight mode kept: %s%llu %spasses were let go on "
		 "purpose, none of them is a loss",
		 flight->recording_id, is_dump ? "" : "nothing, it ended without a dump; ",
		 (unsigned long long)flight->n_let_go, is_dump ? "earlier " : "");
	return mt_store_diagnostic(writer->store, ++writer->last_diagnostic_id,
				   (int64_t)mt_writer_now_ns(writer), "info", "session", text, 1);
}

/* The recording's row says where the kept part begins; open requests get theirs. */
static int open_recording(struct mt_writer *writer)
{
	struct mt_flight *flight = &writer->flight;
	struct mt_message start = {
		.type = MT_MESSAGE_START,
		.recording_id = flight->recording_id,
		.time_ns = first_kept_ns(flight),
		.state = writer->assembly.mode,
		.number = writer->assembly.sample_every_n_requests,
	};
	int status;

	flight->is_writing = 1;
	mt_writer_begin_counting(writer, &start);
	mt_collect_recount(writer->session->collect, start.time_ns);
	status = mt_store_recording_start(writer->store, flight->recording_id,
					  (int64_t)start.time_ns);
	if (!status)
		status = mt_writer_write_kept_clocks(writer);
	if (!status)
		status = say_bounds(writer, 1);
	if (!status && start.state != MOETRACE_MODE_STAT)
		status = mt_ledger_start(&writer->ledger, flight->recording_id, start.time_ns,
					 flight->n_lost_passes);
	return status;
}

static int write_entry(struct mt_writer *writer, struct mt_record *entry)
{
	struct mt_record_begin *begin = (struct mt_record_begin *)entry;

	if (entry->type == MT_FLIGHT_MESSAGE)
		return do_message(writer, entry);
	if (entry->type == MT_FLIGHT_LOSS) {
		const struct mt_flight_loss *loss = (const struct mt_flight_loss *)entry;

		return mt_writer_lose(writer, loss->kind, &loss->lost);
	}
	if (entry->type == MT_RECORD_RANGE)
		return mt_writer_write_range(writer, (const struct mt_record_range *)entry);
	if (entry->type == MT_RECORD_BEGIN) {
		writer->flight.n_passes -= (uint64_t)is_kept_begin(&writer->flight, entry);
		/* A parent that was let go is no fault of the program. */
		if (begin->parent && begin->parent <= *let_go_number(&writer->flight, begin->parent))
			begin->parent = 0;
	}
	return mt_assembly_record(&writer->assembly, entry->reserved, entry);
}

static int write_entries(struct mt_writer *writer)
{
	struct mt_flight_log *log = &writer->flight.log;
	struct mt_record *entry;
	int status = MOETRACE_OK;

	while (!status && !writer->is_full && (entry = mt_flight_log_peek(log))) {
		status = write_entry(writer, entry);
		mt_flight_log_take(log, entry);
		if (!status && mt_writer_is_over_limit(writer))
			writer->is_full = 1;
		else if (!status &&
			 mt_writer_now_ns(writer) - writer->last_commit_ns >= writer->commit_interval_ns)
			status = mt_writer_commit_and_go_on(writer);
	}
	return status;
}

static int end_recording(struct mt_writer *writer, const char *reason, uint64_t end_ns)
{
	struct mt_flight *flight = &writer->flight;
	int status = mt_writer_end_recording(writer, reason, end_ns);

	if (!status) {
		flight->recording_id = 0;
		flight->is_writing = 0;
	}
	return status;
}

int mt_flight_write(struct mt_writer *writer, const char *reason, uint64_t until_ns)
{
	int status = mt_writer_collect_losses(writer, 1);

	if (!status)
		status = mt_writer_write_ranges(writer);
	if (!status)
		status = mt_flight_trim(writer, until_ns);
	if (!status)
		status = settle_begin(writer);
	if (!status)
		status = mt_store_begin(writer->store);
	if (!status)
		status = open_recording(writer);
	if (!status)
		status = write_entries(writer);
	if (status)
		return status;
	if (writer->is_full) {
		mt_writer_end_full(writer);
		return writer->status ? writer->status : MOETRACE_E_IO;
	}
	return end_recording(writer, reason, mt_writer_now_ns(writer));
}

int mt_flight_end(struct mt_writer *writer, const char *reason, uint64_t end_ns)
{
	struct mt_flight *flight = &writer->flight;
	const struct mt_record *entry;
	int status = mt_writer_collect_losses(writer, 1);

	if (!status)
		status = mt_writer_write_ranges(writer);
	while (!status && (entry = mt_flight_log_peek(&flight->log)))
		status = let_go(writer, entry);
	if (!status)
		status = mt_store_begin(writer->store);
	if (!status) {
		struct mt_message start = {
			.recording_id = flight->recording_id,
			.time_ns = flight->start_ns,
			.state = writer->assembly.mode,
		};

		flight->is_writing = 1;
		mt_writer_begin_counting(writer, &start);
		mt_collect_recount(writer->session->collect, start.time_ns);
		status = say_bounds(writer, 0);
	}
	mt_flight_log_close(&flight->log);
	return status ? status : end_recording(writer, reason, end_ns);
}

uint64_t mt_flight_abandon(struct mt_writer *writer)
{
	struct mt_flight *flight = &writer->flight;
	uint64_t n_passes = flight->recording_id ? flight->n_passes : 0;
	const struct mt_record *entry;

	while (flight->recording_id && (entry = mt_flight_log_peek(&flight->log))) {
		if (entry->type == MT_FLIGHT_MESSAGE)
			(void)do_message(writer, entry);
		mt_flight_log_take(&flight->log, entry);
	}
	flight->recording_id = 0;
	flight->is_writing = 0;
	flight->n_passes = 0;
	return n_passes;
}
