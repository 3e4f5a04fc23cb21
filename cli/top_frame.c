/* SPDX-License-Identifier: MIT */
/*
 * What is shown, computed from what was read. A rate is a sum over the buckets of the window,
 * divided by the time from the begin of the oldest one (or of the recording) to the window's end.
 */
#include "cli/top.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/compare.h"

static bool keeps_passes(const struct mt_top *top)
{
	return strcmp(top->facts.mode, "stat") != 0;
}

static int64_t later(int64_t a, int64_t b)
{
	return a > b ? a : b;
}

/* ---- time ---- */

static void times_set(const struct mt_top *top, struct mt_top_frame *frame)
{
	frame->has_passes = keeps_passes(top);
	frame->until_ns = mt_top_until_ns(top);
	frame->recent_from_ns = later(mt_top_from_ns(top), top->facts.start_ns);
	if (!frame->has_passes && top->first_seen_ns > 0)
		frame->recent_from_ns = later(frame->recent_from_ns, top->first_seen_ns);
	frame->recent_span_s = (double)(frame->until_ns - frame->recent_from_ns) / 1e9;
	/* Before something was seen to change there is nothing but the whole. */
	frame->is_whole = !top->window_ns || (!frame->has_passes && frame->recent_span_s < 0.5);
	frame->from_ns = frame->is_whole ? top->facts.start_ns : frame->recent_from_ns;
	frame->span_s = (double)(frame->until_ns - frame->from_ns) / 1e9;
}

/* The bucket of the window that begins the @i-th, oldest first; NULL: nothing is in it. */
static const struct mt_top_bucket *bucket_get(const struct mt_top *top,
					      const struct mt_top_frame *frame, size_t i)
{
	const int64_t index =
		frame->until_ns / top->bucket_ns - MT_TOP_BUCKETS + 1 + (int64_t)i;
	const struct mt_top_bucket *bucket;

	if (index < 0)
		return NULL;
	bucket = &top->buckets[index % MT_TOP_BUCKETS];
	return bucket->index == index ? bucket : NULL;
}

/* ---- sums ---- */

static void bucket_add(struct mt_top_frame *frame, const struct mt_top_bucket *bucket, size_t i)
{
	size_t j;

	frame->n_passes += (int64_t)bucket->n_passes;
	frame->n_partial += (int64_t)bucket->n_partial;
	frame->n_rows += (int64_t)bucket->n_rows;
	frame->padding_rows += (int64_t)bucket->padding_rows;
	for (j = 0; j < MT_TOP_PHASES; j++)
		frame->rows[j] += bucket->rows[j];
	for (j = 0; j < MT_TOP_ROLES; j++) {
		frame->n_operations[j] += bucket->n_operations[j];
		frame->operations_ns[j] += bucket->operations_ns[j];
		frame->all_operations_ns += bucket->operations_ns[j];
	}
	if (bucket->max_active > frame->max_active)
		frame->max_active = bucket->max_active;
	if (bucket->n_active > 0)
		frame->active_by_bucket[i] = (double)bucket->sum_active / (double)bucket->n_active;
	frame->rows_by_bucket[i] = (double)bucket->n_rows;
}

static double ratio(double a, double b)
{
	return b > 0 ? a / b : -1;
}

static void buckets_sum(const struct mt_top *top, struct mt_top_frame *frame)
{
	uint64_t n_timed = 0, timed_ns = 0, n_active = 0, sum_active = 0;

	for (size_t i = 0; i < MT_TOP_BUCKETS; i++) {
		const struct mt_top_bucket *bucket = bucket_get(top, frame, i);

		frame->active_by_bucket[i] = -1;
		frame->rows_by_bucket[i] = 0;
		if (!bucket)
			continue;
		bucket_add(frame, bucket, i);
		n_timed += bucket->n_timed;
		timed_ns += bucket->timed_ns;
		n_active += bucket->n_active;
		sum_active += bucket->sum_active;
		for (size_t j = 0; !frame->is_whole && j < frame->n_cells; j++)
			frame->tokens[j] += bucket->tokens[j];
	}
	frame->mean_ns = ratio((double)timed_ns, (double)n_timed);
	frame->mean_active = ratio((double)sum_active, (double)n_active);
}

static void whole_set(const struct mt_top *top, struct mt_top_frame *frame)
{
	const uint64_t top_k = top->n_layers ? top->layers[0].top_k : 1;
	const struct mt_top_bucket *passes = &top->totals.passes;
	size_t i;

	frame->n_passes = (int64_t)passes->n_passes;
	frame->n_partial = (int64_t)passes->n_partial;
	frame->n_rows = (int64_t)passes->n_rows;
	frame->padding_rows = (int64_t)passes->padding_rows;
	frame->mean_ns = ratio((double)passes->timed_ns, (double)passes->n_timed);
	if (!frame->has_passes) {
		frame->n_passes = later(top->facts.recorded_passes, 0);
		frame->n_rows = later(top->facts.recorded_rows, 0);
	}
	for (i = 0; i < MT_TOP_PHASES; i++)
		frame->rows[i] = top->totals.rows[i] / top_k;
	if (frame->n_cells)
		memcpy(frame->tokens, top->totals.all, frame->n_cells * sizeof(*frame->tokens));
}

/*
 * Without passes there are the recording's sums: which of them are partial, and, of several models,
 * whose they are, nothing tells.
 */
static void unknown_set(const struct mt_top *top, struct mt_top_frame *frame)
{
	if (frame->has_passes)
		return;
	frame->n_partial = frame->padding_rows = -1;
	frame->mean_ns = -1;
	if (top->facts.n_models == 1)
		return;
	frame->n_passes = -1;
	frame->n_rows = frame->is_whole ? -1 : frame->n_rows;
}

/* Passes a second and tokens a second are of all passes or of none: a sample has no rate. */
static void rates_set(const struct mt_top *top, struct mt_top_frame *frame)
{
	const double span_s = top->facts.sampled_passes ? 0 : frame->span_s;
	uint64_t n_rows = 0;
	size_t i;

	for (i = 0; i < MT_TOP_PHASES; i++) {
		n_rows += frame->rows[i];
		frame->phase_per_s[i] = ratio((double)frame->rows[i], span_s);
	}
	frame->passes_per_s = frame->n_passes < 0 ? -1 : ratio((double)frame->n_passes, span_s);
	frame->mean_rows = frame->n_rows < 0 || frame->n_passes < 0 ?
				   -1 :
				   ratio((double)frame->n_rows, (double)frame->n_passes);
	frame->tokens_per_s = ratio((double)n_rows, span_s);
}

/* ---- balance ---- */

static void layer_judge(const struct mt_top_layer *layer, const uint64_t *tokens,
			struct mt_top_balance *balance)
{
	double square = 0;

	*balance = (struct mt_top_balance){.max_over_mean = -1, .jain = -1};
	for (uint32_t i = 0; i < layer->n_experts; i++) {
		balance->tokens += tokens[i];
		balance->n_dead += tokens[i] == 0;
		square += (double)tokens[i] * (double)tokens[i];
		if (tokens[i] > balance->most) {
			balance->most = tokens[i];
			balance->hottest = i;
		}
	}
	if (!balance->tokens)
		return;
	balance->max_over_mean =
		(double)balance->most * layer->n_experts / (double)balance->tokens;
	balance->jain =
		(double)balance->tokens * (double)balance->tokens / (layer->n_experts * square);
}

/* The value that @share of the sorted ones do not exceed. */
static double rank_of(const double *sorted, size_t n, double share)
{
	size_t i = (size_t)ceil(share * (double)n);

	return sorted[i > 0 ? i - 1 : 0];
}

static int balance_set(struct mt_top_frame *frame)
{
	double *values = malloc(2 * (frame->n_layers + 1) * sizeof(*values));
	double *jain = values + frame->n_layers + 1;
	size_t n = 0, i;

	if (!values)
		return -1;
	frame->ratio_p50 = frame->ratio_p95 = frame->ratio_worst = -1;
	frame->jain_p50 = frame->jain_worst = -1;
	for (i = 0; i < frame->n_layers; i++) {
		const struct mt_top_balance *balance = &frame->layers[i];

		if (balance->max_over_mean < 0)
			continue;
		if (balance->max_over_mean > frame->ratio_worst) {
			frame->ratio_worst = balance->max_over_mean;
			frame->worst_layer = i;
		}
		values[n] = balance->max_over_mean;
		jain[n++] = balance->jain;
	}
	if (n > 0) {
		qsort(values, n, sizeof(*values), mt_compare_doubles);
		qsort(jain, n, sizeof(*jain), mt_compare_doubles);
		frame->ratio_p50 = rank_of(values, n, 0.5);
		frame->ratio_p95 = rank_of(values, n, 0.95);
		frame->jain_p50 = rank_of(jain, n, 0.5);
		frame->jain_worst = jain[0];
	}
	free(values);
	return 0;
}

/* Keep the hottest in order; of equals the first one stays first. */
static void hottest_offer(struct mt_top_frame *frame, struct mt_top_hot hot)
{
	size_t i = frame->n_hottest;

	if (i == MT_TOP_HOTTEST && hot.over_mean <= frame->hottest[i - 1].over_mean)
		return;
	if (i < MT_TOP_HOTTEST)
		frame->n_hottest++;
	else
		i--;
	for (; i > 0 && frame->hottest[i - 1].over_mean < hot.over_mean; i--)
		frame->hottest[i] = frame->hottest[i - 1];
	frame->hottest[i] = hot;
}

static void layers_judge(const struct mt_top *top, struct mt_top_frame *frame)
{
	for (size_t i = 0; i < frame->n_layers; i++) {
		const struct mt_top_layer *layer = &top->layers[i];
		const uint64_t *tokens = frame->tokens + layer->first_cell;

		layer_judge(layer, tokens, &frame->layers[i]);
		for (uint32_t j = 0; j < layer->n_experts; j++)
			if (tokens[j] > 0)
				hottest_offer(frame, (struct mt_top_hot){
					.layer = i,
					.expert = j,
					.tokens = tokens[j],
					.over_mean = (double)tokens[j] * layer->n_experts /
						     (double)frame->layers[i].tokens});
	}
}

/* ---- frames ---- */

static int arrays_make(const struct mt_top *top, struct mt_top_frame *frame)
{
	uint64_t *tokens = frame->tokens;
	struct mt_top_balance *layers = frame->layers;

	tokens = realloc(tokens, (top->n_cells + 1) * sizeof(*tokens));
	frame->tokens = tokens ? tokens : frame->tokens;
	layers = realloc(layers, (top->n_layers + 1) * sizeof(*layers));
	frame->layers = layers ? layers : frame->layers;
	if (!tokens || !layers)
		return -1;
	*frame = (struct mt_top_frame){.tokens = tokens,
				       .n_cells = top->n_cells,
				       .layers = layers,
				       .n_layers = top->n_layers};
	memset(tokens, 0, (top->n_cells + 1) * sizeof(*tokens));
	return 0;
}

int mt_top_frame_make(const struct mt_top *top, struct mt_top_frame *frame)
{
	if (arrays_make(top, frame) < 0)
		goto err_memory;
	times_set(top, frame);
	buckets_sum(top, frame);
	if (frame->is_whole)
		whole_set(top, frame);
	unknown_set(top, frame);
	rates_set(top, frame);
	layers_judge(top, frame);
	if (balance_set(frame) < 0)
		goto err_memory;
	return MT_EXIT_OK;

err_memory:
	mt_error("out of memory");
	return MT_EXIT_FAILED;
}

void mt_top_frame_free(struct mt_top_frame *frame)
{
	free(frame->tokens);
	free(frame->layers);
	*frame = (struct mt_top_frame){.tokens = NULL};
}

double mt_top_meter_mean(const struct mt_top *top, const struct mt_top_meter *meter,
			 const struct mt_top_frame *frame, double ret_w[MT_TOP_BUCKETS])
{
	const int64_t first = frame->until_ns / top->bucket_ns - MT_TOP_BUCKETS + 1;
	double sum = 0;
	uint64_t n = 0;

	for (size_t i = 0; i < MT_TOP_BUCKETS; i++) {
		const int64_t index = first + (int64_t)i;
		const size_t at = index >= 0 ? (size_t)(index % MT_TOP_BUCKETS) : 0;
		const bool has = index >= 0 && meter->index[at] == index && meter->n_readings[at];

		ret_w[i] = has ? meter->sum_w[at] / meter->n_readings[at] : -1;
		sum += has ? meter->sum_w[at] : 0;
		n += has ? meter->n_readings[at] : 0;
	}
	return n ? sum / (double)n : -1;
}
