/* SPDX-License-Identifier: MIT */
/*
 * The experts of a layer within a forward pass: the router's logits, the choice, the expert MLP
 * over the slots grouped by expert, and the combination. The layer's routing setting says how it
 * routes; it was checked when the model was made, so nothing here can fail.
 */
#include "kernels/engine/forward_internal.h"

struct routing {
	struct mtk_pass *pass;
	uint32_t grain;
};

/* Pieces that run at the same time need a scratch each: a piece is known by its number. */
static void route_task(void *arg, uint32_t begin, uint32_t end)
{
	const struct routing *routing = arg;
	const struct mtk_pass *pass = routing->pass;
	const struct mtk_route_config *config = &pass->layer->route;
	struct mtk_workspace *workspace = pass->workspace;
	const struct mtk_route_batch batch = {
		.n_rows = pass->batch->n_rows,
		.n_valid_rows = pass->batch->n_rows,
		.logits = workspace->router_logits,
	};
	const struct mtk_route_result result = {
		.ids = workspace->ids,
		.weights = workspace->weights,
	};
	const size_t n_scratch = mtk_route_scratch_floats(mtk_route_columns(config));

	pass->model->ops->route(config, &batch, begin, end,
				workspace->route_scratch + begin / routing->grain * n_scratch,
				&result);
}

static void run_route(struct mtk_pass *pass)
{
	const struct mtk_route_config *config = &pass->layer->route;
	const uint32_t n_rows = pass->batch->n_rows;
	const uint64_t cost = (uint64_t)mtk_route_columns(config) * (8 + config->top_k);
	const uint32_t least = (n_rows + MTK_ROUTE_PIECES - 1) / MTK_ROUTE_PIECES;
	const uint32_t grain = mtk_pass_grain(pass, n_rows, cost);
	struct routing routing = {pass, grain < least ? least : grain};

	mtk_threads_run(pass->threads, n_rows, routing.grain, route_task, &routing);
}

static void combine_task(void *arg, uint32_t begin, uint32_t end)
{
	const struct mtk_pass *pass = arg;
	const struct mtk_model_config *config = &pass->model->config;
	struct mtk_workspace *workspace = pass->workspace;
	const size_t n = config->n_hidden;

	for (size_t row = begin; row < end; row++)
		pass->model->ops->combine(config->n_hidden, config->top_k,
					  workspace->expert_out + row * config->top_k * n,
					  workspace->weights + row * config->top_k,
					  workspace->moe_out + row * n,
					  workspace->hidden + row * n);
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
	if (hooks->select_experts)
		hooks->select_experts(hooks->ctx, pass->layer_number, n_rows, config->top_k, w->ids,
				      w->weights);
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

	run_router(pass);
	mtk_experts_group(config->n_experts, n_rows, config->top_k, workspace->ids,
			  &workspace->groups);
	mtk_experts_run_all(&experts, config->n_experts, pass->threads, workspace->active_experts);
	mtk_pass_loop(pass, n_rows, (uint64_t)config->n_hidden * config->top_k, combine_task, pass);
	if (hooks && hooks->moe_output)
		hooks->moe_output(hooks->ctx, pass->layer_number, n_rows, config->n_hidden,
				  workspace->moe_out);
}
