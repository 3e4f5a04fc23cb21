/* SPDX-License-Identifier: MIT */
/*
 * The ends of a row, the same for every implementation: its inputs, and how what was chosen is
 * weighed and written. Weights are kept in double precision until they are written.
 */
#include <math.h>
#include <string.h>

#include "kernels/route/route_impl.h"

struct mtk_route_row mtk_route_row_of(const struct mtk_route_config *config,
				      const struct mtk_route_batch *batch, uint32_t row)
{
	const size_t n = mtk_route_columns(config);
	const bool has_bias = config->bias != MTK_ROUTE_BIAS_NONE;

	return (struct mtk_route_row){
		.config = config,
		.n = (uint32_t)n,
		.logits = batch->logits + row * n,
		.bias = has_bias ? batch->bias + (config->bias_per_token ? row * n : 0) : NULL,
	};
}

/* What weights of that sum are divided by; above 0. */
static double divisor_of(const struct mtk_route_config *config, double sum)
{
	switch (config->renormalise) {
	case MTK_ROUTE_RENORMALISE_EPSILON:
		return sum + 1e-20;
	case MTK_ROUTE_RENORMALISE_IF_POSITIVE:
		return sum > 0.0 ? sum : 1.0;
	case MTK_ROUTE_RENORMALISE_CLAMP:
		return sum > config->renormalise_min ? sum : config->renormalise_min;
	default:
		return 1.0;
	}
}

void mtk_route_weigh(const struct mtk_route_config *config, double *weights)
{
	const double scale = config->scale_owner == MTK_ROUTE_SCALE_IN_ROUTER ? config->scale : 1.0;
	double sum = 0.0, divisor, factor;

	for (uint32_t j = 0; j < config->top_k; j++)
		sum += weights[j];
	divisor = divisor_of(config, sum);
	factor = scale / divisor;
	/* A sum of denormal scores has no reciprocal; the quotients are at most 1 all the same. */
	for (uint32_t j = 0; j < config->top_k; j++)
		weights[j] = isfinite(factor) ? weights[j] * factor : weights[j] / divisor * scale;
}

uint32_t mtk_route_pack(int32_t id, float weight)
{
	uint32_t bits;

	memcpy(&bits, &weight, sizeof(bits));
	/* To the nearest bf16, halves to even; weights are never NaN. */
	bits += 0x7fff + (bits >> 16 & 1);
	return (uint32_t)id << 16 | bits >> 16;
}

static int32_t written_id(const struct mtk_route_config *config, int32_t id)
{
	if (config->n_shared_slots == 0 || config->shared != MTK_ROUTE_SHARED_BLOCK || id < 0)
		return id;
	return id + (int32_t)((uint32_t)id / config->n_local_experts * config->n_shared_slots);
}

static uint32_t shared_id(const struct mtk_route_config *config, uint32_t slot)
{
	if (config->shared == MTK_ROUTE_SHARED_GLOBAL)
		return mtk_route_columns(config) + slot;
	return config->rank * (config->n_local_experts + config->n_shared_slots) +
	       config->n_local_experts + slot;
}

/* Write a row of entries to each output that is wanted. */
static void entries_write(const struct mtk_route_result *result, uint32_t row, uint32_t width,
			  const int32_t *ids, const float *weights)
{
	const size_t place = (size_t)row * width;

	if (result->ids)
		memcpy(result->ids + place, ids, width * sizeof(*ids));
	if (result->weights)
		memcpy(result->weights + place, weights, width * sizeof(*weights));
	for (uint32_t j = 0; result->packed && j < width; j++)
		result->packed[place + j] = mtk_route_pack(ids[j], weights[j]);
}

void mtk_route_write_row(const struct mtk_route_config *config,
			 const struct mtk_route_choice *choice, uint32_t row,
			 const struct mtk_route_result *result)
{
	int32_t ids[MTK_ROUTE_MAX_WIDTH];
	float weights[MTK_ROUTE_MAX_WIDTH];

	for (uint32_t j = 0; j < config->top_k; j++) {
		ids[j] = written_id(config, choice->ids[j]);
		weights[j] = (float)choice->weights[j];
	}
	for (uint32_t slot = 0; slot < config->n_shared_slots; slot++) {
		ids[config->top_k + slot] = (int32_t)shared_id(config, slot);
		weights[config->top_k + slot] = (float)config->shared_weight;
	}
	entries_write(result, row, mtk_route_width(config), ids, weights);
	if (result->flags)
		result->flags[row] = choice->flags;
	if (result->margins)
		result->margins[row] = choice->margin;
}

void mtk_route_write_empty_row(const struct mtk_route_config *config, uint32_t row, uint8_t flags,
			       const struct mtk_route_result *result)
{
	int32_t ids[MTK_ROUTE_MAX_WIDTH];
	const float weights[MTK_ROUTE_MAX_WIDTH] = {0};

	for (uint32_t j = 0; j < MTK_ROUTE_MAX_WIDTH; j++)
		ids[j] = -1;
	entries_write(result, row, mtk_route_width(config), ids, weights);
	if (result->flags)
		result->flags[row] = flags;
	if (result->margins)
		result->margins[row] = INFINITY;
}

void mtk_route_ragged(const int32_t *ids, uint32_t n_rows, uint32_t width, uint32_t n_ids,
		      int64_t *ret_first, int32_t *ret_gather, int64_t *ret_scatter)
{
	const size_t n = (size_t)n_rows * width;

	memset(ret_first, 0, ((size_t)n_ids + 1) * sizeof(*ret_first));
	for (size_t i = 0; i < n; i++)
		if (ids[i] >= 0 && (uint32_t)ids[i] < n_ids)
			ret_first[ids[i] + 1]++;
	for (size_t e = 1; e <= n_ids; e++)
		ret_first[e] += ret_first[e - 1];
	for (size_t i = (size_t)ret_first[n_ids]; i < n; i++)
		ret_gather[i] = -1;
	for (size_t i = 0; i < n; i++) {
		ret_scatter[i] = -1;
		if (ids[i] < 0 || (uint32_t)ids[i] >= n_ids)
			continue;
		/* Until the loop below, first[e] is where the next entry of e goes. */
		ret_scatter[i] = ret_first[ids[i]]++;
		ret_gather[ret_scatter[i]] = (int32_t)(i / width);
	}
	for (size_t e = n_ids; e > 0; e--)
		ret_first[e] = ret_first[e - 1];
	ret_first[0] = 0;
}
