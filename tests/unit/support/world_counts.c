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

static void *allocate(size_t n, size_t bytes)
{
	void *memory = calloc(n + 1, bytes);

	if (!memory)
		abort();
	return memory;
}

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

void world_count(struct world_thread *thread, struct moetrace_pass *pass,
		 const struct want_pass *want_pass, uint32_t layer, struct want_layer *want)
{
	const struct world_layer *info = &want_pass->model->layers[layer];
	struct moetrace_expert_counts counts;
	struct rng *rng = &thread->rng;
	int64_t *wide = allocate(info->n_ids, sizeof(*wide));
	uint32_t i;

	want->is_written = true;
	want->is_untimed = rng_chance(rng, 10);
	want->counts = allocate(info->n_ids, sizeof(*want->counts));
	MOETRACE_INIT(&counts);
	counts.layer_index = layer;
	counts.untimed = want->is_untimed;
	counts.n_counts = rng_chance(rng, 50) ? info->n_ids : info->n_experts;
	for (i = 0; i < counts.n_counts; i++)
		if (rng_chance(rng, 30))
			wide[i] = want->counts[i] = rng_below(rng, rng_chance(rng, 5) ? 70000 : 200);
	counts.count_type = rng_chance(rng, 50) ? MOETRACE_TYPE_I64 : MOETRACE_TYPE_U32;
	counts.counts = counts.count_type == MOETRACE_TYPE_I64 ? (const void *)wide : want->counts;
	moetrace_expert_load(pass, &counts);
	free(wide);
}

void world_dispatch(struct world_thread *thread, struct moetrace_pass *pass,
		    const struct want_pass *want_pass, uint32_t layer, struct want_layer *want)
{
	const struct world_layer *info = &want_pass->model->layers[layer];
	struct moetrace_dispatch_info dispatch;
	struct rng *rng = &thread->rng;
	uint32_t i;

	want->dispatch = allocate(1, sizeof(*want->dispatch));
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
			rng_below(rng, info->n_experts - want->dispatch->n_local_experts + 1);
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
	sqlite3_stmt *stmt = db_query(db,
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
			const uint64_t got = is_it ? (uint64_t)sqlite3_column_int64(stmt, 1 + c) : 0;

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
			uint64_t *load = allocate((size_t)model->layers[layer].n_ids * WORLD_N_CLASSES,
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
	sqlite3_stmt *stmt = db_query(db,
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
