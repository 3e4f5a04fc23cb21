/* SPDX-License-Identifier: MIT */
/*
 * One function a table: binds the parameters of a statement and runs it. What a number stands
 * for in the API becomes the schema's word here.
 */
#include "libtrace/store/store_internal.h"

#include <stddef.h>

int mt_store_meta(struct mt_store *store, const char *key, const char *value)
{
	sqlite3_stmt *stmt = mt_store_stmt(store, MT_STMT_META);

	mt_store_bind_text(stmt, 1, key);
	mt_store_bind_text(stmt, 2, value);
	return mt_store_step(store, MT_STMT_META);
}

int mt_store_process(struct mt_store *store, const struct mt_process_row *row)
{
	sqlite3_stmt *stmt = mt_store_stmt(store, MT_STMT_PROCESS);

	mt_store_bind_text(stmt, 1, row->host);
	mt_store_bind_int(stmt, 2, row->pid);
	mt_store_bind_text(stmt, 3, row->boot_id);
	mt_store_bind_text(stmt, 4, row->executable);
	for (int i = 0; i < 8; i++)
		mt_store_bind_int(stmt, 5 + i, row->ranks[i]);
	return mt_store_step(store, MT_STMT_PROCESS);
}

int mt_store_device(struct mt_store *store, const char *kind, const char *name, const char *uuid,
		    int64_t n_processors)
{
	sqlite3_stmt *stmt = mt_store_stmt(store, MT_STMT_DEVICE);

	mt_store_bind_text(stmt, 1, kind);
	mt_store_bind_text(stmt, 2, name);
	mt_store_bind_text(stmt, 3, uuid);
	mt_store_bind_int(stmt, 4, n_processors);
	return mt_store_step(store, MT_STMT_DEVICE);
}

static int64_t null_if_zero(int64_t value)
{
	return value ? value : MT_NULL;
}

int mt_store_model(struct mt_store *store, int64_t model_id,
		   const struct moetrace_model_info *info)
{
	static const char *const kinds[] = {
		[MOETRACE_MODEL_TARGET] = "target",
		[MOETRACE_MODEL_DRAFT] = "draft",
		[MOETRACE_MODEL_MTP] = "mtp",
	};
	sqlite3_stmt *stmt = mt_store_stmt(store, MT_STMT_MODEL);

	mt_store_bind_int(stmt, 1, model_id);
	mt_store_bind_text(stmt, 2, info->name);
	mt_store_bind_text(stmt, 3, kinds[info->kind]);
	mt_store_bind_text(stmt, 4, info->architecture);
	mt_store_bind_int(stmt, 5, null_if_zero(info->n_layers));
	mt_store_bind_text(stmt, 6, info->quantization);
	return mt_store_step(store, MT_STMT_MODEL);
}

static int64_t tristate(uint32_t value)
{
	return value == MOETRACE_UNKNOWN ? MT_NULL : value == MOETRACE_YES;
}

static void bind_double(sqlite3_stmt *stmt, int index, double value)
{
	if (value != 0)
		sqlite3_bind_double(stmt, index, value);
}

/* How the layer routes: columns 9 to 18 and the last two of table layer. */
static void bind_semantics(sqlite3_stmt *stmt, const struct moetrace_layer_info *info)
{
	static const char *const scorings[] = {
		[MOETRACE_SCORING_SOFTMAX] = "softmax",
		[MOETRACE_SCORING_SIGMOID] = "sigmoid",
		[MOETRACE_SCORING_SQRTSOFTPLUS] = "sqrtsoftplus",
		[MOETRACE_SCORING_SOFTMAX_SELECTED] = "softmax_selected",
		[MOETRACE_SCORING_SPARSEMIXER] = "sparsemixer",
	};
	static const char *const owners[] = {
		[MOETRACE_SCALING_ROUTER] = "router",
		[MOETRACE_SCALING_OUTPUT] = "output",
	};
	static const char *const outputs[] = {
		[MOETRACE_ROUTER_OUTPUT_STANDARD] = "standard",
		[MOETRACE_ROUTER_OUTPUT_PACKED] = "packed",
		[MOETRACE_ROUTER_OUTPUT_RAGGED] = "ragged",
		[MOETRACE_ROUTER_OUTPUT_NONE] = "none",
	};
	static const char *const weight_kinds[] = {
		[MOETRACE_WEIGHT_RAW] = "raw",
		[MOETRACE_WEIGHT_RENORMALIZED] = "renormalized",
		[MOETRACE_WEIGHT_SCALED] = "scaled",
		[MOETRACE_WEIGHT_RENORMALIZED | MOETRACE_WEIGHT_SCALED] = "renormalized,scaled",
	};

	mt_store_bind_int(stmt, 9, info->top_k);
	mt_store_bind_text(stmt, 10, scorings[info->scoring]);
	mt_store_bind_int(stmt, 11, null_if_zero(info->n_groups));
	mt_store_bind_int(stmt, 12, null_if_zero(info->topk_groups));
	mt_store_bind_int(stmt, 13, tristate(info->renormalize));
	bind_double(stmt, 14, info->routed_scaling_factor);
	mt_store_bind_text(stmt, 15, owners[info->scaling_owner]);
	bind_double(stmt, 16, info->soft_cap);
	mt_store_bind_int(stmt, 17, tristate(info->correction_bias));
	mt_store_bind_text(stmt, 18, weight_kinds[info->weight_kind]);
	mt_store_bind_text(stmt, 25, outputs[info->router_output]);
	mt_store_bind_int(stmt, 26, null_if_zero(info->group_top_n));
}

int mt_store_layer(struct mt_store *store, int64_t layer_id, int64_t model_id, int64_t moe_ordinal,
		   const struct moetrace_layer_info *info)
{
	sqlite3_stmt *stmt = mt_store_stmt(store, MT_STMT_LAYER);

	mt_store_bind_int(stmt, 1, layer_id);
	mt_store_bind_int(stmt, 2, model_id);
	mt_store_bind_int(stmt, 3, info->layer);
	mt_store_bind_int(stmt, 4, moe_ordinal);
	mt_store_bind_text(stmt, 5, info->kind == MOETRACE_LAYER_HASH ? "hash" : "routed");
	mt_store_bind_int(stmt, 6, info->n_experts);
	mt_store_bind_int(stmt, 7, info->n_zero_experts);
	mt_store_bind_int(stmt, 8, info->n_shared_slots);
	bind_semantics(stmt, info);
	mt_store_bind_int(stmt, 19, null_if_zero(info->gemm_block_rows));
	mt_store_bind_int(stmt, 20, null_if_zero((int64_t)info->expert_weight_bytes));
	mt_store_bind_text(stmt, 21, info->router_impl);
	mt_store_bind_text(stmt, 22, info->runner_backend);
	mt_store_bind_text(stmt, 23, info->impl_reason);
	if (info->bias_values)
		sqlite3_bind_blob64(stmt, 24, info->bias_values,
				    ((uint64_t)info->n_experts + info->n_zero_experts) *
					    sizeof(*info->bias_values),
				    SQLITE_STATIC);
	return mt_store_step(store, MT_STMT_LAYER);
}

int mt_store_rule(struct mt_store *store, int64_t rule_id, const char *name)
{
	sqlite3_stmt *stmt = mt_store_stmt(store, MT_STMT_RULE);

	mt_store_bind_int(stmt, 1, rule_id);
	mt_store_bind_text(stmt, 2, name);
	return mt_store_step(store, MT_STMT_RULE);
}

int mt_store_recording(struct mt_store *store, int64_t recording_id, int64_t start_ns,
		       enum moetrace_mode mode, const char *sampling, const char *routing_source)
{
	static const char *const modes[] = {
		[MOETRACE_MODE_PER_TOKEN] = "per_token",
		[MOETRACE_MODE_PER_PASS] = "per_pass",
		[MOETRACE_MODE_STAT] = "stat",
	};
	sqlite3_stmt *stmt = mt_store_stmt(store, MT_STMT_RECORDING);

	mt_store_bind_int(stmt, 1, recording_id);
	mt_store_bind_int(stmt, 2, start_ns);
	mt_store_bind_text(stmt, 3, modes[mode]);
	mt_store_bind_text(stmt, 4, routing_source);
	mt_store_bind_text(stmt, 5, sampling);
	return mt_store_step(store, MT_STMT_RECORDING);
}

int mt_store_recording_start(struct mt_store *store, int64_t recording_id, int64_t start_ns)
{
	sqlite3_stmt *stmt = mt_store_stmt(store, MT_STMT_RECORDING_START);

	mt_store_bind_int(stmt, 1, start_ns);
	mt_store_bind_int(stmt, 2, recording_id);
	return mt_store_step(store, MT_STMT_RECORDING_START);
}

int mt_store_recording_end(struct mt_store *store, int64_t recording_id, int64_t end_ns,
			   const char *end_reason)
{
	sqlite3_stmt *stmt = mt_store_stmt(store, MT_STMT_RECORDING_END);

	mt_store_bind_int(stmt, 1, end_ns);
	mt_store_bind_text(stmt, 2, end_reason);
	mt_store_bind_int(stmt, 3, recording_id);
	return mt_store_step(store, MT_STMT_RECORDING_END);
}

int mt_store_request(struct mt_store *store, const struct mt_request_row *row)
{
	sqlite3_stmt *stmt = mt_store_stmt(store, MT_STMT_REQUEST);

	mt_store_bind_int(stmt, 1, row->request_id);
	mt_store_bind_int(stmt, 2, row->recording_id);
	mt_store_bind_int(stmt, 3, row->handle);
	mt_store_bind_text(stmt, 4, row->external_id);
	mt_store_bind_int(stmt, 5, row->prompt_positions);
	mt_store_bind_int(stmt, 6, row->n_attempts);
	mt_store_bind_int(stmt, 7, row->n_pauses);
	mt_store_bind_int(stmt, 8, row->begin_ns);
	return mt_store_step(store, MT_STMT_REQUEST);
}

int mt_store_request_progress(struct mt_store *store, int64_t request_id, int64_t n_attempts,
			      int64_t n_pauses, int64_t paused_ns)
{
	sqlite3_stmt *stmt = mt_store_stmt(store, MT_STMT_REQUEST_PROGRESS);

	mt_store_bind_int(stmt, 1, n_attempts);
	mt_store_bind_int(stmt, 2, n_pauses);
	mt_store_bind_int(stmt, 3, paused_ns);
	mt_store_bind_int(stmt, 4, request_id);
	return mt_store_step(store, MT_STMT_REQUEST_PROGRESS);
}

int mt_store_reuse(struct mt_store *store, const struct mt_reuse_row *row)
{
	sqlite3_stmt *stmt = mt_store_stmt(store, MT_STMT_REUSE);

	mt_store_bind_int(stmt, 1, row->request_id);
	mt_store_bind_int(stmt, 2, row->attempt);
	mt_store_bind_int(stmt, 3, row->first_position);
	mt_store_bind_int(stmt, 4, row->n_positions);
	mt_store_bind_int(stmt, 5, row->source_request_id);
	mt_store_bind_int(stmt, 6, row->source_attempt);
	return mt_store_step(store, MT_STMT_REUSE);
}

int mt_store_request_end(struct mt_store *store, int64_t request_id, int64_t n_positions,
			 int64_t end_ns, const char *end_state, const char *verdict,
			 const char *reasons)
{
	sqlite3_stmt *stmt = mt_store_stmt(store, MT_STMT_REQUEST_END);

	mt_store_bind_int(stmt, 1, n_positions);
	mt_store_bind_int(stmt, 2, end_ns);
	mt_store_bind_text(stmt, 3, end_state);
	mt_store_bind_text(stmt, 4, verdict);
	mt_store_bind_text(stmt, 5, reasons);
	mt_store_bind_int(stmt, 6, request_id);
	return mt_store_step(store, MT_STMT_REQUEST_END);
}

int mt_store_attribute(struct mt_store *store, int64_t request_id, const char *key,
		       const char *value)
{
	sqlite3_stmt *stmt = mt_store_stmt(store, MT_STMT_ATTRIBUTE);

	mt_store_bind_int(stmt, 1, request_id);
	mt_store_bind_text(stmt, 2, key);
	mt_store_bind_text(stmt, 3, value);
	return mt_store_step(store, MT_STMT_ATTRIBUTE);
}

int mt_store_token(struct mt_store *store, int64_t request_id, int64_t position, int64_t token_id)
{
	sqlite3_stmt *stmt = mt_store_stmt(store, MT_STMT_TOKEN);

	mt_store_bind_int(stmt, 1, request_id);
	mt_store_bind_int(stmt, 2, position);
	mt_store_bind_int(stmt, 3, token_id);
	return mt_store_step(store, MT_STMT_TOKEN);
}

int mt_store_pass(struct mt_store *store, const struct mt_pass_row *row)
{
	sqlite3_stmt *stmt = mt_store_stmt(store, MT_STMT_PASS);

	mt_store_bind_int(stmt, 1, row->pass_id);
	mt_store_bind_int(stmt, 2, row->recording_id);
	mt_store_bind_int(stmt, 3, row->model_id);
	mt_store_bind_text(stmt, 4, row->phase);
	mt_store_bind_int(stmt, 5, row->begin_ns);
	mt_store_bind_int(stmt, 6, row->end_ns);
	mt_store_bind_int(stmt, 7, row->n_rows);
	mt_store_bind_int(stmt, 8, row->padding_rows);
	mt_store_bind_int(stmt, 9, row->runtime_pass);
	mt_store_bind_int(stmt, 10, row->parent_pass_id);
	mt_store_bind_int(stmt, 11, row->microbatch);
	mt_store_bind_text(stmt, 12, row->verdict);
	mt_store_bind_text(stmt, 13, row->reasons);
	mt_store_bind_int(stmt, 14, row->n_dropped);
	mt_store_bind_int(stmt, 15, row->device_id);
	return mt_store_step(store, MT_STMT_PASS);
}

int mt_store_pass_parent(struct mt_store *store, int64_t pass_id, int64_t parent_pass_id)
{
	sqlite3_stmt *stmt = mt_store_stmt(store, MT_STMT_PASS_PARENT);

	mt_store_bind_int(stmt, 1, parent_pass_id);
	mt_store_bind_int(stmt, 2, pass_id);
	return mt_store_step(store, MT_STMT_PASS_PARENT);
}

int mt_store_slice(struct mt_store *store, const struct mt_slice_row *row)
{
	sqlite3_stmt *stmt = mt_store_stmt(store, MT_STMT_SLICE);

	mt_store_bind_int(stmt, 1, row->pass_id);
	mt_store_bind_int(stmt, 2, row->slice);
	if (row->request_id != MT_NULL) {
		mt_store_bind_int(stmt, 3, row->request_id);
		mt_store_bind_int(stmt, 4, row->attempt);
		mt_store_bind_int(stmt, 5, row->first_position);
		if (row->positions)
			sqlite3_bind_blob64(stmt, 6, row->positions, (uint64_t)row->n_rows * 4,
					    SQLITE_STATIC);
	}
	mt_store_bind_int(stmt, 7, row->row_offset);
	mt_store_bind_int(stmt, 8, row->n_rows);
	mt_store_bind_text(stmt, 9, row->phase);
	if (row->accepted)
		sqlite3_bind_blob64(stmt, 10, row->accepted, (uint64_t)row->n_rows, SQLITE_STATIC);
	if (row->positions)
		store->stats.pending_bytes += (uint64_t)row->n_rows * 4;
	return mt_store_step(store, MT_STMT_SLICE);
}

int mt_store_slice_accepted(struct mt_store *store, int64_t pass_id, int64_t slice,
			    const uint8_t *accepted, uint32_t n_rows)
{
	sqlite3_stmt *stmt = mt_store_stmt(store, MT_STMT_SLICE_ACCEPTED);

	sqlite3_bind_blob64(stmt, 1, accepted, n_rows, SQLITE_STATIC);
	mt_store_bind_int(stmt, 2, pass_id);
	mt_store_bind_int(stmt, 3, slice);
	return mt_store_step(store, MT_STMT_SLICE_ACCEPTED);
}

int mt_store_pass_layer(struct mt_store *store, int64_t pass_id, int64_t layer_id,
			const struct mt_layer_row *row)
{
	sqlite3_stmt *stmt = mt_store_stmt(store, MT_STMT_PASS_LAYER);

	mt_store_bind_int(stmt, 1, pass_id);
	mt_store_bind_int(stmt, 2, layer_id);
	mt_store_bind_int(stmt, 7, row->state);
	mt_store_bind_int(stmt, 8, row->map_epoch);
	if (row->state == MT_LAYER_STORED || row->state == MT_LAYER_COUNTED) {
		mt_store_bind_int(stmt, 3, row->active_experts);
		mt_store_bind_int(stmt, 4, row->padding_active_experts);
		mt_store_bind_int(stmt, 5, row->max_load);
		mt_store_bind_int(stmt, 6, row->selected_ns);
		mt_store_bind_int(stmt, 10, row->n_rows);
	}
	if (row->state == MT_LAYER_STORED) {
		mt_store_bind_int(stmt, 9, row->selection_order);
		mt_store_bind_int(stmt, 11, row->topk_id);
		mt_store_bind_int(stmt, 12, row->topk_row);
		mt_store_bind_int(stmt, 13, row->tied_rows);
	}
	return mt_store_step(store, MT_STMT_PASS_LAYER);
}

int mt_store_load(struct mt_store *store, const struct mt_window *window, int64_t layer_id,
		  int64_t expert, const uint64_t tokens[MT_N_LOAD])
{
	sqlite3_stmt *stmt = mt_store_stmt(store, MT_STMT_LOAD);

	mt_store_bind_int(stmt, 1, window->recording_id);
	mt_store_bind_int(stmt, 2, window->start_ns);
	mt_store_bind_int(stmt, 3, layer_id);
	mt_store_bind_int(stmt, 4, expert);
	mt_store_bind_int(stmt, 5, window->length_ns);
	for (int i = 0; i < MT_N_LOAD; i++)
		mt_store_bind_int(stmt, 6 + i, (int64_t)tokens[i]);
	return mt_store_step(store, MT_STMT_LOAD);
}

int mt_store_load_merge(struct mt_store *store, int64_t recording_id, int64_t origin_ns,
			int64_t length_ns, uint64_t *ret_n_rows)
{
	char *sql;
	sqlite3_stmt *stmt = NULL;

	if (store->status)
		return store->status;
	sql = sqlite3_mprintf(MT_SQL_MERGE_WINDOWS, origin_ns, origin_ns, length_ns, length_ns,
			      length_ns, recording_id, recording_id);
	if (!sql || sqlite3_exec(store->db, sql, NULL, NULL, NULL) != SQLITE_OK)
		mt_store_fail(store, "merge windows of expert load");
	sqlite3_free(sql);
	if (!store->status &&
	    (sqlite3_prepare_v2(store->db, "SELECT count(*) FROM expert_load_window", -1, &stmt,
				NULL) != SQLITE_OK ||
	     sqlite3_step(stmt) != SQLITE_ROW))
		mt_store_fail(store, "count windows of expert load");
	if (!store->status)
		*ret_n_rows = (uint64_t)sqlite3_column_int64(stmt, 0);
	sqlite3_finalize(stmt);
	return store->status;
}

int mt_store_stat(struct mt_store *store, int64_t recording_id, const char *name, int64_t value)
{
	sqlite3_stmt *stmt = mt_store_stmt(store, MT_STMT_STAT);

	mt_store_bind_int(stmt, 1, recording_id);
	mt_store_bind_text(stmt, 2, name);
	mt_store_bind_int(stmt, 3, value);
	return mt_store_step(store, MT_STMT_STAT);
}

int mt_store_stat_add(struct mt_store *store, int64_t recording_id, const char *name, int64_t n)
{
	sqlite3_stmt *stmt = mt_store_stmt(store, MT_STMT_STAT_ADD);

	mt_store_bind_int(stmt, 1, recording_id);
	mt_store_bind_text(stmt, 2, name);
	mt_store_bind_int(stmt, 3, n);
	return mt_store_step(store, MT_STMT_STAT_ADD);
}

int mt_store_gap(struct mt_store *store, const struct mt_gap_row *row)
{
	sqlite3_stmt *stmt = mt_store_stmt(store, MT_STMT_GAP);

	mt_store_bind_int(stmt, 1, row->gap_id);
	mt_store_bind_int(stmt, 2, row->recording_id);
	mt_store_bind_text(stmt, 3, row->stream);
	mt_store_bind_int(stmt, 4, row->start_ns);
	mt_store_bind_int(stmt, 5, row->end_ns);
	mt_store_bind_int(stmt, 6, row->n_lost);
	mt_store_bind_int(stmt, 7, row->bytes_lost);
	mt_store_bind_text(stmt, 8, row->reason);
	return mt_store_step(store, MT_STMT_GAP);
}

int mt_store_diagnostic(struct mt_store *store, int64_t diagnostic_id, int64_t time_ns,
			const char *severity, const char *source, const char *message,
			int64_t n_times)
{
	sqlite3_stmt *stmt = mt_store_stmt(store, MT_STMT_DIAGNOSTIC);

	mt_store_bind_int(stmt, 1, diagnostic_id);
	mt_store_bind_int(stmt, 2, time_ns);
	mt_store_bind_text(stmt, 3, severity);
	mt_store_bind_text(stmt, 4, source);
	mt_store_bind_text(stmt, 5, message);
	mt_store_bind_int(stmt, 6, n_times);
	return mt_store_step(store, MT_STMT_DIAGNOSTIC);
}

int mt_store_clock(struct mt_store *store, int64_t session_ns, int64_t monotonic_ns,
		   int64_t realtime_ns, int64_t uncertainty_ns)
{
	sqlite3_stmt *stmt = mt_store_stmt(store, MT_STMT_CLOCK);

	mt_store_bind_int(stmt, 1, session_ns);
	mt_store_bind_int(stmt, 2, monotonic_ns);
	mt_store_bind_int(stmt, 3, realtime_ns);
	mt_store_bind_int(stmt, 4, uncertainty_ns);
	return mt_store_step(store, MT_STMT_CLOCK);
}
