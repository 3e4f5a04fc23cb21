/* SPDX-License-Identifier: MIT */
/*
 * What `top` keeps between two looks: the buckets of its window, and how far it has read.
 */
#include "cli/top.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Whatever the window of the figures: what happened lately is of so many seconds. */
#define RECENT_NS 5000000000
#define SETTLE_NS 1000000000

const char *const mt_top_phases[MT_TOP_PHASES] = {"prefill", "decode", "verify", "other"};
const char *const mt_top_roles[MT_TOP_ROLES] = {
	"gate",	  "topk",      "align", "dispatch", "experts", "combine",    "shared",
	"attention", "norm", "embed", "head",	    "collective", "copy", "other",
};

int64_t mt_top_clock_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

void mt_top_column_copy(sqlite3_stmt *stmt, int column, char *to, size_t to_bytes)
{
	const char *text = (const char *)sqlite3_column_text(stmt, column);
	size_t n = text ? strlen(text) : 0;

	if (n >= to_bytes) {
		n = to_bytes - 1;
		/* Not in the middle of a character. */
		while (n > 0 && ((unsigned char)text[n] & 0xc0) == 0x80)
			n--;
	}
	if (n > 0)
		memcpy(to, text, n);
	to[n] = '\0';
}

static void layers_free(struct mt_top *top)
{
	size_t i;

	for (i = 0; i < MT_TOP_BUCKETS; i++) {
		free(top->buckets[i].tokens);
		top->buckets[i].tokens = NULL;
	}
	free(top->layers);
	free(top->ranks);
	free(top->totals.closed);
	free(top->totals.all);
	free(top->totals.before);
	top->layers = NULL;
	top->ranks = NULL;
	top->totals = (struct mt_top_totals){.open_ns = -1};
	top->n_layers = top->n_cells = 0;
	top->n_layers_known = 0;
	top->map_epoch = 0;
}

void mt_top_buckets_reset(struct mt_top *top)
{
	size_t i;

	for (i = 0; i < MT_TOP_BUCKETS; i++)
		top->buckets[i].index = -1;
	for (i = 0; i < top->n_meters; i++) {
		top->meters[i].counter_mj = -1;
		for (size_t j = 0; j < MT_TOP_BUCKETS; j++)
			top->meters[i].index[j] = -1;
	}
	top->pass_cursor = top->kernel_cursor = top->launch_cursor = top->power_cursor = -1;
	top->bucket_ns = (top->window_ns ? top->window_ns : RECENT_NS) / MT_TOP_BUCKETS;
}

void mt_top_reset(struct mt_top *top)
{
	size_t i;

	layers_free(top);
	for (i = 0; i < top->n_graphs; i++)
		free(top->graphs[i].roles);
	free(top->graphs);
	top->graphs = NULL;
	top->n_graphs = 0;
	top->last_name = -1;
	if (top->roles)
		memset(top->roles, MT_TOP_ROLES - 1, MT_TOP_MAX_NAMES);
	top->n_meters = top->n_more_meters = 0;
	top->first_seen_ns = -1;
	top->model_id = 0;
	memset(&top->facts, 0, sizeof(top->facts));
	mt_top_buckets_reset(top);
}

int mt_top_init(struct mt_top *top)
{
	top->meters = calloc(MT_TOP_MAX_METERS, sizeof(*top->meters));
	top->roles = malloc(MT_TOP_MAX_NAMES);
	if (!top->meters || !top->roles) {
		mt_error("out of memory");
		return MT_EXIT_FAILED;
	}
	mt_top_reset(top);
	return MT_EXIT_OK;
}

void mt_top_free(struct mt_top *top)
{
	mt_top_reset(top);
	free(top->meters);
	free(top->roles);
	top->meters = NULL;
	top->roles = NULL;
}

void mt_top_window_set(struct mt_top *top, int64_t window_ns)
{
	top->window_ns = window_ns;
	mt_top_buckets_reset(top);
}

void mt_top_model_next(struct mt_top *top)
{
	const int64_t n = top->facts.n_models;

	if (n < 2)
		return;
	top->model_wanted = -(top->facts.model_number % n + 1);
	layers_free(top);
	top->first_seen_ns = -1;
	mt_top_buckets_reset(top);
}

static void bucket_clear(struct mt_top_bucket *bucket, int64_t index, size_t n_cells)
{
	uint32_t *tokens = bucket->tokens;

	*bucket = (struct mt_top_bucket){.index = index, .tokens = tokens};
	if (tokens)
		memset(tokens, 0, n_cells * sizeof(*tokens));
}

struct mt_top_bucket *mt_top_bucket_at(struct mt_top *top, int64_t time_ns)
{
	const int64_t index = time_ns / top->bucket_ns;
	struct mt_top_bucket *bucket;

	if (time_ns < 0)
		return NULL;
	bucket = &top->buckets[index % MT_TOP_BUCKETS];
	if (bucket->index > index)
		return NULL;
	if (bucket->index < index)
		bucket_clear(bucket, index, top->n_cells);
	return bucket;
}

/*
 * While it is recorded, what happened in the last second may not all be in the file yet; without
 * this a recorder that has nothing to do would be shown with the rates that it had before.
 */
int64_t mt_top_until_ns(const struct mt_top *top)
{
	const struct mt_top_facts *facts = &top->facts;
	const int64_t settled_ns = facts->now_ns - SETTLE_NS;

	if (facts->end != MT_TOP_LIVE && facts->last_pass_ns)
		return facts->last_pass_ns;
	if (facts->end != MT_TOP_LIVE || strcmp(facts->mode, "stat") == 0)
		return facts->now_ns;
	return settled_ns > facts->last_pass_ns ? settled_ns : facts->last_pass_ns;
}

int64_t mt_top_from_ns(const struct mt_top *top)
{
	const int64_t first = mt_top_until_ns(top) / top->bucket_ns - MT_TOP_BUCKETS + 1;

	return first > 0 ? first * top->bucket_ns : 0;
}

size_t mt_top_layer_find(const struct mt_top *top, int64_t layer_id)
{
	size_t low = 0, high = top->n_layers;

	/* Layers of a model are added in one go, so their keys ascend with them; else look at all. */
	while (low < high) {
		const size_t middle = low + (high - low) / 2;

		if (top->layers[middle].layer_id < layer_id)
			low = middle + 1;
		else
			high = middle;
	}
	if (low < top->n_layers && top->layers[low].layer_id == layer_id)
		return low;
	for (low = 0; low < top->n_layers && top->layers[low].layer_id != layer_id; low++)
		;
	return low;
}
