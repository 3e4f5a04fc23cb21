/* SPDX-License-Identifier: MIT */
/*
 * The statements of a reader: their texts, and which of them a reader needs for what is asked of it.
 */
#include <sqlite3ext.h>
SQLITE_EXTENSION_INIT3

#include "mt_sql.h"
#include "trace_reader_internal.h"

#include <string.h>

static const char slice_columns[] =
	"p.pass_id, p.recording_id, p.model_id, p.n_rows, pr.slice, pr.request_id, pr.attempt,"
	" pr.first_position, pr.positions, pr.row_offset, pr.n_rows, pr.phase, pr.accepted";

/* Where a whole pass is read, a pass without slices has to be seen too, hence LEFT. */
static const char from_passes[] =
	" FROM main.pass AS p LEFT JOIN main.pass_request AS pr ON pr.pass_id = p.pass_id WHERE 1";
/*
 * Where only counts are wanted, a pass whose slices all have its phase and a request is one
 * slice: the last column is where the last of them ends. Most passes of a trace are of this kind; to
 * look for a slice of another kind costs a third of what it costs to add them up.
 */
static const char select_uniform[] =
	"SELECT p.pass_id, p.recording_id, p.model_id, p.n_rows, p.phase,"
	" (SELECT pr.row_offset + pr.n_rows FROM main.pass_request AS pr"
	" WHERE pr.pass_id = p.pass_id ORDER BY pr.slice DESC LIMIT 1)"
	" FROM main.pass AS p WHERE 1";
static const char select_other[] =
	"SELECT 1 FROM main.pass_request WHERE pass_id = ?1 AND (phase <> ?2 OR request_id IS NULL)"
	" LIMIT 1";
/*
 * Where all passes are read, one statement finds the passes with a slice that is not plain decoding,
 * which are few in most traces, in the order of passes: to look into each pass would cost twice that.
 */
static const char select_odd[] =
	"SELECT DISTINCT pass_id FROM main.pass_request WHERE phase <> 'decode' OR request_id IS NULL"
	" ORDER BY pass_id";
static const char one_pass[] = " AND p.pass_id = ?1 ORDER BY pr.slice";
static const char from_slices[] =
	" FROM main.pass_request AS pr CROSS JOIN main.pass AS p ON p.pass_id = pr.pass_id WHERE 1";

static const char *const slice_terms[MT_N_TERMS] = {
	[MT_TERM_RECORDING_ID] = " AND p.recording_id = ?1",
	[MT_TERM_MODEL_ID] = " AND p.model_id = ?2",
	[MT_TERM_PASS_ID] = " AND p.pass_id = ?3",
	[MT_TERM_FROM_NS] = " AND p.begin_ns >= ?4",
	[MT_TERM_UNTIL_NS] = " AND p.begin_ns < ?5",
	[MT_TERM_REQUEST_ID] = " AND pr.request_id = ?6",
	[MT_TERM_ATTEMPT] = " AND pr.attempt = ?7",
	/* The cast may let more slices through than the condition, never fewer. */
	[MT_TERM_POSITION] = (" AND (pr.positions IS NOT NULL OR CAST(?8 AS INTEGER)"
			      " BETWEEN pr.first_position AND pr.first_position + pr.n_rows - 1)"),
	[MT_TERM_FIRST_PASS] = " AND p.pass_id >= ?11",
	[MT_TERM_LAST_PASS] = " AND p.pass_id <= ?12",
};

static const char from_layers[] =
	"SELECT pl.layer_id, l.layer, l.model_id, pl.n_rows, pl.topk_id, pl.topk_row,"
	" pl.selection_order, pl.padding_active_experts, pl.map_epoch"
	" FROM main.pass_layer AS pl LEFT JOIN main.layer AS l ON l.layer_id = pl.layer_id"
	" WHERE pl.pass_id = ?1 AND pl.state = 0";

/*
 * Where only counts are wanted, one statement goes over the layers of all passes: to begin it anew
 * for each pass would cost as much as all that is read. What is known of a layer is looked up once.
 */
static const char scan_layers[] =
	"SELECT pl.pass_id, pl.layer_id, pl.n_rows, pl.topk_id, pl.topk_row";
static const char from_stored[] =
	" FROM main.pass_layer AS pl WHERE pl.pass_id >= ?1 AND pl.state = 0";
static const char from_stored_extras[] =
	", pl.selection_order, pl.padding_active_experts, pl.map_epoch"
	" FROM main.pass_layer AS pl WHERE pl.pass_id >= ?1 AND pl.state = 0";
static const char from_all[] =
	", pl.state, pl.map_epoch FROM main.pass_layer AS pl WHERE pl.pass_id >= ?1";
static const char from_all_extras[] =
	", pl.state, pl.map_epoch, pl.selection_order, pl.padding_active_experts"
	" FROM main.pass_layer AS pl WHERE pl.pass_id >= ?1";

static const char *const scan_terms[MT_N_TERMS] = {
	[MT_TERM_LAYER_ID] = " AND pl.layer_id = ?9",
	[MT_TERM_LAYER] = " AND pl.layer_id IN (SELECT layer_id FROM main.layer WHERE layer = ?10)",
};

static const char select_passes[] =
	"SELECT p.pass_id, p.recording_id, p.model_id, p.n_rows, p.phase, p.begin_ns"
	" FROM main.pass AS p WHERE 1";

static const char *const layer_terms[MT_N_TERMS] = {
	[MT_TERM_LAYER_ID] = " AND pl.layer_id = ?9",
	[MT_TERM_LAYER] = " AND l.layer = ?10",
};

/* Appends the terms in force to a statement's text, prepares it and binds the values. */
static int prepare_terms(struct mt_reader *reader, sqlite3_str *sql, const char *const *terms,
			 const char *order, const struct mt_filter *filter, sqlite3_stmt **ret_stmt)
{
	sqlite3_stmt *stmt = NULL;
	char *text;
	int rc;

	for (int i = 0; i < MT_N_TERMS; i++)
		if (terms[i] && (filter->values[i] || filter->numbers[i]))
			sqlite3_str_appendall(sql, terms[i]);
	sqlite3_str_appendall(sql, order);
	text = sqlite3_str_finish(sql);
	if (!text)
		return SQLITE_NOMEM;
	rc = mt_reader_prepare(reader, text, &stmt);
	sqlite3_free(text);
	for (int i = 0; rc == SQLITE_OK && i < MT_N_TERMS; i++) {
		if (terms[i] && filter->values[i])
			rc = sqlite3_bind_value(stmt, i + 1, filter->values[i]);
		else if (terms[i] && filter->numbers[i])
			rc = sqlite3_bind_int64(stmt, i + 1, *filter->numbers[i]);
	}
	*ret_stmt = stmt;
	return rc;
}

static bool has_terms(const char *const *terms, const struct mt_filter *filter)
{
	bool has = false;

	for (int i = 0; i < MT_N_TERMS; i++)
		has |= terms[i] && filter->values[i];
	return has;
}

/* Passes of one slice need no row a slice; the others are read one by one. */
static int open_counts(struct mt_reader *reader, const struct mt_filter *filter)
{
	static const struct mt_filter no_filter = {.schema = NULL};
	sqlite3_str *sql = sqlite3_str_new(reader->db);
	int rc;

	sqlite3_str_appendall(sql, select_uniform);
	rc = prepare_terms(reader, sql, slice_terms, " ORDER BY p.pass_id", filter,
			   &reader->pass_stmt);
	if (rc != SQLITE_OK)
		return rc;
	rc = mt_reader_prepare(reader, select_other, &reader->other_stmt);
	if (rc == SQLITE_OK && !has_terms(slice_terms, filter))
		rc = mt_reader_prepare(reader, select_odd, &reader->odd_stmt);
	if (rc != SQLITE_OK)
		return rc;
	sql = sqlite3_str_new(reader->db);
	sqlite3_str_appendf(sql, "SELECT %s%s", slice_columns, from_passes);
	return prepare_terms(reader, sql, slice_terms, one_pass, &no_filter, &reader->slice_stmt);
}

static int open_slices(struct mt_reader *reader, const struct mt_filter *filter)
{
	sqlite3_str *sql = sqlite3_str_new(reader->db);

	sqlite3_str_appendf(sql, "SELECT %s%s", slice_columns,
			    reader->by_slice ? from_slices : from_passes);
	return prepare_terms(reader, sql, slice_terms,
			     reader->by_slice ? " ORDER BY pr.pass_id, pr.slice"
					      : " ORDER BY p.pass_id, pr.slice",
			     filter, &reader->slice_stmt);
}

static int open_scan(struct mt_reader *reader, const struct mt_filter *filter)
{
	sqlite3_str *sql = sqlite3_str_new(reader->db);

	reader->scans = true;
	sqlite3_str_appendall(sql, scan_layers);
	if (reader->passes_only)
		sqlite3_str_appendall(sql, reader->extras ? from_all_extras : from_all);
	else
		sqlite3_str_appendall(sql, reader->extras ? from_stored_extras : from_stored);
	return prepare_terms(reader, sql, scan_terms, " ORDER BY pl.pass_id, pl.layer_id", filter,
			     &reader->layer_stmt);
}

/*
 * Counts are of stored rows. Where the recordings in question keep none, an empty answer would look
 * like experts that nobody selected.
 */
static int refuse_rowless(struct mt_reader *reader, const struct mt_filter *filter)
{
	static const char sql[] =
		"SELECT recording_id, mode FROM main.recording AS r WHERE (?1 IS NULL OR"
		" recording_id = ?1) AND NOT EXISTS (SELECT 1 FROM main.recording AS k WHERE"
		" (?1 IS NULL OR k.recording_id = ?1) AND k.mode = 'per_token') LIMIT 1";
	sqlite3_value *recording = filter->values[MT_TERM_RECORDING_ID];
	sqlite3_stmt *stmt = NULL;
	int rc = mt_reader_prepare(reader, sql, &stmt);

	if (rc != SQLITE_OK)
		return rc;
	if (recording)
		sqlite3_bind_value(stmt, 1, recording);
	rc = sqlite3_step(stmt);
	if (rc == SQLITE_ROW) {
		rc = mt_reader_fail(reader,
				    "recording %lld is of mode %s, which keeps no rows to count: ask "
				    "expert_load or layer_balance",
				    sqlite3_column_int64(stmt, 0),
				    (const char *)sqlite3_column_text(stmt, 1));
		/* The file is as it should be; the question is not. */
		if (rc != SQLITE_NOMEM)
			rc = MT_SQL_ARGUMENT;
	} else {
		rc = rc == SQLITE_DONE ? SQLITE_OK : mt_reader_fail_sqlite(reader, rc);
	}
	sqlite3_finalize(stmt);
	return rc;
}

int mt_reader_open(struct mt_reader *reader, sqlite3 *db, const char *name, unsigned what,
		   const struct mt_filter *filter)
{
	const bool counts_only = (what & MT_READ_COUNTS) != 0;
	sqlite3_str *sql;
	int rc;

	memset(reader, 0, sizeof(*reader));
	reader->db = db;
	reader->name = name;
	reader->schema = filter->schema;
	reader->counts_only = counts_only;
	reader->extras = (what & MT_READ_EXTRAS) != 0;
	reader->by_slice = filter->values[MT_TERM_REQUEST_ID] || filter->values[MT_TERM_ATTEMPT] ||
			   filter->values[MT_TERM_POSITION];
	rc = counts_only ? refuse_rowless(reader, filter) : SQLITE_OK;
	if (rc != SQLITE_OK)
		return rc;
	rc = counts_only && !reader->by_slice ? open_counts(reader, filter)
					      : open_slices(reader, filter);
	if (rc != SQLITE_OK)
		return rc;
	if (reader->pass_stmt)
		return open_scan(reader, filter);
	sql = sqlite3_str_new(db);
	sqlite3_str_appendall(sql, from_layers);
	return prepare_terms(reader, sql, layer_terms, " ORDER BY pl.layer_id", filter,
			     &reader->layer_stmt);
}

static int open_passes(struct mt_reader *reader, sqlite3 *db, const char *name, bool extras,
		       const struct mt_filter *filter)
{
	sqlite3_str *sql = sqlite3_str_new(db);
	int rc;

	memset(reader, 0, sizeof(*reader));
	reader->db = db;
	reader->name = name;
	reader->schema = filter->schema;
	reader->passes_only = true;
	reader->extras = extras;
	sqlite3_str_appendall(sql, select_passes);
	rc = prepare_terms(reader, sql, slice_terms, " ORDER BY p.pass_id", filter,
			   &reader->pass_stmt);
	return rc == SQLITE_OK ? open_scan(reader, filter) : rc;
}

int mt_reader_open_passes(struct mt_reader *reader, sqlite3 *db, const char *name,
			  const struct mt_filter *filter)
{
	return open_passes(reader, db, name, false, filter);
}

int mt_reader_open_layers(struct mt_reader *reader, sqlite3 *db, const char *name,
			  const struct mt_filter *filter)
{
	return open_passes(reader, db, name, true, filter);
}

void mt_reader_close(struct mt_reader *reader)
{
	sqlite3_finalize(reader->pass_stmt);
	sqlite3_finalize(reader->other_stmt);
	sqlite3_finalize(reader->odd_stmt);
	sqlite3_finalize(reader->slice_stmt);
	sqlite3_finalize(reader->layer_stmt);
	for (int i = 0; i < MT_N_RUNS; i++)
		sqlite3_finalize(reader->runs[i].stmt);
	sqlite3_free(reader->blobs);
	sqlite3_free(reader->slices);
	sqlite3_free(reader->facts);
	sqlite3_free(reader->error);
	memset(reader, 0, sizeof(*reader));
}
