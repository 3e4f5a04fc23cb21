# SPDX-License-Identifier: MIT
#
# The analysis of a plain recording against the reference implementation: tinymoe's golden sequences
# served in lockstep, and for every layer and k0 the active experts, rows below k and lost weight
# that follow from the reference's router logits. A row whose k0-th and (k0+1)-th largest logit are
# less than 1e-4 apart may choose otherwise; each may move its position's count by one.

. "$MOETRACE_SRCDIR/tests/support/lib.sh"
need_command sqlite3

golden=$MOETRACE_SRCDIR/tests/data/tinymoe/golden
cd "$tmp" || exit 99
need_json
split -b 161 -d -a 1 "$golden/tokens.u8" seq-
for i in 0 1 2 3 4 5 6 7 8 9; do
	head -c 160 seq-$i >prompt-$i
	sqlite3 -batch :memory: "select json_object('id', 's$i', 'prompt',
		cast(readfile('prompt-$i') as text), 'max_new_tokens', 1)"
done >workload

expect_ok "$moetrace" run --model "$tinymoe/tinymoe.safetensors" --workload workload --lockstep \
	--batch 10 -o plain.db
expect_ok "$moetrace" check plain.db --strict
expect_eq "passes" "$(sql plain.db "select phase, count(*), min(n_rows), max(n_rows) from pass group by 1")" \
	"decode|160|10|10"

# Every near tie at a cut; each row sorted up to the 9th place.
od -An -v -tf4 -w256 "$golden/router_logits.f32" | awk '{
	for (j = 1; j <= 64; j++)
		x[j] = $j
	for (j = 1; j <= 9; j++) {
		for (i = best = j; i <= 64; i++)
			if (x[i] > x[best])
				best = i
		y = x[j]; x[j] = x[best]; x[best] = y
		if (j > 1 && x[j - 1] - x[j] < 1e-4)
			print int((NR - 1) / 1600), j - 1
	}
}' >near
sort near | uniq -c | awk '{ printf "layer %d, k0 %d: %d near ties\n", $2, $3, $1 }'

run "$moetrace" query plain.db --format csv "select layer, k0, n_batches, changed_rows, active_after,
	tokens_below_k, lost_weight / rated_rows, active_before from moe_oea"
sed 1d out | tr -d '\r' >got
sqlite3 -batch facts.db "create table got (layer integer, k0 integer, n integer, rows integer,
	active integer, below_k integer, lost real, active_before integer)" "create table near (layer integer, k0 integer)" ".separator ','" ".import got got" ".separator ' '" ".import near near" "
	create table want as select json_extract(value, '\$.layer') as layer,
		json_extract(value, '\$.k0') as k0, json_extract(value, '\$.mean_active') as active,
		json_extract(value, '\$.mean_lost_weight') as lost,
		json_extract(value, '\$.short_rows') as below_k
	from json_each(readfile('$golden/meta.json'), '\$.oea')"
sqlite3 -batch facts.db "
	select 'rows', count(*), sum(got.n <> 160 or got.rows <> 1600) from want left join got using (layer, k0);
	select 'active experts', sum(abs(got.active - want.active * 160) > (select count(*) from near
		where near.layer = want.layer and near.k0 = want.k0) + 1e-6)
		from want left join got using (layer, k0);
	select 'rows below k', sum(got.below_k <> want.below_k) from want left join got using (layer, k0);
	select 'lost weight', sum(abs(got.lost - want.lost) > 1e-5) from want left join got using (layer, k0);
	select 'k0 = k', sum(active <> active_before) from got where k0 = 8;" >facts
expect_eq "facts" "$(cat facts)" "rows|48|0
active experts|0
rows below k|0
lost weight|0
k0 = k|0"
