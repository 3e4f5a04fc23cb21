# SPDX-License-Identifier: MIT
#
# Queries in the shapes that are usual on exports of Nsight Systems, on a file made by hand: the
# answers are reckoned from tests/cli/sound.sql. And every view gives values of the types that its
# columns declare.

. "$MOETRACE_SRCDIR/tests/support/lib.sh"
. "$MOETRACE_SRCDIR/tests/cli/trace.sh"

make_sound "$tmp/sound.db"
sql() {
	sqlite3 -batch -readonly "$tmp/sound.db" "$1"
}

expect_eq "kernels by time" "$(sql "
	SELECT s.value, count(*), sum(k.end - k.start), min(k.end - k.start), max(k.end - k.start)
	FROM CUPTI_ACTIVITY_KIND_KERNEL AS k JOIN StringIds AS s ON s.id = k.shortName
	GROUP BY s.value ORDER BY 3 DESC")" "dispatch_kernel|2|110|30|80
experts|2|65|25|40"

# 7010 to 7040, 7050 to 7090, 5040 to 5120 on the GPU: 150 of 2050 ns.
expect_eq "busy share of a device" "$(sql "
	SELECT deviceId, count(*), sum(end - start), max(end) - min(start)
	FROM CUPTI_ACTIVITY_KIND_KERNEL GROUP BY deviceId ORDER BY deviceId")" "-1|1|25|25
0|3|150|2050"

expect_eq "gaps" "$(sql "
	SELECT before_end, start - before_end FROM (SELECT start, lag(end) OVER (PARTITION BY deviceId
		ORDER BY start) AS before_end FROM CUPTI_ACTIVITY_KIND_KERNEL WHERE deviceId = 0)
	WHERE before_end IS NOT NULL ORDER BY 1")" "5120|1890
7040|10"

expect_eq "kernels of a range" "$(sql "
	SELECT n.start, coalesce(n.text, s.value), count(k.start), sum(k.end - k.start)
	FROM NVTX_EVENTS AS n LEFT JOIN StringIds AS s ON s.id = n.textId
	JOIN CUPTI_ACTIVITY_KIND_KERNEL AS k ON k.start >= n.start AND k.end <= n.end
	WHERE n.eventType = 59 AND n.textId IS NOT NULL GROUP BY n.start")" "4990|step|1|25
6990|step|2|70"

expect_eq "launches by correlation" "$(sql "
	SELECT correlationId, count(*), count(graphNodeId), max(gridX) FROM CUPTI_ACTIVITY_KIND_KERNEL
	WHERE correlationId > 0 GROUP BY correlationId")" "33|1|0|8
34|2|2|8"

expect_eq "graphs as a whole" "$(sql "
	SELECT deviceId, streamId, end - start, graphId IS NULL FROM CUPTI_ACTIVITY_KIND_GRAPH_TRACE")" "0|7|80|1"

expect_eq "when" "$(sql "
	SELECT utcEpochNs, systemClockNs FROM TARGET_INFO_SESSION_START_TIME")" "1700000000000000000|5000"
expect_eq "process" "$(sql "SELECT DISTINCT globalPid / 0x1000000 % 0x1000000 FROM
	CUPTI_ACTIVITY_KIND_KERNEL UNION SELECT globalTid / 0x1000000 % 0x1000000 FROM NVTX_EVENTS")" 1
expect_eq "export" "$(sql "SELECT value FROM META_DATA_EXPORT WHERE name = 'EXPORT_SCHEMA_VERSION'")" 3.25.0
expect_eq "GPUs" "$(sql "SELECT id, uuid FROM TARGET_INFO_GPU")" "0|GPU-1"

# The view of energy: 31 readings of 30 J, 0.1 s apart, of which the sum of power has 300 to 304 W.
expect_ok "$MOETRACE_BUILDDIR/tests/schema/make_trace" domains "$tmp/domains.db"
expect_eq "energy" "$(sqlite3 -batch -readonly "$tmp/domains.db" "
	SELECT start_ns, length_ns, n_readings, energy_mj, round(integrated_mj, 3),
		round(counter_ratio, 4), mean_w FROM energy_window")" "0|1000000000|10|300000|302000.0|0.9934|300.0
1000000000|1000000000|10|300000|302000.0|0.9934|300.0
2000000000|1000000000|10|300000|302000.0|0.9934|300.0"
# Readings that come late: no window is shorter than a second, none is left out between two, and the
# limit is the one in force when it begins. 400 ms at 100 W, 500 at 200, 400 at 300, 900 at 100, 110 at
# 100, and 690 more, too short for a window; a counter that says 0.9 of all that.
cp "$tmp/sound.db" "$tmp/late.db"
change "$tmp/late.db" "DELETE FROM power_sample; DELETE FROM pass_layer; DELETE FROM topk;
	INSERT INTO power_sample (recording_id, device_id, domain, source, time_ns, instant_mw, energy_mj,
		limit_mw, throttle_reasons) VALUES
	(1, 2, 'gpu', 'poll', 0, 100000, 1000, 700000, 0), (1, 2, 'gpu', 'poll', 400000000, 100000, 37000,
		NULL, NULL), (1, 2, 'gpu', 'poll', 900000000, 300000, 127000, 500000, 1),
	(1, 2, 'gpu', 'poll', 1300000000, 300000, 235000, NULL, NULL),
	(1, 2, 'gpu', 'poll', 2200000000, 100000, 397000, NULL, NULL),
	(1, 2, 'gpu', 'poll', 2310000000, 100000, 406900, 600000, 36),
	(1, 2, 'gpu', 'poll', 3000000000, 100000, 469000, NULL, 1024),
	(1, 1, 'package-0', 'poll', 0, NULL, 0, NULL, NULL),
	(1, 1, 'package-0', 'poll', 2000000000, NULL, 50000, NULL, NULL),
	(1, 1, 'dram', 'poll', 0, NULL, NULL, NULL, NULL), (1, 1, 'dram', 'poll', 999999999, NULL, NULL, NULL,
		NULL);
	UPDATE pass SET begin_ns = 1299999999, end_ns = 1300000000 WHERE pass_id = 1;
	UPDATE pass SET begin_ns = 1300000000, end_ns = 1300000001 WHERE pass_id = 2;
	UPDATE pass SET begin_ns = 2310000000, end_ns = 2310000001 WHERE pass_id > 2 AND recording_id = 1;"
rows=$(sqlite3 -batch -readonly "$tmp/late.db" "SELECT sum(n_rows * (pass_id = 1)) || '|' || sum(n_rows * (pass_id = 2))
	FROM pass WHERE pass_id < 3")
expect_eq "windows of late readings" "$(sqlite3 -batch -readonly "$tmp/late.db" "
	SELECT start_ns, length_ns, n_readings, energy_mj, round(integrated_mj, 3), round(counter_ratio, 4),
		round(mean_w, 3), limit_w FROM energy_window WHERE domain = 'gpu' ORDER BY start_ns")" \
	"0|1300000000|3|234000|260000.0|0.9|180.0|700.0
1300000000|1010000000|2|171900|191000.0|0.9|170.198|500.0"
expect_eq "their tokens" "$(sqlite3 -batch -readonly "$tmp/late.db" "
	SELECT group_concat(tokens, '|') FROM (SELECT tokens FROM energy_window WHERE domain = 'gpu'
	ORDER BY start_ns)")" "$rows"
expect_eq "tokens of a joule" "$(sqlite3 -batch -readonly "$tmp/late.db" "
	SELECT count(*) FROM energy_window WHERE abs(tokens_per_joule - tokens * 1000.0 / energy_mj) < 1e-9")" 3
expect_eq "energy without power" "$(sqlite3 -batch -readonly "$tmp/late.db" "
	SELECT domain, energy_mj, integrated_mj, counter_ratio, mean_w, limit_w FROM energy_window
	WHERE domain <> 'gpu'")" "package-0|50000|||25.0|"
expect_eq "what holds clocks down" "$(sqlite3 -batch -readonly "$tmp/late.db" "
	SELECT time_ns / 1000000, limit_w, held_down_by FROM power WHERE domain = 'gpu' ORDER BY time_ns")" \
	"0|700.0|nothing
400|700.0|
900|500.0|idle
1300|500.0|
2200|500.0|
2310|600.0|power limit, temperature (driver)
3000|600.0|other"
expect_ok "$moetrace" power --format csv "$tmp/late.db"
expect_match "$tmp/out" '^1,cuda,2,gpu,0,1300000000,234(\.0)?,260(\.0)?,0\.9[0-9]*,180(\.0)?,700(\.0)?,0\.257'
expect_match "$tmp/err" "device 1, dram: readings of 999 ms: no energy is given for less than a second"
expect_ok "$moetrace" efficiency --format json --weight-bits 16 "$tmp/late.db"
expect_match "$tmp/out" '"joules":234(\.0)?,'

expect_eq "overlap of operations that follow each other" "$(sqlite3 -batch -readonly "$tmp/domains.db" "
	SELECT count(*) > 100, min(moving_ns), max(hidden_ns) > 0 FROM overlap")" "1|45000|1"

# What moves from 0 to 100 while something is computed from 40 to 70 and from 60 to 90.
cp "$tmp/sound.db" "$tmp/overlap.db"
change "$tmp/overlap.db" "DELETE FROM kernel; DELETE FROM graph_launch;
	INSERT INTO kernel VALUES (1, 1, 2, 7, 2, 5000, 5100, 5, 1, 1, 0, NULL, 1),
	(2, 1, 2, 8, 1, 5040, 5070, 5, 1, 1, 0, NULL, 2), (3, 1, 2, 9, 1, 5060, 5090, 5, 2, 1, 0, NULL, 3),
	(4, 1, 2, 7, 2, 5095, 5120, 5, 2, 1, 0, NULL, 4);"
expect_eq "overlap" "$(sqlite3 -batch -readonly "$tmp/overlap.db" "
	SELECT moving_ns, computing_ns, hidden_ns, round(hidden_share, 4) FROM overlap")" "120|50|50|0.4167"

# Types: what docs/schema.md says of each column of each view.
awk '/^### / { view = $2 } /^\| `/ && $4 ~ /^(INTEGER|REAL|TEXT|BLOB)$/ { gsub(/`/, "", $2)
	print view, $2, tolower($4) }' "$MOETRACE_SRCDIR/docs/schema.md" >"$tmp/columns"
sqlite3 -batch "$tmp/sound.db" "SELECT name FROM sqlite_schema WHERE type = 'view'" >"$tmp/views"
n=0
last=
while read -r view column type; do
	grep -qx "$view" "$tmp/views" || continue
	n=$((n + 1))
	[ "$view" = "$last" ] || printf "%s SELECT '%s:' || concat FROM (SELECT ''" \
		"${last:+ AS concat FROM $last) WHERE concat <> '';}" "$view"
	last=$view
	printf "\n || coalesce(max(iif(typeof(\"%s\") IN ('%s', 'null'), '', ' %s')), '')" \
		"$column" "$type" "$column"
done <"$tmp/columns" >"$tmp/types.sql"
echo " AS concat FROM $last) WHERE concat <> '';" >>"$tmp/types.sql"
[ "$n" -gt 150 ] || fail "only $n columns of views are known"
for file in sound domains; do
	expect_eq "values of other types in $file.db" "$(sqlite3 -batch -readonly "$tmp/$file.db" <"$tmp/types.sql")" ""
done
