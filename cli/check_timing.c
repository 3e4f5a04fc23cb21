/* SPDX-License-Identifier: MIT */
/*
 * The proofs of what was timed and measured: schema/0002-timing.sql. Like those of check_sql.c each
 * statement returns a row (table, key, what is wrong) for every violation.
 */
#include "cli/check.h"

struct timing_proof {
	enum check_proof proof;
	const char *count; /* NULL: counted with another statement of the same proof */
	const char *violations;
};

/* What is wrong with the times of @row is what its flags say, and nothing else. */
#define TIMES_AGAINST_FLAGS                                                                     \
	"WHERE flags > 31 OR (flags & 2 <> 0) <> (end_ns IS NOT NULL AND start_ns IS NOT NULL " \
	"AND end_ns < start_ns) OR (flags & 17 = 0 AND (start_ns IS NULL OR end_ns IS NULL)) "

static const struct timing_proof timing_proofs[] = {
	{CHECK_VALUES, "SELECT count(*) FROM string",
	 "SELECT 'string', string_id, 'role or moves_data' FROM string WHERE value = '' "
	 "OR role NOT IN ('gate', 'topk', 'align', 'dispatch', 'experts', 'combine', 'shared', "
	 "'attention', 'norm', 'embed', 'head', 'collective', 'copy', 'other') "
	 "OR (role IS NULL) <> (moves_data IS NULL) OR moves_data > 1"},
	{CHECK_VALUES, NULL,
	 "SELECT 'string', max(string_id), 'is there twice' FROM string "
	 "GROUP BY value, role, moves_data HAVING count(*) > 1"},
	{CHECK_VALUES, "SELECT count(*) FROM kernel",
	 "SELECT 'kernel', kernel_id, 'known_by' FROM kernel WHERE known_by > 4 "
	 "OR (known_by IS NULL) <> (pass_id IS NULL AND layer_id IS NULL) "
	 "UNION ALL SELECT 'graph_node', graph || ',' || node, 'known_by or graph' FROM graph_node "
	 "WHERE known_by > 4 OR (known_by IS NULL) <> (layer_id IS NULL) OR graph < 1 "
	 "UNION ALL SELECT 'graph_launch', graph_launch_id, 'known_by' FROM graph_launch "
	 "WHERE known_by > 4 OR (known_by IS NULL) <> (pass_id IS NULL)"},
	{CHECK_VALUES, "SELECT count(*) FROM collector_overhead",
	 "SELECT 'collector_overhead', collector_overhead_id, 'kind' FROM collector_overhead "
	 "WHERE kind NOT IN ('buffer_flush', 'instrumentation', 'resource', 'buffer_request', "
	 "'command_buffer_full', 'module_loading', 'function_loading', 'compiler', 'other')"},
	{CHECK_VALUES, NULL,
	 "SELECT 'power_sample', power_sample_id, 'domain or source' FROM power_sample "
	 "WHERE domain = '' OR source NOT IN ('poll', 'buffer') UNION ALL "
	 "SELECT 'device_clock', device_clock_id, 'clock' FROM device_clock "
	 "WHERE clock NOT IN ('cupti', 'gpu_timer') OR (clock = 'gpu_timer') <> (device_id IS NOT "
	 "NULL)"},
	{CHECK_VALUES, NULL,
	 "SELECT 'collector', recording_id || ',' || name, 'name or state' FROM collector "
	 "WHERE name NOT IN ('host', 'rapl', 'nvml', 'nvtx', 'cupti', 'null') OR state NOT IN "
	 "('on', 'absent', 'denied', 'busy', 'unsupported', 'failed', 'hung')"},

	{CHECK_TIMES, "SELECT count(*) FROM kernel",
	 "SELECT 'kernel', kernel_id, 'its times are not what flags says' FROM kernel "
	 TIMES_AGAINST_FLAGS
	 "UNION ALL SELECT 'graph_launch', graph_launch_id, 'its times are not what flags says' "
	 "FROM graph_launch " TIMES_AGAINST_FLAGS},
	{CHECK_TIMES, "SELECT count(*) FROM collector_overhead",
	 "SELECT 'collector_overhead', collector_overhead_id, 'end_ns before start_ns' "
	 "FROM collector_overhead WHERE end_ns < start_ns"},
	{CHECK_TIMES, "SELECT count(*) FROM range",
	 "SELECT 'range', range_id, 'end_ns before start_ns' FROM range WHERE end_ns < start_ns"},
	{CHECK_TIMES, "SELECT count(*) FROM device_clock",
	 "SELECT 'device_clock', device_clock_id, 'the session''s clock runs backwards' FROM "
	 "(SELECT device_clock_id, session_ns, lag(session_ns) OVER (PARTITION BY process_id, "
	 "device_id, clock ORDER BY device_clock_id) AS before_ns FROM device_clock) "
	 "WHERE session_ns < before_ns"},
	/* Crystals differ by less than 0.1 %; a clock of the host may be set. */
	{CHECK_TIMES, NULL,
	 "SELECT 'device_clock', device_clock_id, 'a GPU''s timer has the pace of no clock' FROM "
	 "(SELECT device_clock_id, clock, session_ns - lag(session_ns) OVER same AS passed_ns, "
	 "clock_ns - lag(clock_ns) OVER same AS counted_ns, uncertainty_ns + lag(uncertainty_ns) "
	 "OVER same AS slack_ns FROM device_clock WINDOW same AS (PARTITION BY process_id, "
	 "device_id, clock ORDER BY device_clock_id)) WHERE clock = 'gpu_timer' "
	 "AND abs(counted_ns - passed_ns) > passed_ns / 1000 + slack_ns"},

	{CHECK_TIMING, "SELECT count(*) FROM kernel",
	 "SELECT 'kernel', k.kernel_id, CASE WHEN p.recording_id <> k.recording_id "
	 "THEN 'its pass is of another recording' ELSE 'it lies outside of its pass' END "
	 "FROM kernel AS k JOIN pass AS p USING (pass_id) WHERE p.recording_id <> k.recording_id "
	 "OR (k.known_by = 0 AND k.flags = 0 AND (k.start_ns < p.begin_ns OR k.end_ns > p.end_ns))"},
	{CHECK_TIMING, NULL,
	 "SELECT 'kernel', k.kernel_id, 'its layer is of another model than its pass' "
	 "FROM kernel AS k JOIN pass AS p USING (pass_id) JOIN layer AS l USING (layer_id) "
	 "WHERE l.model_id <> p.model_id"},
	{CHECK_TIMING, NULL,
	 "SELECT 'kernel', k.kernel_id, 'its name has no role' FROM kernel AS k "
	 "JOIN string AS s ON s.string_id = k.name_id WHERE s.role IS NULL UNION ALL "
	 "SELECT 'graph_node', n.graph || ',' || n.node, 'its name has no role' "
	 "FROM graph_node AS n JOIN string AS s ON s.string_id = n.name_id WHERE s.role IS NULL"},
	{CHECK_TIMING, "SELECT count(*) FROM graph_launch",
	 "SELECT 'graph_launch', g.graph_launch_id, 'its pass is of another recording' "
	 "FROM graph_launch AS g JOIN pass AS p USING (pass_id) "
	 "WHERE p.recording_id <> g.recording_id"},
	{CHECK_TIMING, NULL,
	 "SELECT 'graph_launch', g.graph_launch_id, 'node_times is not of the size of its nodes' "
	 "FROM graph_launch AS g LEFT JOIN (SELECT graph, count(*) AS n FROM graph_node "
	 "GROUP BY graph) AS t USING (graph) WHERE (g.n_nodes IS NULL) <> (g.node_times IS NULL) "
	 "OR (g.n_nodes IS NULL) <> (g.n_untimed IS NULL) "
	 "OR typeof(g.node_times) NOT IN ('blob', 'null') OR length(g.node_times) <> g.n_nodes * 8 "
	 "OR (g.n_nodes IS NOT NULL AND g.graph IS NULL) OR g.n_nodes <> coalesce(t.n, 0)"},
	{CHECK_TIMING, NULL,
	 "SELECT 'graph_launch', g.graph_launch_id, 'node ' || n.node || ' is of another model "
	 "than its pass' FROM graph_launch AS g JOIN pass AS p USING (pass_id) JOIN graph_node AS n "
	 "ON n.graph = g.graph JOIN layer AS l ON l.layer_id = n.layer_id "
	 "WHERE l.model_id <> p.model_id"},
	{CHECK_TIMING, "SELECT count(*) FROM graph_node",
	 "SELECT 'graph_node', graph, 'its nodes are not numbered from 0' FROM graph_node "
	 "GROUP BY graph HAVING max(node) + 1 <> count(*)"},
	{CHECK_TIMING, "SELECT count(*) FROM range",
	 "SELECT 'range', r.range_id, 'it lies outside of its recording' FROM range AS r "
	 "JOIN recording AS c USING (recording_id) WHERE r.end_ns < c.start_ns"},

	{CHECK_POWER, "SELECT count(*) FROM power_sample",
	 "SELECT 'power_sample', power_sample_id, 'the driver''s buffer holds power alone' "
	 "FROM power_sample WHERE source = 'buffer' AND (instant_mw IS NULL OR average_mw IS NOT "
	 "NULL OR energy_mj IS NOT NULL OR limit_mw IS NOT NULL OR cost_ns IS NOT NULL)"},
	{CHECK_POWER, NULL,
	 "SELECT 'power_sample', power_sample_id, CASE WHEN time_ns < before_ns THEN "
	 "'is earlier than the one before it' ELSE 'the energy counter falls' END FROM (SELECT "
	 "power_sample_id, time_ns, energy_mj, "
	 "lag(time_ns) OVER same AS before_ns, lag(energy_mj) OVER same AS before_mj "
	 "FROM power_sample WINDOW same AS (PARTITION BY recording_id, device_id, domain, source "
	 "ORDER BY power_sample_id)) WHERE time_ns < before_ns OR energy_mj < before_mj"},
	{CHECK_POWER, "SELECT count(*) FROM host_sample",
	 "SELECT 'host_sample', host_sample_id, 'a time falls' FROM (SELECT host_sample_id, "
	 "time_ns, process_cpu_ns, lag(time_ns) OVER same AS before_ns, lag(process_cpu_ns) "
	 "OVER same AS before_cpu_ns FROM host_sample WINDOW same AS (PARTITION BY recording_id "
	 "ORDER BY host_sample_id)) WHERE time_ns < before_ns OR process_cpu_ns < before_cpu_ns"},
	{CHECK_POWER, NULL,
	 "SELECT 'device_link', device_link_id, 'more links are up than there are' "
	 "FROM device_link WHERE active_nvlinks > nvlinks"},

	{CHECK_COLLECTORS, "SELECT count(*) FROM collector",
	 "SELECT 'collector', c.recording_id || ',' || c.name, 'n_rows is ' || c.n_rows "
	 "|| ', the tables have ' || c.n FROM (SELECT c.recording_id, c.name, c.n_rows, CASE "
	 "c.name WHEN 'host' THEN (SELECT count(*) FROM host_sample AS h "
	 "WHERE h.recording_id = c.recording_id) WHEN 'rapl' THEN (SELECT count(*) FROM "
	 "power_sample AS p JOIN device AS d USING (device_id) WHERE p.recording_id = "
	 "c.recording_id AND d.kind = 'host') WHEN 'nvml' THEN (SELECT count(*) FROM "
	 "power_sample AS p JOIN device AS d USING (device_id) WHERE p.recording_id = "
	 "c.recording_id AND d.kind = 'cuda') + (SELECT count(*) FROM device_link AS l "
	 "WHERE l.recording_id = c.recording_id) WHEN 'cupti' THEN (SELECT count(*) FROM kernel "
	 "AS k JOIN device AS d USING (device_id) WHERE k.recording_id = c.recording_id "
	 "AND d.kind = 'cuda') + (SELECT count(*) FROM graph_launch AS g WHERE g.recording_id = "
	 "c.recording_id) + (SELECT count(*) FROM collector_overhead AS o WHERE o.recording_id = "
	 "c.recording_id) ELSE 0 END AS n FROM collector AS c) AS c WHERE c.n_rows <> c.n"},
	{CHECK_COLLECTORS, NULL,
	 "SELECT 'collector', c.recording_id || ',cupti', 'n_invalid is ' || c.n_invalid || ', the "
	 "tables have ' || c.n FROM (SELECT c.recording_id, c.n_invalid, (SELECT count(*) FROM "
	 "kernel AS k JOIN device AS d USING (device_id) WHERE k.recording_id = c.recording_id "
	 "AND d.kind = 'cuda' AND k.flags <> 0) + (SELECT count(*) FROM graph_launch AS g WHERE "
	 "g.recording_id = c.recording_id AND (g.flags <> 0 OR g.n_untimed > 0)) AS n FROM "
	 "collector AS c WHERE c.name = 'cupti') AS c WHERE c.n_invalid <> c.n"},
	{CHECK_COLLECTORS, NULL,
	 "SELECT 'collector', recording_id || ',' || name, CASE WHEN state = 'on' THEN "
	 "'its calls do not add up' ELSE 'says neither why it is not on nor what to do' END "
	 "FROM collector WHERE (state <> 'on' AND coalesce(reason, '') = '') "
	 "OR longest_call_ns > calls_ns OR (n_calls = 0 AND calls_ns > 0) OR n_invalid > n_rows"},

	{CHECK_STATS, NULL,
	 "SELECT 'stats', s.recording_id || ',recorded_ranges', 'is ' || s.value || ', the rows "
	 "give ' || n FROM (SELECT s.recording_id, s.value, (SELECT count(*) FROM range AS r "
	 "WHERE r.recording_id = s.recording_id) AS n FROM stats AS s "
	 "WHERE s.name = 'recorded_ranges') AS s WHERE s.value <> n"},
	{CHECK_STATS, NULL,
	 "SELECT 'stats', s.recording_id || ',recorded_kernels', 'is ' || s.value || ', the rows "
	 "give ' || coalesce(k.n, 0) FROM stats AS s LEFT JOIN (SELECT recording_id, count(*) AS n "
	 "FROM kernel WHERE known_by = 0 GROUP BY recording_id) AS k USING (recording_id) "
	 "WHERE s.name = 'recorded_kernels' AND s.value <> coalesce(k.n, 0)"},
};

/* ---- times of nodes ---- */

struct launch {
	int64_t id;
	int64_t length_ns;
	int64_t n_nodes;
	int64_t n_untimed;
	int64_t flags;
	const unsigned char *times; /* [n_nodes][8] */
};

static uint32_t word_at(const unsigned char *bytes)
{
	return (uint32_t)bytes[0] | (uint32_t)bytes[1] << 8 | (uint32_t)bytes[2] << 16 |
	       (uint32_t)bytes[3] << 24;
}

/* Nodes fill their launch from its begin to its end; those without times are counted. */
static const char *launch_fault(const struct launch *launch)
{
	int64_t n_untimed = 0, first_ns = INT64_MAX, last_ns = 0;

	for (int64_t i = 0; i < launch->n_nodes; i++) {
		const int64_t start_ns = word_at(launch->times + i * 8);
		const int64_t length_ns = word_at(launch->times + i * 8 + 4);

		if (start_ns == UINT32_MAX && length_ns == UINT32_MAX) {
			n_untimed++;
			continue;
		}
		if (start_ns == UINT32_MAX || length_ns == UINT32_MAX)
			return "a node has half of its times";
		first_ns = start_ns < first_ns ? start_ns : first_ns;
		last_ns = start_ns + length_ns > last_ns ? start_ns + length_ns : last_ns;
	}
	if (n_untimed != launch->n_untimed)
		return "n_untimed is not what node_times has";
	if (n_untimed < launch->n_nodes && launch->flags == 0 &&
	    (first_ns != 0 || last_ns != launch->length_ns))
		return "its nodes do not reach from its begin to its end";
	return NULL;
}

static int check_launches(struct check *check)
{
	sqlite3_stmt *stmt = mt_trace_prepare(
		check->trace, "SELECT graph_launch_id, end_ns - start_ns, n_nodes, n_untimed, flags, "
			      "node_times FROM graph_launch WHERE n_nodes IS NOT NULL AND "
			      "length(node_times) = 8 * n_nodes AND typeof(node_times) = 'blob'");
	int rc = SQLITE_DONE;
	int status = MT_EXIT_OK;

	if (!stmt)
		return MT_EXIT_FAILED;
	while ((rc = sqlite3_step(stmt)) == SQLITE_ROW) {
		const struct launch launch = {
			.id = sqlite3_column_int64(stmt, 0),
			.length_ns = sqlite3_column_int64(stmt, 1),
			.n_nodes = sqlite3_column_int64(stmt, 2),
			.n_untimed = sqlite3_column_int64(stmt, 3),
			.flags = sqlite3_column_int64(stmt, 4),
			.times = sqlite3_column_blob(stmt, 5),
		};
		const char *fault = launch_fault(&launch);

		if (fault)
			check_violation(check, CHECK_TIMING, "graph_launch %lld: %s",
					(long long)launch.id, fault);
	}
	if (rc != SQLITE_DONE)
		status = mt_trace_error(check->trace);
	sqlite3_finalize(stmt);
	return status;
}

int check_timing_run(struct check *check)
{
	int status = MT_EXIT_OK;

	for (size_t i = 0;
	     i < sizeof(timing_proofs) / sizeof(timing_proofs[0]) && status == MT_EXIT_OK; i++)
		status = check_sql_proof_run(check, timing_proofs[i].proof, timing_proofs[i].count,
					     timing_proofs[i].violations);
	return status == MT_EXIT_OK ? check_launches(check) : status;
}
