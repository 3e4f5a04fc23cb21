# SPDX-License-Identifier: MIT
#
# docs/schema.md is what the SQL comments say now, it names every column that the database has, in
# its order, and the generator refuses a column without a comment.

. "$MOETRACE_SRCDIR/tests/support/lib.sh"
need_plain_build
need_command sqlite3

generator=$MOETRACE_SRCDIR/build-aux/schema-doc.sh

# The files in their order, as schema/local.mk lists them; questions are no part of a trace.
sed -n '\|schema/questions/|!s|^[[:blank:]]*\(schema/.*\.sql\).*|\1|p' "$MOETRACE_SRCDIR/schema/local.mk" >"$tmp/files"
expect_match "$tmp/files" '^schema/0001-core\.sql$'
(cd "$MOETRACE_SRCDIR" && ls schema/*.sql schema/views/*.sql) >"$tmp/present"
sort "$tmp/files" >"$tmp/sorted"
expect_same "$tmp/sorted" "$tmp/present"

# shellcheck disable=SC2046 # the project's paths hold no blanks
expect_ok sh "$generator" "$MOETRACE_SRCDIR" $(cat "$tmp/files")
cp "$tmp/out" "$tmp/schema.md"
cmp -s "$tmp/schema.md" "$MOETRACE_SRCDIR/docs/schema.md" || {
	diff "$tmp/schema.md" "$MOETRACE_SRCDIR/docs/schema.md" | head -n 20 >&2
	fail "docs/schema.md is not what the comments say; make schema-doc renews it"
}

sed -n 's/^### \(.*\)/\1/p; s/^| `\([A-Za-z_0-9]*\)` |.*/\1/p' "$tmp/schema.md" >"$tmp/documented"
while read -r file; do
	cat "$MOETRACE_SRCDIR/$file"
done <"$tmp/files" >"$tmp/schema.sql"
expect_ok sqlite3 "$tmp/schema.db" ".read '$tmp/schema.sql'" "
	SELECT iif(cid = 0, m.name || char(10) || c.name, c.name)
	FROM sqlite_schema AS m JOIN pragma_table_xinfo(m.name) AS c
	WHERE m.type IN ('table', 'view') ORDER BY m.rowid, c.cid"
expect_same "$tmp/out" "$tmp/documented"

# Refusals.
mkdir "$tmp/tree"
printf -- '-- Paragraph.\n\n-- A table.\nCREATE TABLE t (\n\ta INTEGER -- key\n);\n' >"$tmp/tree/good.sql"
expect_ok sh "$generator" "$tmp/tree" good.sql
printf -- '-- Paragraph.\n\n-- A table.\nCREATE TABLE t (\n\ta INTEGER,\n\tb -- no type\n);\n' >"$tmp/tree/bad.sql"
expect_status 1 sh "$generator" "$tmp/tree" bad.sql
expect_match "$tmp/err" 'bad\.sql:5: column t\.a has no comment'
expect_match "$tmp/err" 'bad\.sql:6: column t\.b has no type'
printf -- '\nCREATE TABLE t (\n\ta INTEGER -- key\n);\n' >"$tmp/tree/bare.sql"
expect_status 1 sh "$generator" "$tmp/tree" bare.sql
expect_match "$tmp/err" 'table t has no paragraph above it'
