# SPDX-License-Identifier: MIT
#
# A trace whose contents are meant to harm who looks at it, and what --redact leaves out.

. "$MOETRACE_SRCDIR/tests/support/lib.sh"
. "$MOETRACE_SRCDIR/tests/viewer/view.sh"
need_server
need_command sqlite3

"$MOETRACE_BUILDDIR/tests/schema/make_trace" mixed "$tmp/hostile.db" || fail "make_trace"
cp "$tmp/hostile.db" "$tmp/sound.db"
sqlite3 "$tmp/hostile.db" <<'END' || fail "sqlite3"
PRAGMA writable_schema = 1;
UPDATE request SET external_id = '</script><script>alert(1)</script>' WHERE request_id = 1;
UPDATE request SET external_id = CAST(x'ff00fe22' AS TEXT) WHERE request_id = 2;
UPDATE request SET external_id = printf('%.*c', 65536, 'x') WHERE request_id = 3;
UPDATE request SET external_id = x'00010203' WHERE request_id = 4;
UPDATE request SET prompt_positions = 'many' WHERE request_id = 5;
UPDATE model SET name = '<img src=x onerror=alert(1)>';
UPDATE layer SET n_experts = 1e300 WHERE layer_id = 1;
UPDATE layer SET layer = -5 WHERE layer_id = 2;
UPDATE pass SET begin_ns = 'soon' WHERE pass_id = 1;
UPDATE pass SET end_ns = 9223372036854775807 WHERE pass_id = 2;
UPDATE topk SET topk_ids = x'' WHERE topk_id = 1;
UPDATE expert_load_window SET expert = 70000 WHERE expert = 0;
UPDATE expert_load_window SET decode_tokens = -1 WHERE expert = 1;
DROP VIEW layer_balance;
CREATE VIEW layer_balance AS WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c)
	SELECT x AS recording_id, load_extension('x') AS layer_id FROM c;
DROP VIEW loss;
CREATE VIEW loss AS SELECT * FROM loss;
CREATE TRIGGER t AFTER INSERT ON pass BEGIN SELECT 1; END;
END
view_start "$tmp/hostile.db" "$tmp/sound.db"

# Every question is answered, with rows or a reason; the server lives.
questions="timeline $(cd "$MOETRACE_SRCDIR/schema/questions" && ls | sed 's/\.sql$//')"
parameters='recording=1&model=1&layer_id=1&expert=0&request=1&other=2&attempt=0&first=0&last=100&merge=2&pass=1&kernel_id=1&from=0&until=1000000000&key=domain&value=c'
for question in $questions; do
	[ "$question" != balance ] || continue
	"$ask" "$port" GET "${base}api/0/$question?$parameters" >"$tmp/out"
	case $(head -n 1 "$tmp/out") in
	200 | 400) ;;
	*) fail "$question: $(head -n 1 "$tmp/out")" ;;
	esac
	answered 200 GET "${base}api/1/$question?$parameters"
done
answered 400 GET "${base}api/0/balance?recording=1"
expect_match "$tmp/body" 'unsafe use of load_extension|not authorized|refused'
answered 200 GET "${base}api/0/requests"
expect_match "$tmp/body" '</script><script>alert'
expect_match "$tmp/body" 'xxxxxxxxxx'
expect_match "$tmp/out" '^Content-Type: application/json'
expect_match "$tmp/out" '^X-Content-Type-Options: nosniff'
sed -n '$p' "$tmp/body" >"$tmp/json"
sqlite3 :memory: "SELECT json_array_length(readfile('$tmp/json'), '\$.rows')" >"$tmp/n" || fail "no JSON"
expect_eq "requests" "$(cat "$tmp/n")" 12
answered 200 GET "${base}api/1/info"
view_end

# ---- --redact ----
sqlite3 "$tmp/sound.db" "UPDATE process SET host = 'secrethost', executable = '/secretprogram';
	INSERT INTO request_token VALUES (1, 0, 424242);
	INSERT INTO meta VALUES ('opt.output', 'secretoption');
	UPDATE request SET external_id = 'secretid'; UPDATE request_attribute SET value = 'secretvalue'" ||
	fail "sqlite3"
view_start "$tmp/sound.db" --redact
for question in $questions; do
	answered 200 GET "${base}api/0/$question?$parameters"
	! grep -aE 'secret|424242' "$tmp/body" || fail "$question tells what is redacted"
done
for sql in 'SELECT * FROM request' 'SELECT * FROM request_summary' 'SELECT * FROM request_token' \
	'SELECT * FROM request_attribute' 'SELECT * FROM process' 'SELECT * FROM meta' \
	"SELECT count(*) AS secretcount FROM request WHERE external_id GLOB '*id'" \
	'SELECT max(external_id) FROM (SELECT * FROM request)' "SELECT token_id + 0 FROM request_token"; do
	query 200 "$sql"
	! grep -E 'secret[a-bd-z]|424242' "$tmp/body" || fail "$sql tells what is redacted"
done
expect_no_match "$tmp/body" "$tmp"
answered 200 GET "${base}api/traces"
expect_no_match "$tmp/body" "$tmp"
view_end

# ---- what cannot be served ----
expect_error 3 'nothing.db: no such file' "$moetrace" view "$tmp/nothing.db"
expect_error 1 'is not an SQLite file' "$moetrace" view "$tmp/sound.db" "$MOETRACE_SRCDIR/README.md"
expect_error 2 'which FILE' "$moetrace" view
expect_error 2 'port' "$moetrace" view --port 0 "$tmp/sound.db"
view_start "$tmp/sound.db"
expect_error 1 "cannot listen on 127.0.0.1, port $port" "$moetrace" view --port "$port" "$tmp/sound.db"
view_end
