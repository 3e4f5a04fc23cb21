/* SPDX-License-Identifier: MIT */
/*
 * Weights are eighths of small whole numbers, so that every type holds them exactly and differences
 * are of the sums alone.
 */
#include "tests/moe_ops/support/layer.h"

#include <math.h>

#include "common/f16.h"
#include "tests/moe_ops/support/draw.h"
#include "tests/moe_ops/support/suite.h"

static float *draw_weights(struct mtk_rng *rng, size_t n)
{
	float *values = take(n, sizeof(*values));

	for (size_t i = 0; i < n; i++)
		values[i] = (float)((int)draw_below(rng, 17) - 8) / 8.0f;
	return values;
}

struct mtk_matrix layer_pack(enum mtk_dtype dtype, uint32_t n_out, uint32_t n_in,
			     const float *values)
{
	const size_t n = (size_t)n_out * n_in;
	const size_t n_bytes = (mtk_matrix_bytes(dtype, n_out, n_in) + 63) / 64 * 64;
	struct mtk_matrix matrix = {dtype, n_out, n_in, aligned_alloc(64, n_bytes)};
	uint16_t *halves = take(n, sizeof(*halves));

	ck_assert_ptr_nonnull(matrix.data);
	memset(matrix.data, 0, n_bytes);
	for (size_t i = 0; i < n; i++)
		halves[i] = dtype == MTK_DTYPE_F16 ? mt_f16_from_f32(values[i])
						   : mt_bf16_from_f32(values[i]);
	mtk_matrix_pack(&matrix, 0, n_out, dtype,
			dtype == MTK_DTYPE_F32 ? (const void *)values : halves);
	free(halves);
	return matrix;
}

struct layer layer_make(struct mtk_rng *rng, struct shape s, enum mtk_dtype dtype)
{
	const size_t n_middle = 2 * (size_t)s.n_intermediate;
	struct layer layer = {
		.shape = s,
		.dtype = dtype,
		.gate_up = draw_weights(rng, s.n_experts * n_middle * s.n_hidden),
		.down = draw_weights(rng, (size_t)s.n_experts * s.n_hidden * s.n_intermediate),
		.packed_gate_up = take(s.n_experts, sizeof(*layer.packed_gate_up)),
		.packed_down = take(s.n_experts, sizeof(*layer.packed_down)),
	};

	for (uint32_t e = 0; e < s.n_experts; e++) {
		layer.packed_gate_up[e] = layer_pack(dtype, (uint32_t)n_middle, s.n_hidden,
						     layer.gate_up + e * n_middle * s.n_hidden);
		layer.packed_down[e] =
			layer_pack(dtype, s.n_hidden, s.n_intermediate,
				   layer.down + (size_t)e * s.n_hidden * s.n_intermediate);
	}
	return layer;
}

void layer_add_biases(struct mtk_rng *rng, struct layer *layer)
{
	const struct shape *s = &layer->shape;

	layer->gate_up_bias = draw_weights(rng, (size_t)s->n_experts * 2 * s->n_intermediate);
	layer->down_bias = draw_weights(rng, (size_t)s->n_experts * s->n_hidden);
}

void layer_release(struct layer *layer)
{
	for (uint32_t e = 0; e < layer->shape.n_experts; e++) {
		free(layer->packed_gate_up[e].data);
		free(layer->packed_down[e].data);
	}
	free(layer->packed_gate_up);
	free(layer->packed_down);
	free(layer->gate_up);
	free(layer->down);
	free(layer->gate_up_bias);
	free(layer->down_bias);
}

struct batch batch_make(struct mtk_rng *rng, const struct shape *s)
{
	const size_t n_slots = (size_t)s->n_rows * s->top_k;
	struct batch batch = {
		.x = take((size_t)s->n_rows * s->n_hidden, sizeof(float)),
		.weights = take(n_slots, sizeof(float)),
		.ids = take(n_slots, sizeof(int32_t)),
	};

	for (size_t i = 0; i < (size_t)s->n_rows * s->n_hidden; i++)
		batch.x[i] = draw_float(rng);
	for (size_t i = 0; i < n_slots; i++) {
		batch.ids[i] = draw_id(rng, s->n_experts, 1);
		batch.weights[i] = (float)mtk_rng_next(rng);
	}
	return batch;
}

void batch_release(struct batch *batch)
{
	free(batch->x);
	free(batch->weights);
	free(batch->ids);
}

float *layer_run(const struct mtk_cpu_ops *ops, const struct layer *layer,
		 const struct batch *batch, uint32_t n_rows, uint32_t n_threads)
{
	const struct shape *s = &layer->shape;
	const size_t n_slots = (size_t)n_rows * s->top_k;
	struct mtk_expert_groups groups = {take((size_t)s->n_experts + 1, sizeof(uint32_t)),
					   take(n_slots, sizeof(uint32_t)),
					   take(n_slots, sizeof(uint32_t))};
	struct mtk_experts experts = {
		.gate_up = layer->packed_gate_up,
		.down = layer->packed_down,
		.gate_up_bias = layer->gate_up_bias,
		.down_bias = layer->down_bias,
		.n_intermediate = s->n_intermediate,
		.n_hidden = s->n_hidden,
		.gemm = ops->gemm,
		.swiglu = ops->swiglu,
		.swiglu_clamped = ops->swiglu_clamped,
		.clamp = layer->clamped ? &layer->clamp : NULL,
		.weighting = layer->weighting,
		.weights = batch->weights,
		.groups = &groups,
		.x = batch->x,
		.weighted_x = take(n_slots * s->n_hidden, sizeof(float)),
		.gate_up_out = take(n_slots * 2 * s->n_intermediate, sizeof(float)),
		.out = take(n_slots * s->n_hidden, sizeof(float)),
	};
	uint32_t *active = take(s->n_experts, sizeof(*active));
	struct mtk_threads *threads = NULL;

	mtk_experts_group(s->n_experts, n_rows, s->top_k, batch->ids, &groups);
	if (n_threads == 0) {
		mtk_experts_run(&experts, 0, s->n_experts);
	} else {
		ck_assert_int_eq(mtk_threads_create(n_threads, &threads), 0);
		mtk_experts_run_all(&experts, s->n_experts, threads, active);
		mtk_threads_destroy(threads);
	}
	free(groups.first);
	free(groups.slots);
	free(groups.rows);
	free(experts.weighted_x);
	free(experts.gate_up_out);
	free(active);
	return experts.out;
}

static double brute_activation(const struct layer *layer, double gate, double up)
{
	const struct mtk_swiglu_clamp *c = &layer->clamp;

	if (!layer->clamped)
		return gate / (1.0 + exp(-gate)) * up;
	gate = fmin(gate, (double)c->limit);
	up = fmax(-(double)c->limit, fmin(up, (double)c->limit));
	return gate / (1.0 + exp(-(double)c->alpha * gate)) * (up + (double)c->offset);
}

static double brute_middle(const struct layer *layer, uint32_t e, uint32_t out, const float *x,
			   double weight)
{
	const struct shape *s = &layer->shape;
	const size_t row = (size_t)e * 2 * s->n_intermediate + out;
	double sum = layer->gate_up_bias ? (double)layer->gate_up_bias[row] : 0.0;

	for (uint32_t i = 0; i < s->n_hidden; i++)
		sum += weight * (double)x[i] * (double)layer->gate_up[row * s->n_hidden + i];
	return sum;
}

/* The output of one pair, in double. */
static void brute_pair(const struct layer *layer, uint32_t e, const float *x, double weight,
		       double *ret_out)
{
	const struct shape *s = &layer->shape;
	const double on_input = layer->weighting == MTK_WEIGHT_ON_INPUT ? weight : 1.0;
	const double on_output = layer->weighting == MTK_WEIGHT_ON_OUTPUT ? weight : 1.0;
	double middle[64];

	for (uint32_t i = 0; i < s->n_intermediate; i++)
		middle[i] = brute_activation(
			layer, brute_middle(layer, e, i, x, on_input),
			brute_middle(layer, e, s->n_intermediate + i, x, on_input));
	for (uint32_t o = 0; o < s->n_hidden; o++) {
		const size_t row = (size_t)e * s->n_hidden + o;
		double sum = layer->down_bias ? (double)layer->down_bias[row] : 0.0;

		for (uint32_t i = 0; i < s->n_intermediate; i++)
			sum += middle[i] * (double)layer->down[row * s->n_intermediate + i];
		ret_out[o] = sum * on_output;
	}
}

static bool is_poison(const float *values, size_t n)
{
	const unsigned char *bytes = (const unsigned char *)values;

	for (size_t i = 0; i < n * sizeof(*values); i++)
		if (bytes[i] != 0x7f)
			return false;
	return true;
}

void layer_assert_double(const struct layer *layer, const struct batch *batch, const float *out)
{
	const struct shape *s = &layer->shape;

	for (uint32_t slot = 0; slot < s->n_rows * s->top_k; slot++) {
		const float *found = out + (size_t)slot * s->n_hidden;
		const int32_t id = batch->ids[slot];
		double expected[128];

		if (id < 0 || id >= (int32_t)s->n_experts) {
			require(is_poison(found, s->n_hidden));
			continue;
		}
		brute_pair(layer, (uint32_t)id, batch->x + (size_t)(slot / s->top_k) * s->n_hidden,
			   (double)batch->weights[slot], expected);
		for (uint32_t o = 0; o < s->n_hidden; o++)
			if (!(fabs((double)found[o] - expected[o]) <=
			      2e-5 * (1.0 + fabs(expected[o])) * sqrt(s->n_hidden)))
				ck_abort_msg("slot %u, element %u: %.9g, not %.9g", slot, o,
					     (double)found[o], expected[o]);
	}
}
