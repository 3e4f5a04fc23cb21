/* SPDX-License-Identifier: MIT */
/*
 * sql_runner [--interrupt] FILE.db SQL...: a minimal shell with the functions built in, as the
 * command has them. It opens FILE.db read-only with trusted_schema off and prints a row a line,
 * values separated by bars. --interrupt interrupts each statement after some work. The first
 * error ends it: its message goes to stderr and the exit status is 1.
 */
#include <stdio.h>
#include <string.h>
#include <sqlite3.h>

#include "schema/functions/mt_sql.h"

static int print_row(void *unused, int n_columns, char **values, char **names)
{
	(void)unused, (void)names;
	for (int i = 0; i < n_columns; i++)
		printf("%s%s", i ? "|" : "", values[i] ? values[i] : "");
	putchar('\n');
	return 0;
}

static int interrupt(void *db)
{
	sqlite3_interrupt(db);
	return 0;
}

static int open_trace(const char *path, sqlite3 **ret_db)
{
	sqlite3 *db = NULL;
	int rc = sqlite3_open_v2(path, &db, SQLITE_OPEN_READONLY, NULL);

	if (rc == SQLITE_OK)
		rc = mt_sql_register(db);
	if (rc == SQLITE_OK)
		rc = sqlite3_exec(db, "PRAGMA trusted_schema = OFF", NULL, NULL, NULL);
	if (rc != SQLITE_OK) {
		fprintf(stderr, "sql_runner: %s: %s\n", path, sqlite3_errmsg(db));
		sqlite3_close(db);
		return rc;
	}
	*ret_db = db;
	return SQLITE_OK;
}

int main(int argc, char **argv)
{
	int first = 1, rc;
	char *error = NULL;
	sqlite3 *db;

	if (argc > 1 && strcmp(argv[1], "--interrupt") == 0)
		first = 2;
	if (argc < first + 2) {
		fputs("usage: sql_runner [--interrupt] FILE.db SQL...\n", stderr);
		return 2;
	}
	if (open_trace(argv[first], &db) != SQLITE_OK)
		return 1;
	if (first == 2)
		sqlite3_progress_handler(db, 1000, interrupt, db);
	rc = SQLITE_OK;
	for (int i = first + 1; rc == SQLITE_OK && i < argc; i++)
		rc = sqlite3_exec(db, argv[i], print_row, NULL, &error);
	if (rc != SQLITE_OK)
		fprintf(stderr, "%s\n", error ? error : sqlite3_errstr(rc));
	sqlite3_free(error);
	/* A statement or cursor that was left open would make this fail. */
	if (sqlite3_close(db) != SQLITE_OK) {
		fputs("sql_runner: the connection does not close\n", stderr);
		return 1;
	}
	return rc != SQLITE_OK;
}
