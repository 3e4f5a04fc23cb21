/* SPDX-License-Identifier: MIT */
/*
 * The world's traffic: threads that begin, compute and end requests. A request belongs to one
 * thread, so that the order that the API asks for is kept without locks. A slice mostly takes
 * the next positions of its request; now and then it takes them in another order, or leaves
 * some out for ever.
 */
#include "tests/unit/support/world.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/support/suite.h"
#include "tests/unit/support/toy.h"

static void *allocate(size_t n, size_t bytes)
{
	void *memory = calloc(n + 1, bytes);

	if (!memory)
		abort();
	return memory;
}

uint32_t world_recording(uint32_t epoch)
{
	return epoch % 2 ? (epoch + 1) / 2 : 0;
}

/* Layers at the edges of the id width, with dense layers between them. */
static void make_layer(struct rng *rng, uint32_t ordinal, struct world_layer *layer)
{
	static const uint32_t id_counts[] = {4, 64, 127, 128, 129, 255, 256, 257, 384, 512};

	layer->layer = 3 + 2 * ordinal;
	layer->n_ids = id_counts[rng_below(rng, sizeof(id_counts) / sizeof(id_counts[0]))];
	layer->n_zero_experts = rng_chance(rng, 30) ? rng_below(rng, 3) : 0;
	layer->n_shared_slots = rng_chance(rng, 30) ? rng_below(rng, 2) : 0;
	layer->n_experts = layer->n_ids - layer->n_zero_experts - layer->n_shared_slots;
	layer->top_k = 1 + rng_below(rng, layer->n_ids < 22 ? layer->n_ids : 22);
}

void world_model_add(struct world *world)
{
	struct world_model *model = &world->models[world->n_models];
	struct moetrace_layer_info layers[WORLD_MAX_LAYERS];
	struct moetrace_model_info info;
	uint32_t i;

	ck_assert_uint_lt(world->n_models, WORLD_MAX_MODELS);
	snprintf(model->name, sizeof(model->name), "model-%u", world->n_models);
	model->kind = world->n_models == 1   ? MOETRACE_MODEL_DRAFT
		      : world->n_models == 4 ? MOETRACE_MODEL_MTP
					     : MOETRACE_MODEL_TARGET;
	/* One model has nothing to record. */
	model->n_layers = world->n_models == 3 ? 0 : 1 + rng_below(&world->rng, WORLD_MAX_LAYERS);
	for (i = 0; i < model->n_layers; i++) {
		make_layer(&world->rng, i, &model->layers[i]);
		MOETRACE_INIT(&layers[i]);
		layers[i].layer = model->layers[i].layer;
		layers[i].n_experts = model->layers[i].n_experts;
		layers[i].n_zero_experts = model->layers[i].n_zero_experts;
		layers[i].n_shared_slots = model->layers[i].n_shared_slots;
		layers[i].top_k = model->layers[i].top_k;
	}
	MOETRACE_INIT(&info);
	info.name = model->name;
	info.kind = model->kind;
	info.layers = layers;
	info.n_moe_layers = model->n_layers;
	ck_assert_int_eq(moetrace_model_add(world->session, &info, &model->handle), MOETRACE_OK);
	world->n_models++;
}

struct world *world_open(const char *path, uint64_t seed, uint32_t n_threads,
			 enum moetrace_weight_format weight_format)
{
	struct world *world = allocate(1, sizeof(*world));
	struct moetrace_session_opts opts = toy_opts();
	uint32_t i;
	int status;

	world->path = path;
	world->rng.state = seed;
	world->weight_format = weight_format;
	world->n_threads = n_threads;
	world->max_rows = 300;
	opts.weight_format = weight_format;
	opts.n_rings = 3 * n_threads; /* two passes and their parent */
	/* Roomy, for all that a run says: the test is about what is stored, nothing may be lost. */
	opts.ring_bytes = UINT64_C(8) << 20;
	if (suite_is_long())
		opts.ring_bytes = UINT64_C(64) << 20;
	opts.window_ns = 20000000;
	status = moetrace_session_open(path, &opts, &world->session);
	REQUIRE(status == MOETRACE_OK, "open: %d: %s", status, moetrace_open_errmsg());
	for (i = 0; i < n_threads; i++) {
		world->threads[i].world = world;
		world->threads[i].index = i;
		world->threads[i].rng.state = rng_next(&world->rng);
	}
	for (i = 0; i < 4; i++)
		world_model_add(world);
	for (i = 0; i < WORLD_N_RULES; i++) {
		char name[16];

		snprintf(name, sizeof(name), "rule-%u", i);
		ck_assert_int_eq(moetrace_rule_add(world->session, name, &world->rules[i]),
				 MOETRACE_OK);
	}
	return world;
}

void world_start(struct world *world)
{
	const struct world_kept all = {.mode = MOETRACE_MODE_PER_TOKEN};

	world_start_keeping(world, &all);
}

void world_start_keeping(struct world *world, const struct world_kept *kept)
{
	struct moetrace_recording_opts opts;
	uint32_t i, j;

	MOETRACE_INIT(&opts);
	opts.mode = kept->mode;
	opts.sample_every_n_passes = kept->every_n_passes;
	opts.sample_every_n_requests = kept->every_n_requests;
	world->kept[world_recording(world->epoch + 1)] = *kept;
	ck_assert_int_eq(moetrace_start(world->session, &opts), MOETRACE_OK);
	world->epoch++;
	/* Who is paused then is so in this recording, too. */
	for (i = 0; !world->is_free_running && i < world->n_threads; i++)
		for (j = 0; j < world->threads[i].n_open; j++)
			world->threads[i].open[j]->n_pauses[world->epoch] +=
				world->threads[i].open[j]->is_paused;
	ck_assert_uint_lt(world_recording(world->epoch), WORLD_MAX_RECORDINGS);
}

void world_stop(struct world *world)
{
	ck_assert_int_eq(moetrace_stop(world->session, NULL), MOETRACE_OK);
	world->epoch++;
}

/* ---- requests ---- */

struct world_model *world_model_pick(struct world_thread *thread)
{
	return &thread->world->models[rng_below(&thread->rng, thread->world->n_models)];
}

static void begin_request(struct world_thread *thread)
{
	struct want_request *request = allocate(1, sizeof(*request));
	struct moetrace_request_info info;

	do {
		request->model = world_model_pick(thread);
	} while (request->model->kind != MOETRACE_MODEL_TARGET);
	request->next = thread->requests;
	request->begin_epoch = thread->world->epoch;
	request->attempt_epoch = request->begin_epoch;
	request->end_epoch = UINT32_MAX;
	snprintf(request->external_id, sizeof(request->external_id), "r%u-%llx", thread->index,
		 (unsigned long long)rng_next(&thread->rng));
	request->prompt_positions =
		rng_chance(&thread->rng, 50) ? 1 + rng_below(&thread->rng, 99) : 0;
	MOETRACE_INIT(&info);
	info.external_id = request->external_id;
	info.prompt_positions = request->prompt_positions;
	ck_assert_int_eq(moetrace_request_begin(thread->world->session, &info, &request->handle),
			 MOETRACE_OK);
	ck_assert_uint_ne(request->handle, MOETRACE_NO_REQUEST);
	thread->requests = request;
	thread->open[thread->n_open++] = request;
}

static void end_request(struct world_thread *thread, uint32_t index)
{
	struct want_request *request = thread->open[index];
	struct rng *rng = &thread->rng;

	world_tell_late(thread, request);
	request->end_epoch = thread->world->epoch;
	request->end_clock = ++thread->clock;
	request->end_state = MOETRACE_REQUEST_FINISHED + rng_below(rng, 3);
	request->declared = request->next_position;
	if (rng_chance(rng, 5))
		request->declared += rng_below(rng, 3);
	else if (rng_chance(rng, 5) && request->declared > 0)
		request->declared = rng_below(rng, request->next_position);
	else if (rng_chance(rng, 30))
		request->declared = MOETRACE_POSITIONS_UNKNOWN;
	ck_assert_int_eq(moetrace_request_end(thread->world->session, request->handle,
					      request->end_state, request->declared),
			 MOETRACE_OK);
	thread->open[index] = thread->open[--thread->n_open];
}

static void set_attribute(struct world_thread *thread, struct want_request *request)
{
	struct want_attribute *attribute = allocate(1, sizeof(*attribute));
	char key[16];

	attribute->next = request->attributes;
	attribute->epoch = thread->world->epoch;
	attribute->key = rng_below(&thread->rng, WORLD_N_KEYS);
	snprintf(key, sizeof(key), "key%u", attribute->key);
	snprintf(attribute->value, sizeof(attribute->value), "%llx",
		 (unsigned long long)rng_next(&thread->rng));
	ck_assert_int_eq(moetrace_request_attribute_set(thread->world->session, request->handle,
							key, attribute->value),
			 MOETRACE_OK);
	request->attributes = attribute;
}

static void add_tokens(struct world_thread *thread, struct want_request *request)
{
	struct want_tokens *given = allocate(1, sizeof(*given));
	uint32_t tokens[20], i;

	given->next = request->tokens;
	given->epoch = thread->world->epoch;
	given->first_position = rng_below(&thread->rng, 60);
	given->n_tokens = rng_below(&thread->rng, 21);
	given->add = rng_below(&thread->rng, 1000);
	for (i = 0; i < given->n_tokens; i++)
		tokens[i] = (given->first_position + i) * 3 + given->add;
	ck_assert_int_eq(moetrace_request_tokens(thread->world->session, request->handle,
						 given->first_position, tokens, given->n_tokens),
			 MOETRACE_OK);
	request->tokens = given;
}

/* ---- passes ---- */

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

	slice->accepted = allocate(slice->n_rows, 1);
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
	slice->positions = allocate(slice->n_rows, sizeof(*slice->positions));
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
	struct want_pass *want = allocate(1, sizeof(*want));
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
	int64_t *slots = allocate(want->n_rows, sizeof(*slots));
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

static void pass_free(struct want_pass *want)
{
	uint32_t i;

	for (i = 0; i < want->n_slices; i++)
		free(want->slices[i].positions), free(want->slices[i].accepted);
	for (i = 0; i < WORLD_MAX_LAYERS; i++)
		want_layer_free(&want->layers[i]);
	free(want);
}

/* The slices whose acceptance is known by now are told. */
static void tell(struct world_thread *thread, uint64_t number, struct want_pass *want, uint32_t when)
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
		late = allocate(1, sizeof(*late));
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
		pass_free(want);
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

	/* A request that has ended hears of what is accepted before its last pass ends, or never. */
	for (i = 0; i < want->n_slices; i++)
		if (want->slices[i].accepted &&
		    want->slices[i].request->end_epoch != UINT32_MAX)
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
	struct want_pass *want = allocate(1, sizeof(*want));

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
		end_request(thread, rng_below(rng, thread->n_open));
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

/* ---- threads ---- */

static void step(struct world_thread *thread)
{
	struct rng *rng = &thread->rng;
	const uint32_t dice = rng_below(rng, 100);
	struct want_request *request =
		thread->n_open ? thread->open[rng_below(rng, thread->n_open)] : NULL;

	if (dice < 15 && thread->n_open < WORLD_MAX_OPEN)
		begin_request(thread);
	else if (dice < 25 && request)
		end_request(thread, rng_below(rng, thread->n_open));
	else if (dice < 30 && request)
		set_attribute(thread, request);
	else if (dice < 33 && request)
		add_tokens(thread, request);
	else if (dice < 35 && request)
		world_retract(thread, request);
	else if (dice < 37 && request)
		world_pause_or_resume(thread, request);
	else if (dice < 43 && request)
		world_reuse(thread, request);
	else
		world_pass(thread);
}

static void *thread_main(void *argument)
{
	struct world_thread *thread = argument;
	uint32_t i;

	for (i = 0; i < thread->n_steps; i++)
		step(thread);
	for (i = 0; i < thread->n_open; i++)
		world_tell_late(thread, thread->open[i]);
	return NULL;
}

void world_run(struct world *world, uint32_t n_steps)
{
	pthread_t ids[WORLD_MAX_THREADS];
	uint32_t i;

	for (i = 0; i < world->n_threads; i++) {
		world->threads[i].n_steps = n_steps;
		ck_assert_int_eq(pthread_create(&ids[i], NULL, thread_main, &world->threads[i]), 0);
	}
	for (i = 0; i < world->n_threads; i++)
		ck_assert_int_eq(pthread_join(ids[i], NULL), 0);
}

void world_end_some(struct world *world)
{
	uint32_t i, j;

	for (i = 0; i < world->n_threads; i++)
		for (j = world->threads[i].n_open; j > 0; j--)
			if (rng_chance(&world->rng, 50))
				end_request(&world->threads[i], j - 1);
}

void world_close(struct world *world)
{
	ck_assert_int_eq(moetrace_session_close(world->session), MOETRACE_OK);
	world->session = NULL;
}

static void request_free(struct want_request *request)
{
	while (request->attributes) {
		struct want_attribute *next = request->attributes->next;

		free(request->attributes);
		request->attributes = next;
	}
	while (request->reuses) {
		struct want_reuse *next = request->reuses->next;

		free(request->reuses);
		request->reuses = next;
	}
	while (request->tokens) {
		struct want_tokens *next = request->tokens->next;

		free(request->tokens);
		request->tokens = next;
	}
	free(request);
}

void world_free(struct world *world)
{
	uint32_t i;

	for (i = 0; i < world->n_threads; i++) {
		struct world_thread *thread = &world->threads[i];

		while (thread->passes) {
			struct want_pass *next = thread->passes->next;

			pass_free(thread->passes);
			thread->passes = next;
		}
		while (thread->requests) {
			struct want_request *next = thread->requests->next;

			request_free(thread->requests);
			thread->requests = next;
		}
	}
	for (i = 0; i < world->n_models; i++)
		free(world->models[i].slot_experts);
	free(world);
}
