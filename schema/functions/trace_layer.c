/* SPDX-License-Identifier: MIT */
/*
 * The layers of the reader's pass, and the runs that hold their rows. A run is read once for all
 * consecutive layers that lie in it; a few are kept, because layers of different formats fill
 * different runs in turn. The statement of a kept run stays on its row, so that SQLite owns the
 * blobs and nothing is copied twice.
 */
#include <sqlite3ext.h>
SQLITE_EXTENSION_INIT3

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
	RC_RULE_ID,
	RC_BASE_K,
	RC_BASE_IDS,
	RC_N_CANDIDATES,
	RC_CANDIDATE_IDS,
	RC_SCORE_FORMAT,
	RC_CANDIDATE_SCORES
};

static const char run_sql[] =
	"SELECT n_rows, k, id_bytes, weight_format, topk_ids, topk_weights, row_map, n_valid"
	" FROM main.topk WHERE topk_id = ?1";
static const char run_extras_sql[] =
	"SELECT n_rows, k, id_bytes, weight_format, topk_ids, topk_weights, row_map, n_valid,"
	" rule_id, base_k, base_ids, n_candidates, candidate_ids, score_format, candidate_scores"
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

static int read_extras(struct mt_reader *reader, struct mt_run *run)
{
	int rc = read_base(reader, run);

	run->has_rule = sqlite3_column_type(run->stmt, RC_RULE_ID) != SQLITE_NULL;
	if (run->has_rule && !mt_column_int(run->stmt, RC_RULE_ID, &run->rule_id))
		return mt_reader_fail(reader, "topk %lld: rule_id is no number", run->topk_id);
	return rc == SQLITE_OK ? read_candidates(reader, run) : rc;
}

static int read_run(struct mt_reader *reader, struct mt_run *run)
{
	sqlite3_stmt *stmt = run->stmt;
	uint64_t n_ids;
	int rc;

	run->ids = run->weights = run->row_map = run->n_valid = NULL;
	run->base_ids = run->candidate_ids = run->candidate_scores = NULL;
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
	if (rc == SQLITE_OK && sqlite3_column_type(stmt, RC_ROW_MAP) != SQLITE_NULL)
		rc = run_blob(reader, run, RC_ROW_MAP, "row_map", (uint64_t)run->n_rows * 4,
			      &run->row_map);
	if (rc == SQLITE_OK && sqlite3_column_type(stmt, RC_N_VALID) != SQLITE_NULL)
		rc = run_blob(reader, run, RC_N_VALID, "n_valid", run->n_rows, &run->n_valid);
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

/* What only an analysis of rules asks for. */
static void read_order(struct mt_reader *reader)
{
	size_t n;

	reader->selection_order = -1;
	reader->padding_active_experts = -1;
	if (mt_column_count(reader->layer_stmt, LC_ORDER, &n) && n <= 2)
		reader->selection_order = (int)n;
	if (mt_column_count(reader->layer_stmt, LC_PADDING, &n) && n <= 65536)
		reader->padding_active_experts = (int)n;
}

static int read_layer(struct mt_reader *reader)
{
	sqlite3_stmt *stmt = reader->layer_stmt;
	sqlite3_int64 topk_id;
	int rc;

	if (reader->extras)
		read_order(reader);
	reader->layer_id = sqlite3_column_int64(stmt, LC_LAYER_ID);
	if (!mt_column_int(stmt, LC_LAYER, &reader->layer) ||
	    !mt_column_int(stmt, LC_MODEL_ID, &reader->layer_model_id))
		return mt_reader_fail(reader,
				      "layer %lld: no such row, or its numbers are not valid",
				      reader->layer_id);
	if (!mt_column_count(stmt, LC_N_ROWS, &reader->n_layer_rows) ||
	    !mt_column_int(stmt, LC_TOPK_ID, &topk_id) ||
	    !mt_column_count(stmt, LC_TOPK_ROW, &reader->first_row))
		return mt_reader_fail(
			reader,
			"pass_layer (pass %lld, layer_id %lld): n_rows, topk_id or topk_row is not"
			" a valid number, though the layer is stored",
			reader->pass_id, reader->layer_id);
	rc = find_run(reader, topk_id);
	return rc == SQLITE_OK ? check_layer(reader) : rc;
}

int mt_reader_next_layer(struct mt_reader *reader)
{
	int rc = sqlite3_step(reader->layer_stmt);

	if (rc == SQLITE_DONE)
		return rc;
	if (rc != SQLITE_ROW)
		return mt_reader_fail_sqlite(reader, rc);
	rc = read_layer(reader);
	return rc == SQLITE_OK ? SQLITE_ROW : rc;
}

int mt_reader_map_row(struct mt_reader *reader, size_t i, size_t *ret_row)
{
	const uint8_t *entry = reader->run->row_map + (reader->first_row + i) * 4;
	size_t row = (size_t)entry[0] | (size_t)entry[1] << 8 | (size_t)entry[2] << 16 |
		     (size_t)entry[3] << 24;

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
