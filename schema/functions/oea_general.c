/* SPDX-License-Identifier: MIT */
/* Plain loops over the definition, row by row and k0 by k0: the simple form has its own sweep. */
#include <sqlite3ext.h>
SQLITE_EXTENSION_INIT3

#include "oea_general.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "oea_rules.h"

/* ---- the form ---- */

static bool uint_take(const char *text, size_t n, uint32_t *ret_value)
{
	char *end;
	const unsigned long value = strtoul(text, &end, 10);

	if (n == 0 || *text < '0' || *text > '9' || end != text + n || value < 1 || value > 65536)
		return false;
	*ret_value = (uint32_t)value;
	return true;
}

static bool share_take(const char *text, size_t n, double *ret_value)
{
	char *end;
	const double value = strtod(text, &end);

	if (n == 0 || end != text + n || !(value > 0 && value <= 1))
		return false;
	*ret_value = value;
	return true;
}

static bool is_word(const char *text, size_t n, const char *word)
{
	return n == strlen(word) && strncmp(text, word, n) == 0;
}

static bool option_take(const char *text, size_t n, bool prunes, struct mt_oea_form *form)
{
	if (n > 2 && strncmp(text, "p=", 2) == 0)
		return share_take(text + 2, n - 2, &form->p);
	if (is_word(text, n, "order=weight"))
		return form->by_weight = true;
	if (prunes)
		return false;
	if (n > 5 && strncmp(text, "kmax=", 5) == 0)
		return uint_take(text + 5, n - 5, &form->kmax);
	if (n > 5 && strncmp(text, "maxp=", 5) == 0)
		return uint_take(text + 5, n - 5, &form->maxp);
	return is_word(text, n, "groups=any") && (form->any_group = true);
}

bool mt_oea_form_parse(const char *text, struct mt_oea_form *ret_form)
{
	const size_t n_name = strcspn(text, ":");
	const bool prunes = is_word(text, n_name, "pruned");
	struct mt_oea_form form = {.p = 1, .maxp = prunes ? 0 : UINT32_MAX};

	if (!prunes && !is_word(text, n_name, "oea"))
		return false;
	for (text += n_name; *text != '\0';) {
		const size_t n = strcspn(++text, ",");

		if (!option_take(text, n, prunes, &form))
			return false;
		text += n;
	}
	*ret_form = form;
	return true;
}

bool mt_oea_form_is_simple(const struct mt_oea_form *form)
{
	return form->p >= 1 && form->kmax == 0 && form->maxp == UINT32_MAX;
}

uint32_t mt_oea_form_fill(const struct mt_oea_form *form, size_t k)
{
	return form->kmax ? form->kmax : (uint32_t)k;
}

/* ---- bases ---- */

/* Scores of a softmax over all experts add up to 1: of weights that are these, or of candidates. */
int mt_oea_limits(const struct mt_oea_source *source, double p, uint8_t *ret_limits)
{
	const struct mt_oea_batch *batch = &source->batch;
	const bool has_raw = source->layer->is_raw && batch->weights;
	struct mt_oea_candidate *candidates = NULL;
	float scores[MT_OEA_MAX_K];
	int rc = SQLITE_ROW;
	size_t n;

	if (!source->layer->is_softmax || (!has_raw && !mt_oea_has_candidates(source)))
		return SQLITE_DONE;
	if (!has_raw) {
		candidates = sqlite3_malloc64(source->reader.run->n_candidates *
					      sizeof(*candidates));
		if (!candidates)
			return SQLITE_NOMEM;
	}
	for (size_t r = 0; r < batch->n_rows && rc == SQLITE_ROW; r++) {
		double sum = 0;
		size_t j = 0;

		if (!has_raw && !mt_oea_row_scores(source, r, scores, candidates, &n))
			rc = SQLITE_DONE;
		while (rc == SQLITE_ROW && j < mt_oea_n_of(batch, r) && sum < p) {
			sum += (double)(has_raw ? mt_oea_weight_at(batch, r, j) : scores[j]);
			j++;
		}
		ret_limits[r] = sum >= p ? (uint8_t)j : (uint8_t)batch->k;
	}
	sqlite3_free(candidates);
	return rc;
}

/* ---- unions ---- */

static bool is_kept(const struct mt_oea_batch *batch, size_t r)
{
	return batch->rows && (batch->rows[r] & MT_OEA_ROW_KEPT);
}

static void meet(struct mt_oea_scratch *scratch, uint32_t id, uint8_t place)
{
	if (scratch->place[id] != 255)
		return;
	scratch->place[id] = place;
	scratch->active[scratch->n_active++] = (uint16_t)id;
}

static void unite(const struct mt_oea_batch *batch, const uint8_t *limits,
		  struct mt_oea_scratch *scratch, struct mt_oea_result *result)
{
	for (size_t r = 0; r < batch->n_rows; r++)
		for (size_t j = 0; is_kept(batch, r) && j < mt_oea_n_of(batch, r); j++)
			meet(scratch, mt_oea_id_at(batch, r, j), 0);
	result->n_kept_active = scratch->n_active;
	for (size_t j = 0; j < batch->k; j++) {
		for (size_t r = 0; r < batch->n_rows; r++)
			if (!is_kept(batch, r) && j < mt_oea_n_of(batch, r) && (!limits || j < limits[r]))
				meet(scratch, mt_oea_id_at(batch, r, j), (uint8_t)j);
		result->active[j] = scratch->n_active;
	}
	for (size_t r = 0; r < batch->n_rows; r++)
		for (size_t j = 0; j < mt_oea_n_of(batch, r); j++)
			meet(scratch, mt_oea_id_at(batch, r, j), MT_OEA_PLACE_NONE);
}

/* ---- rows ---- */

struct row_rule {
	size_t k0, base, fill, maxp;
};

/* The weight of the entries that a row keeps, and how many these are. */
static float row_keep(const struct mt_oea_batch *batch, size_t r,
		      const struct mt_oea_scratch *scratch, const struct row_rule *rule,
		      size_t *ret_n)
{
	float held = 0.0f;
	size_t n = 0;

	for (size_t j = 0; j < mt_oea_n_of(batch, r); j++) {
		const bool is_in = scratch->place[mt_oea_id_at(batch, r, j)] < rule->k0;

		if (j >= rule->base && !(is_in && j < rule->maxp && n < rule->fill))
			continue;
		held += batch->weights ? mt_oea_weight_at(batch, r, j) : 0.0f;
		n++;
	}
	*ret_n = n;
	return held;
}

static void row_count(const struct mt_oea_batch *batch, const struct mt_oea_form *form, size_t r,
		      size_t limit, uint32_t n_zero_experts, const struct mt_oea_scratch *scratch,
		      uint32_t *bins, struct mt_oea_result *result, struct mt_oea_fill *ret_fill)
{
	const bool counts = !(batch->rows && (batch->rows[r] & MT_OEA_ROW_UNRATED));
	float total = 0.0f;

	for (size_t j = 0; batch->weights && counts && j < mt_oea_n_of(batch, r); j++)
		total += mt_oea_weight_at(batch, r, j);
	if (!(total > MT_OEA_MIN_WEIGHT && total < MT_OEA_MAX_WEIGHT))
		total = 0.0f;
	result->n_rated_rows += total > 0.0f;
	for (size_t k0 = 1; k0 <= batch->k; k0++) {
		const struct row_rule rule = {.k0 = k0,
					      .base = k0 < limit ? k0 : limit,
					      .fill = mt_oea_form_fill(form, batch->k),
					      .maxp = form->maxp};
		const size_t n_union = result->active[k0 - 1] + n_zero_experts;
		size_t n, n_full = rule.fill < n_union ? rule.fill : n_union;
		float held = row_keep(batch, r, scratch, &rule, &n), lost;
		uint32_t bin;

		result->survivors[k0 - 1] += n;
		n_full = form->maxp > batch->k && n_full > n ? n_full : n;
		ret_fill->n_below[k0 - 1] += n_full < batch->k;
		ret_fill->n_taken[k0 - 1] += n_full - n;
		if (total <= 0.0f)
			continue;
		lost = held < total ? 1.0f - held / total : 0.0f;
		bin = (uint32_t)(lost * MT_OEA_N_BINS);
		result->lost[k0 - 1] += (double)lost;
		bins[(k0 - 1) * MT_OEA_N_BINS + (bin < MT_OEA_N_BINS ? bin : MT_OEA_N_BINS - 1)]++;
	}
}

void mt_oea_sweep_form(const struct mt_oea_batch *batch, const struct mt_oea_form *form,
		       const uint8_t *limits, uint32_t n_zero_experts,
		       struct mt_oea_scratch *scratch, uint32_t *bins,
		       struct mt_oea_result *ret_result, struct mt_oea_fill *ret_fill)
{
	memset(ret_result, 0, sizeof(*ret_result));
	memset(ret_fill, 0, sizeof(*ret_fill));
	mt_oea_places_clear(batch, scratch);
	unite(batch, limits, scratch, ret_result);
	for (size_t r = 0; r < batch->n_rows; r++) {
		if (is_kept(batch, r))
			continue;
		ret_result->n_entries += mt_oea_n_of(batch, r);
		ret_result->n_changed_rows++;
		row_count(batch, form, r, limits ? limits[r] : batch->k, n_zero_experts, scratch,
			  bins, ret_result, ret_fill);
	}
}
