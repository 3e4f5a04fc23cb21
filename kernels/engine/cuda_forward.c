/* SPDX-License-Identifier: MIT */
/*
 * A forward pass on a GPU: inputs up, launches or one graph, results down, and one wait. Slots are
 * accounted for on the host, as on the CPU.
 */
#include <string.h>

#include <moetrace/status.h>

#include "kernels/engine/choice.h"
#include "kernels/engine/cuda_internal.h"

/* Whether each row is the next one of a sequence of its own, and its logits are wanted. */
static bool is_decode_pass(const struct mtk_cuda_context *c, const struct mtk_batch *batch)
{
	if (c->state->settings.without_graphs || batch->n_rows == 0 ||
	    batch->n_rows > MTK_CUDA_GRAPH_ROWS || !batch->want_logits)
		return false;
	for (uint32_t row = 0; row < batch->n_rows; row++)
		if (!batch->want_logits[row] || batch->slots[row] >= c->kv->n_slots ||
		    (int64_t)c->kv->slots[batch->slots[row]].length != batch->positions[row])
			return false;
	return true;
}

/* The captured size that holds so many rows, as a power of two. */
static uint32_t graph_of(uint32_t n_rows)
{
	uint32_t i = 0;

	while (1u << i < n_rows)
		i++;
	return i;
}

uint32_t mtk_cuda_padding_rows(void *context, const struct mtk_batch *batch)
{
	if (!is_decode_pass(context, batch))
		return 0;
	return (1u << graph_of(batch->n_rows)) - batch->n_rows;
}

static bool has_taps(const struct mtk_forward_hooks *hooks)
{
	return hooks && (hooks->router_logits || hooks->moe_input || hooks->moe_output);
}

/* Write the inputs where the device will read them; what is padding is zero. */
static int send_inputs(struct mtk_cuda_pass *pass, const struct mtk_batch *batch)
{
	struct mtk_cuda_context *c = pass->context;
	const size_t n_bytes = mtk_cuda_inputs_bytes(pass->n_rows);
	const struct mtk_cuda_inputs to = mtk_cuda_inputs_of(c->host_inputs, pass->n_rows);
	const size_t n = batch->n_rows;

	memset(c->host_inputs, 0, n_bytes);
	*to.n_valid_rows = batch->n_rows;
	memcpy(to.token_ids, batch->token_ids, n * sizeof(*to.token_ids));
	memcpy(to.positions, batch->positions, n * sizeof(*to.positions));
	memcpy(to.slots, batch->slots, n * sizeof(*to.slots));
	if (batch->is_decode)
		memcpy(to.is_decode, batch->is_decode, n);
	pass->n_wanted = 0;
	for (uint32_t row = 0; batch->want_logits && row < batch->n_rows; row++)
		if (batch->want_logits[row])
			to.wanted_rows[pass->n_wanted++] = row;
	return mtk_cuda_upload(c->inputs, c->host_inputs, n_bytes, c->state->stream, pass->error);
}

/* The ids of a choice that is not the router's, of all layers. */
static int send_choice(struct mtk_cuda_pass *pass, const struct mtk_batch *batch)
{
	struct mtk_cuda_context *c = pass->context;
	const uint32_t top_k = c->model->layers[0].route.top_k;
	const size_t n_layer = (size_t)c->n_rows_max * top_k;
	int status = MOETRACE_OK;

	for (uint32_t i = 0; c->choice && !status && i < c->model->config.n_layers; i++) {
		int32_t *ids = c->host_given_ids + i * n_layer;

		for (uint32_t row = 0; row < batch->n_rows; row++)
			mtk_choice_row(c->choice, i, batch->requests ? batch->requests[row] : 0,
				       (uint32_t)batch->positions[row], c->choice_scratch,
				       ids + (size_t)row * top_k);
		status = mtk_cuda_upload(c->given_ids + i * n_layer, ids,
					 (size_t)batch->n_rows * top_k * sizeof(*ids),
					 c->state->stream, pass->error);
	}
	return status;
}

/* Capture a size when it is first needed. */
static int capture(struct mtk_cuda_pass *pass, void **ret_graph)
{
	void *stream = pass->context->state->stream;
	struct mtk_error end_error;
	void *graph = NULL;
	int status = mtk_cuda_graph_begin(stream, pass->error);
	int end_status;

	if (status)
		return status;
	status = mtk_cuda_pass_launch(pass);
	/* A capture that failed must be ended as well. */
	end_status = mtk_cuda_graph_end(stream, status ? &end_error : pass->error, &graph);
	if (status || end_status) {
		mtk_cuda_graph_destroy(graph);
		return status ? status : end_status;
	}
	*ret_graph = graph;
	return MOETRACE_OK;
}

/* Graphs write margins if those do which were captured before. */
static void match_facts(struct mtk_cuda_pass *pass)
{
	struct mtk_cuda_context *c = pass->context;

	if (c->graphs_have_facts != pass->has_facts)
		mtk_cuda_graphs_forget(c);
	c->graphs_have_facts = pass->has_facts;
}

static int launch(struct mtk_cuda_pass *pass)
{
	struct mtk_cuda_context *c = pass->context;
	void **graph = &c->graphs[graph_of(pass->n_rows)];
	const uint32_t n_wanted = pass->n_wanted;
	int status = MOETRACE_OK;

	if (!pass->is_graph)
		return mtk_cuda_pass_launch(pass);
	/* All rows, padding included, so that the graph holds for any number of others. */
	pass->n_wanted = pass->n_rows;
	pass->inputs.wanted_rows = NULL;
	match_facts(pass);
	if (!*graph)
		status = capture(pass, graph);
	pass->n_wanted = n_wanted;
	return status ? status : mtk_cuda_graph_launch(*graph, c->state->stream, pass->error);
}

static int fetch_results(struct mtk_cuda_pass *pass, const struct mtk_forward_result *result)
{
	struct mtk_cuda_context *c = pass->context;
	const size_t n = pass->n_wanted;
	int status = MOETRACE_OK;

	if (n > 0 && result->logits)
		status = mtk_cuda_download(result->logits, c->logits,
					   n * c->model->config.n_vocab * sizeof(*c->logits),
					   c->state->stream, pass->error);
	if (!status && n > 0 && result->greedy_ids)
		status = mtk_cuda_download(result->greedy_ids, c->greedy_ids,
					   n * sizeof(*c->greedy_ids), c->state->stream,
					   pass->error);
	return status;
}

/* ---- what the hooks are told ---- */

static int hooks_allocate(struct mtk_cuda_pass *pass)
{
	struct mtk_cuda_context *c = pass->context;
	const size_t n_rows = (size_t)c->n_rows_max * c->model->config.n_layers;
	int status = MOETRACE_OK;

	if (!c->host_ids)
		status = mtk_cuda_host_alloc(n_rows * c->n_width_max * sizeof(*c->host_ids),
					     pass->error, (void **)&c->host_ids);
	if (!status && !c->host_weights)
		status = mtk_cuda_host_alloc(n_rows * c->n_width_max * sizeof(*c->host_weights),
					     pass->error, (void **)&c->host_weights);
	if (!status && !c->host_base_ids && c->rules)
		status = mtk_cuda_host_alloc(n_rows * c->model->moe.width *
						     sizeof(*c->host_base_ids),
					     pass->error, (void **)&c->host_base_ids);
	if (!status && !c->host_margins && pass->has_facts)
		status = mtk_cuda_host_alloc(n_rows * sizeof(*c->host_margins), pass->error,
					     (void **)&c->host_margins);
	if (!status && !c->host_row_flags && pass->has_facts)
		status = mtk_cuda_host_alloc(n_rows, pass->error, (void **)&c->host_row_flags);
	return status;
}

/* A layer's part of an array of all layers, whose rows are n entries wide. */
static int fetch_layer(struct mtk_cuda_pass *pass, void *to, const void *from, uint32_t layer,
		       uint32_t n_rows, size_t row_entries, uint32_t n_entries)
{
	const size_t first = layer * (size_t)pass->context->n_rows_max * row_entries * 4;

	return mtk_cuda_download((char *)to + first, (const char *)from + first,
				 (size_t)n_rows * n_entries * 4, pass->context->state->stream,
				 pass->error);
}

static int fetch_facts(struct mtk_cuda_pass *pass, uint32_t layer, uint32_t n_rows)
{
	struct mtk_cuda_context *c = pass->context;
	const size_t first = (size_t)layer * c->n_rows_max;
	int status = mtk_cuda_download(c->host_margins + first, c->margins + first,
				       n_rows * sizeof(*c->margins), c->state->stream, pass->error);

	return status ? status
		      : mtk_cuda_download(c->host_row_flags + first, c->row_flags + first, n_rows,
					  c->state->stream, pass->error);
}

static int fetch_choices(struct mtk_cuda_pass *pass, uint32_t n_rows)
{
	struct mtk_cuda_context *c = pass->context;
	const uint32_t n_base = c->model->moe.width;
	int status = hooks_allocate(pass);

	for (uint32_t i = 0; !status && i < c->model->config.n_layers; i++) {
		const uint32_t width = mtk_cuda_pass_width(pass, i);

		status = fetch_layer(pass, c->host_ids, c->ids, i, n_rows, c->n_width_max, width);
		if (!status)
			status = fetch_layer(pass, c->host_weights, c->weights, i, n_rows,
					     c->n_width_max, width);
		if (!status && pass->has_rule)
			status = fetch_layer(pass, c->host_base_ids, c->base_ids, i, n_rows, n_base,
					     n_base);
		if (!status && pass->has_facts && mtk_cuda_pass_has_facts(pass, i))
			status = fetch_facts(pass, i, n_rows);
	}
	return status;
}

static void tell_facts(const struct mtk_cuda_context *c, const struct mtk_forward_hooks *hooks,
		       uint32_t layer, uint32_t n_rows)
{
	const size_t first = (size_t)layer * c->n_rows_max;

	for (uint32_t row = 0; row < n_rows; row++)
		c->host_row_flags[first + row] &= MTK_ROUTE_FLAG_NAN | MTK_ROUTE_FLAG_TIE;
	hooks->row_facts(hooks->ctx, layer, n_rows, c->host_margins + first,
			 c->host_row_flags + first);
}

static void call_hooks(const struct mtk_cuda_pass *pass, const struct mtk_forward_hooks *hooks,
		       uint32_t n_rows)
{
	const struct mtk_cuda_context *c = pass->context;
	const uint32_t n_base = c->model->moe.width;

	for (uint32_t i = 0; i < c->model->config.n_layers; i++) {
		const size_t first = (size_t)i * c->n_rows_max;
		const bool acts = pass->has_rule && c->rules[i].k0 != 0;

		if (hooks->base_experts && acts)
			hooks->base_experts(hooks->ctx, i, n_rows, n_base,
					    c->host_base_ids + first * n_base);
		if (pass->has_facts && mtk_cuda_pass_has_facts(pass, i))
			tell_facts(c, hooks, i, n_rows);
		if (hooks->select_experts)
			hooks->select_experts(hooks->ctx, i, n_rows, mtk_cuda_pass_width(pass, i),
					      c->host_ids + first * c->n_width_max,
					      c->host_weights + first * c->n_width_max);
	}
}

static int run(struct mtk_cuda_pass *pass, const struct mtk_batch *batch,
	       const struct mtk_forward_hooks *hooks, const struct mtk_forward_result *result)
{
	const bool has_hooks =
		hooks && (hooks->select_experts || hooks->base_experts || hooks->row_facts);
	int status = send_inputs(pass, batch);

	if (!status)
		status = send_choice(pass, batch);
	if (!status)
		status = launch(pass);
	if (!status)
		status = fetch_results(pass, result);
	/* Padding rows come last, and hooks are not told of them. */
	if (!status && has_hooks)
		status = fetch_choices(pass, batch->n_rows);
	/* What the hook puts into the stream takes the host's time while the GPU computes. */
	if (!status && hooks && hooks->launched)
		hooks->launched(hooks->ctx);
	if (!status)
		status = mtk_cuda_stream_wait(pass->context->state->stream, pass->error);
	if (!status && has_hooks)
		call_hooks(pass, hooks, batch->n_rows);
	return status;
}

int mtk_cuda_forward(void *memory, const struct mtk_batch *batch,
		     const struct mtk_forward_hooks *hooks,
		     const struct mtk_forward_result *result, struct mtk_error *error)
{
	struct mtk_cuda_context *c = memory;
	struct mtk_cuda_pass pass = {
		.context = c,
		.n_rows = batch->n_rows,
		.taps = has_taps(hooks) ? hooks : NULL,
		.error = error,
	};
	int status;

	if (batch->n_rows == 0)
		return MOETRACE_OK;
	if (c->kv_status)
		return mtk_error_set(error, c->kv_status,
				     "cuda: positions of the cache could not be copied");
	pass.is_graph = !pass.taps && is_decode_pass(c, batch);
	if (pass.is_graph)
		pass.n_rows += mtk_cuda_padding_rows(c, batch);
	pass.has_rule = c->rules && mtk_batch_has_decode(batch);
	pass.has_facts = hooks && hooks->row_facts;
	if (pass.n_rows > c->n_rows_max || mtk_kv_append_begin(c->kv, &c->model->config, batch))
		return mtk_error_set(error, MOETRACE_E_INVALID,
				     "a pass of %u rows failed: its rows do not fit the cache",
				     batch->n_rows);
	pass.inputs = mtk_cuda_inputs_of(c->inputs, pass.n_rows);
	status = run(&pass, batch, hooks, result);
	mtk_kv_append_end(c->kv, batch, status == MOETRACE_OK);
	return status;
}
