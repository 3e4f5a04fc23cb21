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

# Names that mean something to SQLite, and nothing to us.
(
	cd "$tmp" || exit 1
	for name in file:a.db :memory: 'file:b.db?mode=memory' 'c.db?vfs=none' ' d.db'; do
		expect_ok "$moetrace" run --model "$model" --workload workload.jsonl -o "$name" \
			--text-output "$name.jsonl"
		expect_file "./$name" "./$name.jsonl"
		expect_ok "$moetrace" check "./$name"
	done
) || exit 1

# Standard output that is full is one line, in each format.
for format in table json; do
	status=0
	"$moetrace" run --model "$model" --workload "$tmp/workload.jsonl" --no-record \
		--format $format >/dev/full 2>"$tmp/err" || status=$?
	expect_eq 'exit status on a full stdout' "$status" 1
	expect_eq 'lines on stderr' "$(wc -l <"$tmp/err")" 1
	expect_match "$tmp/err" 'standard output: No space left'
done

# On a terminal there is a line of progress, which is erased before the summary.
if script -qec true /dev/null >/dev/null 2>&1; then
	export moetrace model tinymoe
	# shellcheck disable=SC2016 # expanded by the inner shell
	expect_ok script -qec '"$moetrace" run --model "$model" --no-record --threads 1 \
		--workload "$tinymoe/workload.jsonl"' /dev/null
	escape=$(printf '\033')
	tr '\r' '\n' <"$tmp/out" >"$tmp/lines"
	expect_match "$tmp/lines" "^[0-9]+ of 64 requests done, [0-9]+ running, [0-9]+ tokens generated, [0-9]+ rows/s$escape\\[K"
	expect_match "$tmp/lines" "^$escape\\[Kserved +64 of 64 requests"
	expect_eq 'lines of a terminal' "$(grep -c 'requests done' "$tmp/out")" 1
else
	echo "not tested: the line of progress (script is not there, or has no terminal to give)"
fi
