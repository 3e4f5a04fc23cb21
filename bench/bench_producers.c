/* SPDX-License-Identifier: MIT */
/*
 * What producers cost each other. First a push alone: a record of one line reserved, stamped
 * with the time and committed, in a ring as large as the hook's. Then the hook's thread CPU time
 * a layer with one thread and with four that record passes of their own at once into one
 * session, by turns; processor time, so that having fewer cores than threads does not count.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/load.h"
#include "libtrace/clock.h"
#include "libtrace/ring.h"

enum {
	N_LAYERS = 58,
	N_ROWS = 64,
	N_PASSES = 400, /* a thread and round */
	N_PRODUCERS = 4,
	N_ROUNDS = 5,
	N_PUSHES = 4096,
	N_PUSH_ROUNDS = 200,
	RING_BYTES = 64 << 20,
};

static const double bar_push_ns = 50.0;
static const double bar_ratio = 1.2;

/* ---- a push ---- */

static void push(struct mt_ring *ring)
{
	struct mt_reservation got = mt_ring_reserve_alone(ring, MT_RECORD_LAYER, MT_LINE_BYTES, 0);

	if (!got.record)
		load_die("the ring", "it is full, so the times say nothing");
	got.record->time_ns = mt_monotonic_ns();
	mt_ring_commit(ring, got);
}

static void drain(struct mt_ring *ring)
{
	struct mt_record *record;

	while ((record = mt_ring_peek(ring, mt_ring_head(ring))))
		mt_ring_take(ring, record);
}

static double time_push(void)
{
	static struct mt_ring_pool pool;
	static double rounds[N_PUSH_ROUNDS];

	if (mt_ring_pool_open(&pool, 1, RING_BYTES) != MOETRACE_OK)
		load_die("the ring", "there is not enough memory");
	for (uint32_t i = 0; i < N_PUSH_ROUNDS; i++) {
		const uint64_t before_ns = load_now_ns();

		for (uint32_t j = 0; j < N_PUSHES; j++)
			push(&pool.rings[0]);
		rounds[i] = (double)(load_now_ns() - before_ns) / N_PUSHES;
		drain(&pool.rings[0]);
	}
	mt_ring_pool_close(&pool);
	return load_quantile(rounds, N_PUSH_ROUNDS, 0.5);
}

/* ---- producers ---- */

struct producer {
	pthread_t thread;
	struct load load; /* the common session, slices of its own */
	double layer_ns[N_PASSES];
};

static void time_pass(struct producer *producer, uint32_t i)
{
	struct load *load = &producer->load;
	struct moetrace_selection selection = load_selection(load, 0);
	struct moetrace_pass *pass = load_begin(load);
	uint64_t before_ns = load_thread_cpu_ns();

	for (uint32_t layer = 0; layer < N_LAYERS; layer++) {
		selection.layer_index = layer;
		selection.ids = load->ids[layer % LOAD_N_SOURCES];
		selection.weights = load->weights[layer % LOAD_N_SOURCES];
		moetrace_select_experts(pass, &selection);
	}
	producer->layer_ns[i] = (double)(load_thread_cpu_ns() - before_ns) / N_LAYERS;
	if (!pass)
		load_die("a pass", "it was not recorded, so the times say nothing");
	moetrace_pass_end(pass);
}

/* Spaced, so that the writer keeps up with four of them. */
static void *produce(void *arg)
{
	struct producer *producer = arg;

	for (uint32_t i = 0; i < N_PASSES; i++) {
		time_pass(producer, i);
		load_sleep_until_ns(load_now_ns() + 5000000);
	}
	return NULL;
}

/* The median layer of @n producers at once, over all their passes. */
static double run(struct producer *producers, uint32_t n)
{
	static double all[N_PRODUCERS * N_PASSES];

	for (uint32_t i = 0; i < n; i++)
		if (pthread_create(&producers[i].thread, NULL, produce, &producers[i]) != 0)
			load_die("a thread", "it could not be made");
	for (uint32_t i = 0; i < n; i++) {
		pthread_join(producers[i].thread, NULL);
		memcpy(all + (size_t)i * N_PASSES, producers[i].layer_ns,
		       sizeof(producers[i].layer_ns));
	}
	return load_quantile(all, n * N_PASSES, 0.5);
}

/* A producer of the session of @load with a request and arrays of its own. */
static void join_session(struct producer *producer, const struct load *load)
{
	producer->load = *load;
	producer->load.slices = malloc(sizeof(struct moetrace_slice));
	if (!producer->load.slices)
		load_die("memory", "there is not enough");
	producer->load.slices[0] = load->slices[0];
	if (moetrace_request_begin(load->session, NULL, &producer->load.slices[0].request) !=
	    MOETRACE_OK)
		load_die("a request", "it was refused");
}

int main(void)
{
	static struct producer producers[N_PRODUCERS];
	static double one_ns[N_ROUNDS], four_ns[N_ROUNDS], ratios[N_ROUNDS];
	const double push_ns = time_push();
	struct moetrace_session_status status;
	struct load load;
	double ratio;

	load_open(&load, "/dev/shm", NULL, N_LAYERS, 256, N_ROWS, 1);
	for (uint32_t i = 0; i < N_PRODUCERS; i++)
		join_session(&producers[i], &load);
	for (uint32_t i = 0; i < N_ROUNDS; i++) {
		one_ns[i] = run(producers, 1);
		four_ns[i] = run(producers, N_PRODUCERS);
		ratios[i] = four_ns[i] / one_ns[i];
	}
	status = load_status(&load);
	for (uint32_t i = 0; i < N_PRODUCERS; i++)
		free(producers[i].load.slices);
	load_close(&load, false);
	if (status.dropped_passes || status.dropped_layers)
		load_die("the writer", "it did not keep up, so the times say nothing");
	ratio = load_quantile(ratios, N_ROUNDS, 0.5);
	printf("a push with the time: %.1f ns; bar %.0f ns: %s\n", push_ns, bar_push_ns,
	       push_ns <= bar_push_ns ? "met" : "NOT MET");
	printf("thread CPU time a layer of %d rows: one producer %.1f ns, %d producers %.1f ns,"
	       " ratio %.2f (%.2f to %.2f); bar %.1f: %s\n",
	       N_ROWS, load_quantile(one_ns, N_ROUNDS, 0.5), N_PRODUCERS,
	       load_quantile(four_ns, N_ROUNDS, 0.5), ratio, ratios[0], ratios[N_ROUNDS - 1],
	       bar_ratio, ratio <= bar_ratio ? "met" : "NOT MET");
	return push_ns <= bar_push_ns && ratio <= bar_ratio ? EXIT_SUCCESS : EXIT_FAILURE;
}
