/* SPDX-License-Identifier: MIT */
/*
 * The world's routers: a selection of a random form, the arrays that show it to the recorder,
 * and the rows that must be stored. Ids of a row are distinct. Entries that are no expert, and
 * ids that the layer does not have, are left out and the rest moves up; the ids that are wrong
 * are those that would turn into right ones if somebody cut them to 8 or 16 bits.
 */
#include "tests/unit/support/world.h"

#include <stdlib.h>
#include <string.h>

#include "tests/unit/support/suite.h"

struct id_type {
	enum moetrace_type type;
	uint32_t n_bytes;
	bool is_signed;
	int64_t max;
};

static const struct id_type id_types[] = {
	{MOETRACE_TYPE_I8, 1, true, INT8_MAX},	 {MOETRACE_TYPE_U8, 1, false, UINT8_MAX},
	{MOETRACE_TYPE_I16, 2, true, INT16_MAX}, {MOETRACE_TYPE_U16, 2, false, UINT16_MAX},
	{MOETRACE_TYPE_I32, 4, true, INT32_MAX}, {MOETRACE_TYPE_U32, 4, false, UINT32_MAX},
	{MOETRACE_TYPE_I64, 8, true, INT64_MAX}, {MOETRACE_TYPE_U64, 8, false, -1},
};

#define NO_SUCH_VALUE INT64_MIN

/* What the runtime would have in memory. */
struct shown {
	const struct id_type *id_type;
	uint32_t weight_type;
	uint32_t n_rows; /* padding included */
	uint32_t k;
	size_t ids_row_bytes;
	size_t weights_row_bytes;
	unsigned char *ids;
	unsigned char *weights;
	unsigned char *base_ids; /* NULL: not shown */
	size_t base_ids_row_bytes;
	uint32_t hole_percent;
	uint32_t invalid_percent;
	const struct world_model *model; /* ids are of its slots; NULL: they are logical */
	uint32_t layer;
	uint32_t n_ids; /* that are shown */
};

/* Types that have all ids of the layer. */
static const struct id_type *pick_id_type(struct rng *rng, uint32_t n_ids)
{
	const struct id_type *type;

	do {
		type = &id_types[rng_below(rng, sizeof(id_types) / sizeof(id_types[0]))];
	} while (type->n_bytes < 4 && (int64_t)n_ids > type->max + 1);
	return type;
}

static void put_id(const struct shown *shown, uint32_t row, uint32_t rank, int64_t id)
{
	/* Little-endian: the low bytes come first in every width. */
	memcpy(shown->ids + row * shown->ids_row_bytes + (size_t)rank * shown->id_type->n_bytes,
	       &id, shown->id_type->n_bytes);
}

static void put_base_id(const struct shown *shown, uint32_t row, uint32_t rank, int64_t id)
{
	memcpy(shown->base_ids + row * shown->base_ids_row_bytes +
		       (size_t)rank * shown->id_type->n_bytes,
	       &id, shown->id_type->n_bytes);
}

static int64_t no_expert(struct rng *rng, const struct id_type *type, uint32_t n_ids)
{
	/* Where the layer has the largest id of the type, the type has no value for none. */
	if (!type->is_signed)
		return type->max >= 0 && type->max < (int64_t)n_ids ? NO_SUCH_VALUE : type->max;
	return rng_chance(rng, 80) ? -1 : -1 - (int64_t)rng_below(rng, 100);
}

/* An id that the layer does not have. */
static int64_t wrong_id(struct rng *rng, const struct id_type *type, uint32_t n_ids)
{
	const int64_t low = rng_below(rng, n_ids);
	const int64_t largest =
		type->n_bytes == 8 ? INT64_MAX : type->max - (type->is_signed ? 0 : 1);
	const int64_t candidates[] = {n_ids,
				      n_ids + low,
				      256 + low,
				      65536 + low,
				      (INT64_C(1) << 32) + low,
				      (INT64_C(1) << 40) + low,
				      largest};
	const int64_t id = candidates[rng_below(rng, sizeof(candidates) / sizeof(candidates[0]))];

	return id >= n_ids && id <= largest ? id : NO_SUCH_VALUE;
}

static float any_float(struct rng *rng)
{
	static const float special[] = {0.0f,	       -0.0f,	      1.0f,	      -1.0f,
					65504.0f,      65519.9f,      65520.0f,	      -65520.0f,
					5.9604645e-8f, 2.9802322e-8f, 2.98023259e-8f, 6.1035156e-5f,
					6.097555e-5f,  0.33325195f,   1e-30f,	      1e-42f,
					3e38f,	       0.99951172f,   0.99975586f,    1.00048828f};
	uint32_t bits;
	float value;

	if (rng_chance(rng, 90))
		return (float)(rng_next(rng) >> 40) * 0x1p-24f;
	if (rng_chance(rng, 50))
		return special[rng_below(rng, sizeof(special) / sizeof(special[0]))];
	bits = (uint32_t)rng_next(rng); /* any bit pattern: huge, tiny, infinite, not a number */
	memcpy(&value, &bits, sizeof(value));
	return value;
}

/* Puts a weight of the shown type and returns the value that it has there. */
static double put_weight(struct rng *rng, const struct shown *shown, uint32_t row, uint32_t rank)
{
	const size_t n_bytes = shown->weight_type == MOETRACE_TYPE_F32 ? 4 : 2;
	unsigned char *place = shown->weights + row * shown->weights_row_bytes + rank * n_bytes;
	const float value = any_float(rng);
	uint16_t bits = (uint16_t)rng_next(rng);

	switch (shown->weight_type) {
	case MOETRACE_TYPE_F32:
		memcpy(place, &value, sizeof(value));
		return (double)value;
	case MOETRACE_TYPE_F16:
		if (rng_chance(rng, 90))
			bits = half_from_double(&half_fp16, (double)value);
		memcpy(place, &bits, sizeof(bits));
		return half_to_double(&half_fp16, bits);
	default:
		if (rng_chance(rng, 90))
			bits = half_from_double(&half_bf16, (double)value);
		memcpy(place, &bits, sizeof(bits));
		return half_to_double(&half_bf16, bits);
	}
}

static const struct half_format *stored_format(enum moetrace_weight_format format)
{
	return format == MOETRACE_WEIGHT_FORMAT_BF16 ? &half_bf16 : &half_fp16;
}

/* The id as it is shown. */
static uint32_t shown_id(struct world_thread *thread, const struct shown *shown, uint32_t id)
{
	return shown->model ? world_slot_of(thread, shown->model, shown->layer, id) : id;
}

/* One row of the pass: shown at @row, wanted at the same place. */
static void make_row(struct world_thread *thread, const struct shown *shown, uint32_t n_ids,
		     uint32_t row, struct want_layer *want)
{
	struct rng *rng = &thread->rng;
	const uint32_t first = rng_below(rng, n_ids);
	/* Shared slots, the highest ids, come last: so do those before the end of a run that wraps. */
	const uint32_t n_wrapped = first + shown->k > n_ids ? first + shown->k - n_ids : 0;
	uint32_t rank, n_valid = 0;

	for (rank = 0; rank < shown->k; rank++) {
		const uint32_t logical = rank < n_wrapped ? rank : first + rank - n_wrapped;
		int64_t id = shown_id(thread, shown, logical);
		int64_t other = NO_SUCH_VALUE;
		double weight = 0;

		if (rng_chance(rng, shown->hole_percent)) {
			other = no_expert(rng, shown->id_type, shown->n_ids);
		} else if (rng_chance(rng, shown->invalid_percent)) {
			other = wrong_id(rng, shown->id_type, shown->n_ids);
			want->n_invalid += other != NO_SUCH_VALUE;
			want->has_invalid[row] |= other != NO_SUCH_VALUE;
		}
		if (other != NO_SUCH_VALUE)
			id = other;
		put_id(shown, row, rank, id);
		if (shown->weights)
			weight = put_weight(rng, shown, row, rank);
		if (other != NO_SUCH_VALUE)
			continue;
		want->ids[(size_t)row * shown->k + n_valid] = (uint16_t)logical;
		if (want->slots)
			want->slots[(size_t)row * shown->k + n_valid] = (uint16_t)id;
		if (want->weights)
			want->weights[(size_t)row * shown->k + n_valid] = half_from_double(
				stored_format(thread->world->weight_format), weight);
		n_valid++;
	}
	want->n_valid[row] = (uint8_t)n_valid;
}

static void make_padding_row(struct world_thread *thread, const struct shown *shown, uint32_t n_ids,
			     uint32_t row, struct want_layer *want)
{
	struct rng *rng = &thread->rng;
	const uint32_t first = rng_below(rng, n_ids);
	uint32_t rank;

	for (rank = 0; rank < shown->k; rank++) {
		const uint32_t id = (first + rank) % n_ids;
		int64_t other = NO_SUCH_VALUE;

		/* Whatever lies there; it is left out, and nobody complains. */
		if (rng_chance(rng, 5))
			other = rng_chance(rng, 50) ? no_expert(rng, shown->id_type, shown->n_ids)
						    : wrong_id(rng, shown->id_type, shown->n_ids);
		put_id(shown, row, rank,
		       other != NO_SUCH_VALUE ? other : shown_id(thread, shown, id));
		if (shown->weights)
			put_weight(rng, shown, row, rank);
		want->padding_load[id] += other == NO_SUCH_VALUE;
	}
}

/* Ascending rows, about half of them; the array has room for all. */
static uint32_t *make_row_map(struct rng *rng, uint32_t pass_rows, uint32_t *ret_n_rows)
{
	uint32_t *map = world_allocate(pass_rows, sizeof(*map));
	uint32_t row, n = 0;

	for (row = 0; row < pass_rows; row++)
		if (rng_chance(rng, 50))
			map[n++] = row;
	*ret_n_rows = n;
	return map;
}

/* A rule has been at work: k is any, and the router's own choice may be known. */
static void apply_rule(struct world_thread *thread, const struct world_layer *layer,
		       struct shown *shown, struct want_layer *want)
{
	const uint32_t most = layer->n_ids < MOETRACE_MAX_TOP_K ? layer->n_ids : MOETRACE_MAX_TOP_K;
	struct rng *rng = &thread->rng;

	want->rule = WORLD_N_RULES;
	if (!rng_chance(rng, 15))
		return;
	want->rule = rng_below(rng, WORLD_N_RULES);
	shown->k = 1 + rng_below(rng, most);
	if (rng_chance(rng, 30) || shown->model)
		return;
	want->base_k = rng_chance(rng, 70) ? layer->top_k : 1 + rng_below(rng, layer->top_k);
	shown->base_ids_row_bytes =
		(size_t)(want->base_k + rng_below(rng, 3)) * shown->id_type->n_bytes;
	shown->base_ids = world_allocate(shown->n_rows, shown->base_ids_row_bytes);
	want->base_ids =
		world_allocate((size_t)want->n_rows * want->base_k, sizeof(*want->base_ids));
}

static struct shown show(struct world_thread *thread, const struct world_model *model,
			 uint32_t index, uint32_t n_rows, struct want_layer *want)
{
	const struct world_layer *layer = &model->layers[index];
	static const uint32_t weight_types[] = {MOETRACE_TYPE_F32, MOETRACE_TYPE_F32,
						MOETRACE_TYPE_F16, MOETRACE_TYPE_BF16,
						MOETRACE_TYPE_NONE};
	struct rng *rng = &thread->rng;
	struct shown shown = {
		.n_rows = n_rows, .k = layer->top_k, .layer = index, .n_ids = layer->n_ids};
	size_t weight_bytes;

	if (model->map_epoch && rng_chance(rng, 30)) {
		shown.model = model;
		shown.n_ids += model->n_slots - layer->n_experts;
	}
	shown.id_type = pick_id_type(rng, shown.n_ids);
	shown.weight_type = weight_types[rng_below(rng, 5)];
	weight_bytes = shown.weight_type == MOETRACE_TYPE_F32 ? 4 : 2;
	if (rng_chance(rng, 20))
		shown.k = 1 + rng_below(rng, layer->top_k);
	apply_rule(thread, layer, &shown, want);
	shown.hole_percent = rng_chance(rng, 15) ? 30 : 0;
	shown.invalid_percent = rng_chance(rng, 4) ? 3 : 0;
	shown.ids_row_bytes = (size_t)(shown.k + (rng_chance(rng, 30) ? rng_below(rng, 5) : 0)) *
			      shown.id_type->n_bytes;
	shown.ids = world_allocate(n_rows, shown.ids_row_bytes);
	if (shown.weight_type == MOETRACE_TYPE_NONE)
		return shown;
	shown.weights_row_bytes =
		(shown.k + (rng_chance(rng, 30) ? rng_below(rng, 5) : 0)) * weight_bytes;
	shown.weights = world_allocate(n_rows, shown.weights_row_bytes);
	return shown;
}

static void make_base_row(struct world_thread *thread, const struct shown *shown, uint32_t n_ids,
			  uint32_t row, struct want_layer *want)
{
	const uint32_t first = rng_below(&thread->rng, n_ids);
	uint32_t rank;

	for (rank = 0; rank < want->base_k; rank++) {
		const uint32_t id = (first + rank) % n_ids;

		put_base_id(shown, row, rank, id);
		want->base_ids[(size_t)row * want->base_k + rank] = (uint16_t)id;
	}
}

static void hand_over(const struct world *world, struct moetrace_pass *pass, uint32_t layer,
		      const struct shown *shown, const struct want_layer *want, bool k_is_default,
		      bool is_dense)
{
	struct moetrace_selection selection;

	MOETRACE_INIT(&selection);
	selection.layer_index = layer;
	selection.n_rows = shown->n_rows;
	selection.k = k_is_default ? 0 : shown->k;
	selection.id_type = shown->id_type->type;
	selection.ids = shown->ids;
	selection.ids_row_bytes = is_dense ? 0 : shown->ids_row_bytes;
	selection.weight_type = shown->weight_type;
	selection.weights = shown->weights;
	selection.weights_row_bytes = is_dense ? 0 : shown->weights_row_bytes;
	selection.order = want->order;
	selection.id_space = shown->model ? MOETRACE_ID_PHYSICAL : MOETRACE_ID_LOGICAL;
	selection.row_map = want->row_map;
	selection.untimed = want->is_untimed;
	selection.rule = want->rule < WORLD_N_RULES ? world->rules[want->rule] : 0;
	selection.base_ids = shown->base_ids;
	selection.base_k = want->base_k;
	selection.base_ids_row_bytes = shown->base_ids_row_bytes;
	moetrace_select_experts(pass, &selection);
}

/* The arrays belong to the caller and are still what they were. */
static uint64_t digest(const unsigned char *bytes, size_t n_bytes)
{
	uint64_t hash = UINT64_C(14695981039346656037);
	size_t i;

	for (i = 0; bytes && i < n_bytes; i++)
		hash = (hash ^ bytes[i]) * UINT64_C(1099511628211);
	return hash;
}

static bool is_dense(const struct shown *shown)
{
	const size_t weight_bytes = shown->weight_type == MOETRACE_TYPE_F32 ? 4 : 2;

	return shown->ids_row_bytes == (size_t)shown->k * shown->id_type->n_bytes &&
	       (!shown->weights || shown->weights_row_bytes == shown->k * weight_bytes);
}

void world_select(struct world_thread *thread, struct moetrace_pass *pass,
		  const struct want_pass *want_pass, uint32_t layer, struct want_layer *want)
{
	const struct world_layer *info = &want_pass->model->layers[layer];
	struct rng *rng = &thread->rng;
	struct shown shown;
	uint64_t ids_digest, weights_digest;
	uint32_t row;

	want->is_written = true;
	want->is_untimed = rng_chance(rng, 10);
	want->n_rows = want_pass->n_rows;
	want->order = rng_chance(rng, 20) ? MOETRACE_ORDER_UNKNOWN : MOETRACE_ORDER_SELECTION;
	/* Whether a bias acts is not told, so what is unordered stays as it is passed. */
	if (rng_chance(rng, 30))
		want->order = MOETRACE_ORDER_UNORDERED;
	if (rng_chance(rng, 10))
		want->row_map = make_row_map(rng, want_pass->n_rows, &want->n_rows);
	else
		want->padding_shown = want_pass->padding_rows > 0 && rng_chance(rng, 50);
	shown = show(thread, want_pass->model, layer,
		     want->n_rows + (want->padding_shown ? want_pass->padding_rows : 0), want);

	want->k = shown.k;
	want->has_weights =
		shown.weights && thread->world->weight_format != MOETRACE_WEIGHT_FORMAT_NONE;
	want->ids = world_allocate((size_t)want->n_rows * shown.k, sizeof(*want->ids));
	want->n_valid = world_allocate(want->n_rows, sizeof(*want->n_valid));
	want->has_invalid = world_allocate(want->n_rows, sizeof(*want->has_invalid));
	if (shown.model)
		want->slots = world_allocate((size_t)want->n_rows * shown.k, sizeof(*want->slots));
	if (want->has_weights)
		want->weights =
			world_allocate((size_t)want->n_rows * shown.k, sizeof(*want->weights));
	for (row = 0; row < want->n_rows; row++) {
		make_row(thread, &shown, info->n_ids, row, want);
		if (want->base_ids)
			make_base_row(thread, &shown, info->n_ids, row, want);
	}
	if (want->padding_shown) {
		want->padding_load = world_allocate(info->n_ids, sizeof(*want->padding_load));
		for (; row < shown.n_rows; row++)
			make_padding_row(thread, &shown, info->n_ids, row, want);
	}

	ids_digest = digest(shown.ids, shown.n_rows * shown.ids_row_bytes);
	weights_digest = digest(shown.weights, shown.n_rows * shown.weights_row_bytes);
	hand_over(thread->world, pass, layer, &shown, want,
		  shown.k == info->top_k && rng_chance(rng, 50),
		  is_dense(&shown) && rng_chance(rng, 50));
	REQUIRE(ids_digest == digest(shown.ids, shown.n_rows * shown.ids_row_bytes) &&
			weights_digest ==
				digest(shown.weights, shown.n_rows * shown.weights_row_bytes),
		"the recorder changed the arrays that were shown to it");
	free(shown.ids);
	free(shown.weights);
	free(shown.base_ids);
}

void want_layer_free(struct want_layer *layer)
{
	free(layer->ids);
	free(layer->weights);
	free(layer->n_valid);
	free(layer->has_invalid);
	free(layer->row_map);
	free(layer->base_ids);
	free(layer->padding_load);
	free(layer->counts);
	free(layer->slots);
	free(layer->dispatch);
}
