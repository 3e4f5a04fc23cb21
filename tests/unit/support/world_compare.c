/* SPDX-License-Identifier: MIT */
/*
 * The file of a random runtime against what the runtime noted: every pass, slice, position,
 * layer, id and weight, by SQL on the tables (layers and what is in them: world_layers.c). Passes
 * are found by the runtime's own number, models by their name. What follows from the stored rows
 * (loads, windows) is recounted by agree_check().
 */
#include "tests/unit/support/world_compare.h"

#include <check.h>
#include <stdio.h>
#include <string.h>

#include "tests/unit/support/agree.h"
#include "tests/unit/support/db.h"
#include "tests/unit/support/suite.h"

static const char *const phase_names[] = {NULL,	    "prefill", "decode", "mixed",
					  "verify", "draft",   "idle",	 "dummy"};

struct world_here world_here;

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
	for (world_here.row = 0; blob && world_here.row < slice->n_rows; world_here.row++)
		MUST(u32_at(blob, world_here.row) == slice->positions[world_here.row]);
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

static void compare_slices(sqlite3 *db, int64_t pass_id, const struct want_pass *want, bool is_free)
{
	sqlite3_stmt *stmt = db_query(db,
				      "SELECT s.slice, r.handle, s.attempt, s.first_position,"
				      " s.positions, s.row_offset, s.n_rows, s.phase, s.accepted"
				      " FROM pass_request AS s LEFT JOIN request AS r"
				      " USING (request_id) WHERE s.pass_id = %lld ORDER BY s.slice",
				      (long long)pass_id);
	uint32_t i;

	for (i = 0; i < want->n_slices; i++) {
		world_here.row = 0;
		MUST(db_step(stmt));
		MUST(sqlite3_column_int64(stmt, 0) == i);
		compare_slice(stmt, &want->slices[i], is_free);
	}
	MUST(!db_step(stmt));
	sqlite3_finalize(stmt);
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
	int64_t pass_id;

	world_here.pass = want->number;
	world_here.layer = world_here.row = 0;
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
	world_compare_layers(db, world, want, pass_id);
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
