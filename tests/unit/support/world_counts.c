/* SPDX-License-Identifier: MIT */
/*
 * Load in the world: layers of which only counts are told, what dispatch moved, and how many rows
 * every expert must have got, by the definition, whatever a recording keeps of it.
 */
#include "tests/unit/support/world.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/support/db.h"
#include "tests/unit/support/suite.h"

const struct world_kept *world_kept_of(const struct world *world, const struct want_pass *pass)
{
	return &world->kept[world->is_free_running ? 0 : world_recording(pass->epoch)];
}

bool world_keeps(const struct world_kept *kept, const struct want_request *request)
{
	if (kept->every_n_requests <= 1)
		return true;
	return request && (request->handle - 1) % kept->every_n_requests == 0;
}

const struct want_slice *world_slice_of(const struct want_pass *pass, uint32_t row)
{
	uint32_t i = 0;

	while (i + 1 < pass->n_slices && row >= pass->slices[i + 1].row_offset)
		i++;
	return &pass->slices[i];
}

bool world_is_unseen(const struct want_pass *pass, const struct want_slice *slice)
{
	return pass->is_skipped && slice->phase == MOETRACE_PHASE_VERIFY;
}

/* ---- what is told ---- */

/* Every expert lies somewhere; what slots are left hold one more time whom chance says, or nobody. */
static void make_map(struct world *world, struct world_model *model)
{
	uint32_t layer, slot;

	model->n_slots = 0;
	for (layer = 0; layer < model->n_layers; layer++)
		if (model->layers[layer].n_experts > model->n_slots)
			model->n_slots = model->layers[layer].n_experts;
	model->n_slots += rng_below(&world->rng, 20);
	free(model->slot_experts);
	model->slot_experts =
		world_allocate((size_t)model->n_layers * model->n_slots,
			       sizeof(*model->slot_experts));
	for (layer = 0; layer < model->n_layers; layer++) {
		int32_t *experts = &model->slot_experts[(size_t)layer * model->n_slots];
		const uint32_t n_experts = model->layers[layer].n_experts;
		const uint32_t turn = rng_below(&world->rng, model->n_slots);

		for (slot = 0; slot < model->n_slots; slot++)
			experts[(slot + turn) % model->n_slots] =
				slot < n_experts
					? (int32_t)slot
					: (int32_t)rng_below(&world->rng, n_experts + 1) - 1;
	}
}

void world_maps_set(struct world *world)
{
	uint32_t i;

	for (i = 0; i < world->n_models; i++) {
		struct world_model *model = &world->models[i];
		struct moetrace_expert_map map;

		if (!model->n_layers)
			continue;
		make_map(world, model);
		MOETRACE_INIT(&map);
		map.n_slots = model->n_slots;
		map.slot_experts = model->slot_experts;
		ck_assert_int_eq(moetrace_expert_map_set(world->session, model->handle, &map,
							 &model->map_epoch),
				 MOETRACE_OK);
	}
}

uint32_t world_slot_of(struct world_thread *thread, const struct world_model *model, uint32_t layer,
		       uint32_t id)
{
	const int32_t *experts = &model->slot_experts[(size_t)layer * model->n_slots];
	uint32_t slot;

	if (id >= model->layers[layer].n_experts)
		return model->n_slots + id - model->layers[layer].n_experts;
	slot = rng_below(&thread->rng, model->n_slots);
	while (experts[slot] != (int32_t)id)
		slot = (slot + 1) % model->n_slots;
	return slot;
}

/* The counts as they are told: by expert, or by slot. Returns how many. */
static uint32_t spread(struct world_thread *thread, const struct world_model *model, uint32_t layer,
		       const struct want_layer *want, bool by_slot, int64_t *ret_counts)
{
	const uint32_t n_ids = model->layers[layer].n_ids;
	uint32_t i;

	for (i = 0; i < n_ids; i++) {
		uint32_t left = want->counts[i];

		while (by_slot && left > 1 && rng_chance(&thread->rng, 50)) {
			const uint32_t part = rng_below(&thread->rng, left);

			ret_counts[world_slot_of(thread, model, layer, i)] += part;
			left -= part;
		}
		ret_counts[by_slot ? world_slot_of(thread, model, layer, i) : i] += left;
	}
	return n_ids + (by_slot ? model->n_slots - model->layers[layer].n_experts : 0);
}

void world_count(struct world_thread *thread, struct moetrace_pass *pass,
		 const struct want_pass *want_pass, uint32_t layer, struct want_layer *want)
{
	const struct world_layer *info = &want_pass->model->layers[layer];
	struct moetrace_expert_counts counts;
	struct rng *rng = &thread->rng;
	const bool by_slot = want_pass->model->map_epoch && rng_chance(rng, 50);
	int64_t *told = world_allocate(info->n_ids + want_pass->model->n_slots, sizeof(*told));
	uint32_t i, n_told;

	want->is_written = true;
	want->is_untimed = rng_chance(rng, 10);
	want->counts = world_allocate(info->n_ids, sizeof(*want->counts));
	MOETRACE_INIT(&counts);
	counts.layer_index = layer;
	counts.untimed = want->is_untimed;
	for (i = 0; i < info->n_experts; i++)
		if (rng_chance(rng, 30))
			want->counts[i] = rng_below(rng, rng_chance(rng, 5) ? 70000 : 200);
	for (; i < info->n_ids; i++)
		want->counts[i] = rng_chance(rng, 50) ? 3 : 0;
	n_told = spread(thread, want_pass->model, layer, want, by_slot, told);
	counts.n_counts = n_told;
	counts.id_space = by_slot ? MOETRACE_ID_PHYSICAL : MOETRACE_ID_LOGICAL;
	counts.count_type = MOETRACE_TYPE_I64;
	counts.counts = told;
	/* What is not routed may be left out, where nobody chose it. */
	if (!by_slot && rng_chance(rng, 50)) {
		for (i = info->n_experts; i < info->n_ids; i++)
			want->counts[i] = 0;
		counts.n_counts = info->n_experts;
	}
	if (!by_slot && rng_chance(rng, 50)) {
		counts.count_type = MOETRACE_TYPE_U32;
		counts.counts = want->counts;
	}
	moetrace_expert_load(pass, &counts);
	free(told);
}

void world_dispatch(struct world_thread *thread, struct moetrace_pass *pass,
		    const struct want_pass *want_pass, uint32_t layer, struct want_layer *want)
{
	const struct world_layer *info = &want_pass->model->layers[layer];
	struct moetrace_dispatch_info dispatch;
	struct rng *rng = &thread->rng;
	uint32_t i;

	want->dispatch = world_allocate(1, sizeof(*want->dispatch));
	want->dispatch->n_ranks = 1 + rng_below(rng, 8);
	for (i = 0; i < want->dispatch->n_ranks; i++)
		want->dispatch->rank_tokens[i] = rng_below(rng, 5000);
	MOETRACE_INIT(&dispatch);
	dispatch.layer_index = layer;
	dispatch.count_type = MOETRACE_TYPE_U32;
	dispatch.n_ranks = want->dispatch->n_ranks;
	dispatch.rank_tokens = want->dispatch->rank_tokens;
	if (rng_chance(rng, 50)) {
		want->dispatch->n_local_experts = info->n_experts < 4 ? 1 : 4;
		want->dispatch->first_local_slot =
			rng_below(rng, (want_pass->model->map_epoch ? want_pass->model->n_slots
								    : info->n_experts) -
					       want->dispatch->n_local_experts + 1);
		for (i = 0; i < want->dispatch->n_local_experts; i++)
			want->dispatch->received_tokens[i] = rng_below(rng, 300);
		dispatch.n_local_experts = want->dispatch->n_local_experts;
		dispatch.first_local_slot = want->dispatch->first_local_slot;
		dispatch.received_tokens = want->dispatch->received_tokens;
	}
	moetrace_dispatch(pass, &dispatch);
}

/* ---- what must follow ---- */

static enum world_class class_of(const struct want_slice *slice)
{
	if (!slice->request)
		return WORLD_OTHER;
	switch (slice->phase) {
	case MOETRACE_PHASE_PREFILL:
		return WORLD_PREFILL;
	case MOETRACE_PHASE_DECODE:
		return WORLD_DECODE;
	case MOETRACE_PHASE_VERIFY:
		return WORLD_VERIFY;
	default:
		return WORLD_OTHER;
	}
}

/* Where only a sum is known, rows that differ are of class other. */
static enum world_class class_of_all(const struct want_pass *pass)
{
	uint32_t i;

	if (!pass->n_slices)
		return WORLD_OTHER;
	for (i = 1; i < pass->n_slices; i++)
		if (class_of(&pass->slices[i]) != class_of(&pass->slices[0]))
			return WORLD_OTHER;
	return class_of(&pass->slices[0]);
}

void world_load_add(const struct want_pass *pass, uint32_t layer, uint64_t *load)
{
	const struct want_layer *want = &pass->layers[layer];
	const uint32_t n_ids = pass->model->layers[layer].n_ids;
	uint32_t i, k;

	if (!want->is_written)
		return;
	for (i = 0; want->counts && i < n_ids; i++)
		load[class_of_all(pass) * n_ids + i] += want->counts[i];
	for (i = 0; !want->counts && i < want->n_rows; i++) {
		const uint32_t row = want->row_map ? want->row_map[i] : i;
		uint64_t *of_class = load + class_of(world_slice_of(pass, row)) * n_ids;

		for (k = 0; k < want->n_valid[i]; k++)
			of_class[want->ids[(size_t)i * want->k + k]]++;
	}
	for (i = 0; want->padding_load && i < n_ids; i++)
		load[WORLD_PADDING * n_ids + i] += want->padding_load[i];
}

static void compare_windows(sqlite3 *db, uint32_t recording, const struct world_model *model,
			    uint32_t layer, const uint64_t *load)
{
	const uint32_t n_ids = model->layers[layer].n_ids;
	sqlite3_stmt *stmt =
		db_query(db,
			 "SELECT expert, sum(prefill_tokens), sum(decode_tokens),"
			 " sum(verify_tokens), sum(other_tokens), sum(padding_tokens)"
			 " FROM expert_load_window JOIN layer AS l USING (layer_id) JOIN"
			 " model AS m USING (model_id) WHERE recording_id = %u AND m.name ="
			 " %Q AND moe_ordinal = %u GROUP BY expert ORDER BY expert",
			 recording, model->name, layer);
	bool has_row = db_step(stmt);
	uint32_t expert;
	int c;

	for (expert = 0; expert < n_ids; expert++) {
		const bool is_it = has_row && sqlite3_column_int64(stmt, 0) == expert;

		for (c = 0; c < WORLD_N_CLASSES; c++) {
			const uint64_t got =
				is_it ? (uint64_t)sqlite3_column_int64(stmt, 1 + c) : 0;

			REQUIRE(got == load[(uint32_t)c * n_ids + expert],
				"recording %u, %s, layer %u, expert %u, class %d: %llu rows instead"
				" of %llu",
				recording, model->name, layer, expert, c, (unsigned long long)got,
				(unsigned long long)load[(uint32_t)c * n_ids + expert]);
		}
		if (is_it)
			has_row = db_step(stmt);
	}
	ck_assert(!has_row);
	sqlite3_finalize(stmt);
}

static void compare_recording(const struct world *world, sqlite3 *db, uint32_t recording)
{
	uint32_t i, m, layer;

	for (m = 0; m < world->n_models; m++) {
		const struct world_model *model = &world->models[m];

		for (layer = 0; layer < model->n_layers; layer++) {
			uint64_t *load =
				world_allocate((size_t)model->layers[layer].n_ids * WORLD_N_CLASSES,
					       sizeof(*load));

			for (i = 0; i < world->n_threads; i++)
				for (const struct want_pass *pass = world->threads[i].passes; pass;
				     pass = pass->next)
					if (pass->model == model && !pass->is_skipped &&
					    world_recording(pass->epoch) == recording)
						world_load_add(pass, layer, load);
			compare_windows(db, recording, model, layer, load);
			free(load);
		}
	}
}

static uint32_t blob_at(sqlite3_stmt *stmt, int column, uint32_t index)
{
	uint32_t value;

	memcpy(&value, (const char *)sqlite3_column_blob(stmt, column) + 4 * (size_t)index, 4);
	return value;
}

static void compare_dispatch(sqlite3 *db, const struct want_pass *pass, uint32_t layer)
{
	const struct want_dispatch *want = pass->layers[layer].dispatch;
	sqlite3_stmt *stmt =
		db_query(db,
			 "SELECT n_ranks, rank_tokens, n_local_experts, first_local_slot,"
			 " received_tokens FROM dispatch JOIN layer USING (layer_id)"
			 " JOIN number USING (pass_id) WHERE runtime_pass = %lld AND"
			 " moe_ordinal = %u",
			 (long long)pass->number, layer);
	uint32_t i;

	ck_assert_int_eq(db_step(stmt), want != NULL);
	if (want) {
		ck_assert_int_eq(sqlite3_column_int64(stmt, 0), want->n_ranks);
		for (i = 0; i < want->n_ranks; i++)
			ck_assert_uint_eq(blob_at(stmt, 1, i), want->rank_tokens[i]);
		ck_assert_int_eq(sqlite3_column_int64(stmt, 2), want->n_local_experts);
		for (i = 0; i < want->n_local_experts; i++)
			ck_assert_uint_eq(blob_at(stmt, 4, i), want->received_tokens[i]);
		if (want->n_local_experts)
			ck_assert_int_eq(sqlite3_column_int64(stmt, 3), want->first_local_slot);
	}
	sqlite3_finalize(stmt);
}

void world_compare_loads(const struct world *world, sqlite3 *db)
{
	const uint32_t n_recordings = world_recording(world->epoch - !(world->epoch % 2));
	uint32_t recording, i, layer;

	for (recording = 1; recording <= n_recordings; recording++)
		compare_recording(world, db, recording);
	if (!world->has_counters)
		return;
	for (i = 0; i < world->n_threads; i++)
		for (const struct want_pass *pass = world->threads[i].passes; pass;
		     pass = pass->next)
			for (layer = 0; layer < pass->model->n_layers; layer++)
				if (!pass->is_skipped &&
				    world_kept_of(world, pass)->mode != MOETRACE_MODE_STAT)
					compare_dispatch(db, pass, layer);
}
