/* SPDX-License-Identifier: MIT */
/*
 * Rows of schema/0002-timing.sql.
 */
#include "libtrace/store/store_internal.h"

#include "libtrace/collect.h"

_Static_assert(MT_UNKNOWN == MT_NULL, "what is not told is NULL");

int mt_store_string(struct mt_store *store, int64_t string_id, const char *value, const char *role,
		    int moves_data)
{
	sqlite3_stmt *stmt = mt_store_stmt(store, MT_STMT_STRING);

	mt_store_bind_int(stmt, 1, string_id);
	mt_store_bind_text(stmt, 2, value);
	mt_store_bind_text(stmt, 3, role);
	mt_store_bind_int(stmt, 4, role ? moves_data : MT_NULL);
	return mt_store_step(store, MT_STMT_STRING);
}

static void bind_ints(sqlite3_stmt *stmt, int first, const int64_t *values, int n)
{
	for (int i = 0; i < n; i++)
		mt_store_bind_int(stmt, first + i, values[i]);
}

int mt_store_kernel(struct mt_store *store, const struct mt_kernel_row *row)
{
	const int64_t values[] = { row->recording_id, row->device_id, row->stream,
				   row->name_id,      row->start_ns,  row->end_ns,
				   row->pass_id,      row->layer_id,  row->known_by,
				   row->flags,	      row->launch_shape_id, row->correlation };
	sqlite3_stmt *stmt = mt_store_stmt(store, MT_STMT_KERNEL);

	bind_ints(stmt, 1, values, sizeof(values) / sizeof(values[0]));
	return mt_store_step(store, MT_STMT_KERNEL);
}

int mt_store_range(struct mt_store *store, const struct mt_range_row *row)
{
	const int64_t values[] = { row->recording_id, row->name_id, row->thread, row->start_ns,
				   row->end_ns };

	bind_ints(mt_store_stmt(store, MT_STMT_RANGE), 1, values,
		  sizeof(values) / sizeof(values[0]));
	return mt_store_step(store, MT_STMT_RANGE);
}

int mt_store_collective(struct mt_store *store, const struct mt_collective_row *row)
{
	const int64_t values[] = { row->start_ns, row->end_ns,	     row->bytes,
				   row->n_ranks,  row->name_id,	     row->algorithm_id,
				   row->protocol_id, row->n_channels };
	sqlite3_stmt *stmt = mt_store_stmt(store, MT_STMT_COLLECTIVE);

	mt_store_bind_int(stmt, 1, row->recording_id);
	mt_store_bind_int(stmt, 2, row->pass_id);
	mt_store_bind_int(stmt, 3, row->layer_id);
	mt_store_bind_text(stmt, 4, row->kind);
	bind_ints(stmt, 5, values, sizeof(values) / sizeof(values[0]));
	return mt_store_step(store, MT_STMT_COLLECTIVE);
}

int mt_store_graph_launch(struct mt_store *store, const struct mt_kernel_row *row)
{
	const int64_t values[] = { row->recording_id, row->device_id, row->stream,
				   row->graph ? row->graph : MT_NULL,
				   row->start_ns,     row->end_ns,    row->pass_id,
				   row->known_by,     row->flags,
				   row->node_times ? row->n_nodes : MT_NULL,
				   row->node_times ? row->n_untimed : MT_NULL };
	sqlite3_stmt *stmt = mt_store_stmt(store, MT_STMT_GRAPH_LAUNCH);
	int n = sizeof(values) / sizeof(values[0]);

	bind_ints(stmt, 1, values, n);
	sqlite3_bind_blob64(stmt, n + 1, row->node_times, (uint64_t)row->n_nodes * 8,
			    SQLITE_STATIC);
	mt_store_bind_int(stmt, n + 2, row->correlation);
	return mt_store_step(store, MT_STMT_GRAPH_LAUNCH);
}

int mt_store_graph_node(struct mt_store *store, const struct mt_node_row *row)
{
	const int64_t values[] = { row->graph,	  row->node,		row->name_id,
				   row->layer_id, row->known_by,	row->launch_shape_id,
				   row->source_node, row->branch };

	bind_ints(mt_store_stmt(store, MT_STMT_GRAPH_NODE), 1, values,
		  sizeof(values) / sizeof(values[0]));
	return mt_store_step(store, MT_STMT_GRAPH_NODE);
}

int mt_store_overhead(struct mt_store *store, int64_t recording_id,
		      const struct mt_overhead_reading *reading)
{
	sqlite3_stmt *stmt = mt_store_stmt(store, MT_STMT_OVERHEAD);

	mt_store_bind_int(stmt, 1, recording_id);
	mt_store_bind_text(stmt, 2, reading->kind);
	mt_store_bind_int(stmt, 3, reading->start_ns);
	mt_store_bind_int(stmt, 4, reading->end_ns);
	mt_store_bind_int(stmt, 5, reading->correlation ? reading->correlation : MT_NULL);
	return mt_store_step(store, MT_STMT_OVERHEAD);
}

int mt_store_launch_shape(struct mt_store *store, const struct mt_shape_row *row)
{
	sqlite3_stmt *stmt = mt_store_stmt(store, MT_STMT_LAUNCH_SHAPE);

	mt_store_bind_int(stmt, 1, row->launch_shape_id);
	for (int i = 0; i < 9; i++)
		mt_store_bind_int(stmt, 2 + i, row->values[i] < 0 ? 0 : row->values[i]);
	return mt_store_step(store, MT_STMT_LAUNCH_SHAPE);
}

int mt_store_device_limit(struct mt_store *store, int64_t device_id, int64_t limit_mw)
{
	sqlite3_stmt *stmt = mt_store_stmt(store, MT_STMT_DEVICE_LIMIT);

	mt_store_bind_int(stmt, 1, limit_mw);
	mt_store_bind_int(stmt, 2, device_id);
	return mt_store_step(store, MT_STMT_DEVICE_LIMIT);
}

int mt_store_power(struct mt_store *store, int64_t recording_id, int64_t device_id,
		   const struct mt_power_reading *reading)
{
	const int64_t values[] = { (int64_t)reading->time_ns, reading->instant_mw,
				   reading->average_mw,	      reading->energy_mj,
				   reading->limit_mw,	      reading->throttle_reasons,
				   reading->processor_mhz,    reading->memory_mhz,
				   reading->temperature_c,    reading->cost_ns };
	sqlite3_stmt *stmt = mt_store_stmt(store, MT_STMT_POWER);

	mt_store_bind_int(stmt, 1, recording_id);
	mt_store_bind_int(stmt, 2, device_id);
	mt_store_bind_text(stmt, 3, reading->domain);
	mt_store_bind_text(stmt, 4, reading->is_buffer ? "buffer" : "poll");
	bind_ints(stmt, 5, values, sizeof(values) / sizeof(values[0]));
	return mt_store_step(store, MT_STMT_POWER);
}

int mt_store_link(struct mt_store *store, int64_t recording_id, int64_t device_id,
		  const struct mt_link_reading *reading)
{
	const int64_t values[] = { recording_id,	   device_id,
				   (int64_t)reading->time_ns, reading->pcie_generation,
				   reading->pcie_width,	   reading->nvlinks,
				   reading->active_nvlinks };

	bind_ints(mt_store_stmt(store, MT_STMT_LINK), 1, values,
		  sizeof(values) / sizeof(values[0]));
	return mt_store_step(store, MT_STMT_LINK);
}

int mt_store_device_clock(struct mt_store *store, int64_t device_id,
			  const struct mt_clock_reading *reading)
{
	static const char *const clocks[] = { "cupti", "gpu_timer" };
	const int64_t values[] = { (int64_t)reading->session_ns, (int64_t)reading->clock_ns,
				   (int64_t)reading->uncertainty_ns };
	sqlite3_stmt *stmt = mt_store_stmt(store, MT_STMT_DEVICE_CLOCK);

	mt_store_bind_int(stmt, 1, device_id);
	mt_store_bind_text(stmt, 2, clocks[reading->clock]);
	bind_ints(stmt, 3, values, sizeof(values) / sizeof(values[0]));
	return mt_store_step(store, MT_STMT_DEVICE_CLOCK);
}

int mt_store_host(struct mt_store *store, int64_t recording_id,
		  const struct mt_host_reading *reading)
{
	const int64_t values[] = { recording_id,	     (int64_t)reading->time_ns,
				   reading->process_cpu_ns, reading->recorder_cpu_ns,
				   reading->n_threads,	     reading->resident_bytes };

	bind_ints(mt_store_stmt(store, MT_STMT_HOST), 1, values,
		  sizeof(values) / sizeof(values[0]));
	return mt_store_step(store, MT_STMT_HOST);
}

static const char *text_or_null(const char *text)
{
	return *text ? text : NULL;
}

int mt_store_collector(struct mt_store *store, int64_t recording_id,
		       const struct mt_collect_status *status, uint64_t n_rows,
		       uint64_t n_invalid)
{
	static const char *const states[] = { "on",	       "absent", "denied", "busy",
					      "unsupported", "failed", "hung" };
	const int has_calls = !status->is_calls_unknown;
	const int64_t values[] = { (int64_t)n_rows,
				   status->is_dropped_unknown ? MT_NULL :
								(int64_t)status->n_dropped,
				   (int64_t)n_invalid,
				   has_calls ? (int64_t)status->n_calls : MT_NULL,
				   has_calls ? (int64_t)status->calls_ns : MT_NULL,
				   has_calls ? (int64_t)status->longest_call_ns : MT_NULL,
				   (int64_t)status->interval_ns };
	sqlite3_stmt *stmt = mt_store_stmt(store, MT_STMT_COLLECTOR);

	mt_store_bind_int(stmt, 1, recording_id);
	mt_store_bind_text(stmt, 2, status->name);
	mt_store_bind_text(stmt, 3, states[status->report.state]);
	mt_store_bind_text(stmt, 4, text_or_null(status->report.mode));
	mt_store_bind_text(stmt, 5, text_or_null(status->report.version));
	mt_store_bind_text(stmt, 6, text_or_null(status->report.reason));
	bind_ints(stmt, 7, values, sizeof(values) / sizeof(values[0]));
	return mt_store_step(store, MT_STMT_COLLECTOR);
}

int mt_store_collector_hung(struct mt_store *store, int64_t recording_id,
			    const struct mt_collect_status *status)
{
	sqlite3_stmt *stmt = mt_store_stmt(store, MT_STMT_COLLECTOR_HUNG);

	mt_store_bind_int(stmt, 1, recording_id);
	mt_store_bind_text(stmt, 2, status->name);
	mt_store_bind_text(stmt, 3, status->report.reason);
	return mt_store_step(store, MT_STMT_COLLECTOR_HUNG);
}
