/* SPDX-License-Identifier: MIT */
/*
 * The text of a query is SQLite's own, with the parameters in it. Only the counts of attributes, which
 * the command keeps in a table of its connection, stand as what fills that table.
 */
#include "cli/explain.h"

#include <string.h>

#include <moetrace/status.h>

/* @sql, which is freed, with the table's name replaced by what it holds. NULL: out of memory. */
static char *table_replace(char *sql, const char *name, const char *holds)
{
	sqlite3_str *text = sqlite3_str_new(NULL);
	const char *from = sql, *at;

	while (from && (at = strstr(from, name))) {
		sqlite3_str_appendf(text, "%.*s%s", (int)(at - from), from, holds);
		from = at + strlen(name);
	}
	if (from)
		sqlite3_str_appendall(text, from);
	sqlite3_free(sql);
	return sqlite3_str_finish(text);
}

/* To be sqlite3_free()d; NULL: out of memory. */
static char *query_text(const struct mt_explain *explain, sqlite3_stmt *stmt)
{
	const struct mt_explain_table *table = explain->tables;
	char *sql = sqlite3_expanded_sql(stmt);
	char *lift = sql && explain->lift ? sqlite3_mprintf("(%s)", explain->lift) : NULL;

	if (lift)
		sql = table_replace(sql, "temp.lift_count", lift);
	sqlite3_free(lift);
	for (; sql && table && table->name; table++)
		sql = table_replace(sql, table->name, table->sql);
	return sql;
}

static int query_add(struct mt_explain *explain, struct mt_output *output, const char *name,
		     sqlite3_stmt *stmt)
{
	char *sql = query_text(explain, stmt);

	if (!sql || explain->n_queries == MT_EXPLAIN_MAX_QUERIES) {
		sqlite3_free(sql);
		mt_error("out of memory for the text of a query");
		return MT_EXIT_FAILED;
	}
	if (mt_format_is_data(output->format)) {
		explain->queries[explain->n_queries].section = name;
		explain->queries[explain->n_queries++].sql = sql;
		return MT_EXIT_OK;
	}
	mt_output_line(output, output->format == MT_FORMAT_MARKDOWN ? "```sql\n%s;\n```" : "%s;",
		       sql);
	sqlite3_free(sql);
	return MT_EXIT_OK;
}

int mt_explain_print(struct mt_explain *explain, const struct mt_trace *trace,
		     struct mt_output *output, const char *name, const char *title,
		     sqlite3_stmt *stmt)
{
	int status = MT_EXIT_OK;

	if (!stmt)
		return MT_EXIT_FAILED;
	mt_output_section(output, name, title);
	if (explain->is_on)
		status = query_add(explain, output, name, stmt);
	if (status == MT_EXIT_OK)
		status = mt_trace_print(trace, output, stmt);
	sqlite3_finalize(stmt);
	return status;
}

int mt_explain_print_only(const struct mt_trace *trace, const struct mt_args *args,
			  enum mt_scale scale, const char *name, char *lift, sqlite3_stmt *stmt)
{
	struct mt_explain explain = {.is_on = args->explains, .lift = lift};
	struct mt_output output;
	int status;

	if (!args->explains) {
		sqlite3_free(lift);
		return mt_trace_print_only(trace, args, scale, stmt);
	}
	mt_output_begin(&output, stdout, args->format);
	output.is_scaled = scale == MT_SCALE_TIMES;
	mt_output_sections(&output);
	status = mt_explain_print(&explain, trace, &output, name, NULL, stmt);
	if (status == MT_EXIT_OK && output.n_rows == 0 && args->when_empty)
		mt_note("%s", args->when_empty);
	status = mt_explain_end(&explain, &output, status);
	if (status == MT_EXIT_OK)
		mt_output_end(&output);
	return status;
}

static int queries_print(const struct mt_explain *explain, struct mt_output *output)
{
	static const char *const columns[] = {"section", "sql"};
	struct mt_table table;

	mt_output_section(output, "queries", NULL);
	output->is_vertical = false;
	if (mt_table_begin(&table, output, columns, 2) != MOETRACE_OK)
		return MT_EXIT_FAILED;
	for (size_t i = 0; i < explain->n_queries; i++) {
		mt_table_text(&table, explain->queries[i].section);
		mt_table_text(&table, explain->queries[i].sql);
	}
	return mt_table_end(&table) == MOETRACE_OK ? MT_EXIT_OK : MT_EXIT_FAILED;
}

int mt_explain_end(struct mt_explain *explain, struct mt_output *output, int status)
{
	if (status == MT_EXIT_OK && explain->n_queries > 0)
		status = queries_print(explain, output);
	for (size_t i = 0; i < explain->n_queries; i++)
		sqlite3_free(explain->queries[i].sql);
	sqlite3_free(explain->lift);
	explain->n_queries = 0;
	explain->lift = NULL;
	return status;
}
