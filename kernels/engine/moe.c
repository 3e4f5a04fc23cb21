/* SPDX-License-Identifier: MIT */
/*
 * The experts of a layer within a forward pass: the router's logits, the choice, the expert MLP
 * over the slots grouped by expert, and the combination. The layer's routing setting says how it
 * routes; it was checked when the model was made, so nothing here can fail. A rule comes between
 * the router and everything else: it takes the router's choice and leaves its own in its place.
 */
#include "kernels/engine/forward_internal.h"

struct routing {
	struct mtk_pass *pass;
	uint32_t grain;
};

/* Pieces that run at the same time need a scratch each: a piece is known by its number. */
static void *piece_scratch(const struct routing *routing, uint32_t begin)
{
	const struct mtk_pass *pass = routing->pass;
	const uint32_t n_columns = mtk_route_columns(&pass->layer->route);

	return pass->workspace->route_scratch +
	       begin / routing->grain * (size_t)mtk_route_scratch_floats(n_columns);
}

static struct mtk_route_batch routed_rows(const struct mtk_pass *pass)
{
	return (struct mtk_route_batch){
		.n_rows = pass->batch->n_rows,
		.n_valid_rows = pass->batch->n_rows,
		.logits = pass->workspace->router_logits,
	};
}

static void route_task(void *arg, uint32_t begin, uint32_t end)
{
	const struct routing *routing = arg;
	const struct mtk_pass *pass = routing->pass;
	const struct mtk_route_config *config = &pass->layer->route;
	struct mtk_workspace *workspace = pass->workspace;
	const struct mtk_route_batch batch = routed_rows(pass);
	const struct mtk_route_result result = {
		.ids = pass->rule ? workspace->base_ids : workspace->ids,
		.weights = pass->rule ? workspace->base_weights : workspace->weights,
	};

	pass->model->ops->route(config, &batch, begin, end, piece_scratch(routing, begin), &result);
}

static struct mtk_oea_batch oea_batch(const struct mtk_pass *pass)
{
	struct mtk_workspace *workspace = pass->workspace;

	return (struct mtk_oea_batch){
		.oea = pass->rule,
		.route = &pass->layer->route,
		.rows = routed_rows(pass),
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
	const struct mtk_oea_batch batch = oea_batch(routing->pass);

	mtk_oea_base(&batch, begin, end, piece_scratch(routing, begin));
}

static void oea_choose_task(void *arg, uint32_t begin, uint32_t end)
{
	const struct routing *routing = arg;
	const struct mtk_oea_batch batch = oea_batch(routing->pass);
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
	struct routing routing = {pass, grain < least ? least : grain};
	struct mtk_oea_batch batch;

	mtk_threads_run(pass->threads, n_rows, routing.grain, route_task, &routing);
	if (!pass->rule)
		return;
	batch = oea_batch(pass);
	mtk_threads_run(pass->threads, n_rows, routing.grain, oea_base_task, &routing);
	mtk_oea_unite(&batch);
	mtk_threads_run(pass->threads, n_rows, routing.grain, oea_choose_task, &routing);
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
	const struct mtk_model_config *config = &pass->model->config;
	struct mtk_workspace *workspace = pass->workspace;
	const size_t n = config->n_hidden;

	for (size_t row = begin; row < end; row++) {
		const size_t slot = row * pass->width;

		pass->model->ops->combine(
			config->n_hidden, entries_count(workspace->ids + slot, pass->width),
			workspace->expert_out + slot * n, workspace->weights + slot,
			workspace->moe_out + row * n, workspace->hidden + row * n);
	}
}

static void run_router(struct mtk_pass *pass)
{
	const struct mtk_model_config *config = &pass->model->config;
	const struct mtk_forward_hooks *hooks = pass->hooks;
	struct mtk_workspace *w = pass->workspace;
	const uint32_t n_rows = pass->batch->n_rows;

	mtk_pass_norm(pass, pass->layer->post_attention_norm, n_rows, NULL);
	mtk_pass_linear(pass, &pass->layer->router, n_rows, w->normed, config->n_hidden,
			w->router_logits, false);
	run_route(pass);
	if (!hooks)
		return;
	if (hooks->moe_input)
		hooks->moe_input(hooks->ctx, pass->layer_number, n_rows, config->n_hidden,
				 w->normed);
	if (hooks->router_logits)
		hooks->router_logits(hooks->ctx, pass->layer_number, n_rows, config->n_experts,
				     w->router_logits);
	if (hooks->base_experts && pass->rule)
		hooks->base_experts(hooks->ctx, pass->layer_number, n_rows, config->top_k,
				    w->base_ids);
	if (hooks->select_experts)
		hooks->select_experts(hooks->ctx, pass->layer_number, n_rows, pass->width, w->ids,
				      w->weights);
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
	const struct mtk_model_config *config = &pass->model->config;
	const struct mtk_forward_hooks *hooks = pass->hooks;
	struct mtk_workspace *workspace = pass->workspace;
	const uint32_t n_rows = pass->batch->n_rows;
	struct mtk_experts experts = {
		.gate_up = pass->layer->gate_up,
		.down = pass->layer->down,
		.n_intermediate = config->n_intermediate,
		.n_hidden = config->n_hidden,
		.gemm = pass->model->ops->gemm,
		.swiglu = pass->model->ops->swiglu,
		.groups = &workspace->groups,
		.x = workspace->normed,
		.gate_up_out = workspace->gate_up_out,
		.out = workspace->expert_out,
	};

	choose_rule(pass);
	run_router(pass);
	mtk_experts_group(config->n_experts, n_rows, pass->width, workspace->ids,
			  &workspace->groups);
	mtk_experts_run_all(&experts, config->n_experts, pass->threads, workspace->active_experts);
	mtk_pass_loop(pass, n_rows, (uint64_t)config->n_hidden * pass->width, combine_task, pass);
	if (hooks && hooks->moe_output)
		hooks->moe_output(hooks->ctx, pass->layer_number, n_rows, config->n_hidden,
				  workspace->moe_out);
}
