/* SPDX-License-Identifier: MIT */
/*
 * Reads a timeline. Times are those of the views; a bar that ends before it begins, or of which one
 * is not a number, is left out and counted. Tracks are put in order of time at the end, since
 * operations are stored in the order in which they were told.
 */
#include "viewer/timeline.h"

#include <stdlib.h>
#include <string.h>

const char *const mt_timeline_kinds[] = {
	"prefill", "decode", "mixed",  "verify",   "draft",	"idle",	  "dummy", "gate", "topk",
	"align",   "dispatch", "experts", "combine", "shared", "attention", "norm",  "embed", "head",
	"collective", "copy",  "other",	  "layer",   "range",
};
const size_t mt_n_timeline_kinds = sizeof(mt_timeline_kinds) / sizeof(mt_timeline_kinds[0]);

static uint8_t kind_of(const unsigned char *name, const char *otherwise)
{
	for (uint8_t i = 0; name && i < mt_n_timeline_kinds; i++)
		if (strcmp((const char *)name, mt_timeline_kinds[i]) == 0)
			return i;
	return kind_of((const unsigned char *)otherwise, "other");
}

/* ---- adding ---- */

static bool is_full(struct mt_timeline *timeline)
{
	if (timeline->n_items < MT_TIMELINE_MAX_ITEMS) {
		timeline->n_items++;
		return false;
	}
	timeline->n_left_out++;
	return true;
}

static bool array_room(void **array, size_t n, size_t *size, size_t n_bytes)
{
	size_t more = *size ? *size * 2 : 1024;
	void *grown;

	if (n < *size)
		return true;
	grown = realloc(*array, more * n_bytes);
	if (!grown)
		return false;
	*array = grown;
	*size = more;
	return true;
}

static struct mt_track *track_find(struct mt_timeline *timeline, const char *type, const char *name)
{
	struct mt_track *track;

	for (size_t i = timeline->n_tracks; i-- > 0;)
		if (strcmp(timeline->tracks[i].name, name) == 0 &&
		    strcmp(timeline->tracks[i].type, type) == 0)
			return &timeline->tracks[i];
	if (timeline->n_tracks == MT_TIMELINE_MAX_TRACKS)
		return NULL;
	track = &timeline->tracks[timeline->n_tracks++];
	snprintf(track->type, sizeof(track->type), "%s", type);
	snprintf(track->name, sizeof(track->name), "%s", name);
	return track;
}

/* Returns false without memory alone. */
static bool bar_add(struct mt_timeline *timeline, struct mt_track *track, const struct mt_bar *bar)
{
	if (!track || bar->end_ns < bar->start_ns) {
		timeline->n_left_out++;
		return true;
	}
	if (is_full(timeline))
		return true;
	if (!array_room((void **)&track->bars, track->n_bars, &track->size, sizeof(*track->bars)))
		return false;
	track->bars[track->n_bars++] = *bar;
	return true;
}

static bool point_add(struct mt_timeline *timeline, const char *name, const char *unit,
		      int64_t time_ns, double value, double limit)
{
	struct mt_counter *counter = NULL;

	for (size_t i = 0; i < timeline->n_counters && !counter; i++)
		if (strcmp(timeline->counters[i].name, name) == 0)
			counter = &timeline->counters[i];
	if (!counter && timeline->n_counters < MT_TIMELINE_MAX_TRACKS) {
		counter = &timeline->counters[timeline->n_counters++];
		snprintf(counter->name, sizeof(counter->name), "%s", name);
		snprintf(counter->unit, sizeof(counter->unit), "%s", unit);
	}
	if (!counter || is_full(timeline))
		return true;
	if (!array_room((void **)&counter->points, counter->n_points, &counter->size,
			sizeof(*counter->points)))
		return false;
	if (limit > counter->limit)
		counter->limit = limit;
	counter->points[counter->n_points++] = (struct mt_point){time_ns, (float)value};
	return true;
}

/* ---- reading ---- */

/* One row of a statement; false: no memory. */
typedef bool row_fn(struct mt_timeline *timeline, sqlite3_stmt *stmt);

static bool is_number(sqlite3_stmt *stmt, int column)
{
	return sqlite3_column_type(stmt, column) == SQLITE_INTEGER;
}

/* From 1; 0: none. */
static uint16_t layer_of(sqlite3_stmt *stmt, int column)
{
	const sqlite3_int64 layer = sqlite3_column_int64(stmt, column);

	return is_number(stmt, column) && layer >= 0 && layer < UINT16_MAX ? (uint16_t)(layer + 1)
									    : 0;
}

static bool pass_row(struct mt_timeline *timeline, sqlite3_stmt *stmt)
{
	struct mt_bar bar = {.start_ns = sqlite3_column_int64(stmt, 1),
			     .end_ns = sqlite3_column_int64(stmt, 2),
			     .id = (uint32_t)sqlite3_column_int64(stmt, 0),
			     .kind = kind_of(sqlite3_column_text(stmt, 3), "other")};
	char name[96];

	if (!is_number(stmt, 1))
		return true;
	snprintf(name, sizeof(name), "%s%s",
		 sqlite3_column_text(stmt, 6) ? (const char *)sqlite3_column_text(stmt, 6) : "",
		 sqlite3_column_int(stmt, 7) ? " (microbatches)" : "");
	if (!bar_add(timeline, track_find(timeline, "passes", name), &bar))
		return false;
	if (sqlite3_column_type(stmt, 5) != SQLITE_NULL &&
	    !point_add(timeline, "active experts", "experts", bar.start_ns,
		       sqlite3_column_double(stmt, 5), 0))
		return false;
	return point_add(timeline, "rows of passes", "rows", bar.start_ns,
			 sqlite3_column_double(stmt, 4), 0);
}

/* Of layers without a time, active experts are told once a pass. */
static const char sql_passes[] =
	"SELECT p.pass_id, p.begin_ns, coalesce(p.end_ns, p.begin_ns), p.phase, p.n_rows, (SELECT "
	"avg(l.active_experts) FROM pass_layer AS l WHERE l.pass_id = p.pass_id "
	"AND l.selected_ns IS NULL), m.name, "
	"p.parent_pass_id IS NOT NULL FROM pass AS p JOIN model AS m USING (model_id) "
	"WHERE p.recording_id = ?1 ORDER BY p.begin_ns";

static bool layer_row(struct mt_timeline *timeline, sqlite3_stmt *stmt)
{
	struct mt_bar bar = {.start_ns = sqlite3_column_int64(stmt, 1),
			     .end_ns = sqlite3_column_int64(stmt, 2),
			     .id = (uint32_t)sqlite3_column_int64(stmt, 0),
			     .kind = kind_of((const unsigned char *)"layer", "other")};
	const char *model = (const char *)sqlite3_column_text(stmt, 3);

	if (!is_number(stmt, 1))
		return true;
	if (is_number(stmt, 4) &&
	    !point_add(timeline, "active experts", "experts", bar.start_ns,
		       sqlite3_column_double(stmt, 4), 0))
		return false;
	if (!is_number(stmt, 2))
		return true;
	bar.layer = layer_of(stmt, 0);
	return bar_add(timeline, track_find(timeline, "layers", model ? model : ""), &bar);
}

/* A layer lasts to the next selection of its pass, or to the pass's end. */
static const char sql_layers[] =
	"SELECT l.layer, pl.selected_ns, coalesce(lead(pl.selected_ns) OVER (PARTITION BY pl.pass_id "
	"ORDER BY pl.selected_ns), p.end_ns), m.name, pl.active_experts FROM pass AS p JOIN pass_layer AS pl USING "
	"(pass_id) JOIN layer AS l USING (layer_id) JOIN model AS m ON m.model_id = p.model_id "
	"WHERE p.recording_id = ?1 AND pl.selected_ns IS NOT NULL";

static bool kernel_row(struct mt_timeline *timeline, sqlite3_stmt *stmt)
{
	struct mt_bar bar = {.start_ns = sqlite3_column_int64(stmt, 1),
			     .end_ns = sqlite3_column_int64(stmt, 1) + sqlite3_column_int64(stmt, 2),
			     .id = (uint32_t)sqlite3_column_int64(stmt, 0),
			     .node = (uint32_t)sqlite3_column_int64(stmt, 7),
			     .layer = layer_of(stmt, 8),
			     .kind = kind_of(sqlite3_column_text(stmt, 3), "other")};
	const char *device = (const char *)sqlite3_column_text(stmt, 5);
	const char *type = sqlite3_column_int(stmt, 10) == 1 ? "collectives" : "kernels";
	char name[96];

	if (!is_number(stmt, 1) || !is_number(stmt, 2))
		return true;
	bar.name = mt_timeline_name(&timeline->names, (const char *)sqlite3_column_text(stmt, 9));
	if (sqlite3_column_type(stmt, 6) == SQLITE_NULL)
		snprintf(name, sizeof(name), "%s %lld", device ? device : "",
			 sqlite3_column_int64(stmt, 4));
	else
		snprintf(name, sizeof(name), "%s %lld, stream %lld", device ? device : "",
			 sqlite3_column_int64(stmt, 4), sqlite3_column_int64(stmt, 6));
	return bar_add(timeline, track_find(timeline, type, name), &bar);
}

/* A node of a graph has no row of its own: it is the launch's row and its number there. */
static const char sql_kernels[] =
	"SELECT coalesce(k.kernel_id, k.graph_launch_id), k.start_ns, k.duration_ns, k.role, "
	"k.device_id, d.kind, k.stream, k.node + 1, l.layer, k.name, k.moves_data "
	"FROM kernel_event AS k JOIN device AS d USING (device_id) LEFT JOIN layer AS l USING "
	"(layer_id) WHERE k.recording_id = ?1";

/* Launches of graphs of which no node is timed are bars themselves. */
static const char sql_launches[] =
	"SELECT g.graph_launch_id, g.start_ns, g.end_ns - g.start_ns, 'other', g.device_id, d.kind, "
	"g.stream, 0, NULL, 'graph' || coalesce(' ' || g.graph, ''), 0 FROM graph_launch AS g "
	"JOIN device AS d USING (device_id) WHERE g.recording_id = ?1 AND g.flags = 0 "
	"AND (g.node_times IS NULL OR g.n_untimed = g.n_nodes)";

static bool range_row(struct mt_timeline *timeline, sqlite3_stmt *stmt)
{
	struct mt_bar bar = {.start_ns = sqlite3_column_int64(stmt, 1),
			     .end_ns = sqlite3_column_int64(stmt, 2),
			     .id = (uint32_t)sqlite3_column_int64(stmt, 0),
			     .kind = kind_of((const unsigned char *)"range", "other")};
	char name[96];

	if (!is_number(stmt, 1) || !is_number(stmt, 2))
		return true;
	bar.name = mt_timeline_name(&timeline->names, (const char *)sqlite3_column_text(stmt, 4));
	snprintf(name, sizeof(name), "thread %lld", sqlite3_column_int64(stmt, 3));
	return bar_add(timeline, track_find(timeline, "ranges", name), &bar);
}

static const char sql_ranges[] =
	"SELECT r.range_id, r.start_ns, r.end_ns, r.thread, s.value FROM range AS r LEFT JOIN string "
	"AS s ON s.string_id = r.name_id WHERE r.recording_id = ?1";

static bool power_row(struct mt_timeline *timeline, sqlite3_stmt *stmt)
{
	const char *domain = (const char *)sqlite3_column_text(stmt, 2);
	const char *device = (const char *)sqlite3_column_text(stmt, 5);
	char name[96];

	if (!is_number(stmt, 0) || sqlite3_column_type(stmt, 3) == SQLITE_NULL)
		return true;
	snprintf(name, sizeof(name), "power of %s %lld, %s", device ? device : "",
		 sqlite3_column_int64(stmt, 1), domain ? domain : "");
	return point_add(timeline, name, "W", sqlite3_column_int64(stmt, 0),
			 sqlite3_column_double(stmt, 3), sqlite3_column_double(stmt, 4));
}

static const char sql_power[] =
	"SELECT p.time_ns, p.device_id, p.domain, coalesce(p.instant_w, p.counted_w, p.average_w), "
	"p.limit_w, d.kind FROM power AS p JOIN device AS d USING (device_id) "
	"WHERE p.recording_id = ?1 ORDER BY p.time_ns";

/* What is read along with power. */
static const struct {
	const char *what, *unit;
} gauges[] = {{"clock", "MHz"}, {"memory clock", "MHz"}, {"temperature", "\u00b0C"}};

static bool gauge_row(struct mt_timeline *timeline, sqlite3_stmt *stmt)
{
	const char *device = (const char *)sqlite3_column_text(stmt, 2);
	char name[96];

	if (!is_number(stmt, 0))
		return true;
	for (int i = 0; i < 3; i++) {
		if (!is_number(stmt, 3 + i))
			continue;
		snprintf(name, sizeof(name), "%s of %s %lld", gauges[i].what, device ? device : "",
			 sqlite3_column_int64(stmt, 1));
		if (!point_add(timeline, name, gauges[i].unit, sqlite3_column_int64(stmt, 0),
			       sqlite3_column_double(stmt, 3 + i), 0))
			return false;
	}
	return true;
}

static const char sql_gauges[] =
	"SELECT s.time_ns, s.device_id, d.kind, s.processor_mhz, s.memory_mhz, s.temperature_c "
	"FROM power_sample AS s JOIN device AS d USING (device_id) WHERE s.recording_id = ?1 "
	"AND coalesce(s.processor_mhz, s.memory_mhz, s.temperature_c) IS NOT NULL ORDER BY s.time_ns";

static const struct {
	const char *sql;
	row_fn *row;
} parts[] = {
	{sql_passes, pass_row},	  {sql_layers, layer_row}, {sql_kernels, kernel_row},
	{sql_launches, kernel_row}, {sql_ranges, range_row}, {sql_power, power_row},
	{sql_gauges, gauge_row},
};

static bool part_read(struct mt_timeline *timeline, struct mt_source_run *run, const char *sql,
		      row_fn *row, struct mt_view_reply *reply)
{
	sqlite3_stmt *stmt;
	bool has_memory = true;
	int rc;

	if (sqlite3_prepare_v2(run->db, sql, -1, &stmt, NULL) != SQLITE_OK) {
		mt_answer_error(run, reply);
		return false;
	}
	sqlite3_bind_int64(stmt, 1, timeline->recording_id);
	while ((rc = sqlite3_step(stmt)) == SQLITE_ROW && has_memory)
		has_memory = row(timeline, stmt);
	if (!has_memory)
		mt_view_reply_fail(reply, MT_REPLY_FAILED, "out of memory for the timeline");
	else if (rc != SQLITE_DONE)
		mt_answer_error(run, reply);
	sqlite3_finalize(stmt);
	return has_memory && rc == SQLITE_DONE;
}

/* ---- order ---- */

/* Active experts are told by passes and by layers. */
static int point_compare(const void *a, const void *b)
{
	const struct mt_point *first = a, *second = b;

	return (first->time_ns > second->time_ns) - (first->time_ns < second->time_ns);
}

static void counter_order(struct mt_counter *counter)
{
	for (size_t i = 1; i < counter->n_points; i++) {
		if (counter->points[i - 1].time_ns > counter->points[i].time_ns) {
			qsort(counter->points, counter->n_points, sizeof(*counter->points),
			      point_compare);
			return;
		}
	}
}

static void bounds_find(struct mt_timeline *timeline)
{
	timeline->start_ns = INT64_MAX;
	timeline->end_ns = INT64_MIN;
	for (size_t i = 0; i < timeline->n_tracks; i++) {
		const struct mt_track *track = &timeline->tracks[i];

		for (size_t j = 0; j < track->n_bars; j++) {
			if (track->bars[j].start_ns < timeline->start_ns)
				timeline->start_ns = track->bars[j].start_ns;
			if (track->bars[j].end_ns > timeline->end_ns)
				timeline->end_ns = track->bars[j].end_ns;
		}
	}
	for (size_t i = 0; i < timeline->n_counters; i++) {
		const struct mt_counter *counter = &timeline->counters[i];

		if (counter->n_points == 0)
			continue;
		if (counter->points[0].time_ns < timeline->start_ns)
			timeline->start_ns = counter->points[0].time_ns;
		if (counter->points[counter->n_points - 1].time_ns > timeline->end_ns)
			timeline->end_ns = counter->points[counter->n_points - 1].time_ns;
	}
	if (timeline->end_ns < timeline->start_ns)
		timeline->start_ns = timeline->end_ns = 0;
}

struct mt_timeline *mt_timeline_read(struct mt_source_run *run, int64_t recording_id,
				     struct mt_view_reply *reply)
{
	struct mt_timeline *timeline = calloc(1, sizeof(*timeline));

	if (!timeline) {
		mt_view_reply_fail(reply, MT_REPLY_FAILED, "out of memory for the timeline");
		return NULL;
	}
	timeline->recording_id = recording_id;
	for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
		if (!part_read(timeline, run, parts[i].sql, parts[i].row, reply)) {
			mt_timeline_free(timeline);
			return NULL;
		}
	}
	if (!mt_timeline_lanes(timeline)) {
		mt_timeline_free(timeline);
		mt_view_reply_fail(reply, MT_REPLY_FAILED, "out of memory for the timeline");
		return NULL;
	}
	for (size_t i = 0; i < timeline->n_counters; i++)
		counter_order(&timeline->counters[i]);
	bounds_find(timeline);
	return timeline;
}

void mt_timeline_free(struct mt_timeline *timeline)
{
	if (!timeline)
		return;
	for (size_t i = 0; i < timeline->n_tracks; i++)
		free(timeline->tracks[i].bars);
	for (size_t i = 0; i < timeline->n_counters; i++)
		free(timeline->counters[i].points);
	mt_timeline_names_free(&timeline->names);
	free(timeline);
}
