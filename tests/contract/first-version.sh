# SPDX-License-Identifier: MIT
#
# A program that was built with the headers of the first version records with the library of
# today; and those headers still say what today's say: no enumerator has another value.

. "$MOETRACE_SRCDIR/tests/support/lib.sh"
need_command sqlite3

expect_ok "$MOETRACE_BUILDDIR/tests/contract/first_caller" "$tmp/first.db"
expect_out '1 1 6 0'
expect_eq "the request" "$(sql "$tmp/first.db" \
	"SELECT verdict, n_positions, n_passes, prefill_rows FROM request_summary")" 'complete|6|2|6'
expect_eq "the experts" "$(sql "$tmp/first.db" \
	"SELECT group_concat(expert, ' ') FROM (SELECT expert FROM routed_expert
	 WHERE layer = 4 AND position < 3 ORDER BY position, topk_rank)")" '1 2 3 4 5 6'
expect_eq "the layers" "$(sql "$tmp/first.db" \
	"SELECT count(DISTINCT layer), sum(weight = 0.75) FROM routed_expert")" '2|8'
expect_eq "misuse and losses" "$(sql "$tmp/first.db" \
	"SELECT (SELECT count(*) FROM gap) + (SELECT count(*) FROM diagnostic)")" 0
expect_ok "$moetrace" check "$tmp/first.db"

# enumerators OPTION: every enumerator of a header with its value.
enumerators() {
	printf '#include <moetrace/moetrace.h>\n' |
		$MOETRACE_CC -E -P "$@" -x c - | tr '\n\t' '  ' | grep -oE 'enum moetrace_[a-z_]+ \{[^}]*\}' |
		sed 's/enum[^{]*{//; s/}//' | tr ',' '\n' | tr -d ' ' | grep . | LC_ALL=C sort
}
enumerators "-I$MOETRACE_SRCDIR/tests/contract/first" >"$tmp/then"
enumerators "-I$MOETRACE_BUILDDIR/libtrace/include" "-I$MOETRACE_SRCDIR/libtrace/include" >"$tmp/now"
expect_match "$tmp/then" '^MOETRACE_PHASE_VERIFY=4$'
LC_ALL=C comm -23 "$tmp/then" "$tmp/now" >"$tmp/changed"
[ ! -s "$tmp/changed" ] || fail "an enumerator changed: $(tr '\n' ' ' <"$tmp/changed")"
