/* SPDX-License-Identifier: MIT */
/* Plain loops: these rules are looked at one at a time, and candidates are rare in traces. */
#include <sqlite3ext.h>
SQLITE_EXTENSION_INIT3

#include "common/bytes.h"
#include "oea_rules.h"

#include <stdlib.h>
#include <string.h>

static bool is_changed(const struct mt_oea_batch *batch, size_t r)
{
	return !batch->rows || !(batch->rows[r] & MT_OEA_ROW_KEPT);
}

/* The row's weight; 0 where the row is not rated. */
static float total_of(const struct mt_oea_batch *batch, size_t r)
{
	float total = 0.0f;

	if (!batch->weights || (batch->rows && batch->rows[r] != 0))
		return 0.0f;
	for (size_t j = 0; j < mt_oea_n_of(batch, r); j++)
		total += mt_oea_weight_at(batch, r, j);
	return total > MT_OEA_MIN_WEIGHT && total < MT_OEA_MAX_WEIGHT ? total : 0.0f;
}

static void lose(float lost, uint32_t param, uint32_t *bins, struct mt_oea_result *result)
{
	const size_t bin = (size_t)(lost * MT_OEA_N_BINS);

	result->lost[param] += (double)lost;
	bins[(size_t)param * MT_OEA_N_BINS + (bin < MT_OEA_N_BINS ? bin : MT_OEA_N_BINS - 1)]++;
}

/* ---- a budget ---- */

static void weights_sum(const struct mt_oea_batch *batch, float *weights)
{
	for (size_t r = 0; r < batch->n_rows; r++) {
		const float total = total_of(batch, r);

		for (size_t j = 0; is_changed(batch, r) && j < mt_oea_n_of(batch, r); j++) {
			if (!batch->weights)
				weights[mt_oea_id_at(batch, r, j)] += 1.0f;
			else if (total > 0.0f)
				weights[mt_oea_id_at(batch, r, j)] += mt_oea_weight_at(batch, r, j) / total;
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

		for (size_t j = 0; is_changed(batch, r) && j < mt_oea_n_of(batch, r); j++) {
			const bool survives = scratch->place[mt_oea_id_at(batch, r, j)] == 0;

			ret_result->survivors[0] += survives;
			if (!survives && total > 0.0f)
				lost += mt_oea_weight_at(batch, r, j);
		}
		if (!is_changed(batch, r) || total <= 0.0f)
			continue;
		ret_result->n_rated_rows++;
		lose(lost / total, 0, bins, ret_result);
	}
}

/* ---- further candidates ---- */

/* Without the bias that acted, or how many groups a row had kept, nobody knows what came next. */
bool mt_oea_has_candidates(const struct mt_oea_source *source)
{
	const struct mt_oea_layer *layer = source->layer;

	return source->reader.run->n_candidates > 0 && (layer->is_unbiased || layer->bias) &&
	       (layer->n_groups <= 1 || source->any_group || layer->topk_groups > 0);
}

float mt_oea_bias(const struct mt_oea_source *source, uint32_t id)
{
	const struct mt_oea_layer *layer = source->layer;

	return layer->bias && id < layer->n_experts + layer->n_zero_experts ? layer->bias[id] : 0.0f;
}

/* The groups of a row's own choice. */
struct groups {
	uint32_t n_each; /* experts of a group; 0: groups do not matter */
	uint32_t groups[MT_OEA_MAX_K];
	size_t n;
};

static bool is_in_groups(const struct groups *groups, uint32_t group)
{
	for (size_t i = 0; i < groups->n; i++)
		if (groups->groups[i] == group)
			return true;
	return false;
}

/* A row that chose from as many groups as are kept had these; of others it is not known which. */
static bool groups_find(const struct mt_oea_source *source, size_t row, struct groups *groups)
{
	const struct mt_oea_layer *layer = source->layer;

	groups->n = 0;
	groups->n_each = layer->n_groups > 1 && !source->any_group
				 ? layer->n_experts / layer->n_groups
				 : 0;
	if (groups->n_each == 0)
		return layer->n_groups <= 1 || source->any_group;
	for (size_t j = 0; j < mt_oea_n_of(&source->batch, row); j++) {
		const uint32_t id = mt_oea_id_at(&source->batch, row, j);

		if (id < layer->n_experts && !is_in_groups(groups, id / groups->n_each))
			groups->groups[groups->n++] = id / groups->n_each;
	}
	return groups->n >= layer->topk_groups;
}

static int compare_candidates(const void *left, const void *right)
{
	const struct mt_oea_candidate *a = left, *b = right;

	if (a->key != b->key)
		return a->key > b->key ? -1 : 1;
	return a->id < b->id ? -1 : a->id > b->id;
}

/* Where a row's own choice is not among its candidates, its weights tell, on the scores' scale. */
static bool scores_complete(const struct mt_oea_source *source, size_t row, float *scores)
{
	const struct mt_oea_batch *batch = &source->batch;
	float scale = source->layer->is_raw ? 1.0f : 0.0f;

	for (size_t j = 0; batch->weights && j < mt_oea_n_of(batch, row) && scale <= 0.0f; j++)
		if (scores[j] > 0.0f && mt_oea_weight_at(batch, row, j) > 0.0f)
			scale = scores[j] / mt_oea_weight_at(batch, row, j);
	for (size_t j = 0; j < mt_oea_n_of(batch, row); j++) {
		if (scores[j] >= 0.0f)
			continue;
		if (!batch->weights || scale <= 0.0f)
			return false;
		scores[j] = mt_oea_weight_at(batch, row, j) * scale;
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
	struct groups groups;
	size_t n = 0;

	if (!groups_find(source, row, &groups))
		return false;
	for (size_t j = 0; j < batch->k; j++)
		ret_scores[j] = -1.0f;
	for (size_t i = first; i < first + run->n_candidates; i++) {
		const uint8_t *at = run->candidate_ids + i * run->id_bytes;
		const uint32_t id = mt_narrow_at(at, run->id_bytes, 0);
		const float score = mt_oea_weight(run->candidate_scores + i * 2,
						  run->score_format == MT_WEIGHT_BF16);
		bool is_chosen = id >= n_ids || !(score < 65536.0f);

		for (size_t j = 0; j < mt_oea_n_of(batch, row); j++) {
			if (mt_oea_id_at(batch, row, j) != id)
				continue;
			ret_scores[j] = score;
			is_chosen = true;
		}
		if (groups.n_each > 0 && id < source->layer->n_experts)
			is_chosen |= !is_in_groups(&groups, id / groups.n_each);
		if (!is_chosen)
			ret_candidates[n++] = (struct mt_oea_candidate){
				id, score, score + mt_oea_bias(source, id)};
	}
	qsort(ret_candidates, n, sizeof(*ret_candidates), compare_candidates);
	*ret_n_candidates = n;
	return scores_complete(source, row, ret_scores);
}

struct take {
	const struct mt_oea_source *source;
	const struct mt_oea_form *form;
	const uint8_t *limits;
	const struct mt_oea_scratch *scratch;
	const struct mt_oea_result *swept;
	struct mt_oea_candidate *candidates;
};

/* A row at one k0: what its set holds of the router's score, and whether it lacks candidates. */
static float row_fill(const struct take *take, size_t row, size_t k0, const float *scores,
		      size_t n_candidates, bool *ret_truncated)
{
	const struct mt_oea_batch *batch = &take->source->batch;
	const size_t n_zero = take->source->layer->n_zero_experts;
	const size_t n_union = take->swept->active[k0 - 1] + n_zero;
	const size_t limit = take->limits ? take->limits[row] : batch->k;
	const size_t base = k0 < limit ? k0 : limit, maxp = take->form->maxp;
	size_t fill = mt_oea_form_fill(take->form, batch->k), n = 0, i;
	float held = 0.0f;

	fill = fill < n_union ? fill : n_union;
	for (size_t j = 0; j < mt_oea_n_of(batch, row); j++) {
		const bool is_in = take->scratch->place[mt_oea_id_at(batch, row, j)] < k0;

		if (j >= base && !(is_in && j < maxp && n < fill))
			continue;
		held += scores[j];
		n++;
	}
	for (i = 0; i < n_candidates && n < fill && batch->k + i < maxp; i++) {
		const bool is_in = take->scratch->place[take->candidates[i].id] < k0;

		held += is_in ? take->candidates[i].score : 0.0f;
		n += is_in;
	}
	*ret_truncated = n < fill && batch->k + i < maxp &&
			 batch->k + i < batch->n_experts + n_zero;
	return held;
}

static void take_row(const struct take *take, size_t row, struct mt_oea_taken *taken)
{
	const struct mt_oea_batch *batch = &take->source->batch;
	float scores[MT_OEA_MAX_K], own = 0.0f;
	size_t n_candidates;

	if (!mt_oea_row_scores(take->source, row, scores, take->candidates, &n_candidates))
		return;
	for (size_t j = 0; j < mt_oea_n_of(batch, row); j++)
		own += scores[j];
	if (!(own > 0.0f))
		return;
	taken->n_rows++;
	for (size_t k0 = 1; k0 <= batch->k; k0++) {
		bool is_truncated;
		const float held = row_fill(take, row, k0, scores, n_candidates, &is_truncated);

		taken->n_truncated[k0 - 1] += is_truncated;
		taken->retained[k0 - 1] += (double)(held / own);
	}
}

int mt_oea_take(const struct mt_oea_source *source, const struct mt_oea_form *form,
		const uint8_t *limits, const struct mt_oea_scratch *scratch,
		const struct mt_oea_result *swept, struct mt_oea_taken *ret_taken)
{
	const struct mt_oea_batch *batch = &source->batch;
	const struct take take = {
		.source = source,
		.form = form,
		.limits = limits,
		.scratch = scratch,
		.swept = swept,
		.candidates = sqlite3_malloc64(source->reader.run->n_candidates *
					       sizeof(*take.candidates)),
	};

	if (!take.candidates)
		return SQLITE_NOMEM;
	memset(ret_taken, 0, sizeof(*ret_taken));
	for (size_t r = 0; r < batch->n_rows; r++)
		if (!batch->rows || batch->rows[r] == 0)
			take_row(&take, r, ret_taken);
	sqlite3_free(take.candidates);
	return SQLITE_OK;
}
