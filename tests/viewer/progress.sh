# SPDX-License-Identifier: MIT
#
# How far a question is that the server works on: told while it runs, gone when nobody waits for it.

. "$MOETRACE_SRCDIR/tests/support/lib.sh"
. "$MOETRACE_SRCDIR/tests/viewer/view.sh"
need_server

"$MOETRACE_BUILDDIR/tests/schema/make_trace" mixed "$tmp/mixed.db" || fail "make_trace"
view_start "$tmp/mixed.db"
answered 200 GET "${base}api/0/progress"
expect_match "$tmp/body" '^{"running":\[\]}$'

# progress_wait REGEX: until it is told so.
progress_wait() {
	await "progress that matches '$1'" "$view_pid" "$tmp/body" progress_is "$1"
}
progress_is() {
	answered 200 GET "${base}api/0/progress"
	grep -Eq -e "$1" "$tmp/body"
}

# The functions go over all passes again and again.
"$ask" "$port" POST "${base}api/0/query" -d "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c)
	SELECT count(*) FROM c CROSS JOIN moe_topk AS t WHERE t.expert >= 0" >/dev/null 2>&1 &
asker=$!
progress_wait '"question":"query","ms":[0-9]+,"part":1,"n_parts":1,"share":0\.0'
progress_wait '"question":"query","ms":[0-9]+,"part":1,"n_parts":1,"share":0\.[5-9]'
kill "$asker"
wait "$asker" 2>/dev/null || true
progress_wait '^{"running":\[\]}$'
view_end
