/* SPDX-License-Identifier: MIT */
/*
 * The file of a random runtime against what the runtime noted: every pass, slice, position,
 * layer, id and weight, by SQL on the tables. Passes are found by the runtime's own number,
 * models by their name. What follows from the stored rows (loads, windows) is recounted by
 * agree_check().
 */
#include "tests/unit/support/world.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/support/agree.h"
#include "tests/unit/support/db.h"
#include "tests/unit/support/suite.h"

static const char *const phase_names[] = {NULL,	    "prefill", "decode", "mixed",
					  "verify", "draft",   "idle",	 "dummy"};

/* Where a comparison is, for messages; the world of the current test case. */
static struct {
	unsigned long long pass;
	uint32_t layer;
	uint32_t row;
} here;

#define MUST(condition)                                                                       \
	REQUIRE(condition, "runtime pass %#llx, layer %u, row %u: %s", here.pass, here.layer, \
		here.row, #condition)

static bool is_null(sqlite3_stmt *stmt, int column)
{
	return sqlite3_column_type(stmt, column) == SQLITE_NULL;
}

static const char *text_of(sqlite3_stmt *stmt, int column)
{
	const char *text = (const char *)sqlite3_column_text(stmt, column);

	return text ? text : "(null)";
}

static uint32_t u32_at(const void *blob, size_t index)
{
	uint32_t value;

	memcpy(&value, (const char *)blob + 4 * index, sizeof(value));
	return value;
}

/* ---- models ---- */

static void compare_model(sqlite3 *db, const struct world_model *model)
{
	static const char *const kinds[] = {"target", "draft", "mtp"};
	uint32_t i;

	ck_assert_str_eq(db_text(db, "SELECT kind FROM model WHERE name = %Q", model->name),
			 kinds[model->kind]);
	ck_assert_int_eq(db_int(db,
				"SELECT count(*) FROM layer JOIN model USING (model_id)"
				" WHERE name = %Q",
				model->name),
			 model->n_layers);
	for (i = 0; i < model->n_layers; i++) {
		const struct world_layer *layer = &model->layers[i];

		ck_assert_int_eq(db_int(db,
					"SELECT count(*) FROM layer JOIN model USING (model_id)"
					" WHERE model.name = %Q AND moe_ordinal = %u AND layer = %u"
					" AND n_experts = %u AND n_zero_experts = %u"
					" AND n_shared_slots = %u AND top_k = %u AND"
					" layer.kind = 'routed'",
					model->name, i, layer->layer, layer->n_experts,
					layer->n_zero_experts, layer->n_shared_slots, layer->top_k),
				 1);
	}
}

/* ---- slices ---- */

static bool is_consecutive(const struct want_slice *slice)
{
	uint32_t i;

	for (i = 1; i < slice->n_rows; i++)
		if (slice->positions[i] != slice->positions[0] + i)
			return false;
	return true;
}

static void compare_positions(sqlite3_stmt *stmt, const struct want_slice *slice)
{
	const void *blob = sqlite3_column_blob(stmt, 4);

	MUST(blob || is_consecutive(slice));
	MUST(sqlite3_column_int64(stmt, 3) == slice->positions[0]);
	for (here.row = 0; blob && here.row < slice->n_rows; here.row++)
		MUST(u32_at(blob, here.row) == slice->positions[here.row]);
}

/* While recordings come and go (is_free), acceptance may come too late. */
static void compare_slice(sqlite3_stmt *stmt, const struct want_slice *slice, bool is_free)
{
	MUST(sqlite3_column_int64(stmt, 5) == slice->row_offset);
	MUST(sqlite3_column_int64(stmt, 6) == slice->n_rows);
	MUST(strcmp(text_of(stmt, 7), phase_names[slice->phase]) == 0);
	if (!slice->request || !slice->accepted || is_free)
		MUST(is_null(stmt, 8) || is_free);
	else
		MUST(sqlite3_column_bytes(stmt, 8) == (int)slice->n_rows &&
		     memcmp(sqlite3_column_blob(stmt, 8), slice->accepted, slice->n_rows) == 0);
	if (!slice->request) {
		MUST(is_null(stmt, 1) && is_null(stmt, 2) && is_null(stmt, 3) && is_null(stmt, 4));
		return;
	}
	MUST((uint64_t)sqlite3_column_int64(stmt, 1) == slice->request->handle);
	MUST(!is_null(stmt, 2) && sqlite3_column_int64(stmt, 2) == slice->attempt);
	compare_positions(stmt, slice);
}

static void compare_slices(sqlite3 *db, int64_t pass_id, const struct want_pass *want,
			   bool is_free)
{
	sqlite3_stmt *stmt = db_query(db,
				      "SELECT s.slice, r.handle, s.attempt, s.first_position,"
				      " s.positions, s.row_offset, s.n_rows, s.phase, s.accepted"
				      " FROM pass_request AS s LEFT JOIN request AS r"
				      " USING (request_id) WHERE s.pass_id = %lld ORDER BY s.slice",
				      (long long)pass_id);
	uint32_t i;

	for (i = 0; i < want->n_slices; i++) {
		here.row = 0;
		MUST(db_step(stmt));
		MUST(sqlite3_column_int64(stmt, 0) == i);
		compare_slice(stmt, &want->slices[i], is_free);
	}
	MUST(!db_step(stmt));
	sqlite3_finalize(stmt);
}

/* ---- layers ---- */

enum layer_column {
	ACTIVE_EXPERTS,
	PADDING_ACTIVE_EXPERTS,
	MAX_LOAD,
	STATE,
	MAP_EPOCH,
	SELECTION_ORDER,
	N_ROWS,
	TOPK_ID,
	TOPK_ROW,
	K,
	ID_BYTES,
	WEIGHT_FORMAT,
	TOPK_IDS,
	TOPK_WEIGHTS,
	ROW_MAP,
	N_VALID,
	SELECTED_NS,
	BASE_K,
	BASE_IDS,
	RULE_NAME,
	COUNT_BYTES,
	COUNTS,
	PHYSICAL_ID_BYTES,
	PHYSICAL_IDS,
};

static const char layer_sql[] =
	"SELECT pl.active_experts, pl.padding_active_experts, pl.max_load, pl.state, pl.map_epoch,"
	" pl.selection_order, pl.n_rows, pl.topk_id, pl.topk_row, t.k, t.id_bytes,"
	" t.weight_format, t.topk_ids, t.topk_weights, t.row_map, t.n_valid, pl.selected_ns,"
	" t.base_k, t.base_ids, r.name, c.count_bytes, c.counts, t.physical_id_bytes,"
	" t.physical_ids"
	" FROM pass_layer AS pl JOIN layer AS l USING (layer_id) LEFT JOIN topk AS t USING "
	"(topk_id)"
	" LEFT JOIN rule AS r USING (rule_id) LEFT JOIN layer_load AS c ON c.pass_id ="
	" pl.pass_id AND c.layer_id = pl.layer_id WHERE pl.pass_id = ?1 ORDER BY l.moe_ordinal";

static const char *format_name(enum moetrace_weight_format format, bool has_weights)
{
	if (!has_weights)
		return "none";
	return format == MOETRACE_WEIGHT_FORMAT_BF16 ? "bf16" : "fp16";
}

static void compare_row(sqlite3_stmt *stmt, const struct half_format *format,
			const struct want_layer *want, uint32_t row, size_t stored_row)
{
	const unsigned char *ids = sqlite3_column_blob(stmt, TOPK_IDS);
	const unsigned char *weights = sqlite3_column_blob(stmt, TOPK_WEIGHTS);
	const unsigned char *n_valid = sqlite3_column_blob(stmt, N_VALID);
	const bool is_wide = sqlite3_column_int64(stmt, ID_BYTES) == 2;
	uint32_t i;

	MUST((n_valid ? n_valid[stored_row] : want->k) == want->n_valid[row]);
	for (i = 0; i < want->k; i++) {
		const size_t at = stored_row * want->k + i;
		const uint32_t id =
			is_wide ? ids[2 * at] | (uint32_t)ids[2 * at + 1] << 8 : ids[at];
		const size_t in_want = (size_t)row * want->k + i;

		MUST(id == want->ids[in_want]);
		if (want->weights)
			MUST(half_same(format,
				       (uint16_t)(weights[2 * at] | weights[2 * at + 1] << 8),
				       want->weights[in_want]));
	}
}

static void compare_base_row(sqlite3_stmt *stmt, const struct want_layer *want, uint32_t row,
			     size_t stored_row)
{
	const unsigned char *ids = sqlite3_column_blob(stmt, BASE_IDS);
	const bool is_wide = sqlite3_column_int64(stmt, ID_BYTES) == 2;
	uint32_t i;

	for (i = 0; i < want->base_k; i++) {
		const size_t at = stored_row * want->base_k + i;
		const uint32_t id =
			is_wide ? ids[2 * at] | (uint32_t)ids[2 * at + 1] << 8 : ids[at];

		MUST(id == want->base_ids[(size_t)row * want->base_k + i]);
	}
}

static uint64_t number_at(const void *numbers, int64_t n_bytes, size_t index)
{
	uint64_t value = 0;

	memcpy(&value, (const char *)numbers + (size_t)n_bytes * index, (size_t)n_bytes);
	return value;
}

static void compare_slots(sqlite3_stmt *stmt, const struct want_layer *want, uint32_t row,
			  size_t stored_row)
{
	uint32_t i;

	for (i = 0; i < want->k; i++)
		MUST(number_at(sqlite3_column_blob(stmt, PHYSICAL_IDS),
			       sqlite3_column_int64(stmt, PHYSICAL_ID_BYTES),
			       stored_row * want->k + i) == want->slots[(size_t)row * want->k + i]);
}

static void compare_rule(sqlite3_stmt *stmt, const struct want_layer *want)
{
	char name[16];

	MUST(is_null(stmt, BASE_IDS) == !want->base_ids);
	MUST(is_null(stmt, BASE_K) == !want->base_ids);
	if (want->base_ids)
		MUST(sqlite3_column_int64(stmt, BASE_K) == want->base_k);
	snprintf(name, sizeof(name), "rule-%u", want->rule);
	MUST(strcmp(text_of(stmt, RULE_NAME), want->rule < WORLD_N_RULES ? name : "(null)") == 0);
}

/* A row of the layer as the pass numbers it. */
static uint32_t pass_row_of(const struct want_layer *want, uint32_t row)
{
	return want->row_map ? want->row_map[row] : row;
}

/* Is the row kept, where only some requests are? */
static bool is_kept(const struct world *world, const struct want_pass *pass, uint32_t pass_row)
{
	return world_keeps(world_kept_of(world, pass), world_slice_of(pass, pass_row)->request);
}

static uint32_t n_kept(const struct world *world, const struct want_pass *pass,
		       const struct want_layer *want)
{
	uint32_t n = 0, row;

	for (row = 0; row < want->n_rows; row++)
		n += is_kept(world, pass, pass_row_of(want, row));
	return n;
}

static void compare_rows(sqlite3_stmt *stmt, const struct world *world,
			 const struct want_pass *pass, const struct world_layer *layer,
			 const struct want_layer *want)
{
	const struct half_format *format =
		world->weight_format == MOETRACE_WEIGHT_FORMAT_BF16 ? &half_bf16 : &half_fp16;
	const size_t first = (size_t)sqlite3_column_int64(stmt, TOPK_ROW);
	const void *row_map = sqlite3_column_blob(stmt, ROW_MAP);
	uint32_t n = 0;

	if (n_kept(world, pass, want) == 0)
		return;
	MUST(!is_null(stmt, TOPK_ID));
	MUST(sqlite3_column_int64(stmt, K) == want->k);
	MUST(sqlite3_column_int64(stmt, ID_BYTES) == (layer->n_ids <= 256 ? 1 : 2));
	MUST(strcmp(text_of(stmt, WEIGHT_FORMAT),
		    format_name(world->weight_format, want->has_weights)) == 0);
	MUST(is_null(stmt, TOPK_WEIGHTS) == !want->has_weights);
	MUST(is_null(stmt, PHYSICAL_IDS) == !want->slots);
	compare_rule(stmt, want);
	for (here.row = 0; here.row < want->n_rows; here.row++) {
		const uint32_t pass_row = pass_row_of(want, here.row);

		if (!is_kept(world, pass, pass_row))
			continue;
		if (want->base_ids)
			compare_base_row(stmt, want, here.row, first + n);
		if (want->slots)
			compare_slots(stmt, want, here.row, first + n);
		MUST((row_map ? u32_at(row_map, first + n) : n) == pass_row);
		compare_row(stmt, format, want, here.row, first + n);
		n++;
	}
}

/* What is said of all rows, stored or not. */
static void compare_load(sqlite3_stmt *stmt, const struct want_pass *pass, bool is_counted)
{
	const struct world_layer *layer = &pass->model->layers[here.layer];
	uint64_t *load = calloc((size_t)layer->n_ids * WORLD_N_CLASSES, sizeof(*load));
	int64_t active_experts = 0, max_load = 0;
	uint32_t id, c;

	REQUIRE(load, "out of memory");
	world_load_add(pass, here.layer, load);
	for (id = 0; id < layer->n_ids; id++) {
		uint64_t sum = 0;

		for (c = 0; c < WORLD_PADDING; c++)
			sum += load[c * layer->n_ids + id];
		if (is_counted)
			MUST(number_at(sqlite3_column_blob(stmt, COUNTS),
				      sqlite3_column_int64(stmt, COUNT_BYTES), id) == sum);
		active_experts += id < layer->n_experts && sum > 0;
		if (id < layer->n_experts && (int64_t)sum > max_load)
			max_load = (int64_t)sum;
	}
	MUST(sqlite3_column_int64(stmt, ACTIVE_EXPERTS) == active_experts);
	MUST(sqlite3_column_int64(stmt, MAX_LOAD) == max_load);
	free(load);
}

/* A layer of which no row is stored, since only counts were told or only these are kept. */
static void compare_counted(sqlite3_stmt *stmt, const struct want_layer *want)
{
	MUST(sqlite3_column_int64(stmt, STATE) == 3);
	MUST(is_null(stmt, TOPK_ID) && is_null(stmt, SELECTION_ORDER));
	MUST(is_null(stmt, N_ROWS) == (want->counts != NULL));
	MUST(want->counts || sqlite3_column_int64(stmt, N_ROWS) == want->n_rows);
}

/* Routed experts that padding rows touch and no other row does. */
static int64_t padding_active(const struct world_layer *layer, const struct want_layer *want)
{
	unsigned char *touched = calloc(layer->n_ids, 1);
	int64_t n = 0;
	size_t i;

	REQUIRE(touched, "out of memory");
	for (i = 0; i < (size_t)want->n_rows * want->k; i++)
		if (i % want->k < want->n_valid[i / want->k])
			touched[want->ids[i]] = 1;
	for (i = 0; i < layer->n_experts; i++)
		n += want->padding_load[i] > 0 && !touched[i];
	free(touched);
	return n;
}

static void compare_layer(sqlite3_stmt *stmt, const struct world *world,
			  const struct want_pass *pass, const struct want_layer *want)
{
	const struct world_layer *layer = &pass->model->layers[here.layer];
	const bool is_counted =
		want->counts || world_kept_of(world, pass)->mode != MOETRACE_MODE_PER_TOKEN;

	here.row = 0;
	MUST(is_null(stmt, MAP_EPOCH) == !pass->map_epoch);
	MUST(sqlite3_column_int64(stmt, MAP_EPOCH) == pass->map_epoch);
	if (!want->is_written) {
		MUST(sqlite3_column_int64(stmt, STATE) == 1);
		MUST(is_null(stmt, N_ROWS) && is_null(stmt, PADDING_ACTIVE_EXPERTS));
		return;
	}
	MUST(is_null(stmt, SELECTED_NS) == want->is_untimed);
	MUST(is_null(stmt, COUNTS) == !is_counted);
	compare_load(stmt, pass, is_counted);
	if (want->padding_shown)
		MUST(!is_null(stmt, PADDING_ACTIVE_EXPERTS) &&
		     sqlite3_column_int64(stmt, PADDING_ACTIVE_EXPERTS) ==
			     padding_active(layer, want));
	else if (pass->padding_rows > 0)
		MUST(is_null(stmt, PADDING_ACTIVE_EXPERTS));
	if (is_counted) {
		compare_counted(stmt, want);
		return;
	}
	MUST(sqlite3_column_int64(stmt, STATE) == 0);
	MUST(sqlite3_column_int64(stmt, SELECTION_ORDER) ==
	     (want->order == MOETRACE_ORDER_SELECTION ? 0 : 2));
	MUST(sqlite3_column_int64(stmt, N_ROWS) == n_kept(world, pass, want));
	compare_rows(stmt, world, pass, layer, want);
}

/* ---- passes ---- */

/* The runtime's numbers with the index that only this test needs. */
static const char numbers_sql[] =
	"CREATE TEMP TABLE number AS SELECT runtime_pass, pass_id FROM pass;"
	"CREATE INDEX temp.number_index ON number(runtime_pass)";

static bool has_reason(const char *reasons, const char *reason)
{
	const size_t length = strlen(reason);

	while (reasons && *reasons) {
		if (strncmp(reasons, reason, length) == 0 &&
		    (reasons[length] == ',' || reasons[length] == 0))
			return true;
		reasons = strchr(reasons, ',');
		if (reasons)
			reasons++;
	}
	return false;
}

static void compare_verdict(sqlite3_stmt *stmt, const struct world *world,
			    const struct want_pass *want)
{
	const struct world_kept *kept = world_kept_of(world, want);
	const char *reasons = (const char *)sqlite3_column_text(stmt, 6);
	bool is_unwritten = false, is_invalid = false, is_counted = false, is_sampled = false;
	uint32_t i;

	for (i = 0; i < want->model->n_layers; i++) {
		is_unwritten |= !want->layers[i].is_written && want->n_rows > 0;
		is_invalid |= want->layers[i].n_invalid > 0;
		is_counted |= want->layers[i].counts && kept->mode == MOETRACE_MODE_PER_TOKEN;
	}
	for (i = 0; i < want->n_slices; i++)
		is_sampled |= !world_keeps(kept, want->slices[i].request);
	MUST(strcmp(text_of(stmt, 5), is_unwritten || is_invalid || is_counted || is_sampled
					      ? "partial"
					      : "complete") == 0);
	MUST(has_reason(reasons, "counted") == is_counted);
	MUST(has_reason(reasons, "sampled") == is_sampled);
	MUST(has_reason(reasons, "unwritten") == is_unwritten);
	MUST(has_reason(reasons, "invalid") == is_invalid);
	MUST(!has_reason(reasons, "lost") && !has_reason(reasons, "unended"));
	MUST(sqlite3_column_int64(stmt, 7) == 0);
}

static void compare_parent(sqlite3 *db, int64_t pass_id, const struct want_pass *want)
{
	sqlite3_stmt *stmt = db_query(db,
				      "SELECT p.microbatch, q.runtime_pass FROM pass AS p LEFT JOIN"
				      " pass AS q ON q.pass_id = p.parent_pass_id WHERE"
				      " p.pass_id = %lld",
				      (long long)pass_id);

	MUST(db_step(stmt));
	MUST(is_null(stmt, 0) == !want->has_microbatch);
	MUST(!want->has_microbatch || sqlite3_column_int64(stmt, 0) == want->microbatch);
	MUST(is_null(stmt, 1) == !want->parent);
	MUST(!want->parent || (uint64_t)sqlite3_column_int64(stmt, 1) == want->parent->number);
	sqlite3_finalize(stmt);
}

static void compare_pass(sqlite3 *db, const struct world *world, const struct want_pass *want)
{
	sqlite3_stmt *stmt =
		db_query(db,
			 "SELECT pass_id, m.name, phase, n_rows, padding_rows,"
			 " verdict, reasons, n_dropped, recording_id, end_ns FROM number"
			 " JOIN pass USING (pass_id) JOIN model AS m USING (model_id)"
			 " WHERE number.runtime_pass = %lld",
			 (long long)want->number);
	sqlite3_stmt *layers;
	int64_t pass_id;

	here.pass = want->number;
	here.layer = here.row = 0;
	MUST(db_step(stmt));
	pass_id = sqlite3_column_int64(stmt, 0);
	MUST(strcmp(text_of(stmt, 1), want->model->name) == 0);
	MUST(strcmp(text_of(stmt, 2), phase_names[want->phase]) == 0);
	MUST(sqlite3_column_int64(stmt, 3) == want->n_rows);
	MUST(sqlite3_column_int64(stmt, 4) == want->padding_rows);
	MUST(!is_null(stmt, 9));
	if (!world->is_free_running)
		MUST(sqlite3_column_int64(stmt, 8) == world_recording(want->epoch));
	compare_verdict(stmt, world, want);
	MUST(!db_step(stmt));
	sqlite3_finalize(stmt);
	compare_slices(db, pass_id, want, world->is_free_running);
	if (!world->is_free_running)
		compare_parent(db, pass_id, want);

	layers = db_query(db, "%s", layer_sql);
	ck_assert_int_eq(sqlite3_bind_int64(layers, 1, pass_id), SQLITE_OK);
	for (here.layer = 0; here.layer < want->model->n_layers; here.layer++) {
		/* Of a pass without rows only what was handed over is stored. */
		if (want->n_rows == 0 && !want->layers[here.layer].is_written &&
		    !want->layers[here.layer].dispatch)
			continue;
		MUST(db_step(layers));
		compare_layer(layers, world, want, &want->layers[here.layer]);
	}
	MUST(!db_step(layers));
	sqlite3_finalize(layers);
}

/* ---- totals ---- */

static void compare_padding(const struct world *world, sqlite3 *db)
{
	uint64_t want = 0;
	uint32_t i, j;
	size_t id;

	for (i = 0; i < world->n_threads; i++)
		for (const struct want_pass *pass = world->threads[i].passes; pass;
		     pass = pass->next)
			for (j = 0; j < pass->model->n_layers; j++)
				for (id = 0; !pass->is_skipped && pass->layers[j].padding_load &&
					     id < pass->model->layers[j].n_ids;
				     id++)
					want += pass->layers[j].padding_load[id];
	ck_assert_int_eq(db_int(db, "SELECT coalesce(sum(padding_tokens), 0) FROM"
				    " expert_load_window"),
			 (int64_t)want);
}

static int64_t n_skipped(const struct world *world, uint32_t recording)
{
	int64_t n = 0;
	uint32_t i;

	for (i = 0; i < world->n_threads; i++)
		for (const struct want_pass *pass = world->threads[i].passes; pass;
		     pass = pass->next)
			n += pass->is_skipped && world_recording(pass->epoch) == recording;
	return n;
}

static void compare_counters(const struct world *world, sqlite3 *db)
{
	const uint32_t n_recordings = world_recording(world->epoch - !(world->epoch % 2));
	uint32_t recording;

	for (recording = 1; recording <= n_recordings; recording++) {
		ck_assert_int_eq(
			db_stat(db, recording, "misuse"),
			(int64_t)(world->misuse[recording] + world->duplicates[recording]));
		ck_assert_int_eq(db_stat(db, recording, "sampled_passes"),
				 n_skipped(world, recording));
		/* A wrong call for a layer that was handed over may count as either. */
		ck_assert_int_ge(db_stat(db, recording, "duplicate_layers"),
				 (int64_t)world->duplicates[recording]);
	}
}

void world_compare(struct world *world)
{
	sqlite3 *db = db_open(world->path);
	int64_t n_passes = 0;
	uint64_t n_invalid = 0;
	uint32_t i, j;

	agree_check(db);
	agree_prove(world->path);
	ck_assert_int_eq(sqlite3_exec(db, numbers_sql, NULL, NULL, NULL), SQLITE_OK);
	for (i = 0; i < world->n_models; i++)
		compare_model(db, &world->models[i]);
	for (i = 0; i < world->n_threads; i++)
		for (const struct want_pass *want = world->threads[i].passes; want;
		     want = want->next) {
			if (want->is_skipped)
				continue;
			if (world_kept_of(world, want)->mode != MOETRACE_MODE_STAT) {
				compare_pass(db, world, want);
				n_passes++;
			}
			for (j = 0; j < want->model->n_layers; j++)
				n_invalid += want->layers[j].n_invalid;
		}
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM pass"), n_passes);
	ck_assert_int_eq(db_int(db, "SELECT coalesce(sum(value), 0) FROM stats WHERE"
				    " name = 'invalid_ids'"),
			 (int64_t)n_invalid);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM gap"), 0);
	compare_padding(world, db);
	if (!world->is_free_running) {
		compare_counters(world, db);
		world_compare_loads(world, db);
		world_compare_requests(world, db);
	}
	db_close(db);
}
