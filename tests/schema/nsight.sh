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
