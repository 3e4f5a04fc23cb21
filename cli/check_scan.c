/* SPDX-License-Identifier: MIT */
/*
 * The scan: passes, slices and layers are read in the order of their keys side by side, so that
 * all of a pass is at hand at once and nothing is sorted. Slices and layers without a pass are
 * skipped; the proof of foreign keys names them.
 */
#include "cli/check.h"

#include <stdlib.h>
#include <string.h>

#include "common/bytes.h"

#define SQL_PASS                                                                        \
	"SELECT pass_id, recording_id, model_id, n_rows, n_dropped, verdict, reasons, " \
	"phase, padding_rows, begin_ns "                                                \
	"FROM pass ORDER BY pass_id"
#define SQL_SLICE                                                                             \
	"SELECT pass_id, slice, request_id, attempt, first_position, positions, row_offset, " \
	"n_rows, "                                                                            \
	"phase, accepted FROM pass_request ORDER BY pass_id, slice"
#define SQL_LAYER                                                                                \
	"SELECT pass_id, layer_id, active_experts, max_load, state, n_rows, topk_id, topk_row, " \
	"selection_order, padding_active_experts, map_epoch, tied_rows FROM pass_layer " \
	"ORDER BY pass_id, layer_id"

/* A statement that is one row ahead. */
struct cursor {
	sqlite3_stmt *stmt;
	bool has_row;
};

static int cursor_step(struct check *check, struct cursor *cursor)
{
	int rc = sqlite3_step(cursor->stmt);

	cursor->has_row = rc == SQLITE_ROW;
	return rc == SQLITE_ROW || rc == SQLITE_DONE ? MT_EXIT_OK : mt_trace_error(check->trace);
}

static int cursor_open(struct check *check, struct cursor *cursor, const char *sql)
{
	cursor->stmt = mt_trace_prepare(check->trace, sql);
	return cursor->stmt ? cursor_step(check, cursor) : MT_EXIT_FAILED;
}

/* Go on to the first row of @pass_id or after it. */
static int cursor_seek(struct check *check, struct cursor *cursor, int64_t pass_id)
{
	int status = MT_EXIT_OK;

	while (status == MT_EXIT_OK && cursor->has_row &&
	       sqlite3_column_int64(cursor->stmt, 0) < pass_id)
		status = cursor_step(check, cursor);
	return status;
}

static bool cursor_is_at(const struct cursor *cursor, int64_t pass_id)
{
	return cursor->has_row && sqlite3_column_int64(cursor->stmt, 0) == pass_id;
}

/* ---- slices ---- */

static enum check_column column_of_phase(const char *phase, bool has_request)
{
	if (!has_request || !phase)
		return CHECK_OTHER;
	if (strcmp(phase, "prefill") == 0)
		return CHECK_PREFILL;
	if (strcmp(phase, "decode") == 0)
		return CHECK_DECODE;
	if (strcmp(phase, "verify") == 0)
		return CHECK_VERIFY;
	return CHECK_OTHER;
}

/* What decides whether a row of a slice is computed. */
struct slice_rows {
	int64_t n_rows;
	const uint8_t *positions; /* NULL: consecutive */
	const uint8_t *accepted;  /* NULL: never reported */
	bool can_compute;	  /* rows of a request that are no draft */
	bool is_verify;
};

static bool is_row_computed(const struct slice_rows *rows, int64_t i)
{
	if (rows->is_verify && (!rows->accepted || rows->accepted[i] == 0))
		return false;
	return rows->can_compute;
}

static int64_t position_at(const uint8_t *positions, int64_t first, int64_t i)
{
	return positions ? (int64_t)mt_u32_at(positions + 4 * i) : first + i;
}

/* Add the computed positions of a slice of a request as spans of consecutive positions. */
static int spans_add(struct check *check, struct check_span *span, const struct slice_rows *rows)
{
	int64_t first = span->first;
	int64_t position;
	int64_t i;
	int status = MT_EXIT_OK;

	span->n = 0;
	for (i = 0; i < rows->n_rows && status == MT_EXIT_OK; i++) {
		if (!is_row_computed(rows, i))
			continue;
		position = position_at(rows->positions, first, i);
		if (span->n > 0 && position == span->first + span->n) {
			span->n++;
			continue;
		}
		if (span->n > 0)
			status = check_span_add(check, span);
		span->first = position;
		span->n = 1;
	}
	if (status == MT_EXIT_OK && span->n > 0)
		status = check_span_add(check, span);
	return status;
}

/* A blob of exactly @n_bytes in @column, else NULL. */
static const uint8_t *blob_of_size(sqlite3_stmt *stmt, int column, int64_t n_bytes)
{
	if (sqlite3_column_type(stmt, column) != SQLITE_BLOB ||
	    sqlite3_column_bytes(stmt, column) != n_bytes)
		return NULL;
	return sqlite3_column_blob(stmt, column);
}

/* Of sampled requests the rows are kept: every nth by handle, from 1. */
static int keep_note(struct check *check, sqlite3_stmt *stmt, int64_t offset, int64_t n_rows)
{
	struct check_pass *pass = &check->pass;
	int64_t n = pass->recording->n_requests;
	int64_t handle = 0;
	bool is_kept;

	if (n <= 1 || n_rows == 0)
		return MT_EXIT_OK;
	if (sqlite3_column_type(stmt, 2) != SQLITE_NULL) {
		if (!check->handle_stmt)
			check->handle_stmt = mt_trace_prepare(
				check->trace, "SELECT handle FROM request WHERE request_id = ?1");
		if (!check->handle_stmt)
			return MT_EXIT_FAILED;
		sqlite3_bind_int64(check->handle_stmt, 1, sqlite3_column_int64(stmt, 2));
		if (sqlite3_step(check->handle_stmt) == SQLITE_ROW)
			handle = sqlite3_column_int64(check->handle_stmt, 0);
		sqlite3_reset(check->handle_stmt);
	}
	is_kept = handle > 0 && (handle - 1) % n == 0;
	memset(pass->is_kept + offset, is_kept, (size_t)n_rows);
	pass->is_sampled |= !is_kept;
	return MT_EXIT_OK;
}

/* Mark the rows of a slice that lies inside the pass, and note what it computed. */
static int slice_take(struct check *check, sqlite3_stmt *stmt, int64_t offset, int64_t n_rows)
{
	struct check_pass *pass = &check->pass;
	bool has_request = sqlite3_column_type(stmt, 2) != SQLITE_NULL;
	const char *phase = (const char *)sqlite3_column_text(stmt, 8);
	enum check_column column = column_of_phase(phase, has_request);
	struct slice_rows rows = {
		.n_rows = n_rows,
		.positions = blob_of_size(stmt, 5, n_rows * 4),
		.accepted = blob_of_size(stmt, 9, n_rows),
		.can_compute = has_request && phase && strcmp(phase, "draft") != 0,
		.is_verify = column == CHECK_VERIFY,
	};
	struct check_span span = {
		.request_id = sqlite3_column_int64(stmt, 2),
		.model_id = pass->model_id,
		.attempt = sqlite3_column_int64(stmt, 3),
		.first = sqlite3_column_int64(stmt, 4),
		.pass_id = pass->pass_id,
		.first_row = offset,
		.n_rows = n_rows,
	};
	int64_t i;

	if (keep_note(check, stmt, offset, n_rows) != MT_EXIT_OK)
		return MT_EXIT_FAILED;
	memset(pass->columns + offset, (int)column, (size_t)n_rows);
	for (i = 0; i < n_rows; i++)
		pass->is_computed[offset + i] = is_row_computed(&rows, i);
	if (!has_request || span.first < 0 || span.first > INT64_MAX / 2)
		return MT_EXIT_OK; /* named by values */
	return spans_add(check, &span, &rows);
}

/*
 * Whether the slice's phase contradicts that of its pass. A runtime that calls every pass mixed is
 * believed; and the token sampled last goes through the model in front of the proposed ones.
 */
static bool phase_is_foreign(const struct check_pass *pass, sqlite3_stmt *stmt)
{
	const char *phase = (const char *)sqlite3_column_text(stmt, 8);
	bool has_request = sqlite3_column_type(stmt, 2) != SQLITE_NULL;

	if (!has_request || !phase || !pass->phase)
		return false; /* rows of no request only fill up; NULL is named by types */
	if (strcmp(pass->phase, "mixed") == 0 || strcmp(phase, pass->phase) == 0)
		return false;
	return strcmp(pass->phase, "verify") != 0 || strcmp(phase, "decode") != 0;
}

static int slices_scan(struct check *check, struct cursor *slices)
{
	struct check_pass *pass = &check->pass;
	int64_t next_row = 0;
	int64_t next_slice = 0;
	int status;

	status = cursor_seek(check, slices, pass->pass_id);
	while (status == MT_EXIT_OK && cursor_is_at(slices, pass->pass_id)) {
		int64_t slice = sqlite3_column_int64(slices->stmt, 1);
		int64_t offset = sqlite3_column_int64(slices->stmt, 6);
		int64_t n_rows = sqlite3_column_int64(slices->stmt, 7);

		check->results[CHECK_SLICES].n_checked++;
		if (n_rows < 0 || offset != next_row || n_rows > pass->n_rows - offset ||
		    slice != next_slice) {
			check_violation(check, CHECK_SLICES,
					"pass_request %lld,%lld: rows %lld to "
					"%lld do not follow row %lld of %lld",
					(long long)pass->pass_id, (long long)slice,
					(long long)offset,
					(long long)offset + (long long)n_rows - 1,
					(long long)next_row, (long long)pass->n_rows);
			return cursor_seek(check, slices, pass->pass_id + 1);
		}
		next_row = offset + n_rows;
		next_slice = slice + 1;
		if (phase_is_foreign(pass, slices->stmt))
			check_violation(check, CHECK_SLICES,
					"pass_request %lld,%lld: its phase is not that of its pass",
					(long long)pass->pass_id, (long long)slice);
		status = slice_take(check, slices->stmt, offset, n_rows);
		if (status == MT_EXIT_OK)
			status = cursor_step(check, slices);
	}
	if (status == MT_EXIT_OK && next_row != pass->n_rows)
		check_violation(check, CHECK_SLICES,
				"pass %lld: its slices have %lld rows, the pass "
				"%lld",
				(long long)pass->pass_id, (long long)next_row,
				(long long)pass->n_rows);
	return status;
}

/* ---- layers ---- */

static bool is_integer(sqlite3_stmt *stmt, int column)
{
	return sqlite3_column_type(stmt, column) == SQLITE_INTEGER;
}

/* Whether what a stored layer needs is there, and what any other may not have is not. */
static bool layer_is_consistent(sqlite3_stmt *stmt, int64_t state)
{
	static const int stored_columns[] = {6, 7, 8};
	bool is_counted = state == 0 || state == 3;
	size_t i;

	for (i = 0; i < sizeof(stored_columns) / sizeof(stored_columns[0]); i++)
		if (is_integer(stmt, stored_columns[i]) != (state == 0))
			return false;
	if (is_integer(stmt, 2) != is_counted || is_integer(stmt, 3) != is_counted)
		return false;
	/* Of a layer that the runtime counted itself its rows are not known. */
	if (is_integer(stmt, 5) ? !is_counted : state == 0)
		return false;
	/* Rows tied where an order was restored, and nowhere else. */
	if (is_integer(stmt, 11) != (state == 0 && sqlite3_column_int64(stmt, 8) == 1))
		return false;
	return is_counted || sqlite3_column_type(stmt, 9) == SQLITE_NULL;
}

static int layer_take(struct check *check, sqlite3_stmt *stmt)
{
	struct check_pass *pass = &check->pass;
	const struct check_layer *layer;
	int64_t layer_id = sqlite3_column_int64(stmt, 1);
	int64_t state = sqlite3_column_int64(stmt, 4);

	layer = check_layer_find(check, layer_id);
	check->results[CHECK_LAYERS].n_checked++;
	if (!layer || layer->model_id != pass->model_id || state < 0 || state > 3 ||
	    !layer_is_consistent(stmt, state)) {
		check_violation(check, CHECK_LAYERS, "pass_layer %lld,%lld: %s",
				(long long)pass->pass_id, (long long)layer_id,
				!layer ? "no such layer"
				: layer->model_id != pass->model_id
					? "a layer of another model"
					: "its columns do not fit its state");
		return MT_EXIT_OK;
	}
	pass->n_stored += state == 0 || state == 3;
	pass->n_counted += state == 3;
	pass->n_unwritten += state == 1;
	pass->n_lost += state == 2;
	if (state == 3)
		return check_layer_counts(check, layer, stmt);
	return state == 0 ? check_layer_rows(check, layer, stmt) : MT_EXIT_OK;
}

static int layers_scan(struct check *check, struct cursor *layers)
{
	struct check_pass *pass = &check->pass;
	int status;

	pass->n_stored = 0;
	pass->n_counted = 0;
	pass->n_unwritten = 0;
	pass->n_lost = 0;
	status = cursor_seek(check, layers, pass->pass_id);
	while (status == MT_EXIT_OK && cursor_is_at(layers, pass->pass_id)) {
		status = layer_take(check, layers->stmt);
		if (status == MT_EXIT_OK)
			status = cursor_step(check, layers);
	}
	return status;
}

/* ---- passes ---- */

static const char *const pass_reasons[] = {"lost",    "unwritten", "invalid", "unended",
					   "sampled", "counted",   NULL};

/* What is wrong with the pass's verdict; NULL: nothing. */
static const char *verdict_fault(const struct check_pass *pass)
{
	bool is_complete = pass->verdict && strcmp(pass->verdict, "complete") == 0;
	bool lost = pass->n_lost > 0;
	size_t n_layers = pass->model ? pass->model->n_layers : 0;

	if (!pass->verdict)
		return "has no verdict";
	if (is_complete != (pass->reasons == NULL))
		return is_complete ? "is complete, yet has reasons" : "is partial without a reason";
	if (pass->reasons && !check_reasons_are_known(pass->reasons, pass_reasons))
		return "has a reason that the schema does not name";
	if (is_complete && pass->n_rows > 0 && pass->n_stored != n_layers)
		return "is complete, but layers are not stored";
	if (lost != check_has_reason(pass->reasons, "lost"))
		return lost ? "lost layers, but its reasons do not say lost"
			    : "says lost, but nothing of it is";
	if (pass->n_unwritten == 0 && check_has_reason(pass->reasons, "unwritten"))
		return "says unwritten, but no layer is";
	if (pass->n_rows > 0 && pass->n_unwritten > 0 &&
	    !check_has_reason(pass->reasons, "unwritten") &&
	    !check_has_reason(pass->reasons, "unended"))
		return "has unwritten layers, but its reasons do not say unwritten";
	if ((pass->n_counted > 0 && pass->recording->is_per_token) !=
	    check_has_reason(pass->reasons, "counted"))
		return "its reasons do not fit the number of layers that are only counted";
	if (pass->is_sampled != check_has_reason(pass->reasons, "sampled"))
		return pass->is_sampled ? "has rows of requests that are not sampled, but its "
					  "reasons do not say sampled"
					: "says sampled, but all of its rows are kept";
	if ((uint64_t)pass->n_dropped != pass->n_lost)
		return "n_dropped is not the number of its dropped layers";
	return NULL;
}

/*
 * Rows with ids that no expert has make their own slice partial, not those beside it. Which rows
 * they were is not stored, but they have fewer entries than their run.
 */
static void span_judge(const struct check_pass *pass, struct check_span *span)
{
	size_t n_layers = pass->model ? pass->model->n_layers : 0;
	bool is_stored = pass->n_stored == n_layers;

	span->is_whole = is_stored && !pass->reasons;
	span->may_be_whole = span->is_whole;
	/* Of a sampled pass the rows of sampled requests are whole. */
	if (is_stored && pass->reasons && strcmp(pass->reasons, "sampled") == 0)
		span->is_whole = span->may_be_whole = pass->is_kept[span->first_row];
	if (!is_stored || !pass->reasons ||
	    (strcmp(pass->reasons, "invalid") != 0 &&
	     (strcmp(pass->reasons, "invalid,sampled") != 0 || !pass->is_kept[span->first_row])))
		return;
	span->may_be_whole = true;
	/* Where no row is kept, nobody can tell whose they were. */
	span->is_whole = pass->recording->is_per_token &&
			 !memchr(pass->is_short + span->first_row, 1,
				 (size_t)span->n_rows);
}

static void pass_judge(struct check *check)
{
	struct check_pass *pass = &check->pass;
	const char *fault = verdict_fault(pass);
	size_t n_layers = pass->model ? pass->model->n_layers : 0;
	size_t i;

	check->results[CHECK_PASS_VERDICTS].n_checked++;
	if (fault)
		check_violation(check, CHECK_PASS_VERDICTS, "pass %lld: %s",
				(long long)pass->pass_id, fault);
	if (pass->n_rows > 0 && pass->n_stored + pass->n_unwritten + pass->n_lost != n_layers)
		check_violation(check, CHECK_LAYERS,
				"pass %lld: has %zu of %zu layers of its model",
				(long long)pass->pass_id,
				pass->n_stored + pass->n_unwritten + pass->n_lost, n_layers);
	for (i = pass->first_span; i < check->n_spans; i++)
		span_judge(pass, &check->spans[i]);
}

/* Room for the rows of the pass; rows that no slice names count as of no request. */
static int rows_reset(struct check *check)
{
	struct check_pass *pass = &check->pass;
	size_t n = (size_t)pass->n_rows;

	if (n > pass->max_rows || !pass->columns) {
		size_t max = n < 1024 ? 1024 : n;

		free(pass->is_short);
		free(pass->columns);
		free(pass->is_computed);
		free(pass->is_kept);
		free(pass->seen);
		pass->is_short = malloc(max);
		pass->columns = malloc(max);
		pass->is_computed = malloc(max);
		pass->is_kept = malloc(max);
		pass->seen = calloc(max, sizeof(*pass->seen));
		pass->max_rows = max;
		check->layer_serial = 0;
		if (!pass->is_short || !pass->columns || !pass->is_computed || !pass->is_kept ||
		    !pass->seen) {
			mt_error("%s: out of memory for a pass of %zu rows", check->trace->path, n);
			return MT_EXIT_FAILED;
		}
	}
	memset(pass->is_short, 0, n);
	memset(pass->columns, CHECK_OTHER, n);
	memset(pass->is_computed, 0, n);
	memset(pass->is_kept, pass->recording->n_requests <= 1, n);
	pass->is_sampled = false;
	return MT_EXIT_OK;
}

static const struct check_model *model_find(const struct check *check, int64_t model_id)
{
	size_t i;

	for (i = 0; i < check->n_models; i++)
		if (check->models[i].model_id == model_id)
			return &check->models[i];
	return NULL;
}

static void pass_read(struct check *check, sqlite3_stmt *stmt)
{
	struct check_pass *pass = &check->pass;

	pass->pass_id = sqlite3_column_int64(stmt, 0);
	pass->recording = check_recording_find(check, sqlite3_column_int64(stmt, 1));
	pass->model_id = sqlite3_column_int64(stmt, 2);
	pass->model = model_find(check, pass->model_id);
	pass->n_rows = sqlite3_column_int64(stmt, 3);
	pass->n_dropped = sqlite3_column_int64(stmt, 4);
	pass->verdict = (const char *)sqlite3_column_text(stmt, 5);
	pass->reasons = (const char *)sqlite3_column_text(stmt, 6);
	pass->phase = (const char *)sqlite3_column_text(stmt, 7);
	pass->padding_rows = sqlite3_column_int64(stmt, 8);
	pass->window = CHECK_NO_WINDOW;
	pass->first_span = check->n_spans;
}

/* A pass counts in the window that it begins in, once expert load has come to it. */
static int window_enter(struct check *check, int64_t begin_ns)
{
	struct check_pass *pass = &check->pass;

	if (pass->pass_id > pass->recording->last_pass_id)
		return MT_EXIT_OK;
	pass->window = check_window_find(check, pass->recording, begin_ns);
	if (pass->window != CHECK_NO_WINDOW && pass->padding_rows > 0)
		check->windows[pass->window].padding_rows += (uint64_t)pass->padding_rows;
	return check_window_enter(check, pass->recording, pass->window);
}

static int pass_scan(struct check *check, sqlite3_stmt *stmt, struct cursor *slices,
		     struct cursor *layers)
{
	struct check_pass *pass = &check->pass;
	int status;

	pass_read(check, stmt);
	if (!pass->recording || pass->n_rows < 0 || pass->n_rows > CHECK_MAX_PASS_ROWS)
		return MT_EXIT_OK; /* named by foreign_keys or values */
	pass->recording->n_passes++;
	pass->recording->n_rows += (uint64_t)pass->n_rows;
	status = window_enter(check, sqlite3_column_int64(stmt, 9));
	if (status == MT_EXIT_OK)
		status = rows_reset(check);
	if (status == MT_EXIT_OK)
		status = slices_scan(check, slices);
	if (status == MT_EXIT_OK)
		status = layers_scan(check, layers);
	if (status == MT_EXIT_OK)
		pass_judge(check);
	return status;
}

int check_scan_run(struct check *check)
{
	struct cursor passes = {NULL, false};
	struct cursor slices = {NULL, false};
	struct cursor layers = {NULL, false};
	int status;

	status = cursor_open(check, &passes, SQL_PASS);
	if (status == MT_EXIT_OK)
		status = cursor_open(check, &slices, SQL_SLICE);
	if (status == MT_EXIT_OK)
		status = cursor_open(check, &layers, SQL_LAYER);
	while (status == MT_EXIT_OK && passes.has_row) {
		status = pass_scan(check, passes.stmt, &slices, &layers);
		if (status == MT_EXIT_OK)
			status = cursor_step(check, &passes);
	}
	sqlite3_finalize(passes.stmt);
	sqlite3_finalize(slices.stmt);
	sqlite3_finalize(layers.stmt);
	return status;
}
