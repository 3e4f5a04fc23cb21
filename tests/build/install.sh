# SPDX-License-Identifier: MIT
#
# `make install DESTDIR=` puts every part in its place, a program builds and runs
# against the result through pkg-config, and `make uninstall` takes it all back.

. "$MOETRACE_SRCDIR/tests/support/lib.sh"
need_command pkg-config readelf

stage=$tmp/stage
expect_ok quiet_make install DESTDIR="$stage" prefix=/opt/m exec_prefix=/opt/m
root=$stage/opt/m
lib=$(find "$root" -name libmoetrace.so -exec dirname {} \;)
[ -n "$lib" ] || fail "libmoetrace.so was not installed"

expect_file "$root/bin/moetrace" "$lib/libmoetrace.so" "$lib/moetrace/moetrace_sql.so" \
	"$lib/pkgconfig/moetrace.pc" "$root/include/moetrace/version.h"
[ -f "$lib/libmoetrace.a" ] || grep -q "^build_old_libs=no" "$MOETRACE_BUILDDIR/libtool" ||
	fail "libmoetrace.a was not installed"
for header in "$MOETRACE_SRCDIR"/libtrace/include/moetrace/*.h; do
	expect_same "$header" "$root/include/moetrace/${header##*/}"
done
if [ -n "${MOETRACE_MAN-}" ]; then
	expect_file "$root/share/man/man1/moetrace.1"
fi
expect_absent "$lib/moetrace/moetrace_sql.a"

# Nothing that is installed remembers where it was built.
readelf -d "$root/bin/moetrace" "$lib/libmoetrace.so" "$lib/moetrace/moetrace_sql.so" |
	grep -E 'RPATH|RUNPATH' >"$tmp/rpath"
expect_no_match "$tmp/rpath" "[[:]$MOETRACE_BUILDDIR/"
expect_no_match "$lib/pkgconfig/moetrace.pc" "[=LI ]($MOETRACE_BUILDDIR|$MOETRACE_SRCDIR)(/|\$)"

# A user's program, once with each library.
cat >"$tmp/user.c" <<'END'
#include <stdio.h>
#include <moetrace/moetrace.h>
int main(void)
{
	printf("%s %s\n", MOETRACE_VERSION_STRING, moetrace_version());
	return 0;
}
END
PKG_CONFIG_PATH=$lib/pkgconfig${PKG_CONFIG_PATH:+:$PKG_CONFIG_PATH}
PKG_CONFIG_SYSROOT_DIR=
export PKG_CONFIG_PATH PKG_CONFIG_SYSROOT_DIR
version=$(pkg-config --modversion moetrace) || fail "pkg-config does not know moetrace"
config() {
	pkg-config --define-variable=prefix="$root" --define-variable=exec_prefix="$root" \
		--define-variable=libdir="$lib" --define-variable=includedir="$root/include" "$@" moetrace
}

# shellcheck disable=SC2046,SC2086 # lists of options
expect_ok $MOETRACE_CC -std=c99 $(config --cflags) -o "$tmp/shared" "$tmp/user.c" $(config --libs)
expect_ok env LD_LIBRARY_PATH="$lib" "$tmp/shared"
expect_out "$version $version"

if [ -f "$lib/libmoetrace.a" ]; then
	# shellcheck disable=SC2046,SC2086 # lists of options
	expect_ok $MOETRACE_CC -std=c99 $(config --cflags) -o "$tmp/static" "$tmp/user.c" \
		"$lib/libmoetrace.a" $(config --static --libs-only-other) $(pkg-config --libs sqlite3)
	expect_ok "$tmp/static"
	expect_out "$version $version"
fi

# The same program against the build tree, which needs no installation.
uninstalled() {
	PKG_CONFIG_PATH=$MOETRACE_BUILDDIR pkg-config "$@" moetrace
}
# shellcheck disable=SC2046,SC2086 # lists of options
expect_ok $MOETRACE_CC -std=c99 $(uninstalled --cflags) -o "$tmp/twin" "$tmp/user.c" \
	$(uninstalled --libs)
expect_ok env LD_LIBRARY_PATH="$MOETRACE_BUILDDIR/libtrace/.libs" "$tmp/twin"
expect_out "$version $version"

# The command finds its library where it was installed to.
expect_ok env LD_LIBRARY_PATH="$lib" "$root/bin/moetrace" --version
expect_match "$tmp/out" "$version"

expect_ok quiet_make uninstall DESTDIR="$stage" prefix=/opt/m exec_prefix=/opt/m
left=$(find "$stage" -type f -o -type l)
[ -z "$left" ] || fail "make uninstall left $left"
