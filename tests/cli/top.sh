# SPDX-License-Identifier: MIT
#
# moetrace top without a screen: its figures are those of SQL on the file, of finished and of live
# recordings; the recorder neither keeps its journal nor waits because of it; names that would drive a
# terminal are text; files that vanish, end or go on elsewhere are said.

. "$MOETRACE_SRCDIR/tests/support/lib.sh"
. "$MOETRACE_SRCDIR/tests/support/live.sh"
. "$MOETRACE_SRCDIR/tests/cli/trace.sh"

make_live=$MOETRACE_BUILDDIR/tests/cli/make_live
cd "$tmp" || exit 99

# ---- several recorders at once, each looked at while it records ----
# record FILE SECONDS PASSES_PER_S MODE
record() {
	"$make_live" "$@" >"$1.err" 2>&1 &
	recorder=$!
	await "a recording in $1" "$recorder" "$1.err" is_recorded "$1"
}
is_recorded() {
	[ -s "$1" ] && [ "$(sql "$1" "SELECT count(*) FROM recording" 2>/dev/null)" = 1 ]
}

# follow NAME ARGUMENT...: lines of top into NAME.out
follow() {
	name=$1
	shift
	"$moetrace" top "$@" >"$name.out" 2>"$name.err" </dev/null &
	follower=$!
	echo "$follower" >"$name.pid"
}

# until_seen NAME REGEX [N]: until N lines of what that top printed match
until_seen() {
	await "'$2' in $1.out" "$(cat "$1.pid")" "$1.err" has_lines "$1.out" "$2" "${3:-1}"
}
has_lines() {
	[ "$(grep -Ec -e "$2" "$1")" -ge "$3" ]
}

# end PID: that recorder is told to end, and does.
end() {
	kill -TERM "$1" && wait "$1" || fail "a recorder ends with an error"
}

record fast.db 3600 3000 per_token
fast=$recorder
follow fast --plain --interval 0.1 fast.db
fast_top=$follower
record turns.db 3600 30 per_token
turns=$recorder
follow turns --interval 0.1 "$turns"
turns_top=$follower
follow first --interval 0.1 turns.db
first_top=$follower
record stat.db 3600 200 stat
stat=$recorder
follow stat --plain --interval 0.4 stat.db
stat_top=$follower
record counts.db 3600 30 per_pass
counts=$recorder
record gone.db 3600 30 per_token
gone=$recorder
follow gone --interval 0.1 gone.db
gone_top=$follower

# A session by its process id, while it records; what it records may come late, and very late where
# it is more than the machine can write.
has_passes() {
	expect_ok "$moetrace" top --once --format json "$turns"
	[ "$(sqlite3 :memory: "SELECT json_extract(readfile('out'), '\$.throughput[0].passes_per_s') > 0")" = 1 ]
}
await "passes a second" "$turns" turns.db.err has_passes
expect_json out
expect_eq "state" "$(json out '$.recording[0].state')" live

until_seen gone '^state: live'
rm gone.db gone.db-*
until_seen first '^state: live'
until_seen turns '^state: live'
expect_ok "$moetrace" rotate "$turns"

# The journal begins again when all of it was copied into the file and nobody reads it: then it has
# another salt. Beside a reader that stays it would only grow.
: >salts
has_begun_again() {
	od -A n -t x4 -j 16 -N 8 fast.db-wal >>salts
	[ "$(sort -u salts | wc -l)" -ge 3 ]
}
await "a journal that begins again beside top" "$fast" fast.db.err has_begun_again
until_seen fast '^state: live' 5
end "$fast"
until_seen turns '^notice: the session goes on'
until_seen stat '^window: last' 4
# However many passes a second the machine has time for, each has 68 rows; the sums of tokens are written
# less often than those of passes.
has_rates() {
	awk '/^passes:/ { passes = $2 } /^tokens:/ && passes > 0 && $2 / passes > 35 && $2 / passes < 100 { n++ }
		END { exit n < 2 }' stat.out
}
await "the tokens of passes" "$stat_top" stat.err has_rates
end "$turns"
end "$stat"
end "$counts"

# ended NAME PID: that follower has come to its end by itself.
ended() {
	status=0
	wait "$2" || status=$?
	expect_eq "exit status of top on $1" "$status" "$3"
}
ended fast.db $fast_top 0
expect_match fast.out '^state: live, for '
expect_eq "last state" "$(grep '^state' fast.out | tail -n 1 | sed 's/after.*(/after (/')" 'state: ended after (stopped)'
[ "$(grep -c '^state: live' fast.out)" -ge 5 ] || fail "too few frames: $(grep -c ^state fast.out)"
expect_no_match fast.out "$(printf '[\001-\011\013-\037]')"
expect_match fast.out '^model: evil\\x1b\]0;stolen\\x07\\x1b\[31mred\\u\{9b\}5m\\u\{202e\}gnp '
expect_absent fast.db-wal
expect_eq "diagnostics" "$(sql fast.db "SELECT count(*) FROM diagnostic")" 0
expect_eq "journal mode" "$(sql fast.db "PRAGMA journal_mode")" delete

ended turns.db $first_top 0
expect_match first.out '^state: ended after .*\(rotated\)'
ended "session $turns" $turns_top 0
expect_match turns.out "^notice: the session goes on in .*/turns\.1\.db"
expect_match turns.out '^state: ended after .*\(stopped\)'
ended gone.db $gone_top 1
expect_match gone.out '^notice: gone.db was deleted or moved; what is shown is as it was last'
kill -TERM "$gone"
# Its file is gone, which it says at its end.
wait "$gone"

# In mode stat, which keeps no pass, rates are of what came on between two looks.
ended stat.db $stat_top 0
expect_match stat.out '^window: whole recording'
expect_match stat.out '^window: last [0-9.]+ s'

# ---- the figures ----
# figures FILE OPTION...: one frame is what SQL finds in its window.
n_figures=0
figures() {
	file=$1
	shift
	expect_ok "$moetrace" top --once --format json "$@" "$file"
	expect_json out
	[ ! -s err ] || fail "on stderr: $(cat err)"
	cp out frame.json
	rm -f copy.db
	sqlite3 -readonly "$file" ".backup copy.db"
	sqlite3 -batch -bail copy.db <"$MOETRACE_SRCDIR/tests/cli/top.sql" >result 2>&1 || fail "$file $*: $(cat result)"
	[ "$(wc -l <result)" -eq 1 ] || fail "$file $*: $(cat result)"
	n_figures=$((n_figures + $(cat result)))
}
expect_ok "$MOETRACE_BUILDDIR/tests/cli/make_hard" hard.db
figures hard.db
figures hard.db --recording 1
figures hard.db --recording 1 --model 2
figures hard.db --recording 2 --window all
make_sound sound.db
figures sound.db --recording 1 --window all
expect_eq "passes and rows of the first of two models" "$(json out '$.throughput[0].passes')|$(json out '$.throughput[0].rows')" '6|13'
figures sound.db --recording 1 --window all --model 2
figures sound.db --recording 1
figures sound.db --recording 2 --window all
figures turns.1.db --window 1
figures counts.db --window 1
figures counts.db --window all
figures stat.db --window all
expect_eq "end of the whole" "$(json out '$.throughput[0].until_ns')" "$(sql stat.db "SELECT end_ns FROM recording")"
# Without passes nothing tells whose a recording's sums are.
cp sound.db sums.db
change sums.db "UPDATE recording SET mode = 'stat'"
expect_ok "$moetrace" top --once --format json --window all --recording 1 sums.db
expect_eq "figures of passes" "$(sqlite3 :memory: "SELECT group_concat(coalesce(value, 'n/a'), ' ') FROM json_each(CAST(readfile('out') AS TEXT), '\$.throughput[0]')
	WHERE key IN ('passes', 'partial_passes', 'rows', 'padding_rows', 'passes_per_s', 'mean_rows', 'mean_duration_ns')")" 'n/a n/a n/a n/a n/a n/a n/a'
# What began longer ago than the last seconds is of the whole as well.
cp sound.db long.db
change long.db "UPDATE recording SET end_ns = 60000000000 WHERE recording_id = 1; UPDATE pass SET verdict = 'partial', reasons = 'unended' WHERE pass_id = 1;" \
	"UPDATE pass SET begin_ns = 30000000000, end_ns = 30000000300 WHERE pass_id = 7"
figures long.db --recording 1 --window all
expect_eq "of the whole" "$(json out '$.throughput[0].partial_passes')|$(json out '$.throughput[0].padding_rows')|$(json out '$.throughput[0].mean_duration_ns')" '1|1|133.333333333333'
[ $n_figures -ge 4000 ] || fail "only $n_figures figures were compared"


# ---- a look that was cut off between the passes and their load: nothing of it counts ----
sqlite3 -batch torn.db 'PRAGMA journal_mode = WAL' >/dev/null
cat "$MOETRACE_SRCDIR"/schema/[0-9]*.sql "$MOETRACE_SRCDIR"/schema/views/*.sql "$MOETRACE_SRCDIR/tests/cli/sound.sql" |
	sqlite3 -batch -bail torn.db
mkfifo hold
sqlite3 -batch torn.db <hold >held &
holder=$!
exec 9>hold
echo 'BEGIN; SELECT count(*) FROM pass;' >&9
await "somebody who has the file open" "$holder" - test -s held
# A recording that its process writes still, as far as can be seen.
change torn.db "UPDATE process SET pid = $holder, boot_id = '$(cat /proc/sys/kernel/random/boot_id)';
	UPDATE recording SET end_ns = NULL, end_reason = NULL WHERE recording_id = 1;" \
	"UPDATE clock_snapshot SET monotonic_ns = $(cut -d. -f1 /proc/uptime) * 1000000000;"
follow torn --plain --interval 0.1 --window 3600 --recording 1 torn.db
torn_top=$follower
until_seen torn '^passes: .* 6 in the window'
change torn.db "BEGIN; INSERT INTO pass SELECT 10, recording_id, model_id, phase, begin_ns, end_ns, n_rows, padding_rows, runtime_pass,
	parent_pass_id, microbatch, verdict, reasons, n_dropped, device_id FROM pass WHERE pass_id = 2;
	INSERT INTO pass_layer SELECT 10, layer_id, active_experts, padding_active_experts, max_load, selected_ns, state, map_epoch,
	selection_order, n_rows, topk_id, topk_row, tied_rows FROM pass_layer WHERE pass_id = 2;
	CREATE TABLE whole AS SELECT topk_ids FROM topk WHERE topk_id = 1; UPDATE topk SET topk_ids = x'00' WHERE topk_id = 1; COMMIT;"
until_seen torn '^notice: .*topk'
change torn.db "UPDATE topk SET topk_ids = (SELECT topk_ids FROM whole) WHERE topk_id = 1; DROP TABLE whole;"
until_seen torn '^hot: layer 1, expert 299: 6 tokens'
kill -TERM $torn_top
wait $torn_top || :

# ---- a file that goes in the middle of a look is gone all the same ----
follow looked --plain --interval 0.1 --window 3600 --recording 1 torn.db
looked_top=$follower
until_seen looked '^state: live'
# In steps of a moment: where its rest is over, it looks.
is_looking() {
	for _ in $(seq 50); do
		kill -STOP $looked_top
		! find "/proc/$looked_top/fd" -lname '*/torn.db' | grep -q . || return 0
		kill -CONT $looked_top
		/bin/true
	done
	return 1
}
await "a look" $looked_top looked.err is_looking
rm torn.db torn.db-*
kill -CONT $looked_top
ended torn.db $looked_top 1
expect_match looked.out '^notice: torn.db was deleted or moved'
exec 9>&-
expect_eq "passes in the end" "$(sed -n 's/^passes: .* second, \([0-9]*\) in the window.*/\1/p' torn.out | tail -n 1)" 7

# Losses, and what sources lack, are seen; what is not known is not 0.
expect_ok "$moetrace" top --once hard.db --recording 1
expect_match out '^losses: .*dropped_passes 1, .*; pass: no_ring$'
expect_match out '^collector: none was asked for'
expect_match out '^power: n/a'
expect_ok "$moetrace" top --once --format json hard.db --recording 1
expect_eq "lost passes" "$(json out '$.losses')" "$(sql hard.db "SELECT json_group_array(json_object('name', name, 'value', value))
	FROM stats WHERE recording_id = 1 AND value <> 0 AND (name LIKE 'dropped%' OR name IN ('invalid_ids', 'misuse', 'unwritten_layers', 'duplicate_layers'))")"
cp hard.db power.db
change power.db "INSERT INTO device (device_id, process_id, kind, name, power_limit_mw) VALUES (7, 1, 'cuda', 'card', 700000), (8, 1, 'cuda', 'other', NULL);" \
	"INSERT INTO power_sample (recording_id, device_id, domain, source, time_ns, instant_mw, energy_mj, limit_mw, temperature_c)
		SELECT 3, 7, 'gpu', 'poll', (SELECT end_ns FROM recording WHERE recording_id = 3) - value, 600000 + value, 1, 650000, 61 FROM byte WHERE value < 9;" \
	"INSERT INTO collector VALUES (3, 'nvml', 'absent', NULL, NULL, 'no card' || char(27) || '[2J', 0, 4, 0, 0, 0, 0, NULL)"
expect_ok "$moetrace" top --once power.db
expect_match out '^power: device 7 card gpu: 600\.0 W, mean 600\.0 W, limit 650\.0 W, 61 C'
expect_match out '^power: device 8 other : n/a W, mean n/a W, limit n/a W, n/a C'
expect_match out '^collector: nvml is absent: no card\\x1b\[2J'
expect_match out '^losses: nvml dropped 4'
# A note is one line of plain text.
change power.db "UPDATE recording SET end_reason = NULL, end_ns = NULL, sampling = 'requests=' || char(0x9b) || '31m' || char(0x202e) || 'x' || char(0x200b) || char(27) || char(10) || 'é'"
"$moetrace" balance power.db >out 2>err || :
expect_match err 'requests=\\u\{9b\}31m\\u\{202e\}x\\u\{200b\}\\x1b\\né'
echo "$n_figures figures"

# ---- what there is nothing to show of, and command lines ----
make_empty empty.db
expect_ok "$moetrace" top --once empty.db
expect_match out '^state: no recording yet'
expect_ok "$moetrace" top --once --format json empty.db
expect_json out
expect_error 3 'neither a file nor a live session' "$moetrace" top --once nothing.db
expect_error 3 'recording 9' "$moetrace" top --once --recording 9 hard.db
expect_error 3 'no model 9' "$moetrace" top --once --model 9 hard.db
expect_error 1 'not an SQLite file' "$moetrace" top "$MOETRACE_SRCDIR/README.md"
expect_error 2 'give --once' "$moetrace" top --format json hard.db
expect_error 2 'exclude each other' "$moetrace" top --once --interval 1 hard.db
expect_error 2 'seconds from 1 to 3600' "$moetrace" top --window 0 hard.db
expect_error 2 'seconds from 0.1 to 3600' "$moetrace" top --interval x hard.db
expect_error 2 'which FILE' "$moetrace" top
