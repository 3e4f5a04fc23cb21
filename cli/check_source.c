/* SPDX-License-Identifier: MIT */
/*
 * The proofs of what sources read and say of themselves: the second half of schema/0002-timing.sql.
 * Like those of check_sql.c each statement returns a row (table, key, what is wrong) for every
 * violation.
 *
 * What no file can prove: that a figure is the one that the driver gave, beyond that a device can have
 * it; throttle_reasons, bits that drivers may add to; what a reading cost, beyond that it began in the
 * session; processor time of the process against its threads, whose number changes between readings;
 * that of the recorder's threads over time, since threads end; resident memory, and what clocks are
 * uncertain by; n_dropped, of which there are no rows, beyond that it is unknown; the texts mode (beyond its words), version and
 * reason; calls_ns against the recording, since a call may have begun before it.
 */
#include "cli/check.h"

/* No device draws as much: 100 kW. */
#define MAX_MW "100000000"
/* Linux has no larger number of a thread. */
#define MAX_THREADS "4194304"

/* Whether @text is a number from @least to @most, in digits alone. */
#define IS_NUMBER(text, least, most)                                                             \
	"(" text " <> '' AND " text " NOT GLOB '*[^0-9]*' AND CAST(" text " AS INTEGER) "        \
	"BETWEEN " least " AND " most ")"

/* The two numbers of a window, with a sign between them. */
#define AFTER_WINDOW "substr(mode, 15)"
#define WINDOW_START "substr(" AFTER_WINDOW ", 1, instr(" AFTER_WINDOW ", '+') - 1)"
#define WINDOW_LENGTH "substr(" AFTER_WINDOW ", instr(" AFTER_WINDOW ", '+') + 1)"

/* The words of docs/collectors.md for how CUPTI is asked. */
#define IS_MODE                                                                                  \
	"mode IN ('off', 'graph', 'eager', 'kernel') "                                           \
	"OR (mode GLOB 'kernel:every=*' AND " IS_NUMBER("substr(mode, 14)", "1", "1000000") ") " \
	"OR (mode GLOB 'kernel:per_s=*' AND " IS_NUMBER("substr(mode, 14)", "1", "100") ") "     \
	"OR (mode GLOB 'kernel:window=*+*' AND " IS_NUMBER(WINDOW_START, "0", "1000000")         \
	" AND " IS_NUMBER(WINDOW_LENGTH, "1", "1000000") ")"

/* What ran or was read on a device of a process that did not make the recording. */
#define OF_ANOTHER_PROCESS(table, key)                                                           \
	"SELECT '" table "', r." key ", 'its device is of another process' FROM " table " AS r " \
	"JOIN recording AS c USING (recording_id) JOIN device AS d USING (device_id) "           \
	"WHERE d.process_id <> c.process_id "

/* A reading belongs to the time of its recording. */
#define OUTSIDE_RECORDING(table, key)                                                            \
	"SELECT '" table "', r." key ", 'it lies outside of its recording' FROM " table " AS r " \
	"JOIN recording AS c USING (recording_id) "                                              \
	"WHERE r.time_ns < c.start_ns OR r.time_ns > c.end_ns "

/* Rows of a recording in which nobody was asked for them. */
#define WITHOUT_SOURCE(table, key, source)                                                       \
	"SELECT '" table "', min(r." key "), 'its recording has no collector " source "' FROM "  \
	table " AS r JOIN device AS d USING (device_id) "

#define NO_SOURCE(source)                                                                        \
	"NOT EXISTS (SELECT 1 FROM collector AS c WHERE c.recording_id = r.recording_id "        \
	"AND c.name = '" source "') GROUP BY r.recording_id "

static const struct check_sql_proof source_proofs[] = {
	{CHECK_VALUES, NULL,
	 "SELECT 'device', device_id, 'what it has is not of its kind' FROM device WHERE kind = "
	 "'cuda' AND (coalesce(uuid, '') = '' OR n_processors IS NOT NULL) OR kind = 'host' AND "
	 "coalesce(uuid, power_limit_mw) IS NOT NULL UNION ALL "
	 "SELECT 'device', max(device_id), 'its process has it twice' FROM device "
	 "GROUP BY process_id, kind, uuid HAVING count(*) > 1"},
	{CHECK_VALUES, NULL,
	 "SELECT 'power_sample', power_sample_id, 'domain or source' FROM power_sample AS p "
	 "JOIN device AS d USING (device_id) WHERE domain = '' OR source NOT IN ('poll', 'buffer') "
	 "OR (d.kind = 'cuda') <> (domain IN ('gpu', 'module', 'memory')) UNION ALL "
	 "SELECT 'device_clock', device_clock_id, 'clock or device' FROM device_clock AS c "
	 "LEFT JOIN device AS d USING (device_id) WHERE clock NOT IN ('cupti', 'gpu_timer') "
	 "OR (clock = 'gpu_timer') <> (device_id IS NOT NULL) OR d.kind <> 'cuda' "
	 "OR d.process_id <> c.process_id"},
	{CHECK_VALUES, NULL, OF_ANOTHER_PROCESS("power_sample", "power_sample_id") "UNION ALL "
	 OF_ANOTHER_PROCESS("device_link", "device_link_id") "UNION ALL "
	 OF_ANOTHER_PROCESS("kernel", "kernel_id") "UNION ALL "
	 OF_ANOTHER_PROCESS("graph_launch", "graph_launch_id")},
	{CHECK_VALUES, NULL,
	 "SELECT 'collector', recording_id || ',' || name, 'name, state, mode or a text' "
	 "FROM collector "
	 "WHERE name NOT IN ('host', 'rapl', 'nvml', 'nvtx', 'cupti', 'null') OR state NOT IN "
	 "('on', 'absent', 'denied', 'busy', 'unsupported', 'failed', 'hung') OR (mode IS NOT NULL "
	 "AND (name <> 'cupti' OR NOT (" IS_MODE "))) OR version = '' OR reason = '' "
	 "OR (version IS NOT NULL AND name NOT IN ('nvml', 'cupti'))"},

	{CHECK_TIMES, "SELECT count(*) FROM device_clock",
	 "SELECT 'device_clock', device_clock_id, 'the session''s clock runs backwards' FROM "
	 "(SELECT device_clock_id, session_ns, lag(session_ns) OVER (PARTITION BY process_id, "
	 "device_id, clock ORDER BY device_clock_id) AS before_ns FROM device_clock) "
	 "WHERE session_ns < before_ns"},
	/* Crystals differ by less than 0.1 %. */
	{CHECK_TIMES, NULL,
	 "SELECT 'device_clock', device_clock_id, 'a GPU''s timer has the pace of no clock' FROM "
	 "(SELECT device_clock_id, clock, session_ns - lag(session_ns) OVER same AS passed_ns, "
	 "clock_ns - lag(clock_ns) OVER same AS counted_ns, uncertainty_ns + lag(uncertainty_ns) "
	 "OVER same AS slack_ns FROM device_clock WINDOW same AS (PARTITION BY process_id, "
	 "device_id, clock ORDER BY device_clock_id)) WHERE clock = 'gpu_timer' "
	 "AND abs(counted_ns - passed_ns) > passed_ns / 1000 + slack_ns"},
	{CHECK_TIMES, NULL,
	 "SELECT 'device_clock', c.device_clock_id, 'CUPTI''s clock was read while nothing was "
	 "recorded' FROM device_clock AS c WHERE c.clock = 'cupti' AND NOT EXISTS (SELECT 1 FROM "
	 "recording AS r WHERE r.process_id = c.process_id AND r.start_ns <= c.session_ns "
	 "AND coalesce(r.end_ns, c.session_ns) >= c.session_ns)"},
	/* A clock of the host may be set: then the snapshots around it tell of that. */
	{CHECK_TIMES, NULL,
	 "SELECT 'device_clock', device_clock_id, 'CUPTI''s clock goes on otherwise than that of the "
	 "host' FROM (SELECT m.device_clock_id, m.moved_ns, (m.session_ns - m.before_ns) / 1000 + "
	 "m.slack_ns + 1000000 AS slack_ns, (SELECT s.realtime_ns - s.session_ns FROM "
	 "clock_snapshot AS s WHERE s.process_id = m.process_id AND s.session_ns >= m.session_ns "
	 "ORDER BY s.session_ns LIMIT 1) - coalesce((SELECT s.realtime_ns - s.session_ns FROM "
	 "clock_snapshot AS s WHERE s.process_id = m.process_id AND s.session_ns <= m.before_ns "
	 "ORDER BY s.session_ns DESC LIMIT 1), (SELECT s.realtime_ns - s.session_ns FROM "
	 "clock_snapshot AS s WHERE s.process_id = m.process_id ORDER BY s.session_ns LIMIT 1)) "
	 "AS host_moved_ns FROM (SELECT device_clock_id, "
	 "process_id, session_ns, lag(session_ns) OVER same AS before_ns, clock_ns - session_ns - "
	 "lag(clock_ns - session_ns) OVER same AS moved_ns, uncertainty_ns + lag(uncertainty_ns) "
	 "OVER same AS slack_ns FROM device_clock WHERE clock = 'cupti' WINDOW same AS (PARTITION "
	 "BY process_id ORDER BY device_clock_id)) AS m) WHERE abs(moved_ns) > slack_ns "
	 "AND abs(moved_ns - host_moved_ns) > slack_ns"},

	{CHECK_POWER, "SELECT count(*) FROM power_sample",
	 "SELECT 'power_sample', power_sample_id, 'the driver''s buffer holds power alone' "
	 "FROM power_sample WHERE source = 'buffer' AND (instant_mw IS NULL OR domain <> 'gpu' OR "
	 "coalesce(average_mw, energy_mj, limit_mw, throttle_reasons, processor_mhz, memory_mhz, "
	 "temperature_c, cost_ns) IS NOT NULL) UNION ALL SELECT 'power_sample', power_sample_id, 'tells neither power nor "
	 "energy' FROM power_sample WHERE coalesce(instant_mw, average_mw, energy_mj) IS NULL"},
	{CHECK_POWER, NULL,
	 "SELECT 'power_sample', power_sample_id, CASE WHEN time_ns < before_ns THEN "
	 "'is earlier than the one before it' ELSE 'the energy counter falls' END FROM (SELECT "
	 "power_sample_id, time_ns, energy_mj, lag(time_ns) OVER same AS before_ns, max(energy_mj) "
	 "OVER (same ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before_mj "
	 "FROM power_sample WINDOW same AS (PARTITION BY recording_id, device_id, domain, source "
	 "ORDER BY power_sample_id)) WHERE time_ns < before_ns OR energy_mj < before_mj"},
	/* Powercap counts energy and nothing else; parts of a GPU come with it, in one call. */
	{CHECK_POWER, NULL,
	 "SELECT 'power_sample', power_sample_id, 'powercap tells energy alone' FROM power_sample "
	 "JOIN device AS d USING (device_id) WHERE d.kind = 'host' AND (source <> 'poll' "
	 "OR energy_mj IS NULL OR cost_ns IS NULL OR coalesce(instant_mw, average_mw, limit_mw, "
	 "throttle_reasons, processor_mhz, memory_mhz, temperature_c) IS NOT NULL) UNION ALL "
	 "SELECT 'power_sample', power_sample_id, CASE domain WHEN 'gpu' THEN 'it took no time' "
	 "ELSE 'it has what its GPU alone has' END FROM power_sample WHERE source = 'poll' AND "
	 "((domain = 'gpu' AND cost_ns IS NULL) OR (domain IN ('module', 'memory') AND "
	 "coalesce(throttle_reasons, processor_mhz, memory_mhz, temperature_c, cost_ns) IS NOT "
	 "NULL))"},
	{CHECK_POWER, NULL, OUTSIDE_RECORDING("power_sample", "power_sample_id")},
	{CHECK_POWER, NULL,
	 "SELECT 'power_sample', power_sample_id, 'no device has such a figure' FROM power_sample "
	 "WHERE max(coalesce(instant_mw, 0), coalesce(average_mw, 0), coalesce(limit_mw, 0)) > "
	 MAX_MW " OR max(coalesce(processor_mhz, 0), coalesce(memory_mhz, 0)) > 1000000 "
	 "OR temperature_c > 1000 OR cost_ns / 2 > time_ns"},
	/* Counters go on ten times a second, by what was drawn meanwhile. */
	{CHECK_POWER, NULL,
	 "SELECT 'power_sample', power_sample_id, 'no device takes so much energy in that time' "
	 "FROM (SELECT power_sample_id, energy_mj - lag(energy_mj) OVER same AS counted_mj, "
	 "time_ns - lag(time_ns) OVER same AS passed_ns FROM power_sample WHERE energy_mj IS NOT "
	 "NULL WINDOW same AS (PARTITION BY recording_id, device_id, domain ORDER BY "
	 "power_sample_id)) WHERE counted_mj > (passed_ns / 1e9 + 1) * " MAX_MW},
	{CHECK_POWER, NULL,
	 "SELECT 'device', d.device_id, 'power_limit_mw is ' || coalesce(d.power_limit_mw, 'NULL') || "
	 "', the last one that was read is ' || p.limit_mw FROM device AS d JOIN power_sample AS p "
	 "ON p.power_sample_id = (SELECT max(power_sample_id) FROM power_sample AS l WHERE "
	 "l.device_id = d.device_id AND l.limit_mw IS NOT NULL AND l.domain = 'gpu') "
	 "WHERE d.power_limit_mw IS NOT p.limit_mw"},
	{CHECK_POWER, "SELECT count(*) FROM host_sample",
	 "SELECT 'host_sample', host_sample_id, 'a time falls' FROM (SELECT host_sample_id, "
	 "time_ns, process_cpu_ns, lag(time_ns) OVER same AS before_ns, lag(process_cpu_ns) "
	 "OVER same AS before_cpu_ns FROM host_sample WINDOW same AS (PARTITION BY recording_id "
	 "ORDER BY host_sample_id)) WHERE time_ns < before_ns OR process_cpu_ns < before_cpu_ns"},
	{CHECK_POWER, NULL, OUTSIDE_RECORDING("host_sample", "host_sample_id")},
	{CHECK_POWER, NULL,
	 "SELECT 'host_sample', host_sample_id, CASE WHEN n_threads < 1 THEN 'a process without a "
	 "thread' WHEN n_threads > " MAX_THREADS " THEN 'more threads than a kernel has' WHEN resident_bytes < 1 THEN 'a process without memory' WHEN recorder_cpu_ns > "
	 "process_cpu_ns THEN 'the recorder''s threads took more than the process' ELSE 'threads "
	 "are read with their time' END FROM host_sample WHERE n_threads NOT BETWEEN 1 AND " MAX_THREADS " "
	 "OR resident_bytes < 1 "
	 "OR recorder_cpu_ns > process_cpu_ns OR (n_threads IS NULL) <> (recorder_cpu_ns IS NULL)"},
	{CHECK_POWER, "SELECT count(*) FROM device_link",
	 "SELECT 'device_link', device_link_id, CASE WHEN active_nvlinks > nvlinks THEN 'more links "
	 "are up than there are' WHEN kind <> 'cuda' THEN 'is of no GPU' WHEN time_ns < before_ns "
	 "THEN 'is earlier than the one before it' WHEN is_same THEN 'says what the one before it "
	 "said' ELSE 'no device has such a link' END FROM (SELECT l.*, d.kind, lag(time_ns) OVER "
	 "same AS before_ns, lag(time_ns) OVER same IS NOT NULL AND lag(pcie_generation) OVER same "
	 "IS pcie_generation AND lag(pcie_width) OVER same IS pcie_width AND lag(nvlinks) OVER "
	 "same IS nvlinks AND lag(active_nvlinks) OVER same IS active_nvlinks AS is_same "
	 "FROM device_link AS l JOIN device AS d USING (device_id) WINDOW same AS (PARTITION BY "
	 "l.recording_id, l.device_id ORDER BY l.device_link_id)) WHERE active_nvlinks > nvlinks "
	 "OR (active_nvlinks IS NULL) <> (nvlinks IS NULL) OR kind <> 'cuda' OR time_ns < before_ns "
	 "OR is_same OR pcie_width NOT IN (1, 2, 4, 8, 12, 16, 32) OR pcie_generation NOT BETWEEN "
	 "1 AND 15 OR nvlinks > 64"},
	{CHECK_POWER, NULL, OUTSIDE_RECORDING("device_link", "device_link_id")},

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
	 WITHOUT_SOURCE("power_sample", "power_sample_id", "rapl")
	 "WHERE d.kind = 'host' AND " NO_SOURCE("rapl") "UNION ALL "
	 WITHOUT_SOURCE("power_sample", "power_sample_id", "nvml")
	 "WHERE d.kind = 'cuda' AND " NO_SOURCE("nvml") "UNION ALL "
	 WITHOUT_SOURCE("device_link", "device_link_id", "nvml")
	 "WHERE " NO_SOURCE("nvml") "UNION ALL "
	 WITHOUT_SOURCE("kernel", "kernel_id", "cupti")
	 "WHERE d.kind = 'cuda' AND " NO_SOURCE("cupti") "UNION ALL "
	 WITHOUT_SOURCE("graph_launch", "graph_launch_id", "cupti") "WHERE " NO_SOURCE("cupti")},
	{CHECK_COLLECTORS, NULL,
	 "SELECT 'host_sample', min(r.host_sample_id), 'its recording has no collector host' "
	 "FROM host_sample AS r WHERE " NO_SOURCE("host") "UNION ALL "
	 "SELECT 'collector_overhead', min(r.collector_overhead_id), 'its recording has no collector "
	 "cupti' FROM collector_overhead AS r WHERE " NO_SOURCE("cupti") "UNION ALL "
	 "SELECT 'device_clock', min(r.device_clock_id), 'its process has no collector cupti' "
	 "FROM device_clock AS r WHERE r.clock = 'cupti' AND NOT EXISTS (SELECT 1 FROM collector AS c "
	 "JOIN recording AS o USING (recording_id) WHERE o.process_id = r.process_id "
	 "AND c.name = 'cupti') GROUP BY r.process_id"},
	/* It has a mode from its start on; off, there is nothing of it. */
	{CHECK_COLLECTORS, NULL,
	 "SELECT 'collector', recording_id || ',cupti', CASE WHEN mode = 'off' THEN 'was asked for "
	 "nothing: it is absent' WHEN n_rows > 0 THEN 'brought rows and had no mode' ELSE 'has no "
	 "mode, and neither failed nor hangs' END FROM collector WHERE name = 'cupti' AND "
	 "((mode = 'off' AND state <> 'absent') OR (mode IS NULL AND (n_rows > 0 OR state NOT IN "
	 "('failed', 'hung'))))"},
	{CHECK_COLLECTORS, NULL,
	 "SELECT r.name, r.id, 'mode ' || c.mode || ' records launches of whole graphs alone' FROM "
	 "collector AS c JOIN (SELECT 'kernel' AS name, min(k.kernel_id) AS id, k.recording_id "
	 "FROM kernel AS k JOIN device AS d USING (device_id) WHERE d.kind = 'cuda' GROUP BY "
	 "k.recording_id UNION ALL SELECT 'graph_launch', min(graph_launch_id), recording_id "
	 "FROM graph_launch WHERE n_nodes IS NOT NULL GROUP BY recording_id) AS r "
	 "ON r.recording_id = c.recording_id AND c.name = 'cupti' WHERE c.mode = 'graph'"},
	{CHECK_COLLECTORS, NULL,
	 "SELECT 'collector', c.recording_id || ',' || c.name, 'n_invalid is ' || c.n_invalid || "
	 "', the tables have ' || c.n FROM (SELECT c.recording_id, c.name, c.n_invalid, CASE c.name "
	 "WHEN 'cupti' THEN (SELECT count(*) FROM "
	 "kernel AS k JOIN device AS d USING (device_id) WHERE k.recording_id = c.recording_id "
	 "AND d.kind = 'cuda' AND k.flags <> 0) + (SELECT count(*) FROM graph_launch AS g WHERE "
	 "g.recording_id = c.recording_id AND (g.flags <> 0 OR g.n_untimed > 0)) ELSE 0 END AS n "
	 "FROM collector AS c) AS c WHERE c.n_invalid <> c.n"},
	{CHECK_COLLECTORS, NULL,
	 "SELECT 'collector', recording_id || ',' || name, CASE WHEN state <> 'on' AND "
	 "coalesce(reason, '') = '' THEN 'says neither why it is not on nor what to do' "
	 "WHEN state IN ('absent', 'denied', 'busy') AND n_rows > 0 THEN 'was never there, and "
	 "brought rows' ELSE 'its calls do not add up' END "
	 "FROM collector WHERE (state <> 'on' AND coalesce(reason, '') = '') "
	 "OR (state IN ('absent', 'denied', 'busy') AND n_rows > 0) "
	 "OR longest_call_ns > calls_ns OR calls_ns / max(n_calls, 1) > longest_call_ns "
	 "OR (n_calls = 0 AND calls_ns > 0) OR n_invalid > n_rows"},
	/* Whoever did not answer, or was not asked, cannot say that nothing is missing. */
	{CHECK_COLLECTORS, NULL,
	 "SELECT 'collector', c.recording_id || ',' || c.name, CASE WHEN c.state = 'hung' THEN 'hangs, "
	 "and says what was lost' WHEN c.n_calls = 0 THEN 'was never asked, and does not say so' ELSE "
	 "'brought nothing, and does not say why' END FROM collector AS c JOIN recording AS r USING "
	 "(recording_id) WHERE (c.state = 'hung' AND c.n_dropped IS NOT NULL) OR (c.state = 'on' AND "
	 "r.end_ns IS NOT NULL AND ((c.n_calls = 0 AND (c.n_dropped IS NOT NULL OR c.reason IS NULL)) "
	 "OR (c.n_rows = 0 AND c.reason IS NULL AND c.name IN ('host', 'rapl', 'nvml'))))"},
	/* The recorder says so itself of whoever read nothing for as long. */
	{CHECK_COLLECTORS, NULL,
	 "SELECT 'collector', recording_id || ',' || name, 'read nothing in the last ' || (end_ns - "
	 "last_ns) / 1000000 || ' ms, and does not say so' FROM (SELECT c.*, r.end_ns, CASE c.name "
	 "WHEN 'host' THEN (SELECT max(time_ns) FROM host_sample AS h WHERE h.recording_id = "
	 "c.recording_id) WHEN 'rapl' THEN (SELECT max(time_ns) FROM power_sample AS p JOIN device AS d "
	 "USING (device_id) WHERE p.recording_id = c.recording_id AND d.kind = 'host') WHEN 'nvml' THEN "
	 "(SELECT max(time_ns) FROM (SELECT time_ns FROM power_sample AS p JOIN device AS d USING "
	 "(device_id) WHERE p.recording_id = c.recording_id AND d.kind = 'cuda' UNION ALL SELECT "
	 "time_ns FROM device_link AS l WHERE l.recording_id = c.recording_id)) END AS last_ns "
	 "FROM collector AS c JOIN recording AS r USING (recording_id)) WHERE state = 'on' AND reason "
	 "IS NULL AND n_dropped = 0 AND end_ns - last_ns > 2 * interval_ns + "
	 "coalesce(longest_call_ns, 0) + 500000000"},
	{CHECK_COLLECTORS, NULL,
	 "SELECT 'collector', c.recording_id || ',' || c.name, 'tells its calls in part, or not though "
	 "its recording was none of flight mode' FROM collector AS c WHERE (c.n_calls IS NULL) + "
	 "(c.calls_ns IS NULL) + (c.longest_call_ns IS NULL) NOT IN (0, 3) OR (c.n_calls IS NULL AND "
	 "NOT EXISTS (SELECT 1 FROM stats AS s WHERE s.recording_id = c.recording_id AND s.name = "
	 "'flight_let_go_passes'))"},
	/* Ten times a second at most, and some more at the ends. */
	{CHECK_COLLECTORS, NULL,
	 "SELECT 'collector', c.recording_id || ',' || c.name, 'n_calls is ' || c.n_calls || ', too "
	 "many for that time' FROM collector AS c JOIN recording AS r USING (recording_id) "
	 "WHERE c.n_calls > (r.end_ns - r.start_ns) / 100000000 + 10"},
	/* It doubles up to 10 s when calls are slow. */
	{CHECK_COLLECTORS, NULL,
	 "SELECT 'collector', recording_id || ',' || name, 'interval_ns is none of its own' "
	 "FROM collector WHERE interval_ns NOT IN (100000000, 200000000, 400000000, 800000000, "
	 "1600000000, 3200000000, 6400000000, 1000000000, 2000000000, 4000000000, 8000000000) "
	 "OR (interval_ns IS NULL AND name <> 'nvtx') OR (interval_ns % 1000000000 = 0) <> "
	 "(name IN ('host', 'nvtx'))"},
};

int check_source_run(struct check *check)
{
	return check_sql_proofs_run(check, source_proofs,
				    sizeof(source_proofs) / sizeof(source_proofs[0]));
}
