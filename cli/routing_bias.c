/* SPDX-License-Identifier: MIT */
/*
 * The order of the choice under a bias, from weights alone. Entries are chosen by score + bias, so
 * that of neighbours s[i] + b[i] >= s[i+1] + b[i+1]. Weights are scores divided by some number, by
 * which one is not known: with u = w / (sum of w), s = u * S for an unknown S, the sum of the
 * scores. Each pair of neighbours bounds 1 / S from one side or the other; so does the score
 * function: no sigmoid is above 1, and neither is a sum of a softmax. If the bounds contradict each
 * other, no S exists, and the row cannot be what the layer says, whatever it was scaled by.
 */
#include "cli/routing.h"

#include <math.h>

#include "common/f16.h"

enum { MAX_ENTRIES = 256 };

/* The routed entries of a row: shares of the sum, and what was added to their scores. */
struct entries {
	size_t n;
	double share[MAX_ENTRIES];
	double bias[MAX_ENTRIES];
	double epsilon; /* a share is true to this part of itself */
};

enum reading { AS_TOLD, THROUGH_MAP, ROUNDED_BIAS };

/* False: there is no bias for some entry, as it is read. */
static bool entries_read(const struct routing *routing, const struct routing_row *row,
			 enum reading reading, struct entries *ret)
{
	const struct routing_layer *layer = row->layer;

	ret->n = 0;
	ret->epsilon = row->is_bf16 ? 0x1p-7 : 0x1p-10;
	for (size_t j = 0; j < row->n; j++) {
		int64_t id = routing_id(row, j);
		float bias;

		if (id >= layer->n_columns)
			continue;
		if (reading == THROUGH_MAP)
			id = routing_through_map(layer, (uint32_t)id);
		if (id < 0)
			return false;
		bias = layer->bias[id];
		if (reading == ROUNDED_BIAS)
			bias = mt_f32_from_bf16(mt_bf16_from_f32(bias));
		ret->share[ret->n] = routing_weight(routing, row, j) / row->sum;
		ret->bias[ret->n++] = (double)bias;
	}
	return ret->n > 1;
}

/* The least that 1 / S can be, of what the score function says. */
static double least_of(const struct entries *e, enum routing_scoring scoring)
{
	double least = scoring == ROUTING_SOFTMAX ? 1 : 1 / (double)e->n;

	for (size_t j = 0; j < e->n; j++)
		if (e->share[j] * (1 - e->epsilon) > least)
			least = e->share[j] * (1 - e->epsilon);
	return least;
}

/* Whether some S makes the entries descend by score + bias. */
static bool can_descend(const struct entries *e, enum routing_scoring scoring)
{
	double low = least_of(e, scoring);
	double high = INFINITY;

	for (size_t j = 0; j + 1 < e->n; j++) {
		const double drop = e->share[j] - e->share[j + 1];
		const double slack = (e->share[j] + e->share[j + 1]) * e->epsilon + 0x1p-24;
		const double rise = e->bias[j + 1] - e->bias[j];
		/* What routers compare, they add up in fp32. */
		const double error = (fabs(e->bias[j]) + fabs(e->bias[j + 1]) + 2) * 0x1p-22;

		if (rise > error)
			high = fmin(high, (drop + slack) / (rise - error));
		else if (rise < -error)
			low = fmax(low, (-drop - slack) / (error - rise));
		else if (drop + slack < -error * low)
			return false;
	}
	return low <= high;
}

static bool shares_descend(const struct entries *e)
{
	for (size_t j = 0; j + 1 < e->n; j++)
		if (e->share[j + 1] - e->share[j] > (e->share[j] + e->share[j + 1]) * e->epsilon)
			return false;
	return true;
}

/* Whether shares can be of score + bias: for some sum, every score lies between 0 and 1. */
static bool can_include_bias(const struct entries *e)
{
	double low = 0;
	double high = INFINITY;

	for (size_t j = 0; j < e->n; j++) {
		const double least = e->share[j] * (1 - e->epsilon);
		const double most = e->share[j] * (1 + e->epsilon);

		if (most <= 0)
			return e->bias[j] <= 0;
		low = fmax(low, e->bias[j] / most);
		high = fmin(high, (1 + e->bias[j]) / least);
	}
	return low <= high;
}

void routing_bias_take(struct routing *routing, const struct routing_row *row)
{
	const struct routing_layer *layer = row->layer;
	struct routing_causes *causes = &row->count->bias;
	struct entries e;

	if (layer->scoring != ROUTING_SIGMOID && layer->scoring != ROUTING_SOFTMAX)
		return; /* nothing bounds the sum of the scores */
	if (!entries_read(routing, row, AS_TOLD, &e))
		return;
	causes->n_seen++;
	row->count->faults[ROUTING_CHOICE].n_seen++;
	row->count->faults[ROUTING_BIASED_WEIGHTS].n_seen++;
	if (can_descend(&e, layer->scoring))
		return;
	routing_row_bad(routing, row, ROUTING_CHOICE);
	causes->n_bad++;
	if (shares_descend(&e)) {
		causes->n_explained[ROUTING_WITHOUT_BIAS]++;
		causes->n_explained[ROUTING_BIAS_IN_WEIGHT] += can_include_bias(&e);
	}
	if (layer->slot_experts && entries_read(routing, row, THROUGH_MAP, &e) &&
	    can_descend(&e, layer->scoring))
		causes->n_explained[ROUTING_AS_SLOTS]++;
	if (entries_read(routing, row, ROUNDED_BIAS, &e) && can_descend(&e, layer->scoring))
		causes->n_explained[ROUTING_BY_BF16]++;
}
