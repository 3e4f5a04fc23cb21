/* SPDX-License-Identifier: MIT */
/* Plain loops: these rules are looked at one at a time, and candidates are rare in traces. */
#include <sqlite3ext.h>
SQLITE_EXTENSION_INIT3

#include "oea_rules.h"

#include <stdlib.h>
#include <string.h>

static uint32_t id_at(const struct mt_oea_batch *batch, size_t r, size_t j)
{
	const size_t at = r * batch->k + j;

	return batch->id_bytes == 1 ? batch->ids[at]
				    : (uint32_t)(batch->ids[2 * at] | batch->ids[2 * at + 1] << 8);
}

static size_t n_of(const struct mt_oea_batch *batch, size_t r)
{
	return batch->n_valid ? batch->n_valid[r] : batch->k;
}

static bool is_changed(const struct mt_oea_batch *batch, size_t r)
{
	return !batch->rows || !(batch->rows[r] & MT_OEA_ROW_KEPT);
}

static float weight_at(const struct mt_oea_batch *batch, size_t r, size_t j)
{
	return mt_oea_weight(batch->weights + (r * batch->k + j) * 2, batch->is_bf16);
}

/* The row's weight; 0 where the row is not rated. */
static float total_of(const struct mt_oea_batch *batch, size_t r)
{
	float total = 0.0f;

	if (!batch->weights || (batch->rows && batch->rows[r] != 0))
		return 0.0f;
	for (size_t j = 0; j < n_of(batch, r); j++)
		total += weight_at(batch, r, j);
	return total > MT_OEA_MIN_WEIGHT && total < MT_OEA_MAX_WEIGHT ? total : 0.0f;
}

static void lose(float lost, uint32_t param, uint32_t *bins, struct mt_oea_result *result)
{
	const size_t bin = (size_t)(lost * MT_OEA_N_BINS);

	result->lost[param] += (double)lost;
	bins[(size_t)param * MT_OEA_N_BINS + (bin < MT_OEA_N_BINS ? bin : MT_OEA_N_BINS - 1)]++;
}

/* ---- pruning ---- */

void mt_oea_prune(const struct mt_oea_batch *batch, uint32_t *bins, struct mt_oea_result *result)
{
	memset(result->survivors, 0, sizeof(result->survivors));
	memset(result->lost, 0, sizeof(result->lost));
	result->n_rated_rows = 0;
	for (size_t r = 0; r < batch->n_rows; r++) {
		const float total = total_of(batch, r);
		float kept = 0.0f;

		if (!is_changed(batch, r))
			continue;
		result->n_rated_rows += total > 0.0f;
		for (size_t j = 0; j < batch->k; j++) {
			const size_t n = n_of(batch, r);

			result->survivors[j] += n < j + 1 ? n : j + 1;
			if (total <= 0.0f)
				continue;
			kept += j < n ? weight_at(batch, r, j) : 0.0f;
			lose(kept < total ? 1.0f - kept / total : 0.0f, (uint32_t)j, bins, result);
		}
	}
}

/* ---- a budget ---- */

static void weights_sum(const struct mt_oea_batch *batch, float *weights)
{
	for (size_t r = 0; r < batch->n_rows; r++) {
		const float total = total_of(batch, r);

		for (size_t j = 0; is_changed(batch, r) && j < n_of(batch, r); j++) {
			if (!batch->weights)
				weights[id_at(batch, r, j)] += 1.0f;
			else if (total > 0.0f)
				weights[id_at(batch, r, j)] += weight_at(batch, r, j) / total;
		}
	}
}

/* The active expert outside the set that holds most; of equals the lowest id. */
static uint32_t heaviest(const struct mt_oea_scratch *scratch, const float *weights)
{
	uint32_t best = UINT32_MAX;

	for (uint32_t i = 0; i < scratch->n_active; i++) {
		const uint32_t id = scratch->active[i];

		if (scratch->place[id] == 0)
			continue;
		if (best == UINT32_MAX || weights[id] > weights[best] ||
		    (weights[id] == weights[best] && id < best))
			best = id;
	}
	return best;
}

void mt_oea_budget(const struct mt_oea_batch *batch, struct mt_oea_scratch *scratch,
		   uint32_t n_budget, float *weights, uint32_t *bins,
		   struct mt_oea_result *ret_result)
{
	struct mt_oea_batch unweighted = *batch;
	uint32_t n;

	unweighted.weights = NULL;
	mt_oea_sweep(&unweighted, scratch, NULL, ret_result);
	weights_sum(batch, weights);
	/* The place is 0 exactly of experts that must be there. */
	for (n = ret_result->active[0]; n < n_budget && n < scratch->n_active; n++)
		scratch->place[heaviest(scratch, weights)] = 0;
	for (uint32_t i = 0; i < scratch->n_active; i++)
		weights[scratch->active[i]] = 0.0f;
	ret_result->active[0] = n;
	ret_result->survivors[0] = 0;
	for (size_t r = 0; r < batch->n_rows; r++) {
		const float total = total_of(batch, r);
		float lost = 0.0f;

		for (size_t j = 0; is_changed(batch, r) && j < n_of(batch, r); j++) {
			const bool survives = scratch->place[id_at(batch, r, j)] == 0;

			ret_result->survivors[0] += survives;
			if (!survives && total > 0.0f)
				lost += weight_at(batch, r, j);
		}
		if (!is_changed(batch, r) || total <= 0.0f)
			continue;
		ret_result->n_rated_rows++;
		lose(lost / total, 0, bins, ret_result);
	}
}

/* ---- further candidates ---- */

bool mt_oea_has_candidates(const struct mt_oea_source *source)
{
	return source->reader.run->n_candidates > 0 && source->layer->is_unbiased &&
	       source->layer->n_groups <= 1;
}

static int compare_candidates(const void *left, const void *right)
{
	const struct mt_oea_candidate *a = left, *b = right;

	if (a->score != b->score)
		return a->score > b->score ? -1 : 1;
	return a->id < b->id ? -1 : a->id > b->id;
}

/* Where a row's own choice is not among its candidates, its weights tell, on the scores' scale. */
static bool scores_complete(const struct mt_oea_source *source, size_t row, float *scores)
{
	const struct mt_oea_batch *batch = &source->batch;
	float scale = source->layer->is_raw ? 1.0f : 0.0f;

	for (size_t j = 0; batch->weights && j < n_of(batch, row) && scale <= 0.0f; j++)
		if (scores[j] > 0.0f && weight_at(batch, row, j) > 0.0f)
			scale = scores[j] / weight_at(batch, row, j);
	for (size_t j = 0; j < n_of(batch, row); j++) {
		if (scores[j] >= 0.0f)
			continue;
		if (!batch->weights || scale <= 0.0f)
			return false;
		scores[j] = weight_at(batch, row, j) * scale;
	}
	return true;
}

bool mt_oea_row_scores(const struct mt_oea_source *source, size_t row, float *ret_scores,
		       struct mt_oea_candidate *ret_candidates, size_t *ret_n_candidates)
{
	const struct mt_run *run = source->reader.run;
	const struct mt_oea_batch *batch = &source->batch;
	const uint32_t n_ids = source->layer->n_experts + source->layer->n_zero_experts;
	const size_t first = (source->reader.first_row + row) * run->n_candidates;
	size_t n = 0;

	for (size_t j = 0; j < batch->k; j++)
		ret_scores[j] = -1.0f;
	for (size_t i = first; i < first + run->n_candidates; i++) {
		const uint8_t *at = run->candidate_ids + i * run->id_bytes;
		const uint32_t id = run->id_bytes == 1 ? at[0] : (uint32_t)(at[0] | at[1] << 8);
		const float score = mt_oea_weight(run->candidate_scores + i * 2,
						  run->score_format == MT_WEIGHT_BF16);
		bool is_chosen = id >= n_ids || !(score < 65536.0f);

		for (size_t j = 0; j < n_of(batch, row); j++) {
			if (id_at(batch, row, j) != id)
				continue;
			ret_scores[j] = score;
			is_chosen = true;
		}
		if (!is_chosen)
			ret_candidates[n++] = (struct mt_oea_candidate){id, score};
	}
	qsort(ret_candidates, n, sizeof(*ret_candidates), compare_candidates);
	*ret_n_candidates = n;
	return scores_complete(source, row, ret_scores);
}

static void take_row(const struct mt_oea_source *source, size_t row,
		     const struct mt_oea_scratch *scratch, const struct mt_oea_result *swept,
		     struct mt_oea_candidate *candidates, struct mt_oea_taken *taken)
{
	const struct mt_oea_batch *batch = &source->batch;
	float scores[MT_OEA_MAX_K], own = 0.0f;
	size_t n_candidates;

	if (!mt_oea_row_scores(source, row, scores, candidates, &n_candidates))
		return;
	for (size_t j = 0; j < n_of(batch, row); j++)
		own += scores[j];
	if (!(own > 0.0f))
		return;
	taken->n_rows++;
	for (size_t k0 = 1; k0 <= batch->k; k0++) {
		const size_t n_union = swept->active[k0 - 1] + source->layer->n_zero_experts;
		const size_t fill = batch->k < n_union ? batch->k : n_union;
		float held = 0.0f;
		size_t n = 0;

		for (size_t j = 0; j < n_of(batch, row); j++) {
			const bool survives = scratch->place[id_at(batch, row, j)] < k0;

			held += survives ? scores[j] : 0.0f;
			n += survives;
		}
		for (size_t i = 0; i < n_candidates && n < fill; i++) {
			const bool is_in = scratch->place[candidates[i].id] < k0;

			held += is_in ? candidates[i].score : 0.0f;
			n += is_in;
		}
		taken->n_truncated[k0 - 1] += n < fill;
		taken->retained[k0 - 1] += (double)(held / own);
	}
}

int mt_oea_take(const struct mt_oea_source *source, const struct mt_oea_scratch *scratch,
		const struct mt_oea_result *swept, struct mt_oea_taken *ret_taken)
{
	const struct mt_oea_batch *batch = &source->batch;
	struct mt_oea_candidate *candidates =
		sqlite3_malloc64(source->reader.run->n_candidates * sizeof(*candidates));

	if (!candidates)
		return SQLITE_NOMEM;
	memset(ret_taken, 0, sizeof(*ret_taken));
	for (size_t r = 0; r < batch->n_rows; r++)
		if (!batch->rows || batch->rows[r] == 0)
			take_row(source, r, scratch, swept, candidates, ret_taken);
	sqlite3_free(candidates);
	return SQLITE_OK;
}
