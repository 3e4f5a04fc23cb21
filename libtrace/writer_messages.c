/* SPDX-License-Identifier: MIT */
/*
 * The writer does what the queue's messages say, in their order. Invariants: a message that ends
 * something first takes the records that came before it; one about a request whose passes wait for
 * a recording that has not started yet waits with them, and so do those of requests behind it;
 * after a failure of the store each is still answered.
 */
#include <stdio.h>
#include <string.h>

#include "libtrace/writer_internal.h"

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

/* Who says the same again and again has one row that counts. */
static int add_diagnostic(struct mt_writer *writer, const struct mt_message *message)
{
	if (writer->said.diagnostic_id && strcmp(writer->said.text, message->text) == 0 &&
	    strcmp(writer->said.source, message->text2) == 0) {
		writer->said.n_times++;
	} else {
		writer->said.diagnostic_id = ++writer->last_diagnostic_id;
		writer->said.time_ns = (int64_t)message->time_ns;
		writer->said.n_times = 1;
		snprintf(writer->said.text, sizeof(writer->said.text), "%s", message->text);
		snprintf(writer->said.source, sizeof(writer->said.source), "%s", message->text2);
	}
	return mt_store_diagnostic(writer->store, writer->said.diagnostic_id, writer->said.time_ns,
				   "warning", message->text2, message->text, writer->said.n_times);
}

/* What the message says, in an open transaction and after the records that come before it. */
static int carry_out(struct mt_writer *writer, struct mt_message *message)
{
	int status = MOETRACE_OK;

	switch (message->type) {
	case MT_MESSAGE_MODEL:
		status = mt_writer_add_model(writer, message->model);
		break;
	case MT_MESSAGE_DIAGNOSTIC:
		status = add_diagnostic(writer, message);
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
		return mt_store_has_failed(writer->store) ? mt_writer_check(writer, MOETRACE_E_IO) :
							    status;
	case MT_MESSAGE_DUMP:
		status = mt_writer_flight_dump(writer, message);
		return mt_store_has_failed(writer->store) ? mt_writer_check(writer, MOETRACE_E_IO) :
							    status;
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
	mt_writer_check(writer, status);
	mt_writer_count_repeated(writer);
	return mt_writer_check(writer, status);
}

static int do_message(struct mt_writer *writer, struct mt_message *message)
{
	if (message->type == MT_MESSAGE_CLOSE)
		writer->is_closing = 1;
	/* Again, since a message before this one may have committed. */
	if (writer->status)
		return do_message_failed(writer, message);
	if (mt_writer_begin(writer, 1))
		return writer->status;
	if (message->type >= MT_MESSAGE_REQUEST_END)
		mt_writer_drain(writer, message->heads, 1);
	if (!writer->status && writer->rotation.next_id && message->type >= MT_MESSAGE_START &&
	    message->type != MT_MESSAGE_FLUSH) {
		mt_writer_check(writer, mt_writer_rotation_end(writer));
		/* What waited for the new recording. */
		mt_writer_do_held(writer);
		if (!writer->status && mt_writer_begin(writer, 1) == MOETRACE_OK)
			mt_writer_drain(writer, message->heads, 1);
	}
	if (writer->status)
		return writer->status;
	if (writer->flight.recording_id && message->type >= MT_MESSAGE_REQUEST &&
	    message->type < MT_MESSAGE_START)
		return mt_writer_check(writer, mt_flight_message(writer, message));
	return carry_out(writer, message);
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
	if (mt_writer_begin(writer, 1))
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

void mt_writer_do_held(struct mt_writer *writer)
{
	while (writer->held && !is_early(writer, writer->held)) {
		struct mt_message *message = writer->held;

		writer->held = message->next;
		(void)do_message(writer, message);
		mt_message_free(message);
	}
}

void mt_writer_do_messages(struct mt_writer *writer)
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
		mt_writer_do_held(writer);
		if (message->ret_status)
			*message->ret_status = status;
		/* CLOSE is answered by the thread's end. */
		if (message->type != MT_MESSAGE_CLOSE)
			mt_queue_done(&writer->session->queue, message->ticket, writer->status);
		mt_message_free(message);
		message = next;
	}
}
