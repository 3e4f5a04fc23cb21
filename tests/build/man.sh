# SPDX-License-Identifier: MIT
#
# There is a manual page for the command and for every verb that it lists, each
# with a name, a synopsis and a description.

. "$MOETRACE_SRCDIR/tests/support/lib.sh"
need_plain_build
[ -n "$MOETRACE_MAN" ] || skip "help2man was not found by configure"

expect_ok "$moetrace" --help
sed -n '/^Verbs:/,/^$/s/^  \([a-z][a-z]*\) .*/\1/p' "$tmp/out" | grep -vx help >"$tmp/verbs"
expect_file "$tmp/verbs"

{
	echo docs/moetrace.1
	sed 's|.*|docs/moetrace-&.1|' "$tmp/verbs"
} | LC_ALL=C sort >"$tmp/want"
# shellcheck disable=SC2086 # a list of pages
printf '%s\n' $MOETRACE_MAN | LC_ALL=C sort >"$tmp/have"
expect_same "$tmp/want" "$tmp/have"

while read -r page; do
	file=$MOETRACE_BUILDDIR/$page
	expect_file "$file"
	for section in NAME SYNOPSIS DESCRIPTION; do
		expect_match "$file" "^\\.SH $section"
	done
	name=${page#docs/}
	expect_match "$file" "^${name%.1} .- [a-z]"
done <"$tmp/want"

# A page is a function of the sources: made again, it is the same.
HELP2MAN=$MOETRACE_HELP2MAN expect_ok sh "$MOETRACE_SRCDIR/build-aux/man-page.sh" \
	"$moetrace" "$tmp/moetrace-check.1"
expect_same "$MOETRACE_BUILDDIR/docs/moetrace-check.1" "$tmp/moetrace-check.1"
