# SPDX-License-Identifier: MIT
#
# A file that changes under the server is said to have changed, and is not answered from; values are
# what they were written as; what belongs to another recording is not in an answer about one.

. "$MOETRACE_SRCDIR/tests/support/lib.sh"
. "$MOETRACE_SRCDIR/tests/viewer/view.sh"
. "$MOETRACE_SRCDIR/tests/cli/trace.sh"
need_server
need_json

make_sound "$tmp/sound.db"
change "$tmp/sound.db" "INSERT OR REPLACE INTO request_attribute VALUES (1, 'user', '007'), (2, 'user', '7');
	UPDATE request SET external_id = '1.50' WHERE request_id = 1;
	UPDATE request SET external_id = '1.5' WHERE request_id = 2;
	UPDATE pass SET device_id = (SELECT min(device_id) FROM device), end_ns = end_ns + 59000000000
		WHERE pass_id = (SELECT min(pass_id) FROM pass_layer WHERE selected_ns IS NOT NULL)"

json() {
	sqlite3 :memory: "SELECT json_extract(readfile('$tmp/body'), '$1')"
}

# n_rows: of the arrays in $tmp/body.
n_rows() {
	grep -ao '"layer_id","u16",[0-9]*' "$tmp/body" | sed 's/.*,//'
}

# gone WORD STATE: no question is answered any more, and each says why.
gone() {
	for question in info 'timeline?recording=1&width=100' 'load?recording=1&model=1'; do
		answered 410 GET "${base}api/0/$question"
		expect_match "$tmp/body" "x.db: was $1"
	done
	query 410 'SELECT count(*) FROM pass'
	expect_match "$tmp/body" "x.db: was $1"
	answered 200 GET "${base}api/0/state"
	expect_eq "state" "$(json '$.state')" "$2"
}

# begin: serves x.db, asked once.
begin() {
	cp "$tmp/sound.db" "$tmp/x.db"
	view_start "$tmp/x.db"
	answered 200 GET "${base}api/0/timeline?recording=1&width=100"
	query 200 'SELECT count(*) FROM pass'
}

# ---- values ----
begin
load='api/0/load_attribute?recording=1&model=1&key=user&value'
for value in 007 7; do
	answered 200 GET "${base}$load=$value"
	expect_eq "rows of user $value" "$(n_rows)" "$("$moetrace" query "$tmp/x.db" "SELECT count(*) FROM (SELECT DISTINCT layer_id, expert, phase FROM moe_topk
		WHERE recording_id = 1 AND model_id = 1 AND request_id IN
		(SELECT request_id FROM request_attribute WHERE key = 'user' AND value = '$value'))")"
done
for like in 1.50 1.5; do
	answered 200 GET "${base}api/0/requests?recording=1&like=$like"
	expect_eq "requests like $like" "$(sqlite3 :memory: "SELECT json_array_length(readfile('$tmp/body'), '\$.rows')")" \
		"$(sql "$tmp/x.db" "SELECT count(*) FROM request WHERE recording_id = 1 AND instr(external_id, '$like')")"
done

# ---- another recording ----
request=$(sql "$tmp/x.db" 'SELECT min(request_id) FROM request WHERE recording_id = 1')
answered 200 GET "${base}api/0/load_request?request=$request&recording=1&model=1"
[ "$(n_rows)" -gt 0 ] || fail "the request selected nothing"
answered 200 GET "${base}api/0/load_request?request=$request&recording=2&model=1"
expect_eq "rows of a request of another recording" "$(n_rows)" 0
pass=$(sql "$tmp/x.db" 'SELECT min(pass_id) FROM pass WHERE recording_id = 1')
answered 200 GET "${base}api/0/pass?pass=$pass&recording=1"
expect_eq "pass" "$(json '$.summary.rows[0][0]')" "$pass"
answered 200 GET "${base}api/0/pass?pass=$pass&recording=2"
expect_eq "a pass of another recording" "$(json '$.summary.rows')" '[]'

# ---- the last layer of a pass whose end the host told late ----
answered 200 GET "${base}api/0/selection?recording=1&from=0&until=90000000000000"
column=$(sqlite3 :memory: "SELECT key FROM json_each(readfile('$tmp/body'), '$.layers.columns') WHERE value = 'n_open'")
expect_eq "layers without a length" "$(sqlite3 :memory: "SELECT sum(json_extract(value, '\$[$column]')) FROM
	json_each(readfile('$tmp/body'), '$.layers.rows')")" "$(sql "$tmp/x.db" "SELECT count(DISTINCT pass_id) FROM pass
	JOIN pass_layer USING (pass_id) WHERE recording_id = 1 AND device_id IS NOT NULL AND selected_ns IS NOT NULL")"
expect_eq "layers longer than a minute" "$(sql "$tmp/x.db" 'SELECT count(*) FROM layer_time WHERE duration_ns > 50000000000')" 0
expect_eq "the same of the function" "$("$moetrace" query "$tmp/x.db" "SELECT count(*) FROM (SELECT pass_id, layer_id,
	duration_ns FROM moe_layer_time EXCEPT SELECT pass_id, layer_id, duration_ns FROM layer_time)")" 0
[ "$(sql "$tmp/x.db" 'SELECT count(*) FROM layer_time WHERE duration_ns IS NULL')" -gt 0 ] || fail "no layer is open"
view_end

# ---- the file ----
begin
mv "$tmp/x.db" "$tmp/away.db"
gone deleted deleted
mv "$tmp/away.db" "$tmp/x.db"
query 200 'SELECT count(*) FROM pass'
cp "$tmp/sound.db" "$tmp/new.db"
mv "$tmp/new.db" "$tmp/x.db"
gone 'replaced by another file' replaced
view_end
begin
change "$tmp/sound.db" 'DELETE FROM power_sample'
cat "$tmp/sound.db" >"$tmp/x.db"
gone 'changed since it was opened' replaced
view_end
