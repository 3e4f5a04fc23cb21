/* SPDX-License-Identifier: MIT */
/*
 * The world's session, models, recordings and requests, and the threads that begin, serve and end
 * requests. A request belongs to one thread, so that the order that the API asks for is kept
 * without locks.
 */
#include "tests/unit/support/world.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/support/suite.h"
#include "tests/unit/support/toy.h"

void *world_allocate(size_t n, size_t bytes)
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
	struct world *world = world_allocate(1, sizeof(*world));
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
	struct want_request *request = world_allocate(1, sizeof(*request));
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

void world_request_end(struct world_thread *thread, uint32_t index)
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
	struct want_attribute *attribute = world_allocate(1, sizeof(*attribute));
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
	struct want_tokens *given = world_allocate(1, sizeof(*given));
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
		world_request_end(thread, rng_below(rng, thread->n_open));
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
				world_request_end(&world->threads[i], j - 1);
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

			world_pass_free(thread->passes);
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
