# SPDX-License-Identifier: MIT
#
# The page as one file: whole, without markup from the trace, without what --redact leaves out.

. "$MOETRACE_SRCDIR/tests/support/lib.sh"
. "$MOETRACE_SRCDIR/tests/cli/trace.sh"

make_sound "$tmp/sound.db"
change "$tmp/sound.db" "UPDATE request SET external_id = '</script><script>alert(1)</script><!--' WHERE request_id = 1;
	UPDATE model SET name = '<img src=x onerror=alert(2)>'; UPDATE process SET host = 'secrethost';
	INSERT INTO request_attribute VALUES (1, 'secretkey', 'secretvalue');
	INSERT OR REPLACE INTO request_token VALUES (1, 0, 424242)"
cp "$tmp/sound.db" "$tmp/before.db"
make_empty "$tmp/empty.db"
mkdir "$tmp/out.d"
cd "$tmp/out.d" || exit 99

expect_ok "$moetrace" view --html page.html "$tmp/sound.db" "$tmp/empty.db"
expect_out ''
expect_err ''
expect_eq "files" "$(ls)" page.html
expect_same "$tmp/sound.db" "$tmp/before.db"

# Three scripts at most: the data, which is none, and the page's own, whose hash is let through.
expect_eq "script elements" "$(grep -o '<script' page.html | wc -l)" 2
expect_eq "their ends" "$(grep -o '</script>' page.html | wc -l)" 2
! grep -Eq '<img|alert\(1\)</script' page.html || fail "markup of the trace is in it"
grep -q "default-src 'none'; script-src 'sha256-[A-Za-z0-9+/=]*'; " page.html || fail "no policy"
sed -n '/^<\/script>\|}}<\/script>$/,$p' page.html | sed '1d; s/^<script>//' >"$tmp/rest"
sed '/^<\/script>/,$d' "$tmp/rest" >"$tmp/script"
expect_same "$tmp/script" "$MOETRACE_SRCDIR/viewer/dist/app.js"
grep -qF "'sha256-$(cat "$MOETRACE_SRCDIR/viewer/dist/script.sha256")'" page.html || fail "another hash is let through"
if command -v sha256sum >/dev/null && command -v base64 >/dev/null && command -v xxd >/dev/null; then
	expect_eq "hash of the script" "$(sha256sum <"$tmp/script" | cut -c 1-64 | xxd -r -p | base64)" \
		"$(cat "$MOETRACE_SRCDIR/viewer/dist/script.sha256")"
fi

# The data is JSON, and has what it says.
sed -n '/id="moetrace-data"/,/<\/script>/p' page.html | sed '1s/^.*id="moetrace-data">//; s/<\/script>$//' >data.json
expect_eq "sound JSON" "$(sqlite3 :memory: "SELECT json_valid(readfile('data.json'))")" 1
inside() {
	sqlite3 :memory: "SELECT json_extract(readfile('data.json'), '$1')"
}
expect_eq "traces" "$(inside '$.session.traces[1].name')" empty.db
[ "$(sqlite3 :memory: "SELECT json_array_length(readfile('data.json'), '\$.session.left_out')")" -ge 4 ] ||
	fail "it does not say what it leaves out"
expect_eq "a name in it" "$(inside '$.answers."0/info".models.rows[0][1]')" '<img src=x onerror=alert(2)>'
grep -q 424242 data.json || fail "a token is missing"
grep -q '^"0/load_request?recording=1&model=1&request=1":' data.json || fail "what a request selected is of no recording"
for question in report oea timeline load load_windows ranks requests request request_topk gaps throttles; do
	grep -q "^\"0/$question?" data.json || fail "no answer to $question"
done
rm data.json

# Nothing is overwritten unasked, nothing half-written stays.
expect_error 1 'page.html exists already; give another name, or -f' "$moetrace" view --html page.html "$tmp/empty.db"
expect_ok "$moetrace" view -f --html page.html "$tmp/empty.db"
expect_error 1 'no/page.html cannot be written: No such file' "$moetrace" view --html no/page.html "$tmp/empty.db"
expect_error 2 'html' "$moetrace" view --html '' "$tmp/empty.db"
expect_eq "files" "$(ls)" page.html

expect_ok "$moetrace" view -f --redact --html page.html "$tmp/sound.db"
! grep -Eoq 'secret|424242|alert\(1\)' page.html || fail "it tells what is redacted"
grep -q '(redacted)' page.html || fail "it does not say that it is redacted"
