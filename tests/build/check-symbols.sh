# SPDX-License-Identifier: MIT
#
# The binary interface: what the shared library, the archive and the loadable
# module export, what they are linked with, and that no library of ours calls
# what ends the process or writes to its standard streams.

. "$MOETRACE_SRCDIR/tests/support/lib.sh"
need_plain_build
need_command nm readelf

library=$MOETRACE_BUILDDIR/libtrace/.libs/libmoetrace.so
archive=$MOETRACE_BUILDDIR/libtrace/.libs/libmoetrace.a
module=$MOETRACE_BUILDDIR/schema/functions/.libs/moetrace_sql.so

exported() {
	nm -D --defined-only "$1" | awk '$2 != "A" { sub(/@.*/, "", $3); print $3 }' |
		grep -vE '^(__asan|__odr_asan|__tsan|__ubsan|__sanitizer|_edata$|_end$|__bss_start$)' |
		LC_ALL=C sort -u
}

needed() {
	readelf -d "$1" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' |
		grep -vE '^(libc|libm|libpthread|libdl|ld-linux[a-z0-9_-]*|libgcc_s|lib(asan|ubsan|tsan))\.so'
}

# declared: every function that an installed header promises.
declared() {
	cat "$MOETRACE_SRCDIR"/libtrace/include/moetrace/*.h | tr '\n\t' '  ' |
		grep -oE 'MOETRACE_API [^;{]*\(' | grep -oE 'moetrace_[a-z0-9_]+ *\(' |
		tr -d ' (' | LC_ALL=C sort -u
}

if [ -f "$library" ]; then
	exported "$library" >"$tmp/exported"
	declared >"$tmp/declared"
	expect_file "$tmp/declared"
	diff "$tmp/declared" "$tmp/exported" >&2 ||
		fail "libmoetrace.so and its headers disagree (< declared only, > exported only)"
	expect_eq "libraries that libmoetrace.so needs" "$(needed "$library" | sed 's/\.so.*//')" \
		libsqlite3
	if [ -n "${MOETRACE_NODELETE-}" ]; then
		readelf -d "$library" >"$tmp/dynamic"
		expect_match "$tmp/dynamic" 'Flags:.*NODELETE'
	fi
	if [ -n "${MOETRACE_VERSION_SCRIPT-}" ]; then
		nm -D --defined-only "$library" >"$tmp/versions"
		expect_match "$tmp/versions" ' T moetrace_[a-z_]*@@MOETRACE_[0-9.]*$'
	fi
fi

# Names in the archive meet those of the host's program. Those of NVTX's header are weak: all parts of
# a program are to have the same ones.
if [ -f "$archive" ]; then
	nm -g --defined-only "$archive" 2>/dev/null |
		awk 'NF == 3 && !($2 ~ /^[VW]$/ && $3 ~ /^nvtx.*_v3$|^InitializeInjectionNvtx2_fnptr$/) { print $3 }' |
		grep -vE '^(moetrace|mtc?)_|^__(asan|odr_asan|tsan|ubsan|sanitizer)|^_?_?DW\.ref' >"$tmp/foreign"
	[ ! -s "$tmp/foreign" ] || fail "libmoetrace.a defines $(tr '\n' ' ' <"$tmp/foreign")"
fi

if [ -f "$module" ]; then
	expect_eq "symbols of moetrace_sql.so" "$(exported "$module")" sqlite3_moetracesql_init
	expect_eq "libraries that moetrace_sql.so needs" "$(needed "$module")" ""
fi

# The undefined symbols of each object, under the names that the compiler gives
# them after its own replacements.
find "$MOETRACE_BUILDDIR/common" "$MOETRACE_BUILDDIR/libtrace" "$MOETRACE_BUILDDIR/kernels" \
	"$MOETRACE_BUILDDIR/schema" "$MOETRACE_BUILDDIR/collectors" -name '*.o' 2>/dev/null |
	LC_ALL=C sort >"$tmp/objects"
expect_file "$tmp/objects"
xargs nm -A -u <"$tmp/objects" | awk -v top="$MOETRACE_BUILDDIR/" '
	{ object = substr($1, length(top) + 1); sub(/@.*/, "", $NF) }
	$NF ~ /^(exit|_exit|_Exit|quick_exit|abort|__assert_fail|stdout|stderr|psignal)$/ ||
	$NF ~ /^(v?printf|__v?printf_chk|puts|putchar|perror|error|v?errx?|v?warnx?)$/ {
		print object " " $NF
	}' >"$tmp/calls"
[ ! -s "$tmp/calls" ] || fail "a library may not call: $(tr '\n' ' ' <"$tmp/calls")"
