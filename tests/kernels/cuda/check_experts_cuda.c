/* SPDX-License-Identifier: MIT */
/*
 * The router's matrix product and the expert MLP on a GPU against their definitions on the CPU, in
 * bf16 and fp16: odd sizes, one row and many, each block size, every weighting, biases, clamps,
 * experts without rows and pairs without an expert. The middle of the MLP is rounded to 16 bits on
 * the GPU alone, which the tolerance allows for; padding slots must not be written. With
 * MOETRACE_TEST_SMALL set the wide products are left out.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <moetrace/status.h>

#include "kernels/align/align_cuda.h"
#include "kernels/cuda/device.h"
#include "kernels/experts/experts_cuda.h"
#include "kernels/gemm/router_cuda.h"
#include "tests/kernels/cuda/support/gpu.h"
#include "tests/kernels/cuda/support/values.h"

/* What gpu_memory() fills floats with. */
#define UNTOUCHED 0xa5a5a5a5u

/* 16-bit floats, and what they are worth. */
struct halves {
	uint16_t *bits;
	float *values;
};

static struct halves random_halves(struct random *random, size_t n, enum mtk_dtype dtype,
				   float scale)
{
	struct halves h = {gpu_host(n * sizeof(*h.bits)), gpu_host(n * sizeof(*h.values))};

	for (size_t i = 0; i < n; i++) {
		const float value = scale * random_unit(random);
		uint32_t bits;

		memcpy(&bits, &value, sizeof(bits));
		/* An fp16 below 1: the exponent moved by 112, ten bits of fraction. */
		h.bits[i] = dtype == MTK_DTYPE_BF16
				    ? (uint16_t)(bits >> 16)
				    : (uint16_t)((bits >> 16 & 0x8000) |
						 (fabsf(value) < 0x1p-14f
							  ? 0
							  : ((bits & 0x7fffffff) >> 13) - 0x1c000));
	}
	mtk_widen(dtype, h.bits, n, h.values);
	return h;
}

static void release(struct halves h)
{
	free(h.bits);
	free(h.values);
}

/* ---- the router ---- */

static void check_router_of(struct random *random, enum mtk_dtype dtype, uint32_t n_rows,
			    uint32_t n_in, uint32_t n_out)
{
	const struct halves x = random_halves(random, (size_t)n_rows * n_in, dtype, 1.0f);
	const struct halves w = random_halves(random, (size_t)n_out * n_in, dtype, 1.0f);
	const size_t n = (size_t)n_rows * n_out;
	float *got = gpu_host(n * sizeof(*got));
	const struct mtk_router_cuda router = {
		.dtype = dtype,
		.n_rows = n_rows,
		.n_in = n_in,
		.n_out = n_out,
		.x = gpu_copy_of(x.bits, (size_t)n_rows * n_in * 2),
		.w = gpu_copy_of(w.bits, (size_t)n_out * n_in * 2),
		.y = gpu_memory(n * sizeof(float)),
	};
	struct mtk_error error;

	gpu_must(mtk_router_cuda(&router, gpu_stream(), &error), &error, "router");
	gpu_read(got, router.y, n * sizeof(*got));
	/* Every element of few, a sample of many. */
	for (size_t i = 0; i < n; i += 1 + n / 4001) {
		const float *a = x.values + i / n_out * n_in, *b = w.values + i % n_out * n_in;
		double want = 0.0;

		for (uint32_t k = 0; k < n_in; k++)
			want += (double)a[k] * (double)b[k];
		gpu_check(fabs((double)got[i] - want) <= 2e-6 * sqrt(n_in) * 4.0,
			  "%u x %u x %u: y[%zu] is %.9g, not %.9g", n_rows, n_in, n_out, i,
			  (double)got[i], want);
	}
	free(got);
	release(x);
	release(w);
	gpu_free_all();
}

static void check_router(struct random *random)
{
	static const uint32_t sizes[][3] = {{1, 2048, 128},  {7, 7168, 256}, {16, 64, 60},
					    {17, 1000, 384}, {33, 8, 7},     {64, 4096, 896},
					    {65, 2048, 128}, {129, 72, 130}, {1031, 520, 257},
					    {2049, 520, 257}};

	for (size_t i = 0; i < 2 * sizeof(sizes) / sizeof(sizes[0]); i++) {
		if (gpu_is_small() && (uint64_t)sizes[i / 2][1] * sizes[i / 2][2] > 150000)
			continue;
		check_router_of(random, i % 2 ? MTK_DTYPE_F16 : MTK_DTYPE_BF16, sizes[i / 2][0],
				sizes[i / 2][1], sizes[i / 2][2]);
	}
}

/* ---- the experts ---- */

struct shape {
	uint32_t n_experts;
	uint32_t top_k;
	uint32_t n_hidden;
	uint32_t n_intermediate;
	uint32_t n_rows;
	uint32_t block_rows;
	enum mtk_dtype dtype;
	enum mtk_expert_weighting weighting;
	bool has_biases;
	bool is_clamped;
};

struct layer {
	struct halves gate_up;
	struct halves down;
	struct halves x;
	float *gate_up_bias;
	float *down_bias;
	float *weights;
	int32_t *ids;
};

static struct layer make_layer(struct random *random, const struct shape *s)
{
	const size_t n_weights = (size_t)s->n_experts * s->n_hidden * s->n_intermediate;
	const size_t n_pairs = (size_t)s->n_rows * s->top_k;
	struct layer layer = {
		.gate_up = random_halves(random, 2 * n_weights, s->dtype, 0.2f),
		.down = random_halves(random, n_weights, s->dtype, 0.2f),
		.x = random_halves(random, (size_t)s->n_rows * s->n_hidden, s->dtype, 0.9f),
		.gate_up_bias = values_random(random, (size_t)s->n_experts * 2 * s->n_intermediate),
		.down_bias = values_random(random, (size_t)s->n_experts * s->n_hidden),
		.weights = values_random(random, n_pairs),
		.ids = gpu_host(n_pairs * sizeof(int32_t)),
	};

	/* Some experts get nothing, one gets most, some pairs have none. */
	for (size_t i = 0; i < n_pairs; i++)
		layer.ids[i] = random_below(random, 9) == 0 ? -1
			       : random_below(random, 3) == 0
				       ? 0
				       : (int32_t)random_below(random, (s->n_experts + 1) / 2);
	return layer;
}

static void release_layer(struct layer *layer)
{
	release(layer->gate_up);
	release(layer->down);
	release(layer->x);
	free(layer->gate_up_bias);
	free(layer->down_bias);
	free(layer->weights);
	free(layer->ids);
	gpu_free_all();
}

static struct mtk_matrix *pack_all(const struct shape *s, const uint16_t *bits, uint32_t n_out,
				   uint32_t n_in)
{
	struct mtk_matrix *matrices = gpu_host(s->n_experts * sizeof(*matrices));

	for (uint32_t e = 0; e < s->n_experts; e++) {
		const size_t n_bytes = mtk_matrix_bytes(s->dtype, n_out, n_in);

		matrices[e] = (struct mtk_matrix){s->dtype, n_out, n_in,
						  aligned_alloc(64, (n_bytes + 63) / 64 * 64)};
		gpu_check(matrices[e].data != NULL, "out of memory");
		mtk_matrix_pack(&matrices[e], 0, n_out, s->dtype, bits + (size_t)e * n_out * n_in);
	}
	return matrices;
}

static void free_all(const struct shape *s, struct mtk_matrix *matrices)
{
	for (uint32_t e = 0; e < s->n_experts; e++)
		free(matrices[e].data);
	free(matrices);
}

static const struct mtk_swiglu_clamp clamps[2] = {{INFINITY, 1.0f, 0.0f}, {0.7f, 1.7f, 1.0f}};

/* out by pair, as the definition has it; those of pairs without an expert stay as they are. */
static float *define(const struct shape *s, const struct layer *layer)
{
	const size_t n_pairs = (size_t)s->n_rows * s->top_k;
	struct mtk_expert_groups groups = {gpu_host((s->n_experts + 1) * sizeof(uint32_t)),
					   gpu_host(n_pairs * sizeof(uint32_t)),
					   gpu_host(n_pairs * sizeof(uint32_t))};
	struct mtk_matrix *gate_up =
		pack_all(s, layer->gate_up.bits, 2 * s->n_intermediate, s->n_hidden);
	struct mtk_matrix *down = pack_all(s, layer->down.bits, s->n_hidden, s->n_intermediate);
	struct mtk_experts experts = {
		.gate_up = gate_up,
		.down = down,
		.gate_up_bias = s->has_biases ? layer->gate_up_bias : NULL,
		.down_bias = s->has_biases ? layer->down_bias : NULL,
		.n_intermediate = s->n_intermediate,
		.n_hidden = s->n_hidden,
		.gemm = mtk_gemm_plain,
		.swiglu = mtk_swiglu_plain,
		.swiglu_clamped = mtk_swiglu_clamped_plain,
		.clamp = s->is_clamped ? &clamps[1] : NULL,
		.weighting = s->weighting,
		.weights = layer->weights,
		.groups = &groups,
		.x = layer->x.values,
		.weighted_x = gpu_host(n_pairs * s->n_hidden * sizeof(float)),
		.gate_up_out = gpu_host(n_pairs * 2 * s->n_intermediate * sizeof(float)),
		.out = gpu_host(n_pairs * s->n_hidden * sizeof(float)),
	};

	mtk_experts_group(s->n_experts, s->n_rows, s->top_k, layer->ids, &groups);
	mtk_experts_run(&experts, 0, s->n_experts);
	free_all(s, gate_up);
	free_all(s, down);
	free(experts.weighted_x);
	free(experts.gate_up_out);
	free(groups.first);
	free(groups.slots);
	free(groups.rows);
	return experts.out;
}

static void compare(const struct shape *s, const float *want, const float *got,
		    const int64_t *pairs, int64_t n_slots)
{
	const double tolerance = s->dtype == MTK_DTYPE_BF16 ? 0.02 : 0.004;

	for (int64_t slot = 0; slot < n_slots; slot++) {
		const float *row = got + (size_t)slot * s->n_hidden;
		const float *wanted = want + (size_t)pairs[slot] * s->n_hidden;
		double square = 0.0;

		for (uint32_t i = 0; i < s->n_hidden; i++) {
			uint32_t bits;

			memcpy(&bits, &row[i], sizeof(bits));
			if (pairs[slot] >= (int64_t)s->n_rows * s->top_k)
				gpu_check(bits == UNTOUCHED, "padding slot %lld was written",
					  (long long)slot);
			else
				square += (double)wanted[i] * (double)wanted[i];
		}
		if (pairs[slot] >= (int64_t)s->n_rows * s->top_k)
			continue;
		for (uint32_t i = 0; i < s->n_hidden; i++)
			gpu_check(fabs((double)row[i] - (double)wanted[i]) <=
					  tolerance * sqrt(square / s->n_hidden) + 1e-5,
				  "experts %u rows %u block %u dtype %d weighting %d: slot %lld "
				  "[%u] is %.9g, not %.9g",
				  s->n_experts, s->n_rows, s->block_rows, (int)s->dtype,
				  (int)s->weighting, (long long)slot, i, (double)row[i],
				  (double)wanted[i]);
	}
}

static void check_shape(struct random *random, const struct shape *s)
{
	const size_t n_weights = (size_t)s->n_experts * s->n_hidden * s->n_intermediate;
	const struct mtk_align_settings settings = {
		.n_experts = s->n_experts, .top_k = s->top_k, .block_rows = s->block_rows};
	struct layer layer = make_layer(random, s);
	float *want = define(s, &layer), *got;
	struct mtk_align_sizes sizes;
	struct mtk_align_cuda_result aligned;
	struct mtk_error error;
	int64_t *pairs;

	gpu_must(mtk_align_sizes(&settings, s->n_rows, &error, &sizes), &error, "sizes");
	aligned = (struct mtk_align_cuda_result){
		.sorted_pairs = gpu_memory((size_t)sizes.capacity * sizeof(int64_t)),
		.expert_ids = gpu_memory((size_t)sizes.n_blocks * sizeof(int32_t)),
		.first_slots = gpu_memory((s->n_experts + 1) * sizeof(int64_t)),
		.pair_slots = gpu_memory((size_t)sizes.n_pairs * sizeof(int64_t)),
		.n_padded = gpu_memory(sizeof(int64_t)),
		.n_dropped = gpu_memory(sizeof(int64_t)),
	};
	gpu_must(mtk_align_cuda(&settings, &sizes, NULL,
				gpu_copy_of(layer.ids, (size_t)sizes.n_pairs * sizeof(int32_t)),
				gpu_memory(4 * mtk_align_cuda_scratch_elements(&settings, &sizes)),
				&aligned, gpu_stream(), &error),
		 &error, "align");
	const struct mtk_experts_cuda experts = {
		.dtype = s->dtype,
		.n_hidden = s->n_hidden,
		.n_intermediate = s->n_intermediate,
		.top_k = s->top_k,
		.gate_up = gpu_copy_of(layer.gate_up.bits, 4 * n_weights),
		.down = gpu_copy_of(layer.down.bits, 2 * n_weights),
		.gate_up_bias = !s->has_biases
					? NULL
					: gpu_copy_of(layer.gate_up_bias,
						      (size_t)s->n_experts * 8 * s->n_intermediate),
		.down_bias = !s->has_biases ? NULL
					    : gpu_copy_of(layer.down_bias,
							  (size_t)s->n_experts * 4 * s->n_hidden),
		.clamp = clamps[s->is_clamped],
		.weighting = s->weighting,
		.block_rows = s->block_rows,
		.n_pairs = sizes.n_pairs,
		.n_blocks = sizes.n_blocks,
		.sorted_pairs = aligned.sorted_pairs,
		.expert_ids = aligned.expert_ids,
		.x = gpu_copy_of(layer.x.bits, (size_t)s->n_rows * s->n_hidden * 2),
		.weights = gpu_copy_of(layer.weights, (size_t)sizes.n_pairs * sizeof(float)),
		.middle = gpu_memory((size_t)sizes.capacity * s->n_intermediate * 2),
		.out = gpu_memory((size_t)sizes.capacity * s->n_hidden * sizeof(float)),
	};

	gpu_must(mtk_experts_cuda(&experts, gpu_stream(), &error), &error, "experts");
	got = gpu_host((size_t)sizes.capacity * s->n_hidden * sizeof(*got));
	pairs = gpu_host((size_t)sizes.capacity * sizeof(*pairs));
	gpu_read(got, experts.out, (size_t)sizes.capacity * s->n_hidden * sizeof(*got));
	gpu_read(pairs, aligned.sorted_pairs, (size_t)sizes.capacity * sizeof(*pairs));
	compare(s, want, got, pairs, sizes.capacity);
	free(want);
	free(got);
	free(pairs);
	release_layer(&layer);
}

static void check_experts(struct random *random)
{
	static const uint32_t blocks[] = {8, 16, 32, 64, 128};
	static const uint32_t rows[] = {1, 2, 13, 31, 32, 33, 37, 150};

	for (uint32_t i = 0; i < 40; i++) {
		const struct shape shape = {
			.n_experts = i % 7 == 6 ? 1 : 5 + i % 5,
			.top_k = 1 + i % 4,
			.n_hidden = i % 3 ? 128 + 8 * (i % 5) : 264,
			.n_intermediate = i % 2 ? 96 : 72 + 8 * (i % 3),
			.n_rows = rows[i / 5],
			.block_rows = blocks[i % 5],
			.dtype = i % 2 ? MTK_DTYPE_F16 : MTK_DTYPE_BF16,
			.weighting = (enum mtk_expert_weighting)(i % 3),
			.has_biases = i % 4 == 1,
			.is_clamped = i % 4 > 1,
		};

		check_shape(random, &shape);
	}
}

static void check_refusals(void)
{
	struct mtk_router_cuda router = {
		.dtype = MTK_DTYPE_F32, .n_rows = 1, .n_in = 8, .n_out = 1};
	struct mtk_experts_cuda experts = {.dtype = MTK_DTYPE_BF16,
					   .n_hidden = 12,
					   .n_intermediate = 8,
					   .top_k = 1,
					   .block_rows = 16};
	struct mtk_error error;

	gpu_check(mtk_router_cuda(&router, gpu_stream(), &error) == MOETRACE_E_INVALID &&
			  strstr(error.text, "dtype"),
		  "a router of fp32");
	router.dtype = MTK_DTYPE_BF16;
	router.n_in = 12;
	gpu_check(mtk_router_cuda(&router, gpu_stream(), &error) == MOETRACE_E_INVALID &&
			  strstr(error.text, "n_in"),
		  "a router of 12 inputs");
	gpu_check(mtk_experts_cuda(&experts, gpu_stream(), &error) == MOETRACE_E_INVALID &&
			  strstr(error.text, "n_hidden"),
		  "experts of 12 inputs");
	experts.n_hidden = 16;
	experts.block_rows = 24;
	gpu_check(mtk_experts_cuda(&experts, gpu_stream(), &error) == MOETRACE_E_INVALID &&
			  strstr(error.text, "block_rows"),
		  "blocks of 24 rows");
}

int main(void)
{
	struct random random = {8};

	gpu_open_or_skip();
	check_refusals();
	check_router(&random);
	check_experts(&random);
	printf("router and experts are within tolerance of their definitions\n");
	return 0;
}
