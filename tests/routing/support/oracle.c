/* SPDX-License-Identifier: MIT */
/*
 * Reading what the reference implementations chose; see oracle.h.
 */
#include "tests/routing/support/oracle.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const oracle_families[ORACLE_N_FAMILIES] = {
	"afmoe",	 "deepseek-v2-236b", "deepseek-v2-lite", "deepseek-v3", "deepseek-v4",
	"ernie-4.5-moe", "exaone-moe",	     "glm-4.5",		 "glm-5",	"gpt-oss-120b",
	"granite-moe",	 "hunyuan-a13b",     "kimi-k2",		 "lfm2-moe",	"llama4-maverick",
	"longcat-flash", "mixtral-8x7b",     "olmoe-1b-7b",	 "phi-3.5-moe", "qwen2-moe-57b",
	"qwen3-30b-a3b", "qwen3-next-80b",
};

/* A file of so many items of 4 bytes and no more; NULL with why not. */
static void *read_items(const char *family, const char *name, size_t n_items, char *ret_message)
{
	const char *root = getenv("MOETRACE_SRCDIR");
	uint32_t *items = calloc(n_items + 1, sizeof(*items));
	char path[4096];
	FILE *file;

	snprintf(path, sizeof(path), "%s/tests/data/router-oracle/%s/%s", root ? root : ".", family,
		 name);
	file = items ? fopen(path, "rb") : NULL;
	if (!file || fread(items, sizeof(*items), n_items + 1, file) != n_items) {
		snprintf(ret_message, ORACLE_MESSAGE_BYTES, "%s: not %zu items", path, n_items);
		free(items);
		items = NULL;
	}
	if (file)
		fclose(file);
	return items;
}

int oracle_load(const char *family, struct oracle *ret_oracle, char *ret_message)
{
	struct oracle *o = ret_oracle;
	size_t n_columns, n_entries;

	memset(o, 0, sizeof(*o));
	o->preset = mtk_preset_find(family);
	if (!o->preset) {
		snprintf(ret_message, ORACLE_MESSAGE_BYTES, "%s: there is no preset", family);
		return -1;
	}
	n_columns = mtk_route_columns(&o->preset->route);
	n_entries = (size_t)ORACLE_ROWS * o->preset->route.top_k;
	o->logits = read_items(family, "logits.f32", ORACLE_ROWS * n_columns, ret_message);
	if (o->logits)
		o->ids = read_items(family, "ids_sorted.i32", n_entries, ret_message);
	if (o->ids)
		o->weights = read_items(family, "weights_by_id.f32", n_entries, ret_message);
	if (!o->weights)
		return -1;
	if (o->preset->route.bias == MTK_ROUTE_BIAS_NONE)
		return 0;
	o->bias = read_items(family, "correction_bias.f32", n_columns, ret_message);
	return o->bias ? 0 : -1;
}

void oracle_free(struct oracle *oracle)
{
	free(oracle->logits);
	free(oracle->bias);
	free(oracle->ids);
	free(oracle->weights);
}

static void sort_row(uint32_t n, int32_t *ids, float *weights)
{
	for (uint32_t i = 1; i < n; i++) {
		for (uint32_t j = i; j > 0 && ids[j] < ids[j - 1]; j--) {
			int32_t id = ids[j];
			float weight = weights[j];

			ids[j] = ids[j - 1];
			weights[j] = weights[j - 1];
			ids[j - 1] = id;
			weights[j - 1] = weight;
		}
	}
}

int oracle_compare(const struct oracle *oracle, int32_t *ids, float *weights, char *ret_message)
{
	const uint32_t top_k = oracle->preset->route.top_k;

	for (uint32_t r = 0; r < ORACLE_ROWS; r++)
		sort_row(top_k, ids + (size_t)r * top_k, weights + (size_t)r * top_k);
	for (uint32_t i = 0; i < ORACLE_ROWS * top_k; i++) {
		if (ids[i] == oracle->ids[i] && fabsf(weights[i] - oracle->weights[i]) <= 2e-6f)
			continue;
		snprintf(ret_message, ORACLE_MESSAGE_BYTES,
			 "%s row %u: expert %d of weight %.9g, not %d of %.9g",
			 oracle->preset->name, i / top_k, ids[i], (double)weights[i],
			 oracle->ids[i], (double)oracle->weights[i]);
		return -1;
	}
	return 0;
}
