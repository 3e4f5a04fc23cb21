/* SPDX-License-Identifier: MIT */
/*
 * The reader is three statements: slices in the order of passes and rows, layers of one pass,
 * and runs by key. A run is read once for all consecutive layers that lie in it; a few are
 * kept, because layers of different formats fill different runs in turn. The statement of a
 * kept run stays on its row, so that SQLite owns the blobs and nothing is copied twice.
 */
#include <sqlite3ext.h>
SQLITE_EXTENSION_INIT3

#include "trace_reader.h"

#include <stdarg.h>
#include <string.h>

/* Sizes beyond this are damage: a blob of SQLite holds at most 2^31 bytes. */
static const sqlite3_int64 max_count = INT64_C(1) << 31;

static int fail(struct mt_reader *reader, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

static int fail(struct mt_reader *reader, const char *format, ...)
{
	va_list args;
	char *text;

	va_start(args, format);
	text = sqlite3_vmprintf(format, args);
	va_end(args);
	sqlite3_free(reader->error);
	reader->error = sqlite3_mprintf("%s: %z", reader->name, text);
	return reader->error ? SQLITE_CORRUPT_VTAB : SQLITE_NOMEM;
}

static int fail_sqlite(struct mt_reader *reader, int rc)
{
	sqlite3_free(reader->error);
	reader->error = sqlite3_mprintf("%s: %s", reader->name, sqlite3_errmsg(reader->db));
	return rc;
}

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

/*
 * Every sqlite3_column_*() locks the connection, which the statement that runs us holds
 * already; the value behind a column is read without that. It halves the time of a slice.
 */
static bool column_int(sqlite3_stmt *stmt, int column, sqlite3_int64 *ret_value)
{
	sqlite3_value *value = sqlite3_column_value(stmt, column);

	if (sqlite3_value_type(value) != SQLITE_INTEGER)
		return false;
	*ret_value = sqlite3_value_int64(value);
	return true;
}

/* A non-negative integer of bounded size; anything else in the column is damage. */
static bool column_count(sqlite3_stmt *stmt, int column, size_t *ret_count)
{
	sqlite3_int64 value;

	if (!column_int(stmt, column, &value) || value < 0 || value > max_count)
		return false;
	*ret_count = (size_t)value;
	return true;
}

/* ---------------------------------------------------------------- statements ---- */

enum slice_column {
	SC_PASS_ID, SC_RECORDING_ID, SC_MODEL_ID, SC_PASS_ROWS, SC_SLICE, SC_REQUEST_ID, SC_ATTEMPT,
	SC_FIRST_POSITION, SC_POSITIONS, SC_ROW_OFFSET, SC_N_ROWS, SC_PHASE, SC_ACCEPTED
};

static const char slice_columns[] =
	"p.pass_id, p.recording_id, p.model_id, p.n_rows, pr.slice, pr.request_id, pr.attempt,"
	" pr.first_position, pr.positions, pr.row_offset, pr.n_rows, pr.phase, pr.accepted";

/* Where a whole pass is read, a pass without slices has to be seen too, hence LEFT. */
static const char from_passes[] =
	" FROM main.pass AS p LEFT JOIN main.pass_request AS pr ON pr.pass_id = p.pass_id WHERE 1";
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

enum layer_column { LC_LAYER_ID, LC_LAYER, LC_MODEL_ID, LC_N_ROWS, LC_TOPK_ID, LC_TOPK_ROW };

static const char from_layers[] =
	"SELECT pl.layer_id, l.layer, l.model_id, pl.n_rows, pl.topk_id, pl.topk_row"
	" FROM main.pass_layer AS pl LEFT JOIN main.layer AS l ON l.layer_id = pl.layer_id"
	" WHERE pl.pass_id = ?1 AND pl.state = 0";

static const char *const layer_terms[MT_N_TERMS] = {
	[MT_TERM_LAYER_ID] = " AND pl.layer_id = ?9",
	[MT_TERM_LAYER] = " AND l.layer = ?10",
};

enum run_column {
	RC_N_ROWS, RC_K, RC_ID_BYTES, RC_WEIGHT_FORMAT, RC_IDS, RC_WEIGHTS, RC_ROW_MAP, RC_N_VALID
};

static const char run_sql[] =
	"SELECT n_rows, k, id_bytes, weight_format, topk_ids, topk_weights, row_map, n_valid"
	" FROM main.topk WHERE topk_id = ?1";

/* Tables only: a file whose `topk` is a view of moe_topk must not recurse. */
static const unsigned prepare_flags = SQLITE_PREPARE_PERSISTENT | SQLITE_PREPARE_NO_VTAB;

static int prepare(struct mt_reader *reader, const char *sql, sqlite3_stmt **ret_stmt)
{
	int rc = sqlite3_prepare_v3(reader->db, sql, -1, prepare_flags, ret_stmt, NULL);

	return rc == SQLITE_OK ? rc : fail_sqlite(reader, rc);
}

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
	rc = prepare(reader, text, &stmt);
	sqlite3_free(text);
	for (int i = 0; rc == SQLITE_OK && i < MT_N_TERMS; i++)
		if (terms[i] && filter->values[i])
			rc = sqlite3_bind_value(stmt, i + 1, filter->values[i]);
	*ret_stmt = stmt;
	return rc;
}

int mt_reader_open(struct mt_reader *reader, sqlite3 *db, const char *name, bool counts_only,
		   const struct mt_filter *filter)
{
	sqlite3_str *sql;
	int rc;

	memset(reader, 0, sizeof(*reader));
	reader->db = db;
	reader->name = name;
	reader->counts_only = counts_only;
	reader->by_slice = filter->values[MT_TERM_REQUEST_ID] || filter->values[MT_TERM_ATTEMPT] ||
			   filter->values[MT_TERM_POSITION];

	sql = sqlite3_str_new(db);
	sqlite3_str_appendf(sql, "SELECT %s%s", slice_columns,
			    reader->by_slice ? from_slices : from_passes);
	rc = prepare_terms(reader, sql, slice_terms, reader->by_slice
			   ? " ORDER BY pr.pass_id, pr.slice" : " ORDER BY p.pass_id, pr.slice",
			   filter, &reader->slice_stmt);
	if (rc != SQLITE_OK)
		return rc;
	sql = sqlite3_str_new(db);
	sqlite3_str_appendall(sql, from_layers);
	return prepare_terms(reader, sql, layer_terms, " ORDER BY pl.layer_id", filter,
			     &reader->layer_stmt);
}

void mt_reader_close(struct mt_reader *reader)
{
	sqlite3_finalize(reader->slice_stmt);
	sqlite3_finalize(reader->layer_stmt);
	for (int i = 0; i < MT_N_RUNS; i++)
		sqlite3_finalize(reader->runs[i].stmt);
	sqlite3_free(reader->blobs);
	sqlite3_free(reader->slices);
	sqlite3_free(reader->error);
	memset(reader, 0, sizeof(*reader));
}

/* ------------------------------------------------------------ passes and slices ---- */

/* The texts are constants, so that a result may outlive its reader. */
static int read_phase(struct mt_reader *reader, const char *before, const char **ret_phase)
{
	static const char *const phases[] = {
		"prefill", "decode", "mixed", "verify", "draft", "idle", "dummy",
	};
	const char *text = (const char *)sqlite3_column_text(reader->slice_stmt, SC_PHASE);

	if (text && before && strcmp(before, text) == 0) {
		*ret_phase = before;
		return SQLITE_OK;
	}
	for (size_t i = 0; text && i < sizeof(phases) / sizeof(phases[0]); i++) {
		if (strcmp(phases[i], text) == 0) {
			*ret_phase = phases[i];
			return SQLITE_OK;
		}
	}
	return fail(reader, "pass_request (pass %lld, slice %lld): '%.32s' is no known phase",
		    reader->pass_id, sqlite3_column_int64(reader->slice_stmt, SC_SLICE),
		    text ? text : "NULL");
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
		return fail(reader, "pass_request (pass %lld, slice %lld): %s is no blob of %lld bytes",
			    reader->pass_id, sqlite3_column_int64(stmt, SC_SLICE), name, (long long)n_bytes);
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

	if (!column_count(stmt, SC_ROW_OFFSET, &slice->row_offset) ||
	    !column_count(stmt, SC_N_ROWS, &slice->n_rows) || slice->row_offset < end_of_before ||
	    (!reader->by_slice && slice->row_offset != end_of_before) ||
	    slice->row_offset + slice->n_rows > reader->n_rows)
		return fail(reader, "pass_request (pass %lld, slice %lld): row_offset or n_rows does not"
			    " fit the slices before it and the %lld rows of the pass", reader->pass_id,
			    sqlite3_column_int64(stmt, SC_SLICE), (long long)reader->n_rows);
	return SQLITE_OK;
}

/* What only a reader of single rows needs. */
static int read_slice_request(struct mt_reader *reader, struct mt_slice *slice)
{
	sqlite3_stmt *stmt = reader->slice_stmt;
	int rc;

	if (slice->has_request && (!column_int(stmt, SC_REQUEST_ID, &slice->request_id) ||
				   !column_int(stmt, SC_ATTEMPT, &slice->attempt) ||
				   !column_int(stmt, SC_FIRST_POSITION, &slice->first_position) ||
				   slice->first_position < 0 || slice->first_position > max_count * 2))
		return fail(reader, "pass_request (pass %lld, slice %lld): request_id, attempt or"
			    " first_position is not a valid number", reader->pass_id,
			    sqlite3_column_int64(stmt, SC_SLICE));
	rc = keep_blob(reader, SC_POSITIONS, (uint64_t)slice->n_rows * 4, "positions",
		       &slice->positions);
	if (rc == SQLITE_OK)
		rc = keep_blob(reader, SC_ACCEPTED, slice->n_rows, "accepted", &slice->accepted);
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
		rc = read_phase(reader, before ? before->phase : NULL, &slice->phase);
	if (rc == SQLITE_OK && !reader->counts_only)
		rc = read_slice_request(reader, slice);
	if (rc == SQLITE_OK)
		reader->n_slices++;
	return rc;
}

static int begin_pass(struct mt_reader *reader)
{
	sqlite3_stmt *stmt = reader->slice_stmt;

	reader->pass_id = sqlite3_column_int64(stmt, SC_PASS_ID);
	reader->n_slices = 0;
	reader->blobs_used = 0;
	if (!column_int(stmt, SC_RECORDING_ID, &reader->recording_id) ||
	    !column_int(stmt, SC_MODEL_ID, &reader->model_id) ||
	    !column_count(stmt, SC_PASS_ROWS, &reader->n_rows))
		return fail(reader, "pass %lld: recording_id, model_id or n_rows is not a valid number",
			    reader->pass_id);
	return SQLITE_OK;
}

/* Ends a pass of which all slices were read: where no slice is left out, they are its rows. */
static int check_pass(struct mt_reader *reader)
{
	const struct mt_slice *last = reader->n_slices ? &reader->slices[reader->n_slices - 1] : NULL;
	size_t covered = last ? last->row_offset + last->n_rows : 0;

	if (!reader->by_slice && covered != reader->n_rows)
		return fail(reader, "pass %lld: its slices in pass_request hold %lld of %lld rows",
			    reader->pass_id, (long long)covered, (long long)reader->n_rows);
	return SQLITE_OK;
}

int mt_reader_next_pass(struct mt_reader *reader)
{
	sqlite3_stmt *stmt = reader->slice_stmt;
	int rc = reader->slices_pending ? SQLITE_ROW : reader->ended ? SQLITE_DONE : sqlite3_step(stmt);

	if (rc != SQLITE_ROW)
		return rc == SQLITE_DONE ? rc : fail_sqlite(reader, rc);
	rc = begin_pass(reader);
	while (rc == SQLITE_OK) {
		if (sqlite3_column_type(stmt, SC_SLICE) != SQLITE_NULL)
			rc = read_slice(reader);
		if (rc != SQLITE_OK)
			return rc;
		rc = sqlite3_step(stmt);
		if (rc != SQLITE_ROW && rc != SQLITE_DONE)
			return fail_sqlite(reader, rc);
		reader->slices_pending = rc == SQLITE_ROW;
		reader->ended = rc == SQLITE_DONE;
		if (reader->ended || sqlite3_column_int64(stmt, SC_PASS_ID) != reader->pass_id)
			break;
		rc = SQLITE_OK;
	}
	if (rc != SQLITE_ROW && rc != SQLITE_DONE)
		return rc;
	rc = check_pass(reader);
	if (rc != SQLITE_OK)
		return rc;
	sqlite3_reset(reader->layer_stmt);
	rc = sqlite3_bind_int64(reader->layer_stmt, 1, reader->pass_id);
	return rc == SQLITE_OK ? SQLITE_ROW : fail_sqlite(reader, rc);
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

/* -------------------------------------------------------------- layers and runs ---- */

static int run_blob(struct mt_reader *reader, struct mt_run *run, int column, const char *name,
		    uint64_t n_bytes, const uint8_t **ret_blob)
{
	const void *blob;

	if (sqlite3_column_type(run->stmt, column) != SQLITE_BLOB ||
	    (uint64_t)sqlite3_column_bytes(run->stmt, column) != n_bytes)
		return fail(reader, "topk %lld: %s is no blob of %lld bytes, as n_rows, k and the format say",
			    run->topk_id, name, (long long)n_bytes);
	blob = sqlite3_column_blob(run->stmt, column);
	if (!blob && n_bytes)
		return SQLITE_NOMEM;
	*ret_blob = blob ? blob : (const uint8_t *)"";
	return SQLITE_OK;
}

static bool parse_format(const char *text, enum mt_weight_format *ret_format)
{
	if (text && strcmp(text, "none") == 0)
		*ret_format = MT_WEIGHT_NONE;
	else if (text && strcmp(text, "fp16") == 0)
		*ret_format = MT_WEIGHT_FP16;
	else if (text && strcmp(text, "bf16") == 0)
		*ret_format = MT_WEIGHT_BF16;
	else
		return false;
	return true;
}

static int read_run(struct mt_reader *reader, struct mt_run *run)
{
	sqlite3_stmt *stmt = run->stmt;
	uint64_t n_ids;
	int rc;

	run->ids = run->weights = run->row_map = run->n_valid = NULL;
	if (!column_count(stmt, RC_N_ROWS, &run->n_rows) || !column_count(stmt, RC_K, &run->k) ||
	    !column_count(stmt, RC_ID_BYTES, &run->id_bytes) || run->k < 1 || run->k > 65535 ||
	    (run->id_bytes != 1 && run->id_bytes != 2))
		return fail(reader, "topk %lld: n_rows, k or id_bytes is not a valid number", run->topk_id);
	if (!parse_format((const char *)sqlite3_column_text(stmt, RC_WEIGHT_FORMAT), &run->weight_format))
		return fail(reader, "topk %lld: weight_format is none of none, fp16, bf16", run->topk_id);
	n_ids = (uint64_t)run->n_rows * run->k;
	rc = run_blob(reader, run, RC_IDS, "topk_ids", n_ids * run->id_bytes, &run->ids);
	if (rc == SQLITE_OK && run->weight_format != MT_WEIGHT_NONE)
		rc = run_blob(reader, run, RC_WEIGHTS, "topk_weights", n_ids * 2, &run->weights);
	if (rc == SQLITE_OK && sqlite3_column_type(stmt, RC_ROW_MAP) != SQLITE_NULL)
		rc = run_blob(reader, run, RC_ROW_MAP, "row_map", (uint64_t)run->n_rows * 4, &run->row_map);
	if (rc == SQLITE_OK && sqlite3_column_type(stmt, RC_N_VALID) != SQLITE_NULL)
		rc = run_blob(reader, run, RC_N_VALID, "n_valid", run->n_rows, &run->n_valid);
	return rc;
}

static int find_run(struct mt_reader *reader, sqlite3_int64 topk_id)
{
	struct mt_run *run = &reader->runs[0];
	int rc;

	for (int i = 0; i < MT_N_RUNS; i++) {
		struct mt_run *other = &reader->runs[i];

		if (other->last_use && other->topk_id == topk_id) {
			other->last_use = ++reader->clock;
			reader->run = other;
			return SQLITE_OK;
		}
		if (other->last_use < run->last_use)
			run = other;
	}
	if (!run->stmt) {
		rc = prepare(reader, run_sql, &run->stmt);
		if (rc != SQLITE_OK)
			return rc;
	}
	run->last_use = 0;
	run->topk_id = topk_id;
	sqlite3_reset(run->stmt);
	sqlite3_bind_int64(run->stmt, 1, topk_id);
	rc = sqlite3_step(run->stmt);
	if (rc == SQLITE_DONE)
		return fail(reader, "pass_layer (pass %lld, layer_id %lld): topk %lld does not exist",
			    reader->pass_id, reader->layer_id, topk_id);
	if (rc != SQLITE_ROW)
		return fail_sqlite(reader, rc);
	rc = read_run(reader, run);
	if (rc == SQLITE_OK)
		run->last_use = ++reader->clock;
	reader->run = run;
	return rc;
}

static int check_layer(struct mt_reader *reader)
{
	const struct mt_run *run = reader->run;

	if (reader->first_row > run->n_rows || reader->n_layer_rows > run->n_rows - reader->first_row)
		return fail(reader, "pass_layer (pass %lld, layer_id %lld): rows %lld to %lld lie outside the"
			    " %lld rows of topk %lld", reader->pass_id, reader->layer_id,
			    (long long)reader->first_row,
			    (long long)(reader->first_row + reader->n_layer_rows) - 1,
			    (long long)run->n_rows, run->topk_id);
	if (!run->row_map && reader->n_layer_rows > reader->n_rows)
		return fail(reader, "pass_layer (pass %lld, layer_id %lld): n_rows is more than the %lld rows of"
			    " the pass", reader->pass_id, reader->layer_id, (long long)reader->n_rows);
	return SQLITE_OK;
}

static int read_layer(struct mt_reader *reader)
{
	sqlite3_stmt *stmt = reader->layer_stmt;
	sqlite3_int64 topk_id;
	int rc;

	reader->layer_id = sqlite3_column_int64(stmt, LC_LAYER_ID);
	if (!column_int(stmt, LC_LAYER, &reader->layer) ||
	    !column_int(stmt, LC_MODEL_ID, &reader->layer_model_id))
		return fail(reader, "layer %lld: no such row, or its numbers are not valid", reader->layer_id);
	if (!column_count(stmt, LC_N_ROWS, &reader->n_layer_rows) ||
	    !column_int(stmt, LC_TOPK_ID, &topk_id) ||
	    !column_count(stmt, LC_TOPK_ROW, &reader->first_row))
		return fail(reader, "pass_layer (pass %lld, layer_id %lld): n_rows, topk_id or topk_row is not"
			    " a valid number, though the layer is stored", reader->pass_id, reader->layer_id);
	rc = find_run(reader, topk_id);
	return rc == SQLITE_OK ? check_layer(reader) : rc;
}

int mt_reader_next_layer(struct mt_reader *reader)
{
	int rc = sqlite3_step(reader->layer_stmt);

	if (rc == SQLITE_DONE)
		return rc;
	if (rc != SQLITE_ROW)
		return fail_sqlite(reader, rc);
	rc = read_layer(reader);
	return rc == SQLITE_OK ? SQLITE_ROW : rc;
}

int mt_reader_map_row(struct mt_reader *reader, size_t i, size_t *ret_row)
{
	const uint8_t *entry = reader->run->row_map + (reader->first_row + i) * 4;
	size_t row = (size_t)entry[0] | (size_t)entry[1] << 8 | (size_t)entry[2] << 16 |
		     (size_t)entry[3] << 24;

	if (row >= reader->n_rows)
		return fail(reader, "topk %lld: row_map names row %lld, but pass %lld has %lld rows",
			    reader->run->topk_id, (long long)row, reader->pass_id, (long long)reader->n_rows);
	*ret_row = row;
	return SQLITE_OK;
}

int mt_reader_n_valid(struct mt_reader *reader, size_t i, size_t *ret_n_valid)
{
	const struct mt_run *run = reader->run;
	size_t n_valid = run->n_valid ? run->n_valid[reader->first_row + i] : run->k;

	if (n_valid > run->k)
		return fail(reader, "topk %lld: n_valid of row %lld is %lld, more than k = %lld", run->topk_id,
			    (long long)(reader->first_row + i), (long long)n_valid, (long long)run->k);
	*ret_n_valid = n_valid;
	return SQLITE_OK;
}

/* ------------------------------------------------------------------- estimates ---- */

static double largest_key(sqlite3 *db, const char *sql)
{
	sqlite3_stmt *stmt = NULL;
	double key = 0;

	if (sqlite3_prepare_v3(db, sql, -1, prepare_flags, &stmt, NULL) == SQLITE_OK &&
	    sqlite3_step(stmt) == SQLITE_ROW)
		key = sqlite3_column_double(stmt, 0);
	sqlite3_finalize(stmt);
	return key > 1 ? key : 1;
}

double mt_trace_estimate(sqlite3 *db, double *ret_n_passes)
{
	/* A full run holds 64 KiB of one-byte ids; files of few runs hold less. */
	const double per_run = 30000;

	*ret_n_passes = largest_key(db, "SELECT max(pass_id) FROM main.pass");
	return per_run * largest_key(db, "SELECT max(topk_id) FROM main.topk");
}
