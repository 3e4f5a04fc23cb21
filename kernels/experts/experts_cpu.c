/* SPDX-License-Identifier: MIT */
/*
 * Grouping of slots by expert (a counting sort, hence stable), the order of work within an
 * expert, and the definitions of what lies between its linear operations.
 */
#include "kernels/experts/experts.h"

#include <math.h>
#include <string.h>

/* Rows taken together: their inputs stay in cache while a group of panels passes over them. */
#define ROW_CHUNK 48

/* Panels taken together, the width that the vector paths like best. */
#define GROUP_PANELS 4

/* Multiply-adds that are worth handing to another thread. */
#define PIECE_COST 32768u

void mtk_experts_group(uint32_t n_experts, uint32_t n_rows, uint32_t top_k, const int32_t *ids,
		       struct mtk_expert_groups *groups)
{
	const uint32_t n_slots = n_rows * top_k;
	uint32_t *first = groups->first;
	uint32_t before = 0;

	memset(first, 0, ((size_t)n_experts + 1) * sizeof(*first));
	/* A negative id is too large as an unsigned number. */
	for (uint32_t slot = 0; slot < n_slots; slot++)
		if ((uint32_t)ids[slot] < n_experts)
			first[ids[slot]]++;
	for (uint32_t e = 0; e <= n_experts; e++) {
		uint32_t count = first[e];

		first[e] = before;
		before += count;
	}
	for (uint32_t slot = 0; slot < n_slots; slot++) {
		uint32_t place;

		if ((uint32_t)ids[slot] >= n_experts)
			continue;
		place = first[ids[slot]]++;
		groups->slots[place] = slot;
		groups->rows[place] = slot / top_k;
	}
	/* Each start has moved to its end, which is the next one's start. */
	memmove(first + 1, first, (size_t)n_experts * sizeof(*first));
	first[0] = 0;
}

void mtk_swiglu_plain(uint32_t n, float *gate_up)
{
	for (uint32_t i = 0; i < n; i++)
		gate_up[i] = gate_up[i] / (1.0f + expf(-gate_up[i])) * gate_up[n + i];
}

void mtk_swiglu_clamped_plain(const struct mtk_swiglu_clamp *clamp, uint32_t n, float *gate_up)
{
	const float limit = clamp->limit;

	for (uint32_t i = 0; i < n; i++) {
		float gate = gate_up[i] > limit ? limit : gate_up[i];
		float up = gate_up[n + i] > limit ? limit : gate_up[n + i];

		up = up < -limit ? -limit : up;
		gate_up[i] = gate / (1.0f + expf(-clamp->alpha * gate)) * (up + clamp->offset);
	}
}

void mtk_squared_relu(uint32_t n, float *x)
{
	for (uint32_t i = 0; i < n; i++) {
		float positive = x[i] > 0.0f ? x[i] : 0.0f;

		x[i] = positive * positive;
	}
}

static void weigh_row(const struct mtk_experts *experts, uint32_t place)
{
	const float *x = experts->x + (size_t)experts->groups->rows[place] * experts->n_hidden;
	float *to = experts->weighted_x + (size_t)place * experts->n_hidden;
	const float weight = experts->weights[experts->groups->slots[place]];

	for (uint32_t i = 0; i < experts->n_hidden; i++)
		to[i] = x[i] * weight;
}

static void activate(const struct mtk_experts *experts, uint32_t place)
{
	float *gate_up = experts->gate_up_out + (size_t)place * experts->gate_up->n_out;

	if (experts->squared_relu)
		mtk_squared_relu(experts->n_intermediate, gate_up);
	else if (experts->clamp)
		experts->swiglu_clamped(experts->clamp, experts->n_intermediate, gate_up);
	else
		experts->swiglu(experts->n_intermediate, gate_up);
}

/* The outputs of a group of panels. */
struct columns {
	uint32_t begin;
	uint32_t end;
};

static struct columns columns_of(const struct mtk_matrix *weights, uint32_t panel,
				 uint32_t panel_end)
{
	uint32_t end = panel_end * MTK_PANEL;

	return (struct columns){panel * MTK_PANEL, end < weights->n_out ? end : weights->n_out};
}

/* One linear operation over n_rows rows and a group of panels, with the expert's bias if any. */
static void run_linear(const struct mtk_experts *experts, struct mtk_gemm *linear,
		       const float *bias, uint32_t n_rows, uint32_t panel, uint32_t panel_end)
{
	const struct columns columns = columns_of(linear->weights, panel, panel_end);

	for (uint32_t r = 0; bias && r < n_rows; r++)
		memcpy(mtk_gemm_y(linear, r) + columns.begin, bias + columns.begin,
		       (columns.end - columns.begin) * sizeof(*bias));
	linear->accumulate = bias != NULL;
	experts->gemm(linear, 0, n_rows, panel, panel_end);
}

static void run_gate_up(const struct mtk_experts *experts, uint32_t expert, uint32_t place,
			uint32_t n_rows, uint32_t panel, uint32_t panel_end)
{
	const struct mtk_matrix *weights = &experts->gate_up[expert];
	const size_t n_out = weights->n_out;
	struct mtk_gemm linear = {
		.weights = weights,
		.x = experts->x,
		.x_stride = experts->n_hidden,
		.x_rows = experts->groups->rows + place,
		.y = experts->gate_up_out + place * n_out,
		.y_stride = n_out,
	};

	if (experts->weighting == MTK_WEIGHT_ON_INPUT) {
		linear.x = experts->weighted_x + (size_t)place * experts->n_hidden;
		linear.x_rows = NULL;
	}
	run_linear(experts, &linear,
		   experts->gate_up_bias ? experts->gate_up_bias + expert * n_out : NULL, n_rows,
		   panel, panel_end);
}

static void weigh_output(const struct mtk_experts *experts, const struct mtk_gemm *linear,
			 uint32_t n_rows, struct columns columns)
{
	for (uint32_t r = 0; r < n_rows; r++) {
		const float weight = experts->weights[linear->y_rows[r]];
		float *y = mtk_gemm_y(linear, r);

		for (uint32_t i = columns.begin; i < columns.end; i++)
			y[i] *= weight;
	}
}

static void run_down(const struct mtk_experts *experts, uint32_t expert, uint32_t place,
		     uint32_t n_rows, uint32_t panel, uint32_t panel_end)
{
	const struct mtk_matrix *weights = &experts->down[expert];
	const size_t middle = experts->gate_up->n_out;
	struct mtk_gemm linear = {
		.weights = weights,
		.x = experts->gate_up_out + place * middle,
		.x_stride = middle,
		.y = experts->out,
		.y_stride = experts->n_hidden,
		.y_rows = experts->groups->slots + place,
	};

	run_linear(experts, &linear,
		   experts->down_bias ? experts->down_bias + (size_t)expert * experts->n_hidden
				      : NULL,
		   n_rows, panel, panel_end);
	if (experts->weighting == MTK_WEIGHT_ON_OUTPUT)
		weigh_output(experts, &linear, n_rows, columns_of(weights, panel, panel_end));
}

typedef void (*linear_fn)(const struct mtk_experts *experts, uint32_t expert, uint32_t place,
			  uint32_t n_rows, uint32_t panel, uint32_t panel_end);

static uint32_t group_count(const struct mtk_matrix *weights)
{
	return (mtk_panel_count(weights->n_out) + GROUP_PANELS - 1) / GROUP_PANELS;
}

/* One group of panels over all rows of an expert: the weights come from memory once. */
static void run_group(const struct mtk_experts *experts, linear_fn linear,
		      const struct mtk_matrix *weights, uint32_t expert, uint32_t group)
{
	const uint32_t end = experts->groups->first[expert + 1];
	const uint32_t panel = group * GROUP_PANELS;
	const uint32_t n_panels = mtk_panel_count(weights->n_out);
	const uint32_t panel_end =
		panel + GROUP_PANELS < n_panels ? panel + GROUP_PANELS : n_panels;

	for (uint32_t place = experts->groups->first[expert]; place < end;) {
		uint32_t left = end - place;
		uint32_t n_rows = left < ROW_CHUNK ? left : ROW_CHUNK;

		linear(experts, expert, place, n_rows, panel, panel_end);
		place += n_rows;
	}
}

static void run_expert(const struct mtk_experts *experts, uint32_t expert)
{
	const struct mtk_matrix *gate_up = &experts->gate_up[expert];
	const struct mtk_matrix *down = &experts->down[expert];
	const uint32_t begin = experts->groups->first[expert];
	const uint32_t end = experts->groups->first[expert + 1];

	if (experts->weighting == MTK_WEIGHT_ON_INPUT)
		for (uint32_t place = begin; place < end; place++)
			weigh_row(experts, place);
	for (uint32_t g = 0; g < group_count(gate_up); g++)
		run_group(experts, run_gate_up, gate_up, expert, g);
	for (uint32_t place = begin; place < end; place++)
		activate(experts, place);
	for (uint32_t g = 0; g < group_count(down); g++)
		run_group(experts, run_down, down, expert, g);
}

void mtk_experts_run(const struct mtk_experts *experts, uint32_t begin, uint32_t end)
{
	for (uint32_t e = begin; e < end; e++)
		if (experts->groups->first[e] != experts->groups->first[e + 1])
			run_expert(experts, e);
}

/* A parallel loop over groups of panels of the active experts, or over places. */
struct loop {
	const struct mtk_experts *experts;
	linear_fn linear;
	const struct mtk_matrix *weights;
	const uint32_t *active;
	uint32_t n_groups;
};

static void weigh_task(void *arg, uint32_t begin, uint32_t end)
{
	const struct loop *loop = arg;

	for (uint32_t place = begin; place < end; place++)
		weigh_row(loop->experts, place);
}

static void activate_task(void *arg, uint32_t begin, uint32_t end)
{
	const struct loop *loop = arg;

	for (uint32_t place = begin; place < end; place++)
		activate(loop->experts, place);
}

static void linear_task(void *arg, uint32_t begin, uint32_t end)
{
	const struct loop *loop = arg;

	for (uint32_t i = begin; i < end; i++) {
		uint32_t expert = loop->active[i / loop->n_groups];

		run_group(loop->experts, loop->linear, &loop->weights[expert], expert,
			  i % loop->n_groups);
	}
}

/* The iterations of a piece, for iterations of about item_cost multiply-adds. */
static uint32_t grain_of(uint64_t item_cost)
{
	return (uint32_t)(PIECE_COST / (item_cost + 1)) + 1;
}

static void run_linears(struct loop *loop, struct mtk_threads *threads, linear_fn linear,
			const struct mtk_matrix *weights, uint32_t n_active, uint32_t n_places)
{
	const struct mtk_matrix *any = &weights[loop->active[0]];

	loop->linear = linear;
	loop->weights = weights;
	loop->n_groups = group_count(any);
	mtk_threads_run(
		threads, n_active * loop->n_groups,
		grain_of((uint64_t)any->n_in * GROUP_PANELS * MTK_PANEL * (n_places / n_active)),
		linear_task, loop);
}

void mtk_experts_run_all(const struct mtk_experts *experts, uint32_t n_experts,
			 struct mtk_threads *threads, uint32_t *active)
{
	const uint32_t *first = experts->groups->first;
	const uint32_t n_places = first[n_experts];
	struct loop loop = {.experts = experts, .active = active};
	uint32_t n_active = 0;

	for (uint32_t e = 0; e < n_experts; e++)
		if (first[e] != first[e + 1])
			active[n_active++] = e;
	if (n_active == 0)
		return;
	if (experts->weighting == MTK_WEIGHT_ON_INPUT)
		mtk_threads_run(threads, n_places, grain_of(experts->n_hidden), weigh_task, &loop);
	run_linears(&loop, threads, run_gate_up, experts->gate_up, n_active, n_places);
	/* An exponential costs as much as some ten multiply-adds. */
	mtk_threads_run(threads, n_places, grain_of(10 * (uint64_t)experts->n_intermediate),
			activate_task, &loop);
	run_linears(&loop, threads, run_down, experts->down, n_active, n_places);
}
