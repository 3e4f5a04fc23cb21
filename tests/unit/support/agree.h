/* SPDX-License-Identifier: MIT */
/*
 * Does a trace agree with itself? An independent reading of the schema's comments: whatever
 * happened to the traced program, what is in the file must satisfy all of this.
 */
#ifndef TEST_AGREE_H
#define TEST_AGREE_H

#include <sqlite3.h>

/* Ends the test case at the first contradiction. Under ThreadSanitizer none of these looks. */
void agree_check(sqlite3 *db);

/* The same for a file, which is opened read-only. */
void agree_check_file(const char *path);

/* The part of agree_check() that SQL alone can tell. */
void agree_check_statements(sqlite3 *db);

/* `moetrace check` proves the file, where the command is at hand (MOETRACE_BUILDDIR). */
void agree_prove(const char *path);

#endif
