/* SPDX-License-Identifier: MIT */
/*
 * Reads spans of operations: those that were told one by one, and launches of graphs, of which the
 * nodes are, or the launch itself where no node has a time.
 */
#include "viewer/timeline_scan_internal.h"

#include <stdlib.h>
#include <string.h>

#include "common/bytes.h"

static struct mt_lane kernel_lane(sqlite3_stmt *stmt, int device, bool moves_data)
{
	return (struct mt_lane){moves_data ? MT_LANE_COLLECTIVES : MT_LANE_KERNELS,
				sqlite3_column_int64(stmt, device),
				sqlite3_column_type(stmt, device + 1) == SQLITE_NULL
					? INT64_MIN
					: sqlite3_column_int64(stmt, device + 1),
				0};
}

enum mt_scan_result mt_scan_kernels(struct mt_scan *scan, int64_t first, int64_t last,
					struct mt_items *items)
{
	sqlite3_stmt *stmt = mt_scan_begin(scan, S_KERNEL, first, last);
	enum mt_scan_result result = MT_SCAN_DONE;
	struct mt_known_name known;
	int rc;

	while ((rc = sqlite3_step(stmt)) == SQLITE_ROW && result == MT_SCAN_DONE) {
		struct mt_item item = {.start_ns = sqlite3_column_int64(stmt, 1),
				       .end_ns = sqlite3_column_int64(stmt, 2),
				       .id = (uint32_t)sqlite3_column_int64(stmt, 0),
				       .name = mt_scan_name_number(sqlite3_column_int64(stmt, 3))};

		if (!mt_scan_is_number(stmt, 1) || !mt_scan_is_number(stmt, 2))
			continue;
		known = mt_scan_name_know(scan, sqlite3_column_int64(stmt, 3));
		item.lane = kernel_lane(stmt, 4, known.moves_data);
		item.kind = known.kind;
		item.layer = mt_scan_layer(scan, stmt, 6);
		if (!mt_scan_item(items, &item))
			result = MT_SCAN_NO_MEMORY;
	}
	return mt_scan_end(stmt, rc, result);
}

/* What the nodes of @graph are drawn as. */
static enum mt_scan_result graph_know(struct mt_scan *scan, int64_t graph)
{
	sqlite3_stmt *stmt;
	int rc;

	if (scan->graph == graph && graph != 0)
		return MT_SCAN_DONE;
	if (!scan->nodes)
		scan->nodes = malloc(MAX_GRAPH_NODES * sizeof(*scan->nodes));
	if (!scan->nodes)
		return MT_SCAN_NO_MEMORY;
	memset(scan->nodes, 0, MAX_GRAPH_NODES * sizeof(*scan->nodes));
	scan->graph = graph;
	stmt = mt_scan_begin(scan, S_GRAPH_NODE, graph, 0);
	while ((rc = sqlite3_step(stmt)) == SQLITE_ROW) {
		const int64_t node = sqlite3_column_int64(stmt, 0);

		if (node >= 0 && node < MAX_GRAPH_NODES)
			scan->nodes[node] = (struct mt_known_node){true,
							  mt_scan_name_know(scan, sqlite3_column_int64(stmt, 1)),
							  mt_scan_layer(scan, stmt, 2)};
	}
	return mt_scan_end(stmt, rc, MT_SCAN_DONE);
}

/* A node has no row of its own: it is its launch's, and its number there. */
static bool nodes_add(struct mt_scan *scan, sqlite3_stmt *stmt, struct mt_items *items)
{
	const unsigned char *times = sqlite3_column_blob(stmt, 4);
	const size_t n = (size_t)sqlite3_column_bytes(stmt, 4) / 8;
	const int64_t start_ns = sqlite3_column_int64(stmt, 0);
	struct mt_item item = {.id = (uint32_t)sqlite3_column_int64(stmt, 5)};

	for (size_t i = 0; i < n && i < MAX_GRAPH_NODES; i++) {
		const uint32_t after = mt_u32_at(times + 8 * i);
		const uint32_t length = mt_u32_at(times + 8 * i + 4);
		const struct mt_known_node *node = &scan->nodes[i];

		if (!node->is_there || (after == UINT32_MAX && length == UINT32_MAX))
			continue;
		item.lane = kernel_lane(stmt, 1, node->known.moves_data);
		item.kind = node->known.kind;
		item.name = mt_scan_name_number(node->known.name_id);
		item.node = (uint32_t)i + 1;
		item.layer = node->layer;
		if (__builtin_add_overflow(start_ns, (int64_t)after, &item.start_ns) ||
		    __builtin_add_overflow(item.start_ns, (int64_t)length, &item.end_ns)) {
			items->n_left_out++;
			continue;
		}
		if (!mt_scan_item(items, &item))
			return false;
	}
	return true;
}

/* A launch of which no node is timed is a bar itself. */
static bool launch_add(sqlite3_stmt *stmt, struct mt_items *items)
{
	const struct mt_item item = {
		.lane = kernel_lane(stmt, 1, false),
		.start_ns = sqlite3_column_int64(stmt, 0),
		.end_ns = sqlite3_column_int64(stmt, 6),
		.id = (uint32_t)sqlite3_column_int64(stmt, 5),
		.name = MT_NAME_GRAPH | (uint32_t)(sqlite3_column_int64(stmt, 3) & INT32_MAX),
		.kind = mt_scan_kind("other"),
	};

	return !mt_scan_is_number(stmt, 6) || mt_scan_item(items, &item);
}

static enum mt_scan_result launch_read(struct mt_scan *scan, sqlite3_stmt *stmt, struct mt_items *items)
{
	enum mt_scan_result result;

	if (sqlite3_column_type(stmt, 4) == SQLITE_NULL || sqlite3_column_int(stmt, 7) == 1)
		return launch_add(stmt, items) ? MT_SCAN_DONE : MT_SCAN_NO_MEMORY;
	if (!mt_scan_is_number(stmt, 3) || sqlite3_column_type(stmt, 4) != SQLITE_BLOB)
		return MT_SCAN_DONE;
	result = graph_know(scan, sqlite3_column_int64(stmt, 3));
	if (result == MT_SCAN_DONE && !nodes_add(scan, stmt, items))
		result = MT_SCAN_NO_MEMORY;
	return result;
}

enum mt_scan_result mt_scan_graphs(struct mt_scan *scan, int64_t first, int64_t last,
				       struct mt_items *items)
{
	sqlite3_stmt *stmt = mt_scan_begin(scan, S_GRAPH, first, last);
	enum mt_scan_result result = MT_SCAN_DONE;
	int rc;

	while ((rc = sqlite3_step(stmt)) == SQLITE_ROW && result == MT_SCAN_DONE)
		if (mt_scan_is_number(stmt, 0))
			result = launch_read(scan, stmt, items);
	return mt_scan_end(stmt, rc, result);
}
