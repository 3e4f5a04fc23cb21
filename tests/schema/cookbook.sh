# SPDX-License-Identifier: MIT
#
# Every query of docs/cookbook.md returns rows without an error: all of them with the functions
# linked in, those that need none also in a stock sqlite3. On a synthetic trace, where the rows have to be
# those of cookbook.txt, and on a recorded file, where some have nothing to find. MOETRACE_COOKBOOK_DB
# names another file to run them on; MOETRACE_GOLDEN_OUT a folder to write cookbook.txt to.

. "$MOETRACE_SRCDIR/tests/support/lib.sh"

runner=$MOETRACE_BUILDDIR/tests/schema/sql_runner
trace=${MOETRACE_COOKBOOK_DB:-$tmp/domains.db}
[ -n "${MOETRACE_COOKBOOK_DB:-}" ] ||
	expect_ok "$MOETRACE_BUILDDIR/tests/schema/make_trace" domains "$trace"

awk -v folder="$tmp" '
	/^## / { title = substr($0, 4) }
	/^```sql$/ { file = sprintf("%s/recipe%02d.sql", folder, ++n); print "-- " title >file; next }
	/^```/ { if (file) close(file); file = ""; next }
	file { print >file }
' "$MOETRACE_SRCDIR/docs/cookbook.md"

n=0
for recipe in "$tmp"/recipe*.sql; do
	title=$(sed -n '1s/^-- //p' "$recipe")
	n=$((n + 1))
	expect_ok "$runner" "$trace" "$(cat "$recipe")"
	[ -s "$tmp/out" ] || fail "no rows: $title"
	{
		echo "## $title"
		cat "$tmp/out"
	} >>"$tmp/cookbook.txt"
	if ! grep -q '^-- needs: moetrace_sql$' "$recipe" && command -v sqlite3 >/dev/null 2>&1; then
		cp "$tmp/out" "$tmp/linked"
		expect_ok sqlite3 -batch -readonly -cmd 'PRAGMA trusted_schema = OFF' "$trace" ".read '$recipe'"
		expect_same "$tmp/out" "$tmp/linked"
	fi
done
[ "$n" -ge 30 ] || fail "only $n recipes found"
[ -z "${MOETRACE_COOKBOOK_DB:-}" ] || exit 0
[ -z "${MOETRACE_GOLDEN_OUT:-}" ] || cp "$tmp/cookbook.txt" "$MOETRACE_GOLDEN_OUT/cookbook.txt"
expect_same "$tmp/cookbook.txt" "$MOETRACE_SRCDIR/tests/schema/cookbook.txt"

expect_ok "$MOETRACE_BUILDDIR/tests/cli/make_hard" "$tmp/hard.db"
for recipe in "$tmp"/recipe*.sql; do
	expect_ok "$runner" "$tmp/hard.db" "$(cat "$recipe")"
done
