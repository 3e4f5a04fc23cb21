# SPDX-License-Identifier: MIT
#
# moetrace run with fewer KV positions than the requests need: the text and the
# experts are those of a run with enough, each retracted request has another
# attempt, and the earlier ones are kept. --abort-after ends requests early.

. "$MOETRACE_SRCDIR/tests/support/lib.sh"
need_command sqlite3

model=$tinymoe/tinymoe.safetensors
cd "$tmp" || exit 99
need_json
head -n 12 "$tinymoe/workload.jsonl" >workload
set -- "$moetrace" run --model "$model" --workload workload --batch 6 --chunk 24 --record-tokens

expect_ok "$@" --text-output plain.jsonl -o plain.db
expect_no_match out '^retracts'
expect_ok "$@" --text-output small.jsonl -o small.db --kv-positions 300
n_retracts=$(sed -n 's/^retracts *\([0-9]*\),.*/\1/p' out)
[ -n "$n_retracts" ] || fail "nothing was retracted"
expect_same plain.jsonl small.jsonl
expect_ok "$@" --text-output warm.jsonl --no-record --temperature 1
expect_ok "$@" --text-output cold.jsonl --no-record --temperature 1 --kv-positions 300 --chunk 7
expect_same warm.jsonl cold.jsonl

# ---- what is recorded ----

expect_ok "$moetrace" check small.db --strict
expect_eq "requests" "$(sql small.db "
	select count(*), min(verdict), max(verdict), min(end_state), max(end_state),
		max(n_attempts) > 1, min(n_attempts) from request")" \
	"12|complete|complete|finished|finished|1|1"
expect_eq "retracts" "$(sql small.db "select sum(n_attempts - 1) from request")" "$n_retracts"

# The last attempt is what the unlimited run computed; an earlier one is its beginning.
for db in plain small; do
	sql $db.db "select external_id, position, layer, topk_rank, expert, weight from routed_expert
		as e join request as r using (request_id)
		where e.attempt = r.n_attempts - 1 order by 1, 2, 3, 4" >$db.experts
done
[ -s plain.experts ] || fail "no experts"
expect_same plain.experts small.experts
sqlite3 -batch small.db "
	create temp table early as select r.request_id, p.attempt, sum(p.n_rows) as n_rows,
		min(p.first_position) as first from request as r join pass_request as p using (request_id)
		where p.attempt < r.n_attempts - 1 group by 1, 2;
	select 'attempts', count(*) > 0, max(first), min(n_rows) > 0 from early;
	create temp table again as select e.request_id, e.attempt, e.position, e.layer, e.topk_rank,
		e.expert, e.weight from routed_expert as e join early using (request_id);
	create index again_key on again (request_id, position, layer, topk_rank, attempt);
	select 'early rows', count(*) > 1000, sum(l.expert = f.expert and l.weight = f.weight) = count(*)
		from again as f join request as r using (request_id)
		join again as l on l.request_id = f.request_id and l.position = f.position and
			l.layer = f.layer and l.topk_rank = f.topk_rank and l.attempt = r.n_attempts - 1
		where f.attempt < r.n_attempts - 1;" >facts
expect_eq "facts" "$(cat facts)" "attempts|1|0|1
early rows|1|1"

# ---- abort ----

expect_ok "$@" --text-output short.jsonl -o short.db --abort-after 10 --kv-positions 300
expect_match out '^served +12 of 12 requests'
expect_match out '^aborted +[1-9][0-9]* requests'
expect_ok "$moetrace" check short.db --strict
expect_eq "ends" "$(sql short.db "
	select distinct end_state, verdict, n_positions - prompt_positions from request")" \
	"aborted|complete|9"
expect_eq "finish reasons" "$(grep -c '"finish_reason":"abort"' short.jsonl)" 12

# ---- what cannot work ----

expect_error 1 "workload: line [0-9]+: the request alone may need [0-9]+ positions, the KV cache has 20; raise --kv-positions" \
	"$@" -o bad.db --kv-positions 20
expect_absent bad.db
