/* SPDX-License-Identifier: MIT */
/*
 * The scratch memory of forward passes: every buffer is sized for the largest batch at creation,
 * so that a pass allocates nothing.
 */
#include <stdlib.h>

#include <moetrace/status.h>

#include "kernels/engine/model_internal.h"

struct buffer {
	void **place;
	size_t n_rows;
	size_t row_bytes;
};

static uint32_t max_u32(uint32_t a, uint32_t b)
{
	return a > b ? a : b;
}

/* Count a buffer; take it, too, where there is a place for it and it has a size. */
static int take_buffer(struct mtk_workspace *workspace, const struct buffer *buffer, bool is_plan)
{
	size_t bytes;

	if (__builtin_mul_overflow(buffer->n_rows, buffer->row_bytes, &bytes) ||
	    bytes > PTRDIFF_MAX - 64 - workspace->bytes)
		return MOETRACE_E_INVALID;
	bytes = (bytes + 63) / 64 * 64;
	workspace->bytes += bytes;
	if (is_plan || bytes == 0)
		return MOETRACE_OK;
	*buffer->place = aligned_alloc(64, bytes);
	return *buffer->place ? MOETRACE_OK : MOETRACE_E_NOMEM;
}

static int take_buffers(struct mtk_workspace *w, const struct mtk_model *model, bool is_plan)
{
	const struct mtk_model_config *c = &model->config;
	const struct mtk_moe *moe = &model->moe;
	const size_t n_rows = w->n_rows_max;
	const size_t n_slots = n_rows * w->n_width_max;
	const size_t width = sizeof(float);
	const size_t n_pieces = n_rows < MTK_ROUTE_PIECES ? n_rows : MTK_ROUTE_PIECES;
	const size_t n_scratch = mtk_route_scratch_floats(moe->n_columns);
	const size_t n_weighted = moe->weighting == MTK_WEIGHT_ON_INPUT ? n_slots : 0;
	const size_t n_pairs = moe->combines_pairs ? n_slots : 0;
	const struct buffer buffers[] = {
		{(void **)&w->hidden, n_rows, c->n_hidden * width},
		{(void **)&w->normed, n_rows, c->n_hidden * width},
		{(void **)&w->qkv, n_rows, mtk_model_qkv_width(c) * width},
		{(void **)&w->attention, n_rows, (size_t)c->n_heads * c->head_dim * width},
		{(void **)&w->router_logits, n_rows, moe->n_columns * width},
		{(void **)&w->route_scratch, n_pieces, n_scratch * width},
		{(void **)&w->weights, n_slots, width},
		{(void **)&w->ids, n_slots, sizeof(*w->ids)},
		{(void **)&w->given_ids, n_slots, sizeof(*w->given_ids)},
		{(void **)&w->margins, n_rows, sizeof(*w->margins)},
		{(void **)&w->row_flags, n_rows, sizeof(*w->row_flags)},
		{(void **)&w->row_numbers, n_rows, sizeof(*w->row_numbers)},
		{(void **)&w->latent, moe->is_latent ? n_rows : 0, moe->n_in * width},
		{(void **)&w->gate_up_out, n_slots, moe->n_gate_up * width},
		{(void **)&w->weighted_x, n_weighted, moe->n_in * width},
		{(void **)&w->expert_out, n_slots, moe->n_in * width},
		{(void **)&w->pair_slots, n_pairs, sizeof(*w->pair_slots)},
		{(void **)&w->moe_out, n_rows, moe->n_in * width},
		{(void **)&w->shared_out, n_rows, moe->n_shared_gate_up * width},
		{(void **)&w->shared_gates, moe->n_shared > 0 ? n_rows : 0, width},
		{(void **)&w->wanted_rows, n_rows, sizeof(*w->wanted_rows)},
		{(void **)&w->groups.first, (size_t)moe->n_experts + 1, sizeof(*w->groups.first)},
		{(void **)&w->groups.slots, n_slots, sizeof(*w->groups.slots)},
		{(void **)&w->groups.rows, n_slots, sizeof(*w->groups.rows)},
		{(void **)&w->active_experts, moe->n_experts, sizeof(*w->active_experts)},
	};

	for (size_t i = 0; i < sizeof(buffers) / sizeof(buffers[0]); i++) {
		int status = take_buffer(w, &buffers[i], is_plan);

		if (status)
			return status;
	}
	for (uint32_t row = 0; !is_plan && row < n_rows; row++)
		w->row_numbers[row] = (int32_t)row;
	return MOETRACE_OK;
}

/* Resolve the rule for a layer; k0 stays 0 where the layer is left alone. */
static int resolve_layer(const struct mtk_oea *oea, const struct mtk_layer *layer,
			 struct mtk_oea *ret_rule, struct mtk_error *error)
{
	*ret_rule = (struct mtk_oea){0};
	return layer->is_hash ? MOETRACE_OK
			      : mtk_oea_resolve(oea, &layer->route, ret_rule, error);
}

int mtk_model_oea_check(const struct mtk_model *model, const struct mtk_oea *oea,
			struct mtk_error *error)
{
	struct mtk_oea rule;
	int status = MOETRACE_OK;

	for (uint32_t i = 0; i < model->config.n_layers && status == MOETRACE_OK; i++)
		status = resolve_layer(oea, &model->layers[i], &rule, error);
	return status;
}

/* The rule of each layer, and how wide rows become. */
static int resolve_rules(struct mtk_workspace *w, const struct mtk_model *model,
			 const struct mtk_oea *oea)
{
	int status = MOETRACE_OK;

	for (uint32_t i = 0; i < model->config.n_layers && status == MOETRACE_OK; i++) {
		const struct mtk_layer *layer = &model->layers[i];
		struct mtk_oea rule;

		status = resolve_layer(oea, layer, &rule, NULL);
		w->n_width_max = max_u32(w->n_width_max, mtk_oea_width(&rule, &layer->route));
		if (w->rules)
			w->rules[i] = rule;
	}
	return status;
}

static int take_rules(struct mtk_workspace *w, const struct mtk_model *model,
		      const struct mtk_oea *oea, bool is_plan)
{
	const size_t n_rows = w->n_rows_max;
	const size_t n_entries = n_rows * model->moe.width;
	const struct buffer buffers[] = {
		{(void **)&w->rules, model->config.n_layers, sizeof(*w->rules)},
		{(void **)&w->base_ids, n_entries, sizeof(*w->base_ids)},
		{(void **)&w->base_weights, n_entries, sizeof(*w->base_weights)},
		{(void **)&w->n_base, n_rows, sizeof(*w->n_base)},
		{(void **)&w->is_loaded, model->moe.n_columns, sizeof(*w->is_loaded)},
	};
	int status = MOETRACE_OK;

	for (size_t i = 0; i < sizeof(buffers) / sizeof(buffers[0]) && status == MOETRACE_OK; i++)
		status = take_buffer(w, &buffers[i], is_plan);
	return status == MOETRACE_OK ? resolve_rules(w, model, oea) : status;
}

/* All of it, or its size alone. */
static int take_all(struct mtk_workspace *w, const struct mtk_model *model,
		    const struct mtk_oea *oea, bool is_plan)
{
	int status = MOETRACE_OK;

	w->n_width_max = model->moe.width;
	if (oea)
		status = take_rules(w, model, oea, is_plan);
	return status == MOETRACE_OK ? take_buffers(w, model, is_plan) : status;
}

size_t mtk_workspace_size(const struct mtk_model *model, uint32_t n_rows_max,
			  const struct mtk_oea *oea)
{
	struct mtk_workspace workspace = {.n_rows_max = n_rows_max};

	if (n_rows_max == 0 || n_rows_max > MTK_MAX_ROWS || take_all(&workspace, model, oea, true))
		return 0;
	return workspace.bytes;
}

int mtk_workspace_create_oea(const struct mtk_model *model, uint32_t n_rows_max,
			     const struct mtk_oea *oea, struct mtk_workspace **ret_workspace)
{
	struct mtk_workspace *workspace;
	int status;

	if (n_rows_max == 0 || n_rows_max > MTK_MAX_ROWS)
		return MOETRACE_E_INVALID;
	workspace = calloc(1, sizeof(*workspace));
	if (!workspace)
		return MOETRACE_E_NOMEM;
	workspace->n_rows_max = n_rows_max;
	status = take_all(workspace, model, oea, false);
	if (status) {
		mtk_workspace_destroy(workspace);
		return status;
	}
	*ret_workspace = workspace;
	return MOETRACE_OK;
}

int mtk_workspace_create(const struct mtk_model *model, uint32_t n_rows_max,
			 struct mtk_workspace **ret_workspace)
{
	return mtk_workspace_create_oea(model, n_rows_max, NULL, ret_workspace);
}

void mtk_workspace_destroy(struct mtk_workspace *workspace)
{
	if (!workspace)
		return;
	free(workspace->hidden);
	free(workspace->normed);
	free(workspace->qkv);
	free(workspace->attention);
	free(workspace->router_logits);
	free(workspace->route_scratch);
	free(workspace->weights);
	free(workspace->ids);
	free(workspace->given_ids);
	free(workspace->margins);
	free(workspace->row_flags);
	free(workspace->row_numbers);
	free(workspace->latent);
	free(workspace->gate_up_out);
	free(workspace->weighted_x);
	free(workspace->expert_out);
	free(workspace->pair_slots);
	free(workspace->moe_out);
	free(workspace->shared_out);
	free(workspace->shared_gates);
	free(workspace->wanted_rows);
	free(workspace->groups.first);
	free(workspace->groups.slots);
	free(workspace->groups.rows);
	free(workspace->active_experts);
	free(workspace->rules);
	free(workspace->base_ids);
	free(workspace->base_weights);
	free(workspace->n_base);
	free(workspace->is_loaded);
	free(workspace);
}

size_t mtk_workspace_bytes(const struct mtk_workspace *workspace)
{
	return workspace->bytes;
}
