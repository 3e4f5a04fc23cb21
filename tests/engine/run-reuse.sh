# SPDX-License-Identifier: MIT
#
# moetrace run --prefix-reuse: fewer rows go through the model, the text is the same, and so is what
# every request was routed to, in the rows of the file for what it computed and through the links for
# what it took over. With few KV positions a retracted request takes over what is left of itself.

. "$MOETRACE_SRCDIR/tests/support/lib.sh"
need_command sqlite3

model=$tinymoe/tinymoe.safetensors
cd "$tmp" || exit 99
need_json
cat >workload <<'END'
{"id": "a", "prompt": "static int count(const int *ids, int n)\n", "max_new_tokens": 12}
{"id": "b", "prompt": "static int count(const int *ids, int n)\n{\n\tint i;\n", "max_new_tokens": 9}
{"id": "c", "prompt": "void count(void)\n{\n\tint i;\n", "max_new_tokens": 20}
{"id": "d", "prompt": "static int count(long n)\n{\n", "max_new_tokens": 16}
END
# The prompts of the first two with what they generate: later parts of a conversation.
expect_ok "$moetrace" run --model "$model" --workload workload --no-record --text-output first.jsonl
sqlite3 -batch :memory: "select json_object('id', json_extract(value, '\$.id') || '-next', 'prompt',
		json_extract(value, '\$.prompt') || json_extract(value, '\$.text') || '; ',
		'max_new_tokens', 10)
	from json_each('[' || rtrim(replace(readfile('first.jsonl'), char(10), ','), ',') || ']')
	limit 2" >next
cat next >>workload

# serve NAME OPTIONS: NAME.db and NAME.jsonl.
serve() {
	serve_name=$1
	shift
	expect_ok "$moetrace" run --model "$model" --workload workload --repeat 2 \
		--text-output "$serve_name.jsonl" -o "$serve_name.db" "$@"
	mv out "$serve_name.out"
	expect_ok "$moetrace" check "$serve_name.db" --strict
}

# experts NAME: what each request was routed to in its last attempt, over the links.
experts() {
	sqlite3 -batch "$1.db" "select r.external_id, t.position, t.layer, hex(t.topk_ids),
			hex(t.topk_weights)
		from token_topk as t join request as r using (request_id)
		where t.attempt = r.n_attempts - 1 order by 1, 2, 3" >"$1.experts"
	[ -s "$1.experts" ] || fail "$1: no experts"
}

n_rows() {
	sql "$1.db" "select sum(n_rows) from pass"
}

# same_as_plain NAME: text and experts are those of the plain run; the sum of rows and of reused
# positions is its sum of rows; every position has a source, as the summary says.
same_as_plain() {
	experts "$1"
	expect_same plain.jsonl "$1.jsonl"
	expect_same plain.experts "$1.experts"
	n_reused=$(sed -n 's/^reused *\([0-9]*\) positions, by [0-9]* prefix hits.*/\1/p' "$1.out")
	[ -n "$n_reused" ] || fail "$1: nothing was reused"
	expect_eq "$1: links" "$(sql "$1.db" "select sum(n_positions), sum(source_request_id is null)
		from request_reuse")" "$n_reused|0"
	expect_eq "$1: verdicts" "$(sql "$1.db" "select distinct verdict, reasons from request")" \
		"complete|"
}

serve plain --batch 3 --chunk 17
experts plain
expect_no_match plain.out '^reused'
expect_eq "plain: links" "$(sql plain.db "select count(*) from request_reuse")" 0

serve reuse --batch 3 --chunk 17 --prefix-reuse
same_as_plain reuse
expect_eq "rows" "$(($(n_rows reuse) + n_reused))" "$(n_rows plain)"
[ "$(n_rows reuse)" -lt $(($(n_rows plain) * 2 / 3)) ] || fail "few rows were saved"
# A part of a conversation takes the one before it as it lies: more than its prompt, and what that
# one had itself taken over is linked to who computed it.
expect_eq "conversation" "$(sql reuse.db "
	select sum(u.n_positions) > max(s.prompt_positions), count(distinct u.source_request_id) > 0
	from request_reuse as u join request as r using (request_id)
		join request as s on s.request_id = u.source_request_id
	where r.external_id = 'a-next'")" "1|1"
expect_eq "chains" "$(sql reuse.db "
	select count(*) from request_reuse as u join request_reuse as v
		on v.request_id = u.source_request_id and v.attempt = u.source_attempt and
			v.first_position < u.first_position + u.n_positions and
			u.first_position < v.first_position + v.n_positions")" 0

# One slot alone is never copied: the recorder finds the source of all of them by their KV slots.
serve alone --batch 1 --prefix-reuse
same_as_plain alone
expect_eq "rows" "$(($(n_rows alone) + n_reused))" "$(n_rows plain)"

# ---- with retracts ----

serve small --batch 6 --chunk 11 --prefix-reuse --kv-positions 150
same_as_plain small
expect_match small.out '^retracts +[1-9]'

# Of prompts with nothing in common each takes over what is left of itself, an earlier attempt.
mv workload shared
printf '{"id": "%s", "prompt": "%s", "max_new_tokens": %d}\n' \
	x 'for (i = 0; i < n; i++)' 40 y 'The first line says what.' 12 z 'struct ring *ring;' 30 >workload
serve apart --batch 3 --chunk 17
experts apart
mv apart.experts plain.experts
mv apart.jsonl plain.jsonl
serve own --batch 3 --chunk 17 --prefix-reuse --kv-positions 90
same_as_plain own
expect_match own.out '^retracts +[1-9]'
expect_eq "own prefixes" "$(sql own.db "select count(*) > 0, min(source_attempt < attempt)
	from request_reuse where source_request_id = request_id")" "1|1"
mv shared workload

# ---- aborted, and in another mode ----

serve short --batch 3 --chunk 17 --prefix-reuse --abort-after 5 --kv-positions 150
expect_eq "ends" "$(sql short.db "select distinct end_state, verdict from request")" \
	"aborted|complete"
serve counts --batch 3 --chunk 17 --prefix-reuse --mode per_pass
expect_eq "rows" "$(n_rows counts)" "$(n_rows reuse)"

expect_error 2 "--prefix-reuse is of --routing model" "$moetrace" run --model "$model" \
	--workload workload --no-record --prefix-reuse --routing uniform
expect_error 2 "--prefix-reuse and --lockstep exclude each other" "$moetrace" run --model "$model" \
	--workload workload --no-record --prefix-reuse --lockstep
