/* SPDX-License-Identifier: MIT */
/*
 * What the file says of the recording: whether it goes on, what was lost, which sources are off.
 * All of it is found by keys or in small tables, whatever the size of the file.
 */
#include "cli/top.h"

#include <string.h>

#define SQL_RECORDING                                                                          \
	"SELECT recording_id, process_id, start_ns, end_ns, end_reason, mode, routing_source, " \
	"(SELECT count(*) FROM recording), (SELECT value FROM meta WHERE key = 'session_name') " \
	"FROM recording WHERE ?1 = 0 OR recording_id = ?1 ORDER BY recording_id DESC LIMIT 1"

/* The newest pass, and what its clock has seen; a file has no pass in some modes. */
#define SQL_LAST_PASS                                                                        \
	"SELECT pass_id, max(begin_ns, coalesce(end_ns, begin_ns)) FROM pass "               \
	"WHERE recording_id = ?1 ORDER BY pass_id DESC LIMIT 1"

#define SQL_CLOCK                                                                         \
	"SELECT session_ns, monotonic_ns FROM clock_snapshot WHERE process_id = ?1 "      \
	"ORDER BY clock_snapshot_id DESC LIMIT 1"

/* Without passes: the end of what is in the windows. */
#define SQL_LAST_WINDOW                                                                   \
	"SELECT start_ns + length_ns FROM expert_load_window WHERE recording_id = ?1 "    \
	"ORDER BY start_ns DESC LIMIT 1"

#define SQL_STATS "SELECT name, value FROM stats WHERE recording_id = ?1 AND value <> 0"

#define SQL_GAPS                                                                         \
	"SELECT stream, reason, sum(n_lost) FROM gap WHERE recording_id = ?1 "           \
	"GROUP BY stream, reason ORDER BY 3 DESC LIMIT 8"

#define SQL_SOURCES                                                                      \
	"SELECT name, state, reason, n_dropped FROM collector WHERE recording_id = ?1 "  \
	"ORDER BY name LIMIT 8"

#define SQL_NOTES                                                                        \
	"SELECT source || ': ' || message FROM diagnostic WHERE process_id = ?1 "        \
	"AND severity <> 'info' ORDER BY diagnostic_id DESC LIMIT 3"

static sqlite3_stmt *prepare(const struct mt_trace *trace, const char *sql, int64_t key)
{
	sqlite3_stmt *stmt = mt_trace_prepare(trace, sql);

	if (stmt)
		sqlite3_bind_int64(stmt, 1, key);
	return stmt;
}

/* Step to the end, handing each row to @row. */
static int rows_each(const struct mt_trace *trace, const char *sql, int64_t key,
		     struct mt_top *top, void (*row)(struct mt_top *top, sqlite3_stmt *stmt))
{
	sqlite3_stmt *stmt = prepare(trace, sql, key);
	int status = MT_EXIT_OK, rc;

	if (!stmt)
		return MT_EXIT_FAILED;
	while ((rc = sqlite3_step(stmt)) == SQLITE_ROW)
		row(top, stmt);
	if (rc != SQLITE_DONE)
		status = mt_trace_error(trace);
	sqlite3_finalize(stmt);
	return status;
}

static void recording_take(struct mt_top *top, sqlite3_stmt *stmt)
{
	struct mt_top_facts *facts = &top->facts;

	facts->recording_id = sqlite3_column_int64(stmt, 0);
	facts->process_id = sqlite3_column_int64(stmt, 1);
	facts->start_ns = sqlite3_column_int64(stmt, 2);
	facts->end_ns = sqlite3_column_int64(stmt, 3);
	facts->end = sqlite3_column_type(stmt, 3) == SQLITE_NULL ? MT_TOP_NO_END : MT_TOP_ENDED;
	mt_top_column_copy(stmt, 4, facts->end_reason, sizeof(facts->end_reason));
	mt_top_column_copy(stmt, 5, facts->mode, sizeof(facts->mode));
	mt_top_column_copy(stmt, 6, facts->source, sizeof(facts->source));
	facts->n_recordings = sqlite3_column_int64(stmt, 7);
	mt_top_column_copy(stmt, 8, facts->session, sizeof(facts->session));
}

static void last_pass_take(struct mt_top *top, sqlite3_stmt *stmt)
{
	top->facts.last_pass_id = sqlite3_column_int64(stmt, 0);
	top->facts.last_pass_ns = sqlite3_column_int64(stmt, 1);
}

static void last_window_take(struct mt_top *top, sqlite3_stmt *stmt)
{
	top->facts.last_pass_ns = sqlite3_column_int64(stmt, 0);
}

static void clock_take(struct mt_top *top, sqlite3_stmt *stmt)
{
	const int64_t origin_ns = sqlite3_column_int64(stmt, 1) - sqlite3_column_int64(stmt, 0);

	top->facts.now_ns = mt_top_clock_ns() - origin_ns;
}

static bool is_loss(const char *name)
{
	return strncmp(name, "dropped_", 8) == 0 || strcmp(name, "invalid_ids") == 0 ||
	       strcmp(name, "misuse") == 0 || strcmp(name, "unwritten_layers") == 0 ||
	       strcmp(name, "duplicate_layers") == 0;
}

static void count_add(struct mt_top_count *counts, size_t *n, size_t max, sqlite3_stmt *stmt)
{
	if (*n == max)
		return;
	mt_top_column_copy(stmt, 0, counts[*n].name, sizeof(counts[*n].name));
	counts[(*n)++].value = sqlite3_column_int64(stmt, 1);
}

static void stat_take(struct mt_top *top, sqlite3_stmt *stmt)
{
	struct mt_top_facts *facts = &top->facts;
	char name[64];

	mt_top_column_copy(stmt, 0, name, sizeof(name));
	if (is_loss(name))
		count_add(facts->losses, &facts->n_losses, MT_TOP_MAX_LOSSES, stmt);
	else if (strcmp(name, "sampled_passes") == 0 || strcmp(name, "disabled_passes") == 0)
		count_add(facts->left_out, &facts->n_left_out, 2, stmt);
	else if (strcmp(name, "recorded_passes") == 0)
		facts->recorded_passes = sqlite3_column_int64(stmt, 1);
	else if (strcmp(name, "recorded_rows") == 0)
		facts->recorded_rows = sqlite3_column_int64(stmt, 1);
	if (strcmp(name, "sampled_passes") == 0)
		facts->sampled_passes = sqlite3_column_int64(stmt, 1);
}

static void gap_take(struct mt_top *top, sqlite3_stmt *stmt)
{
	struct mt_top_gap *gap = &top->facts.gaps[top->facts.n_gaps];

	if (top->facts.n_gaps == MT_TOP_MAX_GAPS)
		return;
	mt_top_column_copy(stmt, 0, gap->stream, sizeof(gap->stream));
	mt_top_column_copy(stmt, 1, gap->reason, sizeof(gap->reason));
	gap->n_lost = sqlite3_column_int64(stmt, 2);
	top->facts.n_gaps++;
}

static void source_take(struct mt_top *top, sqlite3_stmt *stmt)
{
	struct mt_top_source_state *source = &top->facts.sources[top->facts.n_sources];

	if (top->facts.n_sources == MT_TOP_MAX_SOURCES)
		return;
	mt_top_column_copy(stmt, 0, source->name, sizeof(source->name));
	mt_top_column_copy(stmt, 1, source->state, sizeof(source->state));
	mt_top_column_copy(stmt, 2, source->reason, sizeof(source->reason));
	source->n_dropped = sqlite3_column_type(stmt, 3) == SQLITE_NULL ?
				    -1 :
				    sqlite3_column_int64(stmt, 3);
	top->facts.n_sources++;
}

static void note_take(struct mt_top *top, sqlite3_stmt *stmt)
{
	if (top->facts.n_notes == MT_TOP_MAX_NOTES)
		return;
	mt_top_column_copy(stmt, 0, top->facts.notes[top->facts.n_notes], MT_TOP_TEXT_BYTES);
	top->facts.n_notes++;
}

/* Where the clock stands: of a recording that goes on it is read, of another it is its end. */
static int clock_read(struct mt_top *top, const struct mt_trace *trace)
{
	struct mt_top_facts *facts = &top->facts;
	int status;

	if (facts->end == MT_TOP_NO_END &&
	    mt_trace_writer(trace, facts->recording_id) == MT_WRITER_LIVE)
		facts->end = MT_TOP_LIVE;
	/* Of a recording without passes all others would be looked through. */
	status = strcmp(facts->mode, "stat") == 0 ?
			 MT_EXIT_OK :
			 rows_each(trace, SQL_LAST_PASS, facts->recording_id, top, last_pass_take);
	if (status == MT_EXIT_OK && !facts->last_pass_id)
		status = rows_each(trace, SQL_LAST_WINDOW, facts->recording_id, top,
				   last_window_take);
	if (facts->end == MT_TOP_ENDED) {
		facts->now_ns = facts->end_ns;
		/* The last window of load ends with its length, which the recording did not fill. */
		if (!facts->last_pass_id && facts->last_pass_ns > facts->end_ns)
			facts->last_pass_ns = facts->end_ns;
		return status;
	}
	facts->now_ns = facts->last_pass_ns;
	if (status == MT_EXIT_OK && facts->end == MT_TOP_LIVE)
		status = rows_each(trace, SQL_CLOCK, facts->process_id, top, clock_take);
	if (facts->now_ns < facts->last_pass_ns && facts->last_pass_id)
		facts->now_ns = facts->last_pass_ns;
	return status;
}

int mt_top_facts_read(struct mt_top *top, const struct mt_trace *trace)
{
	const int64_t before = top->facts.recording_id;
	struct mt_top_facts facts;
	int status;

	memset(&top->facts, 0, sizeof(top->facts));
	status = rows_each(trace, SQL_RECORDING, top->recording_wanted, top, recording_take);
	if (status != MT_EXIT_OK || !top->facts.recording_id)
		return status;
	if (before && before != top->facts.recording_id) {
		facts = top->facts;
		mt_top_reset(top);
		top->facts = facts;
	}
	status = clock_read(top, trace);
	if (status == MT_EXIT_OK)
		status = rows_each(trace, SQL_STATS, top->facts.recording_id, top, stat_take);
	if (status == MT_EXIT_OK)
		status = rows_each(trace, SQL_GAPS, top->facts.recording_id, top, gap_take);
	if (status == MT_EXIT_OK)
		status = rows_each(trace, SQL_SOURCES, top->facts.recording_id, top, source_take);
	if (status == MT_EXIT_OK)
		status = rows_each(trace, SQL_NOTES, top->facts.process_id, top, note_take);
	return status;
}
