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
#include <time.h>

#include "libtrace/clock.h"
#include "libtrace/writer_internal.h"

#define POLL_NS (20 * MT_NS_PER_MS)
#define IDLE_POLL_NS MT_NS_PER_S
/* How long a message that somebody waits for waits for another program's write lock. */
#define LOCK_PATIENCE_NS (2 * MT_NS_PER_S)

/* The store or memory gave out: recording is over. */
static void give_up(struct mt_writer *writer, int status)
{
	struct moetrace_session *session = writer->session;
	uint32_t last_id;

	if (writer->status)
		return;
	writer->status = status == MOETRACE_E_NOMEM ? status : MOETRACE_E_IO;
	last_id = mt_session_end_now(session);
	atomic_store(&session->failed, MOETRACE_E_IO);
	mt_session_error(session, writer->status, "%s",
			 status == MOETRACE_E_NOMEM ? "out of memory while writing" :
						      mt_store_error(writer->store));
	mt_writer_abandon_gpus(writer, last_id);
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
int mt_writer_check(struct mt_writer *writer, int status)
{
	if (status && status != MOETRACE_E_NOT_FOUND)
		give_up(writer, status);
	return writer->status;
}

int mt_writer_begin(struct mt_writer *writer, int must_wait)
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
		mt_writer_check(writer, status);
	return status;
}

int mt_writer_commit_and_go_on(struct mt_writer *writer)
{
	int status = mt_writer_commit(writer);

	return status ? status : mt_writer_begin(writer, 1);
}

static int has_work(struct mt_writer *writer, const uint64_t *heads)
{
	for (uint32_t i = 0; i < writer->session->pool.n_streams; i++)
		if (mt_ring_tail(&writer->session->pool.rings[i]) < heads[i])
			return 1;
	return mt_queue_has_messages(&writer->session->queue);
}

static void cycle(struct mt_writer *writer)
{
	uint64_t heads[MT_MAX_STREAMS];
	uint64_t now;
	/* Asked first: then all records of the old recording lie before the positions. */
	int is_ready = mt_writer_rotation_is_ready(writer);

	mt_ring_heads(&writer->session->pool, heads);
	if (!writer->status && has_work(writer, heads) &&
	    mt_writer_begin(writer, 0) == MOETRACE_E_STATE)
		return;
	mt_writer_do_messages(writer);
	if (!writer->status && has_work(writer, heads) && mt_writer_begin(writer, 0) == MOETRACE_OK)
		mt_writer_drain(writer, heads, 0);
	if (!writer->status && mt_writer_current_id(writer) &&
	    mt_writer_begin(writer, 0) == MOETRACE_OK)
		mt_writer_check(writer, mt_writer_write_ranges(writer));
	if (!writer->status && writer->recording_id && mt_store_in_transaction(writer->store))
		mt_writer_check(writer, mt_writer_write_readings(writer));
	/* A message may have ended it meanwhile. */
	if (is_ready && !writer->status && writer->rotation.next_id &&
	    mt_writer_begin(writer, 1) == MOETRACE_OK)
		mt_writer_check(writer, mt_writer_rotation_end(writer));
	mt_writer_do_held(writer);
	say_last_words(writer);
	now = mt_writer_now_ns(writer);
	if (!writer->status)
		mt_writer_check(writer, mt_flight_trim(writer, now));
	if (!writer->status && now - writer->last_commit_ns >= writer->commit_interval_ns)
		mt_writer_check(writer, mt_writer_commit(writer));
	if (!writer->status)
		mt_writer_rotation_begin(writer);
}

static uint64_t poll_ns(const struct mt_writer *writer)
{
	uint64_t interval_ns = writer->commit_interval_ns;

	if (writer->status ||
	    (!mt_writer_current_id(writer) && !mt_store_in_transaction(writer->store)))
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
