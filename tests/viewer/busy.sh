# SPDX-License-Identifier: MIT
#
# How a trace is is told while as many questions are being answered as may be at once.

. "$MOETRACE_SRCDIR/tests/support/lib.sh"
. "$MOETRACE_SRCDIR/tests/viewer/view.sh"
need_server

"$MOETRACE_BUILDDIR/tests/schema/make_trace" mixed "$tmp/mixed.db" || fail "make_trace"
view_start "$tmp/mixed.db"

# are_running N: so many questions are answered now.
are_running() {
	answered 200 GET "${base}api/0/progress"
	[ "$(grep -o '"question":"query"' "$tmp/body" | wc -l)" -eq "$1" ]
}

askers=
for i in 1 2 3 4 5; do
	"$ask" "$port" POST "${base}api/0/query" -d "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL
		SELECT x + 1 FROM c) SELECT count(*) FROM c" >/dev/null 2>&1 &
	askers="$askers $!"
done
await "five questions at once" "$view_pid" "$tmp/body" are_running 5
for i in 1 2 3; do
	answered 200 GET "${base}api/0/state"
	expect_match "$tmp/body" '"state":"still"'
done
are_running 5 || fail "a question was over before"

# The connection of that is none of those that questions wait for.
"$ask" "$port" POST "${base}api/0/query" -d "SELECT 41 + 1" >"$tmp/late" 2>&1 &
late=$!
for asker in $askers; do
	kill "$asker"
	wait "$asker" 2>/dev/null || true
done
wait "$late" || fail "a question that waited for one of five got no answer"
expect_match "$tmp/late" '42'
view_end
