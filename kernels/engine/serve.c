/* SPDX-License-Identifier: MIT */
/*
 * The serving loop. One round is: retract, admit, form a pass, run it, sample, complete it, end
 * what is done. Every admitted request holds one slot of the cache until it is retracted or ends,
 * and one open request of the recorder from its first admission until it ends; the order begin,
 * pass_end, end that the recorder asks for follows from the order of a round.
 */
#include "kernels/engine/serve.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <moetrace/moetrace.h>

#include "kernels/engine/backend.h"
#include "kernels/engine/choice.h"
#include "kernels/engine/kv_cache.h"
#include "kernels/engine/prefix.h"
#include "kernels/engine/serve_record.h"
#include "kernels/sample/sample.h"

#define N_VOCAB 256

/* Of a request that was retracted and waits. */
#define NO_SLOT UINT32_MAX

struct mtk_server {
	const struct mtk_model *model;
	struct mtk_serve_options options;
	struct mtk_scheduler *scheduler;
	struct mtk_backend cpu; /* where options.backend was NULL */
	struct mtk_backend *backend;
	void *context;
	struct mtk_kv_cache *kv;   /* the context's */
	struct mtk_prefix *prefix; /* NULL: nothing is reused */
	struct mtk_rng *rngs;  /* [n_requests] one stream a request */
	float *logits;	       /* [n_batch][N_VOCAB] */
	int32_t *chosen_ids;   /* [n_batch] what was sampled */
	unsigned char *tokens; /* [n_batch] */
	struct mtk_oea oea;    /* where options.oea is not NULL */
	uint8_t *is_decode;    /* [n_batch + n_chunk] rows of the pass; NULL without a rule */
	struct mtk_serve_recorder recorder;
	struct mtk_serve_stats stats;
	bool was_run;
	bool records_margins;
};

static uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static uint32_t min_u32(uint32_t limit, uint64_t need)
{
	return need < limit ? (uint32_t)need : limit;
}

/* No more room than the workload can use: the limits bound what it may ask for. */
static void limits_fit(struct mtk_schedule_limits *limits, const struct mtk_workload *workload)
{
	uint64_t max_prompt = 1, max_positions = 1;
	size_t i;

	for (i = 0; i < workload->n_requests; i++) {
		const struct mtk_workload_request *request = &workload->requests[i];
		uint64_t n_new = min_u32(limits->n_context, request->max_new_tokens);
		uint64_t n_positions = request->n_prompt_bytes + n_new - 1;

		if (request->n_prompt_bytes > max_prompt)
			max_prompt = request->n_prompt_bytes;
		if (n_positions > max_positions)
			max_positions = n_positions;
	}
	limits->n_batch = min_u32(limits->n_batch, workload->n_requests);
	limits->n_chunk = min_u32(limits->n_chunk, limits->n_batch * max_prompt);
	limits->n_context = min_u32(limits->n_context, max_positions);
}

size_t mtk_server_size(const struct mtk_model *model, const struct mtk_workload *workload,
		       const struct mtk_serve_options *options)
{
	struct mtk_schedule_limits limits = options->limits;
	size_t kv_bytes, workspace_bytes;

	limits_fit(&limits, workload);
	kv_bytes = mtk_kv_cache_size(mtk_model_borrow_config(model), limits.n_batch,
				     limits.n_context);
	workspace_bytes = mtk_workspace_size(model, limits.n_batch + limits.n_chunk, options->oea);
	if (kv_bytes == 0 || workspace_bytes == 0 ||
	    __builtin_add_overflow(kv_bytes, workspace_bytes, &kv_bytes))
		return 0;
	return kv_bytes;
}

/* A choice that was recorded ends somewhere; every position that may come must be in it. */
static int choice_check(const struct mtk_server *server, const struct mtk_workload *workload,
			struct mtk_error *error)
{
	const struct mtk_choice *choice = server->options.choice;

	for (uint32_t i = 0; choice && i < workload->n_requests; i++) {
		const struct mtk_workload_request *request = &workload->requests[i];
		uint64_t n_new =
			min_u32(server->options.limits.n_context, request->max_new_tokens);
		uint64_t n_positions = request->n_prompt_bytes + n_new - 1;

		if (n_positions > server->options.limits.n_context)
			n_positions = server->options.limits.n_context;
		if (mtk_choice_positions(choice, i) < n_positions)
			return mtk_error_set(error, MOETRACE_E_LIMIT,
					     "request %.100s may take %llu positions, the replay "
					     "has %u of it; lower its max_new_tokens",
					     request->id, (unsigned long long)n_positions,
					     mtk_choice_positions(choice, i));
	}
	return MOETRACE_OK;
}

static int buffers_allocate(struct mtk_server *server, uint32_t n_requests, struct mtk_error *error)
{
	uint32_t n_batch = server->options.limits.n_batch, i;

	server->rngs = calloc(n_requests, sizeof(*server->rngs));
	server->logits = calloc(n_batch, N_VOCAB * sizeof(*server->logits));
	server->chosen_ids = calloc(n_batch, sizeof(*server->chosen_ids));
	server->tokens = calloc(n_batch, sizeof(*server->tokens));
	if (server->options.oea)
		server->is_decode = calloc((size_t)n_batch + server->options.limits.n_chunk,
					   sizeof(*server->is_decode));
	if (!server->rngs || !server->logits || !server->chosen_ids || !server->tokens ||
	    (server->options.oea && !server->is_decode))
		return mtk_error_set(error, MOETRACE_E_NOMEM, "out of memory for a batch of %u",
				     n_batch);
	for (i = 0; i < n_requests; i++)
		mtk_rng_seed(&server->rngs[i], server->options.seed, i);
	return MOETRACE_OK;
}

static int engine_allocate(struct mtk_server *server, struct mtk_error *error)
{
	const struct mtk_schedule_limits *limits = &server->options.limits;
	const struct mtk_context_settings settings = {
		.n_slots = limits->n_batch,
		.n_context = limits->n_context,
		.n_rows_max = limits->n_batch + limits->n_chunk,
		.n_threads = server->options.n_threads,
		.oea = server->options.oea,
		.choice = server->options.choice,
	};

	int status;

	server->cpu = mtk_backend_cpu(server->model);
	server->backend = server->options.backend ? server->options.backend : &server->cpu;
	status = server->backend->ops->context_create(server->backend, &settings, &server->context,
						      error);
	if (status < 0)
		return status;
	server->kv = server->backend->ops->cache(server->context);
	if (server->options.reuses_prefixes &&
	    mtk_prefix_create(server->kv, server->scheduler, &server->prefix) < 0)
		return mtk_error_set(error, MOETRACE_E_NOMEM, "out of memory for a batch of %u",
				     limits->n_batch);
	return MOETRACE_OK;
}

int mtk_server_create(const struct mtk_model *model, const struct mtk_workload *workload,
		      const struct mtk_serve_options *options, struct mtk_server **ret_server,
		      struct mtk_error *error)
{
	struct mtk_server *server;
	int status;

	if (mtk_model_borrow_config(model)->n_vocab != N_VOCAB)
		return mtk_error_set(error, MOETRACE_E_UNSUPPORTED,
				     "the model has a vocabulary of %u, text is served as bytes; give "
				     "a model with a vocabulary of 256",
				     mtk_model_borrow_config(model)->n_vocab);
	if (options->reuses_prefixes && options->choice)
		return mtk_error_set(error, MOETRACE_E_INVALID,
				     "prefixes are reused with the router's choice alone");
	if (options->reuses_prefixes && options->limits.is_lockstep)
		return mtk_error_set(error, MOETRACE_E_INVALID,
				     "prefixes are not reused in lockstep");
	server = calloc(1, sizeof(*server));
	if (!server)
		return mtk_error_set(error, MOETRACE_E_NOMEM, "out of memory");
	server->model = model;
	server->options = *options;
	if (options->oea) {
		server->oea = *options->oea;
		server->options.oea = &server->oea;
	}
	limits_fit(&server->options.limits, workload);
	status = mtk_scheduler_create(workload, &server->options.limits, &server->scheduler, error);
	if (status < 0)
		goto err_server;
	server->stats.n_requests = (uint32_t)workload->n_requests;
	status = choice_check(server, workload, error);
	if (status < 0)
		goto err_server;
	status = buffers_allocate(server, server->stats.n_requests, error);
	if (status < 0)
		goto err_server;
	status = engine_allocate(server, error);
	if (status < 0)
		goto err_server;
	*ret_server = server;
	return MOETRACE_OK;

err_server:
	mtk_server_destroy(server);
	return status;
}

void mtk_server_destroy(struct mtk_server *server)
{
	if (!server)
		return;
	mtk_prefix_destroy(server->prefix);
	if (server->context)
		server->backend->ops->context_destroy(server->context);
	mtk_scheduler_destroy(server->scheduler);
	free(server->rngs);
	free(server->logits);
	free(server->chosen_ids);
	free(server->tokens);
	free(server->is_decode);
	free(server);
}

/* A sequence does not run any more; its slot is free, or kept for its prefix. */
static void slot_leave(struct mtk_server *server, const struct mtk_sequence *sequence)
{
	if (server->prefix)
		mtk_prefix_keep(server->prefix, sequence->slot);
	else
		mtk_kv_cache_slot_release(server->kv, sequence->slot);
}

static int requests_retract(struct mtk_server *server, struct mtk_error *error)
{
	uint32_t index;

	while (mtk_scheduler_retract(server->scheduler, &index)) {
		struct mtk_sequence *sequence = mtk_scheduler_sequence(server->scheduler, index);
		int status;

		slot_leave(server, sequence);
		sequence->slot = NO_SLOT;
		server->stats.n_retracts++;
		status = mtk_serve_record_retract(&server->recorder, index, sequence, error);
		if (status < 0)
			return status;
	}
	return MOETRACE_OK;
}

/* Give an admitted sequence its slot, with the prefix that it takes over. */
static int slot_take(struct mtk_server *server, uint32_t index, struct mtk_prefix_hit *ret_hit)
{
	struct mtk_sequence *sequence = mtk_scheduler_sequence(server->scheduler, index);

	*ret_hit = (struct mtk_prefix_hit){.n_positions = 0};
	if (!server->prefix)
		return mtk_kv_cache_slot_acquire(server->kv, &sequence->slot);
	return mtk_prefix_take(server->prefix, index, ret_hit);
}

static int request_admit(struct mtk_server *server, struct mtk_error *error)
{
	struct mtk_sequence *sequence;
	struct mtk_prefix_hit hit;
	uint32_t index;
	int status = mtk_scheduler_admit(server->scheduler, &index);

	if (status < 0)
		return mtk_error_set(error, status, "out of memory");
	sequence = mtk_scheduler_sequence(server->scheduler, index);
	sequence->slot = NO_SLOT;
	status = slot_take(server, index, &hit);
	if (status < 0)
		return mtk_error_set(error, status, "no free sequence in the cache");
	if (sequence->n_retracts == 0)
		status = mtk_serve_record_begin(&server->recorder, index, sequence, error);
	if (status < 0 || hit.n_positions == 0)
		return status;
	server->stats.n_reuses++;
	server->stats.n_reused_positions += hit.n_positions;
	return mtk_serve_record_reuse(&server->recorder, index, sequence, &hit, error);
}

/* Kept prefixes have what the running requests leave of the cache. */
static int requests_admit(struct mtk_server *server, struct mtk_error *error)
{
	int status = MOETRACE_OK;

	while (status == MOETRACE_OK && mtk_scheduler_can_admit(server->scheduler))
		status = request_admit(server, error);
	if (server->prefix)
		mtk_prefix_trim(server->prefix, mtk_scheduler_n_free_positions(server->scheduler));
	return status;
}

static int request_end(struct mtk_server *server, uint32_t index,
		       enum moetrace_request_end_state end_state, struct mtk_error *error)
{
	struct mtk_sequence *sequence = mtk_scheduler_sequence(server->scheduler, index);

	slot_leave(server, sequence);
	return mtk_serve_record_end(&server->recorder, index, sequence, end_state, error);
}

/* Which rows decode, for the rule. */
static void decode_rows_mark(struct mtk_server *server, const struct mtk_schedule_pass *pass)
{
	uint32_t row = 0, i;

	for (i = 0; server->is_decode && i < pass->n_slices; i++) {
		memset(server->is_decode + row, pass->slices[i].is_decode, pass->slices[i].n_rows);
		row += pass->slices[i].n_rows;
	}
}

static int pass_run(struct mtk_server *server, const struct mtk_schedule_pass *pass,
		    struct mtk_error *error)
{
	struct mtk_forward_hooks hooks = {.ctx = &server->recorder,
					  .base_experts = mtk_serve_record_base,
					  .row_facts = server->records_margins ?
							       mtk_serve_record_facts :
							       NULL,
					  .select_experts = mtk_serve_record_layer,
					  .operation = server->recorder.times ?
							       mtk_serve_record_operation :
							       NULL};
	const struct mtk_forward_hooks ends = {.ctx = &server->recorder,
					       .launched = mtk_serve_record_launched};
	struct mtk_batch batch = {.n_rows = pass->n_rows,
				  .token_ids = pass->token_ids,
				  .positions = pass->positions,
				  .slots = pass->slots,
				  .want_logits = pass->want_logits,
				  .is_decode = server->is_decode,
				  .choice = server->options.choice,
				  .requests = pass->requests};
	const struct mtk_backend_ops *ops = server->backend->ops;
	const bool is_greedy = !(server->options.temperature > 0.0f);
	const struct mtk_forward_result result = {
		.logits = is_greedy ? NULL : server->logits,
		.greedy_ids = is_greedy ? server->chosen_ids : NULL,
	};
	uint32_t n_padding;
	int status;

	decode_rows_mark(server, pass);
	n_padding = ops->padding_rows ? ops->padding_rows(server->context, &batch) : 0;
	mtk_serve_record_pass_begin(&server->recorder, pass, n_padding);
	status = ops->forward(server->context, &batch,
			      server->recorder.pass	? &hooks
			      : server->recorder.lane ? &ends
						      : NULL,
			      &result, error);
	mtk_serve_record_pass_end(&server->recorder);
	return status;
}

static void pass_sample(struct mtk_server *server, const struct mtk_schedule_pass *pass)
{
	uint32_t n = 0, i;

	for (i = 0; i < pass->n_slices; i++) {
		if (!pass->slices[i].samples)
			continue;
		if (server->options.temperature > 0.0f)
			server->chosen_ids[n] = mtk_sample_softmax(
				server->logits + (size_t)n * N_VOCAB, N_VOCAB,
				server->options.temperature,
				&server->rngs[pass->slices[i].sequence]);
		server->tokens[n] = (unsigned char)server->chosen_ids[n];
		n++;
	}
}

/* End the requests that the pass finished; they have left the scheduler's list already. */
static int finished_end(struct mtk_server *server, const struct mtk_schedule_pass *pass,
			struct mtk_error *error)
{
	uint32_t i;

	for (i = 0; i < pass->n_slices; i++) {
		uint32_t index = pass->slices[i].sequence;
		enum mtk_finish finish = mtk_scheduler_sequence(server->scheduler, index)->finish;
		bool is_aborted = finish == MTK_FINISH_ABORT;
		int status;

		if (finish == MTK_FINISH_NONE)
			continue;
		server->stats.n_done++;
		server->stats.n_aborted += is_aborted;
		status = request_end(
			server, index,
			is_aborted ? MOETRACE_REQUEST_ABORTED : MOETRACE_REQUEST_FINISHED, error);
		if (status < 0)
			return status;
	}
	return MOETRACE_OK;
}

static void pass_account(struct mtk_serve_stats *stats, const struct mtk_schedule_pass *pass,
			 uint64_t duration_ns)
{
	uint64_t decode_rows = pass->n_decode_rows;
	uint64_t decode_ns = duration_ns * decode_rows / pass->n_rows;

	stats->n_generated += pass->n_samples;
	stats->decode_rows += decode_rows;
	stats->prefill_rows += pass->n_rows - decode_rows;
	stats->decode_ns += decode_ns;
	stats->prefill_ns += duration_ns - decode_ns;
	if (decode_rows == pass->n_rows) {
		stats->n_decode_passes++;
		stats->decode_only_rows += decode_rows;
		stats->decode_only_ns += duration_ns;
	} else if (decode_rows == 0) {
		stats->n_prefill_passes++;
	} else {
		stats->n_mixed_passes++;
	}
}

static int round_run(struct mtk_server *server, struct mtk_error *error)
{
	const struct mtk_schedule_pass *pass;
	uint64_t begin_ns = now_ns();
	int status = requests_retract(server, error);

	if (status == MOETRACE_OK)
		status = requests_admit(server, error);
	if (status < 0)
		return status;
	pass = mtk_scheduler_pass_form(server->scheduler);
	status = pass_run(server, pass, error);
	if (status < 0)
		return status;
	pass_sample(server, pass);
	mtk_scheduler_pass_complete(server->scheduler, server->tokens);
	status = finished_end(server, pass, error);
	pass_account(&server->stats, pass, now_ns() - begin_ns);
	server->stats.n_active = mtk_scheduler_n_active(server->scheduler);
	return status;
}

static bool work_is_left(const struct mtk_server *server)
{
	return mtk_scheduler_n_active(server->scheduler) > 0 ||
	       mtk_scheduler_can_admit(server->scheduler);
}

static int rounds_run(struct mtk_server *server, struct mtk_error *error)
{
	struct mtk_serve_stats *stats = &server->stats;
	uint64_t begin_ns = now_ns();
	bool goes_on = true;
	int status = MOETRACE_OK;

	while (status == MOETRACE_OK && goes_on && work_is_left(server)) {
		status = round_run(server, error);
		stats->total_ns = now_ns() - begin_ns;
		if (server->options.observe)
			goes_on = server->options.observe(server->options.observe_context, stats);
	}
	/* Ending a run that had nothing left to do interrupts nothing. */
	stats->interrupted = !goes_on && work_is_left(server);
	return status;
}

/*
 * What was admitted and is still open, running or retracted, ends as the run does; the first error
 * is the one that counts.
 */
static void open_end(struct mtk_server *server, enum moetrace_request_end_state end_state)
{
	uint32_t i;

	for (i = 0; i < server->stats.n_requests; i++) {
		const struct mtk_sequence *sequence = mtk_scheduler_sequence(server->scheduler, i);

		if (sequence->text && sequence->finish == MTK_FINISH_NONE)
			(void)request_end(server, i, end_state, NULL);
	}
}

/* What a rule had before it, a lane does not take: the hooks record then. */
static void lane_open(struct mtk_server *server)
{
	struct mtk_serve_recorder *recorder = &server->recorder;

	if (recorder->session && server->backend->ops->record && !server->options.oea)
		recorder->lane =
			server->backend->ops->record(server->context, recorder->session,
						     recorder->model, server->records_margins);
}

int mtk_server_run(struct mtk_server *server, const struct mtk_serve_recording *recording,
		   struct mtk_serve_stats *ret_stats, struct mtk_error *error)
{
	int status;

	if (server->was_run)
		return mtk_error_set(error, MOETRACE_E_STATE, "a server runs its workload once");
	server->was_run = true;
	server->records_margins = recording->records_margins;
	status = mtk_serve_recorder_init(&server->recorder, recording->session,
					 recording->records_tokens, server->backend,
					 server->options.choice, recording->model_name,
					 recording->model ? *recording->model : 0,
					 server->stats.n_requests,
					 server->options.limits.n_batch, error);
	if (status == MOETRACE_OK) {
		if (recording->model)
			*recording->model = server->recorder.model;
		lane_open(server);
		if (server->options.oea && recording->rule && *recording->rule)
			server->recorder.rule = *recording->rule;
		else
			status = mtk_serve_record_rule(&server->recorder, server->options.oea,
						       error);
		if (recording->rule && server->options.oea)
			*recording->rule = server->recorder.rule;
		if (status == MOETRACE_OK && server->prefix)
			status = mtk_serve_record_slots(
				&server->recorder,
				server->options.limits.n_batch + server->options.limits.n_chunk,
				server->options.limits.n_context, error);
		if (status == MOETRACE_OK && recording->records_kernels)
			status = mtk_serve_record_operations(
				&server->recorder,
				mtk_model_borrow_config(server->model)->n_layers, error);
		if (status == MOETRACE_OK)
			status = rounds_run(server, error);
		open_end(server, status < 0 ? MOETRACE_REQUEST_FAILED : MOETRACE_REQUEST_ABORTED);
		mtk_serve_recorder_release(&server->recorder);
	}
	*ret_stats = server->stats;
	return status;
}

const struct mtk_sequence *mtk_server_sequence(const struct mtk_server *server, uint32_t index)
{
	return mtk_scheduler_sequence(server->scheduler, index);
}
