/* SPDX-License-Identifier: MIT */
/*
 * moe_rows(): how many rows an expert receives in a pass, by recording, layer and phase of the
 * pass: a histogram whose classes are 1, 2, 3-4, 5-8 rows and so on (rows_from to rows_to). experts
 * are the pairs of pass and routed expert that fell into the class, rows the rows that they
 * received. Where the layer says its gemm_block_rows, blocks are what the experts' products take:
 * rows in blocks of that many, each expert's rounded up; padded_rows are the rows that this adds.
 */
#include <sqlite3ext.h>
SQLITE_EXTENSION_INIT3

#include "array.h"
#include "mt_sql.h"
#include "pass_load.h"
#include "tvf.h"

#include <stdlib.h>
#include <string.h>

enum { N_CLASSES = 33 };

static int compute(sqlite3 *db, sqlite3_value *const *arguments, struct mt_tvf_rows *rows);

static const struct mt_tvf rows_of = {
	.name = "moe_rows",
	.declaration = "CREATE TABLE moe_rows (recording_id INTEGER, model_id INTEGER,"
		       " layer_id INTEGER, layer INTEGER, phase TEXT, rows_from INTEGER,"
		       " rows_to INTEGER, experts INTEGER, rows INTEGER, blocks INTEGER,"
		       " padded_rows INTEGER)",
	.n_columns = 11,
	.n_arguments = 0,
	.n_rows = 1000,
	.compute = compute,
};

struct class
{
	uint64_t n_experts, n_rows, n_blocks;
};

struct group {
	sqlite3_int64 recording_id;
	const char *phase;
	struct mt_layer_facts layer;
	struct class classes[N_CLASSES];
};

struct state {
	struct mt_pass_load load;
	struct group *groups;
	size_t n_groups, size, hint;
};

/* 1, 2, 3-4, 5-8, ...: class c ends at 2 to the power of c. */
static unsigned class_of(uint32_t n_rows)
{
	unsigned c = 0;

	while ((UINT64_C(1) << c) < n_rows)
		c++;
	return c;
}

static int group_add(struct state *state)
{
	const struct mt_pass_load *load = &state->load;

	if (mt_array_reserve(&state->groups, &state->size, state->n_groups + 1,
			     sizeof(*state->groups)) != SQLITE_OK)
		return SQLITE_NOMEM;
	state->groups[state->n_groups++] = (struct group){.recording_id = load->reader.recording_id,
							  .phase = load->reader.phase,
							  .layer = load->layer};
	return SQLITE_OK;
}

/* Passes repeat their layers: the one after the last found is nearly always it. */
static int group_find(struct state *state, struct group **ret_group)
{
	const struct mt_pass_load *load = &state->load;
	int rc;

	for (size_t i = 0; i < state->n_groups; i++) {
		const size_t at = (state->hint + i) % state->n_groups;
		struct group *group = &state->groups[at];

		if (group->layer.layer_id == load->layer.layer_id &&
		    group->phase == load->reader.phase &&
		    group->recording_id == load->reader.recording_id) {
			state->hint = at + 1;
			*ret_group = group;
			return SQLITE_OK;
		}
	}
	rc = group_add(state);
	if (rc == SQLITE_OK)
		*ret_group = &state->groups[state->n_groups - 1];
	return rc;
}

static int pass_add(struct state *state)
{
	const struct mt_pass_load *load = &state->load;
	const uint32_t block = load->layer.gemm_block_rows;
	struct group *group;
	int rc = load->n_routed ? group_find(state, &group) : SQLITE_OK;

	if (rc != SQLITE_OK || load->n_routed == 0)
		return rc;
	for (uint32_t i = 0; i < load->layer.n_experts; i++) {
		const uint32_t n = load->counts[i];
		struct class *c = &group->classes[class_of(n)];

		if (n == 0)
			continue;
		c->n_experts++;
		c->n_rows += n;
		c->n_blocks += block ? (n - 1) / block + 1 : 0;
	}
	return SQLITE_OK;
}

static int compare_groups(const void *left, const void *right)
{
	const struct group *a = left, *b = right;

	if (a->recording_id != b->recording_id)
		return a->recording_id < b->recording_id ? -1 : 1;
	if (a->layer.layer_id != b->layer.layer_id)
		return a->layer.layer_id < b->layer.layer_id ? -1 : 1;
	return strcmp(a->phase, b->phase);
}

static int class_list(const struct group *group, unsigned c, struct mt_tvf_rows *rows)
{
	const struct class *class = &group->classes[c];
	const uint32_t block = group->layer.gemm_block_rows;
	const sqlite3_int64 keys[] = {group->recording_id,
				      group->layer.model_id,
				      group->layer.layer_id,
				      group->layer.layer,
				      0,
				      c ? (INT64_C(1) << (c - 1)) + 1 : 1,
				      INT64_C(1) << c,
				      (sqlite3_int64) class->n_experts,
				      (sqlite3_int64) class->n_rows,
				      (sqlite3_int64) class->n_blocks,
				      (sqlite3_int64)(class->n_blocks * block - class->n_rows)};
	int rc = SQLITE_OK;

	for (int i = 0; rc == SQLITE_OK && i < 11; i++)
		rc = i == 4		    ? mt_tvf_text(rows, group->phase)
		     : i >= 9 && block == 0 ? mt_tvf_null(rows)
					    : mt_tvf_int64(rows, keys[i]);
	return rc;
}

static int compute(sqlite3 *db, sqlite3_value *const *arguments, struct mt_tvf_rows *rows)
{
	const struct mt_filter filter = {.schema = NULL};
	struct state state = {.groups = NULL};
	int rc = mt_pass_load_open(&state.load, db, rows_of.name, &filter, NULL);

	(void)arguments;
	while (rc == SQLITE_OK && (rc = mt_pass_load_next(&state.load)) == SQLITE_ROW)
		rc = pass_add(&state);
	if (rc != SQLITE_DONE && !rows->error) {
		rows->error = state.load.reader.error;
		state.load.reader.error = NULL;
	}
	rc = rc == SQLITE_DONE ? SQLITE_OK : rc;
	if (state.n_groups > 0)
		qsort(state.groups, state.n_groups, sizeof(*state.groups), compare_groups);
	for (size_t i = 0; rc == SQLITE_OK && i < state.n_groups; i++)
		for (unsigned c = 0; rc == SQLITE_OK && c < N_CLASSES; c++)
			if (state.groups[i].classes[c].n_experts > 0)
				rc = class_list(&state.groups[i], c, rows);
	sqlite3_free(state.groups);
	mt_pass_load_close(&state.load);
	return rc;
}

int mt_sql_register_rows(sqlite3 *db)
{
	return mt_tvf_register(db, &rows_of);
}
