/* SPDX-License-Identifier: MIT */
/*
 * The passes of the world, of every form that the API allows: alone, two at once, microbatches of
 * a parent, verify passes whose acceptance is told before their end, after it or later. A slice
 * mostly takes the next positions of its request; now and then it takes them in another order, or
 * leaves some out for ever.
 */
#include "tests/unit/support/world.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/support/suite.h"

static uint32_t pick_n_rows(struct world_thread *thread)
{
	struct rng *rng = &thread->rng;

	if (rng_chance(rng, 50))
		return 1;
	if (rng_chance(rng, 80))
		return 2 + rng_below(rng, 8);
	return 1 + rng_below(rng, thread->world->max_rows);
}

static void shuffle(struct rng *rng, uint32_t *numbers, uint32_t n)
{
	uint32_t i;

	for (i = n; i > 1; i--) {
		const uint32_t j = rng_below(rng, i);
		const uint32_t kept = numbers[i - 1];

		numbers[i - 1] = numbers[j];
		numbers[j] = kept;
	}
}

/* The first rows of a verify slice are accepted; returns how many. */
static uint32_t draw_accepted(struct rng *rng, struct want_slice *slice)
{
	const uint32_t n_accepted = rng_below(rng, slice->n_rows + 1);

	slice->accepted = world_allocate(slice->n_rows, 1);
	memset(slice->accepted, 1, n_accepted);
	slice->told = rng_below(rng, 3);
	return n_accepted;
}

static void fill_slice(struct world_thread *thread, struct want_slice *slice,
		       struct want_request *request)
{
	struct rng *rng = &thread->rng;
	uint32_t i, first = 0;

	slice->request = request;
	slice->attempt = request ? request->attempt : 0;
	slice->n_rows = pick_n_rows(thread);
	slice->positions = world_allocate(slice->n_rows, sizeof(*slice->positions));
	if (request) {
		if (rng_chance(rng, 1))
			request->next_position += 1 + rng_below(rng, 3);
		first = request->next_position;
		if (slice->phase == MOETRACE_PHASE_VERIFY && rng_chance(rng, 70))
			request->next_position += draw_accepted(rng, slice);
		else if (slice->phase != MOETRACE_PHASE_DRAFT)
			request->next_position += slice->n_rows;
	}
	for (i = 0; i < slice->n_rows; i++)
		slice->positions[i] = first + i;
	if (request && !slice->accepted && rng_chance(rng, 10)) {
		shuffle(rng, slice->positions, slice->n_rows);
		slice->positions_passed = true;
	}
}

static uint32_t pick_phase(struct world_thread *thread, const struct world_model *model)
{
	static const uint32_t target[] = {
		MOETRACE_PHASE_PREFILL, MOETRACE_PHASE_PREFILL, MOETRACE_PHASE_DECODE,
		MOETRACE_PHASE_DECODE,	MOETRACE_PHASE_DECODE,	MOETRACE_PHASE_MIXED,
		MOETRACE_PHASE_MIXED,	MOETRACE_PHASE_DUMMY,	MOETRACE_PHASE_IDLE};

	if (model->kind != MOETRACE_MODEL_TARGET)
		return rng_chance(&thread->rng, 90) ? MOETRACE_PHASE_DRAFT : MOETRACE_PHASE_DUMMY;
	if (rng_chance(&thread->rng, 10))
		return MOETRACE_PHASE_VERIFY;
	return target[rng_below(&thread->rng, sizeof(target) / sizeof(target[0]))];
}

static uint32_t pick_slice_phase(struct rng *rng, uint32_t pass_phase)
{
	if (pass_phase != MOETRACE_PHASE_MIXED)
		return pass_phase;
	return rng_chance(rng, 50) ? MOETRACE_PHASE_PREFILL : MOETRACE_PHASE_DECODE;
}

static void add_slice(struct world_thread *thread, struct want_pass *want,
		      struct want_request *request)
{
	struct want_slice *slice = &want->slices[want->n_slices];

	if (want->n_slices == WORLD_MAX_SLICES)
		return;
	slice->phase = request ? pick_slice_phase(&thread->rng, want->phase) : MOETRACE_PHASE_DUMMY;
	if (slice->phase != want->phase || rng_chance(&thread->rng, 50))
		slice->phase_passed = slice->phase;
	slice->row_offset = want->n_rows;
	fill_slice(thread, slice, request);
	want->n_rows += slice->n_rows;
	want->n_slices++;
}

static struct want_pass *make_pass(struct world_thread *thread)
{
	struct want_pass *want = world_allocate(1, sizeof(*want));
	struct rng *rng = &thread->rng;
	uint32_t i;

	want->number = (uint64_t)thread->index << 32 | thread->n_passes++;
	want->model = world_model_pick(thread);
	want->phase = pick_phase(thread, want->model);
	want->epoch = thread->world->epoch;
	want->map_epoch = want->model->map_epoch;
	want->padding_rows = rng_chance(rng, 30) ? 1 + rng_below(rng, 64) : 0;
	if (want->phase == MOETRACE_PHASE_IDLE)
		return want;
	if (want->phase == MOETRACE_PHASE_DUMMY) {
		add_slice(thread, want, NULL);
		return want;
	}
	for (i = 0; i < thread->n_open; i++)
		if (rng_chance(rng, 60) && (want->model->kind != MOETRACE_MODEL_TARGET ||
					    thread->open[i]->model == want->model))
			add_slice(thread, want, thread->open[i]);
	if (rng_chance(rng, 10))
		add_slice(thread, want, NULL);
	return want;
}

static struct moetrace_pass *begin_pass(struct world_thread *thread, const struct want_pass *want,
					uint64_t parent)
{
	int64_t *slots = world_allocate(want->n_rows, sizeof(*slots));
	struct moetrace_slice slices[WORLD_MAX_SLICES] = {{0}};
	struct moetrace_pass_info info;
	struct moetrace_pass *pass;
	uint32_t i;

	for (i = 0; i < want->n_slices; i++) {
		slices[i].request = want->slices[i].request ? want->slices[i].request->handle
							    : MOETRACE_NO_REQUEST;
		if (want->slices[i].positions_passed)
			slices[i].positions = want->slices[i].positions;
		else
			slices[i].first_position = want->slices[i].positions[0];
		slices[i].n_rows = want->slices[i].n_rows;
		slices[i].phase = want->slices[i].phase_passed;
	}
	MOETRACE_INIT(&info);
	info.model = want->model->handle;
	info.phase = want->phase;
	info.n_rows = want->n_rows;
	info.padding_rows = want->padding_rows;
	info.slices = slices;
	info.n_slices = want->n_slices;
	info.runtime_pass = &want->number;
	info.parent = parent;
	info.microbatch = want->has_microbatch ? &want->microbatch : NULL;
	if (rng_chance(&thread->rng, 50)) {
		world_slots(thread, want, slots);
		info.kv_slots = slots;
		info.kv_slot_type = MOETRACE_TYPE_I64;
	}
	pass = moetrace_pass_begin(thread->world->session, &info);
	free(slots);
	/* What was passed is the caller's again. */
	memset(slices, 0xff, sizeof(slices));
	return pass;
}

static void run_layers(struct world_thread *thread, struct moetrace_pass *pass,
		       struct want_pass *want)
{
	uint32_t order[WORLD_MAX_LAYERS], i;

	for (i = 0; i < want->model->n_layers; i++)
		order[i] = i;
	if (rng_chance(&thread->rng, 20))
		shuffle(&thread->rng, order, want->model->n_layers);
	for (i = 0; i < want->model->n_layers; i++) {
		struct want_layer *layer = &want->layers[order[i]];

		if (thread->world->has_counters && rng_chance(&thread->rng, 10))
			world_dispatch(thread, pass, want, order[i], layer);
		if (rng_chance(&thread->rng, 1))
			continue;
		if (thread->world->has_counters && rng_chance(&thread->rng, 10))
			world_count(thread, pass, want, order[i], layer);
		else
			world_select(thread, pass, want, order[i], layer);
	}
	if (rng_chance(&thread->rng, 3))
		world_misuse(thread, pass, want);
}

void world_pass_free(struct want_pass *want)
{
	uint32_t i;

	for (i = 0; i < want->n_slices; i++)
		free(want->slices[i].positions), free(want->slices[i].accepted);
	for (i = 0; i < WORLD_MAX_LAYERS; i++)
		want_layer_free(&want->layers[i]);
	free(want);
}

/* The slices whose acceptance is known by now are told. */
static void tell(struct world_thread *thread, uint64_t number, struct want_pass *want,
		 uint32_t when)
{
	uint32_t i;

	for (i = 0; number && i < want->n_slices; i++) {
		struct want_slice *slice = &want->slices[i];
		struct want_late *late;

		if (!slice->accepted || slice->told != when)
			continue;
		if (when < 2 || slice->request->end_epoch != UINT32_MAX) {
			slice->told_clock = ++thread->clock;
			ck_assert_int_eq(moetrace_pass_accept(thread->world->session, number, i,
							      slice->accepted, slice->n_rows),
					 MOETRACE_OK);
			continue;
		}
		late = world_allocate(1, sizeof(*late));
		late->number = number;
		late->slice = i;
		late->of = slice;
		late->next = slice->request->late;
		slice->request->late = late;
	}
}

/* Keeps what was recorded, in whichever way the world knows that. */
static void keep_pass(struct world_thread *thread, bool is_recorded, struct want_pass *want)
{
	const struct world *world = thread->world;
	const uint32_t recording = world_recording(world->epoch);

	want->is_skipped = !is_recorded && recording && world->kept[recording].every_n_passes > 1;
	REQUIRE(world->is_free_running || is_recorded == (recording != 0) || want->is_skipped,
		"a pass is recorded while idle, or is not while recording");
	if (!is_recorded && !want->is_skipped) {
		world_pass_free(want);
		return;
	}
	want->next = thread->passes;
	thread->passes = want;
}

static void end_pass(struct world_thread *thread, struct moetrace_pass *pass,
		     struct want_pass *want)
{
	const uint64_t number = moetrace_pass_number(pass);
	uint32_t i;

	/* A request that has ended hears of what is accepted before its last pass ends, or never.
	 */
	for (i = 0; i < want->n_slices; i++)
		if (want->slices[i].accepted && want->slices[i].request->end_epoch != UINT32_MAX)
			want->slices[i].told = 0;
	tell(thread, number, want, 0);
	moetrace_pass_end(pass);
	want->end_clock = ++thread->clock;
	/* A pass that is left out keeps no request open. */
	for (i = 0; pass && i < want->n_slices; i++)
		if (want->slices[i].request && want->slices[i].request->end_epoch != UINT32_MAX)
			want->slices[i].request->end_clock = thread->clock;
	tell(thread, number, want, 1);
	tell(thread, number, want, 2);
	keep_pass(thread, pass != NULL, want);
}

/* A pass that has nothing of its own, for two that overlap. */
static struct want_pass *make_parent(struct world_thread *thread)
{
	struct want_pass *want = world_allocate(1, sizeof(*want));

	want->number = (uint64_t)thread->index << 32 | thread->n_passes++;
	want->model = world_model_pick(thread);
	want->phase = MOETRACE_PHASE_PREFILL;
	want->epoch = thread->world->epoch;
	return want;
}

static void set_part(struct want_pass *part, const struct want_pass *parent, uint32_t microbatch)
{
	part->parent = parent;
	part->has_microbatch = parent != NULL;
	part->microbatch = microbatch;
}

/* Something happens to a request that passes are running for. */
static void disturb(struct world_thread *thread)
{
	struct rng *rng = &thread->rng;

	if (!thread->n_open || !rng_chance(rng, 4))
		return;
	if (rng_chance(rng, 50))
		world_request_end(thread, rng_below(rng, thread->n_open));
	else
		world_retract(thread, thread->open[rng_below(rng, thread->n_open)]);
}

/* Two passes whose layers alternate, as with two microbatches, with or without a parent. */
static void two_passes(struct world_thread *thread)
{
	struct want_pass *parent_want = rng_chance(&thread->rng, 50) ? make_parent(thread) : NULL;
	struct moetrace_pass *parent = parent_want ? begin_pass(thread, parent_want, 0) : NULL;
	const uint64_t number = moetrace_pass_number(parent);
	struct want_pass *want[2];
	struct moetrace_pass *pass[2];
	uint32_t i;

	for (i = 0; i < 2; i++) {
		want[i] = make_pass(thread);
		set_part(want[i], number ? parent_want : NULL, i);
		pass[i] = begin_pass(thread, want[i], number);
	}
	disturb(thread);
	for (i = 0; i < 2; i++)
		run_layers(thread, pass[i], want[i]);
	if (parent_want && rng_chance(&thread->rng, 50)) {
		end_pass(thread, parent, parent_want);
		parent_want = NULL;
	}
	for (i = 0; i < 2; i++)
		end_pass(thread, pass[i], want[i]);
	if (parent_want)
		end_pass(thread, parent, parent_want);
}

void world_pass(struct world_thread *thread)
{
	struct want_pass *want;
	struct moetrace_pass *pass;

	if (rng_chance(&thread->rng, 10)) {
		two_passes(thread);
		return;
	}
	want = make_pass(thread);
	pass = begin_pass(thread, want, 0);
	disturb(thread);
	run_layers(thread, pass, want);
	end_pass(thread, pass, want);
}
