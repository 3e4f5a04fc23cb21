/* SPDX-License-Identifier: MIT */
/*
 * The proofs of what was timed: the first half of schema/0002-timing.sql; check_source.c has what
 * sources read. Like those of check_sql.c each statement returns a row (table, key, what is wrong) for
 * every violation.
 *
 * What no file can prove: a name, and whether kernels of it move data (the runtime or a table says
 * so); stream and correlation of a launch, and that it began before its launch (flag 8), beyond what
 * its pass tells, since the time of the launch is not stored; that it had not ended (16); that it was
 * said to run for too long (32), since what came after it may not be stored (check_serial.c has the
 * converse); the layer of a kernel, beyond its model; shared memory and registers of a shape; the thread
 * of a range, beyond that it has a number.
 */
#include "cli/check.h"

#include "common/bytes.h"

/* What is wrong with the times of @row is what its flags say, and nothing else. */
#define TIMES_AGAINST_FLAGS                                                                     \
	"WHERE flags > 63 OR (flags & 2 <> 0) <> (end_ns IS NOT NULL AND start_ns IS NOT NULL " \
	"AND end_ns < start_ns) OR (flags & 17 = 0 AND (start_ns IS NULL OR end_ns IS NULL)) "

/*
 * Flags of a GPU's times: what is outside has no stamp that counts, what has none has no begin unless
 * it is outside, what had not ended has no end, what began before its launch has begun.
 */
#define GPU_FLAGS                                                                               \
	"flags & 5 = 4 OR (flags & 5 = 1 AND start_ns IS NOT NULL) "                            \
	"OR (flags & 16 <> 0 AND end_ns IS NOT NULL) OR (flags & 8 <> 0 AND start_ns IS NULL) "

/* Times without flags lie in the recording: an error of the clocks' conversion is below a second. */
#define OUTSIDE_RECORDING(row)                                                                  \
	row ".flags = 0 AND (" row ".end_ns < c.start_ns OR " row ".start_ns > c.end_ns + "     \
	"1000000000 OR " row ".end_ns > c.end_ns + 1000000000) "

/*
 * A launch lies in its pass, and a kernel after its launch; what is not so has the flag. The clocks'
 * conversion may be wrong by a millisecond.
 */
#define AGAINST_LAUNCH(row)                                                                     \
	row ".known_by IN (1, 2, 4) AND ((" row ".flags = 0 AND " row ".start_ns + 1000000 < "  \
	"p.begin_ns) OR (" row ".flags & 8 <> 0 AND " row ".start_ns > p.end_ns)) "

static const struct check_sql_proof timing_proofs[] = {
	{CHECK_VALUES, "SELECT count(*) FROM string",
	 "SELECT 'string', string_id, 'role or moves_data' FROM string WHERE value = '' "
	 "OR role NOT IN ('gate', 'topk', 'align', 'dispatch', 'experts', 'combine', 'shared', "
	 "'attention', 'norm', 'embed', 'head', 'collective', 'copy', 'other') "
	 "OR (role IS NULL) <> (moves_data IS NULL) OR moves_data > 1"},
	{CHECK_VALUES, NULL,
	 "SELECT 'string', max(string_id), 'is there twice' FROM string "
	 "GROUP BY value, role, moves_data HAVING count(*) > 1"},
	{CHECK_VALUES, "SELECT count(*) FROM kernel",
	 "SELECT 'kernel', kernel_id, 'known_by' FROM kernel WHERE known_by NOT IN (0, 1, 4) "
	 "OR (known_by IS NULL) <> (pass_id IS NULL AND layer_id IS NULL) "
	 "UNION ALL SELECT 'graph_node', graph || ',' || node, 'known_by or graph' FROM graph_node "
	 "WHERE known_by NOT IN (2, 3) OR (known_by IS NULL) <> (layer_id IS NULL) OR graph < 1 "
	 "UNION ALL SELECT 'graph_launch', graph_launch_id, 'known_by' FROM graph_launch "
	 "WHERE known_by NOT IN (1, 4) OR (known_by IS NULL) <> (pass_id IS NULL)"},
	{CHECK_VALUES, "SELECT count(*) FROM collective",
	 "SELECT 'collective', collective_id, 'kind, n_ranks or n_channels' FROM collective "
	 "WHERE kind NOT IN ('all_reduce', 'all_gather', 'reduce_scatter', 'all_to_all', 'broadcast', "
	 "'reduce', 'send', 'receive', 'barrier', 'dispatch', 'combine', 'other') OR n_ranks < 1 "
	 "OR n_channels < 1"},
	{CHECK_VALUES, "SELECT count(*) FROM collector_overhead",
	 "SELECT 'collector_overhead', collector_overhead_id, 'kind' FROM collector_overhead "
	 "WHERE kind NOT IN ('buffer_flush', 'instrumentation', 'resource', 'buffer_request', "
	 "'command_buffer_full', 'module_loading', 'function_loading', 'compiler', 'other')"},

	{CHECK_TIMES, "SELECT count(*) FROM kernel",
	 "SELECT 'kernel', kernel_id, 'its times are not what flags says' FROM kernel "
	 TIMES_AGAINST_FLAGS
	 "UNION ALL SELECT 'graph_launch', graph_launch_id, 'its times are not what flags says' "
	 "FROM graph_launch " TIMES_AGAINST_FLAGS},
	{CHECK_TIMES, "SELECT count(*) FROM collector_overhead",
	 "SELECT 'collector_overhead', collector_overhead_id, 'end_ns before start_ns' "
	 "FROM collector_overhead WHERE end_ns < start_ns"},
	{CHECK_TIMES, "SELECT count(*) FROM collective",
	 "SELECT 'collective', collective_id, 'end_ns before start_ns' FROM collective "
	 "WHERE end_ns < start_ns"},
	{CHECK_TIMES, "SELECT count(*) FROM range",
	 "SELECT 'range', range_id, 'end_ns before start_ns' FROM range WHERE end_ns < start_ns"},
	{CHECK_TIMING, "SELECT count(*) FROM kernel",
	 "SELECT 'kernel', k.kernel_id, CASE WHEN p.recording_id <> k.recording_id "
	 "THEN 'its pass is of another recording' ELSE 'it lies outside of its pass' END "
	 "FROM kernel AS k JOIN pass AS p USING (pass_id) WHERE p.recording_id <> k.recording_id "
	 "OR (k.known_by = 0 AND k.flags = 0 AND (k.start_ns < p.begin_ns OR k.end_ns > p.end_ns))"},
	{CHECK_TIMING, NULL,
	 "SELECT 'kernel', k.kernel_id, CASE WHEN (d.kind = 'host') <> (k.known_by IS 0) THEN "
	 "'what the runtime tells ran on the host, and nothing else did' WHEN k.pass_id IS NULL "
	 "THEN 'the runtime told it of no pass' WHEN k.flags NOT IN (0, 4) THEN 'flags: the runtime "
	 "tells whole times' WHEN k.flags = 4 THEN 'flags: it lies inside of its pass' ELSE 'it has "
	 "a stream, a shape or a launch' END FROM kernel AS k JOIN device AS d USING (device_id) "
	 "LEFT JOIN pass AS p USING (pass_id) WHERE (d.kind = 'host') <> (k.known_by IS 0) "
	 "OR (k.known_by = 0 AND (k.pass_id IS NULL OR k.flags NOT IN (0, 4) "
	 "OR (k.flags = 4 AND k.start_ns >= p.begin_ns AND k.end_ns <= p.end_ns) "
	 "OR coalesce(k.stream, k.launch_shape_id, k.correlation) IS NOT NULL))"},
	{CHECK_TIMING, NULL,
	 "SELECT 'kernel', k.kernel_id, 'its flags are not of a GPU''s times' FROM kernel AS k "
	 "JOIN device AS d USING (device_id) WHERE d.kind = 'cuda' AND (" GPU_FLAGS ") UNION ALL "
	 "SELECT 'graph_launch', g.graph_launch_id, CASE d.kind WHEN 'cuda' THEN 'its flags are not "
	 "of a GPU''s times' ELSE 'no GPU launched it' END FROM graph_launch AS g JOIN device AS d "
	 "USING (device_id) WHERE d.kind <> 'cuda' OR " GPU_FLAGS},
	{CHECK_TIMING, NULL,
	 "SELECT 'kernel', k.kernel_id, 'it lies outside of its recording' FROM kernel AS k "
	 "JOIN recording AS c USING (recording_id) JOIN device AS d USING (device_id) "
	 "WHERE d.kind = 'cuda' AND " OUTSIDE_RECORDING("k") "UNION ALL "
	 "SELECT 'graph_launch', g.graph_launch_id, 'it lies outside of its recording' "
	 "FROM graph_launch AS g JOIN recording AS c USING (recording_id) WHERE "
	 OUTSIDE_RECORDING("g")},
	{CHECK_TIMING, NULL,
	 "SELECT 'kernel', k.kernel_id, 'flags: it began before its pass, or after what it says' "
	 "FROM kernel AS k JOIN pass AS p USING (pass_id) WHERE " AGAINST_LAUNCH("k") "UNION ALL "
	 "SELECT 'graph_launch', g.graph_launch_id, 'flags: it began before its pass, or after what "
	 "it says' FROM graph_launch AS g JOIN pass AS p USING (pass_id) WHERE " AGAINST_LAUNCH("g")},
	{CHECK_TIMING, NULL,
	 "SELECT 'kernel', kernel_id, 'known by the time of a pass, and has none' FROM kernel "
	 "WHERE known_by = 4 AND pass_id IS NULL"},
	{CHECK_TIMING, "SELECT count(*) FROM launch_shape",
	 "SELECT 'launch_shape', launch_shape_id, 'a grid or a block of nothing, or larger than a GPU "
	 "takes' FROM launch_shape WHERE min(grid_x, grid_y, grid_z, block_x, block_y, block_z) < 1 "
	 "OR max(grid_y, grid_z) > 65535 OR grid_x > 2147483647 OR max(block_x, block_y, block_z) > "
	 "1024 OR block_x * block_y * block_z > 1024 UNION ALL "
	 "SELECT 'launch_shape', max(launch_shape_id), 'is there twice' FROM launch_shape "
	 "GROUP BY grid_x, grid_y, grid_z, block_x, block_y, block_z, registers, "
	 "static_shared_bytes, dynamic_shared_bytes HAVING count(*) > 1"},
	{CHECK_TIMING, NULL,
	 "SELECT 'collector_overhead', o.collector_overhead_id, 'it lies outside of its recording' "
	 "FROM collector_overhead AS o JOIN recording AS c USING (recording_id) "
	 "WHERE o.end_ns > c.end_ns + 1000000000 UNION ALL "
	 "SELECT 'collector_overhead', collector_overhead_id, 'no launch has the number 0' "
	 "FROM collector_overhead WHERE correlation = 0"},
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
	 "OR (g.n_nodes IS NULL) <> (g.graph IS NULL) OR g.n_nodes < 1 "
	 "OR g.n_nodes <> coalesce(t.n, 0)"},
	{CHECK_TIMING, NULL,
	 "SELECT 'graph_launch', g.graph_launch_id, 'node ' || n.node || ' is of another model "
	 "than its pass' FROM graph_launch AS g JOIN pass AS p USING (pass_id) JOIN graph_node AS n "
	 "ON n.graph = g.graph JOIN layer AS l ON l.layer_id = n.layer_id "
	 "WHERE l.model_id <> p.model_id"},
	{CHECK_TIMING, "SELECT count(*) FROM graph_node",
	 "SELECT 'graph_node', graph, 'its nodes are not numbered from 0' FROM graph_node "
	 "GROUP BY graph HAVING max(node) + 1 <> count(*) UNION ALL "
	 "SELECT 'graph_node', max(graph), 'node ' || max(source_node) || ' of its source is there "
	 "twice' FROM graph_node WHERE source_node IS NOT NULL GROUP BY graph, source_node "
	 "HAVING count(*) > 1"},
	{CHECK_TIMING, NULL,
	 "SELECT 'graph_node', graph, 'nothing launched its graph' FROM graph_node AS n "
	 "WHERE NOT EXISTS (SELECT 1 FROM graph_launch AS g WHERE g.graph = n.graph) GROUP BY graph "
	 "UNION ALL SELECT 'graph_node', graph, 'its branches are not numbered from 0, in all of its "
	 "nodes or in none' FROM graph_node GROUP BY graph HAVING count(branch) NOT IN (0, count(*)) "
	 "OR max(branch) + 1 <> count(DISTINCT branch)"},
	{CHECK_TIMING, "SELECT count(*) FROM collective",
	 "SELECT 'collective', c.collective_id, CASE WHEN p.recording_id <> c.recording_id THEN 'its "
	 "pass is of another recording' WHEN l.model_id <> p.model_id THEN 'its layer is of another "
	 "model than its pass' WHEN c.end_ns < p.begin_ns THEN 'it ends before its pass begins' "
	 "ELSE 'it ends after its pass' END FROM collective AS c JOIN pass AS p "
	 "USING (pass_id) LEFT JOIN layer AS l USING (layer_id) WHERE p.recording_id <> "
	 "c.recording_id OR l.model_id <> p.model_id OR c.end_ns < p.begin_ns "
	 "OR c.end_ns > p.end_ns"},
	{CHECK_TIMING, NULL,
	 "SELECT 'collective', c.collective_id, 'one of its names is that of kernels' "
	 "FROM collective AS c JOIN string AS s ON s.string_id IN (c.name_id, c.algorithm_id, "
	 "c.protocol_id) WHERE s.role IS NOT NULL"},
	{CHECK_TIMING, "SELECT count(*) FROM range",
	 "SELECT 'range', r.range_id, CASE WHEN r.thread < 1 THEN 'its thread has no number' "
	 "ELSE 'it lies outside of its recording' END FROM range AS r "
	 "JOIN recording AS c USING (recording_id) WHERE r.end_ns < c.start_ns "
	 "OR r.end_ns > c.end_ns OR r.start_ns > c.end_ns OR r.thread < 1"},
	{CHECK_TIMING, NULL,
	 "SELECT 'range', r.range_id, 'its name is that of kernels' FROM range AS r "
	 "JOIN string AS s ON s.string_id = r.name_id WHERE s.role IS NOT NULL UNION ALL "
	 "SELECT 'range', range_id, 'its thread ended the one before it later' FROM "
	 "(SELECT range_id, end_ns, lag(end_ns) OVER (PARTITION BY recording_id, thread "
	 "ORDER BY range_id) AS before_ns FROM range) WHERE end_ns < before_ns"},

	{CHECK_STATS, NULL,
	 "SELECT 'stats', s.recording_id || ',recorded_ranges', 'is ' || s.value || ', the rows "
	 "give ' || n FROM (SELECT s.recording_id, s.value, (SELECT count(*) FROM range AS r "
	 "WHERE r.recording_id = s.recording_id) AS n FROM stats AS s "
	 "WHERE s.name = 'recorded_ranges') AS s WHERE s.value <> n"},
	{CHECK_STATS, NULL,
	 "SELECT 'stats', s.recording_id || ',recorded_collectives', 'is ' || s.value || ', the rows "
	 "give ' || n FROM (SELECT s.recording_id, s.value, (SELECT count(*) FROM collective AS c "
	 "WHERE c.recording_id = s.recording_id) AS n FROM stats AS s "
	 "WHERE s.name = 'recorded_collectives') AS s WHERE s.value <> n"},
	{CHECK_STATS, NULL,
	 "SELECT 'stats', s.recording_id || ',untied_kernels', 'is ' || s.value || ', ' || n || ' rows "
	 "have no pass' FROM (SELECT s.recording_id, s.value, (SELECT count(*) FROM kernel AS k WHERE "
	 "k.recording_id = s.recording_id AND k.pass_id IS NULL) + (SELECT count(*) FROM graph_launch "
	 "AS g WHERE g.recording_id = s.recording_id AND g.pass_id IS NULL) AS n FROM stats AS s "
	 "WHERE s.name = 'untied_kernels') AS s WHERE s.value > n"},
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

/* Nodes fill their launch from its begin to its end; those without times are counted. */
static const char *launch_fault(const struct launch *launch)
{
	int64_t n_untimed = 0, first_ns = INT64_MAX, last_ns = 0;

	for (int64_t i = 0; i < launch->n_nodes; i++) {
		const int64_t start_ns = mt_u32_at(launch->times + i * 8);
		const int64_t length_ns = mt_u32_at(launch->times + i * 8 + 4);

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
	int status = check_sql_proofs_run(check, timing_proofs,
					  sizeof(timing_proofs) / sizeof(timing_proofs[0]));

	return status == MT_EXIT_OK ? check_launches(check) : status;
}
