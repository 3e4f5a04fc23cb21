/* SPDX-License-Identifier: MIT */
/*
 * From what the scan counted of a layer to findings. A fault has many marks: physical ids are of
 * wrong groups and against the order of the biases, too. So what explains the others is judged
 * first, and they are then not told of. How much evidence a statistical finding needs stands here.
 */
#include "cli/routing.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Rows, pairs, passes and assignments below which nothing statistical is said. */
#define LEAST_ROWS   64
#define LEAST_TIES   32
#define LEAST_PASSES 4
#define LEAST_LOAD   500
/* The share of the rows that contradict that a cause must explain. */
#define NEARLY_ALL 0.99
#define NEAR	   0.005

struct judged {
	struct routing *routing;
	struct routing_count *count;
	struct routing_layer *layer;
	bool is_found[ROUTING_N_LOOKS];
	int status;
};

static bool is_explained(const struct routing_causes *causes, enum routing_cause cause)
{
	return causes->n_bad > 0 &&
	       (double)causes->n_explained[cause] >= NEARLY_ALL * (double)causes->n_bad;
}

/* Several looks count into one fault: here are the numbers of one of them. */
static struct routing_fault fault_of(const struct judged *j, enum routing_look look, uint64_t n_bad,
				     uint64_t n_seen)
{
	struct routing_fault fault = j->count->faults[look];

	fault.n_bad = n_bad;
	fault.n_seen = n_seen;
	return fault;
}

__attribute__((format(printf, 6, 7))) static void find(struct judged *j, enum routing_look look,
						       bool is_proved, const char *rule,
						       struct routing_fault fault,
						       const char *evidence, ...)
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
static bool shares_make(struct judged *j, const struct routing_epoch *epoch, bool through_map,
			double *ret_shares)
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
static void epochs_judge(struct judged *j, const struct routing_epoch *a,
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
		find(j, ROUTING_ID_SPACE, false,
		     "the load moved with the slots when the expert map changed",
		     fault_of(j, ROUTING_ID_SPACE, b->n_assignments,
			      a->n_assignments + b->n_assignments),
		     "maps %lld and %lld: the load by id differs by %.3f of 1, read as slots by "
		     "%.3f; "
		     "chance gives about %.3f with %llu and %llu assignments",
		     (long long)a->epoch, (long long)b->epoch, told, mapped, chance,
		     (unsigned long long)a->n_assignments, (unsigned long long)b->n_assignments);
}

static void id_space_judge(struct judged *j)
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
		find(j, ROUTING_ID_SPACE, true, "physical_ids beside ids name their slots",
		     fault_of(j, ROUTING_ID_SPACE, count->faults[ROUTING_ID_SPACE].n_bad,
			      count->faults[ROUTING_DUPLICATE_IDS].n_seen),
		     "%llu rows have the same numbers as ids and as physical_ids, though the map "
		     "has "
		     "other experts in these slots",
		     (unsigned long long)count->faults[ROUTING_ID_SPACE].n_bad);
	if (count->n_dispatched_slots >= LEAST_PASSES &&
	    count->n_dispatched_slots == count->n_other_dispatches)
		find(j, ROUTING_ID_SPACE, true,
		     "the dispatch sent tokens to the ranks of these slots",
		     fault_of(j, ROUTING_ID_SPACE, count->n_dispatched_slots, count->n_dispatches),
		     "in %llu of %llu dispatches the tokens sent to each rank are those that the "
		     "ids "
		     "give as slots, and not those that they give as experts",
		     (unsigned long long)count->n_dispatched_slots,
		     (unsigned long long)count->n_dispatches);
	for (size_t i = 0; i < sizeof(marks) / sizeof(marks[0]); i++) {
		if (j->is_found[ROUTING_ID_SPACE] ||
		    !is_explained(marks[i].causes, ROUTING_AS_SLOTS) ||
		    marks[i].causes->n_bad < LEAST_PASSES)
			continue;
		find(j, ROUTING_ID_SPACE, true, marks[i].rule,
		     fault_of(j, marks[i].look, marks[i].causes->n_bad, marks[i].causes->n_seen),
		     "%llu rows contradict their ids; read through the expert map, %llu of them do "
		     "not",
		     (unsigned long long)marks[i].causes->n_bad,
		     (unsigned long long)marks[i].causes->n_explained[ROUTING_AS_SLOTS]);
	}
	for (size_t i = 0; i + 1 < count->n_epochs && !j->is_found[ROUTING_ID_SPACE]; i++)
		if (count->epochs[i].n_assignments >= LEAST_LOAD &&
		    count->epochs[i + 1].n_assignments >= LEAST_LOAD)
			epochs_judge(j, &count->epochs[i], &count->epochs[i + 1]);
}

static void duplicates_judge(struct judged *j)
{
	const struct routing_fault fault = j->count->faults[ROUTING_DUPLICATE_IDS];

	if (fault.n_bad > 0)
		find(j, ROUTING_DUPLICATE_IDS, true, "a row selects distinct experts", fault,
		     "%llu of %llu rows have an expert twice", (unsigned long long)fault.n_bad,
		     (unsigned long long)fault.n_seen);
}

/* ---- the choice ---- */

static void groups_judge(struct judged *j)
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
		find(j, ROUTING_GROUPS, true, "a row selects experts of topk_groups groups", fault,
		     "%llu of %llu rows have experts of more than %u of %u groups",
		     (unsigned long long)fault.n_bad, (unsigned long long)fault.n_seen,
		     layer->topk_groups, layer->n_groups);
		return;
	}
	for (size_t i = 0; i < sizeof(causes) / sizeof(causes[0]); i++) {
		if (j->is_found[ROUTING_GROUPS] || !is_explained(scores, causes[i].cause))
			continue;
		find(j, ROUTING_GROUPS, true, causes[i].rule,
		     fault_of(j, ROUTING_CHOICE, scores->n_bad, n_choice),
		     "%llu of %llu rows are not what their scores give with group_top_n %u; by "
		     "this rule, %llu of them are",
		     (unsigned long long)scores->n_bad, (unsigned long long)n_choice,
		     layer->group_top_n, (unsigned long long)scores->n_explained[causes[i].cause]);
	}
}

static void bias_judge(struct judged *j)
{
	const struct routing_count *count = j->count;
	const struct routing_causes *bias = &count->bias;
	const uint64_t n_seen = bias->n_seen;

	if (count->n_bias_scores > 0) {
		find(j, ROUTING_BIASED_WEIGHTS, true, "weights are the scores without their bias",
		     fault_of(j, ROUTING_BIASED_WEIGHTS, count->n_bias_scores, count->n_scores),
		     "the weights of %llu of %llu rows are proportional to score + bias, not to "
		     "the "
		     "scores that are recorded beside them",
		     (unsigned long long)count->n_bias_scores, (unsigned long long)count->n_scores);
	} else if (count->sums.n_negative > 0 && j->layer->has_bias != 0) {
		find(j, ROUTING_BIASED_WEIGHTS, true, "no score is negative",
		     fault_of(j, ROUTING_BIASED_WEIGHTS, count->sums.n_negative,
			      count->sums.n_rows + count->sums.n_negative),
		     "%llu rows have weights below 0, which no score function of the layer's gives "
		     "and a negative bias does",
		     (unsigned long long)count->sums.n_negative);
	} else if (count->n_scores == 0 && is_explained(bias, ROUTING_BIAS_IN_WEIGHT)) {
		find(j, ROUTING_BIASED_WEIGHTS, true,
		     "weights do not descend where the bias decides the order",
		     fault_of(j, ROUTING_CHOICE, bias->n_bad, n_seen),
		     "the weights of %llu of %llu rows descend, though the biases of their experts "
		     "cannot have let unbiased scores do so; as scores with their bias they can "
		     "(or the bias did not act on the choice: candidates would tell)",
		     (unsigned long long)bias->n_bad, (unsigned long long)n_seen);
	}
}

/* What no other fault explains. */
static void choice_judge(struct judged *j)
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
	find(j, ROUTING_CHOICE, true, rule, fault_of(j, ROUTING_CHOICE, causes->n_bad, n_seen),
	     "%llu of %llu rows are not what their %s give", (unsigned long long)causes->n_bad,
	     (unsigned long long)n_seen,
	     count->scores.n_bad > 0 ? "scores"
	     : j->layer->bias	     ? "weights and biases"
				     : "weights");
}

/*
 * Scores that only rounding to 16 bits made equal stand in either order, and ids are names: of
 * distinct pairs of experts about one in two has the higher id first. Where equal scores are real,
 * nearly all pairs go one way.
 */
static void ties_judge(struct judged *j)
{
	uint64_t n_right = 0, n_wrong = 0;

	for (size_t i = 0; i < ROUTING_N_TIES; i++) {
		const struct routing_tie *tie = &j->count->ties[i];

		n_right += tie->n_right > tie->n_wrong;
		n_wrong += tie->n_wrong > tie->n_right;
	}
	if (n_wrong < LEAST_TIES || n_wrong < 9 * n_right)
		return;
	find(j, ROUTING_TIE_RULE, false, "of equal scores the lower id comes first",
	     fault_of(j, ROUTING_TIE_RULE, n_wrong, n_right + n_wrong),
	     "of %llu pairs of experts with equal scores %llu have the higher id first; chance "
	     "would "
	     "give half of them, the rule none",
	     (unsigned long long)(n_right + n_wrong), (unsigned long long)n_wrong);
}

/* ---- weights ---- */

static void scaling_find(struct judged *j, bool is_proved, const char *rule, uint64_t n_bad,
			 enum routing_look rows_of)
{
	const struct routing_sums *sums = &j->count->sums;

	find(j, ROUTING_SCALING, is_proved, rule, fault_of(j, rows_of, n_bad, sums->n_rows),
	     "routed_scaling_factor is %.4g; the weights of a row add up to %.4g to %.4g, of %llu "
	     "rows",
	     j->layer->factor, sums->min_sum, sums->max_sum, (unsigned long long)sums->n_rows);
}

/* Weights beside their scores, which tell the factor. */
static void ratios_judge(struct judged *j)
{
	const struct routing_sums *ratios = &j->count->ratios;
	const uint64_t n_bad = ratios->n_rows - ratios->n_ok;
	const double all = NEARLY_ALL * (double)n_bad;
	const char *rule = (double)ratios->n_never >= all   ? "weights said to be scaled are not"
			   : (double)ratios->n_twice >= all ? "weights are scaled twice"
			   : (double)ratios->n_scaled >= all
				   ? "weights not said to be scaled are"
				   : "weights are scores times the factor";

	if (n_bad > 0)
		scaling_find(j, true, rule, n_bad, ROUTING_SCALING);
}

/* Weights that are said to be renormalized: each row has a sum that is known. */
static void fixed_sums_judge(struct judged *j)
{
	const struct routing_sums *sums = &j->count->sums;
	const uint64_t n_bad = sums->n_rows - sums->n_ok;
	const double all = NEARLY_ALL * (double)n_bad;

	if (n_bad == 0)
		return;
	if ((double)sums->n_shared >= all)
		find(j, ROUTING_NORM_SHARED, true,
		     "the routed weights are renormalized, not the shared",
		     fault_of(j, ROUTING_RENORMALIZE, n_bad, sums->n_rows),
		     "%llu of %llu rows add up to %.4g with their shared slots, and to %.4g to "
		     "%.4g "
		     "without them",
		     (unsigned long long)n_bad, (unsigned long long)sums->n_rows,
		     j->layer->expected, sums->min_sum, sums->max_sum);
	else if ((double)sums->n_never >= all)
		scaling_find(j, true, "weights said to be scaled are not", n_bad, ROUTING_SCALING);
	else if ((double)sums->n_twice >= all)
		scaling_find(j, true, "weights are scaled twice", n_bad, ROUTING_SCALING);
	else if ((double)sums->n_scaled >= all)
		scaling_find(j, true,
			     j->layer->is_scaled_on_output
				     ? "weights are scaled, and their output is scaled again"
				     : "weights not said to be scaled are",
			     n_bad, ROUTING_SCALING);
	else
		find(j, ROUTING_RENORMALIZE, true, "renormalized weights have one sum",
		     fault_of(j, ROUTING_RENORMALIZE, n_bad, sums->n_rows),
		     "%llu of %llu rows do not add up to %.4g: sums are %.4g to %.4g",
		     (unsigned long long)n_bad, (unsigned long long)sums->n_rows,
		     j->layer->expected, sums->min_sum, sums->max_sum);
}

/* Weights above what the score function gives: by the factor once more, or by another function. */
static void over_judge(struct judged *j)
{
	const struct routing_layer *layer = j->layer;
	const struct routing_sums *sums = &j->count->sums;
	const bool is_scaled = (layer->weight_kind & ROUTING_SCALED) != 0;
	const double top = layer->scoring == ROUTING_SOFTMAX ? sums->max_sum : sums->max_weight;
	const double again = layer->expected * layer->factor * (1 + NEAR);

	if (layer->factor > 1.05 && top <= again)
		scaling_find(j, true,
			     is_scaled ? "weights are scaled twice"
			     : layer->is_scaled_on_output
				     ? "weights are scaled, and their output is "
				       "scaled again"
				     : "weights not said to be scaled are",
			     sums->n_over, ROUTING_SCORING);
	else
		find(j, ROUTING_SCORING, true,
		     layer->scoring == ROUTING_SOFTMAX ? "a softmax adds up to 1 at most"
						       : "no score is above 1",
		     fault_of(j, ROUTING_SCORING, sums->n_over, sums->n_rows),
		     "%llu of %llu rows are above what the score function gives: weights up to "
		     "%.4g, "
		     "sums up to %.4g, with a factor of %.4g",
		     (unsigned long long)sums->n_over, (unsigned long long)sums->n_rows,
		     sums->max_weight, sums->max_sum, layer->expected);
}

/* Scores as they are: sums differ from row to row, and are bounded. */
static void free_sums_judge(struct judged *j)
{
	const struct routing_layer *layer = j->layer;
	const struct routing_sums *sums = &j->count->sums;
	const double mean = sums->n_rows ? sums->total / (double)sums->n_rows : 0;
	const bool is_one = fabs(sums->min_sum - layer->expected) <= NEAR * layer->expected &&
			    fabs(sums->max_sum - layer->expected) <= NEAR * layer->expected;

	if (sums->n_over > 0) {
		over_judge(j);
	} else if (layer->expected > 1.05 && sums->n_under > 0 && sums->max_sum <= 1 + NEAR) {
		scaling_find(j, true, "weights said to be scaled are not", sums->n_under,
			     ROUTING_SCALING);
	} else if (layer->expected > 1.05 && layer->scoring == ROUTING_SOFTMAX &&
		   layer->has_bias == 0 && sums->n_rows >= LEAST_ROWS &&
		   sums->max_sum <= 1 + NEAR &&
		   mean < layer->expected * (double)layer->k_routed / layer->n_columns) {
		/* Below what a router without any preference gives. */
		scaling_find(j, false, "weights said to be scaled are not", sums->n_rows,
			     ROUTING_SCALING);
	} else if (is_one && sums->n_rows >= LEAST_ROWS && layer->k_routed > 1 &&
		   2 * layer->k_routed < layer->n_columns) {
		find(j, ROUTING_RENORMALIZE, false,
		     "weights not said to be renormalized differ in sum",
		     fault_of(j, ROUTING_RENORMALIZE, sums->n_rows, sums->n_rows),
		     "all %llu rows add up to %.4g (%.5g to %.5g), as if they were renormalized",
		     (unsigned long long)sums->n_rows, layer->expected, sums->min_sum,
		     sums->max_sum);
	}
}

static void shared_judge(struct judged *j)
{
	const struct routing_layer *layer = j->layer;
	const struct routing_count *count = j->count;
	const bool is_scaled = (layer->weight_kind & ROUTING_SCALED) != 0;
	const double right = !is_scaled && layer->is_scaled_on_output ? 1 / layer->factor : 1;
	const double wrong = is_scaled ? layer->factor : 1;
	const char *cause = is_scaled ? "applied to all weights in the router"
				      : "applied to the output of all experts";

	if (layer->weight_kind == 0 || count->n_shared_seen < LEAST_PASSES ||
	    fabs(layer->factor - 1) < 0.05 || (!is_scaled && !layer->is_scaled_on_output))
		return;
	j->routing->n_seen[ROUTING_SHARED_SCALING] += count->n_shared_seen;
	if (count->max_shared - count->min_shared > NEAR * count->max_shared ||
	    fabs(count->min_shared - right) <= NEAR * right)
		return;
	if (fabs(count->min_shared - wrong) > NEAR * wrong)
		cause = "not what was applied to them";
	find(j, ROUTING_SHARED_SCALING, true, "a shared slot weighs 1 after all scaling",
	     fault_of(j, ROUTING_SHARED_SCALING, count->n_shared_seen, count->n_shared_seen),
	     "in all of %llu rows the shared slots weigh %.4g, where %.4g is right: the factor "
	     "%.4g is %s",
	     (unsigned long long)count->n_shared_seen, count->min_shared, right, layer->factor,
	     cause);
}

static void scoring_judge(struct judged *j)
{
	const struct routing_count *count = j->count;
	const uint64_t n_others = count->n_not_scores - count->n_bias_scores;
	const bool is_softmax = j->layer->scoring == ROUTING_SOFTMAX;
	const uint64_t n_not_one = count->n_sum_scores - count->n_sum_one;

	if (n_others > 0)
		find(j, ROUTING_SCORING, true, "weights are proportional to the scores",
		     fault_of(j, ROUTING_SCORING, n_others, count->n_scores),
		     "the weights of %llu of %llu rows are not proportional to the scores that are "
		     "recorded beside them",
		     (unsigned long long)n_others, (unsigned long long)count->n_scores);
	else if (is_softmax && n_not_one > 0)
		find(j, ROUTING_SCORING, true, "a softmax over all experts adds up to 1",
		     fault_of(j, ROUTING_SCORING, n_not_one, count->n_sum_scores),
		     "the scores of all experts of %llu of %llu rows do not add up to 1",
		     (unsigned long long)n_not_one, (unsigned long long)count->n_sum_scores);
	else if (!is_softmax && j->layer->scoring == ROUTING_SIGMOID &&
		 count->n_sum_scores >= LEAST_ROWS && count->n_sum_one == count->n_sum_scores)
		find(j, ROUTING_SCORING, false, "sigmoids do not add up to 1 in every row",
		     fault_of(j, ROUTING_SCORING, count->n_sum_one, count->n_sum_scores),
		     "the scores of all experts add up to 1 in all of %llu rows, as of a softmax",
		     (unsigned long long)count->n_sum_scores);
	else if (count->sums.n_negative > 0 && j->layer->has_bias == 0)
		find(j, ROUTING_SCORING, true, "no score is negative",
		     fault_of(j, ROUTING_BIASED_WEIGHTS, count->sums.n_negative,
			      count->sums.n_rows + count->sums.n_negative),
		     "%llu rows have weights below 0, which no score function gives",
		     (unsigned long long)count->sums.n_negative);
}

static void no_weights_judge(struct judged *j)
{
	const struct routing_count *count = j->count;
	const struct routing_fault fault = count->faults[ROUTING_NO_WEIGHTS];
	const bool is_proved = count->n_weightless > 0;

	if (!is_proved && fault.n_bad < LEAST_ROWS)
		return;
	find(j, ROUTING_NO_WEIGHTS, is_proved, "a row has a positive and only finite weights",
	     fault,
	     "of %llu of %llu rows the weights are all 0, or NaN or infinite, and so nothing else "
	     "was looked at in them",
	     (unsigned long long)fault.n_bad, (unsigned long long)fault.n_seen);
}

static void equal_judge(struct judged *j)
{
	const struct routing_count *count = j->count;

	if (count->n_equal_seen < LEAST_ROWS ||
	    (double)count->n_equal < 0.95 * (double)count->n_equal_seen)
		return;
	find(j, ROUTING_EQUAL_WEIGHTS, true, "a router prefers some experts to others",
	     fault_of(j, ROUTING_EQUAL_WEIGHTS, count->n_equal, count->n_equal_seen),
	     "%llu of %llu rows have the same weight for every expert",
	     (unsigned long long)count->n_equal, (unsigned long long)count->n_equal_seen);
}

static void counts_judge(struct judged *j)
{
	const struct routing_count *count = j->count;

	if (count->n_told < LEAST_PASSES || count->n_multiple != count->n_told)
		return;
	find(j, ROUTING_RANK_MULTIPLIED, true, "counts are rows times top_k",
	     fault_of(j, ROUTING_RANK_MULTIPLIED, count->n_multiple, count->n_told),
	     "the counts of all of %llu passes are exactly %llu times their rows times top_k",
	     (unsigned long long)count->n_told, (unsigned long long)count->multiple);
}

/* ---- a layer ---- */

static void seen_add(struct judged *j)
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

static void weights_judge(struct judged *j)
{
	const struct routing_layer *layer = j->layer;

	if (!j->is_found[ROUTING_ID_SPACE])
		scoring_judge(j);
	ratios_judge(j);
	if (j->is_found[ROUTING_SCALING])
		return;
	if (layer->weight_kind & ROUTING_RENORMALIZED ||
	    (layer->weight_kind && layer->scoring == ROUTING_SOFTMAX_SELECTED))
		fixed_sums_judge(j);
	else if (layer->weight_kind && !j->is_found[ROUTING_BIASED_WEIGHTS] &&
		 !j->is_found[ROUTING_SCORING])
		free_sums_judge(j);
	if (!j->is_found[ROUTING_SCALING] && !j->is_found[ROUTING_NORM_SHARED])
		shared_judge(j);
}

static int layer_judge(struct routing *routing, struct routing_count *count)
{
	struct judged j = {.routing = routing, .count = count, .layer = count->layer};

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
	weights_judge(&j);
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
