/* SPDX-License-Identifier: MIT */
/*
 * moe_oea(by_layer, by_batch, rule, n_ranks, placement): what a routing rule would have done to every recorded batch
 * (a layer of a pass), counted from the stored ids, for every k0 at once. docs/oea.md says what is
 * counted; the figures are sums, so that any grouping of the rows adds up.
 *
 *   by_layer  1: a group a layer; 0: all layers together
 *   by_batch  1: a group a size of batches (1, 2, 3-4, 5-8, ...); 0: all sizes together
 *   rule      'oea' or 'pruned', with options of oea_general.h behind a colon, or 'budget:N' (k0 is
 *             N then)
 *   n_ranks, placement  as in moe_balance(); absent: rank_active_before and _after are NULL
 *
 * Batches that cannot be judged are counted in rows of their own, in which refusal says why and k0
 * is NULL. Passes of prefill alone, and idle and dummy ones, are in no row. Padding is in no figure
 * but its own.
 */
#include <sqlite3ext.h>
SQLITE_EXTENSION_INIT3

#include "mt_sql.h"
#include "oea_general.h"
#include "oea_group.h"
#include "oea_ranks.h"
#include "oea_rules.h"
#include "tvf.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum argument { ARG_BY_LAYER, ARG_BY_BATCH, ARG_RULE, ARG_RANKS, ARG_PLACEMENT, N_ARGUMENTS };

static int compute(sqlite3 *db, sqlite3_value *const *arguments, struct mt_tvf_rows *rows);

static const struct mt_tvf oea = {
	.name = "moe_oea",
	.declaration =
		"CREATE TABLE moe_oea (recording_id INTEGER, model_id INTEGER, layer_id INTEGER,"
		" layer INTEGER, phase TEXT, max_batch_rows INTEGER, k INTEGER, k0 INTEGER,"
		" refusal TEXT, n_passes INTEGER, n_batches INTEGER, rows INTEGER,"
		" changed_rows INTEGER, active_before INTEGER, active_after INTEGER,"
		" uniform_before REAL, uniform_after REAL, padding_active_experts INTEGER,"
		" lost_entries INTEGER, swapped_entries INTEGER, tokens_below_k INTEGER,"
		" rated_rows INTEGER, lost_weight REAL, p95_lost_weight REAL,"
		" candidate_rows INTEGER, truncated_rows INTEGER, retained_score REAL,"
		" restored_rows INTEGER, ratio_low REAL, ratio_high REAL, saved_low REAL,"
		" saved_high REAL, lost_low REAL, lost_high REAL, rank_active_before INTEGER,"
		" rank_active_after INTEGER, by_layer INTEGER HIDDEN, by_batch INTEGER HIDDEN,"
		" rule TEXT HIDDEN, n_ranks INTEGER HIDDEN, placement TEXT HIDDEN)",
	.n_columns = 36,
	.n_arguments = N_ARGUMENTS,
	.n_rows = 500,
	.compute = compute,
};

enum rule { RULE_SIMPLE, RULE_FORM, RULE_BUDGET };

/* Uniform expectations of the batch shape seen last: layers of a pass share theirs. */
struct uniform {
	uint32_t n_experts, k;
	size_t n_changed, n_kept;
	double expected[MT_OEA_MAX_K]; /* the last: before the rule */
};

struct state {
	struct mt_tvf_rows *rows;
	uint32_t by_layer, by_batch;
	enum rule rule;
	struct mt_oea_form form;
	uint32_t n_budget;
	struct mt_oea_source source;
	struct mt_oea_groups groups;
	struct mt_oea_scratch scratch;
	struct mt_oea_result result;
	struct mt_oea_taken taken;
	struct mt_oea_fill fill;
	uint8_t *limits; /* of the rows' bases, where p bounds them */
	size_t n_limits;
	double uniform_form[MT_OEA_MAX_K];
	struct mt_oea_ranks ranks;
	struct uniform uniform;
	double uniform_budget;
	float weights[65536]; /* of a budget; 0 between batches */
};

/* ---- one batch ---- */

/*
 * Distinct experts that rows touch on average if each picks k of n at random, all alike:
 * n * (1 - (1 - k / n)^rows). Rows that keep their choice pick k, the others k0.
 */
static void uniform_expect(struct uniform *uniform, const struct mt_oea_batch *batch,
			   size_t n_changed)
{
	const double n = batch->n_experts;
	const size_t n_kept = batch->n_rows - n_changed;
	double kept, least;

	if (uniform->n_experts == batch->n_experts && uniform->k == batch->k &&
	    uniform->n_changed == n_changed && uniform->n_kept == n_kept)
		return;
	*uniform = (struct uniform){.n_experts = batch->n_experts,
				    .k = (uint32_t)batch->k,
				    .n_changed = n_changed,
				    .n_kept = n_kept};
	least = batch->k < batch->n_experts ? 1 - (double)batch->k / n : 0;
	kept = pow(least, (double)n_kept);
	for (size_t k0 = 1; k0 <= batch->k; k0++) {
		const double miss = (double)k0 < n ? 1 - (double)k0 / n : 0;

		uniform->expected[k0 - 1] = n * (1 - kept * pow(miss, (double)n_changed));
	}
}

/* The limits of the rows' bases; or the batch is refused, because p cannot be applied. */
static int limits_find(struct state *state)
{
	struct mt_oea_source *source = &state->source;
	int rc;

	if (state->form.p >= 1 || source->refusal != MT_OEA_REFUSED_NONE)
		return SQLITE_OK;
	if (source->batch.n_rows > state->n_limits) {
		void *limits = sqlite3_realloc64(state->limits, source->batch.n_rows);

		if (!limits)
			return SQLITE_NOMEM;
		state->limits = limits;
		state->n_limits = source->batch.n_rows;
	}
	rc = mt_oea_limits(source, state->form.p, state->limits);
	if (rc == SQLITE_DONE)
		source->refusal = MT_OEA_REFUSED_SCORES;
	return rc == SQLITE_DONE || rc == SQLITE_ROW ? SQLITE_OK : rc;
}

static int rule_apply(struct state *state, uint32_t *bins, struct mt_oea_figures *figures)
{
	const struct mt_oea_source *source = &state->source;
	const struct mt_oea_batch *batch = &source->batch;
	const uint8_t *limits = state->form.p < 1 ? state->limits : NULL;
	struct mt_oea_result *result = &state->result;

	if (state->rule == RULE_BUDGET) {
		mt_oea_budget(batch, &state->scratch, state->n_budget, state->weights, bins, result);
		return SQLITE_OK;
	}
	if (state->rule == RULE_SIMPLE) {
		mt_oea_sweep(batch, &state->scratch, bins, result);
	} else {
		mt_oea_sweep_form(batch, &state->form, limits, source->layer->n_zero_experts,
				  &state->scratch, bins, result, &state->fill);
		figures->n_below = state->fill.n_below;
		figures->n_taken = state->fill.n_taken;
	}
	if (state->form.maxp == 0 || !mt_oea_has_candidates(source))
		return SQLITE_OK;
	figures->n_truncated = state->taken.n_truncated;
	figures->retained = state->taken.retained;
	return mt_oea_take(source, &state->form, limits, &state->scratch, result, &state->taken);
}

/* With p the bases of rows differ, and evenly spread choices of as many are what is expected. */
static void uniform_of_limits(struct state *state)
{
	const struct mt_oea_batch *batch = &state->source.batch;
	const double n = batch->n_experts;

	for (size_t k0 = 1; k0 <= batch->k; k0++) {
		double miss = 1;

		for (size_t r = 0; r < batch->n_rows; r++) {
			const bool is_kept = batch->rows && (batch->rows[r] & MT_OEA_ROW_KEPT);
			const size_t limit = is_kept ? batch->k : state->limits[r];
			const size_t base = !is_kept && k0 < limit ? k0 : limit;

			miss *= (double)base < n ? 1 - (double)base / n : 0;
		}
		state->uniform_form[k0 - 1] = n * (1 - miss);
	}
}

static void figures_complete(struct state *state, struct mt_oea_figures *figures)
{
	const struct mt_oea_source *source = &state->source;
	const struct mt_oea_result *result = &state->result;

	uniform_expect(&state->uniform, &source->batch, result->n_changed_rows);
	figures->active = result->active;
	figures->survivors = result->survivors;
	figures->lost = result->lost;
	figures->uniform = state->uniform.expected;
	figures->uniform_before = state->uniform.expected[source->batch.k - 1];
	if (state->rule == RULE_BUDGET) {
		state->uniform_budget = fmin(state->n_budget, figures->uniform_before);
		figures->uniform = &state->uniform_budget;
	}
	if (state->form.p < 1) {
		uniform_of_limits(state);
		figures->uniform = state->uniform_form;
	}
	figures->active_before = state->scratch.n_active;
	figures->n_entries = result->n_entries;
	figures->n_changed_rows = result->n_changed_rows;
	figures->n_rated_rows = result->n_rated_rows;
	figures->fill_max = (uint32_t)source->batch.k;
	figures->n_zero_experts = source->layer->n_zero_experts;
	/* What lies behind a row's own entries is not known up to a place, or within groups. */
	figures->takes_unknown =
		state->form.maxp > source->batch.k &&
		((source->layer->n_groups > 1 && !state->form.any_group) ||
		 state->form.maxp < source->layer->n_experts + source->layer->n_zero_experts);
	if (figures->n_truncated)
		figures->n_candidate_rows = state->taken.n_rows;
}

static int group_fail(struct state *state, int rc)
{
	return rc != SQLITE_TOOBIG
		       ? rc
		       : mt_tvf_fail(state->rows,
				     "moe_oea: so many recordings, layers and sizes of batches do"
				     " not fit in memory: leave by_layer or by_batch out");
}

static uint32_t bucket_of(size_t n_rows)
{
	uint32_t bucket = 1;

	while (bucket < n_rows && bucket < UINT32_C(1) << 31)
		bucket *= 2;
	return bucket;
}

static int group_find(struct state *state, struct mt_oea_group **ret_group)
{
	const struct mt_oea_source *source = &state->source;
	const bool is_refused = source->refusal != MT_OEA_REFUSED_NONE;
	const uint32_t k = is_refused ? 0 : (uint32_t)source->batch.k;
	const struct mt_oea_key key = {
		.recording_id = source->reader.recording_id,
		.model_id = source->reader.model_id,
		.layer_id = state->by_layer ? source->layer->layer_id : 0,
		.kind = source->kind,
		.bucket = state->by_batch ? bucket_of(source->batch.n_rows) : 0,
		.k = k,
		.refusal = source->refusal,
	};
	int rc = mt_oea_groups_find(&state->groups, &key,
				    state->rule == RULE_BUDGET && k ? 1 : k, ret_group);

	if (rc == SQLITE_OK)
		(*ret_group)->layer = source->layer->layer;
	return group_fail(state, rc);
}

static int batch_add(void *data)
{
	struct state *state = data;
	const struct mt_oea_source *source = &state->source;
	struct mt_oea_figures figures = {0};
	struct mt_oea_group *group;
	int rc = limits_find(state);

	if (rc == SQLITE_OK)
		rc = group_find(state, &group);
	if (rc != SQLITE_OK)
		return rc;
	if (source->refusal != MT_OEA_REFUSED_NONE) {
		mt_oea_group_add(group, source->reader.pass_id, source->batch.n_rows, NULL);
		return SQLITE_OK;
	}
	rc = rule_apply(state, group->bins, &figures);
	if (rc != SQLITE_OK)
		return rc;
	if (state->ranks.is_wanted) {
		rc = mt_oea_ranks_count(&state->ranks, source, &state->scratch);
		if (rc != SQLITE_OK)
			return rc;
		figures.no_map = !state->ranks.is_known;
		figures.rank_active = state->ranks.active;
		figures.rank_active_before = state->ranks.active_before;
	}
	figures.n_params = group->n_params;
	figures_complete(state, &figures);
	group->n_restored_rows += source->n_restored_rows;
	if (source->reader.padding_active_experts < 0)
		group->n_padding_unknown++;
	else
		group->padding_active += (uint64_t)source->reader.padding_active_experts;
	mt_oea_group_add(group, source->reader.pass_id, source->batch.n_rows, &figures);
	return SQLITE_OK;
}

/* ---- listing ---- */

static int compare_groups(const void *left, const void *right)
{
	const struct mt_oea_key *a = &(*(struct mt_oea_group *const *)left)->key;
	const struct mt_oea_key *b = &(*(struct mt_oea_group *const *)right)->key;
	const sqlite3_int64 of_a[] = {a->recording_id, a->model_id, a->layer_id, a->kind,
				      a->bucket,       a->k,	    a->refusal};
	const sqlite3_int64 of_b[] = {b->recording_id, b->model_id, b->layer_id, b->kind,
				      b->bucket,       b->k,	    b->refusal};

	for (size_t i = 0; i < sizeof(of_a) / sizeof(of_a[0]); i++)
		if (of_a[i] != of_b[i])
			return of_a[i] < of_b[i] ? -1 : 1;
	return 0;
}

/* A number, or NULL where it is not known. */
static int list_int(struct mt_tvf_rows *rows, bool is_known, uint64_t value)
{
	return is_known ? mt_tvf_int64(rows, (sqlite3_int64)value) : mt_tvf_null(rows);
}

static int list_key(struct state *state, const struct mt_oea_group *group, uint32_t k0)
{
	struct mt_tvf_rows *rows = state->rows;
	const struct mt_oea_key *key = &group->key;
	int rc = mt_tvf_int64(rows, key->recording_id);

	if (rc == SQLITE_OK)
		rc = mt_tvf_int64(rows, key->model_id);
	if (rc == SQLITE_OK)
		rc = list_int(rows, state->by_layer, (uint64_t)key->layer_id);
	if (rc == SQLITE_OK)
		rc = list_int(rows, state->by_layer, (uint64_t)group->layer);
	if (rc == SQLITE_OK)
		rc = mt_tvf_text(rows, mt_oea_kind_names[key->kind]);
	if (rc == SQLITE_OK)
		rc = list_int(rows, state->by_batch, key->bucket);
	if (rc == SQLITE_OK)
		rc = list_int(rows, key->k > 0, key->k);
	if (rc == SQLITE_OK)
		rc = list_int(rows, k0 > 0, k0);
	if (rc == SQLITE_OK)
		rc = mt_tvf_text(rows, mt_oea_refusal_names[key->refusal]);
	if (rc == SQLITE_OK)
		rc = mt_tvf_int64(rows, (sqlite3_int64)group->n_passes);
	if (rc == SQLITE_OK)
		rc = mt_tvf_int64(rows, (sqlite3_int64)group->sums.n_batches);
	return rc == SQLITE_OK ? mt_tvf_int64(rows, (sqlite3_int64)group->n_rows) : rc;
}

static int list_counts(struct mt_tvf_rows *rows, const struct mt_oea_group *group,
		       const struct mt_oea_param *param)
{
	int rc = mt_tvf_int64(rows, (sqlite3_int64)group->n_changed_rows);

	if (rc == SQLITE_OK)
		rc = mt_tvf_int64(rows, (sqlite3_int64)group->sums.active_before);
	if (rc == SQLITE_OK)
		rc = mt_tvf_int64(rows, (sqlite3_int64)param->active);
	if (rc == SQLITE_OK)
		rc = mt_tvf_double(rows, group->uniform_before);
	if (rc == SQLITE_OK)
		rc = mt_tvf_double(rows, param->uniform);
	if (rc == SQLITE_OK)
		rc = list_int(rows, group->n_padding_unknown == 0, group->padding_active);
	if (rc == SQLITE_OK)
		rc = mt_tvf_int64(rows, (sqlite3_int64)(group->n_entries - param->survivors));
	if (rc == SQLITE_OK)
		rc = list_int(rows, !group->takes_unknown, param->swapped);
	return rc == SQLITE_OK ? list_int(rows, !group->takes_unknown, param->below_k) : rc;
}

static int list_quality(struct state *state, const struct mt_oea_group *group, uint32_t i)
{
	struct mt_tvf_rows *rows = state->rows;
	const struct mt_oea_param *param = &group->params[i];
	const bool is_rated = group->sums.n_rated_rows > 0, has_more = group->n_candidate_rows > 0;
	const bool keeps_all = state->rule == RULE_SIMPLE && i == group->n_params - 1;
	int rc = mt_tvf_int64(rows, (sqlite3_int64)group->sums.n_rated_rows);

	if (rc == SQLITE_OK)
		rc = mt_tvf_known(rows, is_rated, param->lost);
	if (rc == SQLITE_OK)
		rc = mt_tvf_known(rows, is_rated,
			       keeps_all ? 0 : mt_oea_group_lost_quantile(group, i, 0.95));
	if (rc == SQLITE_OK)
		rc = mt_tvf_int64(rows, (sqlite3_int64)group->n_candidate_rows);
	if (rc == SQLITE_OK)
		rc = list_int(rows, has_more, param->n_truncated);
	if (rc == SQLITE_OK)
		rc = mt_tvf_known(rows, has_more, param->retained);
	return rc == SQLITE_OK ? mt_tvf_int64(rows, (sqlite3_int64)group->n_restored_rows) : rc;
}

static int list_interval(struct mt_tvf_rows *rows, const struct mt_oea_group *group, uint32_t i)
{
	struct mt_oea_interval interval = {0};
	const bool is_known = mt_oea_group_interval(group, i, &interval);
	const bool is_rated = is_known && group->sums.n_rated_rows > 0;
	int rc = mt_tvf_known(rows, is_known, interval.ratio_low);

	if (rc == SQLITE_OK)
		rc = mt_tvf_known(rows, is_known, interval.ratio_high);
	if (rc == SQLITE_OK)
		rc = mt_tvf_known(rows, is_known, interval.saved_low);
	if (rc == SQLITE_OK)
		rc = mt_tvf_known(rows, is_known, interval.saved_high);
	if (rc == SQLITE_OK)
		rc = mt_tvf_known(rows, is_rated, interval.lost_low);
	return rc == SQLITE_OK ? mt_tvf_known(rows, is_rated, interval.lost_high) : rc;
}

static int list_ranks(struct mt_tvf_rows *rows, const struct mt_oea_group *group, uint32_t i)
{
	const bool is_known = group->has_ranks && !group->no_map;
	int rc = list_int(rows, is_known, group->rank_active_before);

	return rc == SQLITE_OK ? list_int(rows, is_known, group->params[i].rank_active) : rc;
}

static int group_list(struct state *state, const struct mt_oea_group *group)
{
	int rc = SQLITE_OK;

	if (group->key.refusal != MT_OEA_REFUSED_NONE) {
		rc = list_key(state, group, 0);
		for (int i = 12; rc == SQLITE_OK && i < oea.n_columns; i++)
			rc = mt_tvf_null(state->rows);
		return rc;
	}
	for (uint32_t i = 0; rc == SQLITE_OK && i < group->n_params; i++) {
		rc = list_key(state, group, state->rule == RULE_BUDGET ? state->n_budget : i + 1);
		if (rc == SQLITE_OK)
			rc = list_counts(state->rows, group, &group->params[i]);
		if (rc == SQLITE_OK)
			rc = list_quality(state, group, i);
		if (rc == SQLITE_OK)
			rc = list_interval(state->rows, group, i);
		if (rc == SQLITE_OK)
			rc = list_ranks(state->rows, group, i);
	}
	return rc;
}

/* ---- the function ---- */

static int rule_parse(struct state *state, sqlite3_value *value)
{
	static const char budget[] = "budget:";
	const char *text = value ? (const char *)sqlite3_value_text(value) : "oea";
	char *end = NULL;
	long n;

	if (!text)
		return SQLITE_NOMEM;
	if (mt_oea_form_parse(text, &state->form)) {
		state->rule = mt_oea_form_is_simple(&state->form) ? RULE_SIMPLE : RULE_FORM;
		return SQLITE_OK;
	}
	state->rule = RULE_BUDGET;
	state->form = (struct mt_oea_form){.p = 1, .maxp = UINT32_MAX};
	n = strncmp(text, budget, strlen(budget)) == 0 &&
			    strspn(text + strlen(budget), "0123456789") > 0
		    ? strtol(text + strlen(budget), &end, 10)
		    : 0;
	if (n < 1 || n > 65536 || *end != '\0')
		return mt_tvf_fail(state->rows,
				   "moe_oea: rule '%.60s': give oea or pruned, perhaps with options "
				   "as in oea:kmax=9,p=0.7,maxp=32, or budget:N, N experts from 1 to "
				   "65536",
				   text);
	state->n_budget = (uint32_t)n;
	return SQLITE_OK;
}

static int compute(sqlite3 *db, sqlite3_value *const *arguments, struct mt_tvf_rows *rows)
{
	struct state *state = sqlite3_malloc64(sizeof(*state));
	uint32_t n_ranks;
	int rc;

	if (!state)
		return SQLITE_NOMEM;
	memset(state, 0, sizeof(*state));
	state->rows = rows;
	rc = mt_tvf_uint(rows, &oea, arguments, ARG_BY_LAYER, "by_layer", 0, 1, 1,
			 &state->by_layer);
	if (rc == SQLITE_OK)
		rc = mt_tvf_uint(rows, &oea, arguments, ARG_BY_BATCH, "by_batch", 0, 1, 0,
				 &state->by_batch);
	if (rc == SQLITE_OK)
		rc = rule_parse(state, arguments[ARG_RULE]);
	state->source.any_group = state->form.any_group;
	state->source.by_weight = state->form.by_weight;
	if (rc == SQLITE_OK)
		rc = mt_tvf_uint(rows, &oea, arguments, ARG_RANKS, "n_ranks", 1, 65536, 0, &n_ranks);
	if (rc == SQLITE_OK)
		rc = mt_oea_ranks_open(&state->ranks, rows, oea.name, db, n_ranks,
				       arguments[ARG_PLACEMENT]);
	if (rc == SQLITE_OK)
		rc = mt_oea_source_walk(&state->source, db, oea.name, batch_add, state, &rows->error);
	if (state->groups.n_groups > 0)
		qsort(state->groups.groups, state->groups.n_groups, sizeof(*state->groups.groups),
		      compare_groups);
	for (size_t i = 0; rc == SQLITE_OK && i < state->groups.n_groups; i++)
		rc = group_list(state, state->groups.groups[i]);
	sqlite3_free(state->limits);
	mt_oea_groups_free(&state->groups);
	mt_oea_ranks_close(&state->ranks);
	sqlite3_free(state);
	return rc;
}

int mt_sql_register_oea(sqlite3 *db)
{
	return mt_tvf_register(db, &oea);
}
