# SPDX-License-Identifier: MIT
#
# moetrace run under a rule: what it leaves in the file proves itself against the
# router's own choice, which stands beside it; with k0 = k nothing changes.

. "$MOETRACE_SRCDIR/tests/support/lib.sh"
need_command sqlite3

model=$tinymoe/tinymoe.safetensors
cd "$tmp" || exit 99
need_json
head -n 12 "$tinymoe/workload.jsonl" >workload
set -- "$moetrace" run --model "$model" --workload workload --batch 6 --chunk 24

expect_ok "$@" --text-output plain.jsonl -o plain.db
expect_ok "$@" --text-output same.jsonl -o same.db --oea k0=8
expect_same plain.jsonl same.jsonl
for db in plain same; do
	sql $db.db "select request_id, position, layer, topk_rank, expert, weight from routed_expert
		where request_id <= 3 order by 1, 2, 3, 4" >$db.experts
done
expect_same plain.experts same.experts

expect_ok "$@" --text-output ruled.jsonl -o ruled.db --oea k0=3
for db in same ruled; do
	expect_ok "$moetrace" check $db.db --strict
done
expect_eq "name" "$(sql ruled.db "select name from rule")" oea:k0=3
expect_eq "passes under the rule are those that decode" "$(sql ruled.db "
	select count(*) > 50 from pass where phase <> 'prefill'
	union all
	select count(*) from pass_layer as pl join topk using (topk_id) join pass using (pass_id)
	where (rule_id is not null) <> (phase <> 'prefill') or (rule_id is null) <> (base_ids is null)")" \
	"1
0"

# A table of the assignments: chosen (0) and before the rule (1), in passes under the rule.
sqlite3 -batch ruled.db "
	create temp table entry as
	select pl.pass_id, pl.layer_id, r.value as row, j.value as place, b.value as expert,
		side.column1 as is_base
	from pass_layer as pl join topk as t using (topk_id) join pass as p using (pass_id)
	join (values (0), (1)) as side
	join byte as r on r.value < pl.n_rows
	join byte as j on j.value < iif(side.column1, t.base_k,
		coalesce(unicode(substr(t.n_valid, 1 + pl.topk_row + r.value, 1)), t.k))
	join byte as b on b.byte = substr(iif(side.column1, t.base_ids, t.topk_ids),
		1 + (pl.topk_row + r.value) * iif(side.column1, t.base_k, t.k) + j.value, 1)
	where t.rule_id is not null and t.n_valid is null and pl.layer_id <= 2;
	create index entry_key on entry (pass_id, layer_id, row, is_base, expert);
	create temp table slice_row as
	select pr.pass_id, r.value as row, pr.phase from pass_request as pr
	join byte as r on r.value between pr.row_offset and pr.row_offset + pr.n_rows - 1;
	create unique index slice_row_key on slice_row (pass_id, row);
	create temp table loaded as
	select distinct e.pass_id, e.layer_id, e.expert from entry as e
	join slice_row as s using (pass_id, row)
	where e.is_base and (s.phase = 'prefill' or e.place < 3);
	create unique index loaded_key on loaded (pass_id, layer_id, expert);
	select 'entries', count(*) > 10000, sum(is_base) * 2 = count(*) from entry;
	select 'outside of what is loaded', count(*) from entry as e where not is_base and
		not exists (select 1 from loaded as l where l.pass_id = e.pass_id and
		l.layer_id = e.layer_id and l.expert = e.expert);
	select 'loaded, and left out', count(*) from (
		select b.pass_id, b.layer_id, b.row from entry as b join loaded using (pass_id, layer_id, expert)
		left join entry as c on c.pass_id = b.pass_id and c.layer_id = b.layer_id and
			c.row = b.row and not c.is_base and c.expert = b.expert
		where b.is_base and c.row is null);
	select 'prefill rows that changed', count(*) from entry as b join slice_row as s using (pass_id, row)
		join entry as c using (pass_id, layer_id, row, place)
		where s.phase = 'prefill' and b.is_base and not c.is_base and b.expert <> c.expert;
	select 'active experts', count(*) from pass_layer as pl join (select pass_id, layer_id,
		count(*) as n from loaded group by 1, 2) as l using (pass_id, layer_id)
		where l.n <> pl.active_experts;" >facts
expect_eq "facts" "$(cat facts)" "entries|1|1
outside of what is loaded|0
loaded, and left out|0
prefill rows that changed|0
active experts|0"

# One request at a time: k0 experts a decode row, and the file says so.
expect_ok "$@" --batch 1 --rule oea:k0=3 -o one.db
expect_ok "$moetrace" check one.db --strict
expect_eq "rows below k" "$(sql one.db "select distinct phase, count(*) / (select count(*) from token_topk
	as u where u.phase = t.phase), n_valid from token_topk as t where request_id <= 2
	group by phase, n_valid order by 1" | cut -d '|' -f 1,3)" "decode|3
prefill|8"

# More experts a row than the router has, in rows that have them.
expect_ok "$@" --oea k0=4,kmax=10 -o wide.db
expect_ok "$moetrace" check wide.db --strict
expect_eq "wider rows" "$(sql wide.db "select max(k), max(base_k) from topk")" "10|8"
expect_eq "rows of prefill stay" "$(sql wide.db "select distinct n_valid from token_topk
	where phase = 'prefill' and request_id <= 3")" 8

expect_error 2 "^moetrace run: --oea 'k0=x': oea: k0 is 'x'" "$@" -o bad.db --oea k0=x
expect_error 2 "^moetrace run: oea: k0 is 9, expected 1 to 8" "$@" -o bad.db --oea k0=9
expect_error 2 "the engine has no rule 'pruned'" "$@" -o bad.db --rule pruned:k0=3
expect_absent bad.db
