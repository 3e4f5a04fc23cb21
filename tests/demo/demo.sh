# SPDX-License-Identifier: MIT
#
# The demo, whole: all requests are complete, the file is sound and small, the text does not
# depend on recording, a request's experts do not depend on the company that it was served
# in, and the routing prefers domains.

. "$MOETRACE_SRCDIR/tests/support/lib.sh"
need_plain_build
need_command sqlite3

model=$tinymoe/tinymoe.safetensors
db=$tmp/demo.db

serve() {
	run "$moetrace" run --model "$model" "$@"
	if grep -q libyajl-dev "$tmp/err"; then
		skip "built without a JSON parser"
	fi
	[ "$status" -eq 0 ] || fail "exit status $status: run $*"
}

serve --workload "$tinymoe/workload.jsonl" --record-tokens --text-output "$tmp/on.jsonl" -o "$db"
serve --workload "$tinymoe/workload.jsonl" --no-record --text-output "$tmp/off.jsonl"
expect_same "$tmp/on.jsonl" "$tmp/off.jsonl"

expect_ok "$moetrace" query "$db" \
	"select count(*) from request_summary where verdict = 'complete'"
expect_out 64
expect_ok "$moetrace" check "$db"
expect_ok "$moetrace" check --strict "$db"

# Every forwarded token has 8 experts in each of 6 layers, by the view and by the function.
rows=$(sqlite3 "$db" "select sum(n_rows) from pass")
expect_eq 'rows of requests' "$(sqlite3 "$db" "select sum(n_positions) from request")" "$rows"
expect_eq 'routed experts' "$(sqlite3 "$db" "select count(*) from routed_expert")" \
	"$((rows * 6 * 8))"
expect_eq 'decoded by the extension' \
	"$("$moetrace" query "$db" "select count(*) from moe_topk")" "$((rows * 6 * 8))"
expect_eq 'expert load' "$(sqlite3 "$db" "select sum(tokens) from expert_load")" \
	"$((rows * 6 * 8))"

# The file: at most 1.15 times the bytes of ids (one each) and weights (two), and 1 MB.
bytes=$(wc -c <"$db")
[ "$bytes" -le $((rows * 6 * 8 * 3 * 115 / 100 + 1000000)) ] || fail "$bytes bytes are too many"

# Each of some requests, served alone: the same experts and weights at every position.
for id in 0 1 2 17 40 63; do
	sed -n "$((id + 1))p" "$tinymoe/workload.jsonl" >"$tmp/one.jsonl"
	serve --workload "$tmp/one.jsonl" --chunk 7 --threads 1 -f -o "$tmp/one.db"
	for file in "$db:$id" "$tmp/one.db:0"; do
		expect_ok "$moetrace" requests "${file%:*}" "${file##*:}" --format json
		sqlite3 :memory: "
			select t.value ->> 'position', l.value ->> 'layer',
				l.value ->> 'experts', l.value ->> 'weights'
			from json_each(cast(readfile('$tmp/out') as text), '\$.tokens') as t,
				json_each(t.value, '\$.layers') as l" >"$tmp/experts.${file##*/}"
	done
	[ -s "$tmp/experts.one.db:0" ] || fail "no experts for request $id"
	expect_same "$tmp/experts.demo.db:$id" "$tmp/experts.one.db:0"
done

# Routing is learnt: for every domain some expert gets more than twice its share from it.
expect_eq 'domains with an expert of their own' "$("$moetrace" query "$db" "
	with routed as (select layer_id, expert, a.value as domain, count(*) as n from moe_topk as t
		join request_attribute as a on a.request_id = t.request_id and a.key = 'domain'
		group by 1, 2, 3),
	share as (select layer_id, expert, domain, 1.0 * n / sum(n) over (partition by layer_id, expert)
		as share, sum(n) over (partition by layer_id, domain) * 1.0
		/ sum(n) over (partition by layer_id) as of_all,
		sum(n) over (partition by layer_id, expert) as tokens from routed)
	select count(distinct domain) from share where share > 2 * of_all and tokens >= 200")" 5
