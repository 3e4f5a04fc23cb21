# SPDX-License-Identifier: MIT
#
# The public headers are clean C99 and C++, need nothing but themselves and the
# umbrella, and may be included twice. config.h is out of reach here.

. "$MOETRACE_SRCDIR/tests/support/lib.sh"
need_plain_build

includes="-I$MOETRACE_BUILDDIR/libtrace/include -I$MOETRACE_SRCDIR/libtrace/include"
flags="-Wall -Wextra -Wundef -Wshadow -pedantic -pedantic-errors -Werror -fsyntax-only"

# compile COMPILER-AND-OPTIONS HEADER: a program that includes it twice.
compile() {
	printf '#include <%s>\n#include <%s>\nint main(void);\nint main(void) { return 0; }\n' \
		"$2" "$2" >"$tmp/program"
	# shellcheck disable=SC2086 # lists of options
	run $1 $flags $includes "$tmp/program"
}

cd "$tmp" || exit 99
headers=$(cd "$MOETRACE_SRCDIR/libtrace/include" && ls moetrace/*.h)
[ -n "$headers" ] || fail "there are no public headers"

for compiler in "$MOETRACE_CC -std=c99 -x c -Wstrict-prototypes" \
	"$MOETRACE_CC -std=c17 -x c -Wstrict-prototypes" \
	"${CXX:-c++} -std=c++11 -x c++" "${CXX:-c++} -std=c++17 -x c++"; do
	# shellcheck disable=SC2086 # the compiler with its options
	set -- $compiler
	need_command "$1"
	for header in moetrace/moetrace.h moetrace/version.h $headers; do
		compile "$compiler" "$header"
		[ "$status" -ne 0 ] || continue
		# A part of the umbrella says so, and compiles through it.
		grep -q '#error.*moetrace/moetrace\.h' "$tmp/err" || fail "$compiler: <$header>"
		grep -q "<$header>" "$MOETRACE_SRCDIR/libtrace/include/moetrace/moetrace.h" ||
			fail "<$header> refuses to be alone and is not in <moetrace/moetrace.h>"
	done
done
