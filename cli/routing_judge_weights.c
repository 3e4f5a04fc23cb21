/* SPDX-License-Identifier: MIT */
/*
 * What the weights of a layer say: how they are scaled and renormalized, and of which function the
 * scores are that they come from.
 */
#include "cli/routing_judge.h"

#include <math.h>

static void scaling_find(struct routing_judged *j, bool is_proved, const char *rule, uint64_t n_bad,
			 enum routing_look rows_of)
{
	const struct routing_sums *sums = &j->count->sums;

	routing_judged_find(j, ROUTING_SCALING, is_proved, rule,
			    routing_judged_fault(j, rows_of, n_bad, sums->n_rows),
			    "routed_scaling_factor is %.4g; the weights of a row add up to %.4g to "
			    "%.4g, of %llu "
			    "rows",
			    j->layer->factor, sums->min_sum, sums->max_sum,
			    (unsigned long long)sums->n_rows);
}

/* Weights beside their scores, which tell the factor. */
static void ratios_judge(struct routing_judged *j)
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
static void fixed_sums_judge(struct routing_judged *j)
{
	const struct routing_sums *sums = &j->count->sums;
	const uint64_t n_bad = sums->n_rows - sums->n_ok;
	const double all = NEARLY_ALL * (double)n_bad;

	if (n_bad == 0)
		return;
	if ((double)sums->n_shared >= all)
		routing_judged_find(
			j, ROUTING_NORM_SHARED, true,
			"the routed weights are renormalized, not the shared",
			routing_judged_fault(j, ROUTING_RENORMALIZE, n_bad, sums->n_rows),
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
		routing_judged_find(
			j, ROUTING_RENORMALIZE, true, "renormalized weights have one sum",
			routing_judged_fault(j, ROUTING_RENORMALIZE, n_bad, sums->n_rows),
			"%llu of %llu rows do not add up to %.4g: sums are %.4g to %.4g",
			(unsigned long long)n_bad, (unsigned long long)sums->n_rows,
			j->layer->expected, sums->min_sum, sums->max_sum);
}

/* Weights above what the score function gives: by the factor once more, or by another function. */
static void over_judge(struct routing_judged *j)
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
		routing_judged_find(
			j, ROUTING_SCORING, true,
			layer->scoring == ROUTING_SOFTMAX ? "a softmax adds up to 1 at most"
							  : "no score is above 1",
			routing_judged_fault(j, ROUTING_SCORING, sums->n_over, sums->n_rows),
			"%llu of %llu rows are above what the score function gives: weights up to "
			"%.4g, "
			"sums up to %.4g, with a factor of %.4g",
			(unsigned long long)sums->n_over, (unsigned long long)sums->n_rows,
			sums->max_weight, sums->max_sum, layer->expected);
}

/* Scores as they are: sums differ from row to row, and are bounded. */
static void free_sums_judge(struct routing_judged *j)
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
		routing_judged_find(
			j, ROUTING_RENORMALIZE, false,
			"weights not said to be renormalized differ in sum",
			routing_judged_fault(j, ROUTING_RENORMALIZE, sums->n_rows, sums->n_rows),
			"all %llu rows add up to %.4g (%.5g to %.5g), as if they were renormalized",
			(unsigned long long)sums->n_rows, layer->expected, sums->min_sum,
			sums->max_sum);
	}
}

static void shared_judge(struct routing_judged *j)
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
	routing_judged_find(
		j, ROUTING_SHARED_SCALING, true, "a shared slot weighs 1 after all scaling",
		routing_judged_fault(j, ROUTING_SHARED_SCALING, count->n_shared_seen,
				     count->n_shared_seen),
		"in all of %llu rows the shared slots weigh %.4g, where %.4g is right: the factor "
		"%.4g is %s",
		(unsigned long long)count->n_shared_seen, count->min_shared, right, layer->factor,
		cause);
}

static void scoring_judge(struct routing_judged *j)
{
	const struct routing_count *count = j->count;
	const uint64_t n_others = count->n_not_scores - count->n_bias_scores;
	const bool is_softmax = j->layer->scoring == ROUTING_SOFTMAX;
	const uint64_t n_not_one = count->n_sum_scores - count->n_sum_one;

	if (n_others > 0)
		routing_judged_find(
			j, ROUTING_SCORING, true, "weights are proportional to the scores",
			routing_judged_fault(j, ROUTING_SCORING, n_others, count->n_scores),
			"the weights of %llu of %llu rows are not proportional to the scores that "
			"are "
			"recorded beside them",
			(unsigned long long)n_others, (unsigned long long)count->n_scores);
	else if (is_softmax && n_not_one > 0)
		routing_judged_find(
			j, ROUTING_SCORING, true, "a softmax over all experts adds up to 1",
			routing_judged_fault(j, ROUTING_SCORING, n_not_one, count->n_sum_scores),
			"the scores of all experts of %llu of %llu rows do not add up to 1",
			(unsigned long long)n_not_one, (unsigned long long)count->n_sum_scores);
	else if (!is_softmax && j->layer->scoring == ROUTING_SIGMOID &&
		 count->n_sum_scores >= LEAST_ROWS && count->n_sum_one == count->n_sum_scores)
		routing_judged_find(j, ROUTING_SCORING, false,
				    "sigmoids do not add up to 1 in every row",
				    routing_judged_fault(j, ROUTING_SCORING, count->n_sum_one,
							 count->n_sum_scores),
				    "the scores of all experts add up to 1 in all of %llu rows, as "
				    "of a softmax",
				    (unsigned long long)count->n_sum_scores);
	else if (count->sums.n_negative > 0 && j->layer->has_bias == 0)
		routing_judged_find(
			j, ROUTING_SCORING, true, "no score is negative",
			routing_judged_fault(j, ROUTING_BIASED_WEIGHTS, count->sums.n_negative,
					     count->sums.n_rows + count->sums.n_negative),
			"%llu rows have weights below 0, which no score function gives",
			(unsigned long long)count->sums.n_negative);
}

void routing_judge_weights(struct routing_judged *j)
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
