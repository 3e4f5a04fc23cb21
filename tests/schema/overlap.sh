# SPDX-License-Identifier: MIT
#
# View overlap against its definition, counted nanosecond by nanosecond: the time of a pass in which
# its data moved and something was computed on the same device, in whichever pass. And view power:
# the limit of each reading against that of its own part of the device.

. "$MOETRACE_SRCDIR/tests/support/lib.sh"
need_plain_build
. "$MOETRACE_SRCDIR/tests/cli/trace.sh"

make_sound "$tmp/sound.db"
sql() {
	sqlite3 -batch -readonly "$tmp/$1.db" "$2"
}

# Two batches that take turns: the one computes while the other moves data. Of the first one's 100 ns
# 90 are hidden, of the second one's 110 another 50; a third pass has nothing that hides it, on a device
# of its own.
cp "$tmp/sound.db" "$tmp/turns.db"
change "$tmp/turns.db" "DELETE FROM kernel; DELETE FROM graph_launch;
	INSERT INTO kernel (recording_id, device_id, name_id, start_ns, end_ns, pass_id, flags) VALUES
	(1, 2, 1, 0, 100, 1, 0), (1, 2, 2, 100, 200, 1, 0), (1, 2, 1, 90, 190, 2, 0),
	(1, 2, 2, 190, 300, 2, 0), (1, 2, 1, 200, 250, 1, 0), (1, 1, 2, 100, 130, 3, 0);"
expect_eq "two passes that overlap" "$(sql turns "SELECT pass_id, device_id, moving_ns, computing_ns,
	hidden_ns, round(hidden_share, 4) FROM overlap ORDER BY pass_id")" "1|2|100|150|90|0.9
2|2|110|100|50|0.4545
3|1|30|0|0|0.0"

# 160 operations of all kinds, drawn by a generator of its own: empty ones, equal ones, without a
# pass, with flags, in two recordings at once.
cp "$tmp/sound.db" "$tmp/drawn.db"
change "$tmp/drawn.db" "DELETE FROM kernel; DELETE FROM graph_launch;
	WITH RECURSIVE d(i, a, b, c) AS (SELECT 1, 7, 11, 13 UNION ALL SELECT i + 1,
		(a * 1103515245 + 12345) % 2147483648, (b * 69069 + 1) % 4294967296,
		(c * 1664525 + 1013904223) % 4294967296 FROM d WHERE i < 160)
	INSERT INTO kernel (recording_id, device_id, name_id, start_ns, end_ns, pass_id, flags)
	SELECT CASE WHEN p BETWEEN 8 AND 9 THEN 2 ELSE 1 END, 1 + c / 16 % 2, 1 + b / 64 % 2, s, s + l,
		nullif(p, 0), iif(c / 4096 % 16 = 0, 4, 0)
	FROM (SELECT c, b, a / 8 % 10 AS p, a / 1024 % 400 AS s, b / 65536 % 25 AS l FROM d);"
cat >"$tmp/brute.sql" <<'SQL'
WITH RECURSIVE t(ns) AS (SELECT 0 UNION ALL SELECT ns + 1 FROM t WHERE ns < 430),
k AS (SELECT k.*, s.moves_data FROM kernel AS k JOIN string AS s ON s.string_id = k.name_id
	WHERE k.flags = 0),
tick AS (SELECT DISTINCT recording_id, device_id, pass_id, moves_data, ns FROM k JOIN t
	ON ns >= start_ns AND ns < end_ns)
SELECT recording_id, pass_id, device_id,
	(SELECT count(*) FROM tick AS m WHERE m.pass_id = p.pass_id AND m.device_id = p.device_id
		AND m.moves_data = 1),
	(SELECT count(*) FROM tick AS m WHERE m.pass_id = p.pass_id AND m.device_id = p.device_id
		AND m.moves_data = 0),
	(SELECT count(*) FROM tick AS m WHERE m.pass_id = p.pass_id AND m.device_id = p.device_id
		AND m.moves_data = 1 AND EXISTS (SELECT 1 FROM tick AS c WHERE c.moves_data = 0
		AND c.recording_id = m.recording_id AND c.device_id = m.device_id AND c.ns = m.ns))
FROM (SELECT DISTINCT recording_id, pass_id, device_id FROM k WHERE moves_data = 1
	AND pass_id IS NOT NULL) AS p ORDER BY 2, 3;
SQL
sqlite3 -batch -readonly "$tmp/drawn.db" <"$tmp/brute.sql" >"$tmp/want"
[ "$(wc -l <"$tmp/want")" -ge 12 ] || fail "too few passes are drawn: $(cat "$tmp/want")"
awk -F'|' '{ n += $6 } END { exit n < 300 }' "$tmp/want" || fail "hardly anything is hidden"
sql drawn "SELECT recording_id, pass_id, device_id, moving_ns, computing_ns, hidden_ns FROM overlap
	ORDER BY pass_id, device_id" >"$tmp/got"
expect_eq "drawn operations" "$(cat "$tmp/got")" "$(cat "$tmp/want")"

# A GPU, its memory without a limit, and the module around it with one of its own that changes.
cp "$tmp/sound.db" "$tmp/limits.db"
change "$tmp/limits.db" "DELETE FROM power_sample; INSERT INTO power_sample (recording_id, device_id,
	domain, source, time_ns, instant_mw, limit_mw) VALUES
	(1, 2, 'gpu', 'poll', 1000, 350000, 700000), (1, 2, 'module', 'poll', 1000, 500000, 1000000),
	(1, 2, 'memory', 'poll', 1000, 60000, NULL), (1, 2, 'gpu', 'poll', 2000, 350000, NULL),
	(1, 2, 'module', 'poll', 2000, 500000, 800000), (1, 2, 'gpu', 'buffer', 2500, 140000, NULL),
	(1, 2, 'gpu', 'poll', 3000, 350000, 500000), (1, 2, 'module', 'poll', 3000, 400000, NULL),
	(1, 2, 'memory', 'poll', 3000, 60000, NULL);"
expect_eq "limits by domain" "$(sql limits "SELECT domain, source, time_ns, limit_w, limit_share FROM power
	ORDER BY domain, time_ns")" "gpu|poll|1000|700.0|0.5
gpu|poll|2000|700.0|0.5
gpu|buffer|2500|700.0|0.2
gpu|poll|3000|500.0|0.7
memory|poll|1000||
memory|poll|3000||
module|poll|1000|1000.0|0.5
module|poll|2000|800.0|0.625
module|poll|3000|800.0|0.5"
change "$tmp/limits.db" "UPDATE device SET power_limit_mw = 500000 WHERE device_id = 2;"
expect_ok "$moetrace" efficiency --format jsonl --weight-bits 16 "$tmp/limits.db"
expect_match "$tmp/out" '"domain":"memory","readings":2,[^}]*"limit_w":null'
expect_match "$tmp/out" '"domain":"gpu","readings":3,[^}]*"limit_w":700'
