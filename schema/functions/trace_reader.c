/* SPDX-License-Identifier: MIT */
/*
 * Passes and their slices. The reader is three statements: slices in the order of passes and
 * rows, layers of one pass, and runs by key (trace_layer.c).
 */
#include <sqlite3ext.h>
SQLITE_EXTENSION_INIT3

#include "mt_sql.h"
#include "trace_reader_internal.h"

#include <string.h>

/* Makes room for one more of n elements. */
static int reserve(void *array, size_t *size, size_t needed, size_t element_bytes)
{
	size_t bigger = *size ? *size : 64;
	void *old, *memory;

	if (needed <= *size)
		return SQLITE_OK;
	while (bigger < needed)
		bigger *= 2;
	memcpy(&old, array, sizeof(old));
	memory = sqlite3_realloc64(old, (sqlite3_uint64)bigger * element_bytes);
	if (!memory)
		return SQLITE_NOMEM;
	memcpy(array, &memory, sizeof(memory));
	*size = bigger;
	return SQLITE_OK;
}

/* ---------------------------------------------------------------- statements ---- */

enum slice_column {
	SC_PASS_ID,
	SC_RECORDING_ID,
	SC_MODEL_ID,
	SC_PASS_ROWS,
	SC_SLICE,
	SC_REQUEST_ID,
	SC_ATTEMPT,
	SC_FIRST_POSITION,
	SC_POSITIONS,
	SC_ROW_OFFSET,
	SC_N_ROWS,
	SC_PHASE,
	SC_ACCEPTED
};

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
enum uniform_column { UC_PHASE = SC_PASS_ROWS + 1, UC_END, UC_BEGIN_NS = UC_END };

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
		if (terms[i] && filter->values[i])
			sqlite3_str_appendall(sql, terms[i]);
	sqlite3_str_appendall(sql, order);
	text = sqlite3_str_finish(sql);
	if (!text)
		return SQLITE_NOMEM;
	rc = mt_reader_prepare(reader, text, &stmt);
	sqlite3_free(text);
	for (int i = 0; rc == SQLITE_OK && i < MT_N_TERMS; i++)
		if (terms[i] && filter->values[i])
			rc = sqlite3_bind_value(stmt, i + 1, filter->values[i]);
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
	static const struct mt_filter no_filter = {{NULL}};
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

/* ------------------------------------------------------------ passes and slices ---- */

static int read_phase(struct mt_reader *reader, sqlite3_stmt *stmt, int column, const char *before,
		      const char **ret_phase)
{
	const char *text = (const char *)sqlite3_column_text(stmt, column);
	const char *phase = mt_reader_phase(text, before);

	if (!phase)
		return mt_reader_fail(
			reader, "pass_request (pass %lld): '%.32s' is no known phase of a slice",
			reader->pass_id, text ? text : "NULL");
	*ret_phase = phase;
	return SQLITE_OK;
}

/* Keeps a blob of the current slice; the statement moves on before it is used. */
static int keep_blob(struct mt_reader *reader, int column, uint64_t n_bytes, const char *name,
		     size_t *ret_offset)
{
	sqlite3_stmt *stmt = reader->slice_stmt;
	size_t offset = reader->blobs_used;
	int rc;

	*ret_offset = 0;
	if (sqlite3_column_type(stmt, column) == SQLITE_NULL)
		return SQLITE_OK;
	if (sqlite3_column_type(stmt, column) != SQLITE_BLOB ||
	    (uint64_t)sqlite3_column_bytes(stmt, column) != n_bytes)
		return mt_reader_fail(
			reader, "pass_request (pass %lld, slice %lld): %s is no blob of %lld bytes",
			reader->pass_id, sqlite3_column_int64(stmt, SC_SLICE), name,
			(long long)n_bytes);
	if (n_bytes == 0)
		return SQLITE_OK;
	rc = reserve(&reader->blobs, &reader->blobs_size, offset + (size_t)n_bytes, 1);
	if (rc != SQLITE_OK)
		return rc;
	memcpy(reader->blobs + offset, sqlite3_column_blob(stmt, column), (size_t)n_bytes);
	reader->blobs_used = offset + (size_t)n_bytes;
	*ret_offset = offset + 1;
	return SQLITE_OK;
}

/* The slice's rows follow those of the slice before it, without a hole if none is left out. */
static int read_slice_rows(struct mt_reader *reader, size_t end_of_before, struct mt_slice *slice)
{
	sqlite3_stmt *stmt = reader->slice_stmt;

	if (!mt_column_count(stmt, SC_ROW_OFFSET, &slice->row_offset) ||
	    !mt_column_count(stmt, SC_N_ROWS, &slice->n_rows) ||
	    slice->row_offset < end_of_before ||
	    (!reader->by_slice && slice->row_offset != end_of_before) ||
	    slice->row_offset + slice->n_rows > reader->n_rows)
		return mt_reader_fail(
			reader,
			"pass_request (pass %lld, slice %lld): row_offset or n_rows does not"
			" fit the slices before it and the %lld rows of the pass",
			reader->pass_id, sqlite3_column_int64(stmt, SC_SLICE),
			(long long)reader->n_rows);
	return SQLITE_OK;
}

/* What only a reader of single rows needs. */
static int read_slice_request(struct mt_reader *reader, struct mt_slice *slice)
{
	sqlite3_stmt *stmt = reader->slice_stmt;
	int rc;

	if (slice->has_request &&
	    (!mt_column_int(stmt, SC_REQUEST_ID, &slice->request_id) ||
	     !mt_column_int(stmt, SC_ATTEMPT, &slice->attempt) ||
	     !mt_column_int(stmt, SC_FIRST_POSITION, &slice->first_position) ||
	     slice->first_position < 0 || slice->first_position > mt_max_count * 2))
		return mt_reader_fail(reader,
				      "pass_request (pass %lld, slice %lld): request_id, attempt or"
				      " first_position is not a valid number",
				      reader->pass_id, sqlite3_column_int64(stmt, SC_SLICE));
	rc = keep_blob(reader, SC_POSITIONS, (uint64_t)slice->n_rows * 4, "positions",
		       &slice->positions);
	return rc;
}

static int read_slice(struct mt_reader *reader)
{
	struct mt_slice *slice, *before;
	int rc;

	rc = reserve(&reader->slices, &reader->slices_size, reader->n_slices + 1, sizeof(*slice));
	if (rc != SQLITE_OK)
		return rc;
	slice = &reader->slices[reader->n_slices];
	before = reader->n_slices ? slice - 1 : NULL;
	memset(slice, 0, sizeof(*slice));
	slice->has_request = sqlite3_column_type(reader->slice_stmt, SC_REQUEST_ID) != SQLITE_NULL;
	rc = read_slice_rows(reader, before ? before->row_offset + before->n_rows : 0, slice);
	if (rc == SQLITE_OK)
		rc = read_phase(reader, reader->slice_stmt, SC_PHASE, before ? before->phase : NULL,
				&slice->phase);
	if (rc == SQLITE_OK && !reader->counts_only)
		rc = read_slice_request(reader, slice);
	if (rc == SQLITE_OK && (!reader->counts_only || reader->extras))
		rc = keep_blob(reader, SC_ACCEPTED, slice->n_rows, "accepted", &slice->accepted);
	if (rc == SQLITE_OK)
		reader->n_slices++;
	return rc;
}

static int begin_pass(struct mt_reader *reader, sqlite3_stmt *stmt)
{
	reader->pass_id = sqlite3_column_int64(stmt, SC_PASS_ID);
	reader->n_slices = 0;
	reader->blobs_used = 0;
	if (!mt_column_int(stmt, SC_RECORDING_ID, &reader->recording_id) ||
	    !mt_column_int(stmt, SC_MODEL_ID, &reader->model_id) ||
	    !mt_column_count(stmt, SC_PASS_ROWS, &reader->n_rows))
		return mt_reader_fail(
			reader, "pass %lld: recording_id, model_id or n_rows is not a valid number",
			reader->pass_id);
	return SQLITE_OK;
}

/* Ends a pass of which all slices were read: where no slice is left out, they are its rows. */
static int check_pass(struct mt_reader *reader)
{
	const struct mt_slice *last =
		reader->n_slices ? &reader->slices[reader->n_slices - 1] : NULL;
	size_t covered = last ? last->row_offset + last->n_rows : 0;

	if (!reader->by_slice && covered != reader->n_rows)
		return mt_reader_fail(
			reader, "pass %lld: its slices in pass_request hold %lld of %lld rows",
			reader->pass_id, (long long)covered, (long long)reader->n_rows);
	return SQLITE_OK;
}

static int begin_layers(struct mt_reader *reader)
{
	int rc;

	if (reader->scans)
		return mt_reader_scan_pass(reader);
	sqlite3_reset(reader->layer_stmt);
	rc = sqlite3_bind_int64(reader->layer_stmt, 1, reader->pass_id);
	return rc == SQLITE_OK ? SQLITE_ROW : mt_reader_fail_sqlite(reader, rc);
}

/* Reads the slices from the statement's row on, up to the first of the next pass. */
static int next_pass_of_slices(struct mt_reader *reader)
{
	sqlite3_stmt *stmt = reader->slice_stmt;
	int rc = reader->slices_pending ? SQLITE_ROW
		 : reader->ended	? SQLITE_DONE
					: sqlite3_step(stmt);

	if (rc != SQLITE_ROW)
		return rc == SQLITE_DONE ? rc : mt_reader_fail_sqlite(reader, rc);
	rc = begin_pass(reader, stmt);
	while (rc == SQLITE_OK) {
		if (sqlite3_column_type(stmt, SC_SLICE) != SQLITE_NULL)
			rc = read_slice(reader);
		if (rc != SQLITE_OK)
			return rc;
		rc = sqlite3_step(stmt);
		if (rc != SQLITE_ROW && rc != SQLITE_DONE)
			return mt_reader_fail_sqlite(reader, rc);
		reader->slices_pending = rc == SQLITE_ROW;
		reader->ended = rc == SQLITE_DONE;
		if (reader->ended || sqlite3_column_int64(stmt, SC_PASS_ID) != reader->pass_id)
			break;
		rc = SQLITE_OK;
	}
	if (rc != SQLITE_ROW && rc != SQLITE_DONE)
		return rc;
	rc = check_pass(reader);
	return rc == SQLITE_OK ? begin_layers(reader) : rc;
}

/* Makes one slice of the current pass. */
static int make_slice(struct mt_reader *reader, const char *phase)
{
	struct mt_slice *slice;
	int rc = reserve(&reader->slices, &reader->slices_size, 1, sizeof(*slice));

	if (rc != SQLITE_OK)
		return rc;
	slice = &reader->slices[0];
	memset(slice, 0, sizeof(*slice));
	slice->has_request = true;
	slice->n_rows = reader->n_rows;
	slice->phase = phase;
	reader->phase = phase;
	reader->n_slices = 1;
	return SQLITE_ROW;
}

/* SQLITE_ROW: the current pass has a slice that is not plain decoding; SQLITE_DONE: it has none. */
static int find_odd(struct mt_reader *reader)
{
	while (!reader->odds_ended && reader->odd_pass_id < reader->pass_id) {
		const int rc = sqlite3_step(reader->odd_stmt);

		if (rc != SQLITE_ROW && rc != SQLITE_DONE)
			return rc;
		reader->odds_ended = rc == SQLITE_DONE;
		if (rc == SQLITE_ROW)
			reader->odd_pass_id = sqlite3_column_int64(reader->odd_stmt, 0);
	}
	return reader->odd_pass_id == reader->pass_id ? SQLITE_ROW : SQLITE_DONE;
}

/* The same of slices that are not of @phase. */
static int find_other(struct mt_reader *reader, const char *phase)
{
	sqlite3_stmt *stmt = reader->other_stmt;
	int rc;

	if (reader->odd_stmt && strcmp(phase, "decode") == 0)
		return find_odd(reader);
	sqlite3_reset(stmt);
	sqlite3_bind_int64(stmt, 1, reader->pass_id);
	rc = sqlite3_bind_text(stmt, 2, phase, -1, SQLITE_STATIC);
	return rc == SQLITE_OK ? sqlite3_step(stmt) : rc;
}

/* SQLITE_ROW: the pass is one slice; SQLITE_OK: its slices have to be read. */
static int read_uniform(struct mt_reader *reader)
{
	const char *text = (const char *)sqlite3_column_text(reader->pass_stmt, UC_PHASE);
	const char *phase = mt_reader_phase(text, reader->phase);
	size_t end;
	int rc;

	if (!phase || !mt_column_count(reader->pass_stmt, UC_END, &end) || end != reader->n_rows)
		return SQLITE_OK;
	/* Rows of a verify pass differ by their acceptance. */
	if (reader->extras && strcmp(phase, "verify") == 0)
		return SQLITE_OK;
	rc = find_other(reader, phase);
	if (rc == SQLITE_DONE)
		return make_slice(reader, phase);
	return rc == SQLITE_ROW ? SQLITE_OK : mt_reader_fail_sqlite(reader, rc);
}

/* The columns of select_passes that slices would otherwise tell. */
static int read_pass_alone(struct mt_reader *reader)
{
	sqlite3_stmt *stmt = reader->pass_stmt;
	const char *text = (const char *)sqlite3_column_text(stmt, UC_PHASE);

	reader->phase = mt_reader_phase(text, reader->phase);
	if (!reader->phase || !mt_column_int(stmt, UC_BEGIN_NS, &reader->begin_ns))
		return mt_reader_fail(reader, "pass %lld: phase or begin_ns is not valid",
				      reader->pass_id);
	return begin_layers(reader);
}

static int next_pass_of_counts(struct mt_reader *reader)
{
	int rc = sqlite3_step(reader->pass_stmt);

	if (rc != SQLITE_ROW)
		return rc == SQLITE_DONE ? rc : mt_reader_fail_sqlite(reader, rc);
	rc = begin_pass(reader, reader->pass_stmt);
	if (rc != SQLITE_OK)
		return rc;
	if (reader->passes_only)
		return read_pass_alone(reader);
	rc = read_uniform(reader);
	if (rc != SQLITE_OK)
		return rc == SQLITE_ROW ? begin_layers(reader) : rc;
	sqlite3_reset(reader->slice_stmt);
	reader->slices_pending = false;
	reader->ended = false;
	rc = sqlite3_bind_int64(reader->slice_stmt, 1, reader->pass_id);
	return rc == SQLITE_OK ? next_pass_of_slices(reader) : mt_reader_fail_sqlite(reader, rc);
}

int mt_reader_next_pass(struct mt_reader *reader)
{
	return reader->pass_stmt ? next_pass_of_counts(reader) : next_pass_of_slices(reader);
}

const struct mt_slice *mt_reader_find_slice(const struct mt_reader *reader, size_t row)
{
	size_t low = 0, high = reader->n_slices;

	while (low < high) {
		size_t middle = low + (high - low) / 2;
		const struct mt_slice *slice = &reader->slices[middle];

		if (row < slice->row_offset)
			high = middle;
		else if (row - slice->row_offset >= slice->n_rows)
			low = middle + 1;
		else
			return slice;
	}
	return NULL;
}
