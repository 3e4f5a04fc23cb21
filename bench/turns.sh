#!/bin/sh
# SPDX-License-Identifier: MIT
#
# One benchmark of two builds by turns, in changing order, since a machine changes more from hour to
# hour than most changes of the code do.
#
#   turns.sh [-n ROUNDS] OLD NEW PROGRAM [ARGUMENT...]
#
# OLD and NEW are build folders, PROGRAM is a path in both, as bench/bench_hook or
# bench/cuda/bench_capture. Prints what it prints, with each number that has a decimal point as the
# median of OLD -> that of NEW, and in brackets the difference of the two with the least and the
# greatest difference of a round. Lines that have other numbers of numbers in some run are left
# out. Ends with what a run ended with that neither succeeded nor missed its bar (1).

set -eu
LC_ALL=C
export LC_ALL

usage() {
	echo "usage: turns.sh [-n ROUNDS] OLD NEW PROGRAM [ARGUMENT...]" >&2
	exit 2
}

rounds=5
while getopts n: option; do
	case $option in
	n) rounds=$OPTARG ;;
	*) usage ;;
	esac
done
shift $((OPTIND - 1))
[ $# -ge 3 ] || usage
case $rounds in
'' | *[!0-9]* | 0) usage ;;
esac
old=$1
new=$2
program=$3
shift 3
for build in "$old" "$new"; do
	[ -x "$build/$program" ] || {
		echo "turns: $build/$program is not there: make it with 'make $program' in $build" >&2
		exit 2
	}
done
tmp=$(mktemp -d "${TMPDIR:-/tmp}/moetrace-turns.XXXXXX")
trap 'rm -rf "$tmp"' EXIT
trap 'exit 1' HUP INT TERM

# run WHICH BUILD: 1, a bar that was missed, is as good as 0 here.
run() {
	which=$1
	build=$2
	shift 2
	status=0
	(cd "$build" && "./$program" "$@") >"$tmp/$which.$round" || status=$?
	[ "$status" -le 1 ] || exit "$status"
}

round=1
while [ "$round" -le "$rounds" ]; do
	if [ $((round % 2)) -eq 1 ]; then
		run old "$old" "$@"
		run new "$new" "$@"
	else
		run new "$new" "$@"
		run old "$old" "$@"
	fi
	round=$((round + 1))
done

# All runs, a line as: old or new, round, line, text.
round=1
while [ "$round" -le "$rounds" ]; do
	for which in old new; do
		awk -v which="$which" -v round="$round" '{ print which "\t" round "\t" NR "\t" $0 }' \
			"$tmp/$which.$round"
	done
	round=$((round + 1))
done | awk -F '\t' -v rounds="$rounds" '
	function median(which, line, i,    r, n, j, v, list) {
		n = 0
		for (r = 1; r <= rounds; r++) {
			v = value[which, r, line, i]
			for (j = n++; j > 0 && list[j - 1] > v; j--)
				list[j] = list[j - 1]
			list[j] = v
		}
		return (list[int((n - 1) / 2)] + list[int(n / 2)]) / 2
	}
	function joined(line, i,    r, least, most, d, from, to) {
		for (r = 1; r <= rounds; r++) {
			d = value["new", r, line, i] - value["old", r, line, i]
			least = r == 1 || d < least ? d : least
			most = r == 1 || d > most ? d : most
		}
		from = median("old", line, i)
		to = median("new", line, i)
		return sprintf("%.2f -> %.2f (%+.2f: %+.2f to %+.2f)", from, to, to - from, least, most)
	}
	{
		n = 0
		rest = $4
		text = ""
		while (match(rest, /-?[0-9]+\.[0-9]+/)) {
			value[$1, $2, $3, ++n] = substr(rest, RSTART, RLENGTH) + 0
			text = text substr(rest, 1, RSTART - 1) "\n"
			rest = substr(rest, RSTART + RLENGTH)
		}
		if (!($3 in numbers))
			numbers[$3] = n
		else if (numbers[$3] != n)
			differs[$3] = 1
		form[$3] = text rest
		seen[$3]++
		lines = $3 > lines ? $3 : lines
	}
	END {
		for (line = 1; line <= lines; line++) {
			if (differs[line] || seen[line] != 2 * rounds || !numbers[line])
				continue
			rest = form[line]
			for (i = 1; i <= numbers[line]; i++)
				sub(/\n/, joined(line, i), rest)
			print rest
		}
	}'
