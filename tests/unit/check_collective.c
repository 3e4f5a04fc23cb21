/* SPDX-License-Identifier: MIT */
/*
 * Collectives that a runtime tells of a pass, and ranges while a recording goes on in another file.
 * The expected rows are what was told, seen from the session's clock.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/support/agree.h"
#include "tests/unit/support/db.h"
#include "tests/unit/support/suite.h"
#include "tests/unit/support/toy.h"

enum { N_LAYERS = 2, N_EXPERTS = 64, TOP_K = 2 };

static uint32_t name_of(const struct toy *toy, const char *name)
{
	uint32_t number = 0;

	ck_assert_int_eq(moetrace_range_name_add(toy->session, name, &number), MOETRACE_OK);
	return number;
}

static struct moetrace_pass *begin(const struct toy *toy)
{
	const struct moetrace_slice slice = { .n_rows = 1 };
	struct moetrace_pass *pass = toy_begin(toy, MOETRACE_PHASE_DUMMY, &slice, 1);

	ck_assert_ptr_nonnull(pass);
	return pass;
}

/* One that took a microsecond and is just over. */
static struct moetrace_collective collective(uint32_t kind, uint32_t layer_index)
{
	struct moetrace_collective made;

	MOETRACE_INIT(&made);
	made.kind = kind;
	made.layer_index = layer_index;
	made.end_ns = moetrace_clock_ns();
	made.start_ns = made.end_ns - 1000;
	return made;
}

/* Once in a file, once kept in memory. */
START_TEST(test_told)
{
	static const char *const kinds =
		"other,all_reduce,all_gather,reduce_scatter,all_to_all,broadcast,reduce,send,receive,"
		"barrier,dispatch,combine";
	struct toy toy = toy_open("told.db", NULL, N_LAYERS, N_EXPERTS, TOP_K);
	uint32_t world = name_of(&toy, "world"), ring = name_of(&toy, "ring");
	struct moetrace_recording_opts opts;
	struct moetrace_dump_result result;
	struct moetrace_collective told;
	struct moetrace_pass *pass;
	sqlite3 *db;

	MOETRACE_INIT(&opts);
	opts.flight_bytes = _i ? 1 << 20 : 0;
	ck_assert_int_eq(moetrace_start(toy.session, &opts), MOETRACE_OK);
	pass = begin(&toy);
	suite_sleep_ms(1);
	for (uint32_t kind = 0; kind <= MOETRACE_COLLECTIVE_COMBINE; kind++) {
		told = collective(kind, kind % 2 ? 1 : MOETRACE_NO_LAYER);
		moetrace_pass_collective(pass, &told);
	}
	told = collective(MOETRACE_COLLECTIVE_DISPATCH, 0);
	told.bytes = 4096;
	told.n_ranks = 8;
	told.name = world;
	told.algorithm = ring;
	told.protocol = name_of(&toy, "LL128");
	told.n_channels = 4;
	moetrace_pass_collective(pass, &told);
	told.bytes = MOETRACE_UNKNOWN_BYTES;
	moetrace_pass_collective(pass, &told);
	moetrace_pass_collective(NULL, &told);
	toy_finish(&toy, pass, 1);
	MOETRACE_INIT(&result);
	if (_i)
		ck_assert_int_eq(moetrace_dump(toy.session, &result), MOETRACE_OK);
	toy_close(&toy);
	agree_prove(toy.path);
	db = db_open(toy.path);
	agree_check(db);
	ck_assert_str_eq(db_text(db, "SELECT group_concat(kind) FROM (SELECT kind FROM collective"
				     " ORDER BY collective_id LIMIT 12)"), kinds);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM collective WHERE end_ns - start_ns = 1000 AND"
				    " pass_id = 1 AND recording_id = 1"), 14);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM collective AS c JOIN layer USING (layer_id)"
				    " WHERE collective_id <= 12 AND moe_ordinal = 1 AND bytes = 0 AND"
				    " coalesce(n_ranks, name_id, algorithm_id, protocol_id, n_channels)"
				    " IS NULL"), 6);
	ck_assert_str_eq(db_text(db, "SELECT group_concat(coalesce(bytes, '-') || ' ' || n_ranks || ' ' ||"
				     " n.value || ' ' || a.value || ' ' || p.value || ' ' || n_channels)"
				     " FROM collective JOIN string AS n ON n.string_id = name_id JOIN string"
				     " AS a ON a.string_id = algorithm_id JOIN string AS p ON p.string_id ="
				     " protocol_id"),
			 "4096 8 world ring LL128 4,- 8 world ring LL128 4");
	ck_assert_int_eq(db_stat(db, 1, "recorded_collectives"), 14);
	ck_assert_int_eq(db_stat(db, 1, "misuse"), 0);
	db_close(db);
}
END_TEST

/* Each of these is refused alone; and nothing is kept where only totals are. */
START_TEST(test_misuse)
{
	struct toy toy = toy_start("misuse.db", NULL, N_LAYERS, N_EXPERTS, TOP_K);
	struct moetrace_collective right = collective(0, 0), wrong[12];
	const struct moetrace_collective before = right;
	uint32_t kernel = 0;
	struct moetrace_pass *pass;
	sqlite3 *db;

	ck_assert_int_eq(moetrace_kernel_name_add(toy.session, "k", 0, 0, &kernel), MOETRACE_OK);
	pass = begin(&toy);
	suite_sleep_ms(1);
	right = collective(0, 0);
	for (int i = 0; i < 12; i++)
		wrong[i] = right;
	wrong[0].size = 0;
	wrong[1].size = offsetof(struct moetrace_collective, n_channels);
	wrong[2].kind = MOETRACE_COLLECTIVE_COMBINE + 1;
	wrong[3].layer_index = N_LAYERS;
	wrong[4].end_ns = wrong[4].start_ns - 1;
	wrong[5].end_ns += UINT64_C(1000000000000);
	wrong[6].start_ns = 1;
	wrong[7].bytes = UINT64_C(1) << 63;
	wrong[8].name = kernel;
	wrong[9].algorithm = 99;
	wrong[10].protocol = UINT32_MAX;
	/* It was over when the pass began; one that was waited for may have begun as early. */
	wrong[11] = before;
	for (int i = 0; i < 12; i++)
		moetrace_pass_collective(pass, &wrong[i]);
	moetrace_pass_collective(pass, NULL);
	right.start_ns = before.start_ns;
	moetrace_pass_collective(pass, &right);
	toy_finish(&toy, pass, 1);
	toy_close(&toy);
	db = db_open(toy.path);
	agree_check(db);
	ck_assert_int_eq(db_stat(db, 1, "misuse"), 13);
	ck_assert_int_eq(db_stat(db, 1, "recorded_collectives"), 1);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM collective JOIN pass USING (pass_id) WHERE"
				    " start_ns < begin_ns AND collective.end_ns > begin_ns"), 1);
	db_close(db);
}
END_TEST

/* What does not fit is counted one by one, and the pass stays what it is. */
START_TEST(test_loss)
{
	struct moetrace_session_opts opts = toy_opts();
	struct moetrace_pass *pass;
	sqlite3 *db, *other;
	struct toy toy;
	int64_t n_lost;

	opts.ring_bytes = 65536;
	toy = toy_start("loss.db", &opts, N_LAYERS, N_EXPERTS, TOP_K);
	/* While another program writes, the writer takes nothing. */
	ck_assert_int_eq(sqlite3_open(toy.path, &other), SQLITE_OK);
	sqlite3_busy_timeout(other, 60000);
	ck_assert_int_eq(sqlite3_exec(other, "BEGIN IMMEDIATE", NULL, NULL, NULL), SQLITE_OK);
	pass = begin(&toy);
	suite_sleep_ms(1);
	for (int i = 0; i < 5000; i++) {
		const struct moetrace_collective told = collective(1, 0);

		moetrace_pass_collective(pass, &told);
	}
	ck_assert_int_eq(sqlite3_exec(other, "ROLLBACK", NULL, NULL, NULL), SQLITE_OK);
	ck_assert_int_eq(sqlite3_close(other), SQLITE_OK);
	/* Then the layers find room. */
	ck_assert_int_eq(moetrace_flush(toy.session), MOETRACE_OK);
	toy_finish(&toy, pass, 1);
	toy_close(&toy);
	agree_prove(toy.path);
	db = db_open(toy.path);
	n_lost = db_stat(db, 1, "dropped_collectives");
	ck_assert_int_gt(n_lost, 0);
	ck_assert_int_eq(db_stat(db, 1, "recorded_collectives") + n_lost, 5000);
	ck_assert_int_eq(db_int(db, "SELECT sum(n_lost) FROM gap WHERE stream = 'collective'"), n_lost);
	ck_assert_str_eq(db_text(db, "SELECT verdict FROM pass"), "complete");
	db_close(db);
}
END_TEST

/* ---- ranges at the end of a recording ---- */

struct stepper {
	struct moetrace_session *session;
	uint32_t name;
	_Atomic int is_done;
	_Atomic uint32_t n_rounds;
};

static void *step(void *argument)
{
	struct stepper *stepper = argument;
	struct moetrace_range range;

	while (!atomic_load(&stepper->is_done)) {
		for (int i = 0; i < 20; i++) {
			moetrace_range_push(stepper->session, stepper->name, &range);
			moetrace_range_pop(stepper->session, &range);
		}
		stepper->n_rounds++;
		suite_sleep_ms(1);
	}
	return NULL;
}

/* Until some rounds both began and ended, however slow the machine is. */
static void rounds_wait(const struct stepper *stepper)
{
	const uint32_t from = stepper->n_rounds;

	WAIT_UNTIL(stepper->n_rounds - from >= 10);
}

/* None begins after the end of its recording, though they go on while it ends. */
START_TEST(test_ranges_rotate)
{
	struct toy toy = toy_start("part0.db", NULL, N_LAYERS, N_EXPERTS, TOP_K);
	struct stepper stepper = { .session = toy.session, .name = name_of(&toy, "step") };
	char paths[6][1024], name[32];
	pthread_t thread;
	sqlite3 *db;

	snprintf(paths[0], sizeof(paths[0]), "%s", toy.path);
	ck_assert_int_eq(pthread_create(&thread, NULL, step, &stepper), 0);
	for (int i = 1; i < 6; i++) {
		rounds_wait(&stepper);
		snprintf(name, sizeof(name), "part%d.db", i);
		snprintf(paths[i], sizeof(paths[i]), "%s", suite_path(name));
		ck_assert_int_eq(moetrace_rotate(toy.session, paths[i]), MOETRACE_OK);
	}
	rounds_wait(&stepper);
	atomic_store(&stepper.is_done, 1);
	pthread_join(thread, NULL);
	toy_close(&toy);
	for (int i = 0; i < 6; i++) {
		db = db_open(paths[i]);
		ck_assert_int_eq(db_int(db, "SELECT count(*) FROM range JOIN recording AS r USING"
					    " (recording_id) WHERE range.end_ns NOT BETWEEN r.start_ns AND"
					    " r.end_ns"), 0);
		ck_assert_int_eq(db_int(db, "SELECT count(*) > 10 FROM range"), 1);
		db_close(db);
	}
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("collective");
	TCase *tests = tcase_create("collective");

	tcase_set_timeout(tests, 60);
	tcase_add_loop_test(tests, test_told, 0, 2);
	tcase_add_test(tests, test_misuse);
	tcase_add_test(tests, test_loss);
	tcase_add_test(tests, test_ranges_rotate);
	suite_add_tcase(suite, tests);
	return suite_run(suite);
}
