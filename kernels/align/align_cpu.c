/* SPDX-License-Identifier: MIT */
/* The settings and sizes of alignment, and its definition: one scan of the pairs an expert. */
#include "kernels/align/align_impl.h"

#include <moetrace/status.h>

int mtk_align_check(const struct mtk_align_settings *s, struct mtk_error *error)
{
	if (s->n_experts > INT32_MAX)
		return mtk_error_set(error, MOETRACE_E_INVALID, "align: n_experts: %u is above %d",
				     s->n_experts, INT32_MAX);
	if (s->top_k == 0)
		return mtk_error_set(error, MOETRACE_E_INVALID, "align: top_k: 0 is below 1");
	if (s->block_rows == 0)
		return mtk_error_set(error, MOETRACE_E_INVALID, "align: block_rows: 0 is below 1");
	if (!s->expert_map && s->n_ids != 0)
		return mtk_error_set(error, MOETRACE_E_INVALID,
				     "align: n_ids: %u entries, but expert_map is missing",
				     s->n_ids);
	if (s->n_ids > INT32_MAX)
		return mtk_error_set(error, MOETRACE_E_INVALID, "align: n_ids: %u is above %d",
				     s->n_ids, INT32_MAX);
	for (uint32_t i = 0; i < s->n_ids; i++)
		if (s->expert_map[i] < -1 || s->expert_map[i] >= (int64_t)s->n_experts)
			return mtk_error_set(error, MOETRACE_E_INVALID,
					     "align: expert_map[%u]: %d is not in -1 .. %lld", i,
					     s->expert_map[i], (long long)s->n_experts - 1);
	return MOETRACE_OK;
}

/*
 * A run of c pairs needs at most c + block_rows - 1 slots, and no more runs exist than pairs or
 * runs that a pair can be in.
 */
int mtk_align_sizes(const struct mtk_align_settings *settings, uint64_t n_rows,
		    struct mtk_error *error, struct mtk_align_sizes *ret_sizes)
{
	const int64_t block = settings->block_rows;
	int64_t n_runs = (int64_t)settings->n_experts + settings->invalid_first;
	int64_t n_pairs, padding, capacity, bytes;

	if (__builtin_mul_overflow(n_rows, settings->top_k, &n_pairs))
		goto err_rows;
	if (n_runs > n_pairs)
		n_runs = n_pairs;
	if (__builtin_mul_overflow(n_runs, block - 1, &padding) ||
	    __builtin_add_overflow(n_pairs, padding, &capacity) ||
	    __builtin_add_overflow(capacity, block - 1, &capacity))
		goto err_rows;
	capacity -= capacity % block;
	/* No expert, no run: pairs without one are in no slot. */
	if (n_runs == 0)
		capacity = 0;
	if (__builtin_mul_overflow(capacity, (int64_t)sizeof(int64_t), &bytes) ||
	    __builtin_mul_overflow(n_pairs, (int64_t)sizeof(int64_t), &bytes))
		goto err_rows;
	*ret_sizes = (struct mtk_align_sizes){n_pairs, capacity, capacity / block};
	return MOETRACE_OK;

err_rows:
	return mtk_error_set(error, MOETRACE_E_INVALID,
			     "align: n_rows: %llu rows with top_k %u and block_rows %u need more "
			     "slots than 64 bits can address",
			     (unsigned long long)n_rows, settings->top_k, settings->block_rows);
}

/* Append the pairs of one expert and pad them. Returns the number of pairs. */
static int64_t append_run(const struct mtk_align_settings *settings, int64_t n_pairs,
			  const int32_t *ids, int32_t expert, struct mtk_align_result *result)
{
	const int64_t block = settings->block_rows;
	const int64_t first = result->n_padded;
	int64_t end = first;

	for (int64_t p = 0; p < n_pairs; p++) {
		if (align_expert_of(settings, ids[p]) != expert)
			continue;
		result->pair_slots[p] = expert < 0 ? -1 : end;
		result->sorted_pairs[end++] = p;
	}
	result->n_padded = end;
	while (result->n_padded % block != 0)
		result->sorted_pairs[result->n_padded++] = n_pairs;
	for (int64_t b = first / block; b < result->n_padded / block; b++)
		result->expert_ids[b] = expert;
	return end - first;
}

void mtk_align_plain(const struct mtk_align_settings *settings, const struct mtk_align_sizes *sizes,
		     const int32_t *ids, struct mtk_align_result *result)
{
	int64_t n_placed = 0;

	result->n_padded = 0;
	for (int64_t p = 0; p < sizes->n_pairs; p++)
		result->pair_slots[p] = -1;
	if (settings->invalid_first)
		append_run(settings, sizes->n_pairs, ids, -1, result);
	for (uint32_t e = 0; e < settings->n_experts; e++) {
		result->first_slots[e] = result->n_padded;
		n_placed += append_run(settings, sizes->n_pairs, ids, (int32_t)e, result);
	}
	result->first_slots[settings->n_experts] = result->n_padded;
	result->n_dropped = sizes->n_pairs - n_placed;
	for (int64_t s = result->n_padded; s < sizes->capacity; s++)
		result->sorted_pairs[s] = sizes->n_pairs;
	for (int64_t b = result->n_padded / settings->block_rows; b < sizes->n_blocks; b++)
		result->expert_ids[b] = -1;
}
