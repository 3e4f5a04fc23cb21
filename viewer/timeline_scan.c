/* SPDX-License-Identifier: MIT */
/*
 * Reads spans of passes and of ranges, and knows names. Times are those of the views: a layer lasts
 * to the next selection of its pass, or to the pass's end where the host told it; else it has no
 * length. What a bar is drawn as is looked up once for each name.
 */
#include "viewer/timeline_scan_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const mt_timeline_kinds[] = {
	"prefill", "decode", "mixed",  "verify",   "draft",	"idle",	  "dummy", "gate", "topk",
	"align",   "dispatch", "experts", "combine", "shared", "attention", "norm",  "embed", "head",
	"collective", "copy",  "other",	  "layer",   "range",
};
const size_t mt_n_timeline_kinds = sizeof(mt_timeline_kinds) / sizeof(mt_timeline_kinds[0]);


/* ?1 and ?2 are the span, ?3 the recording, where a statement reads one. */
static const char *const statement_sql[S_N] = {
	[S_PASS] = "SELECT pass_id, begin_ns, coalesce(end_ns, begin_ns), phase, n_rows, model_id, "
		   "parent_pass_id IS NOT NULL, iif(device_id IS NULL, end_ns, NULL) FROM pass "
		   "WHERE pass_id BETWEEN ?1 AND ?2 AND recording_id = ?3",
	[S_PASS_LAYER] = "SELECT layer_id, selected_ns, active_experts FROM pass_layer WHERE pass_id = ?1",
	[S_LAYER] = "SELECT layer FROM layer WHERE layer_id = ?1",
	[S_POWER] = "SELECT power_sample_id, time_ns, device_id, domain, source, instant_mw, average_mw, "
		    "energy_mj, limit_mw, processor_mhz, memory_mhz, temperature_c FROM power_sample "
		    "WHERE power_sample_id BETWEEN ?1 AND ?2 AND recording_id = ?3",
	[S_RANGE] = "SELECT range_id, start_ns, end_ns, thread, name_id FROM range "
		    "WHERE range_id BETWEEN ?1 AND ?2 AND recording_id = ?3",
	[S_GRAPH] = "SELECT start_ns, device_id, stream, graph, node_times, graph_launch_id, end_ns, "
		    "n_untimed = n_nodes FROM graph_launch "
		    "WHERE graph_launch_id BETWEEN ?1 AND ?2 AND recording_id = ?3 AND flags = 0",
	[S_GRAPH_NODE] = "SELECT node, name_id, layer_id FROM graph_node WHERE graph = ?1 ORDER BY node",
	[S_KERNEL] = "SELECT kernel_id, start_ns, end_ns, name_id, device_id, stream, layer_id FROM kernel "
		     "WHERE kernel_id BETWEEN ?1 AND ?2 AND recording_id = ?3 AND flags = 0",
	[S_ROLE] = "SELECT role, moves_data FROM string WHERE string_id = ?1",
	[S_STRING] = "SELECT value FROM string WHERE string_id = ?1",
	[S_MODEL] = "SELECT name FROM model WHERE model_id = ?1",
	[S_DEVICE] = "SELECT kind FROM device WHERE device_id = ?1",
};

static const char *const bounds_sql[MT_SCAN_N_TABLES] = {
	[MT_SCAN_PASS] = "SELECT min(pass_id) AS x, 0 FROM pass UNION ALL SELECT max(pass_id), 1 FROM pass ORDER BY 2",
	[MT_SCAN_POWER] = "SELECT min(power_sample_id) AS x, 0 FROM power_sample UNION ALL "
			  "SELECT max(power_sample_id), 1 FROM power_sample ORDER BY 2",
	[MT_SCAN_RANGE] = "SELECT min(range_id) AS x, 0 FROM range UNION ALL SELECT max(range_id), 1 FROM range ORDER BY 2",
	[MT_SCAN_GRAPH] = "SELECT min(graph_launch_id) AS x, 0 FROM graph_launch UNION ALL "
			  "SELECT max(graph_launch_id), 1 FROM graph_launch ORDER BY 2",
	[MT_SCAN_KERNEL] = "SELECT min(kernel_id) AS x, 0 FROM kernel UNION ALL SELECT max(kernel_id), 1 FROM kernel ORDER BY 2",
};

/* ---- statements ---- */

sqlite3_stmt *mt_scan_begin(struct mt_scan *scan, enum mt_scan_statement which, int64_t first, int64_t last)
{
	sqlite3_stmt *stmt = scan->statements[which];

	sqlite3_reset(stmt);
	sqlite3_bind_int64(stmt, 1, first);
	if (sqlite3_bind_parameter_count(stmt) == 3) {
		sqlite3_bind_int64(stmt, 2, last);
		sqlite3_bind_int64(stmt, 3, scan->recording_id);
	}
	return stmt;
}

enum mt_scan_result mt_scan_end(sqlite3_stmt *stmt, int rc, enum mt_scan_result result)
{
	sqlite3_reset(stmt);
	if (result != MT_SCAN_DONE)
		return result;
	return rc == SQLITE_DONE ? MT_SCAN_DONE : MT_SCAN_FAILED;
}

struct mt_scan *mt_scan_open(struct mt_source_run *run, int64_t recording_id)
{
	struct mt_scan *scan = calloc(1, sizeof(*scan));

	if (!scan)
		return NULL;
	scan->run = run;
	scan->recording_id = recording_id;
	for (size_t i = 0; i < S_N; i++) {
		if (sqlite3_prepare_v2(run->db, statement_sql[i], -1, &scan->statements[i], NULL) !=
		    SQLITE_OK) {
			mt_scan_close(scan);
			return NULL;
		}
	}
	return scan;
}

void mt_scan_close(struct mt_scan *scan)
{
	if (!scan)
		return;
	for (size_t i = 0; i < S_N; i++)
		sqlite3_finalize(scan->statements[i]);
	free(scan->nodes);
	free(scan);
}

bool mt_scan_bounds(struct mt_scan *scan, enum mt_scan_table table, int64_t *ret_first,
		    int64_t *ret_last)
{
	int64_t bounds[2] = {1, 0};
	sqlite3_stmt *stmt;
	bool is_good;
	int i = 0;

	if (sqlite3_prepare_v2(scan->run->db, bounds_sql[table], -1, &stmt, NULL) != SQLITE_OK)
		return false;
	for (; i < 2 && sqlite3_step(stmt) == SQLITE_ROW; i++)
		if (mt_scan_is_number(stmt, 0))
			bounds[i] = sqlite3_column_int64(stmt, 0);
	is_good = i == 2;
	sqlite3_finalize(stmt);
	*ret_first = bounds[0];
	*ret_last = bounds[1];
	return is_good;
}

/* ---- items ---- */

bool mt_scan_item(struct mt_items *items, const struct mt_item *item)
{
	int64_t length_ns;

	if (item->end_ns < item->start_ns ||
	    __builtin_sub_overflow(item->end_ns, item->start_ns, &length_ns)) {
		items->n_left_out++;
		return true;
	}
	if (items->n == items->size) {
		const size_t size = items->size ? items->size * 2 : 4096;
		void *more = realloc(items->items, size * sizeof(*items->items));

		if (!more)
			return false;
		items->items = more;
		items->size = size;
	}
	items->items[items->n++] = *item;
	return true;
}

bool mt_scan_point(struct mt_items *items, struct mt_lane lane, int64_t time_ns, double value,
		      double limit)
{
	const struct mt_item item = {.lane = lane, .start_ns = time_ns, .end_ns = time_ns,
				     .value = (float)value, .limit = (float)limit};

	return mt_scan_item(items, &item);
}

uint8_t mt_scan_kind(const char *name)
{
	uint8_t i = 0;

	for (; i < mt_n_timeline_kinds; i++)
		if (name && strcmp(name, mt_timeline_kinds[i]) == 0)
			return i;
	return mt_scan_kind("other");
}

struct mt_known_name mt_scan_name_know(struct mt_scan *scan, int64_t name_id)
{
	struct mt_known_name *known = &scan->names[(uint64_t)name_id % N_KNOWN_NAMES];
	sqlite3_stmt *stmt;

	if (name_id == 0 || known->name_id != name_id) {
		stmt = mt_scan_begin(scan, S_ROLE, name_id, 0);
		*known = (struct mt_known_name){.name_id = name_id, .kind = mt_scan_kind("other")};
		if (sqlite3_step(stmt) == SQLITE_ROW) {
			known->kind = mt_scan_kind((const char *)sqlite3_column_text(stmt, 0));
			known->moves_data = sqlite3_column_int(stmt, 1) == 1;
		}
		sqlite3_reset(stmt);
	}
	return *known;
}

uint32_t mt_scan_name_number(int64_t name_id)
{
	return name_id > 0 && name_id < MT_NAME_GRAPH ? (uint32_t)name_id : 0;
}

/* ---- passes ---- */

/* From 1; 0: none. */
uint16_t mt_scan_layer(struct mt_scan *scan, sqlite3_stmt *from, int column)
{
	const int64_t layer_id = sqlite3_column_int64(from, column);
	const bool is_kept = layer_id >= 0 && layer_id <= MAX_LAYERS;
	sqlite3_stmt *stmt;
	int64_t layer;

	if (!mt_scan_is_number(from, column))
		return 0;
	if (is_kept && scan->layers[layer_id])
		return scan->layers[layer_id];
	stmt = mt_scan_begin(scan, S_LAYER, layer_id, 0);
	layer = sqlite3_step(stmt) == SQLITE_ROW ? sqlite3_column_int64(stmt, 0) + 1 : 0;
	sqlite3_reset(stmt);
	if (layer < 0 || layer > UINT16_MAX)
		layer = 0;
	if (is_kept)
		scan->layers[layer_id] = (uint16_t)layer;
	return (uint16_t)layer;
}

struct selection {
	int64_t selected_ns;
	uint16_t layer;
};

static int selection_compare(const void *a, const void *b)
{
	const struct selection *first = a, *second = b;

	return first->selected_ns < second->selected_ns ? -1 : first->selected_ns > second->selected_ns;
}

static bool layers_add(struct mt_items *items, struct selection *selections, size_t n, int64_t model,
		       const int64_t *pass_end_ns)
{
	struct mt_item item = {.lane = {MT_LANE_LAYERS, model, 0, 0}, .kind = mt_scan_kind("layer")};

	qsort(selections, n, sizeof(*selections), selection_compare);
	for (size_t i = 0; i < n; i++) {
		item.start_ns = item.end_ns = selections[i].selected_ns;
		if (i + 1 < n)
			item.end_ns = selections[i + 1].selected_ns;
		else if (pass_end_ns)
			item.end_ns = *pass_end_ns;
		item.layer = selections[i].layer;
		item.id = item.layer ? item.layer - 1u : 0;
		if (!mt_scan_item(items, &item))
			return false;
	}
	return true;
}

/* Active experts of layers without a time are told once a pass. */
static bool pass_counters_add(struct mt_items *items, sqlite3_stmt *pass, double active, size_t n_active)
{
	const struct mt_lane active_lane = {.type = MT_LANE_ACTIVE}, rows_lane = {.type = MT_LANE_ROWS};
	const int64_t begin_ns = sqlite3_column_int64(pass, 1);

	return (n_active == 0 ||
		mt_scan_point(items, active_lane, begin_ns, active / (double)n_active, 0)) &&
	       mt_scan_point(items, rows_lane, begin_ns, sqlite3_column_double(pass, 4), 0);
}

/* The layers of the pass that @pass stands at, and what counters say of it. */
static enum mt_scan_result pass_layers_read(struct mt_scan *scan, sqlite3_stmt *pass,
					    struct mt_items *items)
{
	sqlite3_stmt *stmt = mt_scan_begin(scan, S_PASS_LAYER, sqlite3_column_int64(pass, 0), 0);
	const struct mt_lane active_lane = {.type = MT_LANE_ACTIVE};
	const int64_t end_ns = sqlite3_column_int64(pass, 7);
	struct selection selections[MAX_LAYERS];
	size_t n = 0, n_active = 0;
	bool has_memory = true;
	double active = 0;
	int rc;

	while ((rc = sqlite3_step(stmt)) == SQLITE_ROW && has_memory) {
		const bool is_active = sqlite3_column_type(stmt, 2) != SQLITE_NULL;

		if (!mt_scan_is_number(stmt, 1)) {
			active += sqlite3_column_double(stmt, 2);
			n_active += is_active;
			continue;
		}
		if (is_active)
			has_memory = mt_scan_point(items, active_lane, sqlite3_column_int64(stmt, 1),
					       sqlite3_column_double(stmt, 2), 0);
		if (n < MAX_LAYERS)
			selections[n++] = (struct selection){sqlite3_column_int64(stmt, 1),
							     mt_scan_layer(scan, stmt, 0)};
		else
			items->n_left_out++;
	}
	has_memory = has_memory &&
		     layers_add(items, selections, n, sqlite3_column_int64(pass, 5),
				mt_scan_is_number(pass, 7) ? &end_ns : NULL) &&
		     pass_counters_add(items, pass, active, n_active);
	return mt_scan_end(stmt, rc, has_memory ? MT_SCAN_DONE : MT_SCAN_NO_MEMORY);
}

static enum mt_scan_result passes_read(struct mt_scan *scan, int64_t first, int64_t last,
				       struct mt_items *items)
{
	sqlite3_stmt *stmt = mt_scan_begin(scan, S_PASS, first, last);
	enum mt_scan_result result = MT_SCAN_DONE;
	int rc;

	while ((rc = sqlite3_step(stmt)) == SQLITE_ROW && result == MT_SCAN_DONE) {
		const struct mt_item item = {
			.lane = {MT_LANE_PASSES, sqlite3_column_int64(stmt, 5),
				 sqlite3_column_int64(stmt, 6), 0},
			.start_ns = sqlite3_column_int64(stmt, 1),
			.end_ns = sqlite3_column_int64(stmt, 2),
			.id = (uint32_t)sqlite3_column_int64(stmt, 0),
			.kind = mt_scan_kind((const char *)sqlite3_column_text(stmt, 3)),
		};

		if (!mt_scan_is_number(stmt, 1))
			continue;
		result = mt_scan_item(items, &item) ? pass_layers_read(scan, stmt, items)
						: MT_SCAN_NO_MEMORY;
	}
	return mt_scan_end(stmt, rc, result);
}

/* ---- ranges ---- */

static enum mt_scan_result ranges_read(struct mt_scan *scan, int64_t first, int64_t last,
				       struct mt_items *items)
{
	sqlite3_stmt *stmt = mt_scan_begin(scan, S_RANGE, first, last);
	enum mt_scan_result result = MT_SCAN_DONE;
	int rc;

	while ((rc = sqlite3_step(stmt)) == SQLITE_ROW && result == MT_SCAN_DONE) {
		const struct mt_item item = {.lane = {MT_LANE_RANGES, sqlite3_column_int64(stmt, 3), 0, 0},
					     .start_ns = sqlite3_column_int64(stmt, 1),
					     .end_ns = sqlite3_column_int64(stmt, 2),
					     .id = (uint32_t)sqlite3_column_int64(stmt, 0),
					     .name = mt_scan_name_number(sqlite3_column_int64(stmt, 4)),
					     .kind = mt_scan_kind("range")};

		if (mt_scan_is_number(stmt, 1) && mt_scan_is_number(stmt, 2) && !mt_scan_item(items, &item))
			result = MT_SCAN_NO_MEMORY;
	}
	return mt_scan_end(stmt, rc, result);
}

enum mt_scan_result mt_scan_read(struct mt_scan *scan, enum mt_scan_table table, int64_t first,
				 int64_t last, struct mt_items *items)
{
	static enum mt_scan_result (*const read[])(struct mt_scan *, int64_t, int64_t,
						   struct mt_items *) = {
		[MT_SCAN_PASS] = passes_read,  [MT_SCAN_POWER] = mt_scan_power,
		[MT_SCAN_RANGE] = ranges_read, [MT_SCAN_GRAPH] = mt_scan_graphs,
		[MT_SCAN_KERNEL] = mt_scan_kernels,
	};

	return read[table](scan, first, last, items);
}

/* ---- names ---- */

static void text_find(struct mt_scan *scan, enum mt_scan_statement which, int64_t id, char *ret_text,
		      size_t n_bytes)
{
	sqlite3_stmt *stmt = mt_scan_begin(scan, which, id, 0);
	const char *text = sqlite3_step(stmt) == SQLITE_ROW ? (const char *)sqlite3_column_text(stmt, 0)
							    : NULL;

	snprintf(ret_text, n_bytes, "%s", text ? text : "");
	sqlite3_reset(stmt);
}

static void device_name(struct mt_scan *scan, const char *what, const struct mt_lane *lane,
			char *ret_name, size_t n_bytes)
{
	char device[64];

	text_find(scan, S_DEVICE, lane->a, device, sizeof(device));
	snprintf(ret_name, n_bytes, "%s%s %lld", what, device, (long long)lane->a);
}

void mt_scan_lane_name(struct mt_scan *scan, const struct mt_lane *lane, char *ret_name,
		       size_t n_bytes)
{
	static const char *const whats[MT_LANE_N_TYPES] = {
		[MT_LANE_ACTIVE] = "active experts",   [MT_LANE_ROWS] = "rows of passes",
		[MT_LANE_POWER] = "power of ",	       [MT_LANE_CLOCK] = "clock of ",
		[MT_LANE_MEMORY_CLOCK] = "memory clock of ", [MT_LANE_TEMPERATURE] = "temperature of ",
	};
	char text[80];

	switch (lane->type) {
	case MT_LANE_PASSES:
	case MT_LANE_LAYERS:
		text_find(scan, S_MODEL, lane->a, text, sizeof(text));
		snprintf(ret_name, n_bytes, "%s%s", text, lane->b ? " (microbatches)" : "");
		break;
	case MT_LANE_KERNELS:
	case MT_LANE_COLLECTIVES:
		device_name(scan, "", lane, text, sizeof(text));
		if (lane->b == INT64_MIN)
			snprintf(ret_name, n_bytes, "%s", text);
		else
			snprintf(ret_name, n_bytes, "%s, stream %lld", text, (long long)lane->b);
		break;
	case MT_LANE_RANGES:
		snprintf(ret_name, n_bytes, "thread %lld", (long long)lane->a);
		break;
	case MT_LANE_ACTIVE:
	case MT_LANE_ROWS:
		snprintf(ret_name, n_bytes, "%s", whats[lane->type]);
		break;
	default:
		device_name(scan, whats[lane->type], lane, text, sizeof(text));
		snprintf(ret_name, n_bytes, "%s%s%s", text, lane->type == MT_LANE_POWER ? ", " : "",
			 lane->type == MT_LANE_POWER ? mt_scan_domain(scan, lane->b) : "");
	}
}

const char *mt_scan_lane_unit(const struct mt_lane *lane)
{
	static const char *const units[MT_LANE_N_TYPES] = {
		[MT_LANE_ACTIVE] = "experts", [MT_LANE_ROWS] = "rows", [MT_LANE_POWER] = "W",
		[MT_LANE_CLOCK] = "MHz", [MT_LANE_MEMORY_CLOCK] = "MHz",
		[MT_LANE_TEMPERATURE] = "\u00b0C",
	};

	return units[lane->type] ? units[lane->type] : "";
}

const char *mt_scan_lane_sort(const struct mt_lane *lane)
{
	static const char *const sorts[] = {"passes", "layers", "kernels", "collectives", "ranges"};

	return lane->type < MT_LANE_N_BARS ? sorts[lane->type] : "";
}

void mt_scan_name(struct mt_scan *scan, uint32_t name, char *ret_text, size_t n_bytes)
{
	if (name & MT_NAME_GRAPH)
		snprintf(ret_text, n_bytes, name & ~MT_NAME_GRAPH ? "graph %u" : "graph",
			 name & ~MT_NAME_GRAPH);
	else
		text_find(scan, S_STRING, name, ret_text, n_bytes);
}
