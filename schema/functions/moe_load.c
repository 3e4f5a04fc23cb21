/* SPDX-License-Identifier: MIT */
/*
 * moe_load(from_ns, until_ns, request_id): how many stored rows selected each expert, by
 * recording, layer and phase, counted from the ids themselves. A pass counts when it begins at
 * from_ns or later and before until_ns; an argument that is absent or NULL does not restrict.
 * phase is the slice's own; rows of no request are 'dummy'. Experts that nothing selected have
 * no row. Everything is counted when the query begins, and then listed in the order of the keys.
 */
#include <sqlite3ext.h>
SQLITE_EXTENSION_INIT3

#include "array.h"
#include "mt_sql.h"
#include "load_count.h"
#include "trace_reader.h"

#include <stdlib.h>
#include <string.h>

enum load_column {
	LD_RECORDING_ID,
	LD_MODEL_ID,
	LD_LAYER_ID,
	LD_LAYER,
	LD_EXPERT,
	LD_PHASE,
	LD_TOKENS,
	LD_FROM_NS,
	LD_UNTIL_NS,
	LD_REQUEST_ID,
	LD_N_COLUMNS
};

/* The arguments belong to the key: they change what a row counts. */
static const char load_declaration[] =
	"CREATE TABLE moe_load (recording_id INTEGER, model_id INTEGER, layer_id INTEGER,"
	" layer INTEGER, expert INTEGER, phase TEXT, tokens INTEGER,"
	" from_ns INTEGER HIDDEN, until_ns INTEGER HIDDEN, request_id INTEGER HIDDEN,"
	" PRIMARY KEY (from_ns, until_ns, request_id, recording_id, layer_id, expert, phase))"
	" WITHOUT ROWID";

static const signed char column_terms[LD_N_COLUMNS] = {
	[LD_RECORDING_ID] = MT_TERM_RECORDING_ID,
	[LD_MODEL_ID] = MT_TERM_MODEL_ID,
	[LD_LAYER_ID] = MT_TERM_LAYER_ID,
	[LD_LAYER] = MT_TERM_LAYER,
	[LD_EXPERT] = -1,
	[LD_PHASE] = -1,
	[LD_TOKENS] = -1,
	[LD_FROM_NS] = MT_TERM_FROM_NS,
	[LD_UNTIL_NS] = MT_TERM_UNTIL_NS,
	[LD_REQUEST_ID] = MT_TERM_REQUEST_ID,
};

struct load_table {
	sqlite3_vtab base;
	sqlite3 *db;
};

/* The counts of one recording, layer and phase. */
struct load_group {
	sqlite3_int64 recording_id, model_id, layer_id, layer;
	const char *phase;
	struct mt_counts counts;
};

/* Consecutive rows of a pass that count for the same phase. */
struct load_segment {
	size_t row_offset, n_rows;
	const char *phase;
};

struct load_cursor {
	sqlite3_vtab_cursor base;
	sqlite3_value *arguments[3]; /* from_ns, until_ns, request_id; NULL: not restricted */
	struct load_group **groups;
	size_t n_groups, groups_size;
	size_t hint; /* where the group of the next layer is likely to be */
	struct load_segment *segments;
	size_t n_segments, segments_size;
	size_t group, expert; /* the current row */
};

static int load_connect(sqlite3 *db, void *aux, int argc, const char *const *argv,
			sqlite3_vtab **ret_table, char **ret_error)
{
	struct load_table *table;
	int rc = sqlite3_declare_vtab(db, load_declaration);

	(void)aux, (void)argc, (void)argv, (void)ret_error;
	if (rc != SQLITE_OK)
		return rc;
	table = sqlite3_malloc(sizeof(*table));
	if (!table)
		return SQLITE_NOMEM;
	memset(table, 0, sizeof(*table));
	table->db = db;
	sqlite3_vtab_config(db, SQLITE_VTAB_INNOCUOUS);
	*ret_table = &table->base;
	return SQLITE_OK;
}

static int load_disconnect(sqlite3_vtab *table)
{
	sqlite3_free(table);
	return SQLITE_OK;
}

static bool is_argument(int column)
{
	return column >= LD_FROM_NS;
}

/* Counting costs about a hundredth of a row that SQLite handles. */
static void load_set_cost(struct load_table *table, sqlite3_index_info *info, unsigned mask)
{
	double n_passes, cost = mt_trace_estimate(table->db, &n_passes) / 100, rows = 10000;

	if (mask & (1u << MT_TERM_LAYER_ID | 1u << MT_TERM_LAYER)) {
		cost /= 20;
		rows /= 20;
	}
	if (mask & (1u << MT_TERM_FROM_NS | 1u << MT_TERM_UNTIL_NS))
		cost /= 4;
	if (mask & 1u << MT_TERM_REQUEST_ID)
		cost /= 10;
	info->estimatedCost = cost + n_passes + rows;
	info->estimatedRows = (sqlite3_int64)rows;
}

static int load_best_index(sqlite3_vtab *base, sqlite3_index_info *info)
{
	int constraint_of[MT_N_TERMS], n_arguments = 0;
	unsigned mask = 0;

	for (int i = 0; i < info->nConstraint; i++) {
		const struct sqlite3_index_constraint *c = &info->aConstraint[i];
		int term = c->iColumn >= 0 ? column_terms[c->iColumn] : -1;

		if (term < 0)
			continue;
		/* The arguments change what is counted, so they are applied here or not at all. */
		if (is_argument(c->iColumn) &&
		    (!c->usable || mask & 1u << term || c->op != SQLITE_INDEX_CONSTRAINT_EQ))
			return SQLITE_CONSTRAINT;
		if (!c->usable || c->op != SQLITE_INDEX_CONSTRAINT_EQ || mask & 1u << term)
			continue;
		constraint_of[term] = i;
		mask |= 1u << term;
	}
	for (int term = 0; term < MT_N_TERMS; term++) {
		if (!(mask & 1u << term))
			continue;
		info->aConstraintUsage[constraint_of[term]].argvIndex = ++n_arguments;
		info->aConstraintUsage[constraint_of[term]].omit =
			is_argument(info->aConstraint[constraint_of[term]].iColumn);
	}
	info->idxNum = (int)mask;
	load_set_cost((struct load_table *)base, info, mask);
	return SQLITE_OK;
}

static int load_open(sqlite3_vtab *table, sqlite3_vtab_cursor **ret_cursor)
{
	struct load_cursor *cursor = sqlite3_malloc(sizeof(*cursor));

	(void)table;
	if (!cursor)
		return SQLITE_NOMEM;
	memset(cursor, 0, sizeof(*cursor));
	*ret_cursor = &cursor->base;
	return SQLITE_OK;
}

static void clear(struct load_cursor *cursor)
{
	for (int i = 0; i < 3; i++) {
		sqlite3_value_free(cursor->arguments[i]);
		cursor->arguments[i] = NULL;
	}
	for (size_t i = 0; i < cursor->n_groups; i++) {
		sqlite3_free(cursor->groups[i]->counts.u16);
		sqlite3_free(cursor->groups[i]);
	}
	cursor->n_groups = 0;
	cursor->hint = 0;
}

static int load_close(sqlite3_vtab_cursor *base)
{
	struct load_cursor *cursor = (struct load_cursor *)base;

	clear(cursor);
	sqlite3_free(cursor->groups);
	sqlite3_free(cursor->segments);
	sqlite3_free(cursor);
	return SQLITE_OK;
}

/* ------------------------------------------------------------------- counting ---- */

static bool is_group(const struct load_group *group, const struct mt_reader *reader,
		     const char *phase)
{
	return group->layer_id == reader->layer_id && group->phase == phase &&
	       group->recording_id == reader->recording_id;
}

static int add_group(struct load_cursor *cursor, const struct mt_reader *reader, const char *phase)
{
	struct load_group *group;

	if (mt_array_reserve(&cursor->groups, &cursor->groups_size, cursor->n_groups + 1,
			     sizeof(*cursor->groups)) != SQLITE_OK)
		return SQLITE_NOMEM;
	group = sqlite3_malloc(sizeof(*group));
	if (!group)
		return SQLITE_NOMEM;
	memset(group, 0, sizeof(*group));
	group->recording_id = reader->recording_id;
	group->model_id = reader->layer_model_id;
	group->layer_id = reader->layer_id;
	group->layer = reader->layer;
	group->phase = phase;
	cursor->groups[cursor->n_groups++] = group;
	return SQLITE_OK;
}

/* Passes repeat their layers, so the group after the last one found is nearly always it. */
static int find_group(struct load_cursor *cursor, const struct mt_reader *reader, const char *phase,
		      struct load_group **ret_group)
{
	int rc = SQLITE_OK;
	size_t i;

	for (i = 0; i < cursor->n_groups; i++) {
		size_t at = cursor->hint + i < cursor->n_groups
				    ? cursor->hint + i
				    : cursor->hint + i - cursor->n_groups;

		if (is_group(cursor->groups[at], reader, phase)) {
			cursor->hint = at + 1 < cursor->n_groups ? at + 1 : 0;
			*ret_group = cursor->groups[at];
			return SQLITE_OK;
		}
	}
	rc = add_group(cursor, reader, phase);
	if (rc == SQLITE_OK)
		*ret_group = cursor->groups[cursor->n_groups - 1];
	return rc;
}

/* Joins neighbouring slices of the pass that count alike. */
static int find_segments(struct load_cursor *cursor, const struct mt_reader *reader)
{
	cursor->n_segments = 0;
	if (cursor->segments_size < reader->n_slices) {
		void *segments = sqlite3_realloc64(cursor->segments,
						   reader->n_slices * sizeof(*cursor->segments));

		if (!segments)
			return SQLITE_NOMEM;
		cursor->segments = segments;
		cursor->segments_size = reader->n_slices;
	}
	for (size_t i = 0; i < reader->n_slices; i++) {
		const struct mt_slice *slice = &reader->slices[i];
		const char *phase = slice->has_request ? slice->phase : "dummy";
		struct load_segment *last =
			cursor->n_segments ? &cursor->segments[cursor->n_segments - 1] : NULL;

		if (last && strcmp(last->phase, phase) == 0 &&
		    last->row_offset + last->n_rows == slice->row_offset)
			last->n_rows += slice->n_rows;
		else
			cursor->segments[cursor->n_segments++] =
				(struct load_segment){slice->row_offset, slice->n_rows, phase};
	}
	return SQLITE_OK;
}

static int count_ids(struct load_group *group, const struct mt_run *run, size_t row, size_t n_ids)
{
	const uint8_t *ids = run->ids + row * run->k * run->id_bytes;

	if (run->id_bytes == 2)
		return mt_count_u16(&group->counts, ids, n_ids);
	mt_count_u8(&group->counts, ids, n_ids);
	return SQLITE_OK;
}

static int count_row(struct load_group *group, struct mt_reader *reader, size_t i)
{
	size_t n_valid;
	int rc = mt_reader_n_valid(reader, i, &n_valid);

	return rc == SQLITE_OK ? count_ids(group, reader->run, reader->first_row + i, n_valid) : rc;
}

/* A layer without a row map: each segment's rows lie together. */
static int count_segments(struct load_cursor *cursor, struct mt_reader *reader)
{
	struct load_group *group;
	int rc = SQLITE_OK;

	for (size_t s = 0; rc == SQLITE_OK && s < cursor->n_segments; s++) {
		const struct load_segment *segment = &cursor->segments[s];
		size_t begin = segment->row_offset, end = begin + segment->n_rows;

		if (end > reader->n_layer_rows)
			end = reader->n_layer_rows;
		if (begin >= end)
			continue;
		rc = find_group(cursor, reader, segment->phase, &group);
		if (rc == SQLITE_OK && !reader->run->n_valid)
			rc = count_ids(group, reader->run, reader->first_row + begin,
				       (end - begin) * reader->run->k);
		else
			for (size_t i = begin; rc == SQLITE_OK && i < end; i++)
				rc = count_row(group, reader, i);
	}
	return rc;
}

static int count_mapped(struct load_cursor *cursor, struct mt_reader *reader)
{
	const struct mt_slice *slice;
	struct load_group *group;
	int rc = SQLITE_OK;
	size_t row;

	for (size_t i = 0; rc == SQLITE_OK && i < reader->n_layer_rows; i++) {
		rc = mt_reader_map_row(reader, i, &row);
		if (rc != SQLITE_OK)
			break;
		slice = mt_reader_find_slice(reader, row);
		if (!slice)
			continue;
		rc = find_group(cursor, reader, slice->has_request ? slice->phase : "dummy",
				&group);
		if (rc == SQLITE_OK)
			rc = count_row(group, reader, i);
	}
	return rc;
}

static int count_all(struct load_cursor *cursor, struct mt_reader *reader)
{
	int rc;

	while ((rc = mt_reader_next_pass(reader)) == SQLITE_ROW) {
		rc = find_segments(cursor, reader);
		if (rc != SQLITE_OK)
			return rc;
		while ((rc = mt_reader_next_layer(reader)) == SQLITE_ROW) {
			rc = reader->run->row_map ? count_mapped(cursor, reader)
						  : count_segments(cursor, reader);
			if (rc != SQLITE_OK)
				return rc;
		}
		if (rc != SQLITE_DONE)
			return rc;
	}
	return rc == SQLITE_DONE ? SQLITE_OK : rc;
}

/* -------------------------------------------------------------------- listing ---- */

static int compare_groups(const void *left, const void *right)
{
	const struct load_group *a = *(struct load_group *const *)left;
	const struct load_group *b = *(struct load_group *const *)right;

	if (a->recording_id != b->recording_id)
		return a->recording_id < b->recording_id ? -1 : 1;
	if (a->layer_id != b->layer_id)
		return a->layer_id < b->layer_id ? -1 : 1;
	return strcmp(a->phase, b->phase);
}

/* Finds the first expert with tokens at or after the cursor's place. */
static void settle(struct load_cursor *cursor)
{
	for (; cursor->group < cursor->n_groups; cursor->group++, cursor->expert = 0) {
		const struct mt_counts *counts = &cursor->groups[cursor->group]->counts;

		for (; cursor->expert < mt_counts_size(counts); cursor->expert++)
			if (mt_counts_get(counts, cursor->expert))
				return;
	}
}

/* Keeps an argument for xColumn and makes it a term unless it is NULL. */
static int take_argument(struct load_cursor *cursor, struct mt_filter *filter, int term, int index)
{
	sqlite3_value *value = filter->values[term];

	if (!value)
		return SQLITE_OK;
	if (sqlite3_value_type(value) == SQLITE_NULL) {
		filter->values[term] = NULL;
		return SQLITE_OK;
	}
	cursor->arguments[index] = sqlite3_value_dup(value);
	return cursor->arguments[index] ? SQLITE_OK : SQLITE_NOMEM;
}

static int load_filter(sqlite3_vtab_cursor *base, int mask, const char *name, int n_arguments,
		       sqlite3_value **arguments)
{
	struct load_cursor *cursor = (struct load_cursor *)base;
	struct mt_filter filter = {.schema = NULL};
	struct mt_reader reader = {0};
	int next = 0, rc;

	(void)name, (void)n_arguments;
	clear(cursor);
	for (int term = 0; term < MT_N_TERMS; term++)
		if ((unsigned)mask & 1u << term)
			filter.values[term] = arguments[next++];
	rc = take_argument(cursor, &filter, MT_TERM_FROM_NS, 0);
	if (rc == SQLITE_OK)
		rc = take_argument(cursor, &filter, MT_TERM_UNTIL_NS, 1);
	if (rc == SQLITE_OK)
		rc = take_argument(cursor, &filter, MT_TERM_REQUEST_ID, 2);
	if (rc == SQLITE_OK)
		rc = mt_reader_open(&reader, ((struct load_table *)base->pVtab)->db, "moe_load",
				    true, &filter);
	if (rc == SQLITE_OK)
		rc = count_all(cursor, &reader);
	if (rc != SQLITE_OK && reader.error) {
		sqlite3_free(base->pVtab->zErrMsg);
		base->pVtab->zErrMsg = reader.error;
		reader.error = NULL;
	}
	mt_reader_close(&reader);
	if (rc == SQLITE_OK && cursor->n_groups)
		qsort(cursor->groups, cursor->n_groups, sizeof(*cursor->groups), compare_groups);
	cursor->group = 0;
	cursor->expert = 0;
	if (rc == SQLITE_OK)
		settle(cursor);
	return rc;
}

static int load_next(sqlite3_vtab_cursor *base)
{
	struct load_cursor *cursor = (struct load_cursor *)base;

	cursor->expert++;
	settle(cursor);
	return SQLITE_OK;
}

static int load_eof(sqlite3_vtab_cursor *base)
{
	const struct load_cursor *cursor = (const struct load_cursor *)base;

	return cursor->group >= cursor->n_groups;
}

static int load_column(sqlite3_vtab_cursor *base, sqlite3_context *context, int column)
{
	const struct load_cursor *cursor = (const struct load_cursor *)base;
	const struct load_group *group = cursor->groups[cursor->group];

	switch (column) {
	case LD_RECORDING_ID:
		sqlite3_result_int64(context, group->recording_id);
		break;
	case LD_MODEL_ID:
		sqlite3_result_int64(context, group->model_id);
		break;
	case LD_LAYER_ID:
		sqlite3_result_int64(context, group->layer_id);
		break;
	case LD_LAYER:
		sqlite3_result_int64(context, group->layer);
		break;
	case LD_EXPERT:
		sqlite3_result_int64(context, (sqlite3_int64)cursor->expert);
		break;
	case LD_PHASE:
		sqlite3_result_text(context, group->phase, -1, SQLITE_STATIC);
		break;
	case LD_TOKENS:
		sqlite3_result_int64(context,
				     (sqlite3_int64)mt_counts_get(&group->counts, cursor->expert));
		break;
	default:
		if (cursor->arguments[column - LD_FROM_NS])
			sqlite3_result_value(context, cursor->arguments[column - LD_FROM_NS]);
		break;
	}
	return SQLITE_OK;
}

static const sqlite3_module load_module = {
	.iVersion = 0,
	.xConnect = load_connect,
	.xBestIndex = load_best_index,
	.xDisconnect = load_disconnect,
	.xOpen = load_open,
	.xClose = load_close,
	.xFilter = load_filter,
	.xNext = load_next,
	.xEof = load_eof,
	.xColumn = load_column,
};

int mt_sql_register_load(sqlite3 *db)
{
	return sqlite3_create_module_v2(db, "moe_load", &load_module, NULL, NULL);
}
