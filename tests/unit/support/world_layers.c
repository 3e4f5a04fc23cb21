/* SPDX-License-Identifier: MIT */
/*
 * The layers of a pass, and their rows, against what the runtime noted of them.
 */
#include "tests/unit/support/world_compare.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/support/db.h"
#include "tests/unit/support/half.h"

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
	for (world_here.row = 0; world_here.row < want->n_rows; world_here.row++) {
		const uint32_t pass_row = pass_row_of(want, world_here.row);

		if (!is_kept(world, pass, pass_row))
			continue;
		if (want->base_ids)
			compare_base_row(stmt, want, world_here.row, first + n);
		if (want->slots)
			compare_slots(stmt, want, world_here.row, first + n);
		MUST((row_map ? u32_at(row_map, first + n) : n) == pass_row);
		compare_row(stmt, format, want, world_here.row, first + n);
		n++;
	}
}

/* What is said of all rows, stored or not. */
static void compare_load(sqlite3_stmt *stmt, const struct want_pass *pass, bool is_counted)
{
	const struct world_layer *layer = &pass->model->layers[world_here.layer];
	uint64_t *load = calloc((size_t)layer->n_ids * WORLD_N_CLASSES, sizeof(*load));
	int64_t active_experts = 0, max_load = 0;
	uint32_t id, c;

	REQUIRE(load, "out of memory");
	world_load_add(pass, world_here.layer, load);
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
	const struct world_layer *layer = &pass->model->layers[world_here.layer];
	const bool is_counted =
		want->counts || world_kept_of(world, pass)->mode != MOETRACE_MODE_PER_TOKEN;

	world_here.row = 0;
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

void world_compare_layers(sqlite3 *db, const struct world *world, const struct want_pass *want,
			  int64_t pass_id)
{
	sqlite3_stmt *layers = db_query(db, "%s", layer_sql);

	ck_assert_int_eq(sqlite3_bind_int64(layers, 1, pass_id), SQLITE_OK);
	for (world_here.layer = 0; world_here.layer < want->model->n_layers; world_here.layer++) {
		/* Of a pass without rows only what was handed over is stored. */
		if (want->n_rows == 0 && !want->layers[world_here.layer].is_written &&
		    !want->layers[world_here.layer].dispatch)
			continue;
		MUST(db_step(layers));
		compare_layer(layers, world, want, &want->layers[world_here.layer]);
	}
	MUST(!db_step(layers));
	sqlite3_finalize(layers);
}
