/* SPDX-License-Identifier: MIT */
/*
 * The requests of a random runtime against the file: a row for each recording that a request
 * was open in, and the verdict that the definition gives, position by position. Where the
 * definition leaves a choice, both pass: holes of a request that began before the recording
 * may be called began_before or missing, a hole need not be named beside another reason, and
 * a partial request may name what befell rows past its end or beside it in a pass.
 */
#include "tests/unit/support/world.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/support/db.h"
#include "tests/unit/support/suite.h"

static const char *const end_states[] = {NULL, "finished", "aborted", "failed"};

struct position {
	bool is_computed;  /* in this recording */
	bool is_reused;	   /* from whomever */
	bool is_unknown;   /* from nobody known */
	bool is_elsewhere; /* in another one */
	bool is_verified;
	bool is_unwritten;
	bool is_invalid;
	bool is_sampled;
	bool is_counted;
};

struct reasons {
	bool unwritten;
	bool unresolved;
	bool invalid;
	bool missing;
	bool began_before;
	bool reuse_unknown;
	bool sampled;
	bool counted;
	/* What a reason may be named for though it is none by the definition. */
	bool may_be_unwritten;
	bool may_be_unresolved;
	bool may_be_invalid;
	bool may_be_reuse_unknown;
	bool may_be_sampled;
	bool may_be_counted;
};

/* Does the request have a row in the recording? */
static bool was_open(const struct world *world, const struct want_request *request,
		     uint32_t recording)
{
	const uint32_t epoch = 2 * recording - 1;

	return world->kept[recording].mode != MOETRACE_MODE_STAT &&
	       request->begin_epoch <= epoch && request->end_epoch >= epoch;
}

static bool row_is_invalid(const struct want_layer *layer, uint32_t row)
{
	uint32_t i;

	if (!layer->is_written || layer->counts)
		return false;
	if (!layer->row_map)
		return layer->has_invalid[row];
	for (i = 0; i < layer->n_rows; i++)
		if (layer->row_map[i] == row)
			return layer->has_invalid[i];
	return false;
}

static void note_row(struct position *position, const struct world *world,
		     const struct want_pass *pass, uint32_t row, bool is_here, bool is_verify)
{
	const struct world_kept *kept = world_kept_of(world, pass);
	uint32_t i;

	if (!is_here) {
		position->is_elsewhere = true;
		return;
	}
	if (is_verify)
		position->is_verified = true;
	else
		position->is_computed = true;
	position->is_sampled |= pass->is_skipped ||
				!world_keeps(kept, world_slice_of(pass, row)->request);
	for (i = 0; !pass->is_skipped && i < pass->model->n_layers; i++) {
		position->is_counted |= pass->layers[i].counts != NULL &&
					kept->mode == MOETRACE_MODE_PER_TOKEN;
		position->is_unwritten |= !pass->layers[i].is_written;
		position->is_invalid |= row_is_invalid(&pass->layers[i], row);
	}
}

static void note_slice(const struct world *world, const struct want_pass *pass,
		       const struct want_slice *slice, struct reasons *reasons)
{
	uint32_t i;

	reasons->may_be_sampled |=
		pass->is_skipped || !world_keeps(world_kept_of(world, pass), slice->request);
	if (pass->is_skipped)
		return;

	reasons->may_be_unresolved |= slice->phase == MOETRACE_PHASE_VERIFY && !slice->accepted;
	for (i = 0; i < pass->model->n_layers; i++) {
		reasons->may_be_unwritten |= !pass->layers[i].is_written;
		reasons->may_be_invalid |= pass->layers[i].n_invalid > 0;
		reasons->may_be_counted |= pass->layers[i].counts != NULL;
	}
}

static void note_pass(struct position *positions, uint32_t n_positions, const struct world *world,
		      const struct want_request *request, const struct want_pass *pass,
		      uint32_t recording, struct reasons *reasons)
{
	const bool is_here = world_recording(pass->epoch) == recording;
	uint32_t i, row;

	for (i = 0; i < pass->n_slices; i++) {
		const struct want_slice *slice = &pass->slices[i];

		if (slice->request != request || slice->phase == MOETRACE_PHASE_DRAFT ||
		    slice->attempt != request->attempt)
			continue;
		if (is_here)
			note_slice(world, pass, slice, reasons);
		if (world_is_unseen(pass, slice))
			continue;
		for (row = 0; row < slice->n_rows; row++)
			if (slice->positions[row] < n_positions &&
			    (!slice->accepted || slice->accepted[row]))
				note_row(&positions[slice->positions[row]], world, pass,
					 slice->row_offset + row, is_here,
					 slice->phase == MOETRACE_PHASE_VERIFY && !slice->accepted);
	}
}

/* A reused position is as whole as its source's row. */
static void note_reuse(const struct world_thread *thread, const struct want_request *request,
		       const struct want_reuse *reuse, struct position *position,
		       struct reasons *reasons)
{
	const struct want_source source = world_source(thread, reuse, request);
	struct position row = {0};
	bool is_flawed;
	uint32_t i;

	if (!source.request) {
		reasons->may_be_reuse_unknown = true;
		if (position)
			position->is_reused = position->is_unknown = true;
		return;
	}
	note_row(position ? position : &row, thread->world, source.pass,
		 source.slice->row_offset + source.row, true, false);
	if (position) {
		position->is_computed = false;
		position->is_reused = true;
	}
	/* Its attempt's faults are not told apart. */
	is_flawed = source.pass->is_skipped ||
		    !world_keeps(world_kept_of(thread->world, source.pass), source.request);
	for (i = 0; i < source.pass->model->n_layers; i++)
		is_flawed |= !source.pass->layers[i].is_written ||
			     source.pass->layers[i].n_invalid || source.pass->layers[i].counts;
	if (is_flawed)
		reasons->may_be_unwritten = reasons->may_be_invalid = reasons->may_be_sampled =
			reasons->may_be_counted = true;
}

static void note_reuses(const struct world_thread *thread, const struct want_request *request,
			struct position *positions, uint32_t n_positions, uint32_t recording,
			struct reasons *reasons)
{
	for (const struct want_reuse *reuse = request->reuses; reuse; reuse = reuse->next)
		if (reuse->attempt == request->attempt && reuse->epoch == 2 * recording - 1)
			note_reuse(thread, request, reuse,
				   reuse->position < n_positions ? &positions[reuse->position]
								 : NULL,
				   reasons);
}

static struct reasons judge(const struct world_thread *thread, const struct want_request *request,
			    uint32_t n_positions, uint32_t recording)
{
	struct position *positions = calloc(n_positions + 1u, sizeof(*positions));
	const bool began_before = request->attempt_epoch < 2 * recording - 1;
	struct reasons reasons = {0};
	uint32_t i;

	REQUIRE(positions, "out of memory");
	for (const struct want_pass *pass = thread->passes; pass; pass = pass->next)
		note_pass(positions, n_positions, thread->world, request, pass, recording,
			  &reasons);
	note_reuses(thread, request, positions, n_positions, recording, &reasons);
	for (i = 0; i < n_positions; i++) {
		reasons.unwritten |= positions[i].is_unwritten;
		reasons.invalid |= positions[i].is_invalid;
		reasons.unresolved |= positions[i].is_verified && !positions[i].is_computed;
		reasons.reuse_unknown |= positions[i].is_unknown;
		reasons.sampled |= positions[i].is_sampled;
		reasons.counted |= positions[i].is_counted;
		if (positions[i].is_computed || positions[i].is_verified || positions[i].is_reused)
			continue;
		if (began_before)
			reasons.began_before = true;
		else
			reasons.missing = true;
	}
	free(positions);
	return reasons;
}

static bool names(const char *reasons, const char *reason)
{
	const char *found = reasons ? strstr(reasons, reason) : NULL;

	return found != NULL;
}

static void compare_reasons(const struct want_request *request, const struct reasons *want,
			    const char *got)
{
	const char *id = request->external_id;
	const bool has_hole = want->missing || want->began_before;
	const bool got_hole = names(got, "missing") || names(got, "began_before");

	REQUIRE(names(got, "unwritten") ? want->may_be_unwritten : !want->unwritten,
		"%s: unwritten: %s", id, got);
	REQUIRE(names(got, "invalid") ? want->may_be_invalid : !want->invalid, "%s: invalid: %s",
		id, got);
	REQUIRE(names(got, "unresolved") ? want->may_be_unresolved : !want->unresolved,
		"%s: unresolved: %s", id, got);
	REQUIRE(names(got, "reuse_unknown") ? want->may_be_reuse_unknown : !want->reuse_unknown,
		"%s: reuse_unknown: %s", id, got);
	REQUIRE(names(got, "sampled") ? want->may_be_sampled : !want->sampled, "%s: sampled: %s",
		id, got);
	REQUIRE(names(got, "counted") ? want->may_be_counted : !want->counted, "%s: counted: %s",
		id, got);
	REQUIRE(!names(got, "repeated"), "%s: nothing is repeated: %s", id, got);
	REQUIRE(got_hole ? has_hole : !has_hole || got, "%s: missing: %s", id, got);
	REQUIRE(!names(got, "began_before") || want->began_before, "%s: %s", id, got);
	REQUIRE(!names(got, "lost"), "%s: nothing was lost: %s", id, got);
}

static void compare_unfinished(sqlite3_stmt *row, const struct want_request *request)
{
	const char *verdict = (const char *)sqlite3_column_text(row, 6);

	REQUIRE(strcmp(verdict, "unfinished") == 0, "%s: %s instead of unfinished",
		request->external_id, verdict);
	ck_assert_int_eq(sqlite3_column_type(row, 2), SQLITE_NULL);
	ck_assert_int_eq(sqlite3_column_type(row, 4), SQLITE_NULL);
	ck_assert_int_eq(sqlite3_column_type(row, 5), SQLITE_NULL);
	ck_assert_int_eq(sqlite3_column_type(row, 7), SQLITE_NULL);
}

/* One past the highest position that the last attempt has in the recording. */
static uint32_t seen_end(const struct world_thread *thread, const struct want_request *request,
			 uint32_t recording)
{
	uint32_t end = 0, i, row;

	for (const struct want_reuse *reuse = request->reuses; reuse; reuse = reuse->next)
		if (reuse->attempt == request->attempt && reuse->epoch == 2 * recording - 1 &&
		    reuse->position >= end)
			end = reuse->position + 1;
	for (const struct want_pass *pass = thread->passes; pass; pass = pass->next)
		for (i = 0; pass->epoch == 2 * recording - 1 && i < pass->n_slices; i++) {
			const struct want_slice *slice = &pass->slices[i];

			if (slice->request != request || slice->attempt != request->attempt ||
			    slice->phase == MOETRACE_PHASE_DRAFT || world_is_unseen(pass, slice) ||
			    (slice->phase == MOETRACE_PHASE_VERIFY && !slice->accepted))
				continue;
			for (row = 0; row < slice->n_rows; row++)
				if ((!slice->accepted || slice->accepted[row]) &&
				    slice->positions[row] >= end)
					end = slice->positions[row] + 1;
		}
	return end;
}

static uint32_t n_attempts_at(const struct want_request *request, uint32_t epoch)
{
	uint32_t n = 1, i;

	for (i = 0; i <= epoch; i++)
		n += request->n_retracts[i];
	return n;
}

static uint32_t more_of(uint32_t a, uint32_t b)
{
	return a > b ? a : b;
}

/* A finished request has forwarded its prompt, or something is missing. */
static void compare_ended(sqlite3_stmt *row, const struct world_thread *thread,
			  const struct want_request *request, uint32_t recording)
{
	const uint32_t prompt =
		request->end_state == MOETRACE_REQUEST_FINISHED ? request->prompt_positions : 0;
	const uint32_t n_positions = request->declared == MOETRACE_POSITIONS_UNKNOWN
					     ? more_of(seen_end(thread, request, recording), prompt)
					     : (uint32_t)request->declared;
	const struct reasons want =
		judge(thread, request, more_of(n_positions, prompt), recording);
	const char *verdict = (const char *)sqlite3_column_text(row, 6);
	const char *reasons = (const char *)sqlite3_column_text(row, 7);

	REQUIRE(sqlite3_column_int64(row, 2) == n_positions,
		"%s: %lld instead of %u"
		" positions",
		request->external_id, (long long)sqlite3_column_int64(row, 2), n_positions);
	ck_assert_int_ne(sqlite3_column_type(row, 4), SQLITE_NULL);
	ck_assert_str_eq((const char *)sqlite3_column_text(row, 5), end_states[request->end_state]);
	compare_reasons(request, &want, reasons);
	REQUIRE(strcmp(verdict, reasons ? "partial" : "complete") == 0, "%s: %s (%s)",
		request->external_id, verdict, reasons ? reasons : "");
}

/* What a key was set to last, up to this time. */
static const struct want_attribute *attribute_at(const struct want_request *request, uint32_t key,
						 uint32_t epoch)
{
	const struct want_attribute *attribute = request->attributes;

	while (attribute && (attribute->key != key || attribute->epoch > epoch))
		attribute = attribute->next;
	return attribute;
}

static void compare_attributes(sqlite3 *db, int64_t request_id, const struct want_request *request,
			       uint32_t epoch)
{
	int64_t n_attributes = 0;
	uint32_t key;

	for (key = 0; key < WORLD_N_KEYS; key++) {
		const struct want_attribute *want = attribute_at(request, key, epoch);

		if (!want)
			continue;
		n_attributes++;
		ck_assert_str_eq(db_text(db,
					 "SELECT value FROM request_attribute WHERE"
					 " request_id = %lld AND key = 'key%u'",
					 (long long)request_id, key),
				 want->value);
	}
	ck_assert_int_eq(db_int(db,
				"SELECT count(*) FROM request_attribute WHERE request_id = %lld",
				(long long)request_id),
			 n_attributes);
}

static const struct want_tokens *tokens_at(const struct want_request *request, uint32_t position,
					   uint32_t epoch)
{
	const struct want_tokens *given = request->tokens;

	while (given && (given->epoch != epoch || position < given->first_position ||
			 position >= given->first_position + given->n_tokens))
		given = given->next;
	return given;
}

static void compare_tokens(sqlite3 *db, int64_t request_id, const struct want_request *request,
			   uint32_t epoch)
{
	sqlite3_stmt *stmt = db_query(db,
				      "SELECT position, token_id FROM request_token WHERE"
				      " request_id = %lld ORDER BY position",
				      (long long)request_id);
	uint32_t position;

	for (position = 0; position < 100; position++) {
		const struct want_tokens *want = tokens_at(request, position, epoch);

		if (!want)
			continue;
		REQUIRE(db_step(stmt), "%s: no token at %u", request->external_id, position);
		ck_assert_int_eq(sqlite3_column_int64(stmt, 0), position);
		ck_assert_int_eq(sqlite3_column_int64(stmt, 1), position * 3 + want->add);
	}
	ck_assert(!db_step(stmt));
	sqlite3_finalize(stmt);
}

static void compare_request(sqlite3 *db, const struct world_thread *thread,
			    const struct want_request *request, uint32_t recording)
{
	const uint32_t epoch = 2 * recording - 1;
	sqlite3_stmt *row = db_query(db,
				     "SELECT external_id, prompt_positions, n_positions,"
				     " n_attempts, end_ns, end_state, verdict, reasons, request_id,"
				     " n_pauses"
				     " FROM request WHERE recording_id = %u AND handle = %lld",
				     recording, (long long)request->handle);
	const bool is_there = db_step(row);

	REQUIRE(is_there == was_open(thread->world, request, recording), "%s in recording %u: %s",
		request->external_id, recording, is_there ? "has a row" : "has no row");
	if (is_there) {
		ck_assert_str_eq((const char *)sqlite3_column_text(row, 0), request->external_id);
		if (request->prompt_positions)
			ck_assert_int_eq(sqlite3_column_int64(row, 1), request->prompt_positions);
		else
			ck_assert_int_eq(sqlite3_column_type(row, 1), SQLITE_NULL);
		ck_assert_int_eq(sqlite3_column_int64(row, 3), n_attempts_at(request, epoch));
		ck_assert_int_eq(sqlite3_column_int64(row, 9), request->n_pauses[epoch]);
		world_compare_reuse(db, thread, request, epoch);
		if (request->end_epoch == epoch)
			compare_ended(row, thread, request, recording);
		else
			compare_unfinished(row, request);
		compare_attributes(db, sqlite3_column_int64(row, 8), request, epoch);
		compare_tokens(db, sqlite3_column_int64(row, 8), request, epoch);
	}
	sqlite3_finalize(row);
}

void world_compare_requests(struct world *world, sqlite3 *db)
{
	const uint32_t n_recordings = world_recording(world->epoch - !(world->epoch % 2));
	int64_t n_rows = 0;
	uint32_t i, recording;

	for (i = 0; i < world->n_threads; i++)
		for (const struct want_request *request = world->threads[i].requests; request;
		     request = request->next)
			for (recording = 1; recording <= n_recordings; recording++) {
				compare_request(db, &world->threads[i], request, recording);
				n_rows += was_open(world, request, recording);
			}
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM request"), n_rows);
}
