/* SPDX-License-Identifier: MIT */
/*
 * From a question to its answer. A value is bound as a number where it is written as one, else as
 * text, and as text in any case where its parameter is one; a parameter that the question lacks is NULL. Rows beyond the limit of a statement are cut
 * off, which the answer says.
 */
#include "viewer/answer.h"

#include <stdlib.h>
#include <string.h>

#include "schema/functions/questions.h"
#include "viewer/progress.h"
#include "viewer/timeline.h"

/* What an answer may grow to: some ten times what a whole table of expert load takes. */
#define MAX_REPLY_BYTES (256u << 20)
/* Of the program's own statements; whole files of some GB are read for some of them. */
#define OWN_LIMIT_MS 120000

/* Integers beyond it lose digits in JavaScript, and are sent as text. */
#define MAX_EXACT_INTEGER 9007199254740991

const char *mt_question_text(const struct mt_question *question, const char *name)
{
	for (size_t i = 0; i < question->n_parameters; i++)
		if (strcmp(question->parameters[i].name, name) == 0)
			return question->parameters[i].value;
	return NULL;
}

/* ---- failures ---- */

void mt_answer_error(const struct mt_source_run *run, struct mt_view_reply *reply)
{
	const int rc = sqlite3_errcode(run->db);

	if (run->state == MT_RUN_TIMED_OUT)
		mt_view_reply_fail(reply, MT_REPLY_TIMEOUT,
			      "cut off at its time limit; ask for less, or use 'moetrace query'");
	else if (run->state != MT_RUN_GOES_ON)
		mt_view_reply_fail(reply, MT_REPLY_BUSY, "interrupted: the viewer ends");
	else if (rc == SQLITE_AUTH)
		mt_view_reply_fail(reply, MT_REPLY_BAD,
			      "refused: a query here reads this trace and does nothing else");
	else if (rc == SQLITE_NOMEM)
		mt_view_reply_fail(reply, MT_REPLY_FAILED, "it takes more memory than the viewer may use");
	else
		mt_view_reply_fail(reply, MT_REPLY_BAD, "%s: %s", run->source->name,
			      sqlite3_errmsg(run->db));
}

/* ---- parameters ---- */

/* Whether @text is a number alone: digits, a sign before and perhaps one point. */
static bool is_number(const char *text, bool *ret_is_integer)
{
	size_t n_sign = text[0] == '-';
	size_t n_whole = strspn(text + n_sign, "0123456789");
	const char *rest = text + n_sign + n_whole;
	size_t n_part = *rest == '.' ? strspn(rest + 1, "0123456789") : 0;

	*ret_is_integer = *rest == '\0';
	return n_whole > 0 && n_whole < 19 &&
	       (*rest == '\0' || (n_part > 0 && n_part < 19 && rest[1 + n_part] == '\0'));
}

/* Compared with texts, in which 007 is not 7. */
static bool is_text(const char *name)
{
	static const char *const names[] = {"key", "value", "like", "verdict", "phase", "rule", "placement"};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (strcmp(name, names[i]) == 0)
			return true;
	return false;
}

static void parameters_bind(const struct mt_question *question, sqlite3_stmt *stmt)
{
	for (int i = 1; i <= sqlite3_bind_parameter_count(stmt); i++) {
		const char *name = sqlite3_bind_parameter_name(stmt, i);
		const char *value = name ? mt_question_text(question, name + 1) : NULL; /* :name */
		bool is_integer;

		if (!value)
			sqlite3_bind_null(stmt, i);
		else if (is_text(name + 1) || !is_number(value, &is_integer))
			sqlite3_bind_text(stmt, i, value, -1, SQLITE_STATIC);
		else if (is_integer)
			sqlite3_bind_int64(stmt, i, strtoll(value, NULL, 10));
		else
			sqlite3_bind_double(stmt, i, strtod(value, NULL));
	}
}

/* ---- rows as JSON ---- */

static void cell_write(struct mt_jsonw *json, sqlite3_stmt *stmt, int column)
{
	sqlite3_int64 integer;

	switch (sqlite3_column_type(stmt, column)) {
	case SQLITE_INTEGER:
		integer = sqlite3_column_int64(stmt, column);
		if (integer >= -MAX_EXACT_INTEGER && integer <= MAX_EXACT_INTEGER)
			mt_jsonw_int64(json, integer);
		else
			mt_jsonw_string(json, (const char *)sqlite3_column_text(stmt, column));
		break;
	case SQLITE_FLOAT:
		mt_jsonw_double(json, sqlite3_column_double(stmt, column));
		break;
	case SQLITE_TEXT: {
		const void *text = sqlite3_column_text(stmt, column);

		mt_jsonw_bytes(json, text ? text : "",
			       text ? (size_t)sqlite3_column_bytes(stmt, column) : 0);
		break;
	}
	case SQLITE_BLOB: {
		const void *blob = sqlite3_column_blob(stmt, column);

		mt_jsonw_hex(json, blob ? blob : "",
			     blob ? (size_t)sqlite3_column_bytes(stmt, column) : 0);
		break;
	}
	default:
		mt_jsonw_null(json);
	}
}

/* A column that is left out is an expression to SQLite, named by its text: "q.external_id". */
static const char *plain_name(const char *name)
{
	static const char letters[] = "abcdefghijklmnopqrstuvwxyz_";
	const size_t n = strspn(name, letters);
	const char *rest = name + n + 1;

	return n > 0 && name[n] == '.' && *rest && rest[strspn(rest, letters)] == '\0' ? rest : name;
}

static void columns_write(struct mt_jsonw *json, sqlite3_stmt *stmt, bool is_redacted, int n_columns)
{
	mt_jsonw_key(json, "columns");
	mt_jsonw_array_begin(json);
	for (int i = 0; i < n_columns; i++) {
		const char *name = sqlite3_column_name(stmt, i);

		mt_jsonw_string(json, !name ? "" : is_redacted ? plain_name(name) : name);
	}
	mt_jsonw_array_end(json);
}

bool mt_answer_rows(struct mt_source_run *run, sqlite3_stmt *stmt, uint32_t max_rows,
		    struct mt_view_reply *reply)
{
	const int n_columns = sqlite3_column_count(stmt);
	struct mt_jsonw *json = &reply->json;
	uint32_t n_rows = 0;
	int rc;

	mt_jsonw_object_begin(json);
	columns_write(json, stmt, run->redacted != NULL, n_columns);
	mt_jsonw_key(json, "rows");
	mt_jsonw_array_begin(json);
	while ((rc = sqlite3_step(stmt)) == SQLITE_ROW && n_rows < max_rows &&
	       ftell(reply->out) < (long)MAX_REPLY_BYTES) {
		mt_jsonw_array_begin(json);
		for (int i = 0; i < n_columns; i++)
			cell_write(json, stmt, i);
		mt_jsonw_array_end(json);
		n_rows++;
	}
	if (rc != SQLITE_ROW && rc != SQLITE_DONE) {
		mt_answer_error(run, reply);
		return false;
	}
	mt_jsonw_array_end(json);
	mt_jsonw_key(json, "is_cut");
	mt_jsonw_boolean(json, rc == SQLITE_ROW);
	mt_jsonw_object_end(json);
	return true;
}

/* ---- rows as arrays ---- */

static enum mt_array_type type_of(const char *suffix)
{
	static const char *const names[] = {
		[MT_ARRAY_U8] = "u8",	[MT_ARRAY_U16] = "u16", [MT_ARRAY_U32] = "u32",
		[MT_ARRAY_F32] = "f32",
	};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (strcmp(suffix, names[i]) == 0)
			return (enum mt_array_type)i;
	return MT_ARRAY_F64;
}

static void arrays_begin(sqlite3_stmt *stmt, struct mt_view_reply *reply)
{
	for (int i = 0; i < sqlite3_column_count(stmt) && i < MT_REPLY_MAX_ARRAYS; i++) {
		const char *name = sqlite3_column_name(stmt, i);
		const char *colon = name ? strchr(name, ':') : NULL;
		char before[32];

		snprintf(before, sizeof(before), "%.*s", colon ? (int)(colon - name) : 31,
			 name ? name : "");
		mt_view_reply_array(reply, before, type_of(colon ? colon + 1 : "f64"));
	}
}

/* NULL is NaN, which integer arrays make 0. */
static void arrays_answer(struct mt_source_run *run, sqlite3_stmt *stmt, uint32_t max_rows,
			  struct mt_view_reply *reply)
{
	uint32_t n_rows = 0;
	int rc;

	arrays_begin(stmt, reply);
	while ((rc = sqlite3_step(stmt)) == SQLITE_ROW && n_rows < max_rows &&
	       mt_view_reply_array_bytes(reply) < MAX_REPLY_BYTES) {
		for (size_t i = 0; i < reply->n_arrays; i++)
			mt_view_reply_item(reply, i,
				      sqlite3_column_type(stmt, (int)i) == SQLITE_NULL
					      ? (double)__builtin_nanf("")
					      : sqlite3_column_double(stmt, (int)i));
		n_rows++;
	}
	if (rc != SQLITE_ROW && rc != SQLITE_DONE) {
		mt_answer_error(run, reply);
		return;
	}
	mt_jsonw_object_begin(&reply->json);
	mt_jsonw_key(&reply->json, "is_cut");
	mt_jsonw_boolean(&reply->json, rc == SQLITE_ROW);
}

/* ---- questions ---- */

static bool part_answer(const struct mt_question *question, struct mt_source_run *run,
			const struct mt_question_part *part, struct mt_view_reply *reply)
{
	sqlite3_stmt *stmt;
	bool is_good = true;

	mt_progress_next(run);
	if (sqlite3_prepare_v2(run->db, part->sql, (int)part->n_bytes, &stmt, NULL) != SQLITE_OK) {
		mt_answer_error(run, reply);
		return false;
	}
	parameters_bind(question, stmt);
	if (part->is_arrays)
		arrays_answer(run, stmt, part->max_rows, reply);
	else
		is_good = mt_answer_rows(run, stmt, part->max_rows, reply);
	sqlite3_finalize(stmt);
	return is_good;
}

static void sections_answer(const struct mt_question *question, struct mt_source_run *run,
			    struct mt_question_part *part, struct mt_view_reply *reply)
{
	const char *only = mt_question_text(question, "section");

	mt_jsonw_object_begin(&reply->json);
	do {
		if (only && strcmp(only, part->section) != 0)
			continue;
		mt_jsonw_key(&reply->json, part->section);
		if (!part_answer(question, run, part, reply))
			return;
	} while (mt_question_next(part));
	mt_jsonw_object_end(&reply->json);
}

/* The one question whose answer is made of more than SQL. */
static bool is_timeline(const struct mt_question *question)
{
	return strcmp(question->name, "timeline") == 0;
}

/* A selection's operations lie in parts of their tables that the timeline knows. */
static void selection_answer(const struct mt_question *question, struct mt_source_run *run,
			     struct mt_question_part *part, struct mt_view_reply *reply)
{
	static const char *const names[] = {"first_kernel", "last_kernel", "first_launch", "last_launch"};
	struct mt_question more = *question;
	char ids[4][24];

	if (more.n_parameters + 4 <= MT_QUESTION_MAX_PARAMETERS && mt_timeline_operations(question, run, ids))
		for (size_t i = 0; i < 4; i++)
			more.parameters[more.n_parameters++] = (struct mt_parameter){names[i], ids[i]};
	sections_answer(&more, run, part, reply);
}

static int parts_count(const struct mt_question *question, struct mt_question_part part)
{
	int n = 1;

	if (question->sql || mt_question_text(question, "section"))
		return n;
	while (mt_question_next(&part))
		n++;
	return n;
}

static void run_answer(const struct mt_question *question, struct mt_source_run *run,
		       struct mt_question_part *part, struct mt_view_reply *reply)
{
	if (question->sql) {
		mt_progress_next(run);
		mt_answer_query(question, run, reply);
	} else if (is_timeline(question))
		mt_timeline_answer(question, run, reply);
	else if (strcmp(question->name, "selection") == 0)
		selection_answer(question, run, part, reply);
	else if (part->section[0])
		sections_answer(question, run, part, reply);
	else
		part_answer(question, run, part, reply);
}

static uint32_t limit_of(const struct mt_question *question)
{
	if (question->sql)
		return question->query_limit_ms;
	return question->limit_ms ? question->limit_ms : OWN_LIMIT_MS;
}

void mt_answer(const struct mt_question *question, struct mt_source *source, struct mt_view_reply *reply)
{
	char version[MT_STATE_VERSION_BYTES];
	struct mt_question_part part = {.sql = ""};
	struct mt_source_run *run;
	const char *change;

	if (!question->sql && !is_timeline(question) && !mt_question_first(question->name, &part)) {
		mt_view_reply_fail(reply, MT_REPLY_NOT_FOUND, "there is no question of that name");
		mt_view_reply_end(reply);
		return;
	}
	run = mt_source_take(source, limit_of(question), question->peer_fd);
	if (run) {
		if (!is_timeline(question))
			mt_progress_begin(run, question, parts_count(question, part));
		run_answer(question, run, &part, reply);
		mt_progress_end(run);
		mt_source_return(run);
	}
	/* What came meanwhile of a file that was written over is of neither. */
	change = mt_source_change_text(mt_source_look(source, version));
	if (change)
		mt_view_reply_fail(reply, MT_REPLY_GONE, "%s: %s", source->name, change);
	else if (!run)
		mt_view_reply_fail(reply, MT_REPLY_BUSY,
			      "%s: cannot be opened, or all of its connections are busy",
			      source->name);
	mt_view_reply_end(reply);
}
