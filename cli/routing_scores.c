/* SPDX-License-Identifier: MIT */
/*
 * A row against the scores that were recorded beside it: the choice, with groups and bias, and the
 * weights. Scores are of 16 bits, so that each is an interval; only what holds for no value in it
 * counts. What the description does not give is tried by other rules, so that a fault gets a name.
 * Without the scores of all experts, groups cannot be told and are not tried.
 */
#include "cli/routing.h"

#include <math.h>
#include <string.h>

#include "common/bytes.h"

enum { MAX_TOP_N = 32 };

/* A rule of the choice. */
struct choice_rule {
	uint32_t top_n; /* of a group's score; 0: no groups */
	bool has_bias;
	bool through_map;
	bool is_rounded; /* to bf16, before it was compared */
};

/* The scores of a row: routing->scores, NAN where none is known, and what they may be off by. */
struct scored {
	const struct routing *routing;
	const struct routing_row *row;
	bool is_full; /* all candidates */
	double sum;   /* of them */
};

static double rounding_of(double score, bool is_bf16)
{
	return is_bf16 ? fabs(score) * 0x1p-8 : fabs(score) * 0x1p-11 + 0x1p-25;
}

/* False: a score that is none. */
static bool scores_read(struct routing *routing, const struct routing_row *row, struct scored *ret)
{
	const struct mt_run *run = row->run;
	const uint32_t n_columns = row->layer->n_columns;
	const bool is_bf16 = run->score_format == MT_WEIGHT_BF16;
	const uint8_t *ids = run->candidate_ids + row->stored * run->n_candidates * run->id_bytes;
	const uint8_t *bits = run->candidate_scores + row->stored * run->n_candidates * 2;
	uint32_t n_known = 0;

	*ret = (struct scored){.routing = routing, .row = row};
	for (uint32_t i = 0; i < n_columns; i++)
		routing->scores[i] = NAN;
	for (size_t j = 0; j < run->n_candidates; j++) {
		const uint32_t id = mt_narrow_at(ids, (size_t)run->id_bytes, j);
		const double score = (double)routing->widen[is_bf16][mt_u16_at(bits + 2 * j)];

		if (id >= n_columns)
			continue;
		if (!isfinite(score))
			return false;
		n_known += isnan(routing->scores[id]);
		routing->scores[id] = score;
		routing->errors[id] = rounding_of(score, is_bf16) + (fabs(score) + 1) * 0x1p-22;
		ret->sum += score;
	}
	ret->is_full = n_known == n_columns;
	return n_known > 0;
}

/* ---- the choice ---- */

static double key_of(const struct scored *scored, const struct choice_rule *rule, uint32_t id,
		     double *ret_error)
{
	const struct routing_layer *layer = scored->row->layer;
	const double bias = rule->has_bias && layer->bias ? (double)layer->bias[id] : 0;
	const double key = scored->routing->scores[id] + bias;

	*ret_error = scored->routing->errors[id] + fabs(key) * 0x1p-22;
	if (rule->is_rounded)
		*ret_error += fabs(key) * 0x1p-8;
	return key;
}

/* The sum of the @top_n largest keys of a group, all of them lowered or raised by their error. */
static double group_score(const struct scored *scored, const struct choice_rule *rule,
			  uint32_t group, double sign)
{
	const struct routing_layer *layer = scored->row->layer;
	const uint32_t size = layer->n_experts / layer->n_groups;
	const uint32_t most = size < MAX_TOP_N ? size : MAX_TOP_N;
	const uint32_t top_n = rule->top_n < most ? rule->top_n : most;
	double best[MAX_TOP_N];
	double sum = 0;
	uint32_t n = 0;

	for (uint32_t i = 0; i < size; i++) {
		double error;
		double key = key_of(scored, rule, group * size + i, &error);
		uint32_t at;

		key += sign * error;
		if (n < top_n)
			n++;
		else if (key <= best[n - 1])
			continue;
		for (at = n - 1; at > 0 && best[at - 1] < key; at--)
			best[at] = best[at - 1];
		best[at] = key;
	}
	for (uint32_t i = 0; i < n; i++)
		sum += best[i];
	return sum;
}

/* The groups that may have been kept, and those that must have been. */
static void groups_keep(const struct scored *scored, const struct choice_rule *rule,
			uint64_t *ret_may, uint64_t *ret_must)
{
	const struct routing_layer *layer = scored->row->layer;
	double low[ROUTING_MAX_GROUPS], high[ROUTING_MAX_GROUPS];

	*ret_may = *ret_must = 0;
	for (uint32_t g = 0; g < layer->n_groups; g++) {
		low[g] = group_score(scored, rule, g, -1);
		high[g] = group_score(scored, rule, g, 1);
	}
	for (uint32_t g = 0; g < layer->n_groups; g++) {
		uint32_t n_above = 0, n_maybe_above = 0;

		for (uint32_t other = 0; other < layer->n_groups; other++) {
			n_above += low[other] > high[g];
			n_maybe_above += other != g && high[other] >= low[g];
		}
		if (n_above < layer->topk_groups)
			*ret_may |= UINT64_C(1) << g;
		if (n_maybe_above < layer->topk_groups)
			*ret_must |= UINT64_C(1) << g;
	}
}

/* Whether the selected experts can be the best by @rule; the others' marks are of this row. */
static bool choice_holds(struct routing *routing, const struct scored *scored,
			 const struct choice_rule *rule)
{
	const struct routing_layer *layer = scored->row->layer;
	uint64_t may = UINT64_MAX, must = UINT64_MAX;
	double least = INFINITY;

	if (rule->top_n)
		groups_keep(scored, rule, &may, &must);
	routing_serial_next(routing);
	for (size_t j = 0; j < scored->row->n; j++) {
		int64_t id = routing_id(scored->row, j);
		double error, key;

		if (id >= layer->n_columns)
			continue;
		if (rule->through_map)
			id = routing_through_map(layer, (uint32_t)id);
		if (id < 0 || isnan(routing->scores[id]))
			return id >= 0;
		if (rule->top_n && !(may >> layer->group_of[id] & 1))
			return false;
		routing->row_of_id[id] = routing->serial;
		key = key_of(scored, rule, (uint32_t)id, &error);
		least = fmin(least, key + error);
	}
	for (uint32_t id = 0; id < layer->n_columns; id++) {
		double error, key;

		if (routing->row_of_id[id] == routing->serial || isnan(routing->scores[id]) ||
		    (rule->top_n && !(must >> layer->group_of[id] & 1)))
			continue;
		key = key_of(scored, rule, id, &error);
		if (key - error > least)
			return false;
	}
	return true;
}

/* How the layer says that it chooses; top_n of groups whose rule is not told is 0. */
static struct choice_rule told_rule(const struct routing_layer *layer)
{
	return (struct choice_rule){
		.has_bias = layer->has_bias == 1,
		.top_n = layer->group_of ? layer->group_top_n : 0,
	};
}

/* Where the rule of the groups is not told, either of the usual ones will do. */
static bool told_holds(struct routing *routing, const struct scored *scored)
{
	const struct routing_layer *layer = scored->row->layer;
	struct choice_rule rule = told_rule(layer);

	if (!layer->group_of || rule.top_n)
		return choice_holds(routing, scored, &rule);
	rule.top_n = 1;
	if (choice_holds(routing, scored, &rule))
		return true;
	rule.top_n = 2;
	return choice_holds(routing, scored, &rule);
}

static void choice_explain(struct routing *routing, const struct scored *scored)
{
	const struct routing_layer *layer = scored->row->layer;
	const struct choice_rule told = told_rule(layer);
	struct choice_rule rules[ROUTING_N_CAUSES];
	bool is_tried[ROUTING_N_CAUSES] = {false};
	struct routing_causes *causes = &scored->row->count->scores;

	for (size_t i = 0; i < ROUTING_N_CAUSES; i++)
		rules[i] = told;
	rules[ROUTING_AS_SLOTS].through_map = true;
	is_tried[ROUTING_AS_SLOTS] = layer->slot_experts != NULL;
	rules[ROUTING_WITHOUT_GROUPS].top_n = 0;
	is_tried[ROUTING_WITHOUT_GROUPS] = layer->group_of != NULL;
	rules[ROUTING_BY_MAX].top_n = 1;
	is_tried[ROUTING_BY_MAX] = layer->group_of && told.top_n > 1;
	rules[ROUTING_BY_TOP2].top_n = 2;
	is_tried[ROUTING_BY_TOP2] = layer->group_of && told.top_n == 1;
	rules[ROUTING_WITHOUT_BIAS].has_bias = false;
	is_tried[ROUTING_WITHOUT_BIAS] = layer->bias != NULL;
	rules[ROUTING_BY_BF16].is_rounded = true;
	is_tried[ROUTING_BY_BF16] = true;
	causes->n_bad++;
	for (size_t i = 0; i < ROUTING_N_CAUSES; i++)
		if (is_tried[i] && choice_holds(routing, scored, &rules[i]))
			causes->n_explained[i]++;
}

/* The cut between the last that was taken and the first that was not, where they are equal. */
static void cut_take(struct routing *routing, const struct scored *scored)
{
	const struct routing_row *row = scored->row;
	const struct routing_layer *layer = row->layer;
	int64_t last = -1;

	if (layer->group_of)
		return;
	for (size_t j = 0; j < row->n; j++) {
		const uint32_t id = routing_id(row, j);

		if (id < layer->n_columns && !isnan(routing->scores[id]))
			last = last >= 0 && routing->scores[last] <= routing->scores[id] ? last
											 : id;
	}
	if (last < 0 || !scored->is_full || layer->has_bias != 0 || routing->scores[last] < 0x1p-14)
		return;
	for (uint32_t id = 0; id < layer->n_columns; id++) {
		if (routing->row_of_id[id] == routing->serial ||
		    routing->scores[id] != routing->scores[last])
			continue;
		if (last > id && row->count->faults[ROUTING_TIE_RULE].n_bad < ROUTING_N_EXAMPLES)
			routing_row_bad(routing, row, ROUTING_TIE_RULE);
		routing_tie_take(row->count, (uint32_t)last, id);
	}
}

static void choice_take(struct routing *routing, const struct scored *scored)
{
	const struct routing_row *row = scored->row;
	const struct routing_layer *layer = row->layer;
	const bool has_scores = scored->is_full || (!layer->group_of && layer->n_zero == 0);

	/* An unknown bias leaves the choice open; and so do groups, without all scores. */
	if (!row->is_own || !has_scores || (layer->has_bias != 0 && !layer->bias) ||
	    layer->group_top_n > MAX_TOP_N)
		return;
	row->count->scores.n_seen++;
	row->count->faults[ROUTING_CHOICE].n_seen++;
	if (told_holds(routing, scored)) {
		cut_take(routing, scored);
		return;
	}
	routing_row_bad(routing, row, ROUTING_CHOICE);
	choice_explain(routing, scored);
}

/* ---- the weights ---- */

/* The ratios of weights to scores, as far as both are known; their mean where they agree. */
static bool ratios_agree(const struct scored *scored, bool with_bias, double tolerance,
			 size_t *ret_n, double *ret_ratio)
{
	const struct routing_layer *layer = scored->row->layer;
	double low = INFINITY, high = 0;
	size_t n = 0;

	for (size_t j = 0; j < scored->row->n; j++) {
		const uint32_t id = routing_id(scored->row, j);
		double score, weight;

		if (id >= layer->n_columns || isnan(scored->routing->scores[id]))
			continue;
		score = scored->routing->scores[id];
		if (with_bias)
			score += (double)layer->bias[id];
		weight = routing_weight(scored->routing, scored->row, j);
		/* Below, 16 bits tell too little of either. */
		if (fabs(score) < 1e-3 || fabs(weight) < 1e-3)
			continue;
		low = fmin(low, weight / score);
		high = fmax(high, weight / score);
		n++;
	}
	*ret_n = n;
	*ret_ratio = (low + high) / 2;
	return n < 2 || (low > 0 && high <= low * (1 + tolerance));
}

static bool is_near(double ratio, double target)
{
	return fabs(ratio - target) <= 0.02 * target;
}

/* What scores that are not renormalized were multiplied by. */
static void ratio_take(struct routing *routing, const struct routing_row *row, double ratio)
{
	const struct routing_layer *layer = row->layer;
	const bool is_scaled = (layer->weight_kind & ROUTING_SCALED) != 0;
	struct routing_sums *ratios = &row->count->ratios;

	if (layer->weight_kind == 0 || layer->weight_kind & ROUTING_RENORMALIZED ||
	    fabs(layer->factor - 1) < 0.05)
		return;
	ratios->n_rows++;
	if (is_near(ratio, layer->expected)) {
		ratios->n_ok++;
		return;
	}
	ratios->n_never += is_scaled && is_near(ratio, 1);
	ratios->n_twice += is_scaled && is_near(ratio, layer->factor * layer->factor);
	ratios->n_scaled += !is_scaled && is_near(ratio, layer->factor);
	routing_row_bad(routing, row, ROUTING_SCALING);
}

static void weights_hold(struct routing *routing, const struct scored *scored)
{
	const struct routing_row *row = scored->row;
	const struct routing_layer *layer = row->layer;
	struct routing_count *count = row->count;
	const bool is_bf16 = row->is_bf16 || row->run->score_format == MT_WEIGHT_BF16;
	const double tolerance = is_bf16 ? 0.04 : 0.005;
	double ratio;
	size_t n;

	if (layer->scoring != ROUTING_SOFTMAX && layer->scoring != ROUTING_SIGMOID &&
	    layer->scoring != ROUTING_SQRTSOFTPLUS)
		return;
	if (ratios_agree(scored, false, tolerance, &n, &ratio)) {
		if (n >= 1)
			ratio_take(routing, row, ratio);
		count->n_scores += n >= 2;
		count->faults[ROUTING_BIASED_WEIGHTS].n_seen += n >= 2 && layer->bias;
		return;
	}
	count->n_scores++;
	count->faults[ROUTING_BIASED_WEIGHTS].n_seen += layer->bias != NULL;
	count->n_not_scores++;
	if (layer->bias && ratios_agree(scored, true, tolerance, &n, &ratio)) {
		count->n_bias_scores++;
		routing_row_bad(routing, row, ROUTING_BIASED_WEIGHTS);
	} else {
		routing_row_bad(routing, row, ROUTING_SCORING);
	}
}

/* Raw weights are the scores of what was selected, where it is not among the candidates. */
static void selected_fill(struct routing *routing, const struct routing_row *row)
{
	const struct routing_layer *layer = row->layer;

	if (!row->is_weighed || layer->expected != 1 || layer->weight_kind & ROUTING_RENORMALIZED ||
	    layer->weight_kind == 0 || layer->scoring == ROUTING_SOFTMAX_SELECTED ||
	    layer->scoring == ROUTING_SPARSEMIXER)
		return;
	for (size_t j = 0; j < row->n; j++) {
		const uint32_t id = routing_id(row, j);

		if (id >= layer->n_columns || !isnan(routing->scores[id]))
			continue;
		routing->scores[id] = routing_weight(routing, row, j);
		routing->errors[id] = rounding_of(routing->scores[id], row->is_bf16) +
				      (fabs(routing->scores[id]) + 1) * 0x1p-22;
	}
}

void routing_scores_take(struct routing *routing, const struct routing_row *row)
{
	struct scored scored;

	if (!scores_read(routing, row, &scored))
		return;
	if (row->is_weighed)
		weights_hold(routing, &scored);
	selected_fill(routing, row);
	choice_take(routing, &scored);
	if (scored.is_full) {
		row->count->n_sum_scores++;
		row->count->n_sum_one += fabs(scored.sum - 1) < 0.02;
	}
}
