# SPDX-License-Identifier: MIT
#
# moetrace run --margins: what is stored is the distance of the router's own scores, changes nothing
# else, and is refused where there is nothing to tell. The scores are told by another run, of the
# model with 32 experts a row in place of 8 and weights that are not renormalised, so that they are
# the probabilities: the first layer routes the same hidden states in both.

. "$MOETRACE_SRCDIR/tests/support/lib.sh"
need_command sqlite3

model=$tinymoe/tinymoe.safetensors
cd "$tmp" || exit 99
need_json
LC_ALL=C sed 's/\(num_experts_per_tok[\\]*":\) 8/\132/
	s/\(norm_topk_prob[\\]*":\) true/\1false/' "$model" >wide.safetensors
expect_eq "bytes of the model" "$(wc -c <wide.safetensors)" "$(wc -c <"$model")"
head -n 3 "$tinymoe/workload.jsonl" | sed 's/"max_new_tokens": [0-9]*/"max_new_tokens": 3/' >workload
set -- --workload workload --batch 3

expect_ok "$moetrace" run --model "$model" "$@" --text-output plain.jsonl -o plain.db
expect_ok "$moetrace" run --model "$model" "$@" --text-output told.jsonl -o told.db --margins
expect_ok "$moetrace" run --model wide.safetensors "$@" -o wide.db
expect_same plain.jsonl told.jsonl
for db in plain told; do
	sql $db.db "select request_id, position, layer, topk_rank, expert, weight from routed_expert
		order by 1, 2, 3, 4" >$db.experts
	expect_ok "$moetrace" check $db.db --strict
done
expect_same plain.experts told.experts
expect_eq "of a plain run" "$(sql plain.db "select count(margins), count(row_flags) from topk")" "0|0"
expect_eq "runs without" "$(sql told.db "select count(*) from topk
	where margins is null or row_flags is null")" 0

# Weights are stored in 16 bits: a difference is known to some ten-thousandths of what it is of.
margins="select request_id, position, layer, topk_rank, weight, margin, row_flags from moe_topk
	where layer = (select min(layer) from moe_topk) and topk_rank in (7, 8)"
expect_ok "$moetrace" query told.db --format csv "$margins and topk_rank = 7"
tail -n +2 out >told.csv
expect_ok "$moetrace" query wide.db --format csv "$margins"
tail -n +2 out >wide.csv
cat >join.sql <<'END'
create table told (request int, position int, layer int, place int, weight real,
	margin real, flags int);
create table wide (request int, position int, layer int, place int, weight real,
	margin real, flags int);
.mode csv
.import told.csv told
.import wide.csv wide
.mode list
select count(*) > 100, count(*) - sum(abs(t.margin - (l.weight - n.weight))
		<= 0.0006 * (l.weight + n.weight)),
	sum(t.margin > 0.006 * (l.weight + n.weight)) > 50, sum(t.flags <> 0)
from told as t join wide as l using (request, position) join wide as n using (request, position)
where l.place = 7 and n.place = 8 and t.position < 40;
END
expect_eq "margins" "$(sqlite3 :memory: <join.sql)" "1|0|1|0"

refused() {
	words=$1
	shift
	expect_error 2 "$words" "$moetrace" run --model "$model" --workload workload -o no.db \
		--margins "$@"
	expect_absent no.db
}
refused 'per_token' --mode per_pass
refused "router's own choice" --oea k0=4
refused "router's own choice" --routing uniform
