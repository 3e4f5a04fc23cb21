/* SPDX-License-Identifier: MIT */
/*
 * Passes and their slices. The reader is three statements (trace_open.c): slices in the order of passes
 * and rows, layers of one pass, and runs by key (trace_layer.c).
 */
#include <sqlite3ext.h>
SQLITE_EXTENSION_INIT3

#include "array.h"
#include "mt_sql.h"
#include "trace_reader_internal.h"

#include <string.h>

_Thread_local sqlite3_int64 mt_reader_pass_id;

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
	rc = mt_array_reserve(&reader->blobs, &reader->blobs_size, offset + (size_t)n_bytes, 1);
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

	rc = mt_array_reserve(&reader->slices, &reader->slices_size, reader->n_slices + 1,
			      sizeof(*slice));
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
	mt_reader_pass_id = reader->pass_id;
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
	int rc = mt_array_reserve(&reader->slices, &reader->slices_size, 1, sizeof(*slice));

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
