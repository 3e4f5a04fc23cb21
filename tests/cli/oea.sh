# SPDX-License-Identifier: MIT
#
# moetrace oea on recordings of the engine: figures that are those of moe_oea(), predicted times, the
# published layer times as a fit, and what --verify says of a rule that did something and of one that,
# for each reason there is, did not.

. "$MOETRACE_SRCDIR/tests/support/lib.sh"
. "$MOETRACE_SRCDIR/tests/cli/trace.sh"

cd "$tmp" || exit 99
need_json
model=$tinymoe/tinymoe.safetensors
for text in 'Once upon a time there was' 'int main(void) { return 0; }' 'use strict; my $x = 1;' \
	'def main(): return None' 'It was the best of times'; do
	printf '{"prompt":"%s","max_new_tokens":12}\n' "$text"
done >five
set -- "$moetrace" run --model "$model" --threads 1 --seed 1 --workload five
expect_ok "$@" --lockstep -o plain.db
expect_ok "$@" --oea k0=3 -o ruled.db
expect_ok "$moetrace" check --routing ruled.db

# ask FILE SQL: the answer's last line.
ask() {
	run "$moetrace" query "$1" --format csv "$2"
	[ "$status" -eq 0 ] || fail "query: $2"
	tail -n 1 out | tr -d '\r'
}

# ---- the figures ----
expect_ok "$moetrace" oea plain.db --k0 3..5,8 --format json
expect_json out
cp out figures.json
expect_eq "k0" "$(sqlite3 -batch :memory: "select group_concat(json_extract(value, '\$.k0'))
	from json_each(readfile('figures.json'), '\$.oea')")" "3,4,5,8"
expect_eq "figures" "$(sqlite3 -batch :memory: "select group_concat(json_extract(value, '\$.active_after') || ' ' ||
	json_extract(value, '\$.lost_weight') || ' ' || json_extract(value, '\$.below_k'))
	from json_each(readfile('figures.json'), '\$.oea') where key < 3")" "$(ask plain.db "select group_concat(round(1.0 * active_after / n_batches, 3)
	|| ' ' || round(lost_weight / rated_rows, 6) || ' ' || tokens_below_k) from moe_oea(0) where k0 in (3, 4, 5)" | tr -d '"')"
expect_ok "$moetrace" oea plain.db --layers --batch-buckets --format csv
expect_eq "rows of layers and sizes" "$(wc -l <out)" "$(ask plain.db "select 1 + count(*) from moe_oea(1, 1)")"
expect_ok "$moetrace" oea plain.db --rule pruned:k0=3 --format csv
expect_eq "rows of a rule with its k0" "$(wc -l <out)" 2
expect_ok "$moetrace" oea plain.db --rule oea:kmax=4,k0=2,3,maxp=5 --format csv
expect_eq "a rule in its general form" "$(tr -d '\r' <out | cut -d, -f4,14 | tail -n 2 | tr '\n' ' ')" "$(ask plain.db "select
	group_concat(k0 || ',' || round(lost_weight / rated_rows, 6), ' ') || ' ' from moe_oea(0, 0, 'oea:kmax=4,maxp=5')
	where k0 in (2, 3)" | tr -d '"')"
expect_ok "$moetrace" oea plain.db --k0 3 --ranks 4 --format csv
expect_match out 'max_rank_before,max_rank_after'
expect_ok "$moetrace" eplb plain.db --ranks 4 --format json
cp out map.json
expect_ok "$moetrace" oea plain.db --k0 3 --ranks 4 --map map.json --format csv
expect_error 2 'ranks R is missing' "$moetrace" oea plain.db --map map.json
expect_error 3 'nothing.json' "$moetrace" oea plain.db --map nothing.json --ranks 4
expect_ok "$moetrace" oea plain.db --rule budget:20 --format jsonl
expect_match out '"k0":20'

# Constants: the published line turns the published means into the published times, within 1 %.
expect_ok sqlite3 -batch :memory: "
	with published(active, us) as (values (25.1, 106.8), (29.9, 120.9), (35.1, 136.0), (40.3, 151.3),
		(44.4, 163.0), (48.8, 175.7))
	select sum(abs(33.33 + 2.9226 * active - us) > 0.01 * us) from published"
expect_out 0
expect_ok "$moetrace" oea plain.db --k0 3 --a 33.33 --b 2.9226 --format json
expect_eq "time by constants" "$(sqlite3 -batch :memory: "select sum(abs(json_extract(value, '\$.time_after_us') - 33.33
	- 2.9226 * json_extract(value, '\$.active_after')) > 0.01), max(json_extract(value, '\$.time_by'))
	from json_each(readfile('out'), '\$.oea')")" "0|given"
expert_us=$(ask plain.db "select avg(expert_weight_bytes) / 100 / 1000 from layer")
expect_ok "$moetrace" oea plain.db --k0 3 --bandwidth 100 --format json
expect_eq "time by bandwidth" "$(sqlite3 -batch :memory: "select sum(abs(json_extract(value, '\$.saved_us') - (select
	json_extract(value, '\$.active_before') - json_extract(value, '\$.active_after')) * $expert_us) > 0.02) from json_each(readfile('out'), '\$.oea')")" 0

# The published layer times (24 of them) as layer times of a recording, experts in tenths.
make_empty published.db
change published.db "
	INSERT INTO model VALUES (1, 'paper', 'target', NULL, 1, NULL);
	INSERT INTO layer (layer_id, model_id, layer, moe_ordinal, kind, n_experts, n_zero_experts, n_shared_slots,
		top_k) VALUES (1, 1, 0, 0, 'routed', 1280, 0, 0, 8);
	INSERT INTO recording VALUES (1, 1, 0, 1, 'stopped', 'per_token', 'model', NULL);
	CREATE TEMP TABLE published (active, us);
	INSERT INTO published VALUES (222, 97.9), (265, 110.5), (305, 122.0), (360, 138.4), (392, 147.4), (430, 158.0),
		(265, 111.0), (314, 125.4), (375, 143.2), (429, 159.0), (476, 172.5), (516, 184.1), (238, 102.7), (287, 117.1),
		(339, 132.2), (387, 146.5), (425, 157.3), (472, 170.8), (279, 115.6), (330, 130.4), (386, 146.7), (437, 161.5),
		(483, 174.7), (535, 189.9);
	INSERT INTO pass SELECT rowid, 1, 1, 'decode', rowid * 1000000, rowid * 1000000 + us * 1000, 16, 0, NULL, NULL,
		NULL, 'complete', NULL, 0, NULL FROM published;
	INSERT INTO pass_layer SELECT rowid, 1, active, NULL, 1, rowid * 1000000, 3, NULL, NULL, 16, NULL, NULL, NULL
		FROM published;"
expect_eq "the published fit" "$(ask published.db "select abs(a_ns / 1000 - 33.33) < 0.05, abs(b_ns / 100 - 2.9226) < 0.002,
	c_ns is null, r2 > 0.9997, n_batches, n_outliers, b_low_ns < b_ns and b_high_ns > b_ns, min_active, max_active from moe_fit")" \
	"1,1,1,1,24,0,1,222,535"
# Two layers of unequal length share their slope; rows count, and an interruption does not.
change published.db "
	INSERT INTO layer (layer_id, model_id, layer, moe_ordinal, kind, n_experts, n_zero_experts, n_shared_slots, top_k)
		VALUES (2, 1, 1, 1, 'routed', 1280, 0, 0, 8);
	DELETE FROM pass; DELETE FROM pass_layer;
	INSERT INTO pass SELECT value + 1, 1, 1, 'decode', value * 1000000, value * 1000000 + 500000 + value % 16 * 1000, 1 + value % 16,
		0, NULL, NULL, NULL, 'complete', NULL, 0, NULL FROM byte;
	INSERT INTO pass_layer SELECT value + 1, layer_id, 20 + value * 7 % 40, NULL, 1, value * 1000000 + iif(layer_id = 1, 0,
		10000 + 300 * (20 + value * 7 % 40) + 100 * (1 + value % 16)), 3, NULL, NULL, 1 + value % 16, NULL, NULL, NULL FROM byte, layer;
	UPDATE pass SET end_ns = begin_ns + 10000 + 300 * (20 + (pass_id - 1) * 7 % 40) + 100 * n_rows
		+ 50000 + 300 * (20 + (pass_id - 1) * 7 % 40) + 100 * n_rows + iif(pass_id % 50 = 0, 900000, pass_id % 3);"
# The mean is over batches: (256 * 10000 + 251 * 50001) / 507.
expect_eq "layers apart" "$(ask published.db "select round(a_ns), round(b_ns), round(c_ns), n_batches, n_outliers from moe_fit(0)")" \
	"29803,300,100,507,5"
expect_eq "each by itself" "$(ask published.db "select group_concat(round(a_ns / 1000) || ' ' || round(b_ns) || ' ' || round(c_ns), '; ')
	from moe_fit(1)" | tr -d '"')" "10.0 300.0 100.0; 50.0 300.0 100.0"
expect_ok "$moetrace" oea plain.db --k0 3 --fit
# On a machine that is busy with something else, times may show no line; then that is said.
expect_match out 'extrapolated|do not grow with active experts'
expect_match out '^Fit: '
# Times that fall with active experts predict nothing, and no column says otherwise.
cp plain.db falls.db
change falls.db "DELETE FROM pass_layer WHERE layer_id > 1; UPDATE pass_layer SET selected_ns =
	(SELECT begin_ns FROM pass AS p WHERE p.pass_id = pass_layer.pass_id); UPDATE pass SET end_ns = begin_ns + 900000 - 1000 *
	coalesce((SELECT active_experts FROM pass_layer AS pl WHERE pl.pass_id = pass.pass_id), 0)"
expect_ok "$moetrace" oea falls.db --k0 3 --fit --format json
cp out falls.json
expect_eq "no time predicted" "$(sqlite3 -batch :memory: "select json_extract(readfile('falls.json'), '\$.oea[0].time_by') is null,
	json_extract(readfile('falls.json'), '\$.fit[0].b_us') <= 0, (select count(*) from json_each(readfile('falls.json'), '\$.left_out')
	where json_extract(value, '\$.left_out') like '%so that nothing is predicted%')")" "1|1|1"
# Simulated choices stand as they were drawn: uniform ones give what is expected of them.
: >uniform
for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16; do
	printf '{"prompt":"a","max_new_tokens":60}\n' >>uniform
done
expect_ok "$moetrace" run --model "$model" --threads 1 --seed 1 --workload uniform --routing uniform --lockstep -o uniform.db
expect_ok "$moetrace" check uniform.db
expect_eq "as expected of uniform choices" "$(ask uniform.db "select count(*), sum(abs(1.0 * active_after / uniform_after - 1) > 0.01),
	sum(restored_rows) from moe_oea(0) where k0 in (3, 5, 8)")" "3,0,0"

# ---- what a rule did ----
expect_ok "$moetrace" oea --verify ruled.db
expect_match out '^oea:k0=3  acted   changed [0-9.]+ % of [0-9]+ rows in 6 of 6 layers: active experts [0-9.]+ -> '
expect_eq "the view says what the function says" "$(ask ruled.db "select count(*) > 5, sum(a.n_batches <> b.n_batches
	or a.n_rows <> b.known_rows or a.changed_rows <> b.changed_rows or a.swapped_entries <> b.swapped_entries
	or a.active_before <> b.active_before or a.active_after <> b.active_after)
	from rule_effect as a left join moe_rule as b using (recording_id, layer_id, phase, rule_id)")" "1,0"
# In decode passes the analysis of the router's own choice predicts what the rule did.
expect_eq "predicted and done" "$(ask ruled.db "select count(*), sum(o.active_after <> r.active_after or o.active_before <> r.active_before
	or o.n_batches <> r.n_batches) from moe_oea as o join moe_rule as r using (layer_id, phase) where o.k0 = 3 and phase = 'decode'
	and r.rule_id is not null")" "6,0"

# does_nothing WHY FILE: exit status 1, and one line that says so.
does_nothing() {
	expect_status 1 "$moetrace" oea --verify "$2"
	expect_eq "lines about ${2##*/}" "$(wc -l <out)" 2
	expect_match out "^[^ ]+ +nothing  $1"
}
# broken SQL...: ruled.db, broken so.
broken() {
	cp ruled.db broken.db
	for statement; do
		change broken.db "$statement"
	done
}
does_nothing 'never called: no layer' plain.db
broken "UPDATE topk SET rule_id = NULL, base_k = NULL, base_ids = NULL"
does_nothing 'never called: no layer' broken.db
expect_status 1 "$moetrace" oea --verify ruled.db --rule oea:k0=5
expect_match out '^oea:k0=5  nothing  never called'
broken "UPDATE pass SET phase = 'prefill'" "UPDATE pass_request SET phase = 'prefill'"
does_nothing 'prefill only: [0-9]+ batches' broken.db
broken "UPDATE layer SET kind = 'hash'"
does_nothing 'wrong layers: 6 layer.s. ran under it, and all choose by token id' broken.db
broken "UPDATE topk SET rule_id = NULL, base_k = NULL, base_ids = NULL" "UPDATE pass SET phase = 'prefill'" \
	"UPDATE pass_request SET phase = 'prefill'"
does_nothing 'prefill only: no pass that decodes was recorded' broken.db
# The router's own choice everywhere, and the mark of the rule in one layer alone.
broken "UPDATE topk SET topk_ids = base_ids, n_valid = NULL WHERE rule_id IS NOT NULL" \
	"UPDATE pass_layer SET topk_id = NULL, topk_row = NULL, state = 1 WHERE layer_id > 1
		AND topk_id IN (SELECT topk_id FROM topk WHERE rule_id IS NOT NULL)"
does_nothing 'wrong layers: 1 of 6 layers ran under it .the first is layer 0., without a change' broken.db
broken "UPDATE topk SET topk_ids = base_ids, n_valid = NULL WHERE rule_id IS NOT NULL"
does_nothing 'graph captured before it was on: .* left out [1-9][0-9]* entries' broken.db
broken "UPDATE recording SET routing_source = 'uniform'"
does_nothing 'simulated routing: choices are uniform' broken.db
broken "UPDATE topk SET topk_weights = CAST(replace(hex(zeroblob(n_rows * k)), '00', '01') AS BLOB)"
does_nothing 'equal weights: all weights of each of [0-9]+ rows' broken.db
expect_ok "$@" --oea k0=3 --batch 1 -o one.db
does_nothing 'batch of one: each of [0-9]+ batches had one row' one.db
expect_ok "$@" --oea k0=8 -o all.db
does_nothing 'k0 is 8 and rows choose 8 experts' all.db
# Rows alike, all experts of each in the union: two requests of the same text and k0 = 7 leave out one
# expert; with the eighth place equal to another row's first, nothing.
broken "UPDATE topk SET topk_ids = base_ids, n_valid = NULL WHERE rule_id IS NOT NULL" \
	"UPDATE topk SET base_ids = CAST(replace(hex(zeroblob(n_rows / 2)), '00', 'ABCDEFGHHGFEDCBA')
		|| substr('ABCDEFGH', 1, 8 * (n_rows % 2)) AS BLOB) WHERE rule_id IS NOT NULL" \
	"UPDATE topk SET topk_ids = base_ids WHERE rule_id IS NOT NULL" "UPDATE rule SET name = 'oea:k0=7'" \
	"UPDATE layer SET n_experts = 128" \
	"DELETE FROM pass_layer WHERE n_rows < 2 OR pass_id IN (SELECT pass_id FROM pass WHERE phase <> 'decode')"
does_nothing 'union saturated: up to [2-5] rows x k0 = 7 cover' broken.db
broken "UPDATE topk SET base_k = NULL, base_ids = NULL"
expect_ok "$moetrace" oea --verify broken.db
expect_match out '^oea:k0=3  unknown  unknown: the router.s own choice was not recorded'

# ---- refusals, and what is left out ----
change plain.db "UPDATE pass_layer SET selection_order = 2 WHERE layer_id = 2; UPDATE layer SET kind = 'hash' WHERE layer_id = 3"
expect_ok "$moetrace" oea plain.db --k0 3
expect_match out '[0-9]+  the order of the choice is not known'
expect_match out '[0-9]+  experts chosen by token id'
expect_ok "$moetrace" oea ruled.db --k0 3
expect_match out 'batches of prefill passes: the rule leaves them alone'
make_sound sound.db
expect_ok "$moetrace" oea sound.db --format json
expect_json out
make_empty empty.db
expect_ok "$moetrace" oea empty.db
expect_match err 'has no recording'
expect_error 3 'has no recording 9' "$moetrace" oea plain.db --recording 9
for bad in 0 9x 3.. 5..3 '' 65 3,; do
	expect_error 2 "k0 '$bad': give numbers" "$moetrace" oea plain.db --k0 "$bad"
done
expect_ok "$moetrace" oea plain.db --rule expand:margin=0.1,kmax=9 --layers --format json
expect_eq "no candidates, no rows that are known" "$(sqlite3 -batch :memory: "select count(*) > 3, sum(json_extract(value,
	'\$.known_rows')) from json_each(readfile('out'), '\$.expand')")" "1|0"
for bad in expand: expand:margin= expand:margin=-1 expand:margin=x expand:kmax=3 expand:margin=1,k=3; do
	expect_error 2 "rule '$bad': give margin=D" "$moetrace" oea plain.db --rule "$bad"
done
expect_error 2 "rule 'top2'" "$moetrace" oea plain.db --rule top2
for bad in oea:kmax=0 oea:p=2 oea:k0=3,kmax oea:maxp=3,depth=2 pruned:kmax=9 oea:; do
	expect_error 2 "rule '$bad': options are" "$moetrace" oea plain.db --rule "$bad"
done
expect_error 2 'give one of --fit' "$moetrace" oea plain.db --fit --b 3
expect_error 2 '.-b is missing' "$moetrace" oea plain.db --a 3
expect_error 2 "b 'x': give a number" "$moetrace" oea plain.db --b x
expect_error 2 "bandwidth '0': give a number above 0" "$moetrace" oea plain.db --bandwidth 0
for bad in 0 99999 x '' 3,k0=2; do
	expect_error 2 "rule budget" "$moetrace" oea plain.db --rule "budget:$bad"
done
expect_error 2 "a '1e308': give a number" "$moetrace" oea plain.db --a 1e308 --b 1
expect_error 2 "b '2e9': give a number" "$moetrace" oea plain.db --b 2e9
expect_error 2 'verify is no query' "$moetrace" oea ruled.db --verify --explain
