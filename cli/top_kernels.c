/* SPDX-License-Identifier: MIT */
/*
 * What operations took, by role: those that were recorded one by one, and the nodes of launches of
 * whole graphs. Their rows come in about in the order of time, so the first of the window is found
 * by key.
 */
#include "cli/top.h"

#include <stdlib.h>
#include <string.h>

#include "common/bytes.h"

/* Rows of several streams and passes lie mixed. */
#define SLACK_ROWS 4096

/* The clock is asked after so many. */
#define CHUNK_ROWS 4096

#define NO_TIME UINT32_MAX

/* Added up here and not by SQL, which would sort them: that takes three times as long. */
#define SQL_KERNELS                                                                         \
	"SELECT kernel_id, start_ns, end_ns - start_ns, name_id FROM kernel "                \
	"WHERE kernel_id > ?1 AND recording_id = ?2 AND flags = 0 AND start_ns >= ?3"

#define SQL_ROLES "SELECT string_id, role FROM string WHERE role IS NOT NULL AND string_id > ?1"

#define SQL_LAUNCHES                                                                          \
	"SELECT graph_launch_id, start_ns, graph, node_times FROM graph_launch "             \
	"WHERE graph_launch_id > ?1 AND recording_id = ?2 AND flags = 0 AND start_ns >= ?3"

#define SQL_NODES                                                                        \
	"SELECT n.node, s.role FROM graph_node AS n JOIN string AS s ON "                \
	"s.string_id = n.name_id WHERE n.graph = ?1 ORDER BY n.node"

static size_t role_of(sqlite3_stmt *stmt, int column)
{
	const char *role = (const char *)sqlite3_column_text(stmt, column);
	size_t i;

	for (i = 0; i < MT_TOP_ROLES - 1 && (!role || strcmp(role, mt_top_roles[i]) != 0); i++)
		;
	return i;
}

/* Where to go on: behind what was read, and not before the window. */
static int cursor_place(const struct mt_top *top, const struct mt_trace *trace, const char *table,
			const char *key, int64_t *cursor, int64_t *ret_last)
{
	int64_t first;
	char *sql = sqlite3_mprintf("SELECT max(%s) FROM %s", key, table);
	int status = sql ? mt_trace_int(trace, sql, ret_last) : MT_EXIT_FAILED;

	sqlite3_free(sql);
	if (status != MT_EXIT_OK || *cursor >= *ret_last)
		return status;
	status = mt_top_key_find(trace, table, key, "start_ns", mt_top_from_ns(top), SLACK_ROWS,
				 &first);
	if (status == MT_EXIT_OK && first - 1 > *cursor)
		*cursor = first - 1;
	return status;
}

static sqlite3_stmt *statement(const struct mt_top *top, const struct mt_trace *trace,
			       const char *sql, int64_t cursor)
{
	sqlite3_stmt *stmt = mt_trace_prepare(trace, sql);

	if (!stmt)
		return NULL;
	sqlite3_bind_int64(stmt, 1, cursor);
	sqlite3_bind_int64(stmt, 2, top->facts.recording_id);
	sqlite3_bind_int64(stmt, 3, mt_top_from_ns(top));
	sqlite3_bind_int64(stmt, 4, top->bucket_ns);
	return stmt;
}

/* Roles of names that came since the look before. */
static int names_read(struct mt_top *top, const struct mt_trace *trace)
{
	sqlite3_stmt *stmt = mt_trace_prepare(trace, SQL_ROLES);
	int status = MT_EXIT_OK, rc;

	if (!stmt)
		return MT_EXIT_FAILED;
	sqlite3_bind_int64(stmt, 1, top->last_name);
	while ((rc = sqlite3_step(stmt)) == SQLITE_ROW) {
		const int64_t name = sqlite3_column_int64(stmt, 0);

		if (name >= 0 && name < MT_TOP_MAX_NAMES)
			top->roles[name] = (uint8_t)role_of(stmt, 1);
		top->last_name = name;
	}
	if (rc != SQLITE_DONE)
		status = mt_trace_error(trace);
	sqlite3_finalize(stmt);
	return status;
}

static void kernel_take(struct mt_top *top, sqlite3_stmt *stmt)
{
	struct mt_top_bucket *bucket = mt_top_bucket_at(top, sqlite3_column_int64(stmt, 1));
	const int64_t length_ns = sqlite3_column_int64(stmt, 2);
	const int64_t name = sqlite3_column_int64(stmt, 3);
	size_t role;

	if (!bucket || length_ns < 0)
		return;
	role = name >= 0 && name < MT_TOP_MAX_NAMES ? top->roles[name] : MT_TOP_ROLES - 1;
	bucket->n_operations[role]++;
	bucket->operations_ns[role] += (uint64_t)length_ns;
}

/* ---- graphs ---- */

static int roles_read(const struct mt_trace *trace, struct mt_top_graph *graph)
{
	sqlite3_stmt *stmt = mt_trace_prepare(trace, SQL_NODES);
	int status = MT_EXIT_OK, rc = SQLITE_ERROR;

	if (!stmt)
		return MT_EXIT_FAILED;
	sqlite3_bind_int64(stmt, 1, graph->graph);
	/* Nodes are numbered without gaps; where they are not, the rest has no role. */
	while ((rc = sqlite3_step(stmt)) == SQLITE_ROW &&
	       sqlite3_column_int64(stmt, 0) == (int64_t)graph->n_nodes) {
		uint8_t *roles = realloc(graph->roles, graph->n_nodes + 1);

		if (!roles)
			break;
		graph->roles = roles;
		roles[graph->n_nodes++] = (uint8_t)role_of(stmt, 1);
	}
	if (rc != SQLITE_DONE && rc != SQLITE_ROW)
		status = mt_trace_error(trace);
	sqlite3_finalize(stmt);
	return status;
}

/* The graph, read when it is first met; NULL after an error line. */
static const struct mt_top_graph *graph_find(struct mt_top *top, const struct mt_trace *trace,
					     int64_t number)
{
	struct mt_top_graph *graphs;
	size_t i;

	for (i = 0; i < top->n_graphs; i++)
		if (top->graphs[i].graph == number)
			return &top->graphs[i];
	graphs = realloc(top->graphs, (top->n_graphs + 1) * sizeof(*graphs));
	if (!graphs) {
		mt_error("out of memory");
		return NULL;
	}
	top->graphs = graphs;
	graphs[top->n_graphs] = (struct mt_top_graph){.graph = number};
	if (roles_read(trace, &graphs[top->n_graphs]) != MT_EXIT_OK) {
		free(graphs[top->n_graphs].roles);
		return NULL;
	}
	return &graphs[top->n_graphs++];
}

static int launch_take(struct mt_top *top, const struct mt_trace *trace, sqlite3_stmt *stmt)
{
	struct mt_top_bucket *bucket = mt_top_bucket_at(top, sqlite3_column_int64(stmt, 1));
	const struct mt_top_graph *graph;
	const unsigned char *times;
	size_t n, i;

	if (!bucket || sqlite3_column_type(stmt, 2) == SQLITE_NULL ||
	    sqlite3_column_type(stmt, 3) != SQLITE_BLOB)
		return MT_EXIT_OK;
	graph = graph_find(top, trace, sqlite3_column_int64(stmt, 2));
	if (!graph)
		return MT_EXIT_FAILED;
	times = sqlite3_column_blob(stmt, 3);
	n = (size_t)sqlite3_column_bytes(stmt, 3) / 8;
	for (i = 0; times && i < n && i < graph->n_nodes; i++, times += 8) {
		const uint32_t length_ns = mt_u32_at(times + 4);

		if (mt_u32_at(times) == NO_TIME && length_ns == NO_TIME)
			continue;
		bucket->n_operations[graph->roles[i]]++;
		bucket->operations_ns[graph->roles[i]] += length_ns;
	}
	return MT_EXIT_OK;
}

static int launches_read(struct mt_top *top, const struct mt_trace *trace)
{
	int64_t last;
	int status = cursor_place(top, trace, "graph_launch", "graph_launch_id",
				  &top->launch_cursor, &last);
	sqlite3_stmt *stmt;
	int rc = SQLITE_DONE;

	if (status != MT_EXIT_OK || top->launch_cursor >= last)
		return status;
	stmt = statement(top, trace, SQL_LAUNCHES, top->launch_cursor);
	if (!stmt)
		return MT_EXIT_FAILED;
	while (status == MT_EXIT_OK && (rc = sqlite3_step(stmt)) == SQLITE_ROW)
		status = launch_take(top, trace, stmt);
	if (status == MT_EXIT_OK && rc != SQLITE_DONE)
		status = mt_trace_error(trace);
	sqlite3_finalize(stmt);
	top->launch_cursor = last;
	return status;
}

/* Up to the end, or as far as the budget goes. */
static int kernels_read(struct mt_top *top, const struct mt_trace *trace, int64_t last)
{
	const int64_t begin_ns = mt_top_clock_ns();
	sqlite3_stmt *stmt = statement(top, trace, SQL_KERNELS, top->kernel_cursor);
	int status = MT_EXIT_OK, rc;
	unsigned n = 0;

	if (!stmt)
		return MT_EXIT_FAILED;
	while ((rc = sqlite3_step(stmt)) == SQLITE_ROW) {
		kernel_take(top, stmt);
		top->kernel_cursor = sqlite3_column_int64(stmt, 0);
		if (++n % CHUNK_ROWS == 0 && top->budget_ns &&
		    mt_top_clock_ns() - begin_ns > top->budget_ns) {
			top->is_behind = true;
			break;
		}
	}
	if (rc == SQLITE_DONE)
		top->kernel_cursor = last;
	else if (rc != SQLITE_ROW)
		status = mt_trace_error(trace);
	sqlite3_finalize(stmt);
	return status;
}

int mt_top_operations_read(struct mt_top *top, const struct mt_trace *trace)
{
	int64_t last;
	int status = cursor_place(top, trace, "kernel", "kernel_id", &top->kernel_cursor, &last);

	if (status == MT_EXIT_OK && top->kernel_cursor < last) {
		status = names_read(top, trace);
		if (status == MT_EXIT_OK)
			status = kernels_read(top, trace, last);
	}
	return status == MT_EXIT_OK ? launches_read(top, trace) : status;
}
