/* SPDX-License-Identifier: MIT */
/*
 * One stored row: duplicates, the groups that its experts are of, what its weights add up to,
 * whether they are all the same, and neighbours of equal score. Of right rows counters alone are
 * kept; what contradicts the layer's description is kept in words, too, for the first rows.
 */
#include "cli/routing.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/bytes.h"

/* Sums of a few weights of 16 bits differ by far less; factors that matter by far more. */
#define SUM_TOLERANCE 0.02f
/* The smallest normal number of fp16: below, equal bits are no equal scores. */
#define LEAST_TIED 0x1p-14

/* ---- words ---- */

static char *row_text(const struct routing *routing, const struct routing_row *row)
{
	char *text = NULL;
	size_t n_bytes;
	FILE *out = open_memstream(&text, &n_bytes);

	if (!out)
		return NULL;
	fputs("experts", out);
	for (size_t j = 0; j < row->n; j++)
		fprintf(out, "%s%u", j ? "," : " ", (unsigned)routing_id(row, j));
	if (row->weights)
		fputs("; weights", out);
	for (size_t j = 0; row->weights && j < row->n; j++)
		fprintf(out, "%s%.4g", j ? "," : " ", routing_weight(routing, row, j));
	return fclose(out) == 0 ? text : NULL;
}

void routing_row_bad(struct routing *routing, const struct routing_row *row, enum routing_look look)
{
	struct routing_fault *fault = &row->count->faults[look];
	struct routing_example *example;
	size_t in_pass = row->i;

	if (fault->n_bad++ >= ROUTING_N_EXAMPLES)
		return;
	example = &fault->examples[fault->n_bad - 1];
	if (row->run->row_map && mt_reader_map_row(&routing->reader, row->i, &in_pass) != SQLITE_OK)
		in_pass = row->i;
	example->pass_id = routing->reader.pass_id;
	example->row = (int64_t)in_pass;
	example->text = row_text(routing, row);
}

/* ---- ids ---- */

static bool are_of_layer(const struct routing_row *row)
{
	bool is_beyond = false;

	for (size_t j = 0; j < row->n; j++)
		is_beyond |= routing_id(row, j) >= row->layer->n_ids;
	return !is_beyond;
}

/* Whether a row's experts are distinct. */
static bool ids_take(struct routing *routing, const struct routing_row *row)
{
	bool is_twice = false;

	routing_serial_next(routing);
	for (size_t j = 0; j < row->n; j++) {
		const uint32_t id = routing_id(row, j);

		is_twice |= routing->row_of_id[id] == routing->serial;
		routing->row_of_id[id] = routing->serial;
	}
	row->count->faults[ROUTING_DUPLICATE_IDS].n_seen++;
	if (is_twice)
		routing_row_bad(routing, row, ROUTING_DUPLICATE_IDS);
	return !is_twice;
}

/* Slots that are written beside experts, yet are their numbers, where the map says otherwise. */
static void physical_take(struct routing *routing, const struct routing_row *row)
{
	const struct mt_run *run = row->run;
	const uint8_t *p = run->physical_ids + row->stored * run->k * run->physical_id_bytes;
	bool is_same = false;

	for (size_t j = 0; j < row->n; j++) {
		const uint32_t id = routing_id(row, j);
		const uint32_t slot = mt_narrow_at(p, (size_t)run->physical_id_bytes, j);

		if (slot != id)
			return;
		is_same |= id < row->layer->n_experts &&
			   routing_through_map(row->layer, slot) != (int64_t)id;
	}
	if (is_same)
		routing_row_bad(routing, row, ROUTING_ID_SPACE);
}

/* The groups of a row's experts, one bit each; through the map, of the experts in these slots. */
static uint64_t groups_of(const struct routing_row *row, bool through_map)
{
	const struct routing_layer *layer = row->layer;
	uint64_t groups = 0;

	for (size_t j = 0; j < row->n; j++) {
		int64_t id = routing_id(row, j);

		if (through_map)
			id = routing_through_map(layer, (uint32_t)id);
		if (id >= 0 && id < layer->n_experts)
			groups |= UINT64_C(1) << layer->group_of[id];
	}
	return groups;
}

static void groups_take(struct routing *routing, const struct routing_row *row)
{
	const int most = (int)row->layer->topk_groups;
	struct routing_count *count = row->count;

	count->faults[ROUTING_GROUPS].n_seen++;
	if (__builtin_popcountll(groups_of(row, false)) <= most)
		return;
	routing_row_bad(routing, row, ROUTING_GROUPS);
	count->groups.n_bad++;
	if (row->layer->slot_experts && __builtin_popcountll(groups_of(row, true)) <= most)
		count->groups.n_explained[ROUTING_AS_SLOTS]++;
}

/* ---- ties ---- */

void routing_tie_take(struct routing_count *count, uint32_t before, uint32_t after)
{
	const uint16_t low = (uint16_t)(before < after ? before : after);
	const uint16_t high = (uint16_t)(before < after ? after : before);
	size_t at = ((size_t)low * 31 + high) % ROUTING_N_TIES;
	struct routing_tie *tie;

	for (size_t i = 0; i < ROUTING_N_TIES; i++, at = (at + 1) % ROUTING_N_TIES) {
		tie = &count->ties[at];
		if (tie->low == tie->high) {
			tie->low = low;
			tie->high = high;
			count->n_ties++;
		}
		if (tie->low == low && tie->high == high)
			break;
	}
	tie = &count->ties[at];
	if (before == after || tie->low != low || tie->high != high)
		return;
	if (before < after)
		tie->n_right++;
	else
		tie->n_wrong++;
}

/* Equal weights mean equal scores where the same, or nothing, was added to both. */
static void tie_look(struct routing *routing, const struct routing_row *row, uint32_t before,
		     uint32_t after, double weight)
{
	const struct routing_layer *layer = row->layer;

	if (weight < LEAST_TIED || before >= layer->n_columns || after >= layer->n_columns ||
	    (layer->bias && layer->bias[before] != layer->bias[after]))
		return;
	if (before > after && row->count->faults[ROUTING_TIE_RULE].n_bad < ROUTING_N_EXAMPLES)
		routing_row_bad(routing, row, ROUTING_TIE_RULE);
	routing_tie_take(row->count, before, after);
}

static void ties_take(struct routing *routing, const struct routing_row *row)
{
	const struct routing_layer *layer = row->layer;
	uint32_t bits;

	if (layer->has_bias != 0 && !layer->bias)
		return;
	row->count->faults[ROUTING_TIE_RULE].n_seen++;
	bits = routing_bits(row, 0);
	for (size_t j = 1; j < row->n; j++) {
		const uint32_t last = bits;

		bits = routing_bits(row, j);
		if (bits == last)
			tie_look(routing, row, routing_id(row, j - 1), routing_id(row, j),
				 routing_weight(routing, row, j));
	}
}

/* ---- weights ---- */

struct weighed {
	float sum;	  /* of the routed entries */
	float shared_sum; /* of the shared ones */
	float largest;
	float smallest;
	bool are_equal; /* all routed ones */
	size_t n_routed;
};

static struct weighed weigh(const struct routing *routing, const struct routing_row *row)
{
	const float *widen = routing->widen[row->is_bf16];
	const uint32_t n_columns = row->layer->n_columns;
	const bool has_shared = row->layer->n_shared > 0;
	struct weighed w = {.smallest = INFINITY, .are_equal = true};
	uint32_t first = 0;

	for (size_t j = 0; j < row->n; j++) {
		const uint32_t bits = routing_bits(row, j);
		const float weight = widen[bits];

		if (has_shared && routing_id(row, j) >= n_columns) {
			w.shared_sum += weight;
			continue;
		}
		first = w.n_routed++ ? first : bits;
		w.are_equal &= bits == first;
		w.sum += weight;
		w.largest = weight > w.largest ? weight : w.largest;
		w.smallest = weight < w.smallest ? weight : w.smallest;
	}
	return w;
}

static bool is_near(float sum, double target)
{
	return fabsf(sum - (float)target) <= SUM_TOLERANCE * (float)target;
}

/* A sum that is not the expected one: which other rules give it. */
static void sum_explain(struct routing *routing, const struct routing_row *row,
			const struct weighed *w)
{
	const struct routing_layer *layer = row->layer;
	struct routing_sums *sums = &row->count->sums;
	const bool is_scaled = (layer->weight_kind & ROUTING_SCALED) != 0;
	const bool has_factor = fabs(layer->factor - 1) > 2 * (double)SUM_TOLERANCE;
	bool by_factor = false;

	if (has_factor && is_scaled) {
		sums->n_never += is_near(w->sum, 1);
		sums->n_twice += is_near(w->sum, layer->factor * layer->factor);
		by_factor = is_near(w->sum, 1) || is_near(w->sum, layer->factor * layer->factor);
	} else if (has_factor) {
		sums->n_scaled += is_near(w->sum, layer->factor);
		by_factor = is_near(w->sum, layer->factor);
	}
	if (layer->n_shared > 0 && is_near(w->sum + w->shared_sum, layer->expected))
		sums->n_shared++;
	if (by_factor)
		routing_row_bad(routing, row, ROUTING_SCALING);
	else
		routing_row_bad(routing, row, ROUTING_RENORMALIZE);
}

/* What a score function and a factor cannot give: sums of softmax or single scores above 1. */
static void bounds_take(struct routing *routing, const struct routing_row *row,
			const struct weighed *w)
{
	const struct routing_layer *layer = row->layer;
	struct routing_sums *sums = &row->count->sums;
	const float most = (float)layer->expected * (1 + SUM_TOLERANCE);
	const float least = (float)(layer->expected * (double)w->n_routed / layer->n_columns);
	float top;

	if (layer->scoring != ROUTING_SOFTMAX && layer->scoring != ROUTING_SIGMOID &&
	    layer->scoring != ROUTING_SPARSEMIXER)
		return;
	top = layer->scoring == ROUTING_SOFTMAX ? w->sum : w->largest;
	if (top > most) {
		sums->n_over++;
		routing_row_bad(routing, row, ROUTING_SCORING);
	}
	/* The best of all columns are not below the average; a bias may choose others. */
	sums->n_under += layer->scoring == ROUTING_SOFTMAX && row->is_own && !layer->group_of &&
			 layer->has_bias == 0 && w->sum < least * (1 - SUM_TOLERANCE);
}

static void shared_take(struct routing_count *count, const struct routing_row *row,
			const struct weighed *w)
{
	const double mean = (double)w->shared_sum / (double)row->layer->n_shared;

	if (w->n_routed + row->layer->n_shared != row->n)
		return;
	if (count->n_shared_seen++ == 0)
		count->min_shared = count->max_shared = mean;
	count->min_shared = mean < count->min_shared ? mean : count->min_shared;
	count->max_shared = mean > count->max_shared ? mean : count->max_shared;
}

static void sums_take(struct routing *routing, struct routing_row *row, const struct weighed *w)
{
	const struct routing_layer *layer = row->layer;
	struct routing_sums *sums = &row->count->sums;

	sums->total += (double)w->sum;
	if (sums->n_rows++ == 0)
		sums->min_sum = sums->max_sum = (double)w->sum;
	sums->min_sum = (double)w->sum < sums->min_sum ? (double)w->sum : sums->min_sum;
	sums->max_sum = (double)w->sum > sums->max_sum ? (double)w->sum : sums->max_sum;
	if ((double)w->largest > sums->max_weight)
		sums->max_weight = (double)w->largest;
	if (layer->weight_kind & ROUTING_RENORMALIZED ||
	    (layer->weight_kind && layer->scoring == ROUTING_SOFTMAX_SELECTED)) {
		if (is_near(w->sum, layer->expected))
			sums->n_ok++;
		else
			sum_explain(routing, row, w);
	} else if (layer->weight_kind) {
		bounds_take(routing, row, w);
	}
}

/* Runtimes may clear the weights of zero experts, which nobody computes. */
static bool has_expert(const struct routing_row *row)
{
	for (size_t j = 0; j < row->n; j++)
		if (routing_id(row, j) < row->layer->n_experts)
			return true;
	return false;
}

/*
 * Weights that are divided by their sum have one, and the best of a softmax are above 0; other
 * scores may all be less than 16 bits can tell from 0.
 */
static bool cannot_vanish(const struct routing_row *row)
{
	const struct routing_layer *layer = row->layer;

	return layer->weight_kind & ROUTING_RENORMALIZED ||
	       layer->scoring == ROUTING_SOFTMAX_SELECTED ||
	       (layer->scoring == ROUTING_SOFTMAX && row->is_own && layer->has_bias == 0 &&
		layer->weight_kind);
}

static void weightless_take(struct routing *routing, const struct routing_row *row, bool is_proved)
{
	row->count->n_weightless += is_proved;
	routing_row_bad(routing, row, ROUTING_NO_WEIGHTS);
}

static void weights_take(struct routing *routing, struct routing_row *row)
{
	struct routing_count *count = row->count;
	const struct weighed w = weigh(routing, row);

	count->faults[ROUTING_NO_WEIGHTS].n_seen++;
	if (!isfinite(w.sum) || !isfinite(w.shared_sum)) {
		weightless_take(routing, row, true);
		return;
	}
	if (w.n_routed == 0)
		return;
	if (w.smallest < 0) {
		count->sums.n_negative++;
		routing_row_bad(routing, row, ROUTING_BIASED_WEIGHTS);
		return;
	}
	if (w.sum <= 0) {
		if (has_expert(row))
			weightless_take(routing, row, cannot_vanish(row));
		return;
	}
	row->sum = (double)w.sum;
	row->is_weighed = true;
	sums_take(routing, row, &w);
	if (row->layer->n_shared > 0)
		shared_take(count, row, &w);
	if (w.n_routed > 1) {
		count->n_equal_seen++;
		count->n_equal += w.are_equal;
		if (w.are_equal && count->faults[ROUTING_EQUAL_WEIGHTS].n_bad < ROUTING_N_EXAMPLES)
			routing_row_bad(routing, row, ROUTING_EQUAL_WEIGHTS);
	}
}

/* Without a bias, weights descend with their scores; those of zero experts may be cleared. */
static void order_take(struct routing *routing, const struct routing_row *row)
{
	const double epsilon = row->is_bf16 ? 0x1p-7 : 0x1p-10;
	struct routing_count *count = row->count;
	double last = INFINITY;

	if (count->recording->is_replay || row->layer->scoring == ROUTING_SCORING_UNKNOWN ||
	    row->layer->scoring == ROUTING_SPARSEMIXER)
		return;
	count->bias.n_seen++;
	count->faults[ROUTING_CHOICE].n_seen++;
	for (size_t j = 0; j < row->n; j++) {
		const double weight = routing_weight(routing, row, j);

		if (routing_id(row, j) >= row->layer->n_experts)
			continue;
		if (weight - last > (weight + last) * epsilon + 0x1p-24) {
			count->bias.n_bad++;
			routing_row_bad(routing, row, ROUTING_CHOICE);
			return;
		}
		last = weight;
	}
}

/* A whole row of the router: its weights, and their order. */
static void whole_take(struct routing *routing, struct routing_row *row)
{
	weights_take(routing, row);
	if (!row->is_weighed || !row->is_ordered)
		return;
	if (row->layer->bias)
		routing_bias_take(routing, row);
	else if (row->layer->has_bias == 0)
		order_take(routing, row);
	ties_take(routing, row);
}

bool routing_row_take(struct routing *routing, struct routing_row *row)
{
	bool is_distinct;

	if (!are_of_layer(row))
		return false;
	is_distinct = ids_take(routing, row);
	if (row->run->physical_ids && row->layer->slot_experts)
		physical_take(routing, row);
	if (row->layer->group_of && row->is_own)
		groups_take(routing, row);
	if (row->weights && is_distinct && row->n == row->layer->top_k && !row->run->has_rule)
		whole_take(routing, row);
	return true;
}
