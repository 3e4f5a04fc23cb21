#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Writes the manual page of one verb: verb-page.sh COMMAND OUTPUT, where OUTPUT is
# .../moetrace-VERB.1 and HELP2MAN holds help2man with its common options. The
# page's NAME line is the first paragraph that `COMMAND help VERB` prints after
# its usage lines.

set -eu
command=$1
output=$2
verb=${output##*/moetrace-}
verb=${verb%.1}

help=$("$command" help "$verb") || {
	echo "verb-page.sh: '$command help $verb' failed" >&2
	exit 1
}
name=$(printf '%s\n' "$help" | awk '
	/^ *([Uu]sage:|or:)/ { seen = 1; next }
	seen && /^[^ ]/ { sub(/[.:]? *$/, ""); print; exit }')
[ -n "$name" ] || {
	echo "verb-page.sh: '$command help $verb' does not say what the verb does" >&2
	exit 1
}

trap 'rm -f "$output.tmp"' EXIT
eval "$HELP2MAN" --section=1 --help-option="'help $verb'" --name='"$name"' \
	--output='"$output.tmp"' '"$command"'
# help2man names a page after the program.
sed -e "s/^\.TH MOETRACE /.TH MOETRACE-$(printf '%s' "$verb" | tr '[:lower:]' '[:upper:]') /" \
	-e "s/^moetrace \\\\- /moetrace-$verb \\\\- /" "$output.tmp" >"$output.named"
mv "$output.named" "$output"
