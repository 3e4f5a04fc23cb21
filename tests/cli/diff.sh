# SPDX-License-Identifier: MIT
#
# diff: two traces, two recordings of one, what is refused, and what is said of the rest.

. "$MOETRACE_SRCDIR/tests/support/lib.sh"
. "$MOETRACE_SRCDIR/tests/cli/trace.sh"

make_pairs=$MOETRACE_BUILDDIR/tests/schema/make_pairs
cd "$tmp" || exit 99
expect_ok "$make_pairs" a.db 0 3
expect_ok "$make_pairs" b.db 1 3

# value JSON-PATH: of the document that was printed last.
value() {
	sqlite3 -batch :memory: "SELECT json_extract(CAST(readfile('out') AS TEXT), '$1')"
}

# ---- the settings come first, then the figures ----
change b.db "UPDATE layer SET top_k = 6, scoring = 'sigmoid' WHERE layer_id = 2;
	UPDATE layer SET bias_values = x'00000000' WHERE layer_id = 3; UPDATE model SET quantization = 'fp8';
	INSERT INTO meta VALUES ('engine_version', '2'); UPDATE recording SET sampling = 'requests=2';
	INSERT INTO rule VALUES (1, 'oea:k0=3'); UPDATE topk SET rule_id = 1 WHERE topk_id = 1;
	INSERT INTO stats VALUES (1, 'dropped_passes', 3); UPDATE request SET verdict = 'unfinished' WHERE request_id = 9"
expect_ok "$moetrace" diff a.db b.db
expect_eq "the first section" "$(head -n 1 "$tmp/out")" "What differs in how they were recorded"
for line in 'engine_version +- +2' 'model: quantization +- +fp8' 'layers: scoring +- +sigmoid' 'layers: top_k +5 +6' \
	'layers: bias_values +other values in 1 layers' 'recording: sampling +- +requests=2' 'rules +- +oea:k0=3' \
	'3  b: passes that were lost' '[0-9]+  requests that end at the first token that differs' \
	'[0-9]+  rows that b lacks' '[0-9]+  a: requests of several attempts: the last one is compared' \
	'[0-9]+  b: requests that share their id with another one' '[0-9]+  requests of a that nothing is joined to'; do
	expect_match "$tmp/out" "^ *$line"
done
expect_ok "$moetrace" diff a.db b.db --format json
expect_json "$tmp/out"
cp "$tmp/out" out.json
expect_eq "sections" "$(sqlite3 :memory: "SELECT group_concat(key, ' ') FROM json_each(readfile('out.json'))")" \
	"differences summary layers positions requests left_out"
runner=$MOETRACE_BUILDDIR/tests/schema/sql_runner
expect_eq "the figures are the function's" "$("$runner" a.db "ATTACH 'b.db' AS b; SELECT layer, rows, printf('%.12f',
	1.0 * differing_choices / choices), p_value FROM moe_diff(1, 1, 'b') WHERE layer AND position_from IS NULL ORDER BY layer")" \
	"$(sqlite3 :memory: "SELECT json_extract(value, '\$.layer'), json_extract(value, '\$.rows'), printf('%.12f',
		json_extract(value, '\$.differing_choices')), json_extract(value, '\$.p_value')
		FROM json_each(readfile('out.json'), '\$.layers')")"
expect_eq "positions, compared, texts" "$(value '$.summary[0].positions') $(value '$.summary[0].compared_positions') $(
	value '$.summary[0].same_texts')" "$("$runner" a.db "ATTACH 'b.db' AS b; SELECT sum(n_positions) || ' ' ||
	sum(compared_positions) || ' ' || sum(has_tokens AND token_position IS NULL) FROM moe_diff_request(1, 1, 'b')")"
expect_ok "$moetrace" diff a.db b.db
expect_eq "what is not known comes before the figures" "$(grep -nE '^All rows|their texts may differ, and' "$tmp/out" |
	cut -d: -f2 | cut -c 1-8 | tail -n 1)" "All rows"
expect_match "$tmp/out" '^[0-9]+ requests have no tokens on both sides: their texts may differ, and'
for format in jsonl markdown; do
	expect_ok "$moetrace" diff a.db b.db --format $format --explain
	[ -s "$tmp/out" ] || fail "no output: $format"
done
expect_match "$tmp/out" '^## Requests, those that differ most first$'
expect_match "$tmp/out" "FROM moe_diff\(1, 1, 'b'\) WHERE layer IS NOT NULL"

# ---- a recording and itself, by name and as B ----
for b in "a.db a.db" "a.db --recording 1 --recording-b 1"; do
	# shellcheck disable=SC2086 # words
	expect_ok "$moetrace" diff $b --format json
	cp "$tmp/out" out
	expect_eq "differences of $b" "$(value '$.differences')" "[]"
	expect_eq "shares of $b" "$(value '$.summary[0].differing_choices') $(value '$.summary[0].weight_distance')" "0 0"
	expect_eq "the rest of $b" "$(value '$.summary[0].p_value') $(value '$.summary[0].same_while_compared')" "1 $(
		value '$.summary[0].requests')"
done

# ---- options ----
expect_ok "$moetrace" diff a.db b.db --join tokens --format json --top 2
cp "$tmp/out" out
expect_eq "joined" "$(value '$.summary[0].by_id') $(sqlite3 :memory: "SELECT json_array_length(CAST(readfile('out') AS TEXT),
	'\$.requests')")" "0 2"
expect_error 2 "which FILE\?" "$moetrace" diff
expect_error 2 "which B\? Name another trace, or two recordings of this one" "$moetrace" diff a.db
expect_error 2 "which B\?" "$moetrace" diff a.db --recording 1
expect_error 2 "unexpected argument 'c.db'" "$moetrace" diff a.db b.db c.db
expect_error 2 "--join 'name' is not known: give id or tokens" "$moetrace" diff a.db b.db --join name
expect_error 2 "--recording-b '0'" "$moetrace" diff a.db b.db --recording-b 0
expect_error 3 "no.db: no such file" "$moetrace" diff a.db no.db
expect_error 3 "b.db: has no recording 7" "$moetrace" diff a.db b.db --recording-b 7
make_empty empty.db
expect_error 3 "empty.db: has no recording: none was committed" "$moetrace" diff a.db empty.db
echo text >text
expect_error 1 "text: is not an SQLite file" "$moetrace" diff a.db text

# ---- requests of one trace ----
expect_ok "$moetrace" requests a.db --outliers --format csv
expect_match "$tmp/out" '^recording_id,model_id,request_id,external_id,rows,distance,floor,excess,score'
expect_eq "requests" "$(sed 1d "$tmp/out" | wc -l)" "$("$runner" a.db "SELECT count(*) FROM moe_outliers")"
expect_eq "the first is the farthest" "$(sed -n 2p "$tmp/out" | cut -d, -f3)" \
	"$("$runner" a.db "SELECT request_id FROM moe_outliers ORDER BY score DESC LIMIT 1")"
expect_ok "$moetrace" requests a.db --attempts --format json
expect_json "$tmp/out"
cp "$tmp/out" out
expect_eq "attempts" "$(sqlite3 :memory: "SELECT count(*), count(DISTINCT json_extract(value, '\$.request_id')) > 3,
	sum(json_extract(value, '\$.same_choices') < 1) > 0 FROM json_each(CAST(readfile('out') AS TEXT))")" \
	"$("$runner" a.db "SELECT count(*), 1, 1 FROM moe_attempts")"
expect_ok "$moetrace" requests a.db @3 --similar @4 --format csv
expect_match "$tmp/out" '^model_id,layer,choices_a,choices_b,overlap,chance_overlap,jaccard,cosine'
expect_error 2 "compares two requests: name the ID of the first" "$moetrace" requests a.db --similar @4
expect_error 2 "of all requests: leave the ID out" "$moetrace" requests a.db @3 --outliers
expect_error 2 "do not go with --similar" "$moetrace" requests a.db @3 --similar @4 --layer 1
expect_error 2 "give --outliers or --attempts" "$moetrace" requests a.db --outliers --attempts
expect_error 2 "--explain goes with" "$moetrace" requests a.db --explain
expect_error 3 "has no request 'none'" "$moetrace" requests a.db @3 --similar none

# ---- a wrong number in a file is no work without an end ----
for n in 2000000000 9223372036854775807; do
	cp a.db huge.db
	change huge.db "UPDATE request SET n_positions = $n WHERE request_id = 3"
	expect_ok timeout 300 "$moetrace" requests huge.db --outliers
	expect_ok timeout 300 "$moetrace" requests huge.db @3 --similar @4
	expect_ok timeout 300 "$moetrace" diff huge.db huge.db
done
cp a.db alone.db
change alone.db "UPDATE pass_request SET request_id = NULL WHERE request_id <> 3"
expect_ok "$moetrace" requests alone.db --outliers
expect_match "$tmp/err" 'recording 1: one request alone was computed: there are no others'

# ---- what cannot be compared ----
expect_ok "$MOETRACE_BUILDDIR/tests/cli/make_hard" hard.db
expect_error 2 "hard.db: has several recordings: choose one with --recording-b N" "$moetrace" diff a.db hard.db
expect_error 1 "layer 2 has 302 experts in A and 16 in B: their choices cannot be compared$" \
	"$moetrace" diff a.db hard.db --recording-b 1
expect_error 1 "no model in common" "$moetrace" diff hard.db --recording 1 --recording-b 3
# Sampled, lost, unfinished: nothing in common, and it is said.
expect_ok "$moetrace" diff hard.db --recording 1 --recording-b 2
expect_no_match "$tmp/out" '(^|[^a-z_])-?(nan|inf)([^a-z_]|$)'
for line in '2  requests without a row in common' '1  a: passes that were lost' '1  a: layers of passes that nobody wrote' \
	'20  b: passes that sampling left out' '2  b: requests that are not finished'; do
	expect_match "$tmp/out" "^ *$line"
done
