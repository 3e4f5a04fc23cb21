# SPDX-License-Identifier: MIT
#
# eplb against the placements of the published method (tests/data/eplb/cases.json), and
# moe_balance() against its definition in plain SQL.

. "$MOETRACE_SRCDIR/tests/support/lib.sh"
. "$MOETRACE_SRCDIR/tests/cli/trace.sh"

cases=$MOETRACE_SRCDIR/tests/data/eplb/cases.json
cd "$tmp" || exit 99

# ask SQL: one value of a stock sqlite3 that has the JSON functions.
ask() {
	sqlite3 -batch -bail :memory: "$1" || fail "sqlite3: $1"
}

# run_matrix FILE OPTION...: eplb of a matrix, as JSON, or the reason why the build cannot read it.
"$moetrace" eplb --loads /dev/null --ranks 1 2>"$tmp/err"
! grep -q 'without' "$tmp/err" || skip "built without a JSON parser"

# ---- the published placements ----
# Where two replicas carry the same load, the method leaves open which comes first: slots may
# differ that hold equal loads. The example of the publication has to be the same throughout.
n_cases=$(ask "SELECT json_array_length(readfile('$cases'))")
expect_eq "cases" "$n_cases" 7
case=0
while [ "$case" -lt "$n_cases" ]; do
	ask "SELECT json_extract(readfile('$cases'), '\$[$case].weight')" >loads.json
	options=$(ask "SELECT printf('--replicas %d --ranks %d --groups %d --nodes %d',
		json_extract(c, '\$.replicas'), json_extract(c, '\$.gpus'), json_extract(c, '\$.groups'),
		json_extract(c, '\$.nodes')) FROM (SELECT json_extract(readfile('$cases'), '\$[$case]') AS c)")
	# shellcheck disable=SC2086
	expect_ok "$moetrace" eplb --loads loads.json $options --format json
	expect_json "$tmp/out"
	cp "$tmp/out" plan.json
	differ=$(ask "WITH c AS (SELECT json_extract(readfile('$cases'), '\$[$case]') AS want, readfile('plan.json') AS got),
		slot AS (SELECT w.path, w.value AS want, json_extract(c.got, w.fullkey) AS got, c.want AS c,
			substr(w.path, length('\$.phy2log') + 1) AS layer
			FROM c, json_tree(c.want, '\$.phy2log') AS w WHERE w.type = 'integer'),
		load AS (SELECT want, got,
			1.0 * json_extract(c, '\$.weight' || layer || '[' || want || ']') / json_extract(c, '\$.logcnt' || layer || '[' || want || ']') AS want_load,
			1.0 * json_extract(c, '\$.weight' || layer || '[' || got || ']') / json_extract(c, '\$.logcnt' || layer || '[' || got || ']') AS got_load
			FROM slot)
		SELECT sum(want <> got) || ' ' || sum(want_load <> got_load) FROM load")
	[ "$case" -gt 0 ] || expect_eq "slots of the published example that differ" "$differ" "0 0"
	expect_eq "slots with another load in case $case" "${differ#* }" 0
	[ "${differ% *}" -le 8 ] || fail "case $case: ${differ% *} slots differ"
	expect_eq "logcnt of case $case" \
		"$(ask "SELECT json_extract(readfile('plan.json'), '\$.logcnt') = json_extract(readfile('$cases'), '\$[$case].logcnt')")" 1
	case=$((case + 1))
done

# ---- no worse than experts dealt out in turn ----
ask "WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 60 * 32 - 1),
	load AS (SELECT i / 32 AS layer, i % 32 AS expert,
		((i * 7919 + 13) * (i * 104729 + 7) % 9973) * (1 + i % 7 * (i % 5)) AS w FROM n)
	SELECT json_group_array(json(row)) FROM (
		SELECT json_group_array(w) AS row FROM load GROUP BY layer ORDER BY layer)" >random.json
# The published method may put two replicas of an expert on one rank; --spread does where it must, never here.
for mode in plain spread; do
	option=
	[ $mode = plain ] || option=--spread
	for replicas in 32 40 48; do
		# shellcheck disable=SC2086
		expect_ok "$moetrace" eplb --loads random.json --ranks 8 --replicas "$replicas" --format json $option
		cp "$tmp/out" plan.json
		expect_eq "layers that in-turn placement serves better ($replicas replicas, $mode)" "$(ask "
			WITH load AS (SELECT l.key AS layer, e.key AS expert, e.value AS w
				FROM json_each(readfile('random.json')) AS l, json_each(l.value) AS e),
			turn AS (SELECT layer, max(w) / avg(w) AS ratio FROM (
				SELECT layer, expert % 8, sum(w) AS w FROM load GROUP BY 1, 2) GROUP BY layer)
			SELECT count(*) FROM turn JOIN json_each(readfile('plan.json'), '\$.layers') AS p
				ON p.key = turn.layer
			WHERE json_extract(p.value, '\$.max_over_mean_after') > ratio * (1 + 1e-6)")" 0
		[ $mode = plain ] || expect_eq "ranks with a double of $replicas replicas" "$(ask "
			SELECT count(*) FROM (SELECT count(*) AS n FROM json_tree(readfile('plan.json'), '\$.phy2log') AS s
			WHERE s.type = 'integer' GROUP BY s.path, s.key / ($replicas / 8), s.value) WHERE n > 1")" 0
	done
done

# ---- replicas of an expert on different ranks ----
doubles="SELECT count(*) FROM (SELECT count(*) AS n FROM json_tree(readfile('plan.json'), '\$.phy2log') AS s
	WHERE s.type = 'integer' GROUP BY s.path, s.key / 3, s.value) WHERE n > 1"
ask "SELECT json_extract(readfile('$cases'), '\$[1].weight')" >loads.json
expect_ok "$moetrace" eplb --loads loads.json --replicas 24 --ranks 8 --groups 4 --nodes 2 --format json
cp "$tmp/out" plan.json
expect_eq "ranks with a double" "$(ask "$doubles")" 3
expect_ok "$moetrace" eplb --loads loads.json --replicas 24 --ranks 8 --groups 4 --nodes 2 --format json --spread
cp "$tmp/out" plan.json
expect_eq "ranks with a double, spread" "$(ask "$doubles")" 0

# ---- a recording ----
make_sound sound.db
expect_ok "$moetrace" query sound.db "
	WITH id AS (SELECT t.recording_id, t.layer_id, t.pass_id, t.expert, l.n_experts
		FROM moe_topk AS t JOIN layer AS l ON l.layer_id = t.layer_id
		WHERE t.expert < l.n_experts AND l.n_experts % 2 = 0),
	rank AS (SELECT recording_id, layer_id, pass_id, sum(expert < n_experts / 2) AS a,
		sum(expert >= n_experts / 2) AS b FROM id GROUP BY 1, 2, 3),
	want AS (SELECT recording_id, layer_id, count(*) AS n, sum(a + b) AS tokens,
		avg(((a + b) / 2.0 + 1e-5) / (max(a, b) + 1e-5)) AS mean_balancedness,
		sum((a + b) / 2.0) / sum(max(a, b)) AS total_balancedness,
		max(sum(a), sum(b)) / ((sum(a) + sum(b)) / 2.0) AS max_over_mean FROM rank GROUP BY 1, 2)
	SELECT count(*), sum(want.n = got.n_passes AND want.tokens = got.tokens
		AND abs(want.mean_balancedness - got.mean_balancedness) < 1e-9
		AND abs(want.total_balancedness - got.total_balancedness) < 1e-9
		AND abs(want.max_over_mean - got.max_over_mean) < 1e-9)
	FROM want LEFT JOIN moe_balance(2) AS got USING (recording_id, layer_id)" --format csv
expect_eq "layers compared, layers equal" "$(tail -n 1 "$tmp/out" | tr -d '\r')" "$(tail -n 1 "$tmp/out" | tr -d '\r' | sed 's/^\([1-9][0-9]*\),.*/\1,\1/')"

expect_error 1 'different numbers of experts' "$moetrace" eplb sound.db --recording 1 --model 1 --ranks 2
expect_error 1 'several recordings or models' "$moetrace" eplb sound.db --ranks 2
expect_error 1 'no expert load was recorded there' "$moetrace" eplb sound.db --model 99 --ranks 2

# The plan that the verb prints is that of moe_eplb(), and its figures those of moe_balance().
example=$MOETRACE_SRCDIR/examples/tinymoe
printf '%s\n' '{"prompt":"Once upon a time","max_new_tokens":12}' '{"prompt":"int main(void)","max_new_tokens":20}' >two.jsonl
expect_ok "$moetrace" run --model "$example/tinymoe.safetensors" --workload two.jsonl -o run.db
expect_ok "$moetrace" eplb run.db --ranks 4 --replicas 80 --format json
expect_json "$tmp/out"
cp "$tmp/out" plan.json
expect_ok "$moetrace" query run.db "SELECT group_concat(expert) FROM (SELECT expert FROM moe_eplb(4, 80)
	ORDER BY layer_id, slot)"
expect_eq "experts by slot" "$(cat "$tmp/out")" "$(ask "SELECT group_concat(value) FROM (
	SELECT value FROM json_tree(readfile('plan.json'), '\$.phy2log') WHERE type = 'integer' ORDER BY id)")"
placement=$(ask "SELECT json_extract(readfile('plan.json'), '\$.phy2log')")
expect_ok "$moetrace" query run.db "SELECT group_concat(round(a.mean_balancedness, 9) || ' ' || round(b.mean_balancedness, 9))
	FROM moe_balance(4) AS a JOIN moe_balance(4, '$placement') AS b USING (layer_id)"
expect_eq "balancedness" "$(cat "$tmp/out")" "$(ask "SELECT group_concat(round(json_extract(value, '\$.balancedness_before'), 9)
	|| ' ' || round(json_extract(value, '\$.balancedness_after'), 9)) FROM json_each(readfile('plan.json'), '\$.layers')")"
expect_ok "$moetrace" eplb run.db --ranks 4 --replicas 80
expect_eq "rows of the table" "$(wc -l <"$tmp/out")" 7

# ---- what engines read ----
# The model has layer 0 without experts: SGLang counts it, vLLM does not, TensorRT-LLM names layers.
cp run.db dense.db
expect_ok sqlite3 dense.db "UPDATE layer SET layer = layer + 1; UPDATE model SET n_layers = n_layers + 1"
expect_ok "$moetrace" eplb dense.db --ranks 4 --replicas 80 --export sglang
expect_json "$tmp/out"
cp "$tmp/out" sglang.json
expect_eq "layers and slots for SGLang" "$(ask "SELECT json_array_length(readfile('sglang.json'), '\$.physical_to_logical_map')
	|| ' ' || json_array_length(readfile('sglang.json'), '\$.physical_to_logical_map[1]') || ' '
	|| (SELECT count(*) FROM json_each(readfile('sglang.json')))")" "$(($(ask "SELECT json_array_length('$placement')") + 1)) 80 1"
expect_eq "SGLang's dense layer" "$(ask "SELECT sum(value = key % 64) FROM json_each(readfile('sglang.json'), '\$.physical_to_logical_map[0]')")" 80
expect_eq "SGLang's other layers" "$(ask "SELECT json_remove(json_extract(readfile('sglang.json'), '\$.physical_to_logical_map'), '\$[0]')")" "$placement"
expect_ok "$moetrace" eplb dense.db --ranks 4 --replicas 80 --export vllm
expect_eq "vLLM's map" "$(cat "$tmp/out")" "$placement"
expect_ok "$moetrace" eplb dense.db --ranks 4 --replicas 80 --export trtllm
expect_match "$tmp/out" '^initial_global_assignments:$'
expect_match "$tmp/out" '^num_slots: 80$'
expect_match "$tmp/out" '^layer_updates_per_iter: 0$'
expect_eq "TensorRT-LLM's layers" "$(sed -n 's/^  \([0-9]*\): .*/\1/p' "$tmp/out" | head -n 2 | tr '\n' ' ')" "1 2 "
expect_eq "TensorRT-LLM's map" "[$(sed -n 's/^  [0-9]*: //p' "$tmp/out" | tr -d ' ' | paste -s -d ,)]" "$placement"
# What was written is what balance reads.
for map in sglang.json plan.json; do
	expect_ok "$moetrace" balance dense.db --ranks 4 --map $map --format csv
	cp "$tmp/out" "$map.csv"
done
expect_same sglang.json.csv plan.json.csv
expect_ok "$moetrace" balance dense.db --ranks 4 --replicas 80 --format csv
expect_same "$tmp/out" plan.json.csv
expect_error 2 "export 'tgi' is not known" "$moetrace" eplb run.db --ranks 4 --export tgi

# ---- properties, on random loads: replicas apart where there is room, and never worse than in turn ----
ask "WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 60 * 24 - 1)
	SELECT json_group_array(json(row)) FROM (SELECT json_group_array(w) AS row FROM (
		SELECT i / 24 AS layer, i % 24 AS expert, CASE (i * 7919 + 3) % 9973 * 31 % 4 WHEN 0 THEN 0
		WHEN 1 THEN (i * 104729 + 11) % 9967 ELSE (i * 15485863 + 5) % 9949 % 100 END AS w FROM n) GROUP BY layer ORDER BY layer)" >random.json
for shape in '24 8' '32 8' '40 4' '48 6' '36 12'; do
	replicas=${shape% *} ranks=${shape#* }
	expect_ok "$moetrace" eplb --loads random.json --ranks "$ranks" --replicas "$replicas" --format json --spread
	cp "$tmp/out" plan.json
	expect_eq "doubles where experts have at most $ranks replicas ($shape)" "$(ask "
		WITH slot AS (SELECT s.path, s.key * $ranks / $replicas AS rank, s.value AS expert
			FROM json_tree(readfile('plan.json'), '\$.phy2log') AS s WHERE s.type = 'integer'),
		wide AS (SELECT path FROM slot GROUP BY path, expert HAVING count(*) > $ranks)
		SELECT count(*) FROM (SELECT count(*) AS n FROM slot WHERE path NOT IN (SELECT path FROM wide)
			GROUP BY path, rank, expert) WHERE n > 1")" 0
	# The same replicas, in the order of the experts, dealt out to the ranks in turn.
	expect_eq "layers served better in turn ($shape)" "$(ask "
		WITH load AS (SELECT l.key AS layer, e.key AS expert, e.value AS w
			FROM json_each(readfile('random.json')) AS l, json_each(l.value) AS e),
		count AS (SELECT c.key AS layer, e.key AS expert, e.value AS n
			FROM json_each(readfile('plan.json'), '\$.logcnt') AS c, json_each(c.value) AS e),
		replica AS (SELECT layer, expert, 1.0 * w / n AS w, row_number() OVER (PARTITION BY layer
			ORDER BY copy.value > 0, expert) - 1 AS i FROM load JOIN count USING (layer, expert)
			JOIN json_each('[0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24]') AS copy
				ON copy.value < n),
		turn AS (SELECT layer, max(w) / nullif(avg(w), 0) AS ratio, max(n) AS doubles FROM (
			SELECT layer, i % $ranks, sum(w) AS w, count(*) - count(DISTINCT expert) AS n FROM replica
			GROUP BY 1, 2) GROUP BY layer)
		SELECT count(*) FROM turn JOIN json_each(readfile('plan.json'), '\$.layers') AS p ON p.key = turn.layer
		WHERE doubles = 0 AND json_extract(p.value, '\$.max_over_mean_after') > ratio * (1 + 1e-6)")" 0
done

# ---- bad input ----
expect_error 2 'ranks R is missing' "$moetrace" eplb sound.db
expect_error 2 'either FILE or --loads' "$moetrace" eplb sound.db --loads loads.json --ranks 2
expect_error 2 'ranks' "$moetrace" eplb sound.db --ranks 0
expect_error 3 'nothing.json' "$moetrace" eplb --loads nothing.json --ranks 2
expect_error 1 'cannot be divided by 7 ranks' "$moetrace" eplb --loads loads.json --ranks 7
expect_error 1 'too few for 16 experts' "$moetrace" eplb --loads loads.json --ranks 2 --replicas 8
expect_error 1 'divided by 3 groups' "$moetrace" eplb --loads loads.json --ranks 2 --groups 3
expect_error 1 'divided by 3 nodes' "$moetrace" eplb --loads loads.json --ranks 2 --nodes 3
for text in '' '{}' '[]' '[[]]' '[1]' '[[1,2],[3]]' '[[1,-2]]' '[[1,"a"]]' '[[1,1e300]]' '[[[1]]]' '[[1,2]'; do
	printf '%s' "$text" >bad.json
	expect_error 1 'bad.json' "$moetrace" eplb --loads bad.json --ranks 1
done
expect_error 1 'moe_balance: placement of layer' "$moetrace" query sound.db "SELECT * FROM moe_balance(1, '[[0]]')"
expect_error 1 'moe_balance: placement: ' "$moetrace" query sound.db "SELECT * FROM moe_balance(1, '[[0')"
expect_error 1 'moe_balance: n_ranks' "$moetrace" query sound.db "SELECT * FROM moe_balance"
expect_error 1 'moe_eplb: n_ranks' "$moetrace" query sound.db "SELECT * FROM moe_eplb('x')"
expect_error 1 'moe_eplb: layer' "$moetrace" query sound.db "SELECT * FROM moe_eplb(2, 1)"
