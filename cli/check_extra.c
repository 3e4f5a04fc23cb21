/* SPDX-License-Identifier: MIT */
/*
 * What a stored layer has beside ids and weights: physical ids against the expert map of the
 * pass's epoch, further candidates, margins and flags, and the order (check_order.c). Called for each row
 * of a layer after its ids were found to be in range.
 */
#include "cli/check.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <moetrace/moetrace.h>

#include "common/bytes.h"

/* The map of the layer at @epoch into the layer's own place; false after an error line. */
static bool map_load(struct check *check, struct check_layer *layer, int64_t epoch)
{
	sqlite3_stmt *stmt;
	int64_t n_bytes;
	int rc;

	if (layer->map_epoch == epoch)
		return true;
	free(layer->slot_experts);
	layer->slot_experts = NULL;
	layer->map_epoch = epoch;
	if (!check->map_stmt)
		check->map_stmt = mt_trace_prepare(check->trace,
						   "SELECT n_slots, slot_experts FROM expert_map "
						   "WHERE layer_id = ?1 AND epoch = ?2");
	stmt = check->map_stmt;
	if (!stmt)
		return false;
	sqlite3_bind_int64(stmt, 1, layer->layer_id);
	sqlite3_bind_int64(stmt, 2, epoch);
	rc = sqlite3_step(stmt);
	n_bytes = sqlite3_column_bytes(stmt, 1);
	layer->n_slots = sqlite3_column_int64(stmt, 0);
	/* A map of another size is named by the proof of maps, and explains nothing. */
	if (rc == SQLITE_ROW && sqlite3_column_type(stmt, 1) == SQLITE_BLOB && layer->n_slots > 0 &&
	    layer->n_slots <= CHECK_MAX_IDS && n_bytes == layer->n_slots * 4) {
		layer->slot_experts = malloc((size_t)n_bytes);
		if (layer->slot_experts)
			memcpy(layer->slot_experts, sqlite3_column_blob(stmt, 1), (size_t)n_bytes);
	}
	sqlite3_reset(stmt);
	if (rc == SQLITE_ROW || rc == SQLITE_DONE)
		return true;
	mt_trace_error(check->trace);
	return false;
}

/* The logical id of a physical one; -1: there is none. */
static int64_t logical_of(const struct check_layer *layer, int64_t id)
{
	if (id >= layer->n_slots)
		return layer->n_experts + (id - layer->n_slots);
	return (int32_t)mt_u32_at(layer->slot_experts + 4 * id);
}

static const char *physical_fault(const struct check_layer *layer, const struct check_run *run,
				  int64_t stored, int64_t n_valid)
{
	int64_t i;

	if (!layer->slot_experts)
		return "physical ids without a map that explains them";
	if ((run->physical_id_bytes == 1) !=
	    (layer->n_slots + layer->n_ids - layer->n_experts <= 256))
		return "physical ids of a size that is not that of its map";
	for (i = 0; i < run->k; i++) {
		size_t at = (size_t)(stored * run->k + i);
		int64_t id = mt_narrow_at(run->physical_ids, (size_t)run->physical_id_bytes, at);

		if (i >= n_valid ? id != 0
				 : logical_of(layer, id) !=
					   mt_narrow_at(run->ids, (size_t)run->id_bytes, at))
			return "a physical id whose slot does not hold the expert";
	}
	return NULL;
}

static const char *candidates_fault(struct check *check, const struct check_layer *layer,
				    const struct check_run *run, int64_t stored)
{
	int64_t i;

	check_row_serial_next(check);
	for (i = 0; i < run->n_candidates; i++) {
		int64_t at = stored * run->n_candidates + i;
		uint32_t id = mt_narrow_at(run->candidate_ids, (size_t)run->id_bytes, (size_t)at);

		if (id >= layer->n_ids)
			return "a candidate that the layer does not have";
		if (check->row_of_id[id] == check->row_serial)
			return "a candidate twice in a row";
		check->row_of_id[id] = check->row_serial;
	}
	return NULL;
}

static const char *facts_fault(const struct check_run *run, int64_t stored)
{
	const int flags = run->row_flags ? run->row_flags[stored] : MOETRACE_ROW_TIE;
	float margin = INFINITY;

	if (flags & ~(MOETRACE_ROW_NAN | MOETRACE_ROW_TIE))
		return "a flag that is not known";
	if (run->margins) {
		const uint32_t bits = mt_u32_at(run->margins + 4 * stored);

		memcpy(&margin, &bits, sizeof(margin));
	}
	if (!(margin >= 0))
		return "a margin that is not a number from 0";
	return margin == 0 && !(flags & MOETRACE_ROW_TIE) ? "a margin of 0 without a tie" : NULL;
}

static void fault_report(struct check *check, enum check_proof proof,
			 const struct check_layer *layer, int64_t row, const char *fault)
{
	if (fault)
		check_violation(check, proof, "pass_layer %lld,%lld: row %lld has %s",
				(long long)check->pass.pass_id, (long long)layer->layer_id,
				(long long)row, fault);
}

int check_extra_begin(struct check *check, const struct check_layer *layer, sqlite3_stmt *stmt)
{
	/* The layer is the check's own. */
	struct check_layer *own = &check->layers[layer - check->layers];

	check->order = sqlite3_column_int64(stmt, 8);
	if (sqlite3_column_int64(stmt, 11) > sqlite3_column_int64(stmt, 5))
		check_violation(check, CHECK_ORDERS, "pass_layer %lld,%lld: more tied_rows than rows",
				(long long)check->pass.pass_id, (long long)layer->layer_id);
	return map_load(check, own, sqlite3_column_int64(stmt, 10)) ? MT_EXIT_OK : MT_EXIT_FAILED;
}

void check_extra_row(struct check *check, const struct check_layer *layer,
		     const struct check_run *run, int64_t stored, int64_t n_valid, int64_t row)
{
	if (run->physical_ids) {
		check->results[CHECK_PHYSICAL_IDS].n_checked += (uint64_t)n_valid;
		fault_report(check, CHECK_PHYSICAL_IDS, layer, row,
			     physical_fault(layer, run, stored, n_valid));
	}
	if (run->candidate_ids) {
		check->results[CHECK_CANDIDATES].n_checked += (uint64_t)run->n_candidates;
		fault_report(check, CHECK_CANDIDATES, layer, row,
			     candidates_fault(check, layer, run, stored));
	}
	if (run->margins || run->row_flags) {
		check->results[CHECK_ROW_FACTS].n_checked++;
		fault_report(check, CHECK_ROW_FACTS, layer, row, facts_fault(run, stored));
	}
	if (check->order == CHECK_ORDER_RESTORED ||
	    (check->order == CHECK_ORDER_SELECTION && !run->has_rule)) {
		check->results[CHECK_ORDERS].n_checked++;
		fault_report(check, CHECK_ORDERS, layer, row,
			     check_order_fault(layer, run, stored, n_valid,
					       check->order == CHECK_ORDER_RESTORED,
					       check->pass.recording->is_routed));
	}
}
