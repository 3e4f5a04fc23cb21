# SPDX-License-Identifier: MIT
#
# The loadable module in a stock sqlite3: the same answers as the functions of the command.

. "$MOETRACE_SRCDIR/tests/support/lib.sh"
need_command sqlite3
need_stock

module=$MOETRACE_BUILDDIR/schema/functions/.libs/moetrace_sql
expect_file "$module.so"
expect_ok "$MOETRACE_BUILDDIR/tests/schema/make_trace" mixed "$tmp/mixed.db"

# Options before the file would be read as its name, so that the commands come on stdin.
cat >"$tmp/in" <<EOF
.bail on
.load $module sqlite3_moetracesql_init
SELECT count(*) - (SELECT count(*) FROM expected) FROM moe_topk;
SELECT count(*) FROM (SELECT * FROM expected EXCEPT SELECT * FROM moe_topk);
SELECT count(*) FROM (SELECT recording_id, layer_id, expert, tokens FROM expert_load WHERE tokens > 0
	EXCEPT SELECT recording_id, layer_id, expert, sum(tokens) FROM moe_load GROUP BY 1, 2, 3);
EOF
run stock sh -c "sqlite3 -batch -readonly '$tmp/mixed.db' <'$tmp/in'"
expect_eq "exit status" "$status" 0
expect_out "0
0
0"
