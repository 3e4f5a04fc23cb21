# SPDX-License-Identifier: MIT
#
# The comparison of two traces in examples/llama.cpp counts what differs: a trace and itself, then
# a copy in which one row has two experts swapped and another one an expert that the first file
# does not have there.

. "$MOETRACE_SRCDIR/tests/support/lib.sh"
need_command sqlite3

example=$MOETRACE_SRCDIR/examples/llama.cpp
cat >"$tmp/load.jsonl" <<'END'
{"id": "p", "prompt": "static int read_all(int fd)", "max_new_tokens": 4}
END
run "$moetrace" run --model "$tinymoe/tinymoe.safetensors" --workload "$tmp/load.jsonl" \
	-o "$tmp/one.db" --threads 1
if [ "$status" -ne 0 ]; then
	grep -q libyajl-dev "$tmp/err" || fail "moetrace run failed"
	skip "built without libyajl: the traces to compare cannot be made"
fi
compare() {
	sqlite3 "$tmp/one.db" "ATTACH '$1' AS other" ".read '$example/compare.sql'" | tail -n 1
}
cp "$tmp/one.db" "$tmp/two.db"
expect_eq "a trace against itself" "$(compare "$tmp/two.db")" 'all|162|162|162|0||||0.0'

# Of the first row ranks 0 and 1 change places; the second gets another expert at rank 7.
sqlite3 "$tmp/two.db" "
	UPDATE topk SET topk_ids = CAST(substr(topk_ids, 2, 1) || substr(topk_ids, 1, 1) ||
		substr(topk_ids, 3) AS BLOB) WHERE topk_id = 1;
	UPDATE topk SET topk_ids = CAST(substr(topk_ids, 1, 15) || (SELECT byte FROM byte
		WHERE instr(substr(topk.topk_ids, 9, 8), byte) = 0 AND value < 64 LIMIT 1) ||
		substr(topk_ids, 17) AS BLOB) WHERE topk_id = 1;" || fail "the copy could not be changed"
compare "$tmp/two.db" >"$tmp/changed"
expect_match "$tmp/changed" '^all\|162\|160\|161\|1\|7\|'
