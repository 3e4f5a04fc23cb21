# SPDX-License-Identifier: MIT
#
# README.md tells the truth about control, too: the commands of its block `console live`, against a
# run that they begin and end themselves, print what stands below them, but for the figures.

. "$MOETRACE_SRCDIR/tests/support/lib.sh"
need_plain_build
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
# What a person takes to type the next line.
has_session() {
	moetrace status "$run_pid" >"$tmp/out" 2>&1
}
has_passes() {
	has_session && grep -Eq '^recorded_passes +[1-9]' "$tmp/out"
}
: >"$tmp/got"
while IFS= read -r line <&3; do
	printf '%s\n' "$line" >>"$tmp/got"
	eval "${line#\$ }" >>"$tmp/got" 2>&1 3<&- || echo "exit status $?" >>"$tmp/got"
	case $line in
	*'&')
		run_pid=$!
		await "a session" "$run_pid" run.log has_session
		;;
	'$ moetrace start '* | '$ moetrace rotate '*)
		await "a pass" "$run_pid" run.log has_passes
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

# ---- two recordings in one file are told apart by every analysis ----

# ask SQL: what a stock sqlite3 finds in live.1.db.
ask() {
	sqlite3 -batch live.1.db "$1"
}

# column NAME CSV: a column of a CSV without quotes.
column() {
	awk -F, -v name="$1" 'NR == 1 { for (i = 1; i <= NF; i++) if ($i == name) at = i; next }
		{ print $at }' "$2"
}

expect_eq "recordings" "$(ask "select group_concat(recording_id) from recording")" 2,3
expect_ok moetrace check live.1.db --format json
expect_eq "check" "$(grep -o "\"recording_id\":[0-9]*" "$tmp/out" | tr -dc "0-9\n" | tr "\n" " ")" "2 3 "
# A request that was open in both is a row of each, and its name alone is not enough. (Which one that
# is depends on the time: here it is the first of each.)
both=both
sqlite3 -batch live.1.db "update request set external_id = '$both' where request_id in
	(select min(request_id) from request group by recording_id)" || fail "live.1.db cannot be changed"
expect_error 2 "several requests are called '$both', such as .* --recording N" \
	moetrace requests live.1.db "$both"
for recording in 2 3; do
	n_rows=$(ask "select sum(n_rows) from pass where recording_id = $recording")
	n_passes=$(ask "select count(*) from pass where recording_id = $recording")
	n_requests=$(ask "select count(*) from request where recording_id = $recording")
	k=$(ask "select max(top_k) from layer")
	[ "$n_passes" -gt 0 ] || fail "recording $recording is empty"

	expect_ok moetrace report live.1.db --recording "$recording" --format json
	expect_eq "report" "$(sqlite3 -batch :memory: "select count(*), min(value ->> 'recording_id'),
			max(value ->> 'passes'), max(value ->> 'rows'), max(value ->> 'requests')
		from json_each(readfile('$tmp/out'), '\$.recordings')")" \
		"1|$recording|$n_passes|$n_rows|$n_requests"
	expect_eq "report's parts" "$(sqlite3 -batch :memory: "select distinct row.value ->> 'recording_id'
		from json_each(readfile('$tmp/out')) as part, json_each(part.value) as row")" "$recording"

	for verb in experts balance requests; do
		expect_ok moetrace "$verb" live.1.db --recording "$recording" --format csv
		tr -d "\r" <"$tmp/out" >"$verb.$recording"
		expect_eq "$verb" "$(column recording_id "$verb.$recording" | sort -u)" "$recording"
	done
	expect_eq "experts" "$(column tokens "experts.$recording" | awk '{ n += $1 } END { print n }')" \
		"$((n_rows * k * $(ask "select count(*) from layer")))"
	expect_eq "balance" "$(column n_passes "balance.$recording" | sort -u)" "$n_passes"
	expect_eq "requests" "$(wc -l <"requests.$recording")" "$((n_requests + 1))"

	expect_ok moetrace requests live.1.db "$both" --recording "$recording" --format json
	expect_eq "a request" "$(sqlite3 -batch :memory: "select
		json_extract(readfile('$tmp/out'), '\$.request.recording_id')")" "$recording"

	for view in pass_summary request_summary expert_load layer_balance; do
		expect_eq "$view" "$(ask "select group_concat(distinct recording_id) from $view")" 2,3
	done
	for view in token_topk routed_expert; do
		expect_eq "$view" "$(ask "select recording_id, request_id in (select request_id from
			request where recording_id = $recording) from $view
			where recording_id = $recording limit 1")" "$recording|1"
	done
	expect_eq "moe_topk" "$(moetrace query live.1.db "select count(distinct pass_id), min(pass_id) =
		(select min(pass_id) from pass where recording_id = $recording) from moe_topk
		where recording_id = $recording" --format csv | tail -n 1 | tr -d "\r")" "$n_passes,1"
done
