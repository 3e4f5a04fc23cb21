/* SPDX-License-Identifier: MIT */
/*
 * The vector path of routing, in fp32. It must choose what the definition chooses in double
 * precision, so it serves a row only where its own rounding cannot have decided: where the values
 * that follow each other in the order, up to the first one left out, lie further apart than their
 * error bounds, or are compared exactly. Every other row, and each that holds a NaN or an
 * infinity, goes to the definition.
 *
 * Three ways to choose:
 *   exact     by logits as they are
 *   monotone  by a score to which nothing is added: logits have the same order, as long as they
 *             lie where distinct floats have distinct scores in double precision
 *   bounded   by values that were computed, whose error is bounded
 *
 * Values are padded with minus infinity to whole blocks of VEC_LANES.
 */
#include <float.h>
#include <math.h>
#include <string.h>

#include "kernels/route/route_score_vec.h"
#include "kernels/route/route_take_vec.h"
#include "kernels/route/route_variant.h"

/* A lane a group; lanes beyond the last group hold minus infinity. */
VEC_FN void route_group_scores(const struct route_work *work, float *ret_scores)
{
	const struct vec lowest = vec_set1(-INFINITY);
	const uint32_t first = work->n_group < VEC_LANES ? work->n_group : VEC_LANES;
	const uint32_t second = work->n_group - first;

	vec_store(ret_scores, lowest);
	for (uint32_t g = 0; g < work->config->n_groups; g++) {
		const float *values = work->values + (size_t)g * work->n_group;
		struct vec a = vec_keep_first(vec_load(values), first, lowest);
		struct vec b = lowest;
		float next;

		if (second > 0)
			b = vec_keep_first(vec_load(values + VEC_LANES), second, lowest);
		ret_scores[g] = vec_top2(a, b, &next);
		ret_scores[g] += work->n_top == 2 ? next : 0.0f;
	}
}

/* The grouped variant's choice of groups: a bit each; 0 where it is not certain. */
VEC_FN uint32_t route_keep_grouped(struct route_work *work)
{
	const uint32_t n_keep = work->config->n_keep_groups;
	const struct vec zero = vec_set1(0.0f), one = vec_set1(1.0f), lowest = vec_set1(-INFINITY);
	const struct vec keep = vec_set1((float)n_keep - 0.5f);
	const float error = (float)work->n_top * route_error(work);
	float each[VEC_LANES];
	struct vec rank = zero, scores;
	float last_kept, best_left;
	uint32_t kept;

	route_group_scores(work, each);
	scores = vec_load(each);
	for (uint32_t g = 0; g < work->config->n_groups; g++)
		rank = vec_add(rank, vec_choose_less(scores, vec_set1(each[g]), one, zero));
	kept = vec_less_bits(rank, keep);
	/* Equal scores have equal ranks: then too many groups are kept. */
	if ((uint32_t)__builtin_popcount(kept) != n_keep)
		return 0;
	last_kept = -vec_max_lane(vec_choose_less(rank, keep, vec_sub(zero, scores), lowest));
	best_left = vec_max_lane(vec_choose_less(rank, keep, lowest, scores));
	return route_is_certain(work, vec_max_lane(scores), last_kept, best_left, error) ? kept : 0;
}

/* Leave the blocks of the groups that were not kept out of the list, or their lanes. */
VEC_FN void route_drop_grouped(struct route_work *work, uint32_t kept)
{
	const uint32_t n_group_blocks = work->n_group / VEC_LANES;

	if (work->n_group % VEC_LANES != 0) {
		for (uint32_t g = 0; g < work->config->n_groups; g++)
			for (uint32_t e = 0; !(kept >> g & 1) && e < work->n_group; e++)
				work->values[(size_t)g * work->n_group + e] = -INFINITY;
		return;
	}
	work->n_blocks = 0;
	for (uint32_t g = 0; g < work->config->n_groups; g++) {
		/* Written whether kept or not: a branch would mispredict half of the time. */
		for (uint32_t i = 0; i < n_group_blocks; i++)
			work->blocks[work->n_blocks + i] = g * work->n_group + i * VEC_LANES;
		work->n_blocks += (kept >> g & 1) * n_group_blocks;
	}
}

/* The sum of the n_top largest values of a group, in any order of columns. */
VEC_FN float route_sum_largest(const struct route_work *work, const float *values)
{
	float largest[MTK_ROUTE_MAX_TOP_K];
	const uint32_t n_top = work->n_top;
	double sum = 0.0;

	for (uint32_t i = 0; i < n_top; i++)
		largest[i] = -INFINITY;
	for (uint32_t e = 0; e < work->n_group; e++) {
		float value = values[e];

		for (uint32_t i = 0; value > largest[n_top - 1] && i < n_top; i++) {
			float old = largest[i];

			if (value > old) {
				largest[i] = value;
				value = old;
			}
		}
	}
	for (uint32_t i = 0; i < n_top; i++)
		sum += largest[i];
	return (float)sum;
}

/* The general variant's choice of groups, applied. Returns whether it is certain. */
VEC_FN bool route_keep_general(struct route_work *work)
{
	const uint32_t n_groups = work->config->n_groups;
	const float error = (float)work->n_top * route_error(work);
	float scores[MTK_ROUTE_MAX_GROUPS];
	float last_kept = INFINITY, best_left = -INFINITY, largest = -INFINITY;

	for (uint32_t g = 0; g < n_groups; g++) {
		scores[g] = route_sum_largest(work, work->values + (size_t)g * work->n_group);
		largest = scores[g] > largest ? scores[g] : largest;
	}
	for (uint32_t g = 0; g < n_groups; g++) {
		uint32_t n_above = 0;

		for (uint32_t h = 0; h < n_groups; h++)
			n_above += scores[h] > scores[g] || (scores[h] == scores[g] && h < g);
		if (n_above < work->config->n_keep_groups) {
			last_kept = scores[g] < last_kept ? scores[g] : last_kept;
			continue;
		}
		best_left = scores[g] > best_left ? scores[g] : best_left;
		for (uint32_t e = 0; e < work->n_group; e++)
			work->values[(size_t)g * work->n_group + e] = -INFINITY;
	}
	return last_kept > best_left &&
	       route_is_certain(work, largest, last_kept, best_left, error);
}

VEC_FN bool route_keep_groups(struct route_work *work)
{
	uint32_t kept;

	if (!work->has_groups)
		return true;
	if (!work->is_grouped)
		return route_keep_general(work);
	kept = route_keep_grouped(work);
	if (kept == 0)
		return false;
	route_drop_grouped(work, kept);
	return true;
}

/* Scores of the chosen from their logits, where the other columns' are not needed. */
VEC_FN void route_score_chosen(const struct route_work *work, const float *logits,
			       const int32_t *ids, float *ret_scores)
{
	const uint32_t top_k = work->config->top_k;

	for (uint32_t j = 0; j < 2 * VEC_LANES; j++)
		ret_scores[j] = j < top_k ? logits[ids[j]] : 0.0f;
	for (uint32_t j = 0; j < top_k; j += VEC_LANES) {
		struct vec x = vec_load(ret_scores + j);

		vec_store(ret_scores + j, work->config->scoring == MTK_ROUTE_SIGMOID
						  ? route_sigmoid(x)
						  : route_sqrtsoftplus(x));
	}
}

VEC_FN void route_softmax_chosen(const struct route_work *work, const float *logits,
				 struct mtk_route_choice *choice)
{
	const uint32_t top_k = work->config->top_k;
	float max = -INFINITY;
	double sum = 0.0;

	for (uint32_t j = 0; j < top_k; j++)
		max = fmaxf(max, logits[choice->ids[j]]);
	for (uint32_t j = 0; j < top_k; j++) {
		float x = logits[choice->ids[j]] - max;

		choice->weights[j] = vec_first(vec_exp(vec_set1(x)));
		sum += choice->weights[j];
	}
	for (uint32_t j = 0; j < top_k; j++)
		choice->weights[j] /= sum;
}

/* Returns false where the scores are so small that fp32 has lost them. */
VEC_FN bool route_scores_chosen(const struct route_work *work, const float *logits,
				struct mtk_route_choice *choice)
{
	const struct mtk_route_config *config = work->config;
	const bool is_softmax = config->scoring == MTK_ROUTE_SOFTMAX;
	const bool has_all = work->mode == ROUTE_BOUNDED && !route_by_logit(config);
	float chosen[2 * VEC_LANES];
	double sum = 0.0;

	if (config->scoring == MTK_ROUTE_SOFTMAX_SELECTED) {
		route_softmax_chosen(work, logits, choice);
		return true;
	}
	if (!is_softmax && !has_all)
		route_score_chosen(work, logits, choice->ids, chosen);
	for (uint32_t j = 0; j < config->top_k; j++) {
		int32_t id = choice->ids[j];

		if (is_softmax)
			choice->weights[j] = (double)work->scores[id] / (double)work->sum;
		else
			choice->weights[j] = has_all ? work->scores[id] : chosen[j];
		sum += choice->weights[j];
	}
	return sum > 1e-12;
}

VEC_FN bool route_row_vec(struct route_work *work, const struct mtk_route_row *row,
			  struct mtk_route_choice *choice)
{
	choice->flags = 0;
	if (!route_score(work, row->logits))
		return false;
	route_pad(work);
	if (!route_keep_groups(work) || !route_take(work, choice) ||
	    !route_scores_chosen(work, row->logits, choice))
		return false;
	mtk_route_weigh(work->config, choice->weights);
	return true;
}

VEC_FN struct route_work route_work_make(const struct mtk_route_config *config, void *scratch)
{
	const bool has_groups =
		config->groups != MTK_ROUTE_GROUPS_NONE && config->n_keep_groups < config->n_groups;
	const uint32_t n = mtk_route_columns(config);
	const uint32_t n_padded = (n + VEC_LANES - 1) / VEC_LANES * VEC_LANES;
	struct route_work work = {
		.config = config,
		.is_grouped = mtk_route_variant_choose(config) == MTK_ROUTE_VARIANT_GROUPED,
		.has_groups = has_groups,
		.n = n,
		.n_padded = n_padded,
		.n_group = has_groups ? n / config->n_groups : 0,
		.n_top = config->groups == MTK_ROUTE_GROUPS_MAX	   ? 1
			 : config->groups == MTK_ROUTE_GROUPS_TOP2 ? 2
								   : config->group_top_n,
		.definition = scratch,
		.sum = 1.0f,
	};
	const uint32_t n_max_blocks = (n_padded / VEC_LANES + 15) / 16 * 16;
	bool has_sums = (has_groups && work.n_top > 1) || config->bias != MTK_ROUTE_BIAS_NONE;

	work.mode = has_sums		     ? ROUTE_BOUNDED
		    : route_by_logit(config) ? ROUTE_EXACT
					     : ROUTE_MONOTONE;
	work.scores = (float *)scratch + 4 * (size_t)n_padded;
	work.values = work.scores + n_padded + 32;
	work.bias = work.values + n_padded + 32;
	work.block_max = work.bias + n_padded + 32;
	work.blocks = (uint32_t *)(work.block_max + n_max_blocks);
	work.n_blocks = n_padded / VEC_LANES;
	for (uint32_t i = 0; i < work.n_blocks; i++)
		work.blocks[i] = i * VEC_LANES;
	/* Where no bias is used, 0 is added. */
	for (uint32_t e = 0; e < n_padded; e += VEC_LANES)
		vec_store(work.bias + e, vec_set1(0.0f));
	return work;
}

static VEC_TARGET void route_vec(const struct mtk_route_config *config,
				 const struct mtk_route_batch *batch, uint32_t begin, uint32_t end,
				 void *scratch, const struct mtk_route_result *result)
{
	const uint32_t n_valid = end < batch->n_valid_rows ? end : batch->n_valid_rows;
	struct route_work work;
	struct mtk_route_choice choice;
	bool is_usable = true;

	if (mtk_route_variant_choose(config) == MTK_ROUTE_VARIANT_PLAIN) {
		mtk_route_plain(config, batch, begin, end, scratch, result);
		return;
	}
	work = route_work_make(config, scratch);
	if (config->bias != MTK_ROUTE_BIAS_NONE && !config->bias_per_token && begin < n_valid)
		is_usable = route_center(&work, batch->bias);
	for (; begin < n_valid; begin++) {
		struct mtk_route_row row = mtk_route_row_of(config, batch, begin);

		if (config->bias_per_token)
			is_usable = route_center(&work, row.bias);
		if (!is_usable || !route_row_vec(&work, &row, &choice))
			mtk_route_define_row(&row, work.definition, &choice);
		else if (result->margins)
			choice.margin = mtk_route_margin(&row, choice.ids, work.definition);
		mtk_route_write_row(config, &choice, begin, result);
	}
	for (; begin < end; begin++)
		mtk_route_write_empty_row(config, begin, 0, result);
}
