/* SPDX-License-Identifier: MIT */
/*
 * --explain: beside what a verb prints, the queries that it comes from, with everything filled in that
 * was asked for, so that any SQLite with the functions loaded answers the same. People get a query
 * above its table, programs all of them in a last section, "queries".
 */
#ifndef MT_CLI_EXPLAIN_H
#define MT_CLI_EXPLAIN_H

#include "cli/cli.h"

#define MT_EXPLAIN_MAX_QUERIES 16

struct mt_explain_table {
	const char *name;
	char *sql;
};

struct mt_explain {
	bool is_on;
	/* Tables of the connection, up to one without a name, and what they hold, as queries. */
	const struct mt_explain_table *tables;
	char *lift; /* what temp.lift_count holds, as a query of its own; NULL: it is not in use */
	struct {
		const char *section;
		char *sql;
	} queries[MT_EXPLAIN_MAX_QUERIES];
	size_t n_queries;
};

/*
 * Print the rows of @stmt as section @name, and its query.
 * @stmt is finalized, and may be NULL after an error line.
 *
 * Returns MT_EXIT_OK, or MT_EXIT_FAILED after an error line.
 */
int mt_explain_print(struct mt_explain *explain, const struct mt_trace *trace,
		     struct mt_output *output, const char *name, const char *title,
		     sqlite3_stmt *stmt);

/**
 * Print the rows of @stmt as the only table of a verb: mt_trace_print_only(), and as section @name of
 * several where the query is asked for, too.
 *
 * @lift  What temp.lift_count holds, which is taken over; NULL: it is not in use.
 */
int mt_explain_print_only(const struct mt_trace *trace, const struct mt_args *args,
			  enum mt_scale scale, const char *name, char *lift, sqlite3_stmt *stmt);

/* Print what programs get, if @status is MT_EXIT_OK, and free everything. Returns an enum mt_exit. */
int mt_explain_end(struct mt_explain *explain, struct mt_output *output, int status);

#endif
