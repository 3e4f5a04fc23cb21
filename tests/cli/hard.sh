# SPDX-License-Identifier: MIT
#
# Every analysis on a recorded file with losses, an open request, three recordings of which one is
# sampled and one empty, two models and a map that changes: right, or it says what it leaves out.

. "$MOETRACE_SRCDIR/tests/support/lib.sh"
. "$MOETRACE_SRCDIR/tests/cli/trace.sh"

cd "$tmp" || exit 99
expect_ok "$MOETRACE_BUILDDIR/tests/cli/make_hard" hard.db
make_empty empty.db

# value SQL: what the command's functions answer.
value() {
	"$moetrace" query hard.db "$1" || fail "query: $1"
}

# ---- no verb fails, divides by zero, or is silent about what it leaves out ----
n=0
while read -r line; do
	# shellcheck disable=SC2086
	expect_ok "$moetrace" $line
	expect_no_match "$tmp/out" '(^|[^a-z_])-?(nan|inf)([^a-z_]|$)'
	[ -s "$tmp/out" ] || fail "no output: $line"
	case $line in
	experts* | balance* | efficiency*)
		expect_match "$tmp/err" 'note: recording 1: 1 passes and 0 layers of others were lost'
		expect_match "$tmp/err" 'note: recording 1: 1 layers of passes were written by nobody'
		expect_match "$tmp/err" 'note: recording 2: 20 of 30 passes were left out by sampling'
		expect_match "$tmp/err" 'note: recording 3: no pass was recorded'
		;;
	esac
	n=$((n + 1))
done <<'END'
report hard.db
report hard.db --format json --explain
report hard.db --format markdown --explain
experts hard.db
experts hard.db --phase verify
experts hard.db --coverage
experts hard.db --pairs
experts hard.db --steps
experts hard.db --by-window
experts hard.db --by-request
experts hard.db --by-attribute domain
experts hard.db --from 0 --until 1
experts hard.db --request gamma
balance hard.db
balance hard.db --ranks 1
balance hard.db --ranks 2,3,16
balance hard.db --ranks 2 --by-pass
balance hard.db --ranks 4 --phase prefill --shared waterfill
balance hard.db --map recorded
balance hard.db --map recorded --by-pass
balance hard.db --ranks 4 --replicas 20 --model 1
efficiency hard.db
efficiency hard.db --peak-gbps 10 --peak-tflops 0.1 --format json
eplb hard.db --ranks 2 --recording 2 --model 1
eplb hard.db --ranks 2 --recording 1 --model 2
requests hard.db
info hard.db
check hard.db
check --routing hard.db
dump hard.db
END
expect_eq "verbs run" "$n" 30

# ---- what is left out is in no figure ----
expect_eq "passes of the lost and unwritten" "$(value "SELECT sum(n_passes) || ' ' || sum(left_out) FROM
	moe_balance(2, NULL, NULL, NULL, 1, 1) WHERE layer = 1")" "25 1"
expect_eq "the map that changes" "$(value "SELECT group_concat(ranks || ':' || n_passes || ':' || left_out, ' ') FROM
	(SELECT * FROM moe_balance(NULL, 'recorded', NULL, NULL, 1, 1) WHERE layer = 2 ORDER BY ranks)")" "2:12:0 4:14:0"
expect_error 1 'placement of layer 1: 16 slots cannot be divided by 3 ranks' \
	"$moetrace" balance hard.db --map recorded --ranks 3
expect_ok "$moetrace" balance hard.db --ranks 4
expect_match "$tmp/err" 'note: model 2 is left out: its 6 experts cannot be divided by 4 ranks'
expect_eq "models in it" "$(value "SELECT count(*) FROM moe_balance(4, NULL, NULL, NULL, 1)")" 4

# ---- shares of a sampled recording have a margin, the others are exact ----
expect_ok "$moetrace" experts hard.db --format json
cp "$tmp/out" experts.json
expect_eq "recordings with a margin" "$(sqlite3 :memory: "SELECT group_concat(DISTINCT json_extract(value, '\$.recording_id'))
	FROM json_each(readfile('experts.json')) WHERE json_extract(value, '\$.share_margin') IS NOT NULL")" 2
expect_eq "the margin" "$(sqlite3 :memory: "SELECT round(json_extract(value, '\$.share_margin'), 9)
	FROM json_each(readfile('experts.json')) WHERE json_extract(value, '\$.recording_id') = 2
	AND json_extract(value, '\$.layer') = 1 AND json_extract(value, '\$.expert') = 1")" \
	"$(value "SELECT round(1.96 * sqrt(20.0 / 30) * share_error, 9) FROM moe_share WHERE recording_id = 2
		AND layer = 1 AND expert = 1")"

# ---- the report leads with it ----
expect_ok "$moetrace" report hard.db
sed -n '/^What deserves attention/,/^$/p' "$tmp/out" >"$tmp/attention"
expect_match "$tmp/attention" '1  1 passes and 0 layers of other passes were lost'
expect_match "$tmp/attention" '1  1 layers of passes were written by nobody'
expect_match "$tmp/attention" '2  20 passes were left out by sampling'
expect_match "$tmp/attention" 'requests unfinished: '
expect_eq "the first words" "$(sed -n 3p "$tmp/attention" | grep -c 'were lost')" 1

# Every section is what its query says, and all but one run in a stock sqlite3.
expect_ok "$moetrace" report hard.db --format json --explain
cp "$tmp/out" report.json
n=$(sqlite3 :memory: "SELECT json_array_length(readfile('report.json'), '\$.queries')")
[ "$n" -ge 8 ] || fail "only $n queries are explained"
while [ "$n" -gt 0 ]; do
	n=$((n - 1))
	section=$(json report.json "\$.queries[$n].section")
	json report.json "\$.queries[$n].sql" >query.sql
	expect_ok "$moetrace" query hard.db "$(cat query.sql)" --format json
	expect_eq "section $section" "$(cat "$tmp/out")" "$(json report.json "\$.$section")"
	[ "$section" = preferences ] || expect_ok sqlite3 -batch -readonly hard.db <query.sql
done

# ---- where there is nothing, it is said why ----
for verb in report experts balance efficiency; do
	expect_ok "$moetrace" $verb empty.db
	expect_match "$tmp/err" 'empty.db: has no recording'
done
expect_ok "$moetrace" experts hard.db --recording 3
expect_match "$tmp/err" 'note: recording 3: no pass was recorded, so there is nothing to count'
expect_error 3 "no request 'nobody'" "$moetrace" experts hard.db --request nobody
expect_error 2 'exclude each other' "$moetrace" experts hard.db --pairs --steps
expect_error 2 'are for the load alone' "$moetrace" experts hard.db --pairs --from 1
expect_error 2 'from 5 is not before --until 5' "$moetrace" experts hard.db --from 5 --until 5
expect_error 2 'min-tokens is for --by-attribute alone' "$moetrace" experts hard.db --min-tokens 3
expect_error 2 'pairs counts all phases together' "$moetrace" experts hard.db --pairs --phase decode
expect_error 2 'top is not for --coverage' "$moetrace" experts hard.db --coverage --top 3
expect_error 2 "attribute 'domain': give KEY=VALUE" "$moetrace" experts hard.db --attribute domain
expect_error 2 'give --attribute, or --request' "$moetrace" experts hard.db --attribute domain=c --from 1
expect_error 3 "no request has an attribute 'color'" "$moetrace" experts hard.db --attribute color=red
expect_error 3 'has no model 9' "$moetrace" balance hard.db --model 9
expect_error 2 "ranks '2,0'" "$moetrace" balance hard.db --ranks 2,0
expect_error 2 'k0 is for --rule oea and pruned alone' "$moetrace" oea hard.db --rule budget:9 --k0 3
# nothing OPTION... -- WORDS: no row, and why.
nothing() {
	words=$1
	shift
	expect_ok "$moetrace" "$@" --format csv
	expect_eq "rows of $*" "$(wc -l <"$tmp/out")" 1
	expect_match "$tmp/err" "note: $words"
}
nothing 'no row was stored of what begins in that time: passes begin from [0-9.]+ to [0-9.]+ ms' experts hard.db --from 999999999
expect_error 3 "no request has domain 'rust'; 'moetrace requests' shows" \
	"$moetrace" experts hard.db --attribute domain=rust
nothing 'no expert has 999 computed rows' experts hard.db --by-attribute domain --min-tokens 999
nothing 'no layer of a pass of that phase was stored or counted' balance hard.db --ranks 2 --phase verify
nothing '--k0: rows choose 2 experts at most, so there is no such k0' oea hard.db --k0 7
expect_ok "$moetrace" experts hard.db --phase verify --format csv
expect_no_match "$tmp/out" 'dead'
make_sound sound.db
change sound.db "UPDATE pass_layer SET map_epoch = NULL"
expect_ok "$moetrace" balance sound.db --map recorded
expect_match "$tmp/err" 'no layer of a pass has a map in force'
expect_ok "$moetrace" oea hard.db
expect_match "$tmp/err" 'note: recording 2: 20 of 30 passes were left out by sampling'
# The load of the requests with an attribute is what the rows of these say.
expect_ok "$moetrace" experts hard.db --attribute domain=c --format csv
expect_eq "the load of an attribute" "$(tail -n +2 "$tmp/out" | awk -F, '{ sum += $6 } END { print sum }')" \
	"$(value "SELECT count(*) FROM moe_topk JOIN request_attribute AS a USING (request_id) WHERE a.key = 'domain'
		AND a.value = 'c' AND state = 'computed'")"
expect_error 2 'ranks R is missing' "$moetrace" balance hard.db --shared even
expect_error 2 "ranks '0'" "$moetrace" balance hard.db --ranks 0
expect_error 2 "ranks '2,,4'" "$moetrace" balance hard.db --ranks 2,,4
expect_error 2 'either --map or --replicas' "$moetrace" balance hard.db --ranks 2 --map recorded --replicas 32
expect_error 3 'nothing.json' "$moetrace" balance hard.db --ranks 2 --map nothing.json
echo '{' >bad.json
expect_error 1 'bad.json: is no JSON' "$moetrace" balance hard.db --ranks 2 --map bad.json
expect_error 2 "peak-gbps '-1'" "$moetrace" efficiency hard.db --peak-gbps -1

# ---- efficiency, by hand ----
# 2 operations a weight of 16 bits, 500 weights an expert, rows x top-2; bytes of the active experts.
expect_ok "$moetrace" efficiency hard.db --recording 1 --peak-tflops 0.001 --peak-gbps 1 --format json --top 100
cp "$tmp/out" efficiency.json
expect_eq "work and bytes" "$(sqlite3 :memory: "SELECT printf('%.9f %.9f %s', json_extract(value, '\$.gflop'), json_extract(value, '\$.weight_mb'),
	json_extract(value, '\$.bound_by')) FROM json_each(readfile('efficiency.json'), '\$.layers') WHERE json_extract(value, '\$.phase') = 'prefill'
	AND json_extract(value, '\$.layer') = 1")" "$(value "SELECT printf('%.9f %.9f compute', 2.0 * 500 * 24 * 2 / 1e9, active_experts / 1e3)
	FROM pass_layer JOIN pass USING (pass_id) JOIN layer USING (layer_id) WHERE phase = 'prefill' AND layer = 1")"
expect_eq "rows of the histogram" "$(sqlite3 :memory: "SELECT sum(json_extract(value, '\$.rows')) FROM json_each(readfile('efficiency.json'), '\$.rows')")" \
	"$(value "SELECT sum(tokens) FROM expert_load WHERE recording_id = 1")"
