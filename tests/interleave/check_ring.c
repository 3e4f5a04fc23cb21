/* SPDX-License-Identifier: MIT */
/*
 * The rings under every interleaving and every value that release and acquire allow a load to
 * see: libtrace/ring.c itself, compiled with its atomic operations replaced (explore.h). Each
 * scenario shows that no two threads touch the same memory at once, that every record which
 * was reserved is taken once, whole and in order, and that nothing else is taken; each order
 * that the code asks for is then weakened, and the scenario has to fail.
 */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>

#define EXPLORE_REPLACES_ATOMICS
#include "tests/interleave/explore.h"

#include "libtrace/ring.c"
#include "tests/support/run_suite.h"

enum {
	LINE = MT_LINE_BYTES,
	N_PRODUCERS = 2,
	LIMIT = 4000000,
};

static uint32_t n_peeks; /* how often the writer looks while the producers run */

static struct mt_ring_pool pool;
static struct mt_ring *ring;
static uint64_t reserved[N_PRODUCERS]; /* records that each producer got room for */
static uint64_t taken[N_PRODUCERS];
static uint64_t refused;

/* The explorer keeps what is stored: the memory of one pool serves all executions. */
static void open_pool(uint64_t ring_bytes)
{
	if (pool.memory)
		atomic_store(&pool.free, 1);
	else
		ck_assert_int_eq(mt_ring_pool_open(&pool, 1, ring_bytes), MOETRACE_OK);
	memset(reserved, 0, sizeof(reserved));
	memset(taken, 0, sizeof(taken));
	refused = 0;
}

/* ---- what producers and the writer do ---- */

static void touch(const struct mt_record *record, uint64_t n_bytes, void (*access)(const void *))
{
	/* Not the first word, the stamp: that is atomic. */
	for (uint64_t at = 0; at < n_bytes; at += LINE)
		access((const char *)record + at + 8);
}

/* Fill a reservation with who wrote it and how often that was before. */
static void fill(uint32_t producer, struct mt_reservation got)
{
	if (!got.record) {
		refused++;
		return;
	}
	touch(got.record, got.record->n_bytes, explore_write);
	got.record->time_ns = (uint64_t)producer << 32 | reserved[producer]++;
	mt_ring_commit(ring, got);
}

static void take(struct mt_record *record)
{
	uint32_t producer;

	touch(record, record->n_bytes, explore_read);
	if (record->type != MT_RECORD_PAD) {
		producer = (uint32_t)(record->time_ns >> 32);
		if (record->type != MT_RECORD_LAYER || producer >= N_PRODUCERS ||
		    (uint32_t)record->time_ns != taken[producer]) {
			explore_fault("record %llx of type %u was taken out of order",
				      (unsigned long long)record->time_ns, record->type);
			return;
		}
		taken[producer]++;
	}
	mt_ring_take(ring, record);
}

static void writer(void)
{
	for (uint32_t i = 0; i < n_peeks; i++) {
		struct mt_record *record = mt_ring_peek(ring, mt_ring_head(ring));

		if (record)
			take(record);
	}
}

/* Everything that was reserved is there once all producers are done. */
static void drain(void)
{
	uint64_t head = mt_ring_head(ring);
	struct mt_record *record;

	for (record = mt_ring_peek(ring, head); record; record = mt_ring_peek(ring, head))
		take(record);
	if (mt_ring_tail(ring) != head)
		explore_fault("a record is never complete");
	for (uint32_t i = 0; i < N_PRODUCERS; i++)
		if (taken[i] != reserved[i])
			explore_fault("producer %u: %llu records reserved, %llu taken", i,
				      (unsigned long long)reserved[i],
				      (unsigned long long)taken[i]);
}

/* ---- several producers at once: the side stream ---- */

static void setup_side(void)
{
	open_pool(16 * LINE);
	ring = mt_ring_side(&pool, &pool.rings[0]);
	ck_assert_uint_eq(ring->n_bytes, 4 * LINE);
}

/* Two records of two lines each: the second goes round the end when the other's lies between. */
static void side_two(uint32_t producer)
{
	fill(producer, mt_ring_reserve(ring, MT_RECORD_LAYER, 2 * LINE));
	fill(producer, mt_ring_reserve(ring, MT_RECORD_LAYER, LINE));
}

static void side_first(void)
{
	side_two(0);
}

static void side_second(void)
{
	fill(1, mt_ring_reserve(ring, MT_RECORD_LAYER, 2 * LINE));
}

/* Starts one line before the end, so that a longer record needs a PAD. */
static void setup_side_at_end(void)
{
	setup_side();
	for (uint32_t i = 0; i < 3; i++) {
		fill(0, mt_ring_reserve(ring, MT_RECORD_LAYER, LINE));
		take(mt_ring_peek(ring, mt_ring_head(ring)));
	}
}

/* ---- one producer after the other: the main stream of a ring that is handed on ---- */

static void setup_main(void)
{
	open_pool(4 * LINE);
	ring = &pool.rings[0];
}

static void pass(uint32_t producer)
{
	struct mt_ring *claimed = mt_ring_claim(&pool);

	if (!claimed) {
		refused++;
		return;
	}
	fill(producer, mt_ring_reserve_alone(claimed, MT_RECORD_LAYER, 2 * LINE, LINE));
	fill(producer, mt_ring_reserve_alone(claimed, MT_RECORD_LAYER, LINE, 0));
	mt_ring_release(&pool, claimed);
}

static void pass_first(void)
{
	pass(0);
}

static void pass_second(void)
{
	pass(1);
}

static const struct explore_scenario scenarios[] = {
	{"two producers and the writer", setup_side, {side_first, side_second, writer}, 3, drain},
	{"two producers and the writer, round the end",
	 setup_side_at_end,
	 {side_first, side_second, writer},
	 3,
	 drain},
	{"a ring handed from pass to pass, and the writer",
	 setup_main,
	 {pass_first, pass_second, writer},
	 3,
	 drain},
};

START_TEST(test_every_interleaving)
{
	struct explore_result result;

	explore_weaken(EXPLORE_AS_WRITTEN, NULL);
	result = explore_run(&scenarios[_i], LIMIT);
	printf("%s: %llu executions, %llu pruned\n", scenarios[_i].name,
	       (unsigned long long)result.n_executions, (unsigned long long)result.n_pruned);
	ck_assert_msg(result.fault[0] == '\0', "%s: %s", scenarios[_i].name, result.fault);
	ck_assert_msg(result.is_exhausted, "%s: not exhausted", scenarios[_i].name);
	ck_assert_uint_gt(result.n_executions, 100);
}
END_TEST

/* ---- the orders are needed ---- */

static bool is_stamp(const void *object)
{
	const char *at = object;
	const char *memory = (const char *)pool.memory;

	return at >= memory && at < memory + pool.mapped_bytes;
}

static bool is_tail(const void *object)
{
	return ring && object == (const void *)&ring->tail;
}

static bool is_free(const void *object)
{
	return object == (const void *)&pool.free;
}

static const struct weakening {
	uint32_t scenario;
	enum explore_weaken what;
	bool (*is_meant)(const void *object);
} weakenings[] = {
	{0, EXPLORE_NO_RELEASE, is_stamp}, {0, EXPLORE_NO_ACQUIRE, is_stamp},
	{1, EXPLORE_NO_RELEASE, is_tail},  {1, EXPLORE_NO_ACQUIRE, is_tail},
	{2, EXPLORE_NO_RELEASE, is_free},  {2, EXPLORE_NO_ACQUIRE, is_free},
};

START_TEST(test_each_order_is_needed)
{
	const struct weakening *weakening = &weakenings[_i];
	struct explore_result result;

	explore_weaken(weakening->what, weakening->is_meant);
	result = explore_run(&scenarios[weakening->scenario], LIMIT);
	ck_assert_msg(result.fault[0] != '\0', "weakening %d is not noticed", _i);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("ring, interleaved");
	TCase *tcase = tcase_create("all");
	const char *tier = getenv("MOETRACE_TEST_TIER");

	n_peeks = tier && strcmp(tier, "long") == 0 ? 3 : 2;
	tcase_set_timeout(tcase, 300);
	tcase_add_loop_test(tcase, test_every_interleaving, 0,
			    sizeof(scenarios) / sizeof(scenarios[0]));
	tcase_add_loop_test(tcase, test_each_order_is_needed, 0,
			    sizeof(weakenings) / sizeof(weakenings[0]));
	suite_add_tcase(suite, tcase);
	return run_suite(suite);
}
