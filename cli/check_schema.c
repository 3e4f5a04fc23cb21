/* SPDX-License-Identifier: MIT */
/*
 * The shape of a trace, proved against the schema that is built into the command: it is applied to
 * an empty database in memory, and tables and views are compared by their SQL, comments and blanks
 * aside; then every value is compared with the declared type of its column. The other proofs may
 * rely on the tables only if nothing of them is missing here.
 */
#include "cli/check.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "schema/reference.h"

/* ---- SQL texts ---- */

/* Where @sql goes on after blanks and comments. */
static const char *blanks_skip(const char *sql)
{
	while (*sql) {
		if (isspace((unsigned char)*sql))
			sql++;
		else if (sql[0] == '-' && sql[1] == '-')
			sql += strcspn(sql, "\n");
		else
			break;
	}
	return sql;
}

static bool is_word(char c)
{
	return isalnum((unsigned char)c) || c == '_';
}

/* Whether two statements are the same but for comments and blanks outside of quotes. */
static bool sql_is_equal(const char *a, const char *b)
{
	char quote = '\0';
	char last = '\0';

	while (true) {
		const char *next_a = quote ? a : blanks_skip(a);
		const char *next_b = quote ? b : blanks_skip(b);

		/* A blank between two words is one in both. */
		if (is_word(last) && is_word(*next_a) && (next_a == a) != (next_b == b))
			return false;
		if (*next_a != *next_b)
			return false;
		if (*next_a == '\0')
			return true;
		if (quote ? *next_a == quote : *next_a == '\'' || *next_a == '"')
			quote = quote ? '\0' : *next_a;
		last = *next_a;
		a = next_a + 1;
		b = next_b + 1;
	}
}

/* ---- the reference ---- */

/* The schema in memory, to be closed by the caller; NULL after an error line. */
static sqlite3 *reference_open(const struct check *check)
{
	sqlite3 *db = NULL;
	int rc = sqlite3_open_v2("moetrace-reference", &db,
				 SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_MEMORY,
				 NULL);
	size_t i;

	for (i = 0; i < mt_n_reference_files && rc == SQLITE_OK; i++)
		rc = sqlite3_exec(db, mt_reference_files[i].sql, NULL, NULL, NULL);
	if (rc == SQLITE_OK)
		return db;
	mt_error("%s: the schema to compare with cannot be built: %s; install moetrace again",
		 check->trace->path, db ? sqlite3_errmsg(db) : sqlite3_errstr(rc));
	sqlite3_close(db);
	return NULL;
}

/* ---- objects ---- */

/* What a trace has in place of an object of the schema. */
struct found {
	bool is_there;
	bool is_equal;
};

static int object_find(struct check *check, sqlite3_stmt *find, sqlite3_stmt *object,
		       struct found *ret_found)
{
	const char *wanted = (const char *)sqlite3_column_text(object, 2);
	const char *sql;
	int rc;

	*ret_found = (struct found){false, false};
	sqlite3_bind_text(find, 1, (const char *)sqlite3_column_text(object, 0), -1,
			  SQLITE_TRANSIENT);
	sqlite3_bind_text(find, 2, (const char *)sqlite3_column_text(object, 1), -1,
			  SQLITE_TRANSIENT);
	rc = sqlite3_step(find);
	if (rc == SQLITE_ROW) {
		sql = (const char *)sqlite3_column_text(find, 0);
		ret_found->is_there = true;
		ret_found->is_equal = sql && wanted && sql_is_equal(sql, wanted);
	}
	sqlite3_reset(find);
	return rc == SQLITE_ROW || rc == SQLITE_DONE ? MT_EXIT_OK : mt_trace_error(check->trace);
}

/* Whether the trace's table or view has all columns that the reference's has. */
static bool has_columns(struct check *check, sqlite3 *reference, const char *name)
{
	char *sql = sqlite3_mprintf("SELECT * FROM \"%w\" LIMIT 0", name);
	sqlite3_stmt *wanted = NULL;
	sqlite3_stmt *have = NULL;
	bool has_all = sql && sqlite3_prepare_v2(reference, sql, -1, &wanted, NULL) == SQLITE_OK &&
		       sqlite3_prepare_v2(check->trace->db, sql, -1, &have, NULL) == SQLITE_OK;
	int i;
	int j;

	for (i = 0; has_all && i < sqlite3_column_count(wanted); i++) {
		for (j = 0; j < sqlite3_column_count(have); j++)
			if (strcmp(sqlite3_column_name(wanted, i), sqlite3_column_name(have, j)) ==
			    0)
				break;
		has_all = j < sqlite3_column_count(have);
	}
	sqlite3_finalize(wanted);
	sqlite3_finalize(have);
	sqlite3_free(sql);
	return has_all;
}

static int object_compare(struct check *check, sqlite3 *reference, sqlite3_stmt *find,
			  sqlite3_stmt *object)
{
	const char *type = (const char *)sqlite3_column_text(object, 0);
	const char *name = (const char *)sqlite3_column_text(object, 1);
	bool is_table = strcmp(type, "table") == 0;
	bool is_whole;
	struct found found;
	int status = object_find(check, find, object, &found);

	if (status != MT_EXIT_OK)
		return status;
	check->results[CHECK_SCHEMA].n_checked++;
	is_whole = found.is_equal || (found.is_there && has_columns(check, reference, name));
	if (!found.is_there)
		check_violation(check, CHECK_SCHEMA, "%s %s: is missing", type, name);
	else if (!is_whole)
		check_violation(check, CHECK_SCHEMA, "%s %s: columns are missing", type, name);
	else if (!found.is_equal)
		check_violation(check, CHECK_SCHEMA, "%s %s: is not the schema's", type, name);
	if (!is_whole && is_table)
		check->lacks_tables = true;
	if (!found.is_equal && !is_table)
		check->lacks_views = true;
	return MT_EXIT_OK;
}

#define SQL_OBJECTS                                                                               \
	"SELECT type, name, sql FROM sqlite_schema WHERE type IN ('table', 'view') AND name NOT " \
	"LIKE 'sqlite\\_%' ESCAPE '\\' ORDER BY rowid"

static int objects_compare(struct check *check, sqlite3 *reference)
{
	sqlite3_stmt *find;
	sqlite3_stmt *objects = NULL;
	int status = MT_EXIT_OK;

	find = mt_trace_prepare(check->trace,
				"SELECT sql FROM sqlite_schema WHERE type = ?1 AND name = ?2");
	if (!find || sqlite3_prepare_v2(reference, SQL_OBJECTS, -1, &objects, NULL) != SQLITE_OK)
		status = MT_EXIT_FAILED;
	while (status == MT_EXIT_OK && sqlite3_step(objects) == SQLITE_ROW)
		status = object_compare(check, reference, find, objects);
	sqlite3_finalize(find);
	sqlite3_finalize(objects);
	return status;
}

static int version_compare(struct check *check)
{
	int64_t version;
	int status = mt_trace_int(check->trace, "PRAGMA user_version", &version);

	if (status != MT_EXIT_OK)
		return status;
	check->results[CHECK_SCHEMA].n_checked++;
	if (version != MT_SCHEMA_VERSION)
		check_violation(check, CHECK_SCHEMA, "file: user_version is %lld, not %d",
				(long long)version, MT_SCHEMA_VERSION);
	return MT_EXIT_OK;
}

/* ---- foreign objects ---- */

int check_foreign_print(const struct check *check, struct mt_output *output)
{
	sqlite3 *reference = reference_open(check);
	sqlite3_stmt *have = NULL;
	sqlite3_stmt *find = NULL;
	int status = MT_EXIT_FAILED;
	int rc = SQLITE_DONE;

	if (!reference)
		return status;
	have = mt_trace_prepare(check->trace, "SELECT type, name, tbl_name FROM sqlite_schema "
					      "WHERE name NOT LIKE 'sqlite\\_%' ESCAPE '\\'");
	if (have && sqlite3_prepare_v2(reference,
				       "SELECT 1 FROM sqlite_schema WHERE type = ?1 AND name = ?2",
				       -1, &find, NULL) == SQLITE_OK)
		status = MT_EXIT_OK;
	while (status == MT_EXIT_OK && (rc = sqlite3_step(have)) == SQLITE_ROW) {
		const char *type = (const char *)sqlite3_column_text(have, 0);
		const char *name = (const char *)sqlite3_column_text(have, 1);

		sqlite3_bind_text(find, 1, type, -1, SQLITE_STATIC);
		sqlite3_bind_text(find, 2, name, -1, SQLITE_STATIC);
		if (sqlite3_step(find) != SQLITE_ROW)
			mt_output_line(output, "note: %s %s is not of the schema", type, name);
		sqlite3_reset(find);
	}
	if (rc != SQLITE_DONE)
		status = mt_trace_error(check->trace);
	sqlite3_finalize(have);
	sqlite3_finalize(find);
	sqlite3_close(reference);
	return status;
}

/* ---- types ---- */

/* A number of the runtime's own; it is stored with all of its 64 bits. */
static bool may_be_negative(const char *column)
{
	return strcmp(column, "runtime_pass") == 0;
}

/* Append the condition under which a value of the column is wrong. */
static void column_condition(sqlite3_str *to, sqlite3_stmt *column)
{
	const char *name = (const char *)sqlite3_column_text(column, 0);
	const char *type = (const char *)sqlite3_column_text(column, 1);
	bool may_be_null = sqlite3_column_int(column, 2) == 0;

	sqlite3_str_appendf(to, "(typeof(\"%w\") <> lower('%q')", name, type);
	if (may_be_null)
		sqlite3_str_appendf(to, " AND \"%w\" IS NOT NULL", name);
	sqlite3_str_appendf(to, ")");
	if (strcmp(type, "INTEGER") == 0 && !may_be_negative(name))
		sqlite3_str_appendf(to, " OR \"%w\" < 0", name);
	if (strcmp(type, "REAL") == 0)
		sqlite3_str_appendf(to, " OR abs(\"%w\") > 1.7976931348623157e308", name);
}

/*
 * "SELECT TABLE, KEY, what is wrong": one scan of the table, one row for each row with a fault.
 * Returns the text, to be freed with sqlite3_free(); NULL: no memory.
 */
static char *types_sql(const char *table, sqlite3_stmt *columns)
{
	sqlite3_str *what = sqlite3_str_new(NULL);
	sqlite3_str *where = sqlite3_str_new(NULL);
	sqlite3_str *key = sqlite3_str_new(NULL);
	char *texts[3];
	char *sql = NULL;
	size_t i;

	while (sqlite3_step(columns) == SQLITE_ROW) {
		const char *name = (const char *)sqlite3_column_text(columns, 0);

		sqlite3_str_appendf(what, " WHEN ");
		column_condition(what, columns);
		sqlite3_str_appendf(what,
				    " THEN '%q: is ' || CASE typeof(\"%w\") WHEN 'blob' THEN "
				    "'a blob' ELSE substr(quote(\"%w\"), 1, 40) END || "
				    "', not a value of its type or below 0'",
				    name, name, name);
		if (sqlite3_str_length(where) > 0)
			sqlite3_str_appendall(where, " OR ");
		column_condition(where, columns);
		if (sqlite3_column_int(columns, 3) > 0)
			sqlite3_str_appendf(key, "%scoalesce(\"%w\", 'NULL')",
					    sqlite3_str_length(key) > 0 ? " || ',' || " : "", name);
	}
	texts[0] = sqlite3_str_finish(key);
	texts[1] = sqlite3_str_finish(what);
	texts[2] = sqlite3_str_finish(where);
	if (texts[0] && texts[1] && texts[2])
		sql = sqlite3_mprintf("SELECT '%q', %s, CASE %s END FROM main.\"%w\" WHERE %s",
				      table, texts[0], texts[1], table, texts[2]);
	for (i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
		sqlite3_free(texts[i]);
	return sql;
}

static int table_types_run(struct check *check, const char *table, sqlite3_stmt *columns)
{
	char *violations;
	char *count;
	int status = MT_EXIT_FAILED;

	sqlite3_bind_text(columns, 1, table, -1, SQLITE_STATIC);
	violations = types_sql(table, columns);
	sqlite3_reset(columns);
	count = sqlite3_mprintf("SELECT count(*) FROM main.\"%w\"", table);
	if (violations && count)
		status = check_sql_proof_run(check, CHECK_TYPES, count, violations);
	else
		mt_error("%s: out of memory", check->trace->path);
	sqlite3_free(violations);
	sqlite3_free(count);
	return status;
}

static int types_run(struct check *check, sqlite3 *reference)
{
	sqlite3_stmt *tables = NULL;
	sqlite3_stmt *columns = NULL;
	int status = MT_EXIT_FAILED;

	/* A rowid's alias is never NULL, which its declaration need not say. */
	if (sqlite3_prepare_v2(reference, "SELECT name FROM sqlite_schema WHERE type = 'table'", -1,
			       &tables, NULL) == SQLITE_OK &&
	    sqlite3_prepare_v2(reference,
			       "SELECT name, type, \"notnull\" OR pk > 0, pk "
			       "FROM pragma_table_info(?1) ORDER BY cid",
			       -1, &columns, NULL) == SQLITE_OK)
		status = MT_EXIT_OK;
	while (status == MT_EXIT_OK && sqlite3_step(tables) == SQLITE_ROW)
		status = table_types_run(check, (const char *)sqlite3_column_text(tables, 0),
					 columns);
	sqlite3_finalize(tables);
	sqlite3_finalize(columns);
	return status;
}

int check_schema_run(struct check *check)
{
	sqlite3 *reference = reference_open(check);
	int status;

	if (!reference)
		return MT_EXIT_FAILED;
	status = version_compare(check);
	if (status == MT_EXIT_OK)
		status = objects_compare(check, reference);
	if (status == MT_EXIT_OK && !check->lacks_tables)
		status = types_run(check, reference);
	sqlite3_close(reference);
	return status;
}
