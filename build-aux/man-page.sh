#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Writes a manual page from what the built command says of itself:
#
#   man-page.sh COMMAND .../moetrace.1 INCLUDE    the command; INCLUDE is help2man's
#   man-page.sh COMMAND .../moetrace-VERB.1       one verb, from `COMMAND help VERB`
#
# HELP2MAN names help2man. A verb's NAME line is its line in the list of verbs that
# `COMMAND --help` prints. OUTPUT appears complete or not at all.

set -eu
command=$1
output=$2
name='record and read the expert routing of mixture-of-experts models'

# The same sources give the same page, whenever they are built.
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-1767225600}
LC_ALL=C
# argp breaks no line: the usage of a verb stays one.
ARGP_HELP_FMT=rmargin=2000
export SOURCE_DATE_EPOCH LC_ALL ARGP_HELP_FMT

trap 'rm -f "$output.tmp" "$output.named"' EXIT
trap 'exit 1' HUP INT TERM

# page NAME OPTION...
page() {
	text=$1
	shift
	"${HELP2MAN:-help2man}" --no-info --no-discard-stderr --section=1 \
		--manual='moetrace manual' --name="$text" --output="$output.tmp" "$@" "$command"
}

case ${output##*/} in
moetrace.1)
	page "$name" --include="$3"
	mv "$output.tmp" "$output"
	exit
	;;
moetrace-*.1) ;;
*)
	echo "man-page.sh: $output: neither moetrace.1 nor moetrace-VERB.1" >&2
	exit 2
	;;
esac

verb=${output##*/moetrace-}
verb=${verb%.1}
name=$("$command" --help | awk -v verb="$verb" '
	/^Verbs:/ { inside = 1; next }
	inside && $1 == verb { sub(/^ *[^ ]+ +/, ""); print; exit }')
[ -n "$name" ] || {
	echo "man-page.sh: '$command --help' does not list the verb $verb" >&2
	exit 1
}
page "$name" --help-option="help $verb"

# help2man names a page after the program.
upper=$(printf '%s' "$verb" | tr '[:lower:]' '[:upper:]')
sed -e "s/^\.TH MOETRACE /.TH MOETRACE-$upper /" \
	-e "s/^moetrace \\\\- /moetrace-$verb \\\\- /" "$output.tmp" >"$output.named"
mv "$output.named" "$output"
