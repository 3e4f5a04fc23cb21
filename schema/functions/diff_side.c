/* SPDX-License-Identifier: MIT */
/*
 * The two sides of a comparison: which recordings and models they are, which layers they share, and
 * where each request's rows lie. What cannot be compared is refused here, with the reason.
 */
#include <sqlite3ext.h>
SQLITE_EXTENSION_INIT3

#include "common/bytes.h"
#include "array.h"
#include "diff.h"
#include "mt_sql.h"
#include "trace_reader_internal.h"

#include <string.h>

/* ---- small things ---- */

void *mt_diff_zeroed(size_t n, size_t element_bytes)
{
	void *memory = sqlite3_malloc64((sqlite3_uint64)(n + 1) * element_bytes);

	if (memory)
		memset(memory, 0, (n + 1) * element_bytes);
	return memory;
}

static int fail_sqlite(struct mt_diff *diff, int rc)
{
	if (!diff->rows->error && rc != SQLITE_NOMEM)
		diff->rows->error = sqlite3_mprintf("%s: %s", diff->name, sqlite3_errmsg(diff->db));
	return rc;
}

int mt_diff_prepare(struct mt_diff *diff, size_t side, const char *sql, sqlite3_stmt **ret_stmt)
{
	const char *schema = diff->sides[side].schema;
	char *text = mt_sql_in_schema(sql, schema ? schema : "main");
	int rc = SQLITE_NOMEM;

	*ret_stmt = NULL;
	if (text)
		rc = sqlite3_prepare_v3(diff->db, text, -1, SQLITE_PREPARE_NO_VTAB, ret_stmt, NULL);
	sqlite3_free(text);
	return rc == SQLITE_OK ? rc : fail_sqlite(diff, rc);
}

int mt_diff_finish(struct mt_diff *diff, sqlite3_stmt *stmt, int rc)
{
	if (rc != SQLITE_OK && rc != SQLITE_ROW && rc != SQLITE_DONE)
		rc = fail_sqlite(diff, rc);
	else
		rc = SQLITE_OK;
	sqlite3_finalize(stmt);
	return rc;
}

static const char *side_name(size_t side)
{
	return side == 0 ? "A" : "B";
}

/* ---- recordings ---- */

/* The recording asked for, or the only one that keeps rows. */
static int recording_find(struct mt_diff *diff, size_t side, sqlite3_value *recording)
{
	static const char sql[] = "SELECT recording_id, mode FROM main.recording WHERE ?1 IS NULL "
				  "AND mode = 'per_token' OR recording_id = ?1 LIMIT 2";
	sqlite3_stmt *stmt;
	const char *mode;
	int rc = mt_diff_prepare(diff, side, sql, &stmt);

	if (rc != SQLITE_OK)
		return rc;
	if (recording)
		sqlite3_bind_value(stmt, 1, recording);
	rc = sqlite3_step(stmt);
	if (rc == SQLITE_DONE) {
		rc = recording ? mt_tvf_fail(diff->rows, "%s: %s has no recording %s", diff->name,
					     side_name(side), sqlite3_value_text(recording))
			       : mt_tvf_fail(diff->rows,
					     "%s: %s has no recording of mode per_token: there are"
					     " no choices to compare",
					     diff->name, side_name(side));
	} else if (rc == SQLITE_ROW) {
		diff->sides[side].recording_id = sqlite3_column_int64(stmt, 0);
		mode = (const char *)sqlite3_column_text(stmt, 1);
		if (!mode || strcmp(mode, "per_token") != 0)
			rc = mt_tvf_fail(diff->rows,
					 "%s: recording %lld of %s is of mode %s, which keeps no"
					 " choices of tokens",
					 diff->name, diff->sides[side].recording_id,
					 side_name(side), mode ? mode : "NULL");
		else if (!recording && sqlite3_step(stmt) == SQLITE_ROW)
			rc = mt_tvf_fail(diff->rows,
					 "%s: %s has several recordings: say which one is meant",
					 diff->name, side_name(side));
	}
	if (rc == MT_SQL_ARGUMENT) {
		sqlite3_finalize(stmt);
		return rc;
	}
	return mt_diff_finish(diff, stmt, rc);
}

int mt_diff_open(struct mt_diff *diff, sqlite3 *db, const char *name, struct mt_tvf_rows *rows,
		 sqlite3_value *recording_a, sqlite3_value *recording_b, const char *schema_b)
{
	int rc;

	memset(diff, 0, sizeof(*diff));
	diff->db = db;
	diff->name = name;
	diff->rows = rows;
	diff->memory_bytes = MT_DIFF_MEMORY_BYTES;
	diff->sides[1].schema = schema_b;
	if (schema_b && !sqlite3_db_filename(db, schema_b))
		return mt_tvf_fail(rows, "%s: no database is attached as '%s'", name, schema_b);
	rc = recording_find(diff, 0, recording_a);
	return rc == SQLITE_OK ? recording_find(diff, 1, recording_b) : rc;
}

void mt_diff_close(struct mt_diff *diff)
{
	for (size_t i = 0; i < MT_N_SIDES; i++) {
		sqlite3_free(diff->sides[i].requests);
		sqlite3_free(diff->entries[i]);
	}
	sqlite3_free(diff->pairs);
	sqlite3_free(diff->layers);
	memset(diff, 0, sizeof(*diff));
}

/* ---- models ---- */

/* Target models with passes, in order of their names. */
static const char sql_models[] =
	"SELECT model_id, name, count(*) OVER () FROM main.model AS m WHERE kind = 'target' AND EXISTS "
	"(SELECT 1 FROM main.pass AS p WHERE p.recording_id = ?1 AND p.model_id = m.model_id) "
	"ORDER BY name, model_id";

/* The @index-th model of A that has one in B: the only ones of both, or two of the same name. */
static int models_match(struct mt_diff *diff, sqlite3_stmt *a, sqlite3_stmt *b, size_t index)
{
	int rc_a, rc_b = SQLITE_DONE;

	while ((rc_a = sqlite3_step(a)) == SQLITE_ROW) {
		sqlite3_reset(b);
		while ((rc_b = sqlite3_step(b)) == SQLITE_ROW) {
			const bool is_only = sqlite3_column_int(a, 2) == 1 &&
					     sqlite3_column_int(b, 2) == 1;

			if (is_only || sqlite3_stricmp((const char *)sqlite3_column_text(a, 1),
						       (const char *)sqlite3_column_text(b, 1)) == 0)
				break;
		}
		if (rc_b != SQLITE_ROW && rc_b != SQLITE_DONE)
			return fail_sqlite(diff, rc_b);
		if (rc_b == SQLITE_ROW && index-- == 0) {
			diff->sides[0].model_id = sqlite3_column_int64(a, 0);
			diff->sides[1].model_id = sqlite3_column_int64(b, 0);
			return SQLITE_OK;
		}
	}
	return rc_a == SQLITE_DONE ? rc_a : fail_sqlite(diff, rc_a);
}

int mt_diff_models(struct mt_diff *diff, size_t index)
{
	sqlite3_stmt *a = NULL, *b = NULL;
	int rc = mt_diff_prepare(diff, 0, sql_models, &a);

	if (rc == SQLITE_OK)
		rc = mt_diff_prepare(diff, 1, sql_models, &b);
	if (rc == SQLITE_OK) {
		sqlite3_bind_int64(a, 1, diff->sides[0].recording_id);
		sqlite3_bind_int64(b, 1, diff->sides[1].recording_id);
		rc = models_match(diff, a, b, index);
	}
	sqlite3_finalize(a);
	sqlite3_finalize(b);
	if (rc == SQLITE_DONE && index == 0 && !diff->sides[1].schema &&
	    diff->sides[0].recording_id == diff->sides[1].recording_id)
		return mt_tvf_fail(diff->rows, "%s: recording %lld has no pass of a target model",
				   diff->name, diff->sides[0].recording_id);
	if (rc == SQLITE_DONE && index == 0)
		return mt_tvf_fail(diff->rows,
				   "%s: the recordings have no model in common: none with passes has"
				   " the same name in both",
				   diff->name);
	return rc;
}

/* ---- layers ---- */

/* A's layers, then in the same way B's. */
static const char sql_layers[] =
	"SELECT layer, layer_id, n_experts, n_zero_experts, weight_kind FROM main.layer WHERE model_id = "
	"?1 ORDER BY layer";

static int layer_take(struct mt_diff *diff, sqlite3_stmt *a, sqlite3_stmt *b)
{
	struct mt_diff_layer *layer = &diff->layers[diff->n_layers];
	const char *kind_a = (const char *)sqlite3_column_text(a, 4);
	const char *kind_b = (const char *)sqlite3_column_text(b, 4);
	sqlite3_int64 n[MT_N_SIDES];

	layer->layer = sqlite3_column_int64(a, 0);
	if (sqlite3_column_int64(b, 0) != layer->layer)
		return mt_tvf_fail(diff->rows,
				   "%s: layer %lld has experts in %s alone: these are not the same"
				   " model",
				   diff->name,
				   layer->layer < sqlite3_column_int64(b, 0)
					   ? layer->layer
					   : sqlite3_column_int64(b, 0),
				   layer->layer < sqlite3_column_int64(b, 0) ? "A" : "B");
	for (int i = 0; i < MT_N_SIDES; i++) {
		sqlite3_stmt *stmt = i == 0 ? a : b;

		layer->layer_id[i] = sqlite3_column_int64(stmt, 1);
		n[i] = sqlite3_column_int64(stmt, 2) + sqlite3_column_int64(stmt, 3);
	}
	if (n[0] != n[1] || sqlite3_column_int64(a, 2) != sqlite3_column_int64(b, 2))
		return mt_tvf_fail(diff->rows,
				   "%s: layer %lld has %lld experts in A and %lld in B: their choices"
				   " cannot be compared",
				   diff->name, layer->layer, n[0], n[1]);
	if (n[0] < 1 || n[0] > 65536)
		return mt_tvf_fail(diff->rows, "%s: layer %lld: n_experts is not valid", diff->name,
				   layer->layer);
	layer->n_choices = (uint32_t)n[0];
	layer->is_same_weight = !kind_a == !kind_b && (!kind_a || strcmp(kind_a, kind_b) == 0);
	diff->n_layers++;
	return SQLITE_OK;
}

static int layers_pair(struct mt_diff *diff, sqlite3_stmt *a, sqlite3_stmt *b)
{
	size_t size = 0, n_experts = 0;
	int rc_a, rc_b, rc;

	for (;;) {
		rc_a = sqlite3_step(a);
		rc_b = sqlite3_step(b);
		if ((rc_a != SQLITE_ROW && rc_a != SQLITE_DONE) ||
		    (rc_b != SQLITE_ROW && rc_b != SQLITE_DONE))
			return fail_sqlite(diff, rc_a != SQLITE_ROW && rc_a != SQLITE_DONE ? rc_a : rc_b);
		if (rc_a != rc_b)
			return mt_tvf_fail(
				diff->rows,
				"%s: layer %lld has experts in %s alone: these are not the same model",
				diff->name, sqlite3_column_int64(rc_a == SQLITE_ROW ? a : b, 0),
				rc_a == SQLITE_ROW ? "A" : "B");
		if (rc_a == SQLITE_DONE)
			return SQLITE_OK;
		if (n_experts > MT_DIFF_MAX_EXPERTS)
			return mt_tvf_fail(diff->rows, "%s: more than %d experts in all layers",
					   diff->name, MT_DIFF_MAX_EXPERTS);
		rc = mt_array_reserve(&diff->layers, &size, diff->n_layers + 1,
				      sizeof(*diff->layers));
		if (rc == SQLITE_OK)
			rc = layer_take(diff, a, b);
		if (rc != SQLITE_OK)
			return rc;
		n_experts += diff->layers[diff->n_layers - 1].n_choices;
	}
}

static int layers_load(struct mt_diff *diff)
{
	sqlite3_stmt *a = NULL, *b = NULL;
	int rc = mt_diff_prepare(diff, 0, sql_layers, &a);

	if (rc == SQLITE_OK)
		rc = mt_diff_prepare(diff, 1, sql_layers, &b);
	sqlite3_free(diff->layers);
	diff->layers = NULL;
	diff->n_layers = 0;
	if (rc == SQLITE_OK) {
		sqlite3_bind_int64(a, 1, diff->sides[0].model_id);
		sqlite3_bind_int64(b, 1, diff->sides[1].model_id);
		rc = layers_pair(diff, a, b);
	}
	sqlite3_finalize(a);
	sqlite3_finalize(b);
	return rc;
}

/* The largest k of a run, on both sides. */
static int max_k_load(struct mt_diff *diff)
{
	diff->max_k = 1;
	for (size_t side = 0; side < MT_N_SIDES; side++) {
		sqlite3_stmt *stmt;
		sqlite3_int64 k = 0;
		int rc = mt_diff_prepare(diff, side, "SELECT max(k) FROM main.topk", &stmt);

		if (rc != SQLITE_OK)
			return rc;
		rc = sqlite3_step(stmt);
		if (rc == SQLITE_ROW)
			k = sqlite3_column_int64(stmt, 0);
		rc = mt_diff_finish(diff, stmt, rc);
		if (rc != SQLITE_OK)
			return rc;
		if (k > MT_DIFF_MAX_K)
			return mt_tvf_fail(diff->rows, "%s: rows of %s have %lld experts: at most %d are"
					   " compared", diff->name, side_name(side), k, MT_DIFF_MAX_K);
		if (k > 0 && (size_t)k > diff->max_k)
			diff->max_k = (size_t)k;
	}
	return SQLITE_OK;
}

/* ---- requests ---- */

static int requests_load(struct mt_diff *diff, size_t index)
{
	static const char sql[] = "SELECT request_id, n_attempts, coalesce(n_positions, 0) FROM "
				  "main.request WHERE recording_id = ?1 ORDER BY request_id";
	struct mt_diff_side *side = &diff->sides[index];
	sqlite3_stmt *stmt;
	size_t size = 0;
	int rc = mt_diff_prepare(diff, index, sql, &stmt);

	sqlite3_free(side->requests);
	side->requests = NULL;
	side->n_requests = 0;
	if (rc != SQLITE_OK)
		return rc;
	sqlite3_bind_int64(stmt, 1, side->recording_id);
	while ((rc = sqlite3_step(stmt)) == SQLITE_ROW) {
		const sqlite3_int64 n_attempts = sqlite3_column_int64(stmt, 1);
		sqlite3_int64 end = sqlite3_column_int64(stmt, 2);

		rc = mt_array_reserve(&side->requests, &size, side->n_requests + 1,
				      sizeof(*side->requests));
		if (rc != SQLITE_OK)
			break;
		end = end < 0 ? 0 : end > MT_DIFF_MAX_POSITIONS ? MT_DIFF_MAX_POSITIONS : end;
		side->requests[side->n_requests++] = (struct mt_diff_request){
			.request_id = sqlite3_column_int64(stmt, 0),
			.attempt = n_attempts > 0 ? n_attempts - 1 : 0,
			.first_pass = INT64_MAX,
			.last_pass = INT64_MIN,
			.end = (uint32_t)end,
		};
	}
	return mt_diff_finish(diff, stmt, rc);
}

static struct mt_diff_request *find(const struct mt_diff_side *side, sqlite3_int64 request_id)
{
	size_t low = 0, high = side->n_requests;

	while (low < high) {
		const size_t middle = low + (high - low) / 2;

		if (side->requests[middle].request_id < request_id)
			low = middle + 1;
		else
			high = middle;
	}
	return low < side->n_requests && side->requests[low].request_id == request_id
		       ? &side->requests[low]
		       : NULL;
}

const struct mt_diff_request *mt_diff_request_find(const struct mt_diff_side *side,
						   sqlite3_int64 request_id)
{
	return find(side, request_id);
}

uint32_t mt_diff_slice_end(sqlite3_stmt *stmt, int column)
{
	const uint8_t *positions = sqlite3_column_blob(stmt, column + 2);
	const size_t n_bytes = (size_t)sqlite3_column_bytes(stmt, column + 2);
	const sqlite3_int64 first = sqlite3_column_int64(stmt, column);
	const sqlite3_int64 n_rows = sqlite3_column_int64(stmt, column + 1);
	const bool is_valid = first >= 0 && first <= MT_DIFF_MAX_POSITIONS && n_rows >= 0 &&
			      n_rows <= MT_DIFF_MAX_POSITIONS;
	sqlite3_int64 end = is_valid ? first + n_rows : 0;

	for (size_t i = 0; positions && i + 4 <= n_bytes; i += 4) {
		const sqlite3_int64 position = mt_u32_at(positions + i);

		if (i == 0 || position + 1 > end)
			end = position + 1;
	}
	return (uint32_t)(end > MT_DIFF_MAX_POSITIONS ? MT_DIFF_MAX_POSITIONS : end);
}

/* Where the rows of requests lie. Requests that did not end reach as far as their rows. */
static int extents_load(struct mt_diff *diff, size_t index)
{
	static const char sql[] =
		"SELECT p.pass_id, pr.request_id, pr.attempt, pr.first_position, pr.n_rows, "
		"pr.positions, q.n_positions IS NULL FROM main.pass AS p CROSS JOIN "
		"main.pass_request AS pr ON pr.pass_id = p.pass_id CROSS JOIN main.request AS q ON "
		"q.request_id = pr.request_id WHERE p.recording_id = ?1 AND p.model_id = ?2 AND "
		"pr.phase <> 'draft'";
	struct mt_diff_side *side = &diff->sides[index];
	sqlite3_stmt *stmt;
	int rc = mt_diff_prepare(diff, index, sql, &stmt);

	if (rc != SQLITE_OK)
		return rc;
	sqlite3_bind_int64(stmt, 1, side->recording_id);
	sqlite3_bind_int64(stmt, 2, side->model_id);
	while ((rc = sqlite3_step(stmt)) == SQLITE_ROW) {
		const sqlite3_int64 pass_id = sqlite3_column_int64(stmt, 0);
		struct mt_diff_request *request = find(side, sqlite3_column_int64(stmt, 1));
		uint32_t end;

		if (!request)
			continue;
		if (pass_id < request->first_pass)
			request->first_pass = pass_id;
		if (pass_id > request->last_pass)
			request->last_pass = pass_id;
		end = mt_diff_slice_end(stmt, 3);
		if (end > request->seen)
			request->seen = end;
		if (sqlite3_column_int(stmt, 6) && end > request->end)
			request->end = end;
	}
	return mt_diff_finish(diff, stmt, rc);
}

/* What requests reused is seen, too. */
static int reuse_load(struct mt_diff *diff, size_t index)
{
	static const char sql[] =
		"SELECT u.request_id, u.first_position, u.n_positions, NULL FROM main.request AS q CROSS "
		"JOIN main.request_reuse AS u ON u.request_id = q.request_id WHERE q.recording_id = ?1";
	sqlite3_stmt *stmt;
	int rc = mt_diff_prepare(diff, index, sql, &stmt);

	if (rc != SQLITE_OK)
		return rc;
	sqlite3_bind_int64(stmt, 1, diff->sides[index].recording_id);
	while ((rc = sqlite3_step(stmt)) == SQLITE_ROW) {
		struct mt_diff_request *request =
			find(&diff->sides[index], sqlite3_column_int64(stmt, 0));
		const uint32_t end = mt_diff_slice_end(stmt, 1);

		if (request && end > request->seen)
			request->seen = end;
	}
	return mt_diff_finish(diff, stmt, rc);
}

int mt_diff_load(struct mt_diff *diff)
{
	int rc = layers_load(diff);

	if (rc == SQLITE_OK)
		rc = max_k_load(diff);
	for (size_t side = 0; rc == SQLITE_OK && side < (diff->is_single ? 1 : MT_N_SIDES);
	     side++) {
		rc = requests_load(diff, side);
		if (rc == SQLITE_OK)
			rc = extents_load(diff, side);
		if (rc == SQLITE_OK)
			rc = reuse_load(diff, side);
	}
	return rc;
}
