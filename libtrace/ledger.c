/* SPDX-License-Identifier: MIT */
/*
 * The ledger is a hash table of requests. Invariants: an open request has a row exactly while a
 * recording runs; a request that has ended stays open until the slices of running passes that
 * name it are released; what is remembered of ended requests is of the running recording, save
 * in the list of past ones, which only answers (answer.c) look at.
 */
#include "libtrace/ledger.h"

#include <stdlib.h>
#include <string.h>

const char *mt_reasons_text(uint32_t reasons, char *ret_text)
{
	static const char *const names[] = { "lost",     "began_before",  "unwritten", "unresolved",
					     "missing",  "invalid",       "unended",   "repeated",
					     "reuse_unknown", "disabled", "sampled",   "counted" };
	char *at = ret_text;

	for (uint32_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		if (!(reasons & (1u << i)))
			continue;
		if (at != ret_text)
			*at++ = ',';
		at = stpcpy(at, names[i]);
	}
	return reasons ? ret_text : NULL;
}

int mt_ledger_open(struct mt_ledger *ledger, struct mt_store *store)
{
	memset(ledger, 0, sizeof(*ledger));
	ledger->store = store;
	ledger->n_buckets = 256;
	ledger->buckets = calloc(ledger->n_buckets, sizeof(*ledger->buckets));
	return ledger->buckets ? MOETRACE_OK : MOETRACE_E_NOMEM;
}

static struct mt_request **bucket(const struct mt_ledger *ledger, uint64_t handle)
{
	return &ledger->buckets[handle & (ledger->n_buckets - 1)];
}

static void forget_recording(struct mt_ledger *ledger, struct mt_request *request)
{
	mt_ledger_forget_waiting(ledger, request);
	mt_attempts_free(request);
	request->request_id = 0;
	request->reasons = 0;
}

/* What the request's row has said already, and no later part of the recording needs. */
static void free_told(struct mt_request *request)
{
	while (request->attributes) {
		struct mt_ledger_attribute *attribute = request->attributes;

		request->attributes = attribute->next;
		free(attribute->key);
		free(attribute->value);
		free(attribute);
	}
	free(request->external_id);
	request->external_id = NULL;
}

static void free_request(struct mt_ledger *ledger, struct mt_request *request)
{
	free_told(request);
	forget_recording(ledger, request);
	free(request);
}

static void forget_past(struct mt_ledger *ledger)
{
	struct mt_request *request = ledger->past_oldest;

	ledger->past_oldest = request->newer;
	*(request->newer ? &request->newer->older : &ledger->past_newest) = NULL;
	ledger->n_past--;
	free_request(ledger, request);
}

void mt_ledger_close(struct mt_ledger *ledger)
{
	for (size_t i = 0; ledger->buckets && i < ledger->n_buckets; i++) {
		while (ledger->buckets[i]) {
			struct mt_request *request = ledger->buckets[i];

			ledger->buckets[i] = request->next;
			free_request(ledger, request);
		}
	}
	while (ledger->past_oldest)
		forget_past(ledger);
	mt_slots_clear(&ledger->slots);
	free(ledger->buckets);
}

/* Twice as many buckets; without memory the old ones do. */
static void grow(struct mt_ledger *ledger)
{
	size_t n_old = ledger->n_buckets;
	struct mt_request **old = ledger->buckets;
	struct mt_request **buckets = calloc(n_old * 2, sizeof(*buckets));

	if (!buckets)
		return;
	ledger->buckets = buckets;
	ledger->n_buckets = n_old * 2;
	for (size_t i = 0; i < n_old; i++) {
		while (old[i]) {
			struct mt_request *request = old[i];
			struct mt_request **to = bucket(ledger, request->handle);

			old[i] = request->next;
			request->next = *to;
			*to = request;
		}
	}
	free(old);
}

struct mt_request *mt_ledger_known(struct mt_ledger *ledger, uint64_t handle)
{
	struct mt_request *request = *bucket(ledger, handle);

	while (request && request->handle != handle)
		request = request->next;
	return request;
}

struct mt_request *mt_ledger_find(struct mt_ledger *ledger, uint64_t handle)
{
	struct mt_request *request = mt_ledger_known(ledger, handle);

	return request && !request->has_ended ? request : NULL;
}

static int insert_row(struct mt_ledger *ledger, struct mt_request *request, uint64_t n_lost_passes)
{
	struct mt_request_row row = {
		.request_id = ++ledger->last_request_id,
		.recording_id = ledger->recording_id,
		.handle = (int64_t)request->handle,
		.external_id = request->external_id,
		.prompt_positions = request->prompt_positions,
		.n_attempts = request->attempt + 1,
		.n_pauses = request->is_paused,
		.begin_ns = (int64_t)request->begin_ns,
	};
	int status;

	forget_recording(ledger, request);
	request->request_id = row.request_id;
	request->n_pauses = (uint32_t)request->is_paused;
	request->paused_ns = 0;
	if (request->is_paused && request->pause_begin_ns < ledger->recording_start_ns)
		request->pause_begin_ns = ledger->recording_start_ns;
	status = mt_attempt_open(request, n_lost_passes);
	if (!status)
		status = mt_store_request(ledger->store, &row);
	for (struct mt_ledger_attribute *attribute = request->attributes; !status && attribute;
	     attribute = attribute->next)
		status = mt_store_attribute(ledger->store, request->request_id, attribute->key,
					    attribute->value);
	return status;
}

int mt_ledger_begin(struct mt_ledger *ledger, struct mt_message *message)
{
	struct mt_request *request = calloc(1, sizeof(*request));

	if (!request)
		return MOETRACE_E_NOMEM;
	request->handle = message->request;
	request->external_id = message->text;
	message->text = NULL;
	request->prompt_positions = message->number ? (int64_t)message->number : MT_NULL;
	request->begin_ns = message->time_ns;
	request->attempt_begin_ns = message->time_ns;
	request->attempt_lost_passes = message->n_lost_passes;
	if (ledger->n_requests >= ledger->n_buckets)
		grow(ledger);
	request->next = *bucket(ledger, request->handle);
	*bucket(ledger, request->handle) = request;
	ledger->n_requests++;
	return ledger->recording_id ? insert_row(ledger, request, message->n_lost_passes) :
				      MOETRACE_OK;
}

int mt_ledger_attribute(struct mt_ledger *ledger, struct mt_message *message)
{
	struct mt_request *request = mt_ledger_find(ledger, message->request);
	struct mt_ledger_attribute *attribute;

	if (!request)
		return MOETRACE_E_NOT_FOUND;
	for (attribute = request->attributes; attribute; attribute = attribute->next)
		if (strcmp(attribute->key, message->text) == 0)
			break;
	if (!attribute) {
		attribute = calloc(1, sizeof(*attribute));
		if (!attribute)
			return MOETRACE_E_NOMEM;
		attribute->next = request->attributes;
		request->attributes = attribute;
		attribute->key = message->text;
		message->text = NULL;
	}
	free(attribute->value);
	attribute->value = message->text2;
	message->text2 = NULL;
	if (!request->request_id)
		return MOETRACE_OK;
	return mt_store_attribute(ledger->store, request->request_id, attribute->key,
				  attribute->value);
}

int mt_ledger_tokens(struct mt_ledger *ledger, const struct mt_message *message)
{
	struct mt_request *request = mt_ledger_find(ledger, message->request);
	int status = MOETRACE_OK;

	if (!request)
		return MOETRACE_E_NOT_FOUND;
	for (uint32_t i = 0; request->request_id && !status && i < message->n_tokens; i++)
		status = mt_store_token(ledger->store, request->request_id,
					(int64_t)(message->number + i), message->tokens[i]);
	return status;
}

/* ---- attempts and pauses ---- */

static int write_progress(struct mt_ledger *ledger, const struct mt_request *request)
{
	if (!request->request_id)
		return MOETRACE_OK;
	return mt_store_request_progress(ledger->store, request->request_id, request->attempt + 1,
					 request->n_pauses, (int64_t)request->paused_ns);
}

static void end_pause(struct mt_request *request, uint64_t now_ns)
{
	if (request->is_paused && now_ns > request->pause_begin_ns)
		request->paused_ns += now_ns - request->pause_begin_ns;
	request->is_paused = 0;
}

int mt_ledger_retract(struct mt_ledger *ledger, const struct mt_message *message)
{
	struct mt_request *request = mt_ledger_find(ledger, message->request);
	int status = MOETRACE_OK;

	if (!request)
		return MOETRACE_E_NOT_FOUND;
	end_pause(request, message->time_ns);
	request->attempt++;
	request->attempt_begin_ns = message->time_ns;
	request->attempt_lost_passes = message->n_lost_passes;
	if (request->request_id)
		status = mt_attempt_open(request, message->n_lost_passes);
	return status ? status : write_progress(ledger, request);
}

int mt_ledger_pause(struct mt_ledger *ledger, const struct mt_message *message)
{
	struct mt_request *request = mt_ledger_find(ledger, message->request);

	if (!request || request->is_paused)
		return MOETRACE_E_NOT_FOUND;
	request->is_paused = 1;
	request->pause_begin_ns = message->time_ns;
	request->n_pauses++;
	return write_progress(ledger, request);
}

int mt_ledger_resume(struct mt_ledger *ledger, const struct mt_message *message)
{
	struct mt_request *request = mt_ledger_find(ledger, message->request);

	if (!request || !request->is_paused)
		return MOETRACE_E_NOT_FOUND;
	end_pause(request, message->time_ns);
	return write_progress(ledger, request);
}

/* ---- the end ---- */

static void unlink_request(struct mt_ledger *ledger, struct mt_request *request)
{
	struct mt_request **at = bucket(ledger, request->handle);

	while (*at != request)
		at = &(*at)->next;
	*at = request->next;
	ledger->n_requests--;
}

static void detach(struct mt_ledger *ledger, struct mt_request *request)
{
	*(request->newer ? &request->newer->older : &ledger->newest) = request->older;
	*(request->older ? &request->older->newer : &ledger->oldest) = request->newer;
	ledger->n_remembered--;
}

static void attach(struct mt_ledger *ledger, struct mt_request *request)
{
	request->newer = NULL;
	request->older = ledger->newest;
	*(ledger->newest ? &ledger->newest->newer : &ledger->oldest) = request;
	ledger->newest = request;
	ledger->n_remembered++;
	request->is_remembered = 1;
}

void mt_ledger_touch(struct mt_ledger *ledger, struct mt_request *request)
{
	/* A request that is about to be remembered may be a source of its own. */
	if (!request->is_remembered)
		return;
	detach(ledger, request);
	attach(ledger, request);
}

static void forget_oldest(struct mt_ledger *ledger)
{
	struct mt_request *request = ledger->oldest;

	detach(ledger, request);
	unlink_request(ledger, request);
	free_request(ledger, request);
}

/* Its recording ends. */
static void make_past(struct mt_ledger *ledger, struct mt_request *request)
{
	detach(ledger, request);
	unlink_request(ledger, request);
	mt_attempts_free_models(request);
	request->newer = NULL;
	request->older = ledger->past_newest;
	*(ledger->past_newest ? &ledger->past_newest->newer : &ledger->past_oldest) = request;
	ledger->past_newest = request;
	if (++ledger->n_past > MT_LEDGER_MAX_ENDED)
		forget_past(ledger);
}

struct mt_request *mt_ledger_past(struct mt_ledger *ledger, uint64_t handle, int64_t request_id)
{
	struct mt_request *request = ledger->past_newest;

	while (request && (request->handle != handle ||
			   (request_id && request->request_id != request_id)))
		request = request->older;
	return request;
}

static int write_end(struct mt_ledger *ledger, struct mt_request *request)
{
	static const char *const end_states[] = {
		[MOETRACE_REQUEST_FINISHED] = "finished",
		[MOETRACE_REQUEST_ABORTED] = "aborted",
		[MOETRACE_REQUEST_FAILED] = "failed",
	};
	char text[MT_REASONS_BYTES];
	uint64_t n_positions;
	uint32_t reasons;
	int status = mt_reuse_resolve(ledger, request, 1);

	if (!status)
		status = mt_attempt_judge(ledger, request, &reasons, &n_positions);
	if (!status && request->is_paused) {
		end_pause(request, request->end_ns);
		status = write_progress(ledger, request);
	}
	if (status)
		return status;
	request->n_positions = n_positions;
	return mt_store_request_end(ledger->store, request->request_id, (int64_t)n_positions,
				    (int64_t)request->end_ns, end_states[request->end_state],
				    reasons ? "partial" : "complete",
				    mt_reasons_text(reasons, text));
}

/* The request has ended, and so has its last pass: write its end and remember what it computed. */
static int conclude(struct mt_ledger *ledger, struct mt_request *request)
{
	int status = MOETRACE_OK;

	if (request->request_id)
		status = write_end(ledger, request);
	if (!request->request_id) {
		unlink_request(ledger, request);
		free_request(ledger, request);
		return status;
	}
	free_told(request);
	mt_ledger_forget_waiting(ledger, request);
	attach(ledger, request);
	if (ledger->n_remembered > MT_LEDGER_MAX_ENDED)
		forget_oldest(ledger);
	return status;
}

int mt_ledger_end(struct mt_ledger *ledger, const struct mt_message *message)
{
	struct mt_request *request = mt_ledger_find(ledger, message->request);

	if (!request)
		return MOETRACE_E_NOT_FOUND;
	request->has_ended = 1;
	request->end_state = message->state;
	/* Positions of the rings say what came before it, even what began after the clock was read. */
	request->end_ns = message->time_ns > request->last_begin_ns ? message->time_ns :
								      request->last_begin_ns;
	request->end_positions = message->number;
	request->end_lost_passes = message->n_lost_passes;
	return request->n_running ? MOETRACE_OK : conclude(ledger, request);
}

int mt_ledger_release(struct mt_ledger *ledger, struct mt_request *request)
{
	request->n_running--;
	return request->has_ended && !request->n_running ? conclude(ledger, request) : MOETRACE_OK;
}

/* ---- recordings ---- */

int mt_ledger_start(struct mt_ledger *ledger, int64_t recording_id, uint64_t start_ns,
		    uint64_t n_lost_passes)
{
	int status = MOETRACE_OK;

	ledger->recording_id = recording_id;
	ledger->recording_start_ns = start_ns;
	for (size_t i = 0; !status && i < ledger->n_buckets; i++)
		for (struct mt_request *request = ledger->buckets[i]; !status && request;
		     request = request->next)
			/* It may have begun when the writer had not started the recording yet. */
			status = insert_row(ledger, request,
					    request->attempt_lost_passes > n_lost_passes ?
						    request->attempt_lost_passes :
						    n_lost_passes);
	return status;
}

int mt_ledger_stop(struct mt_ledger *ledger)
{
	int status = MOETRACE_OK;

	for (size_t i = 0; i < ledger->n_buckets; i++)
		for (struct mt_request *request = ledger->buckets[i]; !status && request;
		     request = request->next)
			status = mt_reuse_resolve(ledger, request, 1);
	ledger->recording_id = 0;
	while (ledger->oldest)
		make_past(ledger, ledger->oldest);
	for (size_t i = 0; i < ledger->n_buckets; i++)
		for (struct mt_request *request = ledger->buckets[i]; request;
		     request = request->next)
			forget_recording(ledger, request);
	mt_slots_clear(&ledger->slots);
	return status;
}
