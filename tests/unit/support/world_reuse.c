/* SPDX-License-Identifier: MIT */
/*
 * Retracts, pauses and prefix hits of the random runtime, and what the links in the file must
 * be: each position by itself, its source followed through whatever was said, as far as it had
 * been computed when the request ended.
 */
#include "tests/unit/support/world.h"

#include <check.h>
#include <stdlib.h>

#include "tests/unit/support/db.h"
#include "tests/unit/support/suite.h"

/* ---- what is said ---- */

void world_retract(struct world_thread *thread, struct want_request *request)
{
	/* Read once: as the index of what is changed, the compiler would not read it atomically. */
	const uint32_t epoch = thread->world->epoch;

	ck_assert_int_eq(moetrace_request_retract(thread->world->session, request->handle),
			 MOETRACE_OK);
	request->attempt++;
	request->attempt_epoch = epoch;
	request->n_retracts[epoch]++;
	request->is_paused = false;
	request->next_position = 0;
}

void world_pause_or_resume(struct world_thread *thread, struct want_request *request)
{
	struct moetrace_session *session = thread->world->session;
	const uint32_t epoch = thread->world->epoch;

	ck_assert_int_eq(request->is_paused ? moetrace_request_resume(session, request->handle)
					    : moetrace_request_pause(session, request->handle),
			 MOETRACE_OK);
	request->n_pauses[epoch] += !request->is_paused;
	request->is_paused = !request->is_paused;
}

static struct want_request *pick_request(struct world_thread *thread)
{
	uint32_t n = rng_below(&thread->rng, 12);
	struct want_request *request = thread->requests;

	while (n-- > 0 && request->next)
		request = request->next;
	return request;
}

static void note_reuse(struct world_thread *thread, struct want_request *request,
		       uint32_t position, uint64_t source, uint32_t source_attempt)
{
	struct want_reuse *reuse = world_allocate(1, sizeof(*reuse));

	reuse->next = request->reuses;
	reuse->epoch = thread->world->epoch;
	reuse->attempt = request->attempt;
	reuse->position = position;
	/* No attempt reuses itself, or a later one. */
	if (source == request->handle && source_attempt >= request->attempt)
		source = MOETRACE_NO_REQUEST;
	reuse->source = source;
	reuse->source_attempt = source_attempt;
	reuse->said_clock = ++thread->clock;
	request->reuses = reuse;
}

static void reuse_by_link(struct world_thread *thread, struct want_request *request,
			  struct moetrace_reuse *reuse)
{
	struct want_request *source = pick_request(thread);
	uint32_t attempt, i;

	if (rng_chance(&thread->rng, 10))
		source = NULL;
	attempt = source ? rng_below(&thread->rng, source->attempt + 1) : 0;
	reuse->source_request = source ? source->handle : MOETRACE_NO_REQUEST;
	reuse->source_attempt = attempt;
	if (source && rng_chance(&thread->rng, 50)) {
		reuse->source_attempt = MOETRACE_ATTEMPT_LAST;
		attempt = source == request ? source->attempt - 1 : source->attempt;
	}
	for (i = 0; i < reuse->n_positions; i++)
		note_reuse(thread, request, reuse->first_position + i, reuse->source_request,
			   attempt);
}

/* A slot that holds the position in this recording, if there is one; else any. */
static uint32_t pick_slot(struct world_thread *thread, uint32_t position)
{
	const uint32_t first = rng_below(&thread->rng, WORLD_N_SLOTS);
	uint32_t i;

	for (i = 0; i < WORLD_N_SLOTS && !rng_chance(&thread->rng, 1); i++) {
		const uint32_t at = (first + i) % WORLD_N_SLOTS;

		if (thread->slots[at].position == position && thread->slots[at].request)
			return at;
	}
	return first;
}

static uint64_t slot_number(const struct world_thread *thread, uint32_t slot)
{
	return ((uint64_t)thread->index << 20) + slot;
}

static void reuse_by_slots(struct world_thread *thread, struct want_request *request,
			   struct moetrace_reuse *reuse, uint64_t *slots)
{
	uint32_t i;

	for (i = 0; i < reuse->n_positions; i++) {
		const uint32_t position = reuse->first_position + i;
		const uint32_t slot = pick_slot(thread, position);
		const struct want_slot *owner = &thread->slots[slot];
		const bool is_known = owner->request && owner->position == position &&
				      owner->epoch == thread->world->epoch;

		slots[i] = slot_number(thread, slot);
		note_reuse(thread, request, position,
			   is_known ? owner->request : MOETRACE_NO_REQUEST, owner->attempt);
	}
	reuse->kv_slots = slots;
}

void world_reuse(struct world_thread *thread, struct want_request *request)
{
	struct moetrace_reuse reuse;
	uint64_t slots[24];

	MOETRACE_INIT(&reuse);
	reuse.first_position = request->next_position;
	reuse.n_positions = 1 + rng_below(&thread->rng, 24);
	if (rng_chance(&thread->rng, 30))
		reuse_by_slots(thread, request, &reuse, slots);
	else
		reuse_by_link(thread, request, &reuse);
	ck_assert_int_eq(moetrace_request_reuse(thread->world->session, request->handle, &reuse),
			 MOETRACE_OK);
	request->next_position += reuse.n_positions;
}

void world_slots(struct world_thread *thread, const struct want_pass *pass, int64_t *ret_slots)
{
	uint32_t i, k;

	for (i = 0; i < pass->n_slices; i++) {
		const struct want_slice *slice = &pass->slices[i];

		for (k = 0; k < slice->n_rows; k++) {
			const uint32_t slot = rng_below(&thread->rng, WORLD_N_SLOTS);

			ret_slots[slice->row_offset + k] = -1;
			if (rng_chance(&thread->rng, 5))
				continue;
			ret_slots[slice->row_offset + k] = (int64_t)slot_number(thread, slot);
			if (pass->model->kind != MOETRACE_MODEL_TARGET)
				continue;
			thread->slots[slot] = (struct want_slot){
				slice->request && slice->phase != MOETRACE_PHASE_DRAFT
					? slice->request->handle
					: MOETRACE_NO_REQUEST,
				slice->attempt, slice->positions[k], pass->epoch};
		}
	}
}

void world_tell_late(struct world_thread *thread, struct want_request *request)
{
	while (request->late) {
		struct want_late *late = request->late;

		late->of->told_clock = ++thread->clock;
		request->late = late->next;
		ck_assert_int_eq(moetrace_pass_accept(thread->world->session, late->number,
						      late->slice, late->of->accepted,
						      late->of->n_rows),
				 MOETRACE_OK);
		free(late);
	}
}

/* ---- what must follow ---- */

const struct want_reuse *world_reuse_find(const struct want_request *request, uint32_t attempt,
					  uint32_t position, uint32_t epoch)
{
	const struct want_reuse *reuse = request->reuses;

	while (reuse && (reuse->epoch != epoch || reuse->attempt != attempt ||
			 reuse->position != position))
		reuse = reuse->next;
	return reuse;
}

static const struct want_request *find_request(const struct world_thread *thread, uint64_t handle)
{
	const struct want_request *request = thread->requests;

	while (request && request->handle != handle)
		request = request->next;
	return request;
}

/* The row that computed a position of an attempt by @until, if one did. */
static struct want_source computed_by(const struct world_thread *thread,
				      const struct want_request *request,
				      const struct want_reuse *reuse, uint64_t until)
{
	struct want_source found = {0};
	uint32_t i, row;

	for (const struct want_pass *pass = thread->passes; pass; pass = pass->next) {
		if (pass->epoch != reuse->epoch || pass->end_clock > until ||
		    pass->model->kind != MOETRACE_MODEL_TARGET)
			continue;
		for (i = 0; i < pass->n_slices; i++) {
			const struct want_slice *slice = &pass->slices[i];

			if (slice->request != request || slice->attempt != reuse->source_attempt ||
			    slice->phase == MOETRACE_PHASE_DRAFT || world_is_unseen(pass, slice) ||
			    (slice->phase == MOETRACE_PHASE_VERIFY &&
			     (!slice->accepted || slice->told_clock > until)))
				continue;
			for (row = 0; row < slice->n_rows; row++)
				if (slice->positions[row] == reuse->position &&
				    (!slice->accepted || slice->accepted[row]))
					found = (struct want_source){
						request, slice->attempt, pass, slice, row};
		}
	}
	return found;
}

/* What is said or computed after a request has ended does not change what it reused. */
struct want_source world_source(const struct world_thread *thread, const struct want_reuse *reuse,
				const struct want_request *of)
{
	const struct want_request *first = of;
	const uint32_t first_attempt = reuse->attempt;
	struct want_source found = {0};
	uint64_t until = UINT64_MAX;
	uint32_t n_links = 0; /* that were followed: requests may reuse each other in a circle */

	while (reuse && reuse->source && !found.request && n_links++ < WORLD_MAX_LINKS) {
		const struct want_request *source = find_request(thread, reuse->source);

		if (reuse->said_clock > until)
			break;
		if (of->end_epoch == reuse->epoch && of->end_clock < until)
			until = of->end_clock;
		found = computed_by(thread, source, reuse, until);
		reuse = world_reuse_find(source, reuse->source_attempt, reuse->position,
					 reuse->epoch);
		of = source;
	}
	/* No attempt reuses itself, or a later one. */
	if (found.request == first && found.attempt >= first_attempt)
		found = (struct want_source){0};
	return found;
}

/* The link of the file that has the position: its source, and that it is one. */
static void compare_position(sqlite3_stmt *stmt, const struct want_source *want,
			     const struct want_request *request, uint32_t position)
{
	const bool is_known = sqlite3_column_type(stmt, 3) != SQLITE_NULL;

	REQUIRE(is_known == (want->request != NULL), "%s: position %u: %s", request->external_id,
		position, is_known ? "has a source, and must not" : "has no source, and must");
	if (is_known)
		REQUIRE((uint64_t)sqlite3_column_int64(stmt, 3) == want->request->handle &&
				sqlite3_column_int64(stmt, 4) == want->attempt,
			"%s: position %u: from %lld.%lld instead of %llu.%u", request->external_id,
			position, (long long)sqlite3_column_int64(stmt, 3),
			(long long)sqlite3_column_int64(stmt, 4),
			(unsigned long long)want->request->handle, want->attempt);
}

void world_compare_reuse(sqlite3 *db, const struct world_thread *thread,
			 const struct want_request *request, uint32_t epoch)
{
	sqlite3_stmt *stmt = db_query(db,
				      "SELECT u.attempt, u.first_position, u.n_positions, s.handle,"
				      " u.source_attempt FROM request_reuse AS u JOIN request AS r"
				      " USING (request_id) LEFT JOIN request AS s ON s.request_id ="
				      " u.source_request_id WHERE r.handle = %lld AND"
				      " r.recording_id = %u",
				      (long long)request->handle, world_recording(epoch));
	int64_t n = 0, n_want = 0;
	uint32_t i;

	for (const struct want_reuse *reuse = request->reuses; reuse; reuse = reuse->next)
		n_want += reuse->epoch == epoch;
	while (db_step(stmt)) {
		for (i = 0; i < sqlite3_column_int64(stmt, 2); i++) {
			const uint32_t position = (uint32_t)sqlite3_column_int64(stmt, 1) + i;
			const struct want_reuse *reuse = world_reuse_find(
				request, (uint32_t)sqlite3_column_int64(stmt, 0), position, epoch);
			struct want_source want;

			REQUIRE(reuse, "%s: position %u was not reused", request->external_id,
				position);
			want = world_source(thread, reuse, request);
			compare_position(stmt, &want, request, position);
			n++;
		}
	}
	sqlite3_finalize(stmt);
	REQUIRE(n == n_want, "%s: %lld reused positions instead of %lld", request->external_id,
		(long long)n, (long long)n_want);
}
