/* SPDX-License-Identifier: MIT */
/*
 * Captured graphs that are replayed for long on a real GPU: all of their passes reach a memory sink
 * back to back, and SQLite at ten million assignments a second, to the bit what a copy of the
 * routers' own outputs gives; and where the ring is too small each pass is recorded or counted, none
 * both, none neither. Skipped without a GPU.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tests/cuda/support/caller.h"
#include "tests/cuda/support/gpu.h"
#include "tests/cuda/support/graph.h"
#include "tests/cuda/support/kept.h"
#include "tests/unit/support/db.h"
#include "tests/unit/support/suite.h"
#include "tests/unit/support/toy.h"

enum {
	N_LAYERS = 58,
	N_REPLAYS = 10000, /* where the promise is about that many */
	N_SOME = 2000,	   /* of each way to hand over; N_REPLAYS in the long tier */
	BESIDE = 1000000,  /* runtime's numbers of the second stream begin here */
};
#define MAX_ASSIGNMENTS_PER_S 10e6

struct rig {
	struct toy toy;
	struct moetrace_cuda *cuda;
	struct moetrace_cuda_lane *lane;
	void *stream;
	struct kept kept;
	struct moetrace_cuda_target targets[N_LAYERS];
	uint8_t *is_begun; /* [n_replays] */
};

static void add_lane(struct rig *rig)
{
	rig->stream = graph_stream_new();
	rig->lane = gpu_lane_add(rig->cuda, rig->toy.model, rig->stream, N_LAYERS,
				 rig->kept.n_rows, rig->targets);
}

static void init_kept(struct rig *rig, uint32_t n_rows, uint32_t n_replays, uint64_t first_number)
{
	rig->is_begun = calloc(n_replays, 1);
	REQUIRE(rig->is_begun, "out of memory");
	rig->kept = (struct kept){
		.buffers = graph_buffers_new(N_LAYERS, n_rows, n_replays),
		.n_layers = N_LAYERS,
		.n_rows = n_rows,
		.first_number = first_number,
		.n_replays = n_replays,
		.is_wanted = rig->is_begun,
	};
}

static struct rig open_rig(const char *name, uint64_t flight_bytes, uint64_t ring_bytes,
			   uint32_t n_rows, uint32_t n_replays)
{
	struct moetrace_session_opts opts = toy_opts();
	struct moetrace_recording_opts recording;
	struct rig rig;

	memset(&rig, 0, sizeof(rig));
	gpu_open();
	opts.commit_interval_ms = 100;
	rig.toy = toy_open(name, &opts, N_LAYERS, GRAPH_EXPERTS, GRAPH_TOP_K);
	MOETRACE_INIT(&recording);
	recording.flight_bytes = flight_bytes;
	ck_assert_int_eq(moetrace_start(rig.toy.session, &recording), MOETRACE_OK);
	init_kept(&rig, n_rows, n_replays, 0);
	rig.cuda = gpu_attach(rig.toy.session, ring_bytes);
	add_lane(&rig);
	return rig;
}

static struct moetrace_cuda_status status_of(const struct rig *rig)
{
	struct moetrace_cuda_status status;

	MOETRACE_INIT(&status);
	ck_assert_int_eq(moetrace_cuda_query(rig->cuda, &status), MOETRACE_OK);
	return status;
}

/* Whether the pass has a place is told at once; the recorder's number of it is 0 if it has none. */
static int begin(struct rig *rig, uint32_t i)
{
	const uint64_t number = rig->kept.first_number + i;
	struct moetrace_pass_info info;
	int status;

	MOETRACE_INIT(&info);
	info.model = rig->toy.model;
	info.phase = MOETRACE_PHASE_DECODE;
	info.n_rows = rig->kept.n_rows;
	info.runtime_pass = &number;
	status = moetrace_cuda_pass_begin(rig->lane, &info);
	rig->is_begun[i] = moetrace_cuda_pass_number(rig->lane) != 0;
	return status;
}

static void end(struct rig *rig, uint32_t i)
{
	REQUIRE(moetrace_cuda_pass_end(rig->lane) == MOETRACE_OK, "the end of pass %u", i);
	graph_keep(rig->kept.buffers, i, rig->stream);
}

static void replay(struct rig *rig, struct graph *graph, uint32_t i)
{
	REQUIRE(begin(rig, i) == MOETRACE_OK, "the begin of pass %u", i);
	graph_launch(graph, rig->stream);
	end(rig, i);
}

static double seconds_since(uint64_t from_ns)
{
	return (double)(suite_now_ns() - from_ns) / 1e9;
}

static void say(const struct rig *rig, const char *what, uint64_t from_ns)
{
	const struct moetrace_cuda_status status = status_of(rig);
	const double seconds = seconds_since(from_ns);

	printf("%s: %u replays of %u rows in %.2f s, %.1f M assignments/s, ring up to %.1f of %.1f"
	       " MiB\n",
	       what, rig->kept.n_replays, rig->kept.n_rows, seconds,
	       rig->kept.n_replays * (double)rig->kept.n_rows * N_LAYERS * GRAPH_TOP_K / seconds / 1e6,
	       (double)status.ring_peak_bytes / 1048576.0, (double)status.ring_bytes / 1048576.0);
	fflush(stdout);
}

START_TEST(test_memory_sink)
{
	struct rig rig = open_rig("memory.db", UINT64_C(1) << 30, 0, 16, N_REPLAYS);
	struct graph *graph =
		graph_new(rig.kept.buffers, rig.stream, 0, N_LAYERS, rig.targets, NULL, NULL);
	const uint64_t from_ns = suite_now_ns();
	struct moetrace_session_status status;
	struct moetrace_dump_result dump;
	sqlite3 *db;

	for (uint32_t i = 0; i < N_REPLAYS; i++)
		replay(&rig, graph, i);
	graph_stream_wait(rig.stream);
	say(&rig, "memory sink", from_ns);
	ck_assert_int_eq(moetrace_flush(rig.toy.session), MOETRACE_OK);
	status = toy_status(&rig.toy);
	ck_assert_uint_eq(status.flight_passes, N_REPLAYS);
	ck_assert_uint_eq(status.dropped_passes, 0);
	MOETRACE_INIT(&dump);
	ck_assert_int_eq(moetrace_dump(rig.toy.session, &dump), MOETRACE_OK);
	toy_close(&rig.toy);
	db = db_open(rig.toy.path);
	rig.kept.is_wanted = NULL;
	ck_assert_uint_eq(kept_compare(db, &rig.kept), N_REPLAYS);
	db_close(db);
}
END_TEST

static void sleep_until(uint64_t until_ns)
{
	const struct timespec until = {(time_t)(until_ns / 1000000000u),
				       (long)(until_ns % 1000000000u)};

	while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL))
		continue;
}

/* Of each thousand replays the last two hundred are outside of any recording. */
START_TEST(test_paced)
{
	struct rig rig = open_rig("paced.db", 0, 0, 16, N_REPLAYS);
	struct graph *graph =
		graph_new(rig.kept.buffers, rig.stream, 0, N_LAYERS, rig.targets, NULL, NULL);
	const double period_ns = 16.0 * N_LAYERS * GRAPH_TOP_K / MAX_ASSIGNMENTS_PER_S * 1e9;
	const uint64_t from_ns = suite_now_ns();
	sqlite3 *db, *copied;

	for (uint32_t i = 0; i < N_REPLAYS; i++) {
		sleep_until(from_ns + (uint64_t)(i * period_ns));
		replay(&rig, graph, i);
		if (i % 1000 == 799)
			ck_assert_int_eq(moetrace_stop(rig.toy.session, NULL), MOETRACE_OK);
		if (i % 1000 == 999)
			ck_assert_int_eq(moetrace_start(rig.toy.session, NULL), MOETRACE_OK);
	}
	say(&rig, "paced", from_ns);
	db = toy_close_and_open(&rig.toy);
	ck_assert_uint_eq(kept_compare(db, &rig.kept), N_REPLAYS / 10 * 8);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM gap"), 0);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM (SELECT recording_id FROM pass"
				    " GROUP BY recording_id HAVING count(*) = 800)"),
			 10);
	copied = kept_record(&rig.kept, "copied.db");
	ck_assert_uint_eq(kept_same_rows(db, copied),
			  UINT64_C(8000) * N_LAYERS * 16 * GRAPH_TOP_K * 3);
	db_close(copied);
	db_close(db);
}
END_TEST

/* Another thread starts and stops: a pass is in the file exactly where its begin said so. */
START_TEST(test_switched)
{
	struct rig rig = open_rig("switched.db", 0, 0, 8, N_SOME);
	struct graph *graph =
		graph_new(rig.kept.buffers, rig.stream, 0, N_LAYERS, rig.targets, NULL, NULL);
	struct switcher switcher = {.session = rig.toy.session, .on_ms = 7, .off_ms = 3};
	uint32_t n;
	sqlite3 *db;

	for (uint32_t i = 0; i < N_SOME; i++) {
		/* The first eighth is recorded; both threads get to their turns, however slow they are. */
		if (i == N_SOME / 8)
			switcher_start(&switcher);
		if (i == N_SOME / 4)
			WAIT_UNTIL(atomic_load(&switcher.has_stopped));
		if (i == N_SOME / 2 || i == N_SOME / 4 * 3)
			WAIT_UNTIL(atomic_load(&switcher.n_starts) >= i / (N_SOME / 4) - 1 ||
				   switcher.status);
		replay(&rig, graph, i);
		if (!rig.is_begun[i])
			atomic_store(&switcher.was_idle, 1);
	}
	ck_assert_int_eq(switcher_end(&switcher), MOETRACE_OK);
	ck_assert_uint_ge(switcher.n_starts, 2);
	db = toy_close_and_open(&rig.toy);
	n = kept_compare(db, &rig.kept);
	printf("switched: %u of %d replays in %u recordings\n", n, N_SOME, switcher.n_starts + 1);
	ck_assert_uint_gt(n, N_SOME / 10);
	ck_assert_uint_lt(n, N_SOME);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM gap"), 0);
	db_close(db);
}
END_TEST

/*
 * A ring that holds seven passes, and a host that does not wait. In a smaller ring a pass would need more
 * than a quarter of it, and be parted into groups, which a graph cannot do.
 */
START_TEST(test_small_ring)
{
	struct rig rig = open_rig("small.db", 0, 2 << 20, 64, N_REPLAYS);
	struct graph *graph =
		graph_new(rig.kept.buffers, rig.stream, 0, N_LAYERS, rig.targets, NULL, NULL);
	const uint64_t from_ns = suite_now_ns();
	struct moetrace_cuda_status status;
	uint32_t n_recorded = 0, n_refused = 0;
	sqlite3 *db;

	for (uint32_t i = 0; i < N_REPLAYS; i++) {
		const int result = begin(&rig, i);

		REQUIRE(result == (rig.is_begun[i] ? MOETRACE_OK : MOETRACE_E_LIMIT),
			"pass %u: status %d", i, result);
		n_recorded += rig.is_begun[i];
		n_refused += result == MOETRACE_E_LIMIT;
		graph_launch(graph, rig.stream);
		end(&rig, i);
	}
	graph_stream_wait(rig.stream);
	say(&rig, "small ring", from_ns);
	printf("small ring: %u recorded, %u dropped\n", n_recorded, n_refused);
	ck_assert_uint_eq(n_recorded + n_refused, N_REPLAYS);
	ck_assert_uint_gt(n_recorded, 0);
	ck_assert_uint_gt(n_refused, 0);
	ck_assert_int_eq(moetrace_flush(rig.toy.session), MOETRACE_OK);
	status = status_of(&rig);
	ck_assert_uint_eq(status.begun_passes, n_recorded);
	ck_assert_uint_eq(status.delivered_passes, n_recorded);
	ck_assert_uint_eq(status.refused_passes, n_refused);
	ck_assert_uint_eq(status.lost_passes, 0);
	db = toy_close_and_open(&rig.toy);
	ck_assert_uint_eq(kept_compare(db, &rig.kept), n_recorded);
	ck_assert_int_eq(db_stat(db, 1, "recorded_passes"), n_recorded);
	ck_assert_int_eq(db_stat(db, 1, "dropped_passes"), n_refused);
	ck_assert_int_eq(
		db_int(db, "SELECT sum(n_lost) FROM gap WHERE reason = 'device_ring_full'"),
		n_refused);
	db_close(db);
}
END_TEST

/* ---- the other ways ---- */

static uint32_t n_some(void)
{
	return suite_is_long() ? N_REPLAYS : N_SOME;
}

/* Passes that may not be lost: the host waits for the device where the ring gets full. */
static void expect_all(struct rig *rig)
{
	sqlite3 *db = toy_close_and_open(&rig->toy);

	rig->kept.is_wanted = NULL;
	ck_assert_uint_eq(kept_compare(db, &rig->kept), rig->kept.n_replays);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM gap"), 0);
	db_close(db);
}

START_TEST(test_two_streams)
{
	struct rig one = open_rig("streams.db", 0, 0, 16, n_some());
	struct rig two = one;
	struct graph *graph, *beside;
	const uint64_t from_ns = suite_now_ns();
	sqlite3 *db;

	init_kept(&two, 5, n_some(), BESIDE);
	add_lane(&two);
	graph = graph_new(one.kept.buffers, one.stream, 0, N_LAYERS, one.targets, NULL, NULL);
	beside = graph_new(two.kept.buffers, two.stream, 0, N_LAYERS, two.targets, NULL, NULL);
	for (uint32_t i = 0; i < n_some(); i++) {
		REQUIRE(begin(&one, i) == MOETRACE_OK && begin(&two, i) == MOETRACE_OK, "pass %u", i);
		graph_launch(graph, one.stream);
		graph_launch(beside, two.stream);
		end(i % 2 ? &one : &two, i);
		end(i % 2 ? &two : &one, i);
	}
	graph_stream_wait(one.stream);
	graph_stream_wait(two.stream);
	say(&one, "two streams", from_ns);
	one.kept.is_wanted = two.kept.is_wanted = NULL;
	db = toy_close_and_open(&one.toy);
	ck_assert_uint_eq(kept_compare(db, &one.kept), n_some());
	ck_assert_uint_eq(kept_compare(db, &two.kept), n_some());
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM gap"), 0);
	db_close(db);
}
END_TEST

/* Three graphs with layers between them that are launched kernel by kernel. */
START_TEST(test_pieces)
{
	static const uint32_t ends[] = {20, 23, 41, 42, N_LAYERS}; /* odd ones are eager */
	struct rig rig = open_rig("pieces.db", 0, 0, 16, n_some());
	const uint64_t from_ns = suite_now_ns();
	struct graph *graphs[5];

	for (uint32_t p = 0; p < 5; p += 2)
		graphs[p] = graph_new(rig.kept.buffers, rig.stream, p ? ends[p - 1] : 0, ends[p],
				      rig.targets, NULL, NULL);
	for (uint32_t i = 0; i < n_some(); i++) {
		REQUIRE(begin(&rig, i) == MOETRACE_OK, "the begin of pass %u", i);
		for (uint32_t p = 0; p < 5; p++) {
			if (p % 2)
				graph_eager(rig.kept.buffers, rig.stream, ends[p - 1], ends[p],
					    rig.targets);
			else
				graph_launch(graphs[p], rig.stream);
			if (i % 97 == p)
				graph_stream_wait(rig.stream);
		}
		end(&rig, i);
	}
	graph_stream_wait(rig.stream);
	say(&rig, "pieces", from_ns);
	expect_all(&rig);
}
END_TEST

struct way {
	struct rig *rig;
	uint64_t spread; /* address of the runtime's own buffer */
	uint64_t ids[N_LAYERS], weights[N_LAYERS];
	struct moetrace_cuda_layers layers;
	uint32_t n_a_launch;
};

static void launch_spread(void *context)
{
	const struct way *way = context;

	graph_spread(way->rig->kept.buffers, way->rig->stream, way->spread);
}

static void launch_stores(void *context)
{
	const struct way *way = context;
	struct moetrace_cuda_layers layers = way->layers;

	layers.n_layers = way->n_a_launch;
	for (uint32_t l = 0; l < N_LAYERS; l += way->n_a_launch) {
		layers.first_layer = l;
		layers.ids = way->ids + l;
		layers.weights = way->weights + l;
		ck_assert_int_eq(moetrace_cuda_store(way->rig->lane, way->rig->stream, &layers),
				 MOETRACE_OK);
	}
}

static void init_way(struct way *way, struct rig *rig)
{
	memset(way, 0, sizeof(*way));
	way->rig = rig;
	for (uint32_t l = 0; l < N_LAYERS; l++) {
		const uint64_t at = (uint64_t)l * rig->kept.n_rows * GRAPH_TOP_K * 4;

		way->ids[l] = graph_ids(rig->kept.buffers) + at;
		way->weights[l] = graph_weights(rig->kept.buffers) + at;
	}
	MOETRACE_INIT(&way->layers);
	way->layers.n_rows = rig->kept.n_rows;
	way->layers.id_type = MOETRACE_TYPE_I32;
	way->layers.weight_type = MOETRACE_TYPE_F32;
}

/* The runtime's buffer, which the next replay fills anew: all rows of a layer together, or all
   layers of a row. */
static void adopt(struct way *way, bool is_by_row)
{
	const uint64_t row_bytes = GRAPH_TOP_K * 4;
	struct rig *rig = way->rig;
	struct moetrace_cuda_buffer buffer;

	way->spread = graph_memory_new(N_LAYERS * row_bytes * rig->kept.n_rows);
	MOETRACE_INIT(&buffer);
	buffer.ids = is_by_row ? way->spread : way->ids[0];
	buffer.id_type = MOETRACE_TYPE_I32;
	buffer.order = MOETRACE_ORDER_SELECTION;
	buffer.max_rows = rig->kept.n_rows;
	buffer.row_bytes = is_by_row ? N_LAYERS * row_bytes : row_bytes;
	buffer.layer_bytes = is_by_row ? row_bytes : rig->kept.n_rows * row_bytes;
	rig->kept.without_weights = true;
	ck_assert_int_eq(moetrace_cuda_adopt(rig->lane, &buffer), MOETRACE_OK);
}

static const char *const ways[] = {"adopted, by layer", "adopted, by row", "a gather a pass",
				   "a launch a layer"};

START_TEST(test_ways)
{
	struct rig rig = open_rig("ways.db", 0, 0, 16, n_some());
	struct graph *graph;
	struct way way;
	uint64_t from_ns;

	init_way(&way, &rig);
	way.n_a_launch = _i == 2 ? N_LAYERS : 1;
	if (_i < 2)
		adopt(&way, _i == 1);
	graph = graph_new(rig.kept.buffers, rig.stream, 0, N_LAYERS, NULL,
			  _i == 0 ? NULL : (_i == 1 ? launch_spread : launch_stores), &way);
	from_ns = suite_now_ns();
	for (uint32_t i = 0; i < n_some(); i++)
		replay(&rig, graph, i);
	graph_stream_wait(rig.stream);
	say(&rig, ways[_i], from_ns);
	expect_all(&rig);
}
END_TEST

static Suite *make_suite(void)
{
	Suite *suite = suite_create("cuda replays");
	TCase *tc = tcase_create("replays");

	tcase_set_timeout(tc, 180);
	tcase_add_test(tc, test_memory_sink);
	tcase_add_test(tc, test_paced);
	tcase_add_test(tc, test_switched);
	tcase_add_test(tc, test_small_ring);
	tcase_add_test(tc, test_two_streams);
	tcase_add_test(tc, test_pieces);
	tcase_add_loop_test(tc, test_ways, 0, (int)(sizeof(ways) / sizeof(ways[0])));
	suite_add_tcase(suite, tc);
	return suite;
}

int main(void)
{
	if (!gpu_is_here())
		return SUITE_SKIPPED;
	return suite_run(make_suite());
}
