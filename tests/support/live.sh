# SPDX-License-Identifier: MIT
#
# A live session for shell tests: `moetrace run` serving the example workload again and again.
# Its sockets are in $live_dir, which MOETRACE_SOCKET_DIR names.

live_dir=$tmp/sockets
mkdir -m 700 "$live_dir"
MOETRACE_SOCKET_DIR=$live_dir
export MOETRACE_SOCKET_DIR

# live_begin FILE [OPTION...]: serves until live_end; sets $live_pid and $live_socket.
live_begin() {
	live_file=$1
	shift
	# shellcheck disable=SC2086 # none where the build needs none
	"$moetrace" run --model "$tinymoe/tinymoe.safetensors" --workload "$tinymoe/workload.jsonl" \
		-o "$live_file" --repeat 10000 --threads 1 "$@" >"$live_file.out" 2>&1 </dev/null &
	live_pid=$!
	live_socket=
	await "a control socket" "$live_pid" "$live_file.out" live_find
}

# live_find: looks for the socket of $live_pid.
live_find() {
	for live_name in "$live_dir"/*."$live_pid".*.sock; do
		[ ! -S "$live_name" ] || live_socket=$live_name
	done
	[ -n "$live_socket" ]
}

# live_wait REGEX: until a line of the session's status matches.
live_wait() {
	await "a status with '$1'" "$live_pid" "$live_file.out" live_matches "$1"
}
live_matches() {
	"$moetrace" status "$live_pid" >"$tmp/out" 2>&1
	grep -Eq -e "$1" "$tmp/out"
}

# live_end: ends the run of $live_pid. (A shell lets its background jobs ignore SIGINT.)
live_end() {
	kill -TERM "$live_pid" 2>/dev/null || fail "the run has ended by itself"
	wait "$live_pid"
}
