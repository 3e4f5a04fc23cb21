/* SPDX-License-Identifier: MIT */
/*
 * From what the scan counted of a layer to findings. A fault has many marks: physical ids are of
 * wrong groups and against the order of the biases, too. So what explains the others is judged
 * first, and they are then not told of.
 */
#include "cli/routing_judge.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool is_explained(const struct routing_causes *causes, enum routing_cause cause)
{
	return causes->n_bad > 0 &&
	       (double)causes->n_explained[cause] >= NEARLY_ALL * (double)causes->n_bad;
}

struct routing_fault routing_judged_fault(const struct routing_judged *j, enum routing_look look,
					  uint64_t n_bad, uint64_t n_seen)
{
	struct routing_fault fault = j->count->faults[look];

	fault.n_bad = n_bad;
	fault.n_seen = n_seen;
	return fault;
}

void routing_judged_find(struct routing_judged *j, enum routing_look look, bool is_proved,
			 const char *rule, struct routing_fault fault, const char *evidence, ...)
{
	char text[512];
	va_list args;

	if (j->status != MT_EXIT_OK)
		return;
	va_start(args, evidence);
	vsnprintf(text, sizeof(text), evidence, args);
	va_end(args);
	j->is_found[look] = true;
	j->status = routing_find(j->routing, look, is_proved, rule,
				 j->count->recording->recording_id, j->layer, &fault, "%s", text);
}

/* ---- ids ---- */

/* How a load is spread: as it is, or, of slots, over the experts in them. False: no memory. */
static bool shares_make(struct routing_judged *j, const struct routing_epoch *epoch,
			bool through_map, double *ret_shares)
{
	const struct routing_layer *layer = j->layer;

	memset(ret_shares, 0, layer->n_experts * sizeof(*ret_shares));
	if (through_map && routing_map_load(j->routing, j->layer, epoch->epoch) != MT_EXIT_OK)
		return false;
	for (uint32_t id = 0; id < layer->n_experts; id++) {
		const int64_t to = through_map ? routing_through_map(layer, id) : id;

		if (to >= 0)
			ret_shares[to] += (double)epoch->load[id] / (double)epoch->n_assignments;
	}
	return true;
}

/* Half of the sum of differences, from 0 to 1. */
static double distance_of(const double *a, const double *b, uint32_t n)
{
	double sum = 0;

	for (uint32_t i = 0; i < n; i++)
		sum += fabs(a[i] - b[i]);
	return sum / 2;
}

/*
 * When the map changes, the popular experts stay the same, and slots change their experts. Chance
 * alone moves a share p of n by about sqrt(p / n), and so a distribution by up to sqrt(experts / n)
 * / 2: the loads must differ by much more than that as they are, and by much less through the maps.
 */
static void epochs_judge(struct routing_judged *j, const struct routing_epoch *a,
			 const struct routing_epoch *b)
{
	const uint32_t n = j->layer->n_experts;
	double *shares = calloc(2 * (size_t)n, sizeof(*shares));
	double told = 0, mapped = 0, chance;

	if (!shares) {
		mt_error("%s: out of memory", j->routing->trace->path);
		j->status = MT_EXIT_FAILED;
		return;
	}
	if (shares_make(j, a, false, shares) && shares_make(j, b, false, shares + n))
		told = distance_of(shares, shares + n, n);
	if (shares_make(j, a, true, shares) && shares_make(j, b, true, shares + n))
		mapped = distance_of(shares, shares + n, n);
	free(shares);
	chance =
		sqrt((double)n / (double)(a->n_assignments < b->n_assignments ? a->n_assignments
									      : b->n_assignments)) /
		2;
	if (told > 3 * chance && mapped < told / 2 && told - mapped > 2 * chance)
		routing_judged_find(
			j, ROUTING_ID_SPACE, false,
			"the load moved with the slots when the expert map changed",
			routing_judged_fault(j, ROUTING_ID_SPACE, b->n_assignments,
					     a->n_assignments + b->n_assignments),
			"maps %lld and %lld: the load by id differs by %.3f of 1, read as slots by "
			"%.3f; "
			"chance gives about %.3f with %llu and %llu assignments",
			(long long)a->epoch, (long long)b->epoch, told, mapped, chance,
			(unsigned long long)a->n_assignments, (unsigned long long)b->n_assignments);
}

static void id_space_judge(struct routing_judged *j)
{
	const struct routing_count *count = j->count;
	const struct {
		const struct routing_causes *causes;
		enum routing_look look;
		const char *rule;
	} marks[] = {
		{&count->bias, ROUTING_CHOICE,
		 "the order of the rows is that of the biases of the experts in these slots"},
		{&count->scores, ROUTING_CHOICE,
		 "the experts in these slots are those that the scores give"},
		{&count->groups, ROUTING_GROUPS,
		 "the experts in these slots are of the groups that were kept"},
	};

	for (size_t i = 0; i < count->n_epochs; i++)
		j->routing->n_seen[ROUTING_ID_SPACE] += count->epochs[i].n_assignments;
	if (count->faults[ROUTING_ID_SPACE].n_bad > 0)
		routing_judged_find(
			j, ROUTING_ID_SPACE, true, "physical_ids beside ids name their slots",
			routing_judged_fault(j, ROUTING_ID_SPACE,
					     count->faults[ROUTING_ID_SPACE].n_bad,
					     count->faults[ROUTING_DUPLICATE_IDS].n_seen),
			"%llu rows have the same numbers as ids and as physical_ids, though the "
			"map "
			"has "
			"other experts in these slots",
			(unsigned long long)count->faults[ROUTING_ID_SPACE].n_bad);
	if (count->n_dispatched_slots >= LEAST_PASSES &&
	    count->n_dispatched_slots == count->n_other_dispatches)
		routing_judged_find(j, ROUTING_ID_SPACE, true,
				    "the dispatch sent tokens to the ranks of these slots",
				    routing_judged_fault(j, ROUTING_ID_SPACE,
							 count->n_dispatched_slots,
							 count->n_dispatches),
				    "in %llu of %llu dispatches the tokens sent to each rank are "
				    "those that the "
				    "ids "
				    "give as slots, and not those that they give as experts",
				    (unsigned long long)count->n_dispatched_slots,
				    (unsigned long long)count->n_dispatches);
	for (size_t i = 0; i < sizeof(marks) / sizeof(marks[0]); i++) {
		if (j->is_found[ROUTING_ID_SPACE] ||
		    !is_explained(marks[i].causes, ROUTING_AS_SLOTS) ||
		    marks[i].causes->n_bad < LEAST_PASSES)
			continue;
		routing_judged_find(
			j, ROUTING_ID_SPACE, true, marks[i].rule,
			routing_judged_fault(j, marks[i].look, marks[i].causes->n_bad,
					     marks[i].causes->n_seen),
			"%llu rows contradict their ids; read through the expert map, %llu of them "
			"do "
			"not",
			(unsigned long long)marks[i].causes->n_bad,
			(unsigned long long)marks[i].causes->n_explained[ROUTING_AS_SLOTS]);
	}
	for (size_t i = 0; i + 1 < count->n_epochs && !j->is_found[ROUTING_ID_SPACE]; i++)
		if (count->epochs[i].n_assignments >= LEAST_LOAD &&
		    count->epochs[i + 1].n_assignments >= LEAST_LOAD)
			epochs_judge(j, &count->epochs[i], &count->epochs[i + 1]);
}

static void duplicates_judge(struct routing_judged *j)
{
	const struct routing_fault fault = j->count->faults[ROUTING_DUPLICATE_IDS];

	if (fault.n_bad > 0)
		routing_judged_find(
			j, ROUTING_DUPLICATE_IDS, true, "a row selects distinct experts", fault,
			"%llu of %llu rows have an expert twice", (unsigned long long)fault.n_bad,
			(unsigned long long)fault.n_seen);
}

/* ---- the choice ---- */

static void groups_judge(struct routing_judged *j)
{
	const struct routing_layer *layer = j->layer;
	const struct routing_causes *scores = &j->count->scores;
	const struct routing_fault fault = j->count->faults[ROUTING_GROUPS];
	const uint64_t n_choice = scores->n_seen;
	static const struct {
		enum routing_cause cause;
		const char *rule;
	} causes[] = {
		{ROUTING_BY_MAX, "groups were kept by their largest score"},
		{ROUTING_BY_TOP2, "groups were kept by the sum of their two largest scores"},
		{ROUTING_WITHOUT_GROUPS, "experts were chosen of all groups"},
	};

	if (fault.n_bad > 0) {
		routing_judged_find(
			j, ROUTING_GROUPS, true, "a row selects experts of topk_groups groups",
			fault, "%llu of %llu rows have experts of more than %u of %u groups",
			(unsigned long long)fault.n_bad, (unsigned long long)fault.n_seen,
			layer->topk_groups, layer->n_groups);
		return;
	}
	for (size_t i = 0; i < sizeof(causes) / sizeof(causes[0]); i++) {
		if (j->is_found[ROUTING_GROUPS] || !is_explained(scores, causes[i].cause))
			continue;
		routing_judged_find(
			j, ROUTING_GROUPS, true, causes[i].rule,
			routing_judged_fault(j, ROUTING_CHOICE, scores->n_bad, n_choice),
			"%llu of %llu rows are not what their scores give with group_top_n %u; by "
			"this rule, %llu of them are",
			(unsigned long long)scores->n_bad, (unsigned long long)n_choice,
			layer->group_top_n,
			(unsigned long long)scores->n_explained[causes[i].cause]);
	}
}

static void bias_judge(struct routing_judged *j)
{
	const struct routing_count *count = j->count;
	const struct routing_causes *bias = &count->bias;
	const uint64_t n_seen = bias->n_seen;

	if (count->n_bias_scores > 0) {
		routing_judged_find(
			j, ROUTING_BIASED_WEIGHTS, true,
			"weights are the scores without their bias",
			routing_judged_fault(j, ROUTING_BIASED_WEIGHTS, count->n_bias_scores,
					     count->n_scores),
			"the weights of %llu of %llu rows are proportional to score + bias, not to "
			"the "
			"scores that are recorded beside them",
			(unsigned long long)count->n_bias_scores,
			(unsigned long long)count->n_scores);
	} else if (count->sums.n_negative > 0 && j->layer->has_bias != 0) {
		routing_judged_find(
			j, ROUTING_BIASED_WEIGHTS, true, "no score is negative",
			routing_judged_fault(j, ROUTING_BIASED_WEIGHTS, count->sums.n_negative,
					     count->sums.n_rows + count->sums.n_negative),
			"%llu rows have weights below 0, which no score function of the layer's "
			"gives "
			"and a negative bias does",
			(unsigned long long)count->sums.n_negative);
	} else if (count->n_scores == 0 && is_explained(bias, ROUTING_BIAS_IN_WEIGHT)) {
		routing_judged_find(
			j, ROUTING_BIASED_WEIGHTS, true,
			"weights do not descend where the bias decides the order",
			routing_judged_fault(j, ROUTING_CHOICE, bias->n_bad, n_seen),
			"the weights of %llu of %llu rows descend, though the biases of their "
			"experts "
			"cannot have let unbiased scores do so; as scores with their bias they can "
			"(or the bias did not act on the choice: candidates would tell)",
			(unsigned long long)bias->n_bad, (unsigned long long)n_seen);
	}
}

/* What no other fault explains. */
static void choice_judge(struct routing_judged *j)
{
	const struct routing_count *count = j->count;
	const struct routing_causes *causes =
		count->scores.n_bad > 0 ? &count->scores : &count->bias;
	const uint64_t n_seen = causes->n_seen;
	const char *rule = "the best experts are chosen, by score and bias, in this order";

	if (causes->n_bad == 0)
		return;
	if (is_explained(causes, ROUTING_WITHOUT_BIAS))
		rule = "the bias did not act on the choice";
	else if (is_explained(causes, ROUTING_BY_BF16))
		rule = "what was compared was rounded to bf16";
	routing_judged_find(j, ROUTING_CHOICE, true, rule,
			    routing_judged_fault(j, ROUTING_CHOICE, causes->n_bad, n_seen),
			    "%llu of %llu rows are not what their %s give",
			    (unsigned long long)causes->n_bad, (unsigned long long)n_seen,
			    count->scores.n_bad > 0 ? "scores"
			    : j->layer->bias	    ? "weights and biases"
						    : "weights");
}

/*
 * Scores that only rounding to 16 bits made equal stand in either order, and ids are names: of
 * distinct pairs of experts about one in two has the higher id first. Where equal scores are real,
 * nearly all pairs go one way.
 */
static void ties_judge(struct routing_judged *j)
{
	uint64_t n_right = 0, n_wrong = 0;

	for (size_t i = 0; i < ROUTING_N_TIES; i++) {
		const struct routing_tie *tie = &j->count->ties[i];

		n_right += tie->n_right > tie->n_wrong;
		n_wrong += tie->n_wrong > tie->n_right;
	}
	if (n_wrong < LEAST_TIES || n_wrong < 9 * n_right)
		return;
	routing_judged_find(
		j, ROUTING_TIE_RULE, false, "of equal scores the lower id comes first",
		routing_judged_fault(j, ROUTING_TIE_RULE, n_wrong, n_right + n_wrong),
		"of %llu pairs of experts with equal scores %llu have the higher id first; chance "
		"would "
		"give half of them, the rule none",
		(unsigned long long)(n_right + n_wrong), (unsigned long long)n_wrong);
}

/* ---- a layer ---- */

static void seen_add(struct routing_judged *j)
{
	struct routing *routing = j->routing;
	const struct routing_count *count = j->count;
	const struct routing_layer *layer = j->layer;
	const uint64_t n_rows = layer->weight_kind ? count->sums.n_rows : 0;

	for (size_t i = 0; i < ROUTING_N_LOOKS; i++)
		routing->n_seen[i] += count->faults[i].n_seen;
	routing->n_seen[ROUTING_FOREIGN_IDS] += count->faults[ROUTING_DUPLICATE_IDS].n_seen;
	routing->n_seen[ROUTING_EQUAL_WEIGHTS] += count->n_equal_seen;
	routing->n_seen[ROUTING_RENORMALIZE] += n_rows;
	if (layer->scoring)
		routing->n_seen[ROUTING_SCORING] += n_rows;
	if (fabs(layer->factor - 1) > 0.05)
		routing->n_seen[ROUTING_SCALING] += n_rows;
	if (layer->n_shared > 0 && layer->weight_kind & ROUTING_RENORMALIZED)
		routing->n_seen[ROUTING_NORM_SHARED] += n_rows;
	for (size_t i = 0; i < 4; i++)
		routing->n_seen[ROUTING_ROUTER_OUTPUT] += count->n_passes[i];
}

static void no_weights_judge(struct routing_judged *j)
{
	const struct routing_count *count = j->count;
	const struct routing_fault fault = count->faults[ROUTING_NO_WEIGHTS];
	const bool is_proved = count->n_weightless > 0;

	if (!is_proved && fault.n_bad < LEAST_ROWS)
		return;
	routing_judged_find(j, ROUTING_NO_WEIGHTS, is_proved,
			    "a row has a positive and only finite weights", fault,
			    "of %llu of %llu rows the weights are all 0, or NaN or infinite, and "
			    "so nothing else "
			    "was looked at in them",
			    (unsigned long long)fault.n_bad, (unsigned long long)fault.n_seen);
}

static void equal_judge(struct routing_judged *j)
{
	const struct routing_count *count = j->count;

	if (count->n_equal_seen < LEAST_ROWS ||
	    (double)count->n_equal < 0.95 * (double)count->n_equal_seen)
		return;
	routing_judged_find(
		j, ROUTING_EQUAL_WEIGHTS, true, "a router prefers some experts to others",
		routing_judged_fault(j, ROUTING_EQUAL_WEIGHTS, count->n_equal, count->n_equal_seen),
		"%llu of %llu rows have the same weight for every expert",
		(unsigned long long)count->n_equal, (unsigned long long)count->n_equal_seen);
}

static void counts_judge(struct routing_judged *j)
{
	const struct routing_count *count = j->count;

	if (count->n_told < LEAST_PASSES || count->n_multiple != count->n_told)
		return;
	routing_judged_find(
		j, ROUTING_RANK_MULTIPLIED, true, "counts are rows times top_k",
		routing_judged_fault(j, ROUTING_RANK_MULTIPLIED, count->n_multiple, count->n_told),
		"the counts of all of %llu passes are exactly %llu times their rows times top_k",
		(unsigned long long)count->n_told, (unsigned long long)count->multiple);
}

static int layer_judge(struct routing *routing, struct routing_count *count)
{
	struct routing_judged j = {.routing = routing, .count = count, .layer = count->layer};

	seen_add(&j);
	no_weights_judge(&j);
	equal_judge(&j);
	if (!j.is_found[ROUTING_EQUAL_WEIGHTS])
		id_space_judge(&j);
	duplicates_judge(&j);
	if (!j.is_found[ROUTING_ID_SPACE])
		groups_judge(&j);
	if (!j.is_found[ROUTING_ID_SPACE] && !j.is_found[ROUTING_EQUAL_WEIGHTS]) {
		bias_judge(&j);
		if (!j.is_found[ROUTING_GROUPS] && !j.is_found[ROUTING_BIASED_WEIGHTS])
			choice_judge(&j);
		ties_judge(&j);
	}
	routing_judge_weights(&j);
	counts_judge(&j);
	return j.status;
}

int routing_judge(struct routing *routing)
{
	int status = MT_EXIT_OK;

	for (size_t i = 0; i < routing->n_recordings; i++)
		for (size_t k = 0; k < routing->n_layers && status == MT_EXIT_OK; k++)
			if (routing->recordings[i].counts[k])
				status = layer_judge(routing, routing->recordings[i].counts[k]);
	return status;
}
