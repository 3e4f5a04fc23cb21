/* SPDX-License-Identifier: MIT */
/*
 * moe_topk: a row for each stored assignment of the main database, decoded from the blobs as
 * it is asked for; margin and row_flags, which few files have, are told to who names them. for_request, the argument of moe_topk(N), is another name of request_id. The
 * cursor holds a place (pass, layer, row, topk_rank); columns are computed from it. A row of a
 * layer without a row map is found through the slices, one of a layer with a row map through the
 * map, so that a condition on the request skips the rest in both. Conditions that are pushed down
 * are applied to whole passes, slices and layers; SQLite checks each row again, so that the reader
 * may do less but never more than was asked.
 */
#include <sqlite3ext.h>
SQLITE_EXTENSION_INIT3

#include "mt_sql.h"
#include "trace_reader.h"

#include <string.h>

#include "common/bytes.h"
#include "common/f16.h"

enum topk_column {
	TC_RECORDING_ID,
	TC_MODEL_ID,
	TC_REQUEST_ID,
	TC_ATTEMPT,
	TC_POSITION,
	TC_PASS_ID,
	TC_ROW,
	TC_PHASE,
	TC_LAYER_ID,
	TC_LAYER,
	TC_STATE,
	TC_TOPK_RANK,
	TC_EXPERT,
	TC_WEIGHT,
	TC_FOR_REQUEST,
	TC_MARGIN,
	TC_ROW_FLAGS,
	TC_N_COLUMNS
};

/* The key tells SQLite which rows are the same row, where it joins the answers of an OR. */
static const char topk_declaration[] =
	"CREATE TABLE moe_topk (recording_id INTEGER, model_id INTEGER, request_id INTEGER,"
	" attempt INTEGER, position INTEGER, pass_id INTEGER, row INTEGER, phase TEXT,"
	" layer_id INTEGER, layer INTEGER, state TEXT, topk_rank INTEGER, expert INTEGER,"
	" weight REAL, for_request INTEGER HIDDEN, margin REAL HIDDEN, row_flags INTEGER HIDDEN,"
	" PRIMARY KEY (pass_id, layer_id, row, topk_rank)) WITHOUT ROWID";

/* The term that a condition on the column becomes; -1: SQLite applies it alone. */
static const signed char column_terms[TC_N_COLUMNS] = {
	[TC_RECORDING_ID] = MT_TERM_RECORDING_ID,
	[TC_MODEL_ID] = MT_TERM_MODEL_ID,
	[TC_REQUEST_ID] = MT_TERM_REQUEST_ID,
	[TC_ATTEMPT] = MT_TERM_ATTEMPT,
	[TC_POSITION] = MT_TERM_POSITION,
	[TC_PASS_ID] = MT_TERM_PASS_ID,
	[TC_ROW] = -1,
	[TC_PHASE] = -1,
	[TC_LAYER_ID] = MT_TERM_LAYER_ID,
	[TC_LAYER] = MT_TERM_LAYER,
	[TC_STATE] = -1,
	[TC_TOPK_RANK] = -1,
	[TC_EXPERT] = -1,
	[TC_WEIGHT] = -1,
	[TC_MARGIN] = -1,
	[TC_ROW_FLAGS] = -1,
	[TC_FOR_REQUEST] = MT_TERM_REQUEST_ID,
};

struct topk_table {
	sqlite3_vtab base;
	sqlite3 *db;
};

struct topk_cursor {
	sqlite3_vtab_cursor base;
	struct mt_reader reader;
	bool ended;
	bool by_position;
	sqlite3_int64 wanted_position;
	size_t next_slice; /* without a row map: the slice after the current one */
	size_t layer_row;  /* row of the layer, from 0 */
	size_t end_row;	   /* layer rows to visit before the next slice or layer */
	size_t row;	   /* row of the pass */
	const struct mt_slice *slice;
	size_t topk_rank, n_valid;
};

static int topk_connect(sqlite3 *db, void *aux, int argc, const char *const *argv,
			sqlite3_vtab **ret_table, char **ret_error)
{
	struct topk_table *table;
	int rc = sqlite3_declare_vtab(db, topk_declaration);

	(void)aux, (void)argc, (void)argv, (void)ret_error;
	if (rc != SQLITE_OK)
		return rc;
	table = sqlite3_malloc(sizeof(*table));
	if (!table)
		return SQLITE_NOMEM;
	memset(table, 0, sizeof(*table));
	table->db = db;
	/* It reads the file that it is queried in and nothing else. */
	sqlite3_vtab_config(db, SQLITE_VTAB_INNOCUOUS);
	*ret_table = &table->base;
	return SQLITE_OK;
}

static int topk_disconnect(sqlite3_vtab *table)
{
	sqlite3_free(table);
	return SQLITE_OK;
}

/*
 * Costs are in assignments. A whole file costs its assignments; a pass or a layer is about its
 * share of them; a request costs a look at all slices, and then its share.
 */
static void topk_set_cost(struct topk_table *table, sqlite3_index_info *info, unsigned mask)
{
	double n_passes, rows = mt_trace_estimate(table->db, &n_passes), fixed = 10;

	if (mask & 1u << MT_TERM_PASS_ID) {
		rows /= n_passes;
	} else if (mask & 1u << MT_TERM_REQUEST_ID) {
		fixed += n_passes * 8;
		rows /= 100;
	} else if (mask & (1u << MT_TERM_ATTEMPT | 1u << MT_TERM_POSITION)) {
		fixed += n_passes * 8;
		rows /= 10;
	}
	if (mask & (1u << MT_TERM_LAYER_ID | 1u << MT_TERM_LAYER)) {
		fixed += n_passes;
		rows /= 20;
	}
	if (mask & (1u << MT_TERM_RECORDING_ID | 1u << MT_TERM_MODEL_ID))
		rows /= 2;
	info->estimatedCost = fixed + rows;
	info->estimatedRows = rows > 1 ? (sqlite3_int64)rows : 1;
}

static int topk_best_index(sqlite3_vtab *base, sqlite3_index_info *info)
{
	int constraint_of[MT_N_TERMS], n_arguments = 0;
	unsigned mask = 0;

	for (int i = 0; i < info->nConstraint; i++) {
		const struct sqlite3_index_constraint *c = &info->aConstraint[i];
		int term = c->iColumn >= 0 ? column_terms[c->iColumn] : -1;

		if (!c->usable || c->op != SQLITE_INDEX_CONSTRAINT_EQ || term < 0 ||
		    mask & 1u << term)
			continue;
		constraint_of[term] = i;
		mask |= 1u << term;
	}
	for (int term = 0; term < MT_N_TERMS; term++) {
		if (mask & 1u << term)
			info->aConstraintUsage[constraint_of[term]].argvIndex = ++n_arguments;
	}
	info->idxNum = (int)mask;
	topk_set_cost((struct topk_table *)base, info, mask);
	return SQLITE_OK;
}

static int topk_open(sqlite3_vtab *table, sqlite3_vtab_cursor **ret_cursor)
{
	struct topk_cursor *cursor = sqlite3_malloc(sizeof(*cursor));

	(void)table;
	if (!cursor)
		return SQLITE_NOMEM;
	memset(cursor, 0, sizeof(*cursor));
	*ret_cursor = &cursor->base;
	return SQLITE_OK;
}

static int topk_close(sqlite3_vtab_cursor *base)
{
	struct topk_cursor *cursor = (struct topk_cursor *)base;

	mt_reader_close(&cursor->reader);
	sqlite3_free(cursor);
	return SQLITE_OK;
}

/* Hands the reader's message to the table, where SQLite looks for it. */
static int topk_report(struct topk_cursor *cursor, int rc)
{
	if (rc != SQLITE_OK && cursor->reader.error) {
		sqlite3_free(cursor->base.pVtab->zErrMsg);
		cursor->base.pVtab->zErrMsg = cursor->reader.error;
		cursor->reader.error = NULL;
	}
	return rc;
}

static sqlite3_int64 position_of(const struct topk_cursor *cursor)
{
	const struct mt_slice *slice = cursor->slice;
	size_t within = cursor->row - slice->row_offset;

	if (!slice->positions)
		return slice->first_position + (sqlite3_int64)within;
	return mt_u32_at(cursor->reader.blobs + (slice->positions - 1) + within * 4);
}

/* Moves to the next layer with rows. SQLITE_OK and cursor->ended at the end of the trace. */
static int next_layer(struct topk_cursor *cursor)
{
	struct mt_reader *reader = &cursor->reader;
	int rc = reader->run ? mt_reader_next_layer(reader) : SQLITE_DONE;

	while (rc == SQLITE_DONE) {
		rc = mt_reader_next_pass(reader);
		if (rc == SQLITE_DONE) {
			cursor->ended = true;
			return SQLITE_OK;
		}
		if (rc == SQLITE_ROW)
			rc = mt_reader_next_layer(reader);
	}
	if (rc != SQLITE_ROW)
		return rc;
	cursor->next_slice = 0;
	cursor->layer_row = 0;
	cursor->end_row = reader->run->row_map ? reader->n_layer_rows : 0;
	return SQLITE_OK;
}

/* Without a row map: the rows of the next slice that the layer holds. */
static bool next_slice(struct topk_cursor *cursor)
{
	const struct mt_reader *reader = &cursor->reader;
	const struct mt_slice *slice;

	if (reader->run->row_map || cursor->next_slice == reader->n_slices)
		return false;
	slice = &reader->slices[cursor->next_slice++];
	cursor->slice = slice;
	cursor->layer_row = slice->row_offset;
	cursor->end_row = slice->row_offset + slice->n_rows;
	if (cursor->end_row > reader->n_layer_rows)
		cursor->end_row = reader->n_layer_rows;
	return true;
}

/* The row of the pass at layer_row, and its slice; NULL: a slice that is not asked for. */
static int locate_row(struct topk_cursor *cursor)
{
	int rc;

	if (!cursor->reader.run->row_map) {
		cursor->row = cursor->layer_row;
		return SQLITE_OK;
	}
	rc = mt_reader_map_row(&cursor->reader, cursor->layer_row, &cursor->row);
	if (rc == SQLITE_OK)
		cursor->slice = mt_reader_find_slice(&cursor->reader, cursor->row);
	return rc;
}

static bool row_is_wanted(const struct topk_cursor *cursor)
{
	if (!cursor->slice || cursor->n_valid == 0)
		return false;
	return !cursor->by_position ||
	       (cursor->slice->has_request && position_of(cursor) == cursor->wanted_position);
}

/* Finds the first wanted row at or after the cursor's place. */
static int settle(struct topk_cursor *cursor)
{
	int rc = SQLITE_OK;

	for (; rc == SQLITE_OK && !cursor->ended; cursor->layer_row++) {
		while (cursor->layer_row >= cursor->end_row) {
			if (cursor->reader.run && next_slice(cursor))
				continue;
			rc = next_layer(cursor);
			if (rc != SQLITE_OK || cursor->ended)
				return topk_report(cursor, rc);
		}
		rc = locate_row(cursor);
		if (rc == SQLITE_OK)
			rc = mt_reader_n_valid(&cursor->reader, cursor->layer_row,
					       &cursor->n_valid);
		if (rc == SQLITE_OK && row_is_wanted(cursor))
			return SQLITE_OK;
	}
	return topk_report(cursor, rc);
}

static int topk_filter(sqlite3_vtab_cursor *base, int mask, const char *name, int n_arguments,
		       sqlite3_value **arguments)
{
	struct topk_cursor *cursor = (struct topk_cursor *)base;
	struct mt_filter filter = {.schema = NULL};
	int next = 0, rc;

	(void)name, (void)n_arguments;
	mt_reader_close(&cursor->reader);
	for (int term = 0; term < MT_N_TERMS; term++)
		if ((unsigned)mask & 1u << term)
			filter.values[term] = arguments[next++];
	cursor->by_position = filter.values[MT_TERM_POSITION] &&
			      sqlite3_value_type(filter.values[MT_TERM_POSITION]) == SQLITE_INTEGER;
	if (cursor->by_position)
		cursor->wanted_position = sqlite3_value_int64(filter.values[MT_TERM_POSITION]);
	cursor->ended = false;
	cursor->layer_row = 0;
	cursor->end_row = 0;
	cursor->topk_rank = 0;
	rc = mt_reader_open(&cursor->reader, ((struct topk_table *)base->pVtab)->db, "moe_topk",
			    false, &filter);
	return rc == SQLITE_OK ? settle(cursor) : topk_report(cursor, rc);
}

static int topk_next(sqlite3_vtab_cursor *base)
{
	struct topk_cursor *cursor = (struct topk_cursor *)base;

	if (++cursor->topk_rank < cursor->n_valid)
		return SQLITE_OK;
	cursor->topk_rank = 0;
	cursor->layer_row++;
	return settle(cursor);
}

static int topk_eof(sqlite3_vtab_cursor *base)
{
	return ((struct topk_cursor *)base)->ended;
}

static const char *state_of(const struct topk_cursor *cursor)
{
	const struct mt_slice *slice = cursor->slice;
	size_t within = cursor->row - slice->row_offset;

	if (!slice->has_request)
		return "dummy";
	if (strcmp(slice->phase, "draft") == 0)
		return "draft";
	if (strcmp(slice->phase, "verify") != 0)
		return "computed";
	if (!slice->accepted)
		return "unresolved";
	return cursor->reader.blobs[slice->accepted - 1 + within] == 1 ? "computed" : "rejected";
}

static int expert_of(const struct topk_cursor *cursor)
{
	const struct mt_run *run = cursor->reader.run;
	size_t at = (cursor->reader.first_row + cursor->layer_row) * run->k + cursor->topk_rank;

	return (int)mt_narrow_at(run->ids, run->id_bytes, at);
}

/* Infinities and NaNs are NULL, as in routed_expert: SQL has no such numbers. */
static void result_weight(sqlite3_context *context, const struct topk_cursor *cursor)
{
	const struct mt_run *run = cursor->reader.run;
	size_t at = (cursor->reader.first_row + cursor->layer_row) * run->k + cursor->topk_rank;
	uint16_t exponent = run->weight_format == MT_WEIGHT_FP16 ? 0x7c00 : 0x7f80;
	uint16_t bits;

	if (!run->weights)
		return;
	bits = (uint16_t)mt_u16_at(run->weights + at * 2);
	if ((bits & exponent) == exponent)
		return;
	sqlite3_result_double(context, run->weight_format == MT_WEIGHT_FP16
					       ? (double)mt_f32_from_f16(bits)
					       : (double)mt_f32_from_bf16(bits));
}

/* Of the row. NULL: not told, or nothing was left out, which is infinity. */
static void result_margin(sqlite3_context *context, const struct topk_cursor *cursor)
{
	const uint8_t *p = cursor->reader.run->margins;
	uint32_t bits;
	float margin;

	if (!p)
		return;
	p += (cursor->reader.first_row + cursor->layer_row) * 4;
	bits = mt_u32_at(p);
	memcpy(&margin, &bits, sizeof(margin));
	if ((bits & 0x7f800000) != 0x7f800000)
		sqlite3_result_double(context, (double)margin);
}

static void result_request(sqlite3_context *context, const struct topk_cursor *cursor, int column)
{
	if (!cursor->slice->has_request)
		return;
	if (column == TC_ATTEMPT)
		sqlite3_result_int64(context, cursor->slice->attempt);
	else if (column == TC_POSITION)
		sqlite3_result_int64(context, position_of(cursor));
	else
		sqlite3_result_int64(context, cursor->slice->request_id);
}

static int topk_column(sqlite3_vtab_cursor *base, sqlite3_context *context, int column)
{
	const struct topk_cursor *cursor = (const struct topk_cursor *)base;
	const struct mt_reader *reader = &cursor->reader;

	switch (column) {
	case TC_RECORDING_ID:
		sqlite3_result_int64(context, reader->recording_id);
		break;
	case TC_MODEL_ID:
		sqlite3_result_int64(context, reader->model_id);
		break;
	case TC_REQUEST_ID:
	case TC_ATTEMPT:
	case TC_POSITION:
	case TC_FOR_REQUEST:
		result_request(context, cursor, column);
		break;
	case TC_PASS_ID:
		sqlite3_result_int64(context, reader->pass_id);
		break;
	case TC_ROW:
		sqlite3_result_int64(context, (sqlite3_int64)cursor->row);
		break;
	case TC_PHASE:
		sqlite3_result_text(context, cursor->slice->phase, -1, SQLITE_STATIC);
		break;
	case TC_LAYER_ID:
		sqlite3_result_int64(context, reader->layer_id);
		break;
	case TC_LAYER:
		sqlite3_result_int64(context, reader->layer);
		break;
	case TC_STATE:
		sqlite3_result_text(context, state_of(cursor), -1, SQLITE_STATIC);
		break;
	case TC_TOPK_RANK:
		sqlite3_result_int64(context, (sqlite3_int64)cursor->topk_rank);
		break;
	case TC_EXPERT:
		sqlite3_result_int(context, expert_of(cursor));
		break;
	case TC_WEIGHT:
		result_weight(context, cursor);
		break;
	case TC_MARGIN:
		result_margin(context, cursor);
		break;
	case TC_ROW_FLAGS:
		if (reader->run->row_flags)
			sqlite3_result_int(context, reader->run->row_flags[reader->first_row +
									   cursor->layer_row]);
		break;
	}
	return SQLITE_OK;
}

/* Without xCreate the module is a function: it exists in every database and is never created. */
static const sqlite3_module topk_module = {
	.iVersion = 0,
	.xConnect = topk_connect,
	.xBestIndex = topk_best_index,
	.xDisconnect = topk_disconnect,
	.xOpen = topk_open,
	.xClose = topk_close,
	.xFilter = topk_filter,
	.xNext = topk_next,
	.xEof = topk_eof,
	.xColumn = topk_column,
};

int mt_sql_register_topk(sqlite3 *db)
{
	return sqlite3_create_module_v2(db, "moe_topk", &topk_module, NULL, NULL);
}
