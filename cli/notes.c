/* SPDX-License-Identifier: MIT */
/*
 * Notes are one statement: a row a recording and thing that its figures leave out.
 */
#include "cli/notes.h"

/* ?1 recording or NULL, ?2 whether stored rows are in question. */
static const char sql_notes[] =
	"WITH s AS (SELECT r.recording_id AS id, r.mode, r.sampling, r.end_reason,"
	" coalesce(sum(value) FILTER (WHERE name = 'recorded_passes'), 0) AS passes,"
	" coalesce(sum(value) FILTER (WHERE name = 'sampled_passes'), 0) AS sampled,"
	" coalesce(sum(value) FILTER (WHERE name = 'disabled_passes'), 0) AS disabled,"
	" coalesce(sum(value) FILTER (WHERE name = 'dropped_passes'), 0) AS dropped,"
	" coalesce(sum(value) FILTER (WHERE name = 'dropped_layers'), 0) AS dropped_layers,"
	" coalesce(sum(value) FILTER (WHERE name = 'unwritten_layers'), 0) AS unwritten"
	" FROM recording AS r LEFT JOIN stats AS s USING (recording_id)"
	" WHERE ?1 IS NULL OR r.recording_id = ?1 GROUP BY r.recording_id)"
	" SELECT id, 1, 'no pass was recorded, so there is nothing to count' FROM s WHERE passes = "
	"0"
	" AND NOT EXISTS (SELECT 1 FROM expert_load_window AS w WHERE w.recording_id = id)"
	" UNION ALL SELECT id, 2, printf('%d of %d passes were left out by sampling (%s): shares "
	"are"
	" estimates', sampled, passes + sampled, sampling) FROM s WHERE sampled > 0"
	" UNION ALL SELECT id, 3, printf('%d passes ran while recording was off in the runtime and "
	"are"
	" left out', disabled) FROM s WHERE disabled > 0"
	" UNION ALL SELECT id, 4, printf('%d passes and %d layers of others were lost and are left"
	" out', dropped, dropped_layers) FROM s WHERE dropped > 0 OR dropped_layers > 0"
	" UNION ALL SELECT id, 5, printf('%d layers of passes were written by nobody and are left "
	"out',"
	" unwritten) FROM s WHERE unwritten > 0"
	" UNION ALL SELECT id, 6, printf('rows are kept of some requests alone (%s): figures of "
	"rows"
	" are of those', sampling) FROM s WHERE ?2 AND sampling GLOB '*requests=*'"
	" UNION ALL SELECT id, 7, 'its mode is ' || mode || ', which keeps no rows: it is in no "
	"figure"
	" of rows' FROM s WHERE ?2 AND mode <> 'per_token'"
	" UNION ALL SELECT id, 8, 'it has no end: figures are as of its last commit' FROM s"
	" WHERE end_reason IS NULL"
	" ORDER BY 1, 2";

sqlite3_stmt *mt_notes_prepare(const struct mt_trace *trace, uint64_t recording_id,
			       enum mt_notes kind)
{
	sqlite3_stmt *stmt = mt_trace_prepare_recording(trace, sql_notes, recording_id);

	if (stmt)
		sqlite3_bind_int(stmt, 2, kind == MT_NOTES_ROWS);
	return stmt;
}

int mt_notes_print(const struct mt_trace *trace, uint64_t recording_id, enum mt_notes kind)
{
	return mt_trace_print_notes(trace, mt_notes_prepare(trace, recording_id, kind));
}
