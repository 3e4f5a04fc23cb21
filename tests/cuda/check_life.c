/* SPDX-License-Identifier: MIT */
/*
 * Lanes, host threads, the GPUs' pace and whoever steers the session do at random what they can do at
 * any time; each seed is a session of its own. Afterwards each pass that has begun while something
 * was recorded is in a file, in its own recording, or is counted as lost or let go: exactly so many.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "libtrace/cuda/capture.h"
#include "tests/cuda/support/gpu_toy.h"
#include "tests/unit/support/agree.h"
#include "tests/unit/support/db.h"
#include "tests/unit/support/suite.h"

#define N_LANES	  3
#define N_HOSTS	  2
#define N_LAYERS  4
#define N_PASSES  20000
#define MAX_FILES 1000
/* It takes a process each. */
#define MOST_PROVED 4
/* Of the passes that were refused a place. */
#define REFUSED UINT32_MAX

enum kind { PATIENT, HASTY, FLIGHT, N_KINDS };

struct life {
	struct gpu gpus[N_LANES]; /* the last of them on a second device */
	uint32_t kind;
	uint32_t seed;
	_Atomic uint32_t n_passes;
	uint32_t fates[N_PASSES]; /* [number of the pass] its recording; 0: none was on */
	uint8_t is_host[N_PASSES];
	uint8_t is_seen[N_PASSES];
	_Atomic uint64_t n_unplaced; /* of the host: none was on, or there was no room */
	_Atomic int is_over;
	uint64_t n_cut_off; /* calls that gave up passes */
	uint64_t n_stored[2], n_lost[2], n_let_go, n_unstored[2];
};

struct actor {
	struct life *life;
	uint32_t index;
	uint64_t state;
	pthread_t thread;
};

static uint32_t draw(struct actor *actor, uint32_t n)
{
	actor->state = actor->state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
	return (uint32_t)(actor->state >> 33) % n;
}

static void rest(struct actor *actor, uint32_t most_us)
{
	const struct timespec pause = {0, (long)draw(actor, most_us) * 1000};

	nanosleep(&pause, NULL);
}

/* Now and then a prefill that goes to the host in groups of layers. */
static uint32_t draw_rows(struct actor *actor)
{
	return draw(actor, 32) ? 1 + draw(actor, 8) * draw(actor, 40) : 3000;
}

/* The number of the next pass; N_PASSES: there were enough. */
static uint32_t next_number(struct life *life)
{
	const uint32_t number = atomic_fetch_add(&life->n_passes, 1);

	return number < N_PASSES ? number : N_PASSES;
}

static void *drive_lane(void *argument)
{
	struct actor *actor = argument;
	struct life *life = actor->life;
	struct gpu *gpu = &life->gpus[actor->index];
	uint32_t number;

	while (!atomic_load(&life->is_over) && (number = next_number(life)) < N_PASSES) {
		const uint32_t n_rows = draw_rows(actor);
		const uint64_t runtime_pass = number;
		struct moetrace_slice slice;
		struct moetrace_pass_info info =
			gpu_info(gpu, &slice, MOETRACE_NO_REQUEST, 0, n_rows, 0);
		int status;

		info.runtime_pass = &runtime_pass;
		status = moetrace_cuda_pass_begin(gpu->lane, &info);
		if (gpu->lane->record)
			life->fates[number] = gpu->lane->record->start.recording_id;
		else if (status)
			life->fates[number] = REFUSED;
		for (uint32_t i = 0; i < N_LAYERS; i++) {
			moetrace_cuda_pass_layers(gpu->lane, i);
			gpu_route(gpu, gpu->lane, gpu->stream, i, n_rows, n_rows);
		}
		moetrace_cuda_pass_end(gpu->lane);
		rest(actor, 1500);
	}
	return NULL;
}

static void *drive_host(void *argument)
{
	struct actor *actor = argument;
	struct life *life = actor->life;
	struct toy *toy = &life->gpus[0].toy;
	uint32_t number;

	while (!atomic_load(&life->is_over) && (number = next_number(life)) < N_PASSES) {
		const uint32_t n_rows = 1 + draw(actor, 8);
		const uint64_t runtime_pass = number;
		struct moetrace_slice slice;
		struct moetrace_pass_info info =
			gpu_info(&life->gpus[0], &slice, MOETRACE_NO_REQUEST, 0, n_rows, 0);
		struct moetrace_pass *pass;

		info.runtime_pass = &runtime_pass;
		life->is_host[number] = 1;
		pass = moetrace_pass_begin(toy->session, &info);
		if (pass)
			life->fates[number] = atomic_load(&pass->recording_id);
		else
			atomic_fetch_add(&life->n_unplaced, 1);
		toy_finish(toy, pass, n_rows);
		rest(actor, 1000);
	}
	return NULL;
}

/* The GPUs' pace. */
static void *drive_gpus(void *argument)
{
	struct actor *actor = argument;
	struct life *life = actor->life;
	const struct fake_api *fake = life->gpus[0].fake;

	while (!atomic_load(&life->is_over)) {
		void *stream = life->gpus[draw(actor, N_LANES)].stream;

		fake->delay(draw(actor, 2) * draw(actor, 200));
		fake->hold_one(stream, draw(actor, 2));
		rest(actor, 5000);
		if (draw(actor, 2))
			for (uint32_t i = 0; i < N_LANES; i++)
				fake->hold_one(life->gpus[i].stream, false);
	}
	fake->delay(0);
	for (uint32_t i = 0; i < N_LANES; i++)
		fake->hold_one(life->gpus[i].stream, false);
	return NULL;
}

/* Requests of no pass, whose ends wait for the passes before them. */
static void *drive_requests(void *argument)
{
	struct actor *actor = argument;
	struct moetrace_session *session = actor->life->gpus[0].toy.session;
	struct moetrace_request_info info;

	MOETRACE_INIT(&info);
	while (!atomic_load(&actor->life->is_over)) {
		uint64_t request;

		REQUIRE(moetrace_request_begin(session, &info, &request) == MOETRACE_OK,
			"a request does not begin");
		rest(actor, 3000);
		REQUIRE(moetrace_request_end(session, request, MOETRACE_REQUEST_FINISHED, 0) ==
				MOETRACE_OK,
			"a request does not end");
	}
	return NULL;
}

static int start(struct life *life)
{
	struct moetrace_recording_opts opts;

	MOETRACE_INIT(&opts);
	opts.flight_bytes = life->kind == FLIGHT ? UINT64_C(1) << 20 : 0;
	return moetrace_start(life->gpus[0].toy.session, &opts);
}

static int act(struct actor *actor)
{
	struct moetrace_session *session = actor->life->gpus[0].toy.session;
	struct moetrace_dump_result result;

	MOETRACE_INIT(&result);
	switch (draw(actor, 8)) {
	case 0:
		return moetrace_stop(session, NULL);
	case 1:
	case 2:
		return start(actor->life);
	case 3:
		return moetrace_rotate(session, NULL);
	case 4:
		return moetrace_flush(session);
	case 5:
		return moetrace_flight_trigger(session, "random");
	case 6:
		return moetrace_dump(session, &result);
	default:
		(void)toy_status(&actor->life->gpus[0].toy);
		return MOETRACE_OK;
	}
}

static void steer(struct actor *actor, uint64_t until_ns)
{
	struct life *life = actor->life;

	while (suite_now_ns() < until_ns && atomic_load(&life->n_passes) < N_PASSES) {
		const int status = act(actor);

		life->n_cut_off += status == MOETRACE_E_TIMEOUT;
		REQUIRE(status == MOETRACE_OK || status == MOETRACE_E_STATE ||
				status == MOETRACE_E_NOT_FOUND ||
				(status == MOETRACE_E_TIMEOUT && life->kind != PATIENT),
			"seed %u: status %d", life->seed, status);
		rest(actor, 8000);
	}
}

/* ---- what became of them ---- */

static void find_passes(struct life *life, sqlite3 *db, const char *path)
{
	sqlite3_stmt *stmt = db_query(db, "SELECT runtime_pass, recording_id FROM pass");

	while (db_step(stmt)) {
		const uint32_t number = (uint32_t)sqlite3_column_int64(stmt, 0);
		const uint32_t recording_id = (uint32_t)sqlite3_column_int64(stmt, 1);

		REQUIRE(number < N_PASSES, "%s: pass %u was never begun", path, number);
		REQUIRE(!life->is_seen[number], "seed %u: %s: pass %u is there twice", life->seed,
			path, number);
		REQUIRE(life->fates[number] == recording_id,
			"seed %u: %s: pass %u of recording %u is in %u", life->seed, path, number,
			life->fates[number], recording_id);
		life->is_seen[number] = 1;
		life->n_stored[life->is_host[number]]++;
	}
	sqlite3_finalize(stmt);
}

static void read_file(struct life *life, const char *path)
{
	sqlite3 *db = db_open(path);

	agree_check(db);
	find_passes(life, db, path);
	life->n_lost[0] += (uint64_t)db_int(db, "SELECT ifnull(sum(n_lost), 0) FROM gap WHERE stream"
						" = 'pass' AND reason IN ('device', 'device_ring_full')");
	life->n_lost[1] += (uint64_t)db_int(db, "SELECT ifnull(sum(n_lost), 0) FROM gap WHERE stream"
						" = 'pass' AND reason IN ('no_ring', 'ring_full')");
	REQUIRE(db_int(db, "SELECT ifnull(sum(value), 0) FROM stats WHERE name = 'dropped_passes'") ==
			db_int(db, "SELECT ifnull(sum(n_lost), 0) FROM gap WHERE stream = 'pass' AND"
				   " reason != 'stop_timeout'"),
		"seed %u: %s: gaps and stats differ", life->seed, path);
	life->n_let_go += (uint64_t)db_int(db, "SELECT ifnull(sum(value), 0) FROM stats WHERE name ="
					       " 'flight_let_go_passes'");
	db_close(db);
}

static uint32_t read_files(struct life *life)
{
	const char *base = life->gpus[0].toy.path;
	char path[1024];
	uint32_t n = 0;

	snprintf(path, sizeof(path), "%s", base);
	while (n < MAX_FILES && access(path, F_OK) == 0) {
		read_file(life, path);
		if (n < MOST_PROVED)
			agree_prove(path);
		n++;
		snprintf(path, sizeof(path), "%.*s.%u.db", (int)(strlen(base) - 3), base, n);
	}
	return n;
}

static void judge(struct life *life, uint64_t n_device_losses)
{
	const uint32_t n = life->n_passes < N_PASSES ? life->n_passes : N_PASSES;
	uint64_t n_refused = 0;

	for (uint32_t i = 0; i < n; i++) {
		n_refused += life->fates[i] == REFUSED;
		life->n_unstored[life->is_host[i]] += life->fates[i] && !life->is_seen[i];
	}
	fprintf(stderr,
		"seed %u kind %u: %u passes, stored %lu %lu, unstored %lu %lu, refused %lu, lost %lu"
		" %lu, let go %lu, device losses %lu, cut off %lu\n",
		life->seed, life->kind, n, life->n_stored[0], life->n_stored[1], life->n_unstored[0],
		life->n_unstored[1], n_refused, life->n_lost[0], life->n_lost[1], life->n_let_go,
		n_device_losses, life->n_cut_off);
	REQUIRE(life->n_lost[1] <= life->n_unplaced, "seed %u: losses of the host", life->seed);
	if (life->kind == HASTY)
		REQUIRE(life->n_lost[0] == life->n_unstored[0], "seed %u: %lu passes, %lu losses",
			life->seed, life->n_unstored[0], life->n_lost[0]);
	if (life->kind == PATIENT)
		REQUIRE(life->n_unstored[0] == life->n_lost[0] && n_device_losses == life->n_lost[0],
			"seed %u: %lu passes, %lu losses, told %lu", life->seed, life->n_unstored[0],
			life->n_lost[0], n_device_losses);
	if (life->kind == PATIENT)
		REQUIRE(!life->n_unstored[1], "seed %u: %lu passes of the host", life->seed,
			life->n_unstored[1]);
	/* In flight mode losses are let go, too. */
	REQUIRE(life->n_unstored[0] <= n_device_losses + life->n_let_go &&
			life->n_unstored[0] + life->n_unstored[1] >= life->n_lost[0] + life->n_let_go,
		"seed %u: of flight mode", life->seed);
}

static void open_session(struct life *life)
{
	static const uint32_t ordinal = 1;
	struct moetrace_session_opts opts = toy_opts();
	struct moetrace_cuda_opts cuda_opts;

	opts.stop_timeout_ms = life->kind == HASTY ? 1 + life->seed % 7 : 60000;
	/* Passes after a switch may be in as many rings as there are threads. */
	opts.n_rings = 16;
	opts.rotate_ns = life->seed % 2 ? 15000000 : 0;
	life->gpus[0] = gpu_open_idle("life.db", &opts, N_LAYERS, 16, 4,
				      UINT64_C(1) << 20);
	life->gpus[1] = life->gpus[0];
	life->gpus[1].lane = gpu_lane(&life->gpus[1], &life->gpus[1].stream);
	life->gpus[2] = life->gpus[0];
	MOETRACE_INIT(&cuda_opts);
	cuda_opts.ordinal = &ordinal;
	cuda_opts.ring_bytes = UINT64_C(1) << 20;
	ck_assert_int_eq(moetrace_cuda_attach(life->gpus[0].toy.session, &cuda_opts,
					      &life->gpus[2].cuda),
			 MOETRACE_OK);
	life->gpus[2].lane = gpu_lane(&life->gpus[2], &life->gpus[2].stream);
}

static void live(uint32_t seed, uint32_t kind, uint32_t duration_ms)
{
	void *(*const runs[])(void *) = {drive_lane, drive_lane, drive_lane,   drive_host,
					 drive_host, drive_gpus, drive_requests};
	struct actor actors[sizeof(runs) / sizeof(runs[0])];
	struct life *life = calloc(1, sizeof(*life));
	struct actor control = {.life = life, .state = seed};
	uint64_t n_losses = 0;

	REQUIRE(life, "out of memory");
	life->seed = seed;
	life->kind = kind;
	open_session(life);
	for (uint32_t i = 0; i < sizeof(runs) / sizeof(runs[0]); i++) {
		actors[i] = (struct actor){.life = life, .index = i, .state = seed * 100 + i};
		ck_assert_int_eq(pthread_create(&actors[i].thread, NULL, runs[i], &actors[i]), 0);
	}
	steer(&control, suite_now_ns() + duration_ms * UINT64_C(1000000));
	atomic_store(&life->is_over, 1);
	for (uint32_t i = 0; i < sizeof(runs) / sizeof(runs[0]); i++)
		pthread_join(actors[i].thread, NULL);
	(void)moetrace_stop(life->gpus[0].toy.session, NULL);
	for (uint32_t i = 0; i < N_LANES; i += 2) {
		const struct moetrace_cuda_status status = gpu_status(&life->gpus[i]);

		n_losses += status.lost_passes + status.refused_passes;
	}
	toy_close(&life->gpus[0].toy);
	(void)read_files(life);
	judge(life, n_losses);
	free(life);
}

START_TEST(test_life)
{
	const char *text = getenv("MOETRACE_LIFE_SEED");
	const uint32_t first = text ? (uint32_t)atoi(text) : (uint32_t)suite_now_ns() % 1000000;

	live(first + (uint32_t)_i, (uint32_t)_i % N_KINDS, suite_is_long() ? 5000 : 250);
}
END_TEST

static Suite *make_suite(void)
{
	Suite *suite = suite_create("life");
	TCase *tc = tcase_create("life");
	const char *text = getenv("MOETRACE_LIFE_N");

	tcase_set_timeout(tc, 300);
	tcase_add_loop_test(tc, test_life, 0, text ? atoi(text) : (int)N_KINDS);
	suite_add_tcase(suite, tc);
	return suite;
}

int main(void)
{
	/* What a random life finds becomes a case of its own elsewhere; those run always. */
	if (!suite_is_long() && !getenv("MOETRACE_LIFE_SEED")) {
		puts("SKIP: random lives belong to the long tier; MOETRACE_LIFE_SEED=N runs some");
		return 77;
	}
	return suite_run(make_suite());
}
