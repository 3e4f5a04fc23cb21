# SPDX-License-Identifier: MIT
#
# What `moetrace run` writes: the text output in the order of the workload, with
# the ids' types; the same text for every batch, chunk and thread count, with and
# without recording; the summary in its formats.

. "$MOETRACE_SRCDIR/tests/support/lib.sh"

model=$tinymoe/tinymoe.safetensors
head -n 12 "$tinymoe/workload.jsonl" >"$tmp/workload.jsonl"

# serve NAME OPTION...: the text goes to $tmp/NAME.jsonl.
serve() {
	name=$1
	shift
	run "$moetrace" run --model "$model" --workload "$tmp/workload.jsonl" \
		--text-output "$tmp/$name.jsonl" "$@"
	if grep -q libyajl-dev "$tmp/err"; then
		skip "built without a JSON parser"
	fi
	[ "$status" -eq 0 ] || fail "exit status $status: run $*"
	[ ! -s "$tmp/err" ] || fail "words on stderr without a terminal: run $*"
}

serve recorded -o "$tmp/a.db"
expect_file "$tmp/a.db"
expect_absent "$tmp/a.db-wal" "$tmp/a.db-shm" "$tmp/a.db-journal"
expect_match "$tmp/out" '^served +12 of 12 requests'
expect_match "$tmp/out" '^losses +none$'
expect_match "$tmp/out" "^file +$tmp/a.db, $(wc -c <"$tmp/a.db") bytes\$"
expect_eq 'lines of text' "$(wc -l <"$tmp/recorded.jsonl")" 12
expect_eq 'ids in order' "$(sed 's/^{"id":\([0-9]*\),.*/\1/' "$tmp/recorded.jsonl" | tr '\n' ' ')" \
	'0 1 2 3 4 5 6 7 8 9 10 11 '
expect_no_match "$tmp/recorded.jsonl" '"finish_reason":"(stop|aborted)"'

serve plain --no-record
expect_same "$tmp/plain.jsonl" "$tmp/recorded.jsonl"
expect_no_match "$tmp/out" '^(recorded|losses|file)'
serve single --no-record --batch 1 --chunk 5 --threads 1
expect_same "$tmp/single.jsonl" "$tmp/recorded.jsonl"
serve wide -o "$tmp/b.db" --batch 64 --chunk 4096 --threads 3
expect_same "$tmp/wide.jsonl" "$tmp/recorded.jsonl"

# -f replaces, and leaves no temporary file.
expect_ok "$moetrace" run --model "$model" --workload "$tmp/workload.jsonl" \
	--text-output "$tmp/wide.jsonl" -o "$tmp/b.db" -f --record-tokens
expect_same "$tmp/wide.jsonl" "$tmp/recorded.jsonl"
expect_eq 'temporary files' "$(find "$tmp" -name '*.tmp')" ''

# -o beside --no-record is named and not written.
expect_ok "$moetrace" run --model "$model" --workload "$tmp/workload.jsonl" --no-record \
	-o "$tmp/c.db"
expect_absent "$tmp/c.db"
expect_match "$tmp/err" 'c.db is not written'

# Sampling: the seed chooses, the batch does not; a hot draw is not always UTF-8.
serve warm --no-record --temperature 4 --seed 7
serve warm_single --no-record --temperature 4 --seed 7 --batch 1 --chunk 9
expect_same "$tmp/warm.jsonl" "$tmp/warm_single.jsonl"
serve other --no-record --temperature 4 --seed 8
! cmp -s "$tmp/warm.jsonl" "$tmp/other.jsonl" || fail "another seed gave the same text"
expect_match "$tmp/warm.jsonl" '"text":"[^"]*�.*","text_hex":"([0-9a-f]{2})+","finish_reason"'
expect_no_match "$tmp/recorded.jsonl" 'text_hex'

# Ids keep their types; the stop byte is the last of the text.
cat >"$tmp/workload.jsonl" <<'END'
{"prompt": "The router ", "max_new_tokens": 40, "id": "s-1"}

{"prompt": "for (int i", "max_new_tokens": 40, "id": -5}
{"prompt": "caf\u00e9 \"x\"\n", "max_new_tokens": 1}
END
serve stopped --no-record --stop-byte 32
expect_match "$tmp/stopped.jsonl" '^\{"id":"s-1","prompt":"The router ","text":"[^ ]* ","finish_reason":"stop"\}$'
expect_match "$tmp/stopped.jsonl" '^\{"id":-5,'
expect_match "$tmp/stopped.jsonl" '^\{"id":3,"prompt":"café \\"x\\"\\n","text":"'

# A context too small for max_new_tokens ends a request with length.
serve short --no-record --context 12
expect_match "$tmp/short.jsonl" '^\{"id":"s-1","prompt":"The router ","text":"..","finish_reason":"length"\}$'

# Formats for programs.
serve json -o "$tmp/d.db" --format json
expect_match "$tmp/out" '"n_done":3,'
expect_match "$tmp/out" '"dropped_passes":0,'
expect_match "$tmp/out" '"path":"'
serve csv --no-record --format csv
expect_match "$tmp/out" '^n_requests,n_done,'
expect_match "$tmp/out" '^3,3,'
