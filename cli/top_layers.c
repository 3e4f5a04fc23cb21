/* SPDX-License-Identifier: MIT */
/*
 * The layers of the model that is shown, and which rank holds an expert. They are read again when
 * the file has more of them than before.
 */
#include "cli/top.h"

#include <stdlib.h>
#include <string.h>

#include "common/bytes.h"

/* A thousand layers of a thousand experts; what is more is refused. */
#define MAX_CELLS (1u << 20)
#define MAX_SLOTS 65536

#define SQL_MODEL                                                                            \
	"SELECT model_id, name, kind, number, n FROM (SELECT model_id, name, kind, "         \
	"row_number() OVER (ORDER BY kind <> 'target', model_id) AS number, "                \
	"count(*) OVER () AS n FROM model) "                                                 \
	"WHERE CASE WHEN ?1 > 0 THEN model_id = ?1 WHEN ?1 < 0 THEN number = -?1 ELSE 1 END " \
	"ORDER BY number LIMIT 1"

#define SQL_LAYERS                                                                         \
	"SELECT layer_id, layer, n_experts, n_zero_experts + n_shared_slots, top_k FROM layer " \
	"WHERE model_id = ?1 ORDER BY layer, layer_id"

#define SQL_MAP                                                                             \
	"SELECT m.layer_id, m.n_ranks, m.slot_experts FROM expert_map AS m JOIN layer AS l " \
	"USING (layer_id) WHERE l.model_id = ?1 AND m.epoch = (SELECT max(o.epoch) FROM "    \
	"expert_map AS o WHERE o.layer_id = m.layer_id)"

/* Returns the model's key in *@ret_model_id; 0: there is none yet. */
static int model_read(struct mt_top *top, const struct mt_trace *trace, int64_t *ret_model_id)
{
	sqlite3_stmt *stmt = mt_trace_prepare(trace, SQL_MODEL);
	int status = MT_EXIT_OK, rc;

	*ret_model_id = 0;
	if (!stmt)
		return MT_EXIT_FAILED;
	sqlite3_bind_int64(stmt, 1, top->model_wanted);
	rc = sqlite3_step(stmt);
	if (rc == SQLITE_ROW) {
		*ret_model_id = sqlite3_column_int64(stmt, 0);
		mt_top_column_copy(stmt, 1, top->facts.model, sizeof(top->facts.model));
		mt_top_column_copy(stmt, 2, top->facts.model_kind, sizeof(top->facts.model_kind));
		top->facts.model_number = sqlite3_column_int64(stmt, 3);
		top->facts.n_models = sqlite3_column_int64(stmt, 4);
	} else if (rc != SQLITE_DONE) {
		status = mt_trace_error(trace);
	} else if (top->model_wanted > 0) {
		mt_error("%s: has no model %lld; 'moetrace info %s' lists the models", trace->path,
			 (long long)top->model_wanted, trace->path);
		status = MT_EXIT_NOT_FOUND;
	}
	sqlite3_finalize(stmt);
	return status;
}

static int layer_add(struct mt_top *top, const struct mt_trace *trace, sqlite3_stmt *stmt)
{
	const int64_t n_experts = sqlite3_column_int64(stmt, 2);
	const int64_t n_others = sqlite3_column_int64(stmt, 3);
	const int64_t top_k = sqlite3_column_int64(stmt, 4);
	struct mt_top_layer *layers;

	if (n_experts < 1 || n_experts > MAX_SLOTS || n_others < 0 || n_others > MAX_SLOTS ||
	    top_k < 1 || top_k > MAX_SLOTS || top->n_cells + (size_t)n_experts > MAX_CELLS) {
		mt_error("%s: layer %lld of the model cannot be: %lld experts, %lld others, top-%lld; "
			 "see moetrace check",
			 trace->path, (long long)sqlite3_column_int64(stmt, 1), (long long)n_experts,
			 (long long)n_others, (long long)top_k);
		return MT_EXIT_FAILED;
	}
	layers = realloc(top->layers, (top->n_layers + 1) * sizeof(*layers));
	if (!layers)
		return mt_error_memory();
	top->layers = layers;
	layers[top->n_layers++] = (struct mt_top_layer){
		.layer_id = sqlite3_column_int64(stmt, 0),
		.layer = sqlite3_column_int64(stmt, 1),
		.n_experts = (uint32_t)n_experts,
		.n_slots = (uint32_t)(n_experts + n_others),
		.top_k = (uint32_t)top_k,
		.first_cell = top->n_cells,
	};
	top->n_cells += (size_t)n_experts;
	return MT_EXIT_OK;
}

static int cells_make(struct mt_top *top)
{
	const size_t n = top->n_cells ? top->n_cells : 1;
	bool is_made;

	top->totals.closed = calloc(n, sizeof(*top->totals.closed));
	top->totals.all = calloc(n, sizeof(*top->totals.all));
	is_made = top->totals.closed && top->totals.all;
	for (size_t i = 0; i < MT_TOP_BUCKETS; i++) {
		top->buckets[i].tokens = calloc(n, sizeof(*top->buckets[i].tokens));
		is_made = is_made && top->buckets[i].tokens;
	}
	return is_made ? MT_EXIT_OK : mt_error_memory();
}

static int layers_read(struct mt_top *top, const struct mt_trace *trace)
{
	sqlite3_stmt *stmt = mt_trace_prepare(trace, SQL_LAYERS);
	int status = MT_EXIT_OK, rc = SQLITE_ERROR;

	if (!stmt)
		return MT_EXIT_FAILED;
	sqlite3_bind_int64(stmt, 1, top->model_id);
	while (status == MT_EXIT_OK && (rc = sqlite3_step(stmt)) == SQLITE_ROW)
		status = layer_add(top, trace, stmt);
	if (status == MT_EXIT_OK && rc != SQLITE_DONE)
		status = mt_trace_error(trace);
	sqlite3_finalize(stmt);
	top->n_layers_known = (int64_t)top->n_layers;
	return status == MT_EXIT_OK ? cells_make(top) : status;
}

/* The rank of an expert is that of its first slot. */
static void map_apply(struct mt_top *top, sqlite3_stmt *stmt)
{
	const size_t i = mt_top_layer_find(top, sqlite3_column_int64(stmt, 0));
	const int64_t n_ranks = sqlite3_column_int64(stmt, 1);
	const unsigned char *slots = sqlite3_column_blob(stmt, 2);
	const int64_t n_slots = sqlite3_column_bytes(stmt, 2) / 4;

	if (i == top->n_layers || n_ranks < 1 || n_ranks > INT16_MAX || n_slots < n_ranks || !slots)
		return;
	for (int64_t slot = 0; slot < n_slots; slot++, slots += 4) {
		const uint32_t expert = mt_u32_at(slots);
		int16_t *rank;

		if (expert >= top->layers[i].n_experts)
			continue;
		rank = &top->ranks[top->layers[i].first_cell + expert];
		if (*rank < 0)
			*rank = (int16_t)(slot / ((n_slots + n_ranks - 1) / n_ranks));
	}
}

static int map_read(struct mt_top *top, const struct mt_trace *trace)
{
	sqlite3_stmt *stmt;
	int64_t epoch;
	int status = mt_trace_int(trace, "SELECT max(epoch) FROM expert_map", &epoch), rc;

	if (status != MT_EXIT_OK || epoch == top->map_epoch)
		return status;
	if (!top->ranks)
		top->ranks = malloc((top->n_cells ? top->n_cells : 1) * sizeof(*top->ranks));
	if (!top->ranks)
		return mt_error_memory();
	for (size_t i = 0; i < top->n_cells; i++)
		top->ranks[i] = -1;
	stmt = mt_trace_prepare(trace, SQL_MAP);
	if (!stmt)
		return MT_EXIT_FAILED;
	sqlite3_bind_int64(stmt, 1, top->model_id);
	while ((rc = sqlite3_step(stmt)) == SQLITE_ROW)
		map_apply(top, stmt);
	if (rc != SQLITE_DONE)
		status = mt_trace_error(trace);
	sqlite3_finalize(stmt);
	top->map_epoch = epoch;
	return status;
}

int mt_top_definitions_read(struct mt_top *top, const struct mt_trace *trace)
{
	const struct mt_top_facts facts = top->facts;
	sqlite3_stmt *stmt;
	int64_t model_id, n = 0;
	int status = model_read(top, trace, &model_id);

	if (status != MT_EXIT_OK || !model_id)
		return status;
	stmt = mt_trace_prepare(trace, "SELECT count(*) FROM layer WHERE model_id = ?1");
	if (!stmt)
		return MT_EXIT_FAILED;
	sqlite3_bind_int64(stmt, 1, model_id);
	if (sqlite3_step(stmt) == SQLITE_ROW)
		n = sqlite3_column_int64(stmt, 0);
	sqlite3_finalize(stmt);
	if (model_id != top->model_id || n != top->n_layers_known) {
		mt_top_reset(top);
		top->facts = facts;
		status = model_read(top, trace, &top->model_id);
		if (status == MT_EXIT_OK)
			status = layers_read(top, trace);
	}
	return status == MT_EXIT_OK ? map_read(top, trace) : status;
}
