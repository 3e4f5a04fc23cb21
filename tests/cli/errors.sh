# SPDX-License-Identifier: MIT
#
# What goes wrong: every exit status, and one clear line for each mistake, on stderr alone.

. "$MOETRACE_SRCDIR/tests/support/lib.sh"
. "$MOETRACE_SRCDIR/tests/cli/trace.sh"

make_sound "$tmp/sound.db"
cd "$tmp" || exit 99

# The command line: 2.
expect_error 2 "^moetrace: which VERB\? 'moetrace --help' lists them$" "$moetrace"
expect_error 2 "^moetrace: unknown verb 'dmp'; did you mean 'dump'\?$" "$moetrace" dmp
expect_error 2 "^moetrace: unknown verb 'frobnicate'; 'moetrace --help' lists them$" \
	"$moetrace" frobnicate
expect_error 2 "^moetrace: unknown or ambiguous option '--nope'; --help lists the options$" \
	"$moetrace" --nope
expect_error 2 "^moetrace: unknown option '-x'" "$moetrace" -x dump sound.db
expect_error 2 "^moetrace: unknown verb 'dmp'" "$moetrace" help dmp
for verb in report requests experts balance info dump query check; do
	expect_error 2 "^moetrace $verb: which FILE\?" "$moetrace" $verb
	expect_error 2 "^moetrace $verb: unknown or ambiguous option '--nope'" \
		"$moetrace" $verb --nope sound.db
	expect_error 2 "^moetrace $verb: option '--format' needs a value" "$moetrace" $verb --format
	expect_error 2 "^moetrace $verb: --format 'xml' is not known: give table, json" \
		"$moetrace" $verb --format xml sound.db
	expect_error 2 "^moetrace $verb: option '--version' takes no value" \
		"$moetrace" $verb --version=2
	expect_error 2 "^moetrace $verb: unknown option '-q'" "$moetrace" $verb -q sound.db
done
for verb in report balance info dump check experts; do
	expect_error 2 "^moetrace $verb: unexpected argument 'more'" "$moetrace" $verb sound.db more
done
expect_error 2 "^moetrace requests: unexpected argument 'more'" "$moetrace" requests sound.db a more
expect_error 2 "^moetrace query: which SQL\?" "$moetrace" query sound.db
expect_error 2 "--format 'xml' is not known: give table, json, jsonl or markdown; --help lists" \
	"$moetrace" report sound.db --format xml
expect_error 2 "--format 'xml' is not known: give table, json or jsonl; --help lists" \
	"$moetrace" info sound.db --format xml
expect_error 2 "--format 'xml' is not known: give table, json, jsonl or csv; --help lists" \
	"$moetrace" check sound.db --format xml
expect_error 2 "give table, json, jsonl or markdown; --help lists" \
	"$moetrace" report sound.db --format csv
expect_error 2 "^moetrace report: --format csv holds one table" \
	"$moetrace" report sound.db --format csv
expect_error 2 "^moetrace balance: --format 'markdown' is not known" \
	"$moetrace" balance sound.db --format markdown
expect_error 2 "--recording 'x': give a whole number" "$moetrace" balance sound.db --recording x
expect_error 2 "--recording '0'" "$moetrace" report sound.db --recording 0
expect_error 2 "--top '0': give a whole number from 1" "$moetrace" experts sound.db --top 0
expect_error 2 "--layer '-1'" "$moetrace" experts sound.db --layer=-1
expect_error 2 "--phase 'warm' is not known: give prefill, decode, verify or other" \
	"$moetrace" experts sound.db --phase warm
expect_error 2 "phase other has none" \
	"$moetrace" experts sound.db --phase other --by-attribute domain
expect_error 2 "--position '5-2': give a position, or a range" \
	"$moetrace" requests sound.db alpha --position 5-2
expect_error 2 "--position '-'" "$moetrace" requests sound.db alpha --position -
expect_error 2 "name its ID, too" "$moetrace" requests sound.db --layer 1
expect_error 2 "several requests are called 'gamma', such as @3 and @4; .* --recording N" \
	"$moetrace" requests sound.db gamma

# SQL that is refused (2) or wrong (1), with the place.
expect_error 2 "more than one statement" "$moetrace" query sound.db "select 1; select 2"
expect_error 2 "the SQL is empty" "$moetrace" query sound.db " -- nothing"
expect_error 2 "would write; a trace is only read" "$moetrace" query sound.db "delete from pass"
expect_error 2 "would write" "$moetrace" query sound.db "create temp table t (a)"
expect_error 2 "would write" "$moetrace" query sound.db "vacuum into 'copy.db'"
expect_error 2 "would write" "$moetrace" query sound.db "pragma user_version = 7"
expect_error 2 "ATTACH and DETACH are refused" "$moetrace" query sound.db "attach 'x.db' as x"
expect_error 2 "returns no rows" "$moetrace" query sound.db "begin"
expect_absent copy.db x.db
expect_error 1 "sound.db: near \"selct\": syntax error at line 1, byte 1" \
	"$moetrace" query sound.db "selct 1"
expect_error 1 "no such column: nope at line 2, byte 3 of the SQL: 'nope from pass'" \
	"$moetrace" query sound.db "select pass_id,
  nope from pass"
expect_error 1 "no such table: nope" "$moetrace" query sound.db "select * from nope"
expect_error 1 "correct the SQL" "$moetrace" query sound.db \
	"select abs(-9223372036854775808) as n, 1"
expect_ok "$moetrace" query sound.db "select 1; -- and a comment"
expect_out 1

# What is not there: 3.
for verb in report requests experts balance info dump check; do
	expect_error 3 "^moetrace $verb: nope.db: no such file" "$moetrace" $verb nope.db
done
expect_error 3 "nope.db: no such file" "$moetrace" query nope.db "select 1"
expect_error 3 "no table or view 'pas'; did you mean 'pass'\?$" \
	"$moetrace" dump sound.db --table pas
expect_error 3 "no table or view 'zzzzzzzzzz'; 'moetrace dump sound.db' lists them" \
	"$moetrace" dump sound.db --table zzzzzzzzzz
expect_error 3 "no table or view ''" "$moetrace" dump sound.db --table ""
expect_error 3 "no request 'nobody'; 'moetrace requests sound.db' lists them" \
	"$moetrace" requests sound.db nobody
expect_error 3 "no request '@99'" "$moetrace" requests sound.db @99
expect_error 3 "no request 'alpha' in this recording" \
	"$moetrace" requests sound.db alpha --recording 2
expect_error 3 "request @1 has attempts 0 to 0, not 1" "$moetrace" requests sound.db @1 --attempt 1
expect_error 3 "request @1 has no layer 9 with experts; they are within 0 to 1\$" \
	"$moetrace" requests sound.db alpha --layer=9
expect_error 3 "request @1 has stored positions 0 to 6, not 7\$" \
	"$moetrace" requests sound.db alpha --position 7
expect_error 3 "request @1 has stored positions 0 to 6, not 40\$" \
	"$moetrace" requests sound.db alpha --position 40-50 --format json
expect_error 3 "has no recording 7; 'moetrace info' lists them" \
	"$moetrace" report sound.db --recording 7
expect_error 3 "has no layer 9 with experts" "$moetrace" experts sound.db --layer 9
expect_error 3 "no request has an attribute 'route'" \
	"$moetrace" experts sound.db --by-attribute route

# The true reason alone: ranks that do not divide the experts.
for n in 7 65 99999999999; do
	expect_ok "$moetrace" balance sound.db --ranks $n
	expect_match "$tmp/err" "model 1 is left out: its 300 experts cannot be divided by $n ranks"
	expect_no_match "$tmp/err" 'was stored or counted'
done

# No requests are not complete ones.
cp sound.db none.db
change none.db "DELETE FROM request; DELETE FROM layer WHERE layer_id = 2"
expect_ok "$moetrace" report none.db
expect_match "$tmp/out" 'no loss, there are no requests, no layer'
# Passes that end before they begin are in no time.
cp sound.db reversed.db
change reversed.db "UPDATE pass SET end_ns = begin_ns - 1000 WHERE pass_id IN (2, 4)"
expect_ok "$moetrace" report reversed.db --format json
expect_match "$tmp/out" '2 passes end before they begin and are left out of times: see moetrace check'
cp "$tmp/out" reversed.json
expect_eq "mean times, rates" "$(sqlite3 :memory: "SELECT group_concat(json_extract(value, '\$.phase') || ' ' ||
	coalesce(json_extract(value, '\$.mean_duration_ns'), '-') || ' ' || coalesce(json_extract(value, '\$.tokens_per_s'), '-'), ', ')
	FROM json_each(readfile('reversed.json'), '\$.throughput') WHERE json_extract(value, '\$.phase') IN ('mixed', 'verify')")" \
	"verify 100 30000000, mixed - -"

# Losses: 4, see check.sh. A newer schema: 5.
cp sound.db newer.db
change newer.db "PRAGMA user_version = 2000;"
for verb in report requests experts balance info dump check; do
	expect_error 5 "newer.db: has schema 2.0, newer than 1.1, .*use a newer moetrace" \
		"$moetrace" $verb newer.db
done

# Files that are no traces: 1.
: >empty.db
printf 'SQLite format 3' >short.db
echo 'this is a text, not a data base of any kind' >text.db
sqlite3 -batch other.db "CREATE TABLE t (a); INSERT INTO t VALUES (1);"
head -c 6000 sound.db >cut.db
mkdir folder.db
for verb in info check report dump; do
	expect_error 1 "empty.db: is empty, not a trace" "$moetrace" $verb empty.db
	expect_error 1 "short.db: is not an SQLite file" "$moetrace" $verb short.db
	expect_error 1 "text.db: is not an SQLite file" "$moetrace" $verb text.db
	expect_error 1 "other.db: is an SQLite file of another program" "$moetrace" $verb other.db
	expect_error 1 "folder.db: is a directory, not a regular file" "$moetrace" $verb folder.db
	expect_status 1 "$moetrace" $verb cut.db
	expect_match "$tmp/err" "^moetrace $verb: cut.db: .*(damaged|malformed)"
done
expect_error 1 "/dev/null: is a special file, not a regular file" "$moetrace" info /dev/null
if [ "$(id -u)" -ne 0 ]; then
	chmod 000 text.db
	expect_error 1 "text.db: cannot be read: Permission denied" "$moetrace" info text.db
fi

# A name that would drive the terminal is printed without its control characters.
run "$moetrace" info "$(printf 'a\033[2Jb')"
expect_eq "status" "$status" 3
expect_no_match "$tmp/err" "$(printf '\033')"

# What a function cannot do is no fault of the file: its message says what to give, and that is all.
echo '[[0,0],[0,0]]' >map.json
expect_error 1 "sound.db: moe_balance: placement of layer 0: expert 1 has no slot$" \
	"$moetrace" balance sound.db --ranks 2 --map map.json
expect_error 1 "sound.db: moe_oea: rule 'budget:0': give oea or pruned, .* or budget:N, .* to 65536$" \
	"$moetrace" query sound.db "select * from moe_oea where rule = 'budget:0'"
expect_error 1 "sound.db: moe_expand: margin: give a distance of scores, 0 or more$" \
	"$moetrace" query sound.db "select * from moe_expand(-1)"
expect_error 1 "sound.db: moe_eplb: n_ranks: give a whole number from 1 to [0-9]*$" \
	"$moetrace" query sound.db "select * from moe_eplb(0)"
# A file with a fault is another thing.
cp sound.db fault.db
change fault.db "UPDATE topk SET n_rows = n_rows + 1"
expect_error 1 "moe_balance: topk 1: .*; 'moetrace check' says what is wrong with the file$" \
	"$moetrace" balance fault.db --ranks 2

# A damaged page in the middle of the file is found and is no crash.
cp sound.db flipped.db
size=$(wc -c <flipped.db)
at=8192
while [ "$at" -lt "$size" ]; do
	cp sound.db flipped.db
	printf '\377\377\377\377\377\377\377\377' |
		dd of=flipped.db bs=1 seek="$at" conv=notrunc 2>"$tmp/dd"
	for verb in check report dump; do
		run "$moetrace" $verb flipped.db
		[ "$status" -le 1 ] || fail "exit status $status: $verb with a fault at byte $at"
	done
	expect_status 1 "$moetrace" check flipped.db
	expect_no_match "$tmp/out" ': sound$'
	expect_no_match "$tmp/err" "'moetrace check'"
	[ "$(wc -l <"$tmp/err")" -le 1 ] || fail "several lines for a fault at byte $at"
	at=$((at + 16384))
done

# Output that cannot be written is a failure; a reader that leaves is none.
if [ -c /dev/full ]; then
	for verb in report requests info dump check; do
		status=0
		"$moetrace" $verb sound.db >/dev/full 2>"$tmp/err" || status=$?
		expect_eq "status of $verb on a full disk" "$status" 1
		expect_match "$tmp/err" "^moetrace $verb: standard output: No space left on device"
	done
fi
"$moetrace" query sound.db "with recursive n(i) as (select 1 union all select i + 1 from n
	where i < 3000000) select i, i from n" 2>"$tmp/err" | head -n 1 >"$tmp/out"
expect_eq "first line through a pipe" "$(tr -s ' ' <"$tmp/out")" " i i"
expect_err ""
(
	trap '' PIPE
	"$moetrace" query sound.db "with recursive n(i) as (select 1 union all select i + 1 from n
		where i < 300000) select i, i from n" --format jsonl 2>"$tmp/err"
) | head -n 1 >"$tmp/out"
expect_err ""
