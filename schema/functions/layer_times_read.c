/* SPDX-License-Identifier: MIT */
/*
 * Reads operations: all where they are few. Else stretches of the table, in which passes count that
 * begin and end well inside; passes between these of which nothing is there were not timed, and count,
 * too. That needs operations told in the order of passes, about, which is looked for all over the table.
 */
#include <sqlite3ext.h>
SQLITE_EXTENSION_INIT3

#include "common/bytes.h"
#include "array.h"
#include "layer_times_internal.h"

#include <stdlib.h>
#include <string.h>

#define N_STRETCHES	 16
#define PASSES_A_STRETCH 64
#define N_SAMPLES	 1024
#define OUT_OF_ORDER	 16 /* passes that several at once may be */
#define MARGIN		 8  /* of a stretch each end, one in so many */
#define N_NAMES		 1024
#define MAX_NODES	 65536

/* ---- names ---- */

struct names {
	sqlite3_stmt *stmt;
	struct {
		sqlite3_int64 id;
		bool is_known, is_experts;
	} known[N_NAMES];
};

static bool is_experts(struct names *names, sqlite3_int64 name_id)
{
	const size_t i = (uint64_t)name_id % N_NAMES;

	if (!names->known[i].is_known || names->known[i].id != name_id) {
		sqlite3_reset(names->stmt);
		sqlite3_bind_int64(names->stmt, 1, name_id);
		names->known[i].is_experts =
			sqlite3_step(names->stmt) == SQLITE_ROW && sqlite3_column_int(names->stmt, 0) == 1;
		names->known[i].id = name_id;
		names->known[i].is_known = true;
		sqlite3_reset(names->stmt);
	}
	return names->known[i].is_experts;
}

static int names_begin(sqlite3 *db, struct names **ret_names)
{
	struct names *names = sqlite3_malloc64(sizeof(*names));

	*ret_names = names;
	if (!names)
		return SQLITE_NOMEM;
	memset(names, 0, sizeof(*names));
	return mt_layer_times_prepare(db, "SELECT role IS 'experts' FROM main.string WHERE string_id = ?1",
				      &names->stmt);
}

static void names_end(struct names *names)
{
	if (names)
		sqlite3_finalize(names->stmt);
	sqlite3_free(names);
}

/* ---- stretches of table kernel ---- */

/* Where the operations of a pass lie in a stretch. */
struct seen {
	sqlite3_int64 pass_id, first, last;
};

struct stretch {
	sqlite3_int64 first_id, last_id;
	bool is_first, is_last; /* of the table: nothing lies beyond */
	struct seen *seen;	/* [n_seen] */
	size_t n_seen, size;
};

static bool seen_add(struct stretch *stretch, sqlite3_int64 pass_id, sqlite3_int64 kernel_id)
{
	/* The same as before, mostly; sorted later. */
	if (stretch->n_seen > 0 && stretch->seen[stretch->n_seen - 1].pass_id == pass_id) {
		stretch->seen[stretch->n_seen - 1].last = kernel_id;
		return true;
	}
	if (mt_array_reserve(&stretch->seen, &stretch->size, stretch->n_seen + 1,
			     sizeof(*stretch->seen)) != SQLITE_OK)
		return false;
	stretch->seen[stretch->n_seen++] = (struct seen){pass_id, kernel_id, kernel_id};
	return true;
}

static int seen_compare(const void *a, const void *b)
{
	const struct seen *first = a, *second = b;

	return first->pass_id < second->pass_id ? -1 : first->pass_id > second->pass_id;
}

/* One entry a pass. */
static void seen_order(struct stretch *stretch)
{
	size_t n = 0;

	if (stretch->n_seen > 0)
		qsort(stretch->seen, stretch->n_seen, sizeof(*stretch->seen), seen_compare);
	for (size_t i = 0; i < stretch->n_seen; i++) {
		const struct seen seen = stretch->seen[i];

		if (n == 0 || stretch->seen[n - 1].pass_id != seen.pass_id) {
			stretch->seen[n++] = seen;
			continue;
		}
		if (seen.first < stretch->seen[n - 1].first)
			stretch->seen[n - 1].first = seen.first;
		if (seen.last > stretch->seen[n - 1].last)
			stretch->seen[n - 1].last = seen.last;
	}
	stretch->n_seen = n;
}

/* The passes that count: those well inside, and those between them that were not timed. */
static bool stretch_choose(struct stretch *stretch, struct mt_passes *passes)
{
	const sqlite3_int64 margin = (stretch->last_id - stretch->first_id) / MARGIN;
	const sqlite3_int64 first = stretch->is_first ? stretch->first_id : stretch->first_id + margin;
	const sqlite3_int64 last = stretch->is_last ? stretch->last_id : stretch->last_id - margin;
	sqlite3_int64 before = 0;

	seen_order(stretch);
	for (size_t i = 0; i < stretch->n_seen; i++) {
		const struct seen *seen = &stretch->seen[i];

		if (seen->first < first || seen->last > last) {
			before = 0;
			continue;
		}
		while (before != 0 && ++before < seen->pass_id && seen->pass_id - before < 100000)
			if (!mt_passes_add(passes, before))
				return false;
		if (!mt_passes_add(passes, seen->pass_id))
			return false;
		before = seen->pass_id;
	}
	return true;
}

static const char sql_kernels[] =
	"SELECT kernel_id, pass_id, layer_id, start_ns, end_ns, name_id FROM main.kernel"
	" WHERE kernel_id BETWEEN ?1 AND ?2 AND flags = 0 AND pass_id > 0";

/* @passes have a stride: operations of others are passed over. */
static int stretch_read(sqlite3_stmt *stmt, struct names *names, struct stretch *stretch,
			const struct mt_passes *passes, struct mt_timed_table *table)
{
	struct mt_timed *timed;
	int rc;

	sqlite3_reset(stmt);
	sqlite3_bind_int64(stmt, 1, stretch->first_id);
	sqlite3_bind_int64(stmt, 2, stretch->last_id);
	while ((rc = sqlite3_step(stmt)) == SQLITE_ROW) {
		const sqlite3_int64 pass_id = sqlite3_column_int64(stmt, 1);

		if (passes->stride ? !mt_passes_have(passes, pass_id)
				   : !seen_add(stretch, pass_id, sqlite3_column_int64(stmt, 0))) {
			if (passes->stride)
				continue;
			return SQLITE_NOMEM;
		}
		if (sqlite3_column_type(stmt, 2) == SQLITE_NULL)
			continue;
		timed = mt_timed_at(table, pass_id, sqlite3_column_int64(stmt, 2));
		if (!timed)
			return SQLITE_NOMEM;
		mt_timed_add(timed, sqlite3_column_int64(stmt, 3), sqlite3_column_int64(stmt, 4),
			     is_experts(names, sqlite3_column_int64(stmt, 5)));
	}
	return rc == SQLITE_DONE ? SQLITE_OK : rc;
}

/* Whether passes follow one another all over the table. */
static int order_look(sqlite3 *db, sqlite3_int64 first, sqlite3_int64 last, bool *ret_is_ordered)
{
	static const char sql[] = "SELECT pass_id FROM main.kernel WHERE kernel_id BETWEEN ?1 AND ?2 AND pass_id > 0 LIMIT 1";
	const sqlite3_int64 step = (last - first) / N_SAMPLES + 1;
	sqlite3_stmt *stmt = NULL;
	sqlite3_int64 most = 0;
	int rc = mt_layer_times_prepare(db, sql, &stmt);

	*ret_is_ordered = true;
	for (sqlite3_int64 at = first; rc == SQLITE_OK && at <= last - step; at += step) {
		sqlite3_bind_int64(stmt, 1, at);
		sqlite3_bind_int64(stmt, 2, at + (step < 4096 ? step : 4096));
		rc = sqlite3_step(stmt);
		if (rc == SQLITE_ROW) {
			const sqlite3_int64 pass_id = sqlite3_column_int64(stmt, 0);

			if (pass_id < most - OUT_OF_ORDER)
				*ret_is_ordered = false;
			most = pass_id > most ? pass_id : most;
		}
		rc = rc == SQLITE_ROW || rc == SQLITE_DONE ? sqlite3_reset(stmt) : rc;
	}
	sqlite3_finalize(stmt);
	return rc;
}

/* What there is: the ids of table kernel, passes, operations of graphs. */
struct extent {
	sqlite3_int64 first, last, n_passes, n_nodes, n_layers;
};

static int extent_read(sqlite3 *db, struct extent *extent)
{
	int rc = mt_layer_times_number(db, "SELECT min(kernel_id) FROM main.kernel", 1, &extent->first);

	if (rc == SQLITE_OK)
		rc = mt_layer_times_number(db, "SELECT max(kernel_id) FROM main.kernel", 0, &extent->last);
	if (rc == SQLITE_OK)
		rc = mt_layer_times_number(db, "SELECT count(*) FROM main.pass", 0, &extent->n_passes);
	if (rc == SQLITE_OK)
		rc = mt_layer_times_number(db, "SELECT sum(coalesce(n_nodes, 0)) FROM main.graph_launch", 0,
					   &extent->n_nodes);
	if (rc == SQLITE_OK)
		rc = mt_layer_times_number(db, "SELECT count(*) FROM main.layer", 0, &extent->n_layers);
	return rc;
}

/* How long a stretch is: some passes at least. */
static sqlite3_int64 stretch_length(const struct extent *extent, sqlite3_int64 n_operations)
{
	const sqlite3_int64 n_ids = extent->last - extent->first + 1;
	const sqlite3_int64 a_pass = n_ids / (extent->n_passes > 0 ? extent->n_passes : 1) + 1;
	sqlite3_int64 length = n_operations / N_STRETCHES + 1;

	if (a_pass < n_ids / PASSES_A_STRETCH && length < a_pass * PASSES_A_STRETCH)
		length = a_pass * PASSES_A_STRETCH;
	return length < n_ids / 4 ? length : n_ids / 4;
}

static int stretches_read(sqlite3_stmt *stmt, struct names *names, const struct extent *extent,
			  sqlite3_int64 n_operations, struct mt_timed_table *table, struct mt_passes *passes)
{
	const sqlite3_int64 length = stretch_length(extent, n_operations);
	const sqlite3_int64 fit = n_operations / length;
	const sqlite3_int64 n = fit < 2 ? 2 : fit > N_STRETCHES ? N_STRETCHES : fit;
	struct stretch stretch = {.seen = NULL};
	int rc = SQLITE_OK;

	for (sqlite3_int64 i = 0; rc == SQLITE_OK && i < n; i++) {
		stretch.first_id = extent->first + (extent->last - extent->first + 1 - length) / (n - 1) * i;
		stretch.last_id = stretch.first_id + length - 1;
		stretch.is_first = i == 0;
		stretch.is_last = stretch.last_id >= extent->last;
		stretch.n_seen = 0;
		rc = stretch_read(stmt, names, &stretch, passes, table);
		if (rc == SQLITE_OK && !stretch_choose(&stretch, passes))
			rc = SQLITE_NOMEM;
	}
	sqlite3_free(stretch.seen);
	return rc;
}

static int rows_read(sqlite3 *db, const struct extent *extent, sqlite3_int64 n_operations,
		     struct mt_timed_table *table, struct mt_passes *passes)
{
	struct stretch all = {.first_id = extent->first, .last_id = extent->last};
	struct names *names = NULL;
	sqlite3_stmt *stmt = NULL;
	int rc = names_begin(db, &names);

	if (rc == SQLITE_OK)
		rc = mt_layer_times_prepare(db, sql_kernels, &stmt);
	if (rc == SQLITE_OK)
		rc = passes->stride ? stretch_read(stmt, names, &all, passes, table)
				    : stretches_read(stmt, names, extent, n_operations, table, passes);
	sqlite3_finalize(stmt);
	names_end(names);
	return rc;
}

/* Where operations are few, layers may still be many; one pass at least is among them. */
static void stride_limit(const struct extent *extent, sqlite3_int64 n_operations, struct mt_passes *passes)
{
	const sqlite3_int64 by_layers = extent->n_passes / (n_operations / (extent->n_layers + 1) + 1) + 1;

	if (passes->stride < by_layers)
		passes->stride = by_layers;
	if (passes->stride > extent->n_passes / 2 + 1)
		passes->stride = extent->n_passes / 2 + 1;
}

int mt_kernel_times_read(sqlite3 *db, sqlite3_int64 n_operations, struct mt_timed_table *table,
			 struct mt_passes *passes)
{
	struct extent extent;
	bool is_ordered = false;
	uint64_t n_kernels;
	int rc = extent_read(db, &extent);

	if (rc != SQLITE_OK)
		return rc;
	/* Ids of a damaged file may be any; differences of them are not. */
	n_kernels = extent.last < extent.first ? 0 : (uint64_t)extent.last - (uint64_t)extent.first + 1;
	if (n_kernels > (uint64_t)n_operations && extent.first > 0)
		rc = order_look(db, extent.first, extent.last, &is_ordered);
	passes->stride = 0;
	if (!is_ordered) {
		const uint64_t n_all = n_kernels / 2 + (uint64_t)(extent.n_nodes > 0 ? extent.n_nodes : 0) / 2;

		passes->stride = (sqlite3_int64)(n_all / ((uint64_t)n_operations / 2 + 1)) + 1;
	}
	if (passes->stride)
		stride_limit(&extent, n_operations, passes);
	return rc == SQLITE_OK ? rows_read(db, &extent, n_operations, table, passes) : rc;
}

/* ---- launches of graphs ---- */

struct node {
	bool has_layer, is_experts;
	sqlite3_int64 layer_id;
};

struct graphs {
	sqlite3_stmt *nodes;
	struct names *names;
	bool is_known;
	sqlite3_int64 graph; /* whose nodes are below */
	struct node *list;   /* [MAX_NODES] */
};

static int graph_know(struct graphs *graphs, sqlite3_int64 graph)
{
	int rc;

	if (graphs->is_known && graphs->graph == graph)
		return SQLITE_OK;
	graphs->is_known = false;
	memset(graphs->list, 0, MAX_NODES * sizeof(*graphs->list));
	sqlite3_reset(graphs->nodes);
	sqlite3_bind_int64(graphs->nodes, 1, graph);
	while ((rc = sqlite3_step(graphs->nodes)) == SQLITE_ROW) {
		const sqlite3_int64 node = sqlite3_column_int64(graphs->nodes, 0);

		if (node >= 0 && node < MAX_NODES)
			graphs->list[node] = (struct node){
				true, is_experts(graphs->names, sqlite3_column_int64(graphs->nodes, 2)),
				sqlite3_column_int64(graphs->nodes, 1)};
	}
	sqlite3_reset(graphs->nodes);
	if (rc != SQLITE_DONE)
		return rc;
	graphs->graph = graph;
	graphs->is_known = true;
	return SQLITE_OK;
}

/* The launch that @stmt stands at. */
static int launch_read(struct graphs *graphs, sqlite3_stmt *stmt, struct mt_timed_table *table)
{
	const sqlite3_int64 pass_id = sqlite3_column_int64(stmt, 0), n_nodes = sqlite3_column_int64(stmt, 3);
	const uint64_t start_ns = (uint64_t)sqlite3_column_int64(stmt, 2);
	const unsigned char *times = sqlite3_column_blob(stmt, 4);
	const sqlite3_int64 n = sqlite3_column_bytes(stmt, 4) / 8;
	int rc = graph_know(graphs, sqlite3_column_int64(stmt, 1));

	for (sqlite3_int64 i = 0; rc == SQLITE_OK && i < n && i < n_nodes && i < MAX_NODES; i++) {
		const uint32_t after = mt_u32_at(times + 8 * i);
		const uint32_t length = mt_u32_at(times + 8 * i + 4);
		struct mt_timed *timed;

		if (!graphs->list[i].has_layer || (after == UINT32_MAX && length == UINT32_MAX))
			continue;
		timed = mt_timed_at(table, pass_id, graphs->list[i].layer_id);
		if (!timed)
			return SQLITE_NOMEM;
		mt_timed_add(timed, (sqlite3_int64)(start_ns + after), (sqlite3_int64)(start_ns + after + length),
			     graphs->list[i].is_experts);
	}
	return rc;
}

static int launches_read(struct graphs *graphs, sqlite3_stmt *stmt, const struct mt_passes *passes,
			 struct mt_timed_table *table)
{
	int rc;

	while ((rc = sqlite3_step(stmt)) == SQLITE_ROW) {
		if (!mt_passes_have(passes, sqlite3_column_int64(stmt, 0)))
			continue;
		rc = launch_read(graphs, stmt, table);
		if (rc != SQLITE_OK)
			return rc;
	}
	return rc == SQLITE_DONE ? SQLITE_OK : rc;
}

int mt_graph_times_read(sqlite3 *db, const struct mt_passes *passes, struct mt_timed_table *table)
{
	struct graphs graphs = {.list = sqlite3_malloc64(MAX_NODES * sizeof(struct node))};
	sqlite3_stmt *stmt = NULL;
	int rc = graphs.list ? names_begin(db, &graphs.names) : SQLITE_NOMEM;

	if (rc == SQLITE_OK)
		rc = mt_layer_times_prepare(db, "SELECT node, layer_id, name_id FROM main.graph_node"
						" WHERE graph = ?1 AND layer_id IS NOT NULL", &graphs.nodes);
	if (rc == SQLITE_OK)
		rc = mt_layer_times_prepare(db, "SELECT pass_id, graph, start_ns, n_nodes, node_times"
						" FROM main.graph_launch WHERE flags = 0 AND pass_id > 0"
						" AND graph IS NOT NULL AND typeof(node_times) = 'blob'", &stmt);
	if (rc == SQLITE_OK)
		rc = launches_read(&graphs, stmt, passes, table);
	sqlite3_finalize(stmt);
	sqlite3_finalize(graphs.nodes);
	names_end(graphs.names);
	sqlite3_free(graphs.list);
	return rc;
}
