# SPDX-License-Identifier: MIT
#
# Who may ask the page's server, and what SQL may do there.

. "$MOETRACE_SRCDIR/tests/support/lib.sh"
. "$MOETRACE_SRCDIR/tests/viewer/view.sh"
need_server
need_command sqlite3

"$MOETRACE_BUILDDIR/tests/schema/make_trace" mixed "$tmp/mixed.db" || fail "make_trace"
cp "$tmp/mixed.db" "$tmp/before.db"
echo secret >"$tmp/secret"
view_start "$tmp/mixed.db"

# ---- only this machine, only with the token ----
case $address in
http://127.0.0.1:*/[0-9a-f]*/) ;;
*) fail "the address is $address" ;;
esac
expect_eq "characters of the token" "${#base}" 34
listen=$(awk -v port="$(printf '%04X' "$port")" '$4 == "0A" && $2 ~ ":" port "$" { print $2 }' /proc/net/tcp /proc/net/tcp6)
expect_eq "where it listens" "$listen" "0100007F:$(printf '%04X' "$port")"

answered 200 GET "$base"
expect_match "$tmp/out" '^Content-Security-Policy: default-src .none.;.*script-src .self.;.*frame-ancestors .none.'
for header in 'X-Content-Type-Options: nosniff' 'X-Frame-Options: DENY' 'Referrer-Policy: no-referrer' \
	'Cross-Origin-Resource-Policy: same-origin' 'Cache-Control: no-store' 'Content-Type: text/html'; do
	grep -q "^$header" "$tmp/out" || fail "no $header"
done
expect_no_match "$tmp/out" '^Access-Control'
answered 200 GET "${base}app.js"
answered 200 GET "${base}api/traces"
answered 403 GET /
answered 403 GET /api/traces
answered 403 GET /favicon.ico
answered 403 GET "/$(printf '0%.0s' $(seq 32))/api/traces"
answered 403 GET "${base%?????}ffff/api/traces"
answered 403 GET "/${base}api/traces"
answered 403 GET "$(echo "$base" | tr a-f A-F | sed 's/^\/\([0-9]*\)\/$/\/x\1\//')api/traces"
# The body of somebody who is refused is not waited for.
answered 403 POST /query 'Content-Length: 100000000'

# ---- names that are rebound, other sites ----
answered 200 GET "${base}api/traces" 'Host: localhost:9999'
answered 200 GET "${base}api/traces" 'Host: [::1]:9999'
for host in evil.example "127.0.0.1.evil.example:$port" "localhost.evil.example" "evil.example:$port" \
	"127.0.0.1:$port@evil.example" "localhost:" "localhost:80x" "0.0.0.0:$port" "127.0.0.2"; do
	answered 403 GET "${base}api/traces" "Host: $host"
done
answered 403 GET "${base}api/traces" Host:
answered 200 GET "${base}api/traces" "Origin: http://127.0.0.1:$port"
for origin in http://evil.example "https://127.0.0.1:$port" http://127.0.0.1:1 null "http://localhost:$port" \
	"http://127.0.0.1:$port.evil.example"; do
	answered 403 GET "${base}api/traces" "Origin: $origin"
	answered 403 POST "${base}api/0/query" "Origin: $origin" -d 'SELECT 1'
done
answered 403 GET "${base}api/traces" 'Sec-Fetch-Site: cross-site'
answered 403 GET "${base}api/traces" 'Sec-Fetch-Site: same-site'
answered 200 GET "${base}api/traces" 'Sec-Fetch-Site: same-origin'
answered 200 GET "$base" 'Sec-Fetch-Site: cross-site'

# ---- addresses that mean files elsewhere ----
for path in ../../secret ..%2f..%2fsecret %2e%2e/%2e%2e/etc/passwd ....//etc/passwd /etc/passwd \
	"file://$tmp/secret" app.js/../../secret viewer/dist/app.js api api/ \
	'api/0' 'api/0/' 'api/1/info' 'api/-1/info' 'api/0x0/info' 'api/99999999999999999999/info' \
	'api/0/../0/info' 'api/0/nothing' 'api/0/REPORT' 'api//info'; do
	answered 404 GET "$base$path"
	! grep -q secret "$tmp/body" || fail "$path shows a file"
done
answered 405 POST "${base}api/0/info" -d x
answered 405 GET "${base}api/0/query"
for method in PUT DELETE OPTIONS TRACE PATCH; do
	answered 405 $method "${base}api/traces"
done
answered 413 POST "${base}api/0/query" -d "SELECT 1 -- $(head -c 120000 /dev/zero | tr '\0' x)"
# Parameters are values, never SQL; too many are not taken.
answered 200 GET "${base}api/0/requests?like=%27%20OR%201%3D1--"
expect_match "$tmp/body" '"rows":\[\]'
answered 200 GET "${base}api/0/balance?recording=1%20OR%201"
expect_match "$tmp/body" '"rows":\[\]'
answered 200 GET "${base}api/0/balance?$(seq -f 'p%g=1&' -s '' 100)recording=1"

# ---- what SQL may do ----
query 200 'SELECT count(*) AS n FROM pass'
expect_eq "passes" "$(cat "$tmp/body")" "$(sqlite3 "$tmp/mixed.db" "SELECT printf('{\"columns\":[\"n\"],\"rows\":[[%d]],\"is_cut\":false}', count(*)) FROM pass")"
query 200 'WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c LIMIT 5) SELECT * FROM c;  -- end'
query 200 "SELECT name FROM pragma_table_info('pass')"
query 200 'SELECT count(*) FROM moe_topk'
query 200 'EXPLAIN QUERY PLAN SELECT * FROM pass'
refused=0
while read -r sql; do
	query 400 "$sql"
	expect_match "$tmp/body" '^\{"error":"'
	refused=$((refused + 1))
done <<END
DELETE FROM pass
UPDATE pass SET n_rows = 0
INSERT INTO meta VALUES ('a', 'b')
DROP TABLE pass
CREATE TABLE t (a)
CREATE TEMP TABLE t AS SELECT 1
CREATE VIRTUAL TABLE t USING fts5(a)
CREATE TEMP VIEW v AS SELECT 1
ALTER TABLE pass RENAME TO p
REPLACE INTO meta VALUES ('a', 'b')
VACUUM
VACUUM INTO '$tmp/copy.db'
REINDEX
ANALYZE
BEGIN IMMEDIATE
COMMIT
SAVEPOINT s
ATTACH '$tmp/other.db' AS other
ATTACH 'file:$tmp/other.db?mode=rwc' AS other
DETACH main
SELECT load_extension('$tmp/x.so')
SELECT writefile('$tmp/x', 'y')
SELECT readfile('$tmp/secret')
SELECT edit('x')
SELECT fts3_tokenizer('simple')
PRAGMA journal_mode=WAL
PRAGMA query_only=0
PRAGMA writable_schema=1
PRAGMA trusted_schema=1
PRAGMA temp_store_directory='$tmp'
PRAGMA user_version=7
PRAGMA mmap_size=100000
PRAGMA wal_checkpoint
PRAGMA temp_store=1
UPDATE sqlite_master SET sql = 'x'
DELETE FROM sqlite_master
INSERT INTO sqlite_schema VALUES (1, 2, 3, 4, 5)
SELECT 1; SELECT 2
SELECT 1; DELETE FROM pass
;
-- nothing
SELECT * FROM nothing
SELEC
SELECT zeroblob(1000000000)
SELECT replace(hex(zeroblob(30000000)), '0', '0000000000')
END
[ "$refused" -gt 40 ] || fail "only $refused statements were tried"
query 400 "$(printf 'SELECT %s1%s' "$(printf '(%.0s' $(seq 900))" "$(printf ')%.0s' $(seq 900))")"
expect_absent "$tmp/copy.db" "$tmp/other.db" "$tmp/x"
expect_same "$tmp/mixed.db" "$tmp/before.db"
expect_absent "$tmp/mixed.db-wal" "$tmp/mixed.db-journal"
query 200 'WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT x FROM c'
expect_match "$tmp/body" '\[10000\]\],"is_cut":true\}$'
view_end

# ---- what has no end is cut off, also when nobody waits for it any more ----
view_start "$tmp/mixed.db" --time-limit 1
endless='WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT count(*) FROM c'
query 408 "$endless"
query 408 'SELECT count(*) FROM moe_topk a, moe_topk b, moe_topk c'
view_end

# One whose asker goes away is ended long before its limit: all connections are free again.
view_start "$tmp/mixed.db"
runs_query() {
	answered 200 GET "${base}api/0/progress"
	grep -q '"question":"query"' "$tmp/body"
}
runs_nothing() {
	answered 200 GET "${base}api/0/progress"
	grep -q '^{"running":\[\]}$' "$tmp/body"
}
for _ in 1 2 3 4 5 6; do
	expect_ok "$ask" "$port" --hang "${base}api/0/query" "$endless"
done
query 200 'SELECT 1'
await "an end of what nobody waits for" "$view_pid" "$tmp/view-err" runs_nothing
# So is one that runs when the server ends.
"$ask" "$port" POST "${base}api/0/query" -d "$endless" >/dev/null &
asker=$!
await "a query under way" "$asker" - runs_query
view_end
wait "$asker"

# ---- many at once ----
view_start "$tmp/mixed.db"
expect_ok "$ask" "$port" --flood 1000 "${base}api/traces"
good=$(cut -d ' ' -f 1 "$tmp/out")
[ "$good" -ge 50 ] || fail "only $good of 1000 connections were answered"
answered 200 GET "${base}api/traces"
threads=$(sed -n 's/^Threads:[^0-9]*//p' "/proc/$view_pid/status")
[ "$threads" -le 262 ] || fail "$threads threads after 1000 connections"
# Those who say nothing keep nobody out for long.
expect_ok "$ask" "$port" --idle 500 "${base}api/traces"
view_end

echo "$refused statements were refused, $good of 1000 connections answered"
