/* SPDX-License-Identifier: MIT */
/*
 * Grouping of slots by expert (a counting sort, hence stable), the order of work within an
 * expert, and the definition of SwiGLU.
 */
#include "kernels/experts/experts.h"

#include <math.h>
#include <string.h>

/* Rows taken together, so that what gate and up gave is still in cache when down reads it. */
#define ROW_CHUNK 48

void mtk_experts_group(uint32_t n_experts, uint32_t n_rows, uint32_t top_k, const int32_t *ids,
		       struct mtk_expert_groups *groups)
{
	const uint32_t n_slots = n_rows * top_k;
	uint32_t *first = groups->first;
	uint32_t before = 0;

	memset(first, 0, ((size_t)n_experts + 1) * sizeof(*first));
	for (uint32_t slot = 0; slot < n_slots; slot++)
		first[ids[slot]]++;
	for (uint32_t e = 0; e <= n_experts; e++) {
		uint32_t count = first[e];

		first[e] = before;
		before += count;
	}
	for (uint32_t slot = 0; slot < n_slots; slot++) {
		uint32_t place = first[ids[slot]]++;

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

static void run_chunk(const struct mtk_experts *experts, uint32_t expert, uint32_t place,
		      uint32_t n_rows)
{
	const struct mtk_matrix *gate_up = &experts->gate_up[expert];
	const struct mtk_matrix *down = &experts->down[expert];
	const size_t stride = gate_up->n_out;
	float *middle = experts->gate_up_out + place * stride;
	struct mtk_gemm first = {
		.weights = gate_up,
		.x = experts->x,
		.x_stride = experts->n_hidden,
		.x_rows = experts->groups->rows + place,
		.y = middle,
		.y_stride = stride,
	};
	struct mtk_gemm second = {
		.weights = down,
		.x = middle,
		.x_stride = stride,
		.y = experts->out,
		.y_stride = experts->n_hidden,
		.y_rows = experts->groups->slots + place,
	};

	experts->gemm(&first, 0, n_rows, 0, mtk_panel_count(gate_up->n_out));
	for (uint32_t r = 0; r < n_rows; r++)
		experts->swiglu(experts->n_intermediate, middle + r * stride);
	experts->gemm(&second, 0, n_rows, 0, mtk_panel_count(down->n_out));
}

void mtk_experts_run(const struct mtk_experts *experts, uint32_t begin, uint32_t end)
{
	const uint32_t *first = experts->groups->first;

	for (uint32_t e = begin; e < end; e++) {
		for (uint32_t place = first[e]; place < first[e + 1]; place += ROW_CHUNK) {
			uint32_t left = first[e + 1] - place;

			run_chunk(experts, e, place, left < ROW_CHUNK ? left : ROW_CHUNK);
		}
	}
}
