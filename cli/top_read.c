/* SPDX-License-Identifier: MIT */
/*
 * One look, and the passes in it. Passes are read in chunks from where the look before ended, and
 * not from before the window: what has left the window before it was read is never read. A pass is
 * taken into the bucket in which it began, with its slices, its layers and their load, or not at
 * all, so that all figures are of the same passes.
 */
#include "cli/top.h"

#include <string.h>

#include "schema/functions/pass_load.h"

/* A look asks the clock after so many passes, and no longer than this for anything at all. */
#define CHUNK_PASSES 64
#define WHOLE_CHUNK_PASSES 8192 /* that are only added up */
#define LOOK_NS	     5000000000

/* Passes end in the order of their keys but for those that run at once. */
#define SLACK_PASSES 64

#define SQL_RANGE " AND p.pass_id > ?1 AND p.pass_id <= ?2 AND p.recording_id = ?3 AND p.model_id = ?4"

/* A part of a pass that overlaps with others is no pass of its own. */
#define SQL_PASSES                                                                           \
	"SELECT begin_ns, end_ns - begin_ns, n_rows, padding_rows, verdict <> 'complete', "  \
	"microbatch IS NULL AND parent_pass_id IS NULL FROM pass AS p WHERE 1" SQL_RANGE

#define SQL_SLICES                                                                          \
	"SELECT p.begin_ns, s.phase, sum(s.n_rows) FROM pass AS p CROSS JOIN pass_request AS s " \
	"ON s.pass_id = p.pass_id WHERE 1" SQL_RANGE " GROUP BY p.pass_id, s.phase"

#define SQL_ACTIVE                                                                              \
	"SELECT p.begin_ns, count(y.active_experts), sum(y.active_experts), "                  \
	"max(y.active_experts) FROM pass AS p CROSS JOIN pass_layer AS y ON "                  \
	"y.pass_id = p.pass_id WHERE y.active_experts IS NOT NULL" SQL_RANGE " GROUP BY p.pass_id"

struct chunk {
	const struct mt_trace *trace;
	int64_t after, last;
};

static uint64_t column_count(sqlite3_stmt *stmt, int column)
{
	const int64_t value = sqlite3_column_int64(stmt, column);

	return value < 0 ? 0 : (uint64_t)value;
}

static void pass_take(struct mt_top_bucket *bucket, sqlite3_stmt *stmt)
{
	const int64_t length_ns = sqlite3_column_int64(stmt, 1);
	const bool is_whole = sqlite3_column_int(stmt, 5) != 0;

	bucket->n_passes += is_whole;
	bucket->n_partial += sqlite3_column_int(stmt, 4) != 0;
	bucket->n_rows += column_count(stmt, 2);
	bucket->padding_rows += column_count(stmt, 3);
	if (is_whole && sqlite3_column_type(stmt, 1) != SQLITE_NULL && length_ns >= 0) {
		bucket->n_timed++;
		bucket->timed_ns += (uint64_t)length_ns;
	}
}

static void slice_take(struct mt_top_bucket *bucket, sqlite3_stmt *stmt)
{
	const char *phase = (const char *)sqlite3_column_text(stmt, 1);
	size_t i;

	for (i = 0; i < MT_TOP_OTHER && phase && strcmp(phase, mt_top_phases[i]) != 0; i++)
		;
	bucket->rows[phase ? i : MT_TOP_OTHER] += column_count(stmt, 2);
}

static void active_take(struct mt_top_bucket *bucket, sqlite3_stmt *stmt)
{
	const uint64_t most = column_count(stmt, 3);

	bucket->n_active += column_count(stmt, 1);
	bucket->sum_active += column_count(stmt, 2);
	bucket->max_active = most > bucket->max_active ? most : bucket->max_active;
}

static void range_bind(sqlite3_stmt *stmt, const struct mt_top *top, const struct chunk *chunk)
{
	sqlite3_bind_int64(stmt, 1, chunk->after);
	sqlite3_bind_int64(stmt, 2, chunk->last);
	sqlite3_bind_int64(stmt, 3, top->facts.recording_id);
	sqlite3_bind_int64(stmt, 4, top->model_id);
}

/* Hand the rows of @sql, whose first column is a time, to @take with their bucket. */
static int rows_take(struct mt_top *top, const struct chunk *chunk, const char *sql,
		     void (*take)(struct mt_top_bucket *bucket, sqlite3_stmt *stmt))
{
	sqlite3_stmt *stmt = mt_trace_prepare(chunk->trace, sql);
	int status = MT_EXIT_OK, rc;

	if (!stmt)
		return MT_EXIT_FAILED;
	range_bind(stmt, top, chunk);
	while ((rc = sqlite3_step(stmt)) == SQLITE_ROW) {
		struct mt_top_bucket *bucket = mt_top_bucket_at(top, sqlite3_column_int64(stmt, 0));

		if (bucket)
			take(bucket, stmt);
	}
	if (rc != SQLITE_DONE)
		status = mt_trace_error(chunk->trace);
	sqlite3_finalize(stmt);
	return status;
}

static void load_take(struct mt_top *top, const struct mt_pass_load *load)
{
	const size_t i = mt_top_layer_find(top, load->layer.layer_id);
	struct mt_top_bucket *bucket;
	uint32_t *tokens, n;

	if (i == top->n_layers || !load->is_known)
		return;
	bucket = mt_top_bucket_at(top, load->reader.begin_ns);
	if (!bucket)
		return;
	tokens = bucket->tokens + top->layers[i].first_cell;
	n = top->layers[i].n_experts;
	n = load->n_used < n ? load->n_used : n;
	for (uint32_t expert = 0; expert < n; expert++)
		tokens[expert] += load->counts[expert];
}

static int loads_read(struct mt_top *top, const struct chunk *chunk)
{
	const sqlite3_int64 recording_id = top->facts.recording_id, model_id = top->model_id;
	const sqlite3_int64 first = chunk->after + 1, last = chunk->last;
	const struct mt_filter filter = {.numbers = {[MT_TERM_RECORDING_ID] = &recording_id,
						     [MT_TERM_MODEL_ID] = &model_id,
						     [MT_TERM_FIRST_PASS] = &first,
						     [MT_TERM_LAST_PASS] = &last}};
	struct mt_pass_load load;
	int rc = mt_pass_load_open(&load, chunk->trace->db, "top", &filter, NULL);

	while (rc == SQLITE_OK || rc == SQLITE_ROW) {
		rc = mt_pass_load_next(&load);
		if (rc == SQLITE_ROW)
			load_take(top, &load);
	}
	if (rc != SQLITE_DONE) {
		if (load.reader.error)
			mt_error("%s: %s", chunk->trace->path, load.reader.error);
		else
			mt_trace_error(chunk->trace);
	}
	mt_pass_load_close(&load);
	return rc == SQLITE_DONE ? MT_EXIT_OK : MT_EXIT_FAILED;
}

static int chunk_read(struct mt_top *top, const struct chunk *chunk)
{
	int status = rows_take(top, chunk, SQL_PASSES, pass_take);

	if (status == MT_EXIT_OK)
		status = rows_take(top, chunk, SQL_SLICES, slice_take);
	if (status == MT_EXIT_OK)
		status = rows_take(top, chunk, SQL_ACTIVE, active_take);
	return status == MT_EXIT_OK ? loads_read(top, chunk) : status;
}

/* The column @time of the first row from @key on; *@ret_has: there is one. */
static int time_read(const struct mt_trace *trace, sqlite3_stmt *stmt, int64_t key, bool *ret_has,
		     int64_t *ret_time)
{
	int rc;

	sqlite3_reset(stmt);
	sqlite3_bind_int64(stmt, 1, key);
	rc = sqlite3_step(stmt);
	*ret_has = rc == SQLITE_ROW;
	*ret_time = rc == SQLITE_ROW ? sqlite3_column_int64(stmt, 0) : 0;
	sqlite3_reset(stmt);
	return rc == SQLITE_ROW || rc == SQLITE_DONE ? MT_EXIT_OK : mt_trace_error(trace);
}

int mt_top_key_find(const struct mt_trace *trace, const char *table, const char *key,
		    const char *time, int64_t from_ns, int64_t slack, int64_t *ret_key)
{
	char *sql = sqlite3_mprintf("SELECT %s FROM %s WHERE %s >= ?1 AND %s IS NOT NULL "
				    "ORDER BY %s LIMIT 1", time, table, key, time, key);
	sqlite3_stmt *stmt = sql ? mt_trace_prepare(trace, sql) : NULL;
	char *last_sql = sqlite3_mprintf("SELECT max(%s) FROM %s", key, table);
	int64_t low = 1, high = 0, found_ns;
	int status = stmt && last_sql ? mt_trace_int(trace, last_sql, &high) : MT_EXIT_FAILED;
	bool has;

	high = high < INT64_MAX / 2 ? high + 1 : 0;
	while (status == MT_EXIT_OK && low < high) {
		const int64_t middle = low + (high - low) / 2;

		status = time_read(trace, stmt, middle, &has, &found_ns);
		if (!has || found_ns >= from_ns)
			high = middle;
		else
			low = middle + 1;
	}
	*ret_key = low > slack ? low - slack : 1;
	sqlite3_finalize(stmt);
	sqlite3_free(sql);
	sqlite3_free(last_sql);
	return status;
}

/* Sums of a chunk's passes on top of @sums, which an error leaves as they were. */
static int chunk_sum(const struct mt_top *top, const struct chunk *chunk,
		     struct mt_top_bucket *sums)
{
	sqlite3_stmt *stmt = mt_trace_prepare(chunk->trace, SQL_PASSES);
	struct mt_top_bucket after = *sums;
	int status = MT_EXIT_OK, rc;

	if (!stmt)
		return MT_EXIT_FAILED;
	range_bind(stmt, top, chunk);
	while ((rc = sqlite3_step(stmt)) == SQLITE_ROW)
		pass_take(&after, stmt);
	if (rc == SQLITE_DONE)
		*sums = after;
	else
		status = mt_trace_error(chunk->trace);
	sqlite3_finalize(stmt);
	return status;
}

int mt_top_whole_read(struct mt_top *top, const struct mt_trace *trace)
{
	const int64_t begin_ns = mt_top_clock_ns();
	struct mt_top_totals *totals = &top->totals;
	struct chunk chunk = {.trace = trace};
	int status = MT_EXIT_OK;

	while (status == MT_EXIT_OK && totals->pass_cursor < top->facts.last_pass_id) {
		if (top->budget_ns && mt_top_clock_ns() - begin_ns > top->budget_ns) {
			top->is_behind = true;
			break;
		}
		chunk.after = totals->pass_cursor;
		chunk.last = top->facts.last_pass_id - chunk.after > WHOLE_CHUNK_PASSES ?
				     chunk.after + WHOLE_CHUNK_PASSES :
				     top->facts.last_pass_id;
		status = chunk_sum(top, &chunk, &totals->passes);
		if (status == MT_EXIT_OK)
			totals->pass_cursor = chunk.last;
	}
	return status;
}

int mt_top_passes_read(struct mt_top *top, const struct mt_trace *trace)
{
	const int64_t begin_ns = mt_top_clock_ns();
	struct chunk chunk = {.trace = trace};
	int64_t first;
	int status = mt_top_key_find(trace, "pass", "pass_id", "coalesce(end_ns, begin_ns)",
				     mt_top_from_ns(top), SLACK_PASSES, &first);

	if (first - 1 > top->pass_cursor)
		top->pass_cursor = first - 1;
	top->is_behind = false;
	while (status == MT_EXIT_OK && top->pass_cursor < top->facts.last_pass_id) {
		if (top->budget_ns && mt_top_clock_ns() - begin_ns > top->budget_ns) {
			top->is_behind = true;
			break;
		}
		chunk.after = top->pass_cursor;
		chunk.last = top->facts.last_pass_id - chunk.after > CHUNK_PASSES ?
				     chunk.after + CHUNK_PASSES :
				     top->facts.last_pass_id;
		status = chunk_read(top, &chunk);
		top->pass_cursor = chunk.last;
	}
	return status;
}

/* ---- a look ---- */

static int is_late(void *deadline_ns)
{
	return mt_top_clock_ns() > *(const int64_t *)deadline_ns;
}

static int parts_read(struct mt_top *top, const struct mt_trace *trace)
{
	int status = mt_top_facts_read(top, trace);

	if (status != MT_EXIT_OK || !top->facts.recording_id)
		return status;
	status = mt_top_definitions_read(top, trace);
	if (status == MT_EXIT_OK && strcmp(top->facts.mode, "stat") != 0 && top->n_layers > 0)
		status = mt_top_passes_read(top, trace);
	if (status == MT_EXIT_OK && !top->window_ns && strcmp(top->facts.mode, "stat") != 0)
		status = mt_top_whole_read(top, trace);
	if (status == MT_EXIT_OK)
		status = mt_top_totals_read(top, trace);
	if (status == MT_EXIT_OK)
		status = mt_top_operations_read(top, trace);
	if (status == MT_EXIT_OK)
		status = mt_top_power_read(top, trace);
	return status;
}

int mt_top_look(struct mt_top *top, const struct mt_trace *trace)
{
	const struct mt_top_facts facts = top->facts;
	int64_t deadline_ns = mt_top_clock_ns() + LOOK_NS;
	int status;

	/* What a look that was cut off had read of a pass is not to count beside the whole. */
	if (top->is_torn)
		mt_top_buckets_reset(top);
	/* A file may have been made to keep its reader busy. */
	if (top->budget_ns)
		sqlite3_progress_handler(trace->db, 10000, is_late, &deadline_ns);
	if (sqlite3_exec(trace->db, "BEGIN", NULL, NULL, NULL) != SQLITE_OK)
		return mt_trace_error(trace);
	status = parts_read(top, trace);
	sqlite3_exec(trace->db, "ROLLBACK", NULL, NULL, NULL);
	sqlite3_progress_handler(trace->db, 0, NULL, NULL);
	top->is_torn = status != MT_EXIT_OK;
	if (top->is_torn)
		top->facts = facts;
	return status;
}
