/* SPDX-License-Identifier: MIT */
/*
 * The session's side of measuring what recording costs: which passes are left out, who may ask,
 * and that everything is as before when the one who measured has gone, however.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "libtrace/overhead.h"
#include "tests/control/support/line_peer.h"
#include "tests/unit/support/db.h"
#include "tests/unit/support/suite.h"
#include "tests/unit/support/toy.h"

enum { N_THREADS = 3 };

struct load;

struct worker {
	struct load *load;
	pthread_t thread;
	atomic_uint n_passes; /* recorded, or left out, and counted */
};

struct load {
	struct toy toy;
	atomic_bool stop;
	atomic_uint n_recorded;
	atomic_uint n_left_out;
	struct worker workers[N_THREADS];
	char folder[256];
};

static void *load_main(void *argument)
{
	struct worker *worker = argument;
	struct load *load = worker->load;

	while (!load->stop) {
		usleep(300);
		if (toy_pass(&load->toy, MOETRACE_PHASE_DUMMY, MOETRACE_NO_REQUEST, 0, 3))
			load->n_recorded++;
		else
			load->n_left_out++;
		worker->n_passes++;
	}
	return NULL;
}

static void load_begin(struct load *load, const char *name)
{
	struct moetrace_session_opts opts = toy_opts();

	/* The writer may have to wait for a processor that these threads have. */
	opts.ring_bytes = UINT64_C(16) << 20;
	snprintf(load->folder, sizeof(load->folder), "%s", line_peer_folder());
	load->toy = toy_start(name, &opts, 2, 64, 4);
	load->stop = false;
	load->n_recorded = 0;
	load->n_left_out = 0;
	for (uint32_t i = 0; i < N_THREADS; i++) {
		struct worker *worker = &load->workers[i];

		worker->load = load;
		worker->n_passes = 0;
		ck_assert_int_eq(pthread_create(&worker->thread, NULL, load_main, worker), 0);
	}
}

/* Every pass is in the file, as it was: recorded, or left out. */
static void load_end(struct load *load)
{
	sqlite3 *db;

	load->stop = true;
	for (uint32_t i = 0; i < N_THREADS; i++)
		ck_assert_int_eq(pthread_join(load->workers[i].thread, NULL), 0);
	db = toy_close_and_open(&load->toy);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM pass WHERE verdict = 'complete'"),
			 load->n_recorded);
	ck_assert_int_ge(db_int(db, "SELECT count(*) FROM diagnostic WHERE message LIKE 'the cost of%%'"), 1);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM gap"), 0);
	db_close(db);
}

/* Until @n more passes were recorded, or left out. */
static void wait_for(const atomic_uint *count, uint32_t n)
{
	uint32_t before = *count;

	WAIT_UNTIL(*count - before >= n);
}

static void wait_until_given_back(struct load *load)
{
	uint32_t n_left_out;

	WAIT_UNTIL(!atomic_load(&load->toy.session->overhead));
	ck_assert_uint_eq(atomic_load(&load->toy.session->n_measuring), 0);
	/* A pass of each thread may have begun before, and wait to be counted. */
	for (uint32_t i = 0; i < N_THREADS; i++)
		wait_for(&load->workers[i].n_passes, 2);
	n_left_out = load->n_left_out;
	wait_for(&load->n_recorded, 50);
	ck_assert_uint_eq(load->n_left_out, n_left_out);
}

/*
 * Which blocks a sample lies in, from what the session says of them. Returns whether there were
 * passes enough for each block to have some.
 */
static bool blocks_have_passes(const struct load *load, int fd, uint32_t block_ms)
{
	const uint64_t length_ns = block_ms * UINT64_C(1000000);
	uint64_t start_ns, last_ns = 0;
	unsigned long long n_samples = 0;
	char line[64];
	const char *at;

	snprintf(line, sizeof(line), "overhead pairs=2 block_ms=%u", block_ms);
	at = strstr(line_peer_say(fd, line), "start_ns ");
	ck_assert_ptr_nonnull(at);
	start_ns = strtoull(at + 9, NULL, 10);
	suite_sleep_ms(4 * block_ms + 10);
	for (at = strstr(line_peer_say(fd, "samples"), "sample "); at; at = strstr(at, "sample ")) {
		unsigned long long time_ns;
		unsigned int model, phase, n_rows;

		REQUIRE(sscanf(at, "sample %llu %u %u %u", &time_ns, &model, &phase, &n_rows) == 4,
			"'%.60s'", at);
		REQUIRE(time_ns >= start_ns && time_ns < start_ns + 4 * length_ns, "%llu", time_ns);
		REQUIRE(model == 1 && phase == MOETRACE_PHASE_DUMMY && n_rows == 3, "%.60s", at);
		last_ns = time_ns > last_ns ? time_ns : last_ns;
		n_samples++;
		at++;
	}
	/* The last block is over: all is recorded, although the peer is still there. */
	ck_assert_ptr_nonnull(atomic_load(&load->toy.session->overhead));
	return n_samples >= 40 && last_ns > start_ns + 3 * length_ns;
}

/* Blocks that are long enough for the machine. */
START_TEST(test_blocks)
{
	uint32_t block_ms = 40;
	bool is_done = false;
	struct load load;

	load_begin(&load, "blocks.db");
	for (; !is_done; block_ms *= 2) {
		int fd = line_peer_connect(load.folder);

		is_done = blocks_have_passes(&load, fd, block_ms);
		wait_for(&load.n_recorded, 50);
		close(fd);
		wait_until_given_back(&load);
	}
	ck_assert_uint_gt(load.n_left_out, 0);
	load_end(&load);
}
END_TEST

/* The peer goes in the middle, or ends its session, or the recording is stopped. */
START_TEST(test_peer_goes)
{
	struct load load;
	int fd;

	load_begin(&load, "gone.db");
	fd = line_peer_connect(load.folder);
	ck_assert_ptr_nonnull(strstr(line_peer_say(fd, "overhead pairs=500 block_ms=60000"), "ok\n"));
	wait_for(&load.n_left_out, 10);
	if (_i == 0) {
		/* Half a line, and away. */
		line_peer_send(fd, "samp", 4);
	} else if (_i == 1) {
		ck_assert_int_eq(moetrace_stop(load.toy.session, NULL), MOETRACE_OK);
		ck_assert_ptr_nonnull(strstr(line_peer_say(fd, "samples"), "state idle\n"));
		ck_assert_int_eq(moetrace_start(load.toy.session, NULL), MOETRACE_OK);
	}
	close(fd);
	wait_until_given_back(&load);
	load_end(&load);
}
END_TEST

/* The session is closed while somebody measures. */
START_TEST(test_session_closes)
{
	const char *folder = line_peer_folder();
	struct toy toy = toy_start("closes.db", NULL, 2, 64, 4);
	int fd = line_peer_connect(folder);

	ck_assert_ptr_nonnull(strstr(line_peer_say(fd, "overhead"), "ok\n"));
	ck_assert(!toy_pass(&toy, MOETRACE_PHASE_DUMMY, MOETRACE_NO_REQUEST, 0, 3));
	toy_close(&toy);
	ck_assert_str_eq(line_peer_read(fd), "");
	close(fd);
}
END_TEST

/* One measurement at a time, of a recording, with numbers that make sense. */
START_TEST(test_refusals)
{
	static const char *const wrong[] = {"overhead pairs=0", "overhead pairs=1001",
					    "overhead pairs=x", "overhead block_ms=19",
					    "overhead block_ms=60001",
					    "overhead block_ms=18446744073709551617",
					    "overhead pairs=\"\"", "overhead colour=red"};
	const char *folder = line_peer_folder();
	struct toy toy = toy_open("refused.db", NULL, 2, 64, 4);
	int first = line_peer_connect(folder);
	int second = line_peer_connect(folder);

	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
		ck_assert_msg(!strncmp(line_peer_say(first, wrong[i]), "error E_INVALID", 15), "%s",
			      wrong[i]);
	ck_assert_int_eq(strncmp(line_peer_say(first, "overhead"), "error E_STATE", 13), 0);
	ck_assert_int_eq(strncmp(line_peer_say(first, "samples"), "error E_STATE", 13), 0);
	ck_assert_int_eq(moetrace_start(toy.session, NULL), MOETRACE_OK);
	ck_assert_ptr_nonnull(strstr(line_peer_say(first, "overhead"), "ok\n"));
	ck_assert_int_eq(strncmp(line_peer_say(first, "overhead"), "error E_STATE", 13), 0);
	ck_assert_int_eq(strncmp(line_peer_say(second, "overhead"), "error E_STATE", 13), 0);
	ck_assert_int_eq(strncmp(line_peer_say(second, "samples"), "error E_STATE", 13), 0);
	/* Another peer's going changes nothing. */
	close(second);
	ck_assert(!toy_pass(&toy, MOETRACE_PHASE_DUMMY, MOETRACE_NO_REQUEST, 0, 3));
	close(first);
	toy_close(&toy);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("overhead");
	TCase *overhead = tcase_create("overhead");

	tcase_add_test(overhead, test_blocks);
	tcase_add_loop_test(overhead, test_peer_goes, 0, 3);
	tcase_add_test(overhead, test_session_closes);
	tcase_add_test(overhead, test_refusals);
	suite_add_tcase(suite, overhead);
	return suite_run(suite);
}
