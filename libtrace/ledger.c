/* SPDX-License-Identifier: MIT */
/*
 * The ledger is a hash table of open requests. Invariants: a request has a row exactly while
 * a recording runs; computed sets only hold positions of passes in which every layer was
 * stored, so that a full set is a complete request.
 */
#include "libtrace/ledger.h"

#include <stdlib.h>
#include <string.h>

const char *mt_reasons_text(uint32_t reasons, char *ret_text)
{
	static const char *const names[] = { "lost",    "began_before", "unwritten", "unresolved",
					     "missing", "invalid",      "unended",   "repeated" };
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

static void forget_recording(struct mt_request *request)
{
	while (request->models) {
		struct mt_ledger_model *model = request->models;

		request->models = model->next;
		mt_coverage_free(&model->computed);
		mt_coverage_free(&model->seen);
		free(model);
	}
	request->request_id = 0;
	request->reasons = 0;
	request->lowest_seen = UINT64_MAX;
	request->seen_end = 0;
}

static void free_request(struct mt_request *request)
{
	while (request->attributes) {
		struct mt_ledger_attribute *attribute = request->attributes;

		request->attributes = attribute->next;
		free(attribute->key);
		free(attribute->value);
		free(attribute);
	}
	forget_recording(request);
	free(request->external_id);
	free(request);
}

void mt_ledger_close(struct mt_ledger *ledger)
{
	for (size_t i = 0; ledger->buckets && i < ledger->n_buckets; i++) {
		while (ledger->buckets[i]) {
			struct mt_request *request = ledger->buckets[i];

			ledger->buckets[i] = request->next;
			free_request(request);
		}
	}
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

struct mt_request *mt_ledger_find(struct mt_ledger *ledger, uint64_t handle)
{
	struct mt_request *request = *bucket(ledger, handle);

	while (request && request->handle != handle)
		request = request->next;
	return request;
}

static int insert_row(struct mt_ledger *ledger, struct mt_request *request, uint64_t n_lost_passes)
{
	struct mt_request_row row = {
		.request_id = ++ledger->last_request_id,
		.recording_id = ledger->recording_id,
		.handle = (int64_t)request->handle,
		.external_id = request->external_id,
		.prompt_positions = request->prompt_positions,
		.begin_ns = (int64_t)request->begin_ns,
	};
	int status;

	forget_recording(request);
	request->request_id = row.request_id;
	request->n_lost_passes = n_lost_passes;
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
	forget_recording(request);
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

/* Complete: each target model that saw the request computed all of its positions. */
static int is_complete(const struct mt_request *request, uint64_t n_positions)
{
	if (!request->models)
		return n_positions == 0;
	for (const struct mt_ledger_model *model = request->models; model; model = model->next)
		if (!mt_coverage_has(&model->computed, 0, n_positions))
			return 0;
	return 1;
}

/* Did passes carry all positions of [begin, end), whatever became of them? */
static int is_seen(const struct mt_request *request, uint64_t begin, uint64_t end)
{
	if (begin >= end)
		return 1;
	if (!request->models)
		return 0;
	for (const struct mt_ledger_model *model = request->models; model; model = model->next)
		if (!mt_coverage_has(&model->seen, begin, end))
			return 0;
	return 1;
}

/* What partial passes said, and why other positions were in no pass at all. */
static uint32_t reasons_of(const struct mt_ledger *ledger, const struct mt_request *request,
			   uint64_t n_positions, uint64_t n_lost_passes)
{
	uint32_t reasons = request->reasons;
	uint64_t begin = 0;

	if (request->begin_ns < ledger->recording_start_ns && !is_seen(request, 0, 1)) {
		reasons |= MT_REASON_BEGAN_BEFORE;
		begin = request->lowest_seen < n_positions ? request->lowest_seen : n_positions;
	}
	if (!is_seen(request, begin, n_positions))
		reasons |= n_lost_passes != request->n_lost_passes ? MT_REASON_LOST :
								      MT_REASON_MISSING;
	return reasons;
}

static int write_end(struct mt_ledger *ledger, const struct mt_request *request,
		     const struct mt_message *message)
{
	static const char *const end_states[] = {
		[MOETRACE_REQUEST_FINISHED] = "finished",
		[MOETRACE_REQUEST_ABORTED] = "aborted",
		[MOETRACE_REQUEST_FAILED] = "failed",
	};
	char text[MT_REASONS_BYTES];
	uint64_t n_positions = message->number;
	uint32_t reasons = 0;

	if (n_positions == MOETRACE_POSITIONS_UNKNOWN)
		n_positions = request->seen_end;
	if (!is_complete(request, n_positions) || (request->reasons & MT_REASON_REPEATED))
		reasons = reasons_of(ledger, request, n_positions, message->n_lost_passes);
	return mt_store_request_end(ledger->store, request->request_id, (int64_t)n_positions,
				    (int64_t)message->time_ns, end_states[message->state],
				    reasons ? "partial" : "complete",
				    mt_reasons_text(reasons, text));
}

int mt_ledger_end(struct mt_ledger *ledger, const struct mt_message *message)
{
	struct mt_request **at = bucket(ledger, message->request);
	struct mt_request *request;
	int status = MOETRACE_OK;

	while (*at && (*at)->handle != message->request)
		at = &(*at)->next;
	request = *at;
	if (!request)
		return MOETRACE_E_NOT_FOUND;
	if (request->request_id)
		status = write_end(ledger, request, message);
	*at = request->next;
	ledger->n_requests--;
	free_request(request);
	return status;
}

int mt_ledger_start(struct mt_ledger *ledger, int64_t recording_id, uint64_t start_ns,
		    uint64_t n_lost_passes)
{
	int status = MOETRACE_OK;

	ledger->recording_id = recording_id;
	ledger->recording_start_ns = start_ns;
	for (size_t i = 0; !status && i < ledger->n_buckets; i++)
		for (struct mt_request *request = ledger->buckets[i]; !status && request;
		     request = request->next)
			status = insert_row(ledger, request, n_lost_passes);
	return status;
}

void mt_ledger_stop(struct mt_ledger *ledger)
{
	ledger->recording_id = 0;
	for (size_t i = 0; i < ledger->n_buckets; i++)
		for (struct mt_request *request = ledger->buckets[i]; request;
		     request = request->next)
			forget_recording(request);
}

static struct mt_ledger_model *find_model(struct mt_request *request, uint32_t model_id)
{
	struct mt_ledger_model *model = request->models;

	while (model && model->model_id != model_id)
		model = model->next;
	if (model)
		return model;
	model = calloc(1, sizeof(*model));
	if (!model)
		return NULL;
	model->model_id = model_id;
	model->next = request->models;
	request->models = model;
	return model;
}

/* A run of consecutive positions that a target model computed. */
static int add_run(struct mt_request *request, struct mt_ledger_model *model,
		   const struct mt_ledger_slice *slice, uint64_t begin, uint64_t n)
{
	int n_repeated;

	if (begin < request->lowest_seen)
		request->lowest_seen = begin;
	if (mt_coverage_add(&model->seen, begin, begin + n) < 0)
		return MOETRACE_E_NOMEM;
	if (slice->phase == MOETRACE_PHASE_VERIFY)
		return 0;
	if (begin + n > request->seen_end)
		request->seen_end = begin + n;
	if (slice->pass_reasons)
		return 0;
	n_repeated = mt_coverage_add(&model->computed, begin, begin + n);
	if (n_repeated > 0)
		request->reasons |= MT_REASON_REPEATED;
	return n_repeated;
}

int mt_ledger_slice(struct mt_request *request, const struct mt_ledger_slice *slice)
{
	struct mt_ledger_model *model;
	uint32_t begin = 0;
	int n_repeated = 0;

	if (!slice->is_target || slice->n_rows == 0 || slice->phase == MOETRACE_PHASE_DRAFT)
		return 0;
	model = find_model(request, slice->model_id);
	if (!model)
		return MOETRACE_E_NOMEM;
	request->reasons |= slice->pass_reasons & MT_REASON_UNENDED ?
				    (slice->pass_reasons & ~MT_REASON_UNENDED) | MT_REASON_LOST :
				    slice->pass_reasons;
	if (slice->phase == MOETRACE_PHASE_VERIFY)
		request->reasons |= MT_REASON_UNRESOLVED;
	if (!slice->positions)
		return add_run(request, model, slice, slice->first_position, slice->n_rows);
	for (uint32_t i = 1; i <= slice->n_rows; i++) {
		int result;

		if (i < slice->n_rows && slice->positions[i] == slice->positions[i - 1] + 1u &&
		    slice->positions[i] != 0)
			continue;
		result = add_run(request, model, slice, slice->positions[begin], i - begin);
		if (result < 0)
			return result;
		n_repeated += result;
		begin = i;
	}
	return n_repeated;
}
