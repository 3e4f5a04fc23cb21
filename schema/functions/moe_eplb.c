/* SPDX-License-Identifier: MIT */
/*
 * moe_eplb(n_ranks, n_replicas, n_groups, n_nodes, spreads, model, recording): a placement of each layer's routed
 * experts on ranks by what the recording counted (view expert_load, padding excluded); a row a
 * slot. See placement.h for the method. Absent arguments: as many replicas as the layer has
 * experts, one group, one node, and replicas of an expert wherever the method puts them, all models and
 * recordings.
 */
#include <sqlite3ext.h>
SQLITE_EXTENSION_INIT3

#include "mt_sql.h"
#include "placement.h"
#include "tvf.h"

#include <string.h>

enum argument { ARG_RANKS, ARG_REPLICAS, ARG_GROUPS, ARG_NODES, ARG_SPREADS, ARG_MODEL, ARG_RECORDING, N_ARGUMENTS };

static int compute(sqlite3 *db, sqlite3_value *const *arguments, struct mt_tvf_rows *rows);

static const struct mt_tvf eplb = {
	.name = "moe_eplb",
	.declaration =
		"CREATE TABLE moe_eplb (recording_id INTEGER, model_id INTEGER, layer_id INTEGER,"
		" layer INTEGER, slot INTEGER, rank INTEGER, expert INTEGER, n_replicas INTEGER,"
		" tokens INTEGER, n_ranks INTEGER HIDDEN, replicas INTEGER HIDDEN,"
		" n_groups INTEGER HIDDEN, n_nodes INTEGER HIDDEN, spreads INTEGER HIDDEN,"
		" model_is INTEGER HIDDEN, recording_is INTEGER HIDDEN)",
	.n_columns = 9,
	.n_arguments = N_ARGUMENTS,
	.n_rows = 10000,
	.compute = compute,
};

static const char sql_loads[] =
	"SELECT e.recording_id, e.model_id, e.layer_id, e.layer, l.n_experts, e.expert, e.tokens"
	" FROM expert_load AS e JOIN layer AS l ON l.layer_id = e.layer_id"
	" WHERE e.kind = 'routed' AND (?1 IS NULL OR e.model_id = ?1)"
	" AND (?2 IS NULL OR e.recording_id = ?2) ORDER BY e.recording_id, e.layer_id, e.expert";

enum load_column { L_RECORDING, L_MODEL, L_LAYER_ID, L_LAYER, L_N_EXPERTS, L_EXPERT, L_TOKENS };

/* The experts of one layer, as the statement gives them, and their placement. */
struct layer {
	sqlite3_int64 keys[4]; /* recording, model, layer's key, layer */
	struct mt_placement_shape shape;
	sqlite3_int64 *tokens;
	float *loads;
	uint32_t *experts;
	uint32_t *replicas;
};

static void layer_free(struct layer *layer)
{
	sqlite3_free(layer->tokens);
	sqlite3_free(layer->loads);
	sqlite3_free(layer->experts);
	sqlite3_free(layer->replicas);
}

static int shape_read(sqlite3_value *const *arguments, struct mt_tvf_rows *rows,
		      struct mt_placement_shape *ret_shape)
{
	struct mt_placement_shape shape = {0};
	int rc;

	if (!arguments[ARG_RANKS])
		return mt_tvf_fail(rows, "moe_eplb: n_ranks: give how many ranks there are");
	rc = mt_tvf_uint(rows, &eplb, arguments, ARG_RANKS, "n_ranks", 1, MT_PLACEMENT_MAX, 0,
			 &shape.n_ranks);
	if (rc == SQLITE_OK)
		rc = mt_tvf_uint(rows, &eplb, arguments, ARG_REPLICAS, "replicas", 1,
				 MT_PLACEMENT_MAX, 0, &shape.n_replicas);
	if (rc == SQLITE_OK)
		rc = mt_tvf_uint(rows, &eplb, arguments, ARG_GROUPS, "n_groups", 1,
				 MT_PLACEMENT_MAX, 1, &shape.n_groups);
	if (rc == SQLITE_OK)
		rc = mt_tvf_uint(rows, &eplb, arguments, ARG_NODES, "n_nodes", 1, MT_PLACEMENT_MAX,
				 1, &shape.n_nodes);
	*ret_shape = shape;
	return rc;
}

/* The statement stands on the first expert of a layer: take all of them. */
static int layer_read(sqlite3_stmt *stmt, struct layer *layer)
{
	const uint32_t n = layer->shape.n_experts;

	for (uint32_t i = 0; i < n; i++) {
		layer->tokens[i] = sqlite3_column_int64(stmt, L_TOKENS);
		layer->loads[i] = (float)layer->tokens[i];
		if (i + 1 < n && sqlite3_step(stmt) != SQLITE_ROW)
			return SQLITE_CORRUPT;
	}
	return SQLITE_OK;
}

static int layer_begin(sqlite3_stmt *stmt, const struct mt_placement_shape *shape,
		       struct layer *layer, struct mt_tvf_rows *rows)
{
	char message[MT_PLACEMENT_MESSAGE_BYTES];

	for (int i = 0; i < 4; i++)
		layer->keys[i] = sqlite3_column_int64(stmt, i);
	layer->shape = *shape;
	layer->shape.n_experts = (uint32_t)sqlite3_column_int64(stmt, L_N_EXPERTS);
	if (layer->shape.n_replicas == 0)
		layer->shape.n_replicas = layer->shape.n_experts;
	if (!mt_placement_is_possible(&layer->shape, message))
		return mt_tvf_fail(rows, "moe_eplb: layer %lld: %s", layer->keys[3], message);
	layer->tokens = sqlite3_malloc64(layer->shape.n_experts * sizeof(*layer->tokens));
	layer->loads = sqlite3_malloc64(layer->shape.n_experts * sizeof(*layer->loads));
	layer->experts = sqlite3_malloc64(layer->shape.n_replicas * sizeof(*layer->experts));
	layer->replicas = sqlite3_malloc64(layer->shape.n_experts * sizeof(*layer->replicas));
	if (!layer->tokens || !layer->loads || !layer->experts || !layer->replicas)
		return SQLITE_NOMEM;
	return layer_read(stmt, layer);
}

static int layer_list(const struct layer *layer, struct mt_tvf_rows *rows)
{
	const uint32_t rank_size = layer->shape.n_replicas / layer->shape.n_ranks;
	int rc = SQLITE_OK;

	for (uint32_t slot = 0; rc == SQLITE_OK && slot < layer->shape.n_replicas; slot++) {
		const uint32_t expert = layer->experts[slot];
		const sqlite3_int64 cells[] = {slot, slot / rank_size, expert,
					       layer->replicas[expert], layer->tokens[expert]};

		for (int i = 0; rc == SQLITE_OK && i < 4; i++)
			rc = mt_tvf_int64(rows, layer->keys[i]);
		for (int i = 0; rc == SQLITE_OK && i < 5; i++)
			rc = mt_tvf_int64(rows, cells[i]);
	}
	return rc;
}

static int layer_place(sqlite3_stmt *stmt, const struct mt_placement_shape *shape, bool spreads,
		       struct mt_tvf_rows *rows)
{
	struct layer layer = {0};
	int rc = layer_begin(stmt, shape, &layer, rows);

	if (rc == SQLITE_OK &&
	    !mt_placement_make(&layer.shape, layer.loads, spreads, layer.experts, layer.replicas))
		rc = SQLITE_NOMEM;
	if (rc == SQLITE_OK)
		rc = layer_list(&layer, rows);
	layer_free(&layer);
	return rc;
}

static int compute(sqlite3 *db, sqlite3_value *const *arguments, struct mt_tvf_rows *rows)
{
	struct mt_placement_shape shape;
	sqlite3_stmt *stmt = NULL;
	uint32_t spreads = 0;
	int rc = shape_read(arguments, rows, &shape);

	if (rc == SQLITE_OK)
		rc = mt_tvf_uint(rows, &eplb, arguments, ARG_SPREADS, "spreads", 0, 1, 0, &spreads);
	if (rc == SQLITE_OK)
		rc = sqlite3_prepare_v2(db, sql_loads, -1, &stmt, NULL);
	if (rc == SQLITE_OK && arguments[ARG_MODEL])
		rc = sqlite3_bind_value(stmt, 1, arguments[ARG_MODEL]);
	if (rc == SQLITE_OK && arguments[ARG_RECORDING])
		rc = sqlite3_bind_value(stmt, 2, arguments[ARG_RECORDING]);
	while (rc == SQLITE_OK && (rc = sqlite3_step(stmt)) == SQLITE_ROW)
		rc = layer_place(stmt, &shape, spreads == 1, rows);
	sqlite3_finalize(stmt);
	return rc == SQLITE_DONE ? SQLITE_OK : rc;
}

int mt_sql_register_eplb(sqlite3 *db)
{
	return mt_tvf_register(db, &eplb);
}
