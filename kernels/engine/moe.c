/* SPDX-License-Identifier: MIT */
/*
 * The experts of a layer within a forward pass: the router's logits, the choice, the expert MLP
 * over the slots grouped by expert, the combination, and the shared experts beside. The layer's
 * routing setting says how it routes; it was checked when the model was made, so nothing here can
 * fail. A rule comes between the router and everything else: it takes the router's choice and
 * leaves its own in its place. Without one, a row's values depend on no other row.
 */
#include <math.h>
#include <string.h>

#include "kernels/engine/choice.h"
#include "kernels/engine/forward_internal.h"

struct routing {
	struct mtk_pass *pass;
	struct mtk_route_config config;
	struct mtk_route_batch batch;
	uint32_t grain;
};

/* Ids that are given stand in a table by row; the setting weighs them as those of a hash layer. */
static void set_choice(const struct mtk_pass *pass, struct routing *routing)
{
	const struct mtk_workspace *workspace = pass->workspace;

	routing->config.hash_table = workspace->given_ids;
	routing->config.n_hash_tokens = pass->batch->n_rows;
	routing->batch.token_ids = workspace->row_numbers;
	/* Its weights are those of its own choice alone. */
	if (routing->config.scoring == MTK_ROUTE_SPARSEMIXER)
		routing->config.scoring = MTK_ROUTE_SOFTMAX_SELECTED;
}

static void give_ids(const struct mtk_pass *pass, uint32_t begin, uint32_t end, double *scratch)
{
	const struct mtk_batch *batch = pass->batch;
	const uint32_t top_k = pass->layer->route.top_k;

	for (uint32_t row = begin; row < end; row++)
		mtk_choice_row(batch->choice, pass->layer_number,
			       batch->requests ? batch->requests[row] : 0,
			       (uint32_t)batch->positions[row], scratch,
			       pass->workspace->given_ids + (size_t)row * top_k);
}

/* Pieces that run at the same time need a scratch each: a piece is known by its number. */
static void *piece_scratch(const struct routing *routing, uint32_t begin)
{
	const struct mtk_pass *pass = routing->pass;

	return pass->workspace->route_scratch +
	       begin / routing->grain *
		       (size_t)mtk_route_scratch_floats(pass->model->moe.n_columns);
}

/* Whether the rows' margins and flags are wanted, and are those of the choice. */
static bool tells_facts(const struct mtk_pass *pass)
{
	return pass->hooks && pass->hooks->row_facts && !pass->rule && !pass->batch->choice &&
	       !pass->layer->route.hash_table;
}

static void route_task(void *arg, uint32_t begin, uint32_t end)
{
	const struct routing *routing = arg;
	const struct mtk_pass *pass = routing->pass;
	struct mtk_workspace *workspace = pass->workspace;
	const struct mtk_route_result result = {
		.ids = pass->rule ? workspace->base_ids : workspace->ids,
		.weights = pass->rule ? workspace->base_weights : workspace->weights,
		.flags = tells_facts(pass) ? workspace->row_flags : NULL,
		.margins = tells_facts(pass) ? workspace->margins : NULL,
	};
	void *scratch = piece_scratch(routing, begin);

	if (pass->batch->choice)
		give_ids(pass, begin, end, scratch);
	pass->model->ops->route(&routing->config, &routing->batch, begin, end, scratch, &result);
}

static struct mtk_oea_batch oea_batch(const struct routing *routing)
{
	const struct mtk_pass *pass = routing->pass;
	struct mtk_workspace *workspace = pass->workspace;

	return (struct mtk_oea_batch){
		.oea = pass->rule,
		.route = &pass->layer->route,
		.rows = routing->batch,
		.is_decode = pass->batch->is_decode,
		.base_ids = workspace->base_ids,
		.base_weights = workspace->base_weights,
		.n_base = workspace->n_base,
		.is_loaded = workspace->is_loaded,
	};
}

static void oea_base_task(void *arg, uint32_t begin, uint32_t end)
{
	const struct routing *routing = arg;
	const struct mtk_oea_batch batch = oea_batch(routing);

	mtk_oea_base(&batch, begin, end, piece_scratch(routing, begin));
}

static void oea_choose_task(void *arg, uint32_t begin, uint32_t end)
{
	const struct routing *routing = arg;
	const struct mtk_oea_batch batch = oea_batch(routing);
	const struct mtk_oea_result result = {
		.ids = routing->pass->workspace->ids,
		.weights = routing->pass->workspace->weights,
	};

	mtk_oea_choose(&batch, begin, end, piece_scratch(routing, begin), &result);
}

static void run_route(struct mtk_pass *pass)
{
	const struct mtk_route_config *config = &pass->layer->route;
	const uint32_t n_rows = pass->batch->n_rows;
	const uint64_t cost = (uint64_t)mtk_route_columns(config) * (8 + config->top_k);
	const uint32_t least = (n_rows + MTK_ROUTE_PIECES - 1) / MTK_ROUTE_PIECES;
	const uint32_t grain = mtk_pass_grain(pass, n_rows, cost);
	struct routing routing = {
		.pass = pass,
		.config = *config,
		.batch = {
			.n_rows = n_rows,
			.n_valid_rows = n_rows,
			.logits = pass->workspace->router_logits,
			.bias = pass->layer->correction_bias,
			.token_ids = pass->batch->token_ids,
		},
		.grain = grain < least ? least : grain,
	};
	struct mtk_oea_batch batch;

	if (pass->batch->choice)
		set_choice(pass, &routing);
	mtk_threads_run(pass->threads, n_rows, routing.grain, route_task, &routing);
	if (!pass->rule)
		return;
	batch = oea_batch(&routing);
	mtk_threads_run(pass->threads, n_rows, routing.grain, oea_base_task, &routing);
	mtk_oea_unite(&batch);
	mtk_threads_run(pass->threads, n_rows, routing.grain, oea_choose_task, &routing);
}

static void run_logits(struct mtk_pass *pass)
{
	struct mtk_workspace *w = pass->workspace;
	const float *bias = pass->layer->router_bias;
	const size_t n = pass->model->moe.n_columns;

	for (size_t row = 0; bias && row < pass->batch->n_rows; row++)
		memcpy(w->router_logits + row * n, bias, n * sizeof(*bias));
	mtk_pass_linear(pass, &pass->layer->router, pass->batch->n_rows, w->normed,
			pass->model->config.n_hidden, w->router_logits, bias != NULL);
}

static void tell_facts(const struct mtk_pass *pass)
{
	const struct mtk_forward_hooks *hooks = pass->hooks;
	struct mtk_workspace *w = pass->workspace;
	const uint32_t n_rows = pass->batch->n_rows;

	for (uint32_t row = 0; row < n_rows; row++)
		w->row_flags[row] &= MTK_ROUTE_FLAG_NAN | MTK_ROUTE_FLAG_TIE;
	hooks->row_facts(hooks->ctx, pass->layer_number, n_rows, w->margins, w->row_flags);
}

static void run_router(struct mtk_pass *pass)
{
	const struct mtk_model_config *config = &pass->model->config;
	const struct mtk_moe *moe = &pass->model->moe;
	const struct mtk_forward_hooks *hooks = pass->hooks;
	struct mtk_workspace *w = pass->workspace;
	const uint32_t n_rows = pass->batch->n_rows;

	mtk_pass_norm(pass, pass->layer->post_attention_norm, n_rows, NULL);
	mtk_pass_lap(pass, MTK_OP_EXPERT_NORM, pass->layer_number);
	run_logits(pass);
	mtk_pass_lap(pass, MTK_OP_ROUTER, pass->layer_number);
	run_route(pass);
	mtk_pass_lap(pass, MTK_OP_ROUTE, pass->layer_number);
	if (!hooks)
		return;
	if (hooks->moe_input)
		hooks->moe_input(hooks->ctx, pass->layer_number, n_rows, config->n_hidden,
				 w->normed);
	if (hooks->router_logits)
		hooks->router_logits(hooks->ctx, pass->layer_number, n_rows, moe->n_columns,
				     w->router_logits);
	if (hooks->base_experts && pass->rule)
		hooks->base_experts(hooks->ctx, pass->layer_number, n_rows, moe->width,
				    w->base_ids);
	if (tells_facts(pass))
		tell_facts(pass);
	if (hooks->select_experts)
		hooks->select_experts(hooks->ctx, pass->layer_number, n_rows, pass->width, w->ids,
				      w->weights);
	mtk_pass_lap(pass, MTK_OP_NONE, MTK_NO_LAYER);
}

/* What the experts read: the layer's input, or its latent. */
static const float *run_latent(struct mtk_pass *pass)
{
	const struct mtk_model *model = pass->model;
	struct mtk_workspace *w = pass->workspace;
	const uint32_t n = model->moe.n_in;

	if (!model->moe.is_latent)
		return w->normed;
	mtk_pass_linear(pass, &pass->layer->latent_down, pass->batch->n_rows, w->normed,
			model->config.n_hidden, w->latent, false);
	for (uint32_t row = 0; pass->layer->latent_norm && row < pass->batch->n_rows; row++)
		model->ops->rmsnorm(w->latent + (size_t)row * n, pass->layer->latent_norm, n,
				    model->config.rms_norm_eps, w->latent + (size_t)row * n);
	mtk_pass_lap(pass, MTK_OP_LATENT, pass->layer_number);
	return w->latent;
}

static void run_experts(struct mtk_pass *pass, const float *x)
{
	const struct mtk_moe *moe = &pass->model->moe;
	struct mtk_workspace *workspace = pass->workspace;
	const struct mtk_experts experts = {
		.gate_up = pass->layer->gate_up,
		.down = pass->layer->down,
		.gate_up_bias = pass->layer->gate_up_bias,
		.down_bias = pass->layer->down_bias,
		.n_intermediate = moe->n_intermediate,
		.n_hidden = moe->n_in,
		.gemm = pass->model->ops->gemm,
		.swiglu = pass->model->ops->swiglu,
		.swiglu_clamped = pass->model->ops->swiglu_clamped,
		.clamp = moe->is_clamped ? &moe->clamp : NULL,
		.squared_relu = moe->squared_relu,
		.weighting = moe->weighting,
		.weights = workspace->weights,
		.groups = &workspace->groups,
		.x = x,
		.weighted_x = workspace->weighted_x,
		.gate_up_out = workspace->gate_up_out,
		.out = workspace->expert_out,
	};

	/* Zero experts are no experts here: their slots are in no group. */
	mtk_experts_group(moe->n_experts, pass->batch->n_rows, pass->width, workspace->ids,
			  &workspace->groups);
	mtk_pass_lap(pass, MTK_OP_GROUP, pass->layer_number);
	mtk_experts_run_all(&experts, moe->n_experts, pass->threads, workspace->active_experts);
	mtk_pass_lap(pass, MTK_OP_EXPERTS, pass->layer_number);
}

/* What a rule leaves out of a row stands at its end. */
static uint32_t entries_count(const int32_t *ids, uint32_t width)
{
	while (width > 0 && ids[width - 1] < 0)
		width--;
	return width;
}

static void combine_task(void *arg, uint32_t begin, uint32_t end)
{
	const struct mtk_pass *pass = arg;
	struct mtk_workspace *workspace = pass->workspace;
	const uint32_t n = pass->model->config.n_hidden;

	for (size_t row = begin; row < end; row++) {
		const size_t slot = row * pass->width;

		pass->model->ops->combine(
			n, entries_count(workspace->ids + slot, pass->width),
			workspace->expert_out + slot * n, workspace->weights + slot,
			workspace->moe_out + row * n, workspace->hidden + row * n);
	}
}

struct pairs {
	const struct mtk_pass *pass;
	struct mtk_combine combine;
	const float *input;
};

/* The slot of each entry of a row; an id behind the experts' is that of a zero expert. */
static void find_slots(const struct mtk_pass *pass, size_t row, int64_t *ret_slots)
{
	const uint32_t n_experts = pass->model->moe.n_experts;
	const int32_t *ids = pass->workspace->ids + row * pass->width;

	for (uint32_t j = 0; j < pass->width; j++) {
		ret_slots[j] = (int64_t)(row * pass->width + j);
		if (ids[j] < 0)
			ret_slots[j] = MTK_PAIR_SKIP;
		else if ((uint32_t)ids[j] >= n_experts)
			ret_slots[j] = MTK_PAIR_IDENTITY;
	}
}

static void combine_pairs_task(void *arg, uint32_t begin, uint32_t end)
{
	const struct pairs *pairs = arg;
	const struct mtk_pass *pass = pairs->pass;
	const struct mtk_moe *moe = &pass->model->moe;
	struct mtk_workspace *workspace = pass->workspace;
	const bool is_weighted = moe->weighting == MTK_WEIGHT_IN_COMBINE;
	const size_t n = moe->n_in;

	for (size_t row = begin; row < end; row++) {
		int64_t *slots = workspace->pair_slots + row * pass->width;
		float *out = workspace->moe_out + row * n;
		float *hidden = workspace->hidden + row * n;

		find_slots(pass, row, slots);
		pass->model->ops->combine_pairs(
			&pairs->combine, workspace->expert_out, slots,
			is_weighted ? workspace->weights + row * pass->width : NULL,
			pairs->input + row * n, out);
		for (size_t i = 0; !moe->is_latent && i < n; i++)
			hidden[i] += out[i];
	}
}

static void run_combine(struct mtk_pass *pass, const float *input)
{
	const struct mtk_moe *moe = &pass->model->moe;
	const struct mtk_route_config *route = &pass->layer->route;
	const uint32_t n_rows = pass->batch->n_rows;
	const uint64_t cost = (uint64_t)moe->n_in * pass->width;
	struct pairs pairs = {
		.pass = pass,
		.combine = {.n = moe->n_in,
			    .top_k = pass->width,
			    .output_stride = moe->n_in,
			    .scale = route->scale_owner == MTK_ROUTE_SCALE_ON_OUTPUT
					     ? (float)route->scale
					     : 1.0f},
		.input = input,
	};

	if (!moe->combines_pairs) {
		mtk_pass_loop(pass, n_rows, cost, combine_task, pass);
		return;
	}
	mtk_pass_loop(pass, n_rows, cost, combine_pairs_task, &pairs);
	if (moe->is_latent)
		mtk_pass_linear(pass, &pass->layer->latent_up, n_rows, pass->workspace->moe_out,
				moe->n_in, pass->workspace->hidden, true);
}

/* The activation of the shared experts; a gate, which acts on their output, may act here. */
static void shared_task(void *arg, uint32_t begin, uint32_t end)
{
	const struct mtk_pass *pass = arg;
	const struct mtk_cpu_ops *ops = pass->model->ops;
	const struct mtk_moe *moe = &pass->model->moe;
	const bool is_gated = pass->layer->shared_gate.data != NULL;

	for (size_t row = begin; row < end; row++) {
		float *x = pass->workspace->shared_out + row * moe->n_shared_gate_up;
		float gate = 1.0f;

		if (moe->squared_relu)
			mtk_squared_relu(moe->n_shared, x);
		else if (moe->is_clamped)
			ops->swiglu_clamped(&moe->clamp, moe->n_shared, x);
		else
			ops->swiglu(moe->n_shared, x);
		if (is_gated)
			gate = 1.0f / (1.0f + expf(-pass->workspace->shared_gates[row]));
		for (uint32_t i = 0; is_gated && i < moe->n_shared; i++)
			x[i] *= gate;
	}
}

static void run_shared(struct mtk_pass *pass)
{
	const struct mtk_moe *moe = &pass->model->moe;
	const struct mtk_layer *layer = pass->layer;
	const uint32_t n_rows = pass->batch->n_rows, n_hidden = pass->model->config.n_hidden;
	struct mtk_workspace *w = pass->workspace;

	if (moe->n_shared == 0)
		return;
	mtk_pass_linear(pass, &layer->shared_gate_up, n_rows, w->normed, n_hidden, w->shared_out,
			false);
	if (layer->shared_gate.data)
		mtk_pass_linear(pass, &layer->shared_gate, n_rows, w->normed, n_hidden,
				w->shared_gates, false);
	mtk_pass_loop(pass, n_rows, 10 * (uint64_t)moe->n_shared, shared_task, pass);
	mtk_pass_linear(pass, &layer->shared_down, n_rows, w->shared_out, moe->n_shared_gate_up,
			w->hidden, true);
}

/* A pass without decode rows is routed as if there were no rule. */
static void choose_rule(struct mtk_pass *pass)
{
	const struct mtk_oea *rules = pass->workspace->rules;

	pass->rule = rules && pass->has_decode && rules[pass->layer_number].k0 != 0
			     ? &rules[pass->layer_number]
			     : NULL;
	pass->width = pass->rule ? mtk_oea_width(pass->rule, &pass->layer->route)
				 : mtk_route_width(&pass->layer->route);
}

void mtk_pass_moe(struct mtk_pass *pass)
{
	const struct mtk_forward_hooks *hooks = pass->hooks;
	const float *input;

	choose_rule(pass);
	run_router(pass);
	input = run_latent(pass);
	run_experts(pass, input);
	run_combine(pass, input);
	mtk_pass_lap(pass, MTK_OP_COMBINE, pass->layer_number);
	if (hooks && hooks->moe_output)
		hooks->moe_output(hooks->ctx, pass->layer_number, pass->batch->n_rows,
				  pass->model->moe.n_in, pass->workspace->moe_out);
	run_shared(pass);
	if (pass->model->moe.n_shared > 0)
		mtk_pass_lap(pass, MTK_OP_SHARED, pass->layer_number);
}
