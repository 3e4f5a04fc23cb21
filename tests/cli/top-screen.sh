# SPDX-License-Identifier: MIT
#
# The screen of moetrace top, in terminals that tmux emulates: sizes from too small to large, without
# colours, without UTF-8, with the terminals of old; keys, a change of size, being stopped and
# continued, a file that is replaced and deleted, and a terminal that is as it was, however it ends.

. "$MOETRACE_SRCDIR/tests/support/lib.sh"
. "$MOETRACE_SRCDIR/tests/support/live.sh"
. "$MOETRACE_SRCDIR/tests/cli/trace.sh"
# The terminal library keeps what it has until the end, which counts as lost with sanitizers.
need_plain_build
need_command tmux pgrep

cd "$tmp" || exit 99
expect_ok "$MOETRACE_BUILDDIR/tests/cli/make_live" made.db 3600 200 per_token 60
# 60 passes in 0.3 s, however long the machine took.
change made.db "UPDATE recording SET end_ns = start_ns + 300000000;" \
	"UPDATE pass SET begin_ns = (SELECT start_ns FROM recording) + pass_id * 5000000 - 4000000;" \
	"UPDATE pass SET end_ns = begin_ns + 30000;" \
	"UPDATE pass_layer SET selected_ns = (SELECT begin_ns FROM pass WHERE pass.pass_id = pass_layer.pass_id) + layer_id * 1000;" \
	"CREATE TEMP TABLE w AS SELECT recording_id, min(start_ns) AS start_ns, layer_id, expert, min(length_ns) AS length_ns,
		sum(prefill_tokens) AS prefill, sum(decode_tokens) AS decode, sum(verify_tokens) AS verify,
		sum(other_tokens) AS other, sum(padding_tokens) AS padding FROM expert_load_window GROUP BY layer_id, expert;" \
	"DELETE FROM expert_load_window; INSERT INTO expert_load_window SELECT * FROM w;"
expect_ok "$moetrace" check made.db
"$moetrace" top made.db --once >plain.out 2>err </dev/null || fail "no frame"
"$moetrace" top made.db --once </dev/null | grep -q '^state: ended' || fail "no plain frame in a pipe"

tmux() {
	command tmux -S "$tmp/tmux" -f /dev/null "$@"
}
trap 'command tmux -S "$tmp/tmux" kill-server 2>/dev/null; clean_up' EXIT

# A screen needs ncurses.
tmux -u new-session -d -x 80 -y 24 "'$moetrace' top made.db 2>'$tmp/said'; sleep 600" 2>err ||
	skip "tmux cannot start: $(cat err)"
tmux set -g default-terminal screen-256color
tmux set -g remain-on-exit on

# screen: what is seen
screen() {
	tmux capture-pane -p >"$tmp/screen"
}

# until_seen REGEX: it is seen in the end. What a program draws at once may come in parts, and what it
# drew last after its end.
until_seen() {
	until_seen_tries=0
	await "'$1' on the screen" - screen is_seen "$1"
}
is_seen() {
	screen
	! grep -Eq -e "$1" screen || return 0
	[ ! -s ended ] || until_seen_tries=$((until_seen_tries + 1))
	[ "$until_seen_tries" -lt 200 ] || fail "'$1' is not seen, and top has ended with $(cat ended): $(cat screen)"
	return 1
}

is_begun() {
	screen
	[ -s said ] || grep -q '^ moetrace top' screen
}
await "a picture or a word" - said is_begun
if grep -q 'built without ncurses' said; then
	tmux kill-server
	skip "built without ncurses"
fi

# show COLUMNS ROWS [NAME=VALUE...] -- ARGUMENT...: another top, in a terminal of that size; what it
# sends is kept in sent, and how it ended in ended.
show() {
	columns=$1
	rows=$2
	shift 2
	settings=
	while [ "$1" != -- ]; do
		settings="$settings $1"
		shift
	done
	shift
	tmux resize-window -x "$columns" -y "$rows"
	rm -f sent ended
	tmux respawn-pane -k "cd '$tmp'; stty -g >before; env TERM=screen-256color LC_ALL=C.UTF-8 $settings '$moetrace' top $*; echo \$? >status; stty -g >after; mv status ended; sleep 600"
	tmux pipe-pane "cat >'$tmp/sent'"
}

# keys KEY...
keys() {
	tmux send-keys "$@"
}

# top_process: the one that the pane's shell waits for. (Another build's test has one of that name.)
top_process() {
	pgrep -P "$(tmux display-message -p '#{pane_pid}')"
}

# quit [STATUS]: q ends it, and the terminal is as before.
quit() {
	keys q
	over "${1:-0}"
}
over() {
	await "an end" - screen test -s ended
	expect_eq "exit status" "$(cat ended)" "$1"
	expect_same before after
	# Neither the other screen nor a hidden cursor is left.
	await "the screen as it was, with a cursor" - screen is_left
	screen
}
is_left() {
	[ "$(tmux display-message -p '#{alternate_on} #{cursor_flag}')" = "0 1" ]
}

# ---- 80 x 24, and keys ----
show 80 24 -- made.db
until_seen '^ moetrace top  ENDED  made.db'
until_seen 'q quit  \? help *$'
until_seen '^recording 1, per_token  last 0\.[0-9] s  model evil\\x1b\]0;stolen\\x07\\x1b\[31mred\\u'
until_seen '^tokens/s +[0-9.k]+  prefill +[0-9.k]+  decode'
until_seen '^passes/s +[0-9.k]+  rows a pass   6[0-9]\.[0-9]'
until_seen '^active +13[0-9] of 256 experts a pass, most 1[0-9]+'
until_seen '^balance +max/mean  p50 [0-9.]+  p95 [0-9.]+  worst [0-9.]+ \(L[0-9]+\)  Jain 0\.[0-9]+'
until_seen '^hottest +L[0-9]+/e[0-9]+ [0-9.]+x'
until_seen '^power +n/a'
until_seen '^tokens  layers 1-8 of 8  mean of 4  by id  linear  0 '
until_seen '^layer 3, experts 0\.\.3: mean [0-9.]+ tokens, [0-9.]+ times the layer.s mean, 4 ranks'
keys Down Right Right
until_seen '^layer 4, experts 8\.\.11: mean'
keys m
until_seen 'layers 1-8 of 8  max of 4'
until_seen '^layer 4, experts 8\.\.11: max'
keys m l s
until_seen 'p95 of 4  by load  log  0'
until_seen '^layer 4, experts [0-9]+, [0-9]+, [0-9]+, [0-9]+: p95'
keys s
until_seen 'p95 of 4  by rank  log'
until_seen '^layer 4, experts 20, 24, 25, 29: p95'
keys w
until_seen '^recording 1.* whole recording'
keys w + +
until_seen 'last 0\.[0-9] s'
keys p
until_seen 'PAUSED'
keys Tab
until_seen '^ *load  \[layers\]'
until_seen '^    3      256 +[0-9]+ +[0-9.]+  0\.[0-9]+ +[0-9]+ +[0-9]+$'
keys Tab Tab Tab
until_seen '\[sources\]'
until_seen '^nothing was lost'
keys '?'
until_seen '^ q +quit'
keys '?' Tab
until_seen '^ \[load\]'
# A size that changes, down to one that is too small and back.
tmux resize-window -x 200 -y 50
until_seen 'layers 1-8 of 8  p95 of 2  by rank'
until_seen '^ kernels'
tmux resize-window -x 30 -y 8
until_seen '^30 x 8 is too small'
until_seen '^50 x 12 is needed'
tmux resize-window -x 80 -y 24
until_seen '^tokens  layers'
# Stopped and continued. (The shell of the pane has no job control, so it is continued from here.)
top_pid=$(top_process)
kill -TSTP "$top_pid"
# A signal that has not arrived would be taken back.
await "an arrival" - screen grep -q '^ShdPnd:[^0]*0*$' "/proc/$top_pid/status"
kill -CONT "$top_pid"
keys p
until_seen '^tokens  layers'
quit
await "a colour in what was sent" - - grep -q "$(printf '\033')\[.*38;5;" sent
await "a block in what was sent" - - grep -q "$(printf '\342\226\200\|\342\226\202\|\342\226\210')" sent
! LC_ALL=C grep -q "$(printf '\033')\]0;stolen" sent || fail "a name was sent as a command"

# ---- what was dropped, and what draws power ----
cp made.db power.db
change power.db "INSERT INTO device (device_id, process_id, kind, name) SELECT 7, process_id, 'cuda', 'card' FROM recording;" \
	"INSERT INTO power_sample (recording_id, device_id, domain, source, time_ns, instant_mw)
		SELECT 1, 7, d.value, 'poll', end_ns, 460000 FROM recording, (SELECT 'gpu' AS value UNION ALL SELECT 'module') AS d;" \
	"INSERT INTO collector VALUES (1, 'nvml', 'on', NULL, NULL, NULL, 0, 4, 0, 0, 0, 0, NULL)"
show 80 24 -- power.db
until_seen '^LOST +nvml dropped 4'
until_seen '^(power|     ) +gpu 7  gpu +460 W'
until_seen '^(power|     ) +gpu 7  module +460 W'
keys BTab
until_seen '\[sources\]'
until_seen '^nvml dropped 4'
expect_no_match screen 'nothing was lost'
quit

# ---- layers that differ ----
make_sound sound.db
show 80 24 -- --recording 1 sound.db
until_seen '^active +[0-9.]+ of 4 to 300 experts a pass'
quit

# ---- other terminals ----
show 200 50 NO_COLOR=1 -- made.db
until_seen '^tokens  layers 1-8 of 8  mean of 2'
until_seen '^L3    [ .:=+*#%@-]+ +[0-9.]+x'
quit
! LC_ALL=C grep -Eq "$(printf '\033')\[([0-9;]*;)?(3[0-9]|4[0-9]|9[0-9])(;[0-9;]*)?m" sent || fail "a colour was sent in spite of NO_COLOR"

# ascii NAME: nothing but ASCII was sent, and the ramp is seen
ascii() {
	until_seen '^L3    [ .:=+*#%@-]+ +[0-9.]+x'
	quit
	! LC_ALL=C grep -q "$(printf '[\200-\377]')" sent || fail "$1: more than ASCII was sent"
}
show 80 24 -- --ascii made.db
until_seen '^L10 '
ascii --ascii
show 80 24 TERM=vt100 -- made.db
until_seen '^L10 '
until_seen '^tokens  layers .*linear  0  \.:-=\+\*#%@ '
ascii vt100
show 80 24 LC_ALL=C -- made.db
until_seen '^L10 '
ascii LC_ALL=C
show 80 24 TERM=dumb -- made.db
over 1
until_seen 'cannot move its cursor: give --plain or --once'
show 80 24 -- --once made.db
over 0
until_seen '^tokens  layers 1-8 of 8'
show 80 24 -- --once --plain made.db
over 0
until_seen '^balance: max over mean'

# ---- ends ----
# ended_by SIGNAL STATUS
ended_by() {
	show 80 24 -- made.db
	until_seen '^tokens  layers'
	kill -"$1" "$(top_process)"
	over "$2"
}
ended_by TERM 143
ended_by HUP 129
show 80 24 -- made.db
until_seen '^tokens  layers'
keys C-c
over 0

# ---- while it is recorded; replaced, deleted ----
"$MOETRACE_BUILDDIR/tests/cli/make_live" live.db 3600 300 per_token >live.err 2>&1 &
live=$!
has_pass() {
	[ -s live.db ] && [ "$(sql live.db "SELECT count(*) > 0 FROM pass" 2>/dev/null)" = 1 ]
}
await "a pass" "$live" live.err has_pass
show 80 24 -- --interval 0.1 live.db
until_seen '^ moetrace top  LIVE  live.db  live, for [1-9]'
until_seen '^tokens/s +[1-9]'
kill -TERM "$live" && wait "$live"
until_seen '^ moetrace top  ENDED  live.db  ended after .* \(stopped\)'
expect_absent live.db-wal
cp made.db other.db
mv other.db live.db
until_seen '^NOTICE +live.db was replaced by another file'
rm live.db
until_seen '^NOTICE +live.db was deleted or moved'
until_seen '^tokens/s'
# What is lost is always seen.
cp made.db other.db
change other.db "UPDATE stats SET value = 7 WHERE name = 'dropped_passes'"
mv other.db live.db
until_seen '^LOST +dropped_passes 7'
echo 'no trace' >live.db
until_seen '^NOTICE +live.db: is not an SQLite file'
quit
