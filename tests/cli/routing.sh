# SPDX-License-Identifier: MIT
#
# check --routing: a recording of every known router gives no finding, by itself and against its
# preset; of each recording that is broken in one way, that way is found and nothing else.

. "$MOETRACE_SRCDIR/tests/support/lib.sh"
. "$MOETRACE_SRCDIR/tests/cli/trace.sh"

cd "$tmp" || exit 99
make_routing=$MOETRACE_BUILDDIR/tests/cli/make_routing

# ---- no false alarm ----
n=0
for first in 0 16 32; do
	expect_ok "$make_routing" clean $first "clean$first.db"
	cp "$tmp/out" models
	expect_ok "$moetrace" check "clean$first.db"
	expect_ok "$moetrace" check --routing "clean$first.db"
	expect_match "$tmp/out" "clean$first.db: no routing fault was found"
	while read -r model name _; do
		expect_ok "$moetrace" check --routing --preset "$name" --model "$model" "clean$first.db"
		n=$((n + 1))
	done <models
done
[ "$n" -ge 40 ] || fail "only $n presets were recorded"

# ---- no alarm missed ----
# A line a fault: its model's number, what is broken, and the one finding that says so.
n=0
for first in 0 16 32; do
	expect_ok "$make_routing" faults $first "faults$first.db"
	cp "$tmp/out" models
	n=$((n + $(wc -l <models)))
	expect_status 1 "$moetrace" check --routing --format csv "faults$first.db"
	cut -d, -f2,5 "$tmp/out" | sed 1d | sort -u >found
	while read -r model name finding; do
		expect_eq "findings of $name" "$(sed -n "s/,$model\$//p" found)" "${finding#-}"
	done <models
done
expect_eq "faults" "$n" "$(grep -c '^	X(' "$MOETRACE_SRCDIR/tests/cli/make_routing.h")"

# ---- what only other programs can write ----
# broken MODEL FINDINGS SQL...: model 4 or 5 of faults0.db, changed so, has these findings.
model_of() {
	sqlite3 faults0.db "SELECT model_id FROM model WHERE name = '$1'"
}
changed() {
	model=$(model_of "$1")
	findings=$2
	shift 2
	cp faults0.db changed.db
	change changed.db "$@"
	run "$moetrace" check --routing --model "$model" --format csv $preset changed.db
	[ "$status" -le 1 ] || fail "changed so: $*"
	expect_eq "findings after: $*" "$(cut -d, -f2 "$tmp/out" | sed 1d | sort | tr '\n' ' ')" \
		"${findings:+$findings }"
}
preset=
of_model="IN (SELECT topk_id FROM pass_layer JOIN pass USING (pass_id) WHERE model_id = $(model_of no_output))"
changed no_output "id_space router_output" "UPDATE topk SET physical_ids = topk_ids, physical_id_bytes = id_bytes
	WHERE topk_id $of_model;"
# A map that moves nothing makes slots and experts the same.
changed no_output router_output "UPDATE topk SET physical_ids = topk_ids, physical_id_bytes = id_bytes
	WHERE topk_id $of_model; UPDATE expert_map SET slot_experts = (SELECT CAST(group_concat(b.byte || x'000000', '')
	AS BLOB) FROM (SELECT byte FROM byte WHERE value < 64 ORDER BY value) AS b);"
changed right "" "UPDATE layer SET weight_kind = NULL;"
changed right biased_weights "UPDATE topk SET topk_weights = CAST(x'00bc' || substr(topk_weights, 3) AS BLOB);"
# Without the bias that they were chosen by, rows are not in their order, either.
changed right "choice scoring" "UPDATE topk SET topk_weights = CAST(x'00bc' || substr(topk_weights, 3) AS BLOB);
	UPDATE layer SET has_correction_bias = 0, bias_values = NULL;"
# Scores may vanish in 16 bits, which is then only unlikely; and those of zero experts may be cleared.
no_weights="UPDATE topk SET topk_weights = zeroblob(length(topk_weights)); UPDATE layer SET weight_kind = 'raw'"
changed right no_weights "$no_weights;"
expect_match "$tmp/out" '^1,no_weights,statistical'
changed right "" "$no_weights, n_experts = 1, n_zero_experts = 63, n_groups = NULL, topk_groups = NULL,
	group_top_n = NULL;"
changed right "" "UPDATE topk SET topk_weights = NULL, weight_format = 'none';"
changed right foreign_ids "UPDATE stats SET value = 5 WHERE name = 'invalid_ids'; UPDATE pass SET reasons = 'invalid'
	WHERE model_id = $(model_of right);"

# ---- a preset ----
cp clean0.db faults0.db
preset="--preset deepseek-v3"
changed deepseek-v3 "" "PRAGMA user_version = 1001;"
changed deepseek-v3 layer_shift "UPDATE layer SET layer = layer - 3;"
changed deepseek-v3 preset "UPDATE layer SET renormalize = 0;"
changed deepseek-v3 "choice preset" "UPDATE layer SET has_correction_bias = 0, bias_values = NULL;"
changed deepseek-v3 "groups preset" "UPDATE layer SET n_groups = NULL, topk_groups = NULL, group_top_n = 1;"
# What a layer does not say is the preset's: its rows are held to it.
changed deepseek-v3 "" "UPDATE layer SET n_groups = NULL, topk_groups = NULL, group_top_n = NULL, scoring = NULL,
	routed_scaling_factor = NULL;"
# Layers that choose by token id have no bias.
preset="--preset deepseek-v4"
changed deepseek-v4 "" "UPDATE layer SET kind = 'hash', moe_ordinal = moe_ordinal - 2, layer = layer - 2,
	has_correction_bias = 0, bias_values = NULL WHERE moe_ordinal = 3 AND model_id = $(model_of deepseek-v4);
	DELETE FROM layer WHERE moe_ordinal = 4 AND model_id = $(model_of deepseek-v4);"
preset="--preset kimi-k2"
changed deepseek-v3 "layer_shift preset preset preset preset preset" "PRAGMA user_version = 1001;"
preset="--preset mixtral-8x7b"
changed glm-4.5-air "layer_shift preset preset preset preset" "PRAGMA user_version = 1001;"

# ---- what is printed ----
expect_status 1 "$moetrace" check --routing --format json faults16.db
expect_json "$tmp/out"
cp "$tmp/out" faults.json
expect_eq "looks" "$(json faults.json '$.looks[0].look')" id_space
expect_eq "a proved finding" "$(sqlite3 :memory: "SELECT json_extract(value, '\$.certainty') || json_extract(value, '\$.n_bad')
	FROM json_each(readfile('faults.json'), '\$.findings') WHERE json_extract(value, '\$.finding') = 'scaling' LIMIT 1")" proved768
# A row is where it says: its request, position and experts.
sqlite3 :memory: "SELECT group_concat(printf('SELECT %d AS pass_id, %d AS layer, %d AS at, %d AS position, %Q AS ids',
	json_extract(value, '\$.pass_id'), json_extract(value, '\$.layer'), json_extract(value, '\$.row'),
	json_extract(value, '\$.position'), substr(json_extract(value, '\$.stored'), 9,
	instr(json_extract(value, '\$.stored'), ';') - 9)), ' UNION ALL ')
	FROM json_each(readfile('faults.json'), '\$.rows') WHERE json_extract(value, '\$.stored') LIKE 'experts%'" >rows.sql
expect_ok "$moetrace" query faults16.db --format csv "WITH v AS ($(cat rows.sql)) SELECT count(*) > 20 AS n, sum(ids =
	(SELECT group_concat(expert) FROM moe_topk AS t WHERE t.pass_id = v.pass_id AND t.layer = v.layer AND
	t.row = v.at AND t.position = v.position)) = count(*) AS same FROM v"
expect_eq "rows" "$(tail -n 1 "$tmp/out" | tr -d "\r")" 1,1
expect_status 1 "$moetrace" check --routing faults16.db
expect_match "$tmp/out" '^certainty +statistical$'
expect_match "$tmp/out" 'faults16.db: [0-9]+ routing faults: [0-9]+ proved, [0-9]+ statistical'
expect_status 1 "$moetrace" check --routing --format jsonl faults16.db
expect_jsonl "$tmp/out"
expect_error 2 "preset 'gpt-9' is unknown" "$moetrace" check --routing --preset gpt-9 faults16.db
expect_error 2 'go with --routing' "$moetrace" check --preset kimi-k2 faults16.db
expect_error 2 "model '0'" "$moetrace" check --routing --model 0 faults16.db
expect_error 3 'no layers with experts of a model 99' "$moetrace" check --routing --model 99 faults16.db

# Nothing to look at is no finding, and is told.
make_empty empty.db
expect_ok "$moetrace" check --routing empty.db
expect_match "$tmp/out" '^duplicate_ids +0 +0 '
# Damage is an error, not a finding.
cp faults16.db damaged.db
change damaged.db "UPDATE topk SET topk_ids = CAST(substr(topk_ids, 2) AS BLOB);"
expect_error 1 'topk_ids is no blob of' "$moetrace" check --routing damaged.db
damaged() {
	cp faults16.db damaged.db
	change damaged.db "$2"
	expect_error 1 "$1; run moetrace check first" "$moetrace" check --routing damaged.db
	expect_status 1 "$moetrace" check damaged.db
}
damaged "a row has an id that is not the layer's" "UPDATE layer SET n_experts = 32, n_groups = NULL,
	topk_groups = NULL, group_top_n = NULL, has_correction_bias = NULL, bias_values = NULL;"
damaged 'its rows have more entries than the layer selects' "UPDATE layer SET top_k = 5;"
damaged 'has sizes that no layer has' "UPDATE layer SET top_k = 65 WHERE layer_id = 2;"
damaged "is numbered beyond the model's n_layers" "UPDATE model SET n_layers = 4;"
expect_match "$tmp/out" 'is numbered beyond the layers of its model'

# ---- each look has its paragraph ----
sqlite3 :memory: "SELECT json_extract(value, '\$.look') || ': ' || json_extract(value, '\$.looks_for')
	FROM json_each(readfile('faults.json'), '\$.looks')" >looks
sed -n 's/^## //p' "$MOETRACE_SRCDIR/docs/routing-faults.md" >paragraphs
expect_same paragraphs looks
