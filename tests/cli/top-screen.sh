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
expect_ok "$MOETRACE_BUILDDIR/tests/cli/make_live" made.db 0.3 200 per_token
"$moetrace" top made.db --once >plain.out 2>err </dev/null || fail "no frame"
"$moetrace" top made.db --once </dev/null | grep -q '^state: ended' || fail "no plain frame in a pipe"

tmux() {
	command tmux -S "$tmp/tmux" -f /dev/null "$@"
}
trap 'command tmux -S "$tmp/tmux" kill-server 2>/dev/null; kill $live_pids 2>/dev/null; wait; rm -rf "$tmp"' EXIT

# A screen needs ncurses.
tmux -u new-session -d -x 80 -y 24 "'$moetrace' top made.db 2>'$tmp/said'; sleep 600" 2>err ||
	skip "tmux cannot start: $(cat err)"
tmux set -g default-terminal screen-256color
tmux set -g remain-on-exit on

# screen: what is seen
screen() {
	tmux capture-pane -p >"$tmp/screen"
}

# until REGEX: it is seen in the end
until_seen() {
	tries=0
	while :; do
		screen
		! grep -Eq -e "$1" screen || return 0
		tries=$((tries + 1))
		if [ $tries -ge 2400 ]; then
			cat screen >&2
			fail "'$1' is not seen"
		fi
		sleep 0.05
	done
}

tries=0
until [ -s said ] || { screen && grep -q '^ moetrace top' screen; }; do
	tries=$((tries + 1))
	[ $tries -lt 2400 ] || fail "it neither draws nor says anything"
	sleep 0.05
done
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
	tries=0
	until [ -s ended ]; do
		tries=$((tries + 1))
		[ $tries -lt 2400 ] || fail "it does not end"
		sleep 0.05
	done
	expect_eq "exit status" "$(cat ended)" "$1"
	expect_same before after
	screen
	# Neither the other screen nor a hidden cursor is left.
	expect_eq "alternate screen, cursor" "$(tmux display-message -p '#{alternate_on} #{cursor_flag}')" "0 1"
}

# ---- 80 x 24, and keys ----
show 80 24 -- made.db
until_seen '^ moetrace top  ENDED  made.db'
expect_match screen 'q quit  \? help *$'
expect_match screen '^recording 1, per_token  last 0\.[0-9] s  model evil\\x1b\]0;stolen\\x07\\x1b\[31mred\\u'
expect_match screen '^tokens/s +[0-9.k]+  prefill +[0-9.k]+  decode'
expect_match screen '^passes/s +[0-9.k]+  rows a pass   6[0-9]\.[0-9]'
expect_match screen '^active +13[0-9] of 256 experts a pass, most 1[0-9]+'
expect_match screen '^balance +max/mean  p50 [0-9.]+  p95 [0-9.]+  worst [0-9.]+ \(L[0-9]+\)  Jain 0\.[0-9]+'
expect_match screen '^hottest +L[0-9]+/e[0-9]+ [0-9.]+x'
expect_match screen '^power +n/a'
expect_match screen '^tokens  layers 1-8 of 8  mean of 4  by id  linear  0 '
expect_match screen '^layer 3, experts 0\.\.3: mean [0-9.]+ tokens, [0-9.]+ times the layer.s mean, 4 ranks'
keys Down Right Right
until_seen '^layer 4, experts 8\.\.11: mean'
keys m
until_seen 'layers 1-8 of 8  max of 4'
until_seen '^layer 4, experts 8\.\.11: max'
keys m l s
until_seen 'p95 of 4  by load  log  0'
expect_match screen '^layer 4, experts [0-9]+, [0-9]+, [0-9]+, [0-9]+: p95'
keys s
until_seen 'p95 of 4  by rank  log'
expect_match screen '^layer 4, experts 20, 24, 25, 29: p95'
keys w
until_seen '^recording 1.* whole recording'
keys w + +
until_seen 'last 0\.[0-9] s'
keys p
until_seen 'PAUSED'
keys Tab
until_seen '^ *load  \[layers\]'
expect_match screen '^    3      256 +[0-9]+ +[0-9.]+  0\.[0-9]+ +[0-9]+ +[0-9]+$'
keys Tab Tab Tab
until_seen '\[sources\]'
expect_match screen '^nothing was lost'
keys '?'
until_seen '^ q +quit'
keys '?' Tab
until_seen '^ \[load\]'
# A size that changes, down to one that is too small and back.
tmux resize-window -x 200 -y 50
until_seen 'layers 1-8 of 8  p95 of 2  by rank'
expect_match screen '^ kernels'
tmux resize-window -x 30 -y 8
until_seen '^30 x 8 is too small'
expect_match screen '^50 x 12 is needed'
tmux resize-window -x 80 -y 24
until_seen '^tokens  layers'
# Stopped and continued. (The shell of the pane has no job control, so it is continued from here.)
top_pid=$(top_process)
kill -TSTP "$top_pid"
sleep 0.2
kill -CONT "$top_pid"
keys p
until_seen '^tokens  layers'
quit
grep -q "$(printf '\033')\[.*38;5;" sent || fail "no colour was sent"
LC_ALL=C grep -q "$(printf '\342\226\200\|\342\226\202\|\342\226\210')" sent || fail "no block was sent"
! LC_ALL=C grep -q "$(printf '\033')\]0;stolen" sent || fail "a name was sent as a command"

# ---- what was dropped, and what draws power ----
cp made.db power.db
change power.db "INSERT INTO device (device_id, process_id, kind, name) SELECT 7, process_id, 'cuda', 'card' FROM recording;" \
	"INSERT INTO power_sample (recording_id, device_id, domain, source, time_ns, instant_mw)
		SELECT 1, 7, d.value, 'poll', end_ns, 460000 FROM recording, (SELECT 'gpu' AS value UNION ALL SELECT 'module') AS d;" \
	"INSERT INTO collector VALUES (1, 'nvml', 'on', NULL, NULL, NULL, 0, 4, 0, 0, 0, 0, NULL)"
show 80 24 -- power.db
until_seen '^LOST +nvml dropped 4'
expect_match screen '^(power|     ) +gpu 7  gpu +460 W'
expect_match screen '^(power|     ) +gpu 7  module +460 W'
keys BTab
until_seen '\[sources\]'
expect_match screen '^nvml dropped 4'
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
expect_match screen '^L3    [ .:=+*#%@-]+ +[0-9.]+x'
quit
! LC_ALL=C grep -Eq "$(printf '\033')\[([0-9;]*;)?(3[0-9]|4[0-9]|9[0-9])(;[0-9;]*)?m" sent || fail "a colour was sent in spite of NO_COLOR"

# ascii NAME: nothing but ASCII was sent, and the ramp is seen
ascii() {
	expect_match screen '^L3    [ .:=+*#%@-]+ +[0-9.]+x'
	quit
	! LC_ALL=C grep -q "$(printf '[\200-\377]')" sent || fail "$1: more than ASCII was sent"
}
show 80 24 -- --ascii made.db
until_seen '^L10 '
ascii --ascii
show 80 24 TERM=vt100 -- made.db
until_seen '^L10 '
expect_match screen '^tokens  layers .*linear  0  \.:-=\+\*#%@ '
ascii vt100
show 80 24 LC_ALL=C -- made.db
until_seen '^L10 '
ascii LC_ALL=C
show 80 24 TERM=dumb -- made.db
over 1
expect_match screen 'cannot move its cursor: give --plain or --once'
show 80 24 -- --once made.db
over 0
expect_match screen '^tokens  layers 1-8 of 8'
show 80 24 -- --once --plain made.db
over 0
expect_match screen '^balance: max over mean'

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
"$MOETRACE_BUILDDIR/tests/cli/make_live" live.db 600 300 per_token >live.err 2>&1 &
live=$!
live_pids="$live_pids $live"
tries=0
until [ -s live.db ] && sql live.db "SELECT 1 FROM pass LIMIT 1" 2>/dev/null | grep -q 1 || [ $tries -ge 2400 ]; do
	tries=$((tries + 1))
	sleep 0.05
done
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
expect_match screen '^tokens/s'
# What is lost is always seen.
cp made.db other.db
change other.db "UPDATE stats SET value = 7 WHERE name = 'dropped_passes'"
mv other.db live.db
until_seen '^LOST +dropped_passes 7'
echo 'no trace' >live.db
until_seen '^NOTICE +live.db: is not an SQLite file'
quit
