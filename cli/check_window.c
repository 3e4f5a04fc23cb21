/* SPDX-License-Identifier: MIT */
/*
 * Expert load, window by window. The scan counts for one window of a recording at a time; when a
 * pass begins in another one, what was counted is put aside as rows like those of the file. At the
 * end these are sorted by the file's key and both are walked side by side.
 */
#include "cli/check.h"

#include <stdlib.h>
#include <string.h>

/* The most entries of a row. */
#define MAX_K 255

/* ---- windows ---- */

static int window_take(struct check *check, sqlite3_stmt *stmt)
{
	struct check_window *windows;

	windows = check_array_grow(check, check->windows, check->n_windows, &check->max_windows,
				   sizeof(*windows));
	if (!windows)
		return MT_EXIT_FAILED;
	check->windows = windows;
	windows[check->n_windows++] = (struct check_window){
		.recording_id = sqlite3_column_int64(stmt, 0),
		.start_ns = sqlite3_column_int64(stmt, 1),
		.length_ns = sqlite3_column_int64(stmt, 2),
	};
	return MT_EXIT_OK;
}

/* What is wrong with the window, seen from the one before it; NULL: nothing. */
static const char *window_fault(struct check *check, const struct check_window *window,
				const struct check_window *before)
{
	const struct check_recording *recording = check_recording_find(check, window->recording_id);

	if (window->start_ns < 0 || window->length_ns < 1)
		return "its start or length is impossible";
	if (recording && recording->start_ns >= 0 &&
	    (window->start_ns < recording->start_ns ||
	     (window->start_ns - recording->start_ns) % window->length_ns != 0))
		return "is not aligned to the start of its recording";
	if (before && before->recording_id == window->recording_id && before->start_ns >= 0 &&
	    window->start_ns - before->start_ns < before->length_ns)
		return "overlaps the window before it";
	return NULL;
}

int check_windows_load(struct check *check)
{
	sqlite3_stmt *stmt;
	int status = MT_EXIT_OK;
	int rc = SQLITE_DONE;
	size_t i;

	stmt = mt_trace_prepare(check->trace, "SELECT DISTINCT recording_id, start_ns, length_ns "
					      "FROM expert_load_window ORDER BY 1, 2, 3");
	if (!stmt)
		return MT_EXIT_FAILED;
	while (status == MT_EXIT_OK && (rc = sqlite3_step(stmt)) == SQLITE_ROW)
		status = window_take(check, stmt);
	if (status == MT_EXIT_OK && rc != SQLITE_DONE)
		status = mt_trace_error(check->trace);
	sqlite3_finalize(stmt);
	check->results[CHECK_WINDOWS].n_checked = check->n_windows;
	for (i = 0; i < check->n_windows; i++) {
		const struct check_window *window = &check->windows[i];
		const char *fault = window_fault(check, window, i > 0 ? window - 1 : NULL);

		if (fault)
			check_violation(check, CHECK_WINDOWS, "expert_load_window %lld,%lld: %s",
					(long long)window->recording_id,
					(long long)window->start_ns, fault);
	}
	return status;
}

size_t check_window_find(const struct check *check, const struct check_recording *recording,
			 int64_t begin_ns)
{
	const struct check_window *window;
	size_t low = 0;
	size_t high = check->n_windows;

	/* The recorder, too, counts a pass that seems to begin before its recording in the first.
	 */
	if (begin_ns < recording->start_ns)
		begin_ns = recording->start_ns;
	/* Behind the last window that does not start after the pass. */
	while (low < high) {
		size_t middle = low + (high - low) / 2;

		window = &check->windows[middle];
		if (window->recording_id < recording->recording_id ||
		    (window->recording_id == recording->recording_id &&
		     window->start_ns <= begin_ns))
			low = middle + 1;
		else
			high = middle;
	}
	if (low == 0)
		return CHECK_NO_WINDOW;
	window = &check->windows[low - 1];
	if (window->recording_id != recording->recording_id || window->start_ns < 0 ||
	    begin_ns - window->start_ns >= window->length_ns)
		return CHECK_NO_WINDOW;
	return low - 1;
}

/* ---- what the slices give ---- */

static int load_put(struct check *check, size_t window, uint32_t layer, uint32_t id,
		    uint64_t tokens[CHECK_N_COLUMNS])
{
	struct check_load *loads = check_array_grow(check, check->loads, check->n_loads,
						    &check->max_loads, sizeof(*loads));
	int i;

	if (!loads)
		return MT_EXIT_FAILED;
	check->loads = loads;
	loads[check->n_loads] = (struct check_load){.window = window, .layer = layer, .id = id};
	for (i = 0; i < CHECK_N_COLUMNS; i++) {
		loads[check->n_loads].tokens[i] = tokens[i];
		tokens[i] = 0;
	}
	check->n_loads++;
	return MT_EXIT_OK;
}

static bool is_any(const uint64_t tokens[CHECK_N_COLUMNS])
{
	return (tokens[0] | tokens[1] | tokens[2] | tokens[3] | tokens[CHECK_ANY]) != 0;
}

/* Passes that begin in no window at all must have selected nothing. */
static void no_window_report(struct check *check, const struct check_recording *recording,
			     size_t layer, uint32_t id, uint64_t tokens[CHECK_N_COLUMNS])
{
	check_violation(check, CHECK_SUM_LOAD,
			"recording %lld: layer_id %lld, expert %u have tokens in passes that begin "
			"in no window of expert_load_window",
			(long long)recording->recording_id,
			(long long)check->layers[layer].layer_id, id);
	memset(tokens, 0, CHECK_N_COLUMNS * sizeof(*tokens));
}

static int layer_put(struct check *check, const struct check_recording *recording, size_t layer)
{
	struct check_count *count = recording->counts[layer];
	int status = MT_EXIT_OK;
	uint32_t id;

	for (id = 0; id < check->layers[layer].n_ids && status == MT_EXIT_OK; id++) {
		if (!is_any(count->load[id]))
			continue;
		if (recording->window == CHECK_NO_WINDOW)
			no_window_report(check, recording, layer, id, count->load[id]);
		else
			status = load_put(check, recording->window, (uint32_t)layer, id,
					  count->load[id]);
	}
	return status;
}

int check_window_enter(struct check *check, struct check_recording *recording, size_t window)
{
	int status = MT_EXIT_OK;
	size_t i;

	if (recording->window == window)
		return MT_EXIT_OK;
	for (i = 0; recording->counts && i < check->n_layers && status == MT_EXIT_OK; i++)
		if (recording->counts[i])
			status = layer_put(check, recording, i);
	recording->window = window;
	return status;
}

/* ---- the comparison ---- */

static int load_compare(const void *a_pointer, const void *b_pointer)
{
	const struct check_load *a = a_pointer;
	const struct check_load *b = b_pointer;

	if (a->window != b->window)
		return a->window < b->window ? -1 : 1;
	if (a->layer != b->layer)
		return a->layer < b->layer ? -1 : 1;
	return (a->id > b->id) - (a->id < b->id);
}

/* Sort, and add up what was put aside for the same row at different times. */
static void loads_merge(struct check *check)
{
	struct check_load *loads = check->loads;
	size_t n = 0;
	size_t i;
	int j;

	if (check->n_loads == 0)
		return;
	qsort(loads, check->n_loads, sizeof(*loads), load_compare);
	for (i = 1; i < check->n_loads; i++) {
		if (load_compare(&loads[n], &loads[i]) != 0) {
			loads[++n] = loads[i];
			continue;
		}
		for (j = 0; j < CHECK_N_COLUMNS; j++)
			loads[n].tokens[j] += loads[i].tokens[j];
	}
	check->n_loads = n + 1;
}

/* Columns of SQL_WINDOWS. */
enum column {
	COL_RECORDING,
	COL_START,
	COL_LAYER,
	COL_EXPERT,
	COL_TOKENS,
	COL_PADDING = COL_TOKENS + CHECK_N_CLASSES,
};

#define SQL_WINDOWS                                                                        \
	"SELECT recording_id, start_ns, layer_id, expert, prefill_tokens, decode_tokens, " \
	"verify_tokens, other_tokens, padding_tokens FROM expert_load_window "             \
	"ORDER BY recording_id, start_ns, layer_id, expert"

/* The order of what the slices give against the row of the file that @stmt stands on. */
static int order_of(const struct check *check, const struct check_load *load, sqlite3_stmt *stmt)
{
	const struct check_window *window = &check->windows[load->window];
	const int64_t keys[] = {window->recording_id, window->start_ns,
				check->layers[load->layer].layer_id, load->id};
	int i;

	for (i = 0; i < 4; i++) {
		int64_t key = sqlite3_column_int64(stmt, i);

		if (keys[i] != key)
			return keys[i] < key ? -1 : 1;
	}
	return 0;
}

static void missing_report(struct check *check, const struct check_load *load)
{
	const struct check_window *window = &check->windows[load->window];
	const uint64_t *tokens = load->tokens;

	check_violation(check, CHECK_SUM_LOAD,
			"expert_load_window %lld,%lld,%lld,%u: no row, but the slices give %llu "
			"tokens",
			(long long)window->recording_id, (long long)window->start_ns,
			(long long)check->layers[load->layer].layer_id, load->id,
			(unsigned long long)(tokens[0] + tokens[1] + tokens[2] + tokens[3] +
					     tokens[CHECK_ANY]));
}

static void row_violation(struct check *check, sqlite3_stmt *stmt, const char *what)
{
	check_violation(check, CHECK_SUM_LOAD, "expert_load_window %lld,%lld,%lld,%lld: %s",
			(long long)sqlite3_column_int64(stmt, COL_RECORDING),
			(long long)sqlite3_column_int64(stmt, COL_START),
			(long long)sqlite3_column_int64(stmt, COL_LAYER),
			(long long)sqlite3_column_int64(stmt, COL_EXPERT), what);
}

/* A row of the file against what the slices give for it. */
static void row_compare(struct check *check, const uint64_t tokens[CHECK_N_COLUMNS],
			const struct check_window *window, sqlite3_stmt *stmt)
{
	const struct check_recording *recording = check_recording_find(check, window->recording_id);
	/* Rows of requests that are not sampled are counted, but not stored. */
	bool is_sampled = recording && recording->n_requests > 1;
	bool may_be_more = is_sampled || tokens[CHECK_ANY] > 0;
	static const char *const names[] = {"prefill", "decode", "verify", "other"};
	int64_t padding = sqlite3_column_int64(stmt, COL_PADDING);
	uint64_t more = 0;
	bool is_any_in_file = false;
	char text[128];
	int i;

	for (i = 0; i < CHECK_N_CLASSES; i++) {
		int64_t in_file = sqlite3_column_int64(stmt, COL_TOKENS + i);

		is_any_in_file |= in_file != 0;
		if (in_file >= (int64_t)tokens[i])
			more += (uint64_t)in_file - tokens[i];
		if (in_file == (int64_t)tokens[i] ||
		    (may_be_more && in_file > (int64_t)tokens[i]))
			continue;
		sqlite3_snprintf(sizeof(text), text, "%s_tokens are %lld, the slices give %llu",
				 names[i], in_file, tokens[i]);
		row_violation(check, stmt, text);
		return;
	}
	if (!is_sampled && more != tokens[CHECK_ANY]) {
		row_violation(check, stmt, "its tokens do not add up to those of the passes");
		return;
	}
	/* Padding rows are not stored, and nothing keeps one from naming an expert again and again.
	 */
	if (padding < 0 || (uint64_t)padding > window->padding_rows * MAX_K)
		row_violation(check, stmt, "more padding_tokens than padding rows can have");
	else if (padding == 0 && !is_any_in_file)
		row_violation(check, stmt, "a row of nothing but 0");
}

static const struct check_window *window_of_row(const struct check *check, size_t *at,
						sqlite3_stmt *stmt)
{
	int64_t recording_id = sqlite3_column_int64(stmt, COL_RECORDING);
	int64_t start_ns = sqlite3_column_int64(stmt, COL_START);

	/* Windows and rows ascend alike. */
	while (*at + 1 < check->n_windows && (check->windows[*at].recording_id != recording_id ||
					      check->windows[*at].start_ns != start_ns))
		(*at)++;
	return &check->windows[*at];
}

/* In mode stat there are no passes: the counters prove the windows (check_sql.c). */
static bool window_is_provable(struct check *check, sqlite3_stmt *stmt)
{
	const struct check_recording *recording =
		check_recording_find(check, sqlite3_column_int64(stmt, COL_RECORDING));

	return !recording || !recording->is_stat;
}

static int rows_walk(struct check *check, sqlite3_stmt *stmt)
{
	static const uint64_t nothing[CHECK_N_COLUMNS];
	size_t next = 0;
	size_t at = 0;
	int order;
	int rc;

	while ((rc = sqlite3_step(stmt)) == SQLITE_ROW) {
		order = 1;
		while (next < check->n_loads &&
		       (order = order_of(check, &check->loads[next], stmt)) < 0)
			missing_report(check, &check->loads[next++]);
		check->results[CHECK_SUM_LOAD].n_checked++;
		if (!window_is_provable(check, stmt))
			continue;
		row_compare(check,
			    next < check->n_loads && order == 0 ? check->loads[next].tokens
								: nothing,
			    window_of_row(check, &at, stmt), stmt);
		next += next < check->n_loads && order == 0;
	}
	for (; rc == SQLITE_DONE && next < check->n_loads; next++)
		missing_report(check, &check->loads[next]);
	return rc == SQLITE_DONE ? MT_EXIT_OK : mt_trace_error(check->trace);
}

int check_windows_compare(struct check *check)
{
	sqlite3_stmt *stmt;
	int status = MT_EXIT_OK;
	size_t i;

	for (i = 0; i < check->n_recordings && status == MT_EXIT_OK; i++)
		status = check_window_enter(
			check, &check->recordings[i],
			check->recordings[i].window == CHECK_NO_WINDOW ? 0 : CHECK_NO_WINDOW);
	if (status != MT_EXIT_OK)
		return status;
	loads_merge(check);
	stmt = mt_trace_prepare(check->trace, SQL_WINDOWS);
	if (!stmt)
		return MT_EXIT_FAILED;
	status = rows_walk(check, stmt);
	sqlite3_finalize(stmt);
	return status;
}
