/* SPDX-License-Identifier: MIT */
/*
 * The layers of the reader's pass, and the runs that hold their rows. A run is read once for all
 * consecutive layers that lie in it; a few are kept, because layers of different formats fill
 * different runs in turn. The statement of a kept run stays on its row, so that SQLite owns the
 * blobs and nothing is copied twice.
 */
#include <sqlite3ext.h>
SQLITE_EXTENSION_INIT3

#include "common/bytes.h"
#include "array.h"
#include "trace_reader_internal.h"

#include <string.h>

enum run_column {
	RC_N_ROWS,
	RC_K,
	RC_ID_BYTES,
	RC_WEIGHT_FORMAT,
	RC_IDS,
	RC_WEIGHTS,
	RC_ROW_MAP,
	RC_N_VALID,
	RC_MARGINS,
	RC_ROW_FLAGS,
	RC_RULE_ID,
	RC_BASE_K,
	RC_BASE_IDS,
	RC_N_CANDIDATES,
	RC_CANDIDATE_IDS,
	RC_SCORE_FORMAT,
	RC_CANDIDATE_SCORES,
	RC_PHYSICAL_ID_BYTES,
	RC_PHYSICAL_IDS
};

static const char run_sql[] =
	"SELECT n_rows, k, id_bytes, weight_format, topk_ids, topk_weights, row_map, n_valid,"
	" margins, row_flags FROM main.topk WHERE topk_id = ?1";
static const char run_extras_sql[] =
	"SELECT n_rows, k, id_bytes, weight_format, topk_ids, topk_weights, row_map, n_valid,"
	" margins, row_flags, rule_id, base_k, base_ids, n_candidates, candidate_ids, score_format,"
	" candidate_scores, physical_id_bytes, physical_ids"
	" FROM main.topk WHERE topk_id = ?1";

static int run_blob(struct mt_reader *reader, struct mt_run *run, int column, const char *name,
		    uint64_t n_bytes, const uint8_t **ret_blob)
{
	const void *blob;

	if (sqlite3_column_type(run->stmt, column) != SQLITE_BLOB ||
	    (uint64_t)sqlite3_column_bytes(run->stmt, column) != n_bytes)
		return mt_reader_fail(
			reader,
			"topk %lld: %s is no blob of %lld bytes, as n_rows, k and the format say",
			run->topk_id, name, (long long)n_bytes);
	blob = sqlite3_column_blob(run->stmt, column);
	if (!blob && n_bytes)
		return SQLITE_NOMEM;
	*ret_blob = blob ? blob : (const uint8_t *)"";
	return SQLITE_OK;
}

static bool parse_format(const char *text, enum mt_weight_format *ret_format)
{
	if (text && strcmp(text, "none") == 0)
		*ret_format = MT_WEIGHT_NONE;
	else if (text && strcmp(text, "fp16") == 0)
		*ret_format = MT_WEIGHT_FP16;
	else if (text && strcmp(text, "bf16") == 0)
		*ret_format = MT_WEIGHT_BF16;
	else
		return false;
	return true;
}

static int read_base(struct mt_reader *reader, struct mt_run *run)
{
	if (sqlite3_column_type(run->stmt, RC_BASE_K) == SQLITE_NULL)
		return SQLITE_OK;
	if (!mt_column_count(run->stmt, RC_BASE_K, &run->base_k) || run->base_k < 1 ||
	    run->base_k > 65535)
		return mt_reader_fail(reader, "topk %lld: base_k is not a valid number",
				      run->topk_id);
	return run_blob(reader, run, RC_BASE_IDS, "base_ids",
			(uint64_t)run->n_rows * run->base_k * run->id_bytes, &run->base_ids);
}

static int read_candidates(struct mt_reader *reader, struct mt_run *run)
{
	uint64_t n;
	int rc;

	if (sqlite3_column_type(run->stmt, RC_N_CANDIDATES) == SQLITE_NULL)
		return SQLITE_OK;
	if (!mt_column_count(run->stmt, RC_N_CANDIDATES, &run->n_candidates) ||
	    run->n_candidates < 1 || run->n_candidates > 65535 ||
	    !parse_format((const char *)sqlite3_column_text(run->stmt, RC_SCORE_FORMAT),
			  &run->score_format) ||
	    run->score_format == MT_WEIGHT_NONE)
		return mt_reader_fail(reader,
				      "topk %lld: n_candidates or score_format is not valid",
				      run->topk_id);
	n = (uint64_t)run->n_rows * run->n_candidates;
	rc = run_blob(reader, run, RC_CANDIDATE_IDS, "candidate_ids", n * run->id_bytes,
		      &run->candidate_ids);
	if (rc == SQLITE_OK)
		rc = run_blob(reader, run, RC_CANDIDATE_SCORES, "candidate_scores", n * 2,
			      &run->candidate_scores);
	return rc;
}

static int read_physical(struct mt_reader *reader, struct mt_run *run)
{
	if (sqlite3_column_type(run->stmt, RC_PHYSICAL_ID_BYTES) == SQLITE_NULL)
		return SQLITE_OK;
	if (!mt_column_count(run->stmt, RC_PHYSICAL_ID_BYTES, &run->physical_id_bytes) ||
	    (run->physical_id_bytes != 1 && run->physical_id_bytes != 2))
		return mt_reader_fail(reader, "topk %lld: physical_id_bytes is neither 1 nor 2",
				      run->topk_id);
	return run_blob(reader, run, RC_PHYSICAL_IDS, "physical_ids",
			(uint64_t)run->n_rows * run->k * run->physical_id_bytes,
			&run->physical_ids);
}

static int read_extras(struct mt_reader *reader, struct mt_run *run)
{
	int rc = read_base(reader, run);

	run->has_rule = sqlite3_column_type(run->stmt, RC_RULE_ID) != SQLITE_NULL;
	if (run->has_rule && !mt_column_int(run->stmt, RC_RULE_ID, &run->rule_id))
		return mt_reader_fail(reader, "topk %lld: rule_id is no number", run->topk_id);
	if (rc == SQLITE_OK)
		rc = read_candidates(reader, run);
	return rc == SQLITE_OK ? read_physical(reader, run) : rc;
}

/* A blob that may be absent: *ret_blob is left as it is then. */
static int optional_blob(struct mt_reader *reader, struct mt_run *run, int column, const char *name,
			 size_t row_bytes, const uint8_t **ret_blob)
{
	if (sqlite3_column_type(run->stmt, column) == SQLITE_NULL)
		return SQLITE_OK;
	return run_blob(reader, run, column, name, (uint64_t)run->n_rows * row_bytes, ret_blob);
}

static int read_run(struct mt_reader *reader, struct mt_run *run)
{
	sqlite3_stmt *stmt = run->stmt;
	uint64_t n_ids;
	int rc;

	run->ids = run->weights = run->row_map = run->n_valid = NULL;
	run->margins = run->row_flags = NULL;
	run->base_ids = run->candidate_ids = run->candidate_scores = run->physical_ids = NULL;
	run->base_k = run->n_candidates = 0;
	run->has_rule = false;
	if (!mt_column_count(stmt, RC_N_ROWS, &run->n_rows) ||
	    !mt_column_count(stmt, RC_K, &run->k) ||
	    !mt_column_count(stmt, RC_ID_BYTES, &run->id_bytes) || run->k < 1 || run->k > 65535 ||
	    (run->id_bytes != 1 && run->id_bytes != 2))
		return mt_reader_fail(reader,
				      "topk %lld: n_rows, k or id_bytes is not a valid number",
				      run->topk_id);
	if (!parse_format((const char *)sqlite3_column_text(stmt, RC_WEIGHT_FORMAT),
			  &run->weight_format))
		return mt_reader_fail(reader,
				      "topk %lld: weight_format is none of none, fp16, bf16",
				      run->topk_id);
	n_ids = (uint64_t)run->n_rows * run->k;
	rc = run_blob(reader, run, RC_IDS, "topk_ids", n_ids * run->id_bytes, &run->ids);
	if (rc == SQLITE_OK && run->weight_format != MT_WEIGHT_NONE)
		rc = run_blob(reader, run, RC_WEIGHTS, "topk_weights", n_ids * 2, &run->weights);
	if (rc == SQLITE_OK)
		rc = optional_blob(reader, run, RC_ROW_MAP, "row_map", 4, &run->row_map);
	if (rc == SQLITE_OK)
		rc = optional_blob(reader, run, RC_N_VALID, "n_valid", 1, &run->n_valid);
	if (rc == SQLITE_OK)
		rc = optional_blob(reader, run, RC_MARGINS, "margins", 4, &run->margins);
	if (rc == SQLITE_OK)
		rc = optional_blob(reader, run, RC_ROW_FLAGS, "row_flags", 1, &run->row_flags);
	if (rc == SQLITE_OK && reader->extras)
		rc = read_extras(reader, run);
	return rc;
}

static int find_run(struct mt_reader *reader, sqlite3_int64 topk_id)
{
	struct mt_run *run = &reader->runs[0];
	int rc;

	for (int i = 0; i < MT_N_RUNS; i++) {
		struct mt_run *other = &reader->runs[i];

		if (other->last_use && other->topk_id == topk_id) {
			other->last_use = ++reader->clock;
			reader->run = other;
			return SQLITE_OK;
		}
		if (other->last_use < run->last_use)
			run = other;
	}
	if (!run->stmt) {
		rc = mt_reader_prepare(reader, reader->extras ? run_extras_sql : run_sql,
				       &run->stmt);
		if (rc != SQLITE_OK)
			return rc;
	}
	run->last_use = 0;
	run->topk_id = topk_id;
	sqlite3_reset(run->stmt);
	sqlite3_bind_int64(run->stmt, 1, topk_id);
	rc = sqlite3_step(run->stmt);
	if (rc == SQLITE_DONE)
		return mt_reader_fail(
			reader, "pass_layer (pass %lld, layer_id %lld): topk %lld does not exist",
			reader->pass_id, reader->layer_id, topk_id);
	if (rc != SQLITE_ROW)
		return mt_reader_fail_sqlite(reader, rc);
	rc = read_run(reader, run);
	if (rc == SQLITE_OK)
		run->last_use = ++reader->clock;
	reader->run = run;
	return rc;
}

static int check_layer(struct mt_reader *reader)
{
	const struct mt_run *run = reader->run;

	if (reader->first_row > run->n_rows ||
	    reader->n_layer_rows > run->n_rows - reader->first_row)
		return mt_reader_fail(
			reader,
			"pass_layer (pass %lld, layer_id %lld): rows %lld to %lld lie outside the"
			" %lld rows of topk %lld",
			reader->pass_id, reader->layer_id, (long long)reader->first_row,
			(long long)(reader->first_row + reader->n_layer_rows) - 1,
			(long long)run->n_rows, run->topk_id);
	if (!run->row_map && reader->n_layer_rows > reader->n_rows)
		return mt_reader_fail(reader,
				      "pass_layer (pass %lld, layer_id %lld): n_rows is more than "
				      "the %lld rows of"
				      " the pass",
				      reader->pass_id, reader->layer_id, (long long)reader->n_rows);
	return SQLITE_OK;
}

static void read_order(struct mt_reader *reader, int order, int padding, int map_epoch)
{
	size_t n;

	reader->selection_order = -1;
	reader->padding_active_experts = -1;
	if (mt_column_count(reader->layer_stmt, order, &n) && n <= 2)
		reader->selection_order = (int)n;
	if (mt_column_count(reader->layer_stmt, padding, &n) && n <= 65536)
		reader->padding_active_experts = (int)n;
	if (!mt_column_int(reader->layer_stmt, map_epoch, &reader->map_epoch))
		reader->map_epoch = 0;
}

/* The rows of a stored layer: the three columns are n_rows, topk_id and topk_row. */
static int read_place(struct mt_reader *reader, int n_rows, int topk, int topk_row)
{
	sqlite3_stmt *stmt = reader->layer_stmt;
	sqlite3_int64 topk_id;
	int rc;

	if (!mt_column_count(stmt, n_rows, &reader->n_layer_rows) ||
	    !mt_column_int(stmt, topk, &topk_id) ||
	    !mt_column_count(stmt, topk_row, &reader->first_row))
		return mt_reader_fail(
			reader,
			"pass_layer (pass %lld, layer_id %lld): n_rows, topk_id or topk_row is not"
			" a valid number, though the layer is stored",
			reader->pass_id, reader->layer_id);
	rc = find_run(reader, topk_id);
	return rc == SQLITE_OK ? check_layer(reader) : rc;
}

static int fail_facts(struct mt_reader *reader)
{
	return mt_reader_fail(reader, "layer %lld: no such row, or its numbers are not valid",
			      reader->layer_id);
}

static int read_layer(struct mt_reader *reader)
{
	sqlite3_stmt *stmt = reader->layer_stmt;

	read_order(reader, LC_ORDER, LC_PADDING, LC_MAP_EPOCH);
	reader->layer_id = sqlite3_column_int64(stmt, LC_LAYER_ID);
	if (!mt_column_int(stmt, LC_LAYER, &reader->layer) ||
	    !mt_column_int(stmt, LC_MODEL_ID, &reader->layer_model_id))
		return fail_facts(reader);
	return read_place(reader, LC_N_ROWS, LC_TOPK_ID, LC_TOPK_ROW);
}

/* ---- the scan over the layers of all passes ---- */

/* Ids take one or two bytes, so there are never more experts than that. */
static const size_t max_slots = 65536;

static int read_facts(struct mt_reader *reader, sqlite3_stmt *stmt)
{
	struct mt_layer_facts facts = {.layer_id = reader->layer_id};
	size_t n_experts, n_zero, n_shared;
	sqlite3_int64 block_rows = 0;

	if (!mt_column_int(stmt, 0, &facts.layer) || !mt_column_int(stmt, 1, &facts.model_id) ||
	    !mt_column_int(stmt, 2, &facts.moe_ordinal) || !mt_column_count(stmt, 3, &n_experts) ||
	    !mt_column_count(stmt, 4, &n_zero) || !mt_column_count(stmt, 5, &n_shared) ||
	    n_experts > max_slots || n_zero > max_slots || n_shared > max_slots ||
	    n_experts + n_zero + n_shared > max_slots)
		return fail_facts(reader);
	facts.n_experts = (uint32_t)n_experts;
	facts.n_zero_experts = (uint32_t)n_zero;
	facts.n_shared_slots = (uint32_t)n_shared;
	if (mt_column_int(stmt, 6, &block_rows) && block_rows > 0 && block_rows <= UINT32_MAX)
		facts.gemm_block_rows = (uint32_t)block_rows;
	if (mt_array_reserve(&reader->facts, &reader->facts_size, reader->n_facts + 1,
			     sizeof(*reader->facts)) != SQLITE_OK)
		return SQLITE_NOMEM;
	reader->facts[reader->n_facts++] = facts;
	return SQLITE_OK;
}

static int add_facts(struct mt_reader *reader)
{
	static const char sql[] =
		"SELECT layer, model_id, moe_ordinal, n_experts, n_zero_experts, n_shared_slots,"
		" gemm_block_rows FROM main.layer WHERE layer_id = ?1";
	sqlite3_stmt *stmt = NULL;
	int rc = mt_reader_prepare(reader, sql, &stmt);

	if (rc != SQLITE_OK)
		return rc;
	sqlite3_bind_int64(stmt, 1, reader->layer_id);
	rc = sqlite3_step(stmt);
	if (rc == SQLITE_ROW)
		rc = read_facts(reader, stmt);
	else
		rc = rc == SQLITE_DONE ? fail_facts(reader) : mt_reader_fail_sqlite(reader, rc);
	sqlite3_finalize(stmt);
	return rc;
}

/* Passes repeat their layers: the one after the last found is nearly always it. */
static int find_facts(struct mt_reader *reader)
{
	int rc;

	for (size_t i = 0; i < reader->n_facts; i++) {
		size_t at = reader->facts_hint + i;

		at -= at >= reader->n_facts ? reader->n_facts : 0;
		if (reader->facts[at].layer_id == reader->layer_id) {
			reader->facts_hint = at + 1 < reader->n_facts ? at + 1 : 0;
			reader->layer_facts = &reader->facts[at];
			return SQLITE_OK;
		}
	}
	rc = add_facts(reader);
	if (rc == SQLITE_OK)
		reader->layer_facts = &reader->facts[reader->n_facts - 1];
	return rc;
}

static int read_state(struct mt_reader *reader)
{
	size_t state;

	if (!mt_column_count(reader->layer_stmt, KC_STATE, &state) || state > MT_LAYER_COUNTED)
		return mt_reader_fail(
			reader, "pass_layer (pass %lld, layer_id %lld): state is none of 0 to 3",
			reader->pass_id, reader->layer_id);
	reader->state = (enum mt_layer_state)state;
	if (!mt_column_int(reader->layer_stmt, KC_MAP_EPOCH, &reader->map_epoch))
		reader->map_epoch = 0;
	return SQLITE_OK;
}

static int read_scanned(struct mt_reader *reader)
{
	int rc;

	if (!mt_column_int(reader->layer_stmt, KC_LAYER_ID, &reader->layer_id))
		return fail_facts(reader);
	rc = find_facts(reader);
	if (rc != SQLITE_OK)
		return rc;
	reader->layer = reader->layer_facts->layer;
	reader->layer_model_id = reader->layer_facts->model_id;
	if (reader->extras && reader->passes_only)
		read_order(reader, KB_ORDER, KB_PADDING, KC_MAP_EPOCH);
	else if (reader->extras)
		read_order(reader, KX_ORDER, KX_PADDING, KX_MAP_EPOCH);
	rc = reader->passes_only ? read_state(reader) : SQLITE_OK;
	if (rc != SQLITE_OK || reader->state != MT_LAYER_STORED)
		return rc;
	return read_place(reader, KC_N_ROWS, KC_TOPK_ID, KC_TOPK_ROW);
}

/* Passes that follow each other are one scan; to leave many out is a search. */
int mt_reader_scan_pass(struct mt_reader *reader)
{
	const sqlite3_int64 reached = reader->scanned_pass_id;
	int rc;

	if (reader->layers_ended || (reader->layer_waits && reached >= reader->pass_id))
		return SQLITE_ROW;
	if (reached != 0 && reached >= reader->pass_id - 8)
		return SQLITE_ROW;
	sqlite3_reset(reader->layer_stmt);
	reader->layer_waits = false;
	rc = sqlite3_bind_int64(reader->layer_stmt, 1, reader->pass_id);
	return rc == SQLITE_OK ? SQLITE_ROW : mt_reader_fail_sqlite(reader, rc);
}

static int next_scanned(struct mt_reader *reader)
{
	int rc;

	if (reader->layers_ended)
		return SQLITE_DONE;
	do {
		rc = reader->layer_waits ? SQLITE_ROW : sqlite3_step(reader->layer_stmt);
		reader->layers_ended = rc == SQLITE_DONE;
		if (rc != SQLITE_ROW)
			return rc == SQLITE_DONE ? rc : mt_reader_fail_sqlite(reader, rc);
		if (!reader->layer_waits &&
		    !mt_column_int(reader->layer_stmt, KC_PASS_ID, &reader->scanned_pass_id))
			return mt_reader_fail(reader, "pass_layer: pass_id is not a number");
		reader->layer_waits = reader->scanned_pass_id > reader->pass_id;
		if (reader->layer_waits)
			return SQLITE_DONE;
	} while (reader->scanned_pass_id < reader->pass_id);
	rc = read_scanned(reader);
	return rc == SQLITE_OK ? SQLITE_ROW : rc;
}

int mt_reader_next_layer(struct mt_reader *reader)
{
	int rc;

	if (reader->scans)
		return next_scanned(reader);
	rc = sqlite3_step(reader->layer_stmt);
	if (rc == SQLITE_DONE)
		return rc;
	if (rc != SQLITE_ROW)
		return mt_reader_fail_sqlite(reader, rc);
	rc = read_layer(reader);
	return rc == SQLITE_OK ? SQLITE_ROW : rc;
}

int mt_reader_map_row(struct mt_reader *reader, size_t i, size_t *ret_row)
{
	const size_t row = mt_u32_at(reader->run->row_map + (reader->first_row + i) * 4);

	if (row >= reader->n_rows)
		return mt_reader_fail(
			reader, "topk %lld: row_map names row %lld, but pass %lld has %lld rows",
			reader->run->topk_id, (long long)row, reader->pass_id,
			(long long)reader->n_rows);
	*ret_row = row;
	return SQLITE_OK;
}

int mt_reader_n_valid(struct mt_reader *reader, size_t i, size_t *ret_n_valid)
{
	const struct mt_run *run = reader->run;
	size_t n_valid = run->n_valid ? run->n_valid[reader->first_row + i] : run->k;

	if (n_valid > run->k)
		return mt_reader_fail(reader,
				      "topk %lld: n_valid of row %lld is %lld, more than k = %lld",
				      run->topk_id, (long long)(reader->first_row + i),
				      (long long)n_valid, (long long)run->k);
	*ret_n_valid = n_valid;
	return SQLITE_OK;
}
