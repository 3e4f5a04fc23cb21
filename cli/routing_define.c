/* SPDX-License-Identifier: MIT */
/*
 * The layers and recordings of a trace, as far as their numbers are sound; and what all looks at
 * routing share. A layer whose sizes are out of range, or that is numbered beyond its model, is
 * damage, and ends the look at the file.
 */
#include "cli/routing.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/bytes.h"
#include "common/f16.h"

enum { MAX_IDS = 65536, MAX_TOP_K = 255 };

enum column {
	C_LAYER_ID,
	C_MODEL_ID,
	C_LAYER,
	C_MOE_ORDINAL,
	C_KIND,
	C_N_EXPERTS,
	C_N_ZERO,
	C_N_SHARED,
	C_TOP_K,
	C_SCORING,
	C_N_GROUPS,
	C_TOPK_GROUPS,
	C_GROUP_TOP_N,
	C_RENORMALIZE,
	C_FACTOR,
	C_OWNER,
	C_HAS_BIAS,
	C_WEIGHT_KIND,
	C_BIAS_VALUES,
	C_IS_TARGET,
	C_N_LAYERS
};

#define SQL_LAYERS                                                                                \
	"SELECT layer_id, model_id, layer, moe_ordinal, kind = 'hash', n_experts, "               \
	"n_zero_experts, n_shared_slots, top_k, CASE scoring WHEN 'softmax' THEN 1 WHEN "         \
	"'sigmoid' THEN 2 WHEN 'sqrtsoftplus' THEN 3 WHEN 'softmax_selected' THEN 4 WHEN "        \
	"'sparsemixer' THEN 5 ELSE 0 END, coalesce(n_groups, 0), coalesce(topk_groups, 0), "      \
	"coalesce(group_top_n, 0), coalesce(renormalize, -1), coalesce(routed_scaling_factor, "   \
	"0), scaling_owner = 'output', coalesce(has_correction_bias, -1), CASE weight_kind WHEN " \
	"'raw' THEN 1 WHEN 'renormalized' THEN 2 WHEN 'scaled' THEN 4 WHEN "                      \
	"'renormalized,scaled' THEN 6 ELSE 0 END, bias_values, "                                  \
	"(SELECT kind = 'target' FROM model AS m WHERE m.model_id = l.model_id), "                \
	"(SELECT n_layers FROM model AS m WHERE m.model_id = l.model_id) "                        \
	"FROM layer AS l WHERE ?1 = 0 OR model_id = ?1 ORDER BY layer_id"

#define SQL_RECORDINGS                                                                    \
	"SELECT recording_id, coalesce(routing_source, 'model') IN ('model', 'replay'), " \
	"routing_source IS 'replay' FROM recording ORDER BY recording_id"

void *routing_grow(const struct routing *routing, void *array, size_t n, size_t *max,
		   size_t element_bytes)
{
	size_t n_new = *max ? *max * 2 : 64;
	void *grown;

	if (n < *max)
		return array;
	grown = n_new > SIZE_MAX / element_bytes ? NULL : realloc(array, n_new * element_bytes);
	if (!grown) {
		mt_error("%s: out of memory", routing->trace->path);
		return NULL;
	}
	*max = n_new;
	return grown;
}

void routing_serial_next(struct routing *routing)
{
	if (++routing->serial != 0)
		return;
	memset(routing->row_of_id, 0, MAX_IDS * sizeof(*routing->row_of_id));
	routing->serial = 1;
}

/* ---- layers ---- */

/* Little-endian fp32; false: no memory. A NaN among them explains nothing: none is told then. */
static bool bias_read(sqlite3_stmt *stmt, struct routing_layer *layer)
{
	const uint8_t *p = sqlite3_column_blob(stmt, C_BIAS_VALUES);

	if (layer->has_bias != 1 || sqlite3_column_type(stmt, C_BIAS_VALUES) != SQLITE_BLOB ||
	    sqlite3_column_bytes(stmt, C_BIAS_VALUES) != (int64_t)layer->n_columns * 4)
		return true;
	layer->bias = malloc(layer->n_columns * sizeof(*layer->bias));
	if (!layer->bias)
		return false;
	for (uint32_t i = 0; i < layer->n_columns; i++, p += 4)
		layer->bias[i] = mt_f32_from_bits(mt_u32_at(p));
	for (uint32_t i = 0; i < layer->n_columns; i++) {
		if (isfinite(layer->bias[i]))
			continue;
		free(layer->bias);
		layer->bias = NULL;
		break;
	}
	return true;
}

/* Groups are of equal size; with one group, or all kept, nothing is left out. */
static bool groups_make(struct routing_layer *layer)
{
	uint32_t size;

	if (layer->n_groups < 2 || layer->n_groups > ROUTING_MAX_GROUPS || layer->topk_groups < 1 ||
	    layer->topk_groups >= layer->n_groups || layer->n_experts % layer->n_groups != 0)
		return true;
	size = layer->n_experts / layer->n_groups;
	layer->group_of = malloc(layer->n_experts);
	for (uint32_t i = 0; layer->group_of && i < layer->n_experts; i++)
		layer->group_of[i] = (uint8_t)(i / size);
	return layer->group_of != NULL;
}

/* A whole number from 0 to @max, else 0. */
static uint32_t number_at(sqlite3_stmt *stmt, int column, int64_t max)
{
	int64_t n = sqlite3_column_int64(stmt, column);

	return n >= 0 && n <= max ? (uint32_t)n : 0;
}

/* Whether the sizes are those of a layer. */
static bool sizes_read(sqlite3_stmt *stmt, struct routing_layer *layer)
{
	layer->n_experts = number_at(stmt, C_N_EXPERTS, MAX_IDS);
	layer->n_zero = number_at(stmt, C_N_ZERO, MAX_IDS);
	layer->n_shared = number_at(stmt, C_N_SHARED, MAX_IDS);
	layer->top_k = number_at(stmt, C_TOP_K, MAX_TOP_K);
	layer->n_columns = layer->n_experts + layer->n_zero;
	layer->n_ids = layer->n_columns + layer->n_shared;
	layer->k_routed = layer->top_k > layer->n_shared ? layer->top_k - layer->n_shared : 0;
	return layer->n_experts > 0 && layer->n_ids <= MAX_IDS && layer->top_k > 0 &&
	       layer->top_k <= layer->n_ids;
}

static bool semantics_read(const struct routing *routing, sqlite3_stmt *stmt,
			   struct routing_layer *layer)
{
	const double factor = sqlite3_column_double(stmt, C_FACTOR);

	layer->is_hash = sqlite3_column_int(stmt, C_KIND) != 0;
	layer->scoring = (enum routing_scoring)sqlite3_column_int(stmt, C_SCORING);
	layer->n_groups = number_at(stmt, C_N_GROUPS, MAX_IDS);
	layer->topk_groups = number_at(stmt, C_TOPK_GROUPS, MAX_IDS);
	layer->group_top_n = number_at(stmt, C_GROUP_TOP_N, MAX_IDS);
	layer->renormalize = sqlite3_column_int(stmt, C_RENORMALIZE);
	layer->factor = isfinite(factor) && factor > 0 ? factor : 0;
	layer->is_scaled_on_output = sqlite3_column_int(stmt, C_OWNER) != 0;
	layer->has_bias = sqlite3_column_int(stmt, C_HAS_BIAS);
	layer->weight_kind = sqlite3_column_int(stmt, C_WEIGHT_KIND);
	layer->is_target = sqlite3_column_int(stmt, C_IS_TARGET) != 0;
	if (routing->preset)
		routing_preset_fill(routing->preset, layer);
	if (layer->factor == 0)
		layer->factor = 1;
	layer->expected = layer->weight_kind & ROUTING_SCALED ? layer->factor : 1;
	return bias_read(stmt, layer) && groups_make(layer);
}

/* A number beyond the model's layers, or sizes that no layer has. */
static int damage_tell(const struct routing *routing, const struct routing_layer *layer,
		       const char *what)
{
	mt_error("%s: layer %lld of model %lld %s; run moetrace check first", routing->trace->path,
		 (long long)layer->layer, (long long)layer->model_id, what);
	return MT_EXIT_FAILED;
}

static int layer_take(struct routing *routing, sqlite3_stmt *stmt)
{
	struct routing_layer layer = {
		.layer_id = sqlite3_column_int64(stmt, C_LAYER_ID),
		.model_id = sqlite3_column_int64(stmt, C_MODEL_ID),
		.layer = sqlite3_column_int64(stmt, C_LAYER),
		.moe_ordinal = sqlite3_column_int64(stmt, C_MOE_ORDINAL),
	};
	struct routing_layer *layers;

	if (!sizes_read(stmt, &layer))
		return damage_tell(routing, &layer, "has sizes that no layer has");
	if (sqlite3_column_type(stmt, C_N_LAYERS) == SQLITE_INTEGER &&
	    layer.layer >= sqlite3_column_int64(stmt, C_N_LAYERS))
		return damage_tell(routing, &layer, "is numbered beyond the model's n_layers");
	layers = routing_grow(routing, routing->layers, routing->n_layers, &routing->max_layers,
			      sizeof(*layers));
	if (!layers)
		return MT_EXIT_FAILED;
	routing->layers = layers;
	if (!semantics_read(routing, stmt, &layer)) {
		free(layer.bias);
		mt_error("%s: out of memory", routing->trace->path);
		return MT_EXIT_FAILED;
	}
	layers[routing->n_layers++] = layer;
	if (layer.n_columns > routing->max_columns)
		routing->max_columns = layer.n_columns;
	return MT_EXIT_OK;
}

static int recording_take(struct routing *routing, sqlite3_stmt *stmt)
{
	struct routing_recording *recordings;

	recordings = routing_grow(routing, routing->recordings, routing->n_recordings,
				  &routing->max_recordings, sizeof(*recordings));
	if (!recordings)
		return MT_EXIT_FAILED;
	routing->recordings = recordings;
	recordings[routing->n_recordings] = (struct routing_recording){
		.recording_id = sqlite3_column_int64(stmt, 0),
		.is_routed = sqlite3_column_int(stmt, 1) != 0,
		.is_replay = sqlite3_column_int(stmt, 2) != 0,
		.counts = calloc(routing->n_layers + 1, sizeof(struct routing_count *)),
	};
	if (!recordings[routing->n_recordings].counts) {
		mt_error("%s: out of memory", routing->trace->path);
		return MT_EXIT_FAILED;
	}
	routing->n_recordings++;
	return MT_EXIT_OK;
}

static int rows_each(struct routing *routing, const char *sql,
		     int (*take)(struct routing *routing, sqlite3_stmt *stmt))
{
	sqlite3_stmt *stmt = mt_trace_prepare(routing->trace, sql);
	int status = MT_EXIT_OK;
	int rc = SQLITE_DONE;

	if (!stmt)
		return MT_EXIT_FAILED;
	if (sqlite3_bind_parameter_count(stmt) > 0)
		sqlite3_bind_int64(stmt, 1, routing->model_id);
	while (status == MT_EXIT_OK && (rc = sqlite3_step(stmt)) == SQLITE_ROW)
		status = take(routing, stmt);
	if (status == MT_EXIT_OK && rc != SQLITE_DONE)
		status = mt_trace_error(routing->trace);
	sqlite3_finalize(stmt);
	return status;
}

static bool tables_make(struct routing *routing)
{
	routing->row_of_id = calloc(MAX_IDS, sizeof(*routing->row_of_id));
	routing->widen[0] = malloc(MAX_IDS * sizeof(float));
	routing->widen[1] = malloc(MAX_IDS * sizeof(float));
	routing->scores = calloc(routing->max_columns + 1, sizeof(double));
	routing->errors = calloc(routing->max_columns + 1, sizeof(double));
	if (!routing->row_of_id || !routing->widen[0] || !routing->widen[1] || !routing->scores ||
	    !routing->errors)
		return false;
	for (uint32_t bits = 0; bits < MAX_IDS; bits++) {
		routing->widen[0][bits] = mt_f32_from_f16((uint16_t)bits);
		routing->widen[1][bits] = mt_f32_from_bf16((uint16_t)bits);
	}
	return true;
}

int routing_definitions_load(struct routing *routing)
{
	int status = rows_each(routing, SQL_LAYERS, layer_take);

	if (status == MT_EXIT_OK)
		status = rows_each(routing, SQL_RECORDINGS, recording_take);
	if (status == MT_EXIT_OK && !tables_make(routing)) {
		mt_error("%s: out of memory", routing->trace->path);
		status = MT_EXIT_FAILED;
	}
	return status;
}

/* ---- maps ---- */

static int map_read(struct routing *routing, struct routing_layer *layer, sqlite3_stmt *stmt)
{
	const int64_t n_slots = sqlite3_column_int64(stmt, 0);
	const uint8_t *p = sqlite3_column_blob(stmt, 1);
	bool moves = n_slots != layer->n_experts;

	if (n_slots < 1 || n_slots > MAX_IDS || sqlite3_column_bytes(stmt, 1) != n_slots * 4)
		return MT_EXIT_OK; /* 'moetrace check' names it */
	layer->slot_experts = malloc((size_t)n_slots * sizeof(*layer->slot_experts));
	if (!layer->slot_experts) {
		mt_error("%s: out of memory", routing->trace->path);
		return MT_EXIT_FAILED;
	}
	layer->n_slots = (uint32_t)n_slots;
	for (uint32_t i = 0; i < layer->n_slots; i++, p += 4) {
		layer->slot_experts[i] = (int32_t)mt_u32_at(p);
		if (layer->slot_experts[i] >= (int32_t)layer->n_experts)
			layer->slot_experts[i] = -1;
		moves |= layer->slot_experts[i] != (int32_t)i;
	}
	if (!moves) {
		free(layer->slot_experts);
		layer->slot_experts = NULL;
	}
	return MT_EXIT_OK;
}

int routing_map_load(struct routing *routing, struct routing_layer *layer, int64_t epoch)
{
	sqlite3_stmt *stmt;
	int status = MT_EXIT_OK;
	int rc;

	if (layer->map_epoch == epoch)
		return MT_EXIT_OK;
	free(layer->slot_experts);
	layer->slot_experts = NULL;
	layer->n_slots = 0;
	layer->map_epoch = epoch;
	if (epoch == 0)
		return MT_EXIT_OK;
	if (!routing->map_stmt)
		routing->map_stmt = mt_trace_prepare(routing->trace,
						     "SELECT n_slots, slot_experts FROM expert_map "
						     "WHERE layer_id = ?1 AND epoch = ?2");
	stmt = routing->map_stmt;
	if (!stmt)
		return MT_EXIT_FAILED;
	sqlite3_bind_int64(stmt, 1, layer->layer_id);
	sqlite3_bind_int64(stmt, 2, epoch);
	rc = sqlite3_step(stmt);
	if (rc == SQLITE_ROW)
		status = map_read(routing, layer, stmt);
	else if (rc != SQLITE_DONE)
		status = mt_trace_error(routing->trace);
	sqlite3_reset(stmt);
	return status;
}

/* ---- findings ---- */

static struct routing_finding *finding_of(struct routing *routing, enum routing_look look,
					  bool is_proved, const char *rule, int64_t recording_id,
					  int64_t model_id)
{
	struct routing_finding *findings;

	for (size_t i = 0; i < routing->n_findings; i++) {
		struct routing_finding *finding = &routing->findings[i];

		if (finding->look == look && finding->is_proved == is_proved &&
		    finding->rule == rule && finding->recording_id == recording_id &&
		    finding->model_id == model_id)
			return finding;
	}
	findings = routing_grow(routing, routing->findings, routing->n_findings,
				&routing->max_findings, sizeof(*findings));
	if (!findings)
		return NULL;
	routing->findings = findings;
	findings[routing->n_findings] = (struct routing_finding){
		.look = look,
		.is_proved = is_proved,
		.rule = rule,
		.recording_id = recording_id,
		.model_id = model_id,
	};
	return &findings[routing->n_findings++];
}

static void examples_take(struct routing_finding *finding, const struct routing_layer *layer,
			  const struct routing_fault *fault)
{
	for (size_t i = 0; i < ROUTING_N_EXAMPLES && fault->examples[i].text; i++) {
		size_t at = 0;

		while (at < ROUTING_N_EXAMPLES && finding->examples[at].text)
			at++;
		if (at == ROUTING_N_EXAMPLES)
			return;
		finding->examples[at] = fault->examples[i];
		finding->examples[at].text = strdup(fault->examples[i].text);
		finding->example_layers[at] = layer->layer;
	}
}

int routing_find(struct routing *routing, enum routing_look look, bool is_proved, const char *rule,
		 int64_t recording_id, const struct routing_layer *layer,
		 const struct routing_fault *fault, const char *evidence, ...)
{
	struct routing_finding *finding =
		finding_of(routing, look, is_proved, rule, recording_id, layer->model_id);
	int64_t *layers;
	va_list args;

	if (!finding)
		return MT_EXIT_FAILED;
	layers = realloc(finding->layers, (finding->n_layers + 1) * sizeof(*layers));
	if (layers)
		finding->layers = layers;
	if (layers && !finding->evidence) {
		va_start(args, evidence);
		if (vasprintf(&finding->evidence, evidence, args) < 0)
			finding->evidence = NULL;
		va_end(args);
	}
	if (!layers || !finding->evidence) {
		mt_error("%s: out of memory", routing->trace->path);
		return MT_EXIT_FAILED;
	}
	layers[finding->n_layers++] = layer->layer;
	finding->n_bad += fault->n_bad;
	finding->n_seen += fault->n_seen;
	examples_take(finding, layer, fault);
	return MT_EXIT_OK;
}

/* ---- the end ---- */

static void count_free(struct routing_count *count)
{
	if (!count)
		return;
	for (size_t i = 0; i < ROUTING_N_LOOKS; i++)
		for (size_t j = 0; j < ROUTING_N_EXAMPLES; j++)
			free(count->faults[i].examples[j].text);
	for (size_t i = 0; i < count->n_epochs; i++)
		free(count->epochs[i].load);
	free(count);
}

static void findings_free(struct routing *routing)
{
	for (size_t i = 0; i < routing->n_findings; i++) {
		struct routing_finding *finding = &routing->findings[i];

		free(finding->layers);
		free(finding->evidence);
		for (size_t j = 0; j < ROUTING_N_EXAMPLES; j++)
			free(finding->examples[j].text);
	}
	free(routing->findings);
}

void routing_free(struct routing *routing)
{
	if (routing->is_reader_open)
		mt_reader_close(&routing->reader);
	sqlite3_finalize(routing->map_stmt);
	sqlite3_finalize(routing->counts_stmt);
	sqlite3_finalize(routing->dispatch_stmt);
	for (size_t i = 0; i < routing->n_recordings; i++) {
		for (size_t j = 0; j < routing->n_layers; j++)
			count_free(routing->recordings[i].counts[j]);
		free(routing->recordings[i].counts);
	}
	for (size_t i = 0; i < routing->n_layers; i++) {
		free(routing->layers[i].group_of);
		free(routing->layers[i].bias);
		free(routing->layers[i].slot_experts);
	}
	findings_free(routing);
	free(routing->recordings);
	free(routing->layers);
	free(routing->widen[0]);
	free(routing->widen[1]);
	free(routing->row_of_id);
	free(routing->scores);
	free(routing->errors);
}
