/* SPDX-License-Identifier: MIT */
/*
 * The scheduler's state is the workload's sequences, the index of the next one to admit, and the
 * list of those admitted, in order of admission, which is that of the workload. Forming a pass and
 * completing it are both one walk over that list. From the next one on every sequence waits or is
 * done: retracting the last of the list makes it the next one.
 */
#include "kernels/engine/scheduler.h"

#include <stdlib.h>

#include <moetrace/status.h>

struct mtk_scheduler {
	struct mtk_schedule_limits limits;
	struct mtk_sequence *sequences;
	uint32_t n_sequences;
	uint32_t next;	     /* to admit; n_sequences: none waits */
	uint32_t *active;    /* [n_batch] */
	uint32_t n_active;
	struct mtk_schedule_pass pass;
};

/* Tokens that a request may generate before it is done. */
static uint32_t n_limit_of(const struct mtk_workload_request *request, uint32_t n_context)
{
	uint64_t n_room = (uint64_t)n_context - request->n_prompt_bytes + 1;

	return (uint32_t)(request->max_new_tokens < n_room ? request->max_new_tokens : n_room);
}

/* Whether each request fits the cache when it is alone. Prompts fit the context already. */
static int kv_positions_check(const struct mtk_workload *workload,
			      const struct mtk_schedule_limits *limits, struct mtk_error *error)
{
	size_t i;

	for (i = 0; limits->n_kv_positions > 0 && i < workload->n_requests; i++) {
		const struct mtk_workload_request *request = &workload->requests[i];
		uint32_t n_new = n_limit_of(request, limits->n_context);
		uint64_t n_positions;

		if (limits->n_abort > 0 && limits->n_abort < n_new)
			n_new = limits->n_abort;
		n_positions = (uint64_t)request->n_prompt_bytes + n_new - 1;
		if (n_positions > limits->n_kv_positions)
			return mtk_error_set(error, MOETRACE_E_LIMIT,
					     "%s: line %zu: the request alone may need %llu "
					     "positions, the KV cache has %u; raise --kv-positions",
					     workload->name, request->line,
					     (unsigned long long)n_positions,
					     limits->n_kv_positions);
	}
	return MOETRACE_OK;
}

static int limits_check(const struct mtk_workload *workload,
			const struct mtk_schedule_limits *limits, struct mtk_error *error)
{
	uint64_t n_rows = (uint64_t)limits->n_batch + limits->n_chunk;
	size_t i;

	if (limits->n_batch == 0 || limits->n_chunk == 0 || limits->n_context == 0)
		return mtk_error_set(error, MOETRACE_E_INVALID,
				     "batch, chunk and context must be at least 1");
	if (n_rows > INT32_MAX || limits->n_context > INT32_MAX)
		return mtk_error_set(error, MOETRACE_E_INVALID,
				     "batch + chunk and context must be below 2^31");
	if (workload->n_requests > UINT32_MAX)
		return mtk_error_set(error, MOETRACE_E_INVALID, "%s: more than 2^32 requests; split it",
				     workload->name);
	for (i = 0; i < workload->n_requests; i++) {
		const struct mtk_workload_request *request = &workload->requests[i];

		if (request->n_prompt_bytes > limits->n_context)
			return mtk_error_set(error, MOETRACE_E_LIMIT,
					     "%s: line %zu: the prompt has %zu tokens, the context "
					     "%u; shorten it or raise --context",
					     workload->name, request->line, request->n_prompt_bytes,
					     limits->n_context);
	}
	return kv_positions_check(workload, limits, error);
}

static void sequence_init(struct mtk_sequence *sequence, const struct mtk_workload_request *request,
			  uint32_t n_context)
{
	sequence->request = request;
	sequence->n_prompt = (uint32_t)request->n_prompt_bytes;
	sequence->n_limit = n_limit_of(request, n_context);
}

static int pass_allocate(struct mtk_schedule_pass *pass, const struct mtk_schedule_limits *limits)
{
	size_t n_rows = (size_t)limits->n_batch + limits->n_chunk;

	pass->slices = calloc(limits->n_batch, sizeof(*pass->slices));
	pass->token_ids = calloc(n_rows, sizeof(*pass->token_ids));
	pass->positions = calloc(n_rows, sizeof(*pass->positions));
	pass->slots = calloc(n_rows, sizeof(*pass->slots));
	pass->want_logits = calloc(n_rows, sizeof(*pass->want_logits));
	pass->requests = calloc(n_rows, sizeof(*pass->requests));
	if (!pass->slices || !pass->token_ids || !pass->positions || !pass->slots ||
	    !pass->want_logits || !pass->requests)
		return MOETRACE_E_NOMEM;
	return MOETRACE_OK;
}

int mtk_scheduler_create(const struct mtk_workload *workload,
			 const struct mtk_schedule_limits *limits,
			 struct mtk_scheduler **ret_scheduler, struct mtk_error *error)
{
	struct mtk_scheduler *scheduler;
	uint32_t i;
	int status = limits_check(workload, limits, error);

	if (status < 0)
		return status;
	scheduler = calloc(1, sizeof(*scheduler));
	if (!scheduler)
		return mtk_error_set(error, MOETRACE_E_NOMEM, "out of memory");
	scheduler->limits = *limits;
	scheduler->n_sequences = (uint32_t)workload->n_requests;
	scheduler->sequences = calloc(workload->n_requests, sizeof(*scheduler->sequences));
	scheduler->active = calloc(limits->n_batch, sizeof(*scheduler->active));
	if (!scheduler->sequences || !scheduler->active ||
	    pass_allocate(&scheduler->pass, limits) < 0) {
		mtk_scheduler_destroy(scheduler);
		return mtk_error_set(error, MOETRACE_E_NOMEM,
				     "out of memory for a batch of %u and chunks of %u rows; lower "
				     "--batch or --chunk",
				     limits->n_batch, limits->n_chunk);
	}
	for (i = 0; i < scheduler->n_sequences; i++)
		sequence_init(&scheduler->sequences[i], &workload->requests[i], limits->n_context);
	*ret_scheduler = scheduler;
	return MOETRACE_OK;
}

void mtk_scheduler_destroy(struct mtk_scheduler *scheduler)
{
	uint32_t i;

	if (!scheduler)
		return;
	for (i = 0; scheduler->sequences && i < scheduler->n_sequences; i++)
		free(scheduler->sequences[i].text);
	free(scheduler->sequences);
	free(scheduler->active);
	free(scheduler->pass.slices);
	free(scheduler->pass.token_ids);
	free(scheduler->pass.positions);
	free(scheduler->pass.slots);
	free(scheduler->pass.want_logits);
	free(scheduler->pass.requests);
	free(scheduler);
}

struct mtk_sequence *mtk_scheduler_sequence(struct mtk_scheduler *scheduler, uint32_t index)
{
	return &scheduler->sequences[index];
}

uint32_t mtk_scheduler_n_active(const struct mtk_scheduler *scheduler)
{
	return scheduler->n_active;
}

/* Tokens whose value is known: when they are computed, the next one is sampled. */
static uint32_t n_known(const struct mtk_sequence *sequence)
{
	return sequence->n_prompt + sequence->n_generated;
}

static uint64_t n_active_positions(const struct mtk_scheduler *scheduler)
{
	uint64_t n_positions = 0;
	uint32_t i;

	for (i = 0; i < scheduler->n_active; i++)
		n_positions += n_known(&scheduler->sequences[scheduler->active[i]]);
	return n_positions;
}

uint64_t mtk_scheduler_n_free_positions(const struct mtk_scheduler *scheduler)
{
	uint64_t n_positions = n_active_positions(scheduler);
	uint64_t n_max = scheduler->limits.n_kv_positions;

	if (n_max == 0)
		return UINT64_MAX;
	return n_positions < n_max ? n_max - n_positions : 0;
}

/* Whether the known tokens of the active requests and of @waiting (NULL: none) fit the cache. */
static bool positions_fit(const struct mtk_scheduler *scheduler, const struct mtk_sequence *waiting)
{
	return scheduler->limits.n_kv_positions == 0 ||
	       n_active_positions(scheduler) + (waiting ? n_known(waiting) : 0) <=
		       scheduler->limits.n_kv_positions;
}

bool mtk_scheduler_retract(struct mtk_scheduler *scheduler, uint32_t *ret_sequence)
{
	struct mtk_sequence *sequence;

	if (positions_fit(scheduler, NULL))
		return false;
	scheduler->next = scheduler->active[--scheduler->n_active];
	sequence = &scheduler->sequences[scheduler->next];
	sequence->n_computed = 0;
	sequence->n_retracts++;
	*ret_sequence = scheduler->next;
	return true;
}

/* In lockstep, whether the batch has begun. */
static bool has_begun(const struct mtk_scheduler *scheduler)
{
	return scheduler->limits.is_lockstep && scheduler->n_active > 0 &&
	       scheduler->sequences[scheduler->active[0]].n_computed > 0;
}

bool mtk_scheduler_can_admit(const struct mtk_scheduler *scheduler)
{
	return !has_begun(scheduler) && scheduler->n_active < scheduler->limits.n_batch &&
	       scheduler->next < scheduler->n_sequences &&
	       positions_fit(scheduler, &scheduler->sequences[scheduler->next]);
}

int mtk_scheduler_admit(struct mtk_scheduler *scheduler, uint32_t *ret_sequence)
{
	uint32_t index = scheduler->next;
	struct mtk_sequence *sequence = &scheduler->sequences[index];

	if (!sequence->text)
		sequence->text = malloc(sequence->n_limit);
	if (!sequence->text)
		return MOETRACE_E_NOMEM;
	/* Behind one that was retracted, younger ones may be done. */
	do
		scheduler->next++;
	while (scheduler->next < scheduler->n_sequences &&
	       scheduler->sequences[scheduler->next].finish != MTK_FINISH_NONE);
	scheduler->active[scheduler->n_active++] = index;
	*ret_sequence = index;
	return MOETRACE_OK;
}

/* Only the token sampled last is left to compute; in lockstep, one token at a time is. */
static bool is_decoding(const struct mtk_scheduler *scheduler, const struct mtk_sequence *sequence)
{
	if (scheduler->limits.is_lockstep)
		return true;
	return sequence->n_generated > 0 && sequence->n_computed + 1 == n_known(sequence);
}

/* Append the next @n_rows positions of a sequence to the pass. */
static void slice_add(struct mtk_scheduler *scheduler, uint32_t index, uint32_t n_rows)
{
	struct mtk_schedule_pass *pass = &scheduler->pass;
	const struct mtk_sequence *sequence = &scheduler->sequences[index];
	struct mtk_slice *slice = &pass->slices[pass->n_slices++];
	uint32_t i;

	slice->sequence = index;
	slice->first_position = sequence->n_computed;
	slice->n_rows = n_rows;
	slice->is_decode = is_decoding(scheduler, sequence);
	slice->samples = sequence->n_computed + n_rows == n_known(sequence);
	for (i = 0; i < n_rows; i++) {
		uint32_t row = pass->n_rows + i, position = sequence->n_computed + i;

		pass->token_ids[row] = position < sequence->n_prompt
					       ? sequence->request->prompt[position]
					       : sequence->text[position - sequence->n_prompt];
		pass->positions[row] = (int32_t)position;
		pass->slots[row] = sequence->slot;
		pass->requests[row] = index;
		pass->want_logits[row] = slice->samples && i == n_rows - 1;
	}
	pass->n_rows += n_rows;
	pass->n_samples += slice->samples;
}

const struct mtk_schedule_pass *mtk_scheduler_pass_form(struct mtk_scheduler *scheduler)
{
	struct mtk_schedule_pass *pass = &scheduler->pass;
	uint32_t n_left = scheduler->limits.n_chunk, i;

	pass->n_slices = pass->n_rows = pass->n_samples = 0;
	for (i = 0; i < scheduler->n_active; i++) {
		if (is_decoding(scheduler, &scheduler->sequences[scheduler->active[i]]))
			slice_add(scheduler, scheduler->active[i], 1);
	}
	pass->n_decode_rows = pass->n_rows;
	for (i = 0; i < scheduler->n_active && n_left > 0; i++) {
		const struct mtk_sequence *sequence = &scheduler->sequences[scheduler->active[i]];
		uint32_t n_rows;

		if (is_decoding(scheduler, sequence))
			continue;
		n_rows = n_known(sequence) - sequence->n_computed;
		if (n_rows > n_left)
			n_rows = n_left;
		slice_add(scheduler, scheduler->active[i], n_rows);
		n_left -= n_rows;
	}
	return pass;
}

static void token_take(const struct mtk_scheduler *scheduler, struct mtk_sequence *sequence,
		       unsigned char token)
{
	sequence->text[sequence->n_generated++] = token;
	if (token == scheduler->limits.stop_byte)
		sequence->finish = MTK_FINISH_STOP;
	else if (sequence->n_generated == sequence->n_limit)
		sequence->finish = MTK_FINISH_LENGTH;
	else if (sequence->n_generated == scheduler->limits.n_abort)
		sequence->finish = MTK_FINISH_ABORT;
}

void mtk_scheduler_pass_complete(struct mtk_scheduler *scheduler, const unsigned char *tokens)
{
	const struct mtk_schedule_pass *pass = &scheduler->pass;
	uint32_t n_active = 0, i;

	for (i = 0; i < pass->n_slices; i++) {
		const struct mtk_slice *slice = &pass->slices[i];
		struct mtk_sequence *sequence = &scheduler->sequences[slice->sequence];

		sequence->n_computed += slice->n_rows;
		if (slice->samples)
			token_take(scheduler, sequence, *tokens++);
	}
	for (i = 0; i < scheduler->n_active; i++) {
		if (scheduler->sequences[scheduler->active[i]].finish == MTK_FINISH_NONE)
			scheduler->active[n_active++] = scheduler->active[i];
	}
	scheduler->n_active = n_active;
}
