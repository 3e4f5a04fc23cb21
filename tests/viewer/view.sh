# SPDX-License-Identifier: MIT
#
# What the viewer's tests share: sourced after tests/support/lib.sh.

ask=$MOETRACE_BUILDDIR/tests/viewer/ask

# need_server: skips the test in a build without libmicrohttpd.
need_server() {
	[ "${MOETRACE_HAS_SERVER:?run the tests through make check}" = yes ] ||
		skip "built without libmicrohttpd"
}

# view_start ARGUMENT...: serves traces; sets $view_pid, $address, $port, $base (/TOKEN/). SQL may take
# the time that a slow machine needs, where no other limit is given.
view_start() {
	rm -f "$tmp/address"
	"$moetrace" view --time-limit 3600 "$@" >"$tmp/address" 2>"$tmp/view-err" &
	view_pid=$!
	await "an address" "$view_pid" "$tmp/view-err" grep -qs '^http.*/$' "$tmp/address"
	address=$(cat "$tmp/address")
	port=${address#http://127.0.0.1:}
	base=/${port#*/}
	port=${port%%/*}
	[ -n "$port" ] || fail "no address was printed: $(cat "$tmp/view-err")"
}

# view_end: ends the server as Ctrl-C does; it must end with success and without a word.
view_end() {
	kill -INT "$view_pid"
	status=0
	wait "$view_pid" || status=$?
	expect_eq "exit status of the server" "$status" 0
	expect_eq "stderr of the server" "$(cat "$tmp/view-err")" ""
}

# answered STATUS METHOD PATH ...: asks, and the answer has that status; the body is in $tmp/body.
answered() {
	want=$1
	shift
	"$ask" "$port" "$@" >"$tmp/out" 2>"$tmp/err" || true
	expect_eq "status of $(echo "$*" | head -c 300)" "$(head -n 1 "$tmp/out" | tr -d '\0')" "$want"
	sed '1,/^\r$/d' "$tmp/out" >"$tmp/body"
}

# query SQL: POSTs it to the first trace; expects STATUS in $1.
query() {
	answered "$1" POST "${base}api/0/query" -d "$2"
}
