# SPDX-License-Identifier: MIT
#
# check on files whose end is missing or was said in haste, and on files without a recording.

. "$MOETRACE_SRCDIR/tests/support/lib.sh"
. "$MOETRACE_SRCDIR/tests/cli/trace.sh"

make_sound "$tmp/sound.db"

# A file whose writer was killed: what was committed is sound, and the end is missing.
open="UPDATE recording SET end_ns = NULL, end_reason = NULL WHERE recording_id = 2;"
holds "$open"
expect_match "$tmp/out" '^recording 2: the end is missing: the writer was killed or could not write$'
expect_match "$tmp/out" '^recording 2: proved up to its last committed pass, 9$'
expect_status 4 "$moetrace" check --strict "$tmp/other.db"
expect_ok "$moetrace" check --format json "$tmp/other.db"
expect_json "$tmp/out"
expect_eq "end_reason" "$(json "$tmp/out" '$.recordings[1].end_reason')" ""

# While a recording runs, its counters may be ahead of the rows, not behind.
holds "$open UPDATE stats SET value = value + 9 WHERE name = 'recorded_assignments' AND recording_id = 2;"
violates stats "$open UPDATE stats SET value = value - 1
	WHERE name = 'recorded_assignments' AND recording_id = 2;"

# The window lags behind the last pass of a file that is still open, or whose disk failed: what was
# said at the end then is not more than what was committed.
failed="UPDATE recording SET end_reason = 'io_error' WHERE recording_id = 2;"
lag="UPDATE stats SET value = 7 WHERE recording_id = 2 AND name = 'last_pass_id';"
empty="DELETE FROM expert_load_window WHERE recording_id = 2;
	UPDATE stats SET value = 0 WHERE recording_id = 2 AND name IN ('load_passes', 'load_assignments');"
for end in "$open" "$failed"; do
	holds "$end $lag $empty"
	expect_status 4 "$moetrace" check --strict "$tmp/other.db"
	violates sum_load "$end $empty"
	violates sum_load "$end $lag"
done
violates recordings "$lag $empty"

# No recording: none was committed. Only --strict makes a fault of it, where the file was never
# closed.
make_empty "$tmp/none.db"
expect_ok "$moetrace" check --strict "$tmp/none.db"
expect_match "$tmp/out" '^no recording was committed$'
expect_match "$tmp/out" 'none.db: sound$'
change "$tmp/none.db" "PRAGMA journal_mode = WAL;" >"$tmp/mode"
expect_ok "$moetrace" check "$tmp/none.db"
expect_status 4 "$moetrace" check --strict "$tmp/none.db"
expect_match "$tmp/err" 'none.db: no recording was committed, and the file was never closed'
expect_ok "$moetrace" check --format json "$tmp/none.db"
expect_json "$tmp/out"
for verb in report experts balance requests; do
	expect_ok "$moetrace" $verb "$tmp/none.db"
	expect_out ""
	expect_match "$tmp/err" "^moetrace $verb: warning: .*none.db: has no recording: none was committed\$"
	expect_eq "lines" "$(wc -l <"$tmp/err")" 1
	expect_ok "$moetrace" $verb --format json "$tmp/none.db"
	expect_json "$tmp/out"
done

"$moetrace" check --help | tr -s ' \n' '  ' >"$tmp/help"
expect_match "$tmp/help" 'What no file can prove .* weights, .* the order of a row.s experts .* token ids, names and attributes'
