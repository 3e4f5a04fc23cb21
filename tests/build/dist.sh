# SPDX-License-Identifier: MIT
#
# Every file under version control is in the tarball, unless it is named here.

. "$MOETRACE_SRCDIR/tests/support/lib.sh"
need_plain_build
need_command git
[ -e "$MOETRACE_SRCDIR/.git" ] || skip "not a git work tree"

# safe.directory: the tests may be run by another user than the owner.
git -c safe.directory="$MOETRACE_SRCDIR" -C "$MOETRACE_SRCDIR" ls-files >"$tmp/tracked" ||
	fail "git ls-files failed"
expect_ok quiet_make distdir distdir="$tmp/dist" am__remove_distdir=: am__skip_mode_fix=yes
(cd "$tmp/dist" && find . -type f | sed 's|^\./||') | LC_ALL=C sort >"$tmp/have"

# What only a checkout needs.
grep -vE '^\.gitignore$|/\.gitignore$|^\.gitattributes$' "$tmp/tracked" | while read -r file; do
	[ ! -f "$MOETRACE_SRCDIR/$file" ] || echo "$file"
done | LC_ALL=C sort >"$tmp/want"
LC_ALL=C comm -23 "$tmp/want" "$tmp/have" >"$tmp/lost"
[ ! -s "$tmp/lost" ] ||
	fail "tracked, but in no SOURCES, HEADERS or EXTRA_DIST: $(tr '\n' ' ' <"$tmp/lost")"
