/* SPDX-License-Identifier: MIT */
/*
 * The user's own query: one statement that returns rows. That it only reads is not judged here but
 * by the connection (source.c).
 */
#include "viewer/answer.h"

#include <string.h>

#include "schema/functions/statement.h"

/* What a person, or a chart, can look at. */
#define MAX_ROWS 10000

static void statement_run(struct mt_source_run *run, sqlite3_stmt *stmt, const char *tail,
			  struct mt_view_reply *reply)
{
	if (!mt_sql_is_end(run->db, tail))
		mt_view_reply_fail(reply, MT_REPLY_BAD, "more than one statement; give one");
	else if (!sqlite3_stmt_readonly(stmt))
		mt_view_reply_fail(reply, MT_REPLY_BAD, "the statement would write; a trace is only read");
	else if (sqlite3_column_count(stmt) == 0)
		mt_view_reply_fail(reply, MT_REPLY_BAD, "the statement returns no rows; give a SELECT");
	else
		mt_answer_rows(run, stmt, MAX_ROWS, reply);
}

void mt_answer_query(const struct mt_question *question, struct mt_source_run *run,
		     struct mt_view_reply *reply)
{
	sqlite3_stmt *stmt = NULL;
	const char *tail = NULL;

	run->is_of_user = true;
	if (sqlite3_prepare_v2(run->db, question->sql, -1, &stmt, &tail) != SQLITE_OK)
		mt_answer_error(run, reply);
	else if (!stmt)
		mt_view_reply_fail(reply, MT_REPLY_BAD, "the SQL is empty; give one SELECT");
	else
		statement_run(run, stmt, tail, reply);
	sqlite3_finalize(stmt);
	run->is_of_user = false;
}
