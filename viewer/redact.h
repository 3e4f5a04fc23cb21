/* SPDX-License-Identifier: MIT */
/*
 * What --redact leaves out: whatever may tell of people or of their machines. A text column is left
 * out unless redact.c names it as harmless, so that one that a later schema adds is left out, too.
 * Of some columns only some values are harmless: a connection has views of its own before those
 * tables, through which the viewer's statements read these values, and users' statements none.
 */
#ifndef MT_VIEWER_REDACT_H
#define MT_VIEWER_REDACT_H

#include <stdbool.h>

#include <sqlite3.h>

struct mt_redacted;

/*
 * Look at the tables of @db, and put the views before them; @db may still write then. NULL: that
 * failed, or out of memory.
 */
struct mt_redacted *mt_redacted_new(sqlite3 *db);
void mt_redacted_free(struct mt_redacted *redacted);

/* As an authorizer is told of it; each may be NULL. */
struct mt_column_read {
	const char *database, *table, *column;
	const char *view; /* the innermost view that reads it */
};

/**
 * What an authorizer says to the reading of a column.
 *
 * @is_of_user  The statement is a user's.
 *
 * Returns SQLITE_OK, SQLITE_IGNORE (it reads as NULL) or SQLITE_DENY.
 */
int mt_redacted_read(const struct mt_redacted *redacted, const struct mt_column_read *read,
		     bool is_of_user);

#endif
