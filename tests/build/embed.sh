# SPDX-License-Identifier: MIT
#
# The generator of byte arrays keeps every byte, the order and the names, and
# leaves nothing behind when it fails.

. "$MOETRACE_SRCDIR/tests/support/lib.sh"
need_plain_build

embed=$MOETRACE_SRCDIR/build-aux/embed.sh
mkdir "$tmp/src"

# All 256 bytes, runs of equal lines (which od would fold), no newline at the end.
awk 'BEGIN { for (i = 0; i < 256; i++) printf "%c", i }' >"$tmp/src/b.sql"
awk 'BEGIN { for (i = 0; i < 99; i++) printf "same same same!\n" }' >>"$tmp/src/b.sql"
printf -- '-- \303\244 "quoted" \\ back ??/' >"$tmp/src/a.sql"
mkdir "$tmp/src/views"
printf 'x' >"$tmp/src/views/c.sql"

expect_ok sh "$embed" "$tmp/out.c" "$tmp/src" b.sql a.sql views/c.sql
cat >"$tmp/main.c" <<'END'
#include <stdio.h>
#include <string.h>
#include "libtrace/store/schema_sql.h"
int main(int argc, char **argv)
{
	if (argc == 1) {
		for (size_t i = 0; i < mt_n_schema_files; i++)
			printf("%s %d\n", mt_schema_files[i].name,
			       mt_schema_files[i].sql[mt_schema_files[i].n_bytes]);
		return 0;
	}
	for (size_t i = 0; i < mt_n_schema_files; i++)
		if (strcmp(mt_schema_files[i].name, argv[1]) == 0)
			fwrite(mt_schema_files[i].sql, 1, mt_schema_files[i].n_bytes, stdout);
	return 0;
}
END
# shellcheck disable=SC2086 # the compiler with its options
expect_ok $MOETRACE_CC -Wall -Wextra -Werror -I"$MOETRACE_SRCDIR" -o "$tmp/embedded" \
	"$tmp/main.c" "$tmp/out.c"
expect_ok "$tmp/embedded"
expect_out "b.sql 0
a.sql 0
views/c.sql 0"
for file in b.sql a.sql views/c.sql; do
	"$tmp/embedded" "$file" >"$tmp/back" || fail "the program failed"
	expect_same "$tmp/src/$file" "$tmp/back"
done

expect_error 1 'missing or empty' sh "$embed" "$tmp/none.c" "$tmp/src" a.sql no-such.sql
expect_absent "$tmp/none.c" "$tmp/none.c.tmp"

# Every schema file on disk is one of those that the library holds.
(cd "$MOETRACE_SRCDIR" && ls schema/[0-9]*.sql schema/views/*.sql) | LC_ALL=C sort >"$tmp/disk"
sed -n 's/^	{ "\(.*\)", .*/\1/p' "$MOETRACE_BUILDDIR/libtrace/store/schema_sql.c" |
	LC_ALL=C sort >"$tmp/embedded.list"
expect_same "$tmp/disk" "$tmp/embedded.list"
