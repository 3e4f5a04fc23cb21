/* SPDX-License-Identifier: MIT */
/*
 * The choice of the vector path: the largest values in order, equal ones by lower id. Mostly few
 * columns reach a threshold that enough of them do, and these are ranked by counting, without a
 * branch; otherwise one after another is taken, with each block's largest value kept beside.
 */
#ifndef MTK_ROUTE_ROUTE_TAKE_VEC_H
#define MTK_ROUTE_ROUTE_TAKE_VEC_H

#include <string.h>

#include "kernels/route/route_work_vec.h"

VEC_FN void route_block_maxima(struct route_work *work)
{
	uint32_t i = 0;

	for (; i < work->n_blocks; i++)
		work->block_max[i] = vec_max_lane(vec_load(work->values + work->blocks[i]));
	for (; i % VEC_LANES != 0; i++)
		work->block_max[i] = -INFINITY;
}

/* One after another. */
VEC_FN void route_take_each(struct route_work *work, uint32_t n_take, int32_t *ids)
{
	route_block_maxima(work);
	for (uint32_t j = 0; j < n_take; j++) {
		struct vec max = vec_load(work->block_max);
		uint32_t block = 0, equal;
		float *values;

		for (uint32_t i = VEC_LANES; i < work->n_blocks; i += VEC_LANES)
			max = vec_max(max, vec_load(work->block_max + i));
		max = vec_set1(vec_max_lane(max));
		while ((equal = vec_equal_bits(vec_load(work->block_max + block), max)) == 0)
			block += VEC_LANES;
		block += (uint32_t)__builtin_ctz(equal);
		/* Beyond the last block there is minus infinity, too: all are taken. */
		block = block < work->n_blocks ? block : 0;
		values = work->values + work->blocks[block];
		equal = (uint32_t)__builtin_ctz(vec_equal_bits(vec_load(values), max));
		ids[j] = (int32_t)(work->blocks[block] + equal);
		work->found[j] = vec_first(max);
		values[equal] = -INFINITY;
		work->block_max[block] = vec_max_lane(vec_load(values));
	}
}

/* Candidates that are ranked by counting, in two vectors. */
#define ROUTE_CANDIDATES (2 * VEC_LANES)

/*
 * A value that at least n_take columns reach and few more do: of the largest value in each lane,
 * the n_take-th. Minus infinity where there are fewer.
 */
VEC_FN float route_threshold(const struct route_work *work, uint32_t n_take)
{
	const struct vec zero = vec_set1(0.0f), one = vec_set1(1.0f), lowest = vec_set1(-INFINITY);
	struct vec lanes = lowest;
	struct vec rank = zero, rank2 = zero, reached;
	float each[VEC_LANES];

	for (uint32_t i = 0; i < work->n_blocks; i++)
		lanes = vec_max(lanes, vec_load(work->values + work->blocks[i]));
	vec_store(each, lanes);
	VEC_UNROLL for (uint32_t i = 0; i < VEC_LANES; i += 2)
	{
		rank = vec_add(rank, vec_choose_less(lanes, vec_set1(each[i]), one, zero));
		rank2 = vec_add(rank2, vec_choose_less(lanes, vec_set1(each[i + 1]), one, zero));
	}
	rank = vec_add(rank, rank2);
	reached = vec_choose_less(rank, vec_set1((float)n_take), vec_sub(zero, lanes), lowest);
	return n_take <= VEC_LANES ? -vec_max_lane(reached) : -INFINITY;
}

/* The columns at or above the threshold, ascending; 0 where there are too many. */
VEC_FN uint32_t route_candidates(const struct route_work *work, float threshold, int32_t *ids,
				 float *values)
{
	const struct vec least = vec_set1(threshold);
	uint32_t n = 0;

	for (uint32_t i = 0; i < work->n_blocks && n <= ROUTE_CANDIDATES; i++) {
		const float *part = work->values + work->blocks[i];

		n += vec_append(part, vec_less_bits(vec_load(part), least) ^ 0xffff,
				(int32_t)work->blocks[i], values + n, ids + n);
	}
	return n <= ROUTE_CANDIDATES ? n : 0;
}

/* The number of candidates above one, and of its equals before it, which have lower ids. */
VEC_FN uint32_t route_rank(uint32_t above, uint32_t equal, uint32_t i)
{
	return (uint32_t)__builtin_popcount(above) +
	       (uint32_t)__builtin_popcount(equal & ((1u << i) - 1));
}

/*
 * Put candidates of one vector into their places, minus infinity behind the last. Returns false
 * where two are equal, which this order does not tell apart.
 */
VEC_FN bool route_place_distinct(struct route_work *work, uint32_t n, const float *values,
				 const int32_t *ids, int32_t *ret_ids)
{
	const struct vec all = vec_load(values);
	uint32_t places = 0;

	VEC_UNROLL for (uint32_t i = 0; i < VEC_LANES; i++)
	{
		uint32_t rank =
			(uint32_t)__builtin_popcount(vec_less_bits(vec_set1(values[i]), all));

		places |= 1u << rank;
		ret_ids[rank] = ids[i];
		work->found[rank] = values[i];
	}
	/* One bit a candidate, and one for all that lie behind. */
	return (uint32_t)__builtin_popcount(places) == (n < VEC_LANES ? n + 1 : n);
}

VEC_FN void route_place(struct route_work *work, uint32_t n, const float *values,
			const int32_t *ids, int32_t *ret_ids)
{
	const struct vec low = vec_load(values), high = vec_load(values + VEC_LANES);

	for (uint32_t i = 0; i < n; i++) {
		const struct vec value = vec_set1(values[i]);
		uint32_t rank = route_rank(
			vec_less_bits(value, low) | vec_less_bits(value, high) << 16,
			vec_equal_bits(value, low) | vec_equal_bits(value, high) << 16, i);

		ret_ids[rank] = ids[i];
		work->found[rank] = values[i];
	}
}

/*
 * All n_take at once, by the ranks of the candidates. Returns false where candidates are too few
 * or too many.
 */
VEC_FN bool route_take_ranked(struct route_work *work, uint32_t n_take, int32_t *ret_ids)
{
	const float threshold = route_threshold(work, n_take);
	const struct vec lowest = vec_set1(-INFINITY);
	float values[ROUTE_CANDIDATES + VEC_LANES];
	int32_t ids[ROUTE_CANDIDATES + VEC_LANES];
	uint32_t n;

	if (threshold == -INFINITY)
		return false;
	vec_store(values + VEC_LANES, lowest);
	n = route_candidates(work, threshold, ids, values);
	/* There is room for as many lanes behind the last candidate. */
	vec_store(values + n, lowest);
	if (n > VEC_LANES || !route_place_distinct(work, n, values, ids, ret_ids))
		route_place(work, n, values, ids, ret_ids);
	return n != 0;
}

/* Take top_k experts and look at the best one left. Returns whether the order is certain. */
VEC_FN bool route_take(struct route_work *work, struct mtk_route_choice *choice)
{
	const uint32_t top_k = work->config->top_k;
	const uint32_t n_take = top_k < work->n ? top_k + 1 : top_k;
	const float error = route_error(work);
	int32_t ids[MTK_ROUTE_MAX_TOP_K + 1];

	if (!route_take_ranked(work, n_take, ids))
		route_take_each(work, n_take, ids);
	for (uint32_t j = 1; j < n_take; j++)
		if (!route_is_certain(work, work->found[0], work->found[j - 1], work->found[j],
				      error))
			return false;
	if (n_take > top_k && work->found[top_k] == work->found[top_k - 1])
		choice->flags |= MTK_ROUTE_FLAG_TIE;
	memcpy(choice->ids, ids, top_k * sizeof(*ids));
	return true;
}

#endif
