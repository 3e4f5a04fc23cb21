# SPDX-License-Identifier: MIT
#
# The example as a reader finds it: built by its own Makefile through pkg-config, from the
# public headers alone, as C99 without a warning; run; and its file read with a stock sqlite3.

. "$MOETRACE_SRCDIR/tests/support/lib.sh"
need_command pkg-config sqlite3
[ -f "$MOETRACE_BUILDDIR/libtrace/.libs/libmoetrace.so" ] || skip "built without a shared library"

cp "$MOETRACE_SRCDIR/examples/Makefile" "$MOETRACE_SRCDIR/examples/toy_runtime.c" "$tmp"
PKG_CONFIG_PATH=$MOETRACE_BUILDDIR${PKG_CONFIG_PATH:+:$PKG_CONFIG_PATH}
LD_LIBRARY_PATH=$MOETRACE_BUILDDIR/libtrace/.libs${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
export PKG_CONFIG_PATH LD_LIBRARY_PATH
expect_ok env -u MAKEFLAGS -u MFLAGS -u MAKELEVEL "${MAKE:-make}" -C "$tmp" toy_runtime CC="$MOETRACE_CC" \
	CFLAGS='-std=c99 -pedantic -Wall -Wextra -Werror'

expect_ok "$tmp/toy_runtime" "$tmp/toy.db"
expect_out ''
expect_err ''
expect_absent "$tmp/toy.db-wal" "$tmp/toy.db-shm"
expect_eq "the request" "$(sql "$tmp/toy.db" \
	"SELECT verdict, n_positions, n_passes, prefill_rows, decode_rows FROM request_summary")" \
	"complete|7|4|4|3"
expect_eq "the experts" "$(sql "$tmp/toy.db" \
	"SELECT count(*), min(layer), max(layer), count(DISTINCT position), min(weight) FROM routed_expert")" \
	"56|1|2|7|0.25"

# What it says when nothing can be recorded.
expect_error 1 "$tmp/toy.db.*exists" "$tmp/toy_runtime" "$tmp/toy.db"
expect_error 2 '^usage' "$tmp/toy_runtime"
