# SPDX-License-Identifier: MIT
#
# The output of every verb that reads, compared with the files in golden/. The trace is the same
# everywhere, so nothing but the size of its file has to be masked. To see what changed by hand:
# MOETRACE_GOLDEN_OUT=DIR makes this test write what it got into DIR.

. "$MOETRACE_SRCDIR/tests/support/lib.sh"
. "$MOETRACE_SRCDIR/tests/cli/trace.sh"

golden=$MOETRACE_SRCDIR/tests/cli/golden
make_sound "$tmp/sound.db"
cd "$tmp" || exit 99
expect_ok "$MOETRACE_BUILDDIR/tests/schema/make_pairs" a.db 0
expect_ok "$MOETRACE_BUILDDIR/tests/schema/make_pairs" b.db 1

# golden NAME ARGUMENT...: the command prints what golden/NAME holds, and nothing on stderr.
n_golden=0
golden() {
	name=$1
	shift
	expect_ok "$moetrace" "$@"
	[ ! -s "$tmp/err" ] || fail "output on stderr: $*"
	case $name in
	*.json) expect_json "$tmp/out" ;;
	*.jsonl) expect_jsonl "$tmp/out" ;;
	esac
	sed -e 's/^file_bytes .*/file_bytes      N/' -e 's/"file_bytes":[0-9]*/"file_bytes":0/' \
		"$tmp/out" >"$tmp/$name"
	[ -z "${MOETRACE_GOLDEN_OUT:-}" ] || cp "$tmp/$name" "$MOETRACE_GOLDEN_OUT/$name"
	[ -n "${MOETRACE_GOLDEN_OUT:-}" ] || expect_same "$tmp/$name" "$golden/$name"
	n_golden=$((n_golden + 1))
}

golden dump.txt dump sound.db
golden dump.json dump sound.db --format json
golden dump-slices.txt dump sound.db --table pass_request
golden dump-slices.csv dump sound.db --table=pass_request --format=csv
golden dump-slices.jsonl dump --table pass_request --format jsonl sound.db
golden requests.txt requests sound.db
golden requests.json requests sound.db --format json
golden requests.csv requests sound.db --format csv
golden requests-second.txt requests sound.db --recording 2
golden request.txt requests sound.db alpha
golden request.json requests sound.db alpha --format json
golden request.jsonl requests sound.db @1 --format jsonl
golden request.csv requests sound.db @1 --format csv
golden request-part.txt requests sound.db alpha --layer 1 --position 2-4
golden request-attempt.txt requests sound.db beta --attempt 0
golden request-recording.txt requests sound.db gamma --recording 2
golden experts.txt experts sound.db --top 3
golden experts.json experts sound.db --top 1 --format json
golden experts-decode.txt experts sound.db --phase decode --layer 0 --recording 1
golden experts-domain.txt experts sound.db --by-attribute domain --min-tokens 1 --layer 0
golden balance.txt balance sound.db
golden balance.csv balance sound.db --format csv
golden kernels.txt kernels sound.db
golden kernels.json kernels sound.db --format json
golden kernels-layer.csv kernels sound.db --by-layer --recording 1 --format csv
golden kernels-role.txt kernels sound.db --by-role
golden kernels-layer-role.txt kernels sound.db --by-role --by-layer
golden kernels-graphs.json kernels sound.db --graphs --format json
golden kernels-overlap.txt kernels sound.db --overlap
golden power-readings.csv power sound.db --readings --recording 1 --format csv
golden diff.txt diff a.db b.db --top 3
golden info.txt info sound.db
golden info.json info sound.db --format json
golden report.txt report sound.db
golden report.json report sound.db --format json
golden report.md report sound.db --format markdown --recording 1
golden check.txt check sound.db
golden check.json check sound.db --format json
golden check-routing.txt check --routing --model 2 sound.db
golden query.txt query sound.db "select phase, count(*) as n, avg(n_rows) from pass group by 1"
golden query-blob.txt query sound.db "select x'00ff' as b, null as nil, 1.5 as r"

# A single value is printed bare, as it is.
bare() {
	expect_ok "$moetrace" query sound.db "$1"
	expect_out "$2"
}
bare "select count(*) from pass" 9
bare "select 1.0 / 3" 0.3333333333333333
bare "select null" -
bare "select 'a' || char(9) || 'b|c'" "$(printf 'a\tb|c')"
bare "select x'00ff'" 00ff
bare "select 1 where 0" ""
bare "select 1 as one, 2 as two where 0" "one  two"
bare "select 1 as one union all select 22" "one
  1
 22"
bare "select 1 as one, 2 as two" "one  two
  1    2"
expect_ok "$moetrace" query sound.db "select 1" --format json
expect_out '[{"1":1}]'

# JSON has no word for what is no finite number.
for format in json jsonl; do
	expect_ok "$moetrace" query sound.db "select 9e999 as a, -9e999 as b, 9e999 - 9e999 as c" --format $format
	expect_match "$tmp/out" '^\[?\{"a":null,"b":null,"c":null\}\]?$'
done
cp sound.db infinite.db
change infinite.db "UPDATE topk SET topk_weights = CAST(x'007c00fc' || substr(topk_weights, 5) AS BLOB)
	WHERE topk_id = 1;" "UPDATE layer SET soft_cap = 9e999;"
for verb in "requests infinite.db alpha" "info infinite.db" "report infinite.db" "dump infinite.db --table layer" \
	"dump infinite.db --table routed_expert" "experts infinite.db" "balance infinite.db"; do
	# shellcheck disable=SC2086 # a verb with its arguments
	expect_ok "$moetrace" $verb --format json
	expect_json "$tmp/out"
	expect_no_match "$tmp/out" '[:,[]-?(inf|nan|Inf|NaN)'
done
echo "select count(*) from layer" >statement.sql
status=0
"$moetrace" query sound.db - <statement.sql >"$tmp/out" || status=$?
expect_eq "status" "$status" 0
expect_out 3

echo "$n_golden outputs are as before"
