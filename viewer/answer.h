/* SPDX-License-Identifier: MIT */
/*
 * What the page may ask: a question is a name and parameters, an answer a struct mt_view_reply. Most
 * questions are one SQL statement (schema/functions/questions.h) whose named parameters are the question's;
 * its rows become JSON, {"columns": [...], "rows": [[...], ...], "is_cut": false}, or arrays. Where
 * a question has several, the answer is an object with a member a section. The server and the single file
 * both ask here.
 */
#ifndef MT_VIEWER_ANSWER_H
#define MT_VIEWER_ANSWER_H

#include "viewer/reply.h"
#include "viewer/source.h"

#define MT_QUESTION_MAX_PARAMETERS 16

struct mt_parameter {
	const char *name, *value;
};

struct mt_question {
	const char *name;
	size_t n_parameters;
	struct mt_parameter parameters[MT_QUESTION_MAX_PARAMETERS];
	const char *sql; /* of the user's own query; NULL: not given */
	int peer_fd;	 /* who asks; -1: nobody who could go away */
	uint32_t query_limit_ms;
	uint32_t limit_ms; /* of a question; 0: as long as somebody would wait */
};

/* A question's value; NULL: it has none of that name. */
const char *mt_question_text(const struct mt_question *question, const char *name);

/* Answer it from @source. @reply was begun; it is ended here. */
void mt_answer(const struct mt_question *question, struct mt_source *source,
	       struct mt_view_reply *reply);

/* ---- for the parts that answer ---- */

/*
 * Run @stmt and write its rows as JSON. Returns whether it came to its end; if not, the
 * reply is a failure.
 */
bool mt_answer_rows(struct mt_source_run *run, sqlite3_stmt *stmt, uint32_t max_rows,
		    struct mt_view_reply *reply);

/* Say in @reply why the statement that ran last on @run failed. */
void mt_answer_error(const struct mt_source_run *run, struct mt_view_reply *reply);

/* The user's own query, question->sql. */
void mt_answer_query(const struct mt_question *question, struct mt_source_run *run,
		     struct mt_view_reply *reply);

#endif
