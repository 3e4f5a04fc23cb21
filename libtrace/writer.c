/* SPDX-License-Identifier: MIT */
/*
 * One cycle: note the ring positions, take the messages, do them in order (a message that
 * ends something first takes the records that came before it), then take the records up to
 * the noted positions. So a record is never seen before the request or model that it names,
 * and a request never ends before its last pass is stored.
 *
 * Invariant: after a failure of the store nothing more is written; messages are still
 * answered, so that nobody waits for ever, and rings are no longer emptied.
 */
#include "libtrace/writer.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "libtrace/assembly.h"
#include "libtrace/clock.h"
#include "libtrace/definitions.h"
#include "libtrace/ledger.h"
#include "libtrace/load.h"
#include "libtrace/writer_internal.h"

#define POLL_NS (20 * MT_NS_PER_MS)
#define IDLE_POLL_NS MT_NS_PER_S
/* How long a message that somebody waits for waits for another program's write lock. */
#define LOCK_PATIENCE_NS (2 * MT_NS_PER_S)
/* How long a producer may take to finish copying a record that a message waits for. */
#define RECORD_PATIENCE_NS MT_NS_PER_S

static uint64_t now_ns(const struct mt_writer *writer)
{
	return mt_session_ns(writer->session, mt_monotonic_ns());
}

/* The store or memory gave out: recording is over. */
static void give_up(struct mt_writer *writer, int status)
{
	struct moetrace_session *session = writer->session;

	if (writer->status)
		return;
	writer->status = status == MOETRACE_E_NOMEM ? status : MOETRACE_E_IO;
	atomic_store(&session->recording_id, 0);
	atomic_store(&session->failed, MOETRACE_E_IO);
	mt_session_error(session, writer->status, "%s",
			 status == MOETRACE_E_NOMEM ? "out of memory while writing" :
						      mt_store_error(writer->store));
	if (mt_writer_current_id(writer))
		mt_writer_count_failure(writer);
	/* From here on requests are kept in mind, and not in the file. */
	mt_ledger_stop(&writer->ledger);
	writer->recording_id = 0;
	writer->assembly.recording_id = 0;
	(void)mt_flight_abandon(writer);
	mt_writer_rotation_cancel(writer);
}

/* What failed may work again: then the file can say how the recording ended. */
static void say_last_words(struct mt_writer *writer)
{
	if (writer->has_last_words &&
	    mt_store_last_words(writer->store, &writer->last_gap,
				(int64_t)writer->losses.passes) == MOETRACE_OK)
		writer->has_last_words = 0;
}

/* Remember a failure of a step; returns the writer's status. */
static int check(struct mt_writer *writer, int status)
{
	if (status && status != MOETRACE_E_NOT_FOUND)
		give_up(writer, status);
	return writer->status;
}

int mt_writer_is_over_limit(const struct mt_writer *writer)
{
	struct mt_store_stats stats;

	mt_store_stats_get(writer->store, &stats);
	/* What is pending goes into the journal and, later, into the file; see reserve_bytes(). */
	return writer->parts_bytes + stats.database_bytes + stats.journal_bytes +
		       2 * stats.pending_bytes + mt_writer_reserve_bytes(writer) >=
	       writer->limit_bytes;
}

/* The next record of a ring before @limit, or NULL; waits for its producer if it must. */
static struct mt_record *next_record(struct mt_ring *ring, uint64_t limit, int must_wait)
{
	uint64_t until_ns = mt_monotonic_ns() + RECORD_PATIENCE_NS;
	const struct timespec pause = { 0, 20 * 1000 };
	struct mt_record *record = mt_ring_peek(ring, limit);

	while (!record && must_wait && mt_ring_tail(ring) < limit &&
	       mt_monotonic_ns() < until_ns) {
		nanosleep(&pause, NULL);
		record = mt_ring_peek(ring, limit);
	}
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

	check(writer, writer->flight.recording_id ?
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
	       (record = next_record(&writer->session->pool.rings[side], limit, 1)))
		take(writer, side, record);
}

/* Positions that the ledger found computed or reused twice. */
static void count_repeated(struct mt_writer *writer)
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
	struct mt_record *record = next_record(&pool->rings[stream], heads[stream], must_wait);
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
	count_repeated(writer);
	if (writer->is_full && !writer->status)
		mt_writer_end_full(writer);
}

static int begin(struct mt_writer *writer, int must_wait)
{
	uint64_t until_ns = mt_monotonic_ns() + LOCK_PATIENCE_NS;
	int status = mt_store_begin(writer->store);

	while (status == MOETRACE_E_STATE &&
	       (must_wait || mt_queue_is_urgent(&writer->session->queue))) {
		const struct timespec pause = { 0, 5 * 1000 * 1000 };

		if (mt_monotonic_ns() > until_ns)
			status = mt_store_refuse(writer->store,
						 "another program holds the write lock");
		else if (!nanosleep(&pause, NULL))
			status = mt_store_begin(writer->store);
	}
	if (status && status != MOETRACE_E_STATE)
		check(writer, status);
	return status;
}

int mt_writer_do_request(struct mt_writer *writer, struct mt_message *message)
{
	switch (message->type) {
	case MT_MESSAGE_REQUEST:
		return mt_ledger_begin(&writer->ledger, message);
	case MT_MESSAGE_ATTRIBUTE:
		return mt_ledger_attribute(&writer->ledger, message);
	case MT_MESSAGE_TOKENS:
		return mt_ledger_tokens(&writer->ledger, message);
	case MT_MESSAGE_RETRACT:
		return mt_ledger_retract(&writer->ledger, message);
	case MT_MESSAGE_PAUSE:
		return mt_ledger_pause(&writer->ledger, message);
	case MT_MESSAGE_RESUME:
		return mt_ledger_resume(&writer->ledger, message);
	case MT_MESSAGE_REUSE:
		mt_ledger_slots_lost(&writer->ledger, mt_lost_passes_ns(writer->session));
		return mt_ledger_reuse(&writer->ledger, message);
	default:
		return mt_ledger_end(&writer->ledger, message);
	}
}

int mt_writer_commit_and_go_on(struct mt_writer *writer)
{
	int status = mt_writer_commit(writer);

	return status ? status : begin(writer, 1);
}

/* A start that finds no memory is refused, and nothing else happens. */
static int start(struct mt_writer *writer, struct mt_message *message)
{
	int status = mt_writer_revive(writer);

	return status ? status : mt_flight_reserve(writer, message);
}

/*
 * The store has failed: what is said is kept in mind, so that a recording that starts when there
 * is room again knows its models and requests.
 */
static int do_message_failed(struct mt_writer *writer, struct mt_message *message)
{
	int status = writer->status;

	switch (message->type) {
	case MT_MESSAGE_MODEL:
		(void)mt_load_model_add(&writer->load, writer->session->models[message->model]);
		break;
	case MT_MESSAGE_RULE:
		(void)mt_writer_add_rule(writer, message);
		break;
	case MT_MESSAGE_EXPERT_MAP:
		(void)mt_writer_add_map(writer, message);
		break;
	case MT_MESSAGE_START:
		status = start(writer, message);
		if (!status)
			status = mt_writer_start_recording(writer, message);
		break;
	case MT_MESSAGE_ROTATE:
		status = mt_writer_rotate(writer, message);
		if (mt_store_has_failed(writer->store))
			writer->status = MOETRACE_E_IO;
		break;
	default:
		if (message->type < MT_MESSAGE_START && message->type >= MT_MESSAGE_REQUEST &&
		    message->type != MT_MESSAGE_ACCEPT)
			(void)mt_writer_do_request(writer, message);
		break;
	}
	return status;
}

static void do_held(struct mt_writer *writer);

static int do_message(struct mt_writer *writer, struct mt_message *message)
{
	int status = MOETRACE_OK;

	if (message->type == MT_MESSAGE_CLOSE)
		writer->is_closing = 1;
	/* Again, since a message before this one may have committed. */
	if (writer->status)
		return do_message_failed(writer, message);
	if (begin(writer, 1))
		return writer->status;
	if (message->type >= MT_MESSAGE_REQUEST_END)
		mt_writer_drain(writer, message->heads, 1);
	if (!writer->status && writer->rotation.next_id && message->type >= MT_MESSAGE_START &&
	    message->type != MT_MESSAGE_FLUSH) {
		check(writer, mt_writer_rotation_end(writer));
		/* What waited for the new recording. */
		do_held(writer);
		if (!writer->status && begin(writer, 1) == MOETRACE_OK)
			mt_writer_drain(writer, message->heads, 1);
	}
	if (writer->status)
		return writer->status;
	if (writer->flight.recording_id && message->type >= MT_MESSAGE_REQUEST &&
	    message->type < MT_MESSAGE_START)
		return check(writer, mt_flight_message(writer, message));
	switch (message->type) {
	case MT_MESSAGE_MODEL:
		status = mt_writer_add_model(writer, message->model);
		break;
	case MT_MESSAGE_DIAGNOSTIC:
		status = mt_store_diagnostic(writer->store, ++writer->last_diagnostic_id,
					     (int64_t)message->time_ns, "warning", message->text2,
					     message->text, 1);
		break;
	case MT_MESSAGE_SOURCE:
		status = mt_writer_add_source(writer, message);
		break;
	case MT_MESSAGE_DEVICE:
		status = mt_writer_add_gpu(writer, message);
		break;
	case MT_MESSAGE_CLOCK:
		status = mt_writer_add_clock(writer, message);
		break;
	case MT_MESSAGE_RULE:
		status = mt_writer_add_rule(writer, message);
		break;
	case MT_MESSAGE_EXPERT_MAP:
		status = mt_writer_add_map(writer, message);
		break;
	case MT_MESSAGE_REQUEST:
	case MT_MESSAGE_ATTRIBUTE:
	case MT_MESSAGE_TOKENS:
	case MT_MESSAGE_REQUEST_END:
	case MT_MESSAGE_RETRACT:
	case MT_MESSAGE_PAUSE:
	case MT_MESSAGE_RESUME:
	case MT_MESSAGE_REUSE:
		status = mt_writer_do_request(writer, message);
		if (status == MOETRACE_E_NOT_FOUND)
			mt_misuse(writer->session, MT_MISUSE_REQUEST);
		break;
	case MT_MESSAGE_ACCEPT:
		status = writer->recording_id ? mt_assembly_accept(&writer->assembly, message) :
						MOETRACE_OK;
		if (status == MOETRACE_E_NOT_FOUND)
			mt_misuse(writer->session, MT_MISUSE_ACCEPT);
		break;
	case MT_MESSAGE_START:
		status = start(writer, message);
		if (status)
			return status;
		status = mt_writer_start_recording(writer, message);
		break;
	case MT_MESSAGE_ROTATE:
		status = mt_writer_rotate(writer, message);
		return mt_store_has_failed(writer->store) ? check(writer, MOETRACE_E_IO) : status;
	case MT_MESSAGE_DUMP:
		status = mt_writer_flight_dump(writer, message);
		return mt_store_has_failed(writer->store) ? check(writer, MOETRACE_E_IO) : status;
	case MT_MESSAGE_STOP:
		status = mt_writer_end_recording(writer, message->text, message->time_ns);
		break;
	case MT_MESSAGE_FLUSH:
		writer->is_load_due = 1;
		status = mt_writer_commit(writer);
		break;
	case MT_MESSAGE_EXPERTS:
		status = mt_writer_experts(writer, message);
		break;
	case MT_MESSAGE_CLOSE:
		break;
	}
	check(writer, status);
	count_repeated(writer);
	return check(writer, status);
}

static int has_work(struct mt_writer *writer, const uint64_t *heads)
{
	for (uint32_t i = 0; i < writer->session->pool.n_streams; i++)
		if (mt_ring_tail(&writer->session->pool.rings[i]) < heads[i])
			return 1;
	return mt_queue_has_messages(&writer->session->queue);
}

/* Do records that came before the message wait for a recording that has not started yet? */
static int is_early(struct mt_writer *writer, const struct mt_message *message)
{
	struct moetrace_session *session = writer->session;
	struct mt_ring_pool *pool = &session->pool;

	if (writer->status || !mt_writer_current_id(writer) ||
	    message->type < MT_MESSAGE_REQUEST_END ||
	    (atomic_load(&session->recording_id) <= writer->newest_id &&
	     atomic_load(&session->last_recording_id) <= writer->newest_id))
		return 0;
	if (begin(writer, 1))
		return 0;
	mt_writer_drain(writer, message->heads, 1);
	for (uint32_t i = 0; !writer->status && i < pool->n_streams; i++)
		if (mt_ring_tail(&pool->rings[i]) < message->heads[i])
			return 1;
	return 0;
}

/*
 * Nobody ends, retracts or accepts before the passes that the program began before it said so:
 * where these wait for the next recording, the message does, too, and those of requests behind it.
 */
static int is_held(struct mt_writer *writer, const struct mt_message *message)
{
	return message->type >= MT_MESSAGE_REQUEST && message->type < MT_MESSAGE_START &&
	       (writer->held || is_early(writer, message));
}

static void hold(struct mt_writer *writer, struct mt_message *message)
{
	message->next = NULL;
	*(writer->held ? &writer->last_held->next : &writer->held) = message;
	writer->last_held = message;
}

static void do_held(struct mt_writer *writer)
{
	while (writer->held && !is_early(writer, writer->held)) {
		struct mt_message *message = writer->held;

		writer->held = message->next;
		(void)do_message(writer, message);
		mt_message_free(message);
	}
}

static void do_messages(struct mt_writer *writer)
{
	struct mt_message *message = mt_queue_take(&writer->session->queue);

	while (message) {
		struct mt_message *next = message->next;
		int status;

		if (is_held(writer, message)) {
			hold(writer, message);
			message = next;
			continue;
		}
		status = do_message(writer, message);
		do_held(writer);
		if (message->ret_status)
			*message->ret_status = status;
		/* CLOSE is answered by the thread's end. */
		if (message->type != MT_MESSAGE_CLOSE)
			mt_queue_done(&writer->session->queue, message->ticket, writer->status);
		mt_message_free(message);
		message = next;
	}
}

static void cycle(struct mt_writer *writer)
{
	uint64_t heads[MT_MAX_STREAMS];
	uint64_t now;
	/* Asked first: then all records of the old recording lie before the positions. */
	int is_ready = mt_writer_rotation_is_ready(writer);

	mt_ring_heads(&writer->session->pool, heads);
	if (!writer->status && has_work(writer, heads) && begin(writer, 0) == MOETRACE_E_STATE)
		return;
	do_messages(writer);
	if (!writer->status && has_work(writer, heads) && begin(writer, 0) == MOETRACE_OK)
		mt_writer_drain(writer, heads, 0);
	if (!writer->status && mt_writer_current_id(writer) && begin(writer, 0) == MOETRACE_OK)
		check(writer, mt_writer_write_ranges(writer));
	if (!writer->status && writer->recording_id && mt_store_in_transaction(writer->store))
		check(writer, mt_writer_write_readings(writer));
	/* A message may have ended it meanwhile. */
	if (is_ready && !writer->status && writer->rotation.next_id && begin(writer, 1) == MOETRACE_OK)
		check(writer, mt_writer_rotation_end(writer));
	do_held(writer);
	say_last_words(writer);
	now = now_ns(writer);
	if (!writer->status)
		check(writer, mt_flight_trim(writer, now));
	if (!writer->status && now - writer->last_commit_ns >= writer->commit_interval_ns)
		check(writer, mt_writer_commit(writer));
	if (!writer->status)
		mt_writer_rotation_begin(writer);
}

static uint64_t poll_ns(const struct mt_writer *writer)
{
	uint64_t interval_ns = writer->commit_interval_ns;

	if (writer->status || (!mt_writer_current_id(writer) && !mt_store_in_transaction(writer->store)))
		return IDLE_POLL_NS;
	return interval_ns < POLL_NS ? interval_ns : POLL_NS;
}

static void *run(void *argument)
{
	struct mt_writer *writer = argument;
	struct moetrace_session *session = writer->session;
	int close_status;

	writer->open_status = mt_store_open(session->path, &writer->store, writer->open_error);
	if (!writer->open_status)
		writer->open_status = mt_writer_define(writer);
	mt_queue_done(&session->queue, 1, writer->open_status);
	if (writer->open_status)
		return NULL;
	while (!writer->is_closing) {
		mt_queue_sleep(&session->queue, poll_ns(writer));
		cycle(writer);
	}
	/* Not through check(): the store is gone, and with it its words. */
	close_status = mt_writer_close_store(writer);
	if (!writer->status)
		writer->status = close_status;
	return NULL;
}

/* Signals belong to the program: none is delivered here, and a file-size limit does not kill. */
static int create_thread(struct mt_writer *writer, pthread_t *ret_thread)
{
	sigset_t all, before;
	int result;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	result = pthread_create(ret_thread, NULL, run, writer);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (!result)
		(void)pthread_setname_np(*ret_thread, "moetrace");
	return result ? MOETRACE_E_NOMEM : MOETRACE_OK;
}

static void free_writer(struct mt_writer *writer)
{
	mt_flight_log_close(&writer->flight.log);
	while (writer->held) {
		struct mt_message *message = writer->held;

		writer->held = message->next;
		mt_message_free(message);
	}
	mt_assembly_close(&writer->assembly);
	mt_load_close(&writer->load);
	mt_ledger_close(&writer->ledger);
	for (uint32_t i = 0; i < writer->n_rules; i++)
		free(writer->rules[i]);
	free(writer->rules);
	for (uint32_t i = 0; i < writer->n_sources; i++) {
		free(writer->sources[i].name);
		free(writer->sources[i].state);
	}
	mt_writer_free_gpus(writer);
	mt_past_free(&writer->past);
	free(writer->threads);
	free(writer->shapes);
	mt_tied_close(&writer->tied);
	if (writer->start)
		mt_message_free(writer->start);
	free(writer);
}

int mt_writer_start(struct moetrace_session *session, char *ret_error)
{
	struct mt_writer *writer = calloc(1, sizeof(*writer));
	int status;

	snprintf(ret_error, MT_STORE_ERROR_BYTES, "%s: out of memory", session->path);
	if (!writer)
		return MOETRACE_E_NOMEM;
	/* Made now, so that closing cannot fail for want of memory. */
	writer->close_message = mt_message_new(MT_MESSAGE_CLOSE, NULL, NULL);
	if (!writer->close_message) {
		free(writer);
		return MOETRACE_E_NOMEM;
	}
	writer->session = session;
	writer->commit_interval_ns = session->opts.commit_interval_ms * MT_NS_PER_MS;
	session->queue.n_posted = 1; /* the opening itself, which is waited for */
	status = create_thread(writer, &session->thread);
	if (status)
		goto err_writer;
	status = mt_queue_wait(&session->queue, 1);
	if (status) {
		pthread_join(session->thread, NULL);
		snprintf(ret_error, MT_STORE_ERROR_BYTES, "%s", writer->open_error);
		goto err_writer;
	}
	session->writer = writer;
	return MOETRACE_OK;

err_writer:
	mt_message_free(writer->close_message);
	free_writer(writer);
	return status;
}

int mt_writer_stop(struct moetrace_session *session)
{
	int status;

	mt_queue_post(&session->queue, &session->pool, session->writer->close_message);
	pthread_join(session->thread, NULL);
	status = session->writer->status;
	free_writer(session->writer);
	session->writer = NULL;
	return status;
}
