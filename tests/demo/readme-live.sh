# SPDX-License-Identifier: MIT
#
# README.md tells the truth about control, too: the commands of its block `console live`, against a
# run that they begin and end themselves, print what stands below them, but for the figures.

. "$MOETRACE_SRCDIR/tests/support/lib.sh"
need_command sqlite3
need_json

PATH=$MOETRACE_BUILDDIR/cli:$PATH
MOETRACE_SOCKET_DIR=$tmp/sockets
export PATH MOETRACE_SOCKET_DIR
mkdir -m 700 "$MOETRACE_SOCKET_DIR"
mkdir "$tmp/live"
ln -s "$MOETRACE_SRCDIR/examples" "$tmp/live/examples"
cd "$tmp/live" || exit 99
run_pid=
trap 'kill $run_pid 2>/dev/null; wait; rm -rf "$tmp"' EXIT

# Numbers, folders and the host's name differ, and with the numbers the columns' widths; which batch
# sizes are there depends on the time.
mask() {
	sed -E -e '/^\$ /!s#(^| )/[^ ]*/#\1#g' -e '/^\$ /!s/[^ ]+\.[0-9]+\.[0-9]+\.[0-9]+\.sock/SOCKET/' \
		-e '/^ +[0-9]+  (prefill|decode|mixed) /d' "$1" |
		sed -E -e '/^\$ /!s/(^| )-?[0-9][-+.0-9e]*( |$)/\1N\2/g; t again' -e ': again' \
			-e '/^\$ /!s/(^| )-?[0-9][-+.0-9e]*( |$)/\1N\2/g' -e '/^\$ /!s/(^| )-( |$)/\1N\2/g' \
			-e "s/(N +)[^ ]+( +N? *(idle|recording))/\1HOST\2/" \
			-e 's/ +/ /g; s/^ //'
}

awk '/^```console live$/ { inside = 1; next } /^```$/ { inside = 0 } inside' \
	"$MOETRACE_SRCDIR/README.md" >"$tmp/console"
grep '^\$ ' "$tmp/console" >"$tmp/commands" || fail "README.md has no block 'console live'"
for verb in start stop rotate 'dump .*-o part.db' status overhead; do
	expect_match "$tmp/commands" "^.. moetrace $verb|^. moetrace $verb"
done
: >"$tmp/got"
while IFS= read -r line <&3; do
	printf '%s\n' "$line" >>"$tmp/got"
	eval "${line#\$ }" >>"$tmp/got" 2>&1 3<&- || echo "exit status $?" >>"$tmp/got"
	case $line in
	*'&')
		run_pid=$!
		tries=0
		# What a person takes to type the next line.
		until moetrace status "$run_pid" >/dev/null 2>&1; do
			tries=$((tries + 1))
			[ "$tries" -lt 600 ] || fail "no session: $(cat run.log)"
			sleep 0.1
		done
		;;
	esac
done 3<"$tmp/commands"
mask "$tmp/console" >"$tmp/wanted"
mask "$tmp/got" >"$tmp/masked"
expect_same "$tmp/masked" "$tmp/wanted"

expect_match "$tmp/wanted" '^state recording$'
for file in live.db live.1.db part.db; do
	expect_ok moetrace check "$file"
done
