# SPDX-License-Identifier: MIT
#
# A live session for shell tests: `moetrace run` serving the example workload again and again.
# Its sockets are in $live_dir, which MOETRACE_SOCKET_DIR names.

live_dir=$tmp/sockets
mkdir -m 700 "$live_dir"
MOETRACE_SOCKET_DIR=$live_dir
export MOETRACE_SOCKET_DIR
live_pids=

# Whatever happens, nothing stays behind.
trap 'kill $live_pids 2>/dev/null; wait; rm -rf "$tmp"' EXIT

# live_begin FILE [OPTION...]: serves until live_end; sets $live_pid and $live_socket.
live_begin() {
	live_file=$1
	shift
	# shellcheck disable=SC2086 # none where the build needs none
	"$moetrace" run --model "$tinymoe/tinymoe.safetensors" --workload "$tinymoe/workload.jsonl" \
		-o "$live_file" --repeat 10000 --threads 1 "$@" >"$live_file.out" 2>&1 </dev/null &
	live_pid=$!
	live_pids="$live_pids $live_pid"
	live_socket=
	live_tries=0
	while [ -z "$live_socket" ]; do
		for live_name in "$live_dir"/*."$live_pid".*.sock; do
			[ ! -S "$live_name" ] || live_socket=$live_name
		done
		live_tries=$((live_tries + 1))
		[ "$live_tries" -lt 1200 ] || fail "the session has no socket: $(cat "$live_file.out")"
		[ -n "$live_socket" ] || sleep 0.1
	done
}

# live_wait REGEX: until a line of the session's status matches.
live_wait() {
	live_tries=0
	until "$moetrace" status "$live_pid" 2>&1 | grep -Eq -e "$1"; do
		live_tries=$((live_tries + 1))
		[ "$live_tries" -lt 1200 ] || fail "no status with '$1': $("$moetrace" status "$live_pid")"
		sleep 0.1
	done
}

# live_end: ends the run of $live_pid. (A shell lets its background jobs ignore SIGINT.)
live_end() {
	kill -TERM "$live_pid" 2>/dev/null || fail "the run has ended by itself"
	wait "$live_pid"
}
