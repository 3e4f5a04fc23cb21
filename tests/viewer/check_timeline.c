/* SPDX-License-Identifier: MIT */
/*
 * A timeline against its rows: for odd stretches and widths, what is answered of every step of time is
 * what a walk over all rows finds there, whether it comes from bins or from rows. The trace is made of
 * numbers: operations out of order, on streams that begin at any time, ranges in one another,
 * counters. Also what is asked wrongly, and reading that is stopped and goes on.
 */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "libtrace/store/schema_sql.h"
#include "tests/support/run_suite.h"
#include "viewer/timeline.h"
#include "viewer/view.h"

#define PATH_BYTES 64

static char path[PATH_BYTES];
static atomic_bool stops;
static struct mt_source source;

/* ---- the trace ---- */

static const char sql_trace[] =
	"INSERT INTO process (process_id, pid) VALUES (1, 1);"
	"INSERT INTO device (device_id, process_id, kind) VALUES (1, 1, 'cuda');"
	"INSERT INTO model (model_id, name, kind) VALUES (1, 'm', 'target');"
	"INSERT INTO recording VALUES (1, 1, 0, 4000000000, 'stopped', 'per_pass', NULL, NULL),"
	" (2, 1, 4000000000, 5000000000, 'stopped', 'per_pass', NULL, NULL);"
	"INSERT INTO string VALUES (1, 'topk', 'topk', 0), (2, 'experts', 'experts', 0), (3, 'r', NULL, NULL);"
	"INSERT INTO layer (layer_id, model_id, layer, moe_ordinal, kind, n_experts, n_zero_experts,"
	" n_shared_slots, top_k) SELECT value + 1, 1, value + 3, value, 'routed', 8, 0, 0, 2 FROM byte WHERE value < 5;"
	"CREATE TEMP TABLE n AS WITH RECURSIVE c(x) AS (SELECT 0 UNION ALL SELECT x + 1 FROM c LIMIT 9000)"
	" SELECT x FROM c;"
	"INSERT INTO pass (pass_id, recording_id, model_id, phase, begin_ns, end_ns, n_rows, padding_rows, verdict,"
	" n_dropped, device_id) SELECT x + 1, 1 + (x >= 900), 1, iif(x % 7, 'decode', 'prefill'), x * 4000000,"
	" x * 4000000 + 3000000 + x * 7919 % 900000, 1 + x * 31 % 64, 0, 'complete', 0, iif(x % 3, NULL, 1) FROM n WHERE x < 1000;"
	"INSERT INTO pass_layer (pass_id, layer_id, active_experts, selected_ns, state) SELECT p.x + 1, l.x + 1,"
	" (p.x * 13 + l.x) % 8, iif(p.x % 50, p.x * 4000000 + l.x * 600000, NULL), 3"
	" FROM n AS p CROSS JOIN n AS l WHERE p.x < 1000 AND l.x < 5;"
	/* In groups of 16 the last is told first; some are not stamped, some end before they begin. */
	"INSERT INTO kernel (kernel_id, recording_id, device_id, stream, name_id, start_ns, end_ns, layer_id, flags)"
	" SELECT x + 1, 1, 1, (x / 16 * 16 + 15 - x % 16) % 3, 1 + x % 2, s, s + iif(x % 1000 = 500, -5, iif(x % 97 = 0, 1380000,"
	" x * 7919 % 310000)), 1 + x % 5, x % 501 = 3 FROM (SELECT x, (x / 16 * 16 + 15 - x % 16) * 430000 AS s FROM n);"
	"INSERT INTO range (range_id, recording_id, name_id, thread, start_ns, end_ns) SELECT"
	" x + 1, 1, 3, 1, iif(x % 11 = 10, x / 11 * 44000000, x * 4000000 + 1000), iif(x % 11 = 10, x / 11 * 44000000 + 43000000,"
	" x * 4000000 + 2000000) FROM n WHERE x < 900;"
	"INSERT INTO power_sample (recording_id, device_id, domain, source, time_ns, instant_mw, limit_mw, temperature_c)"
	" SELECT 1, 1, 'gpu', 'poll', x * 1000003, 300000 + x * 7919 % 400000, 700000, 40 + x % 9 FROM n WHERE x < 3900;"
	"INSERT INTO power_sample (recording_id, device_id, domain, source, time_ns, energy_mj)"
	" SELECT 1, 1, 'package-0', 'poll', x * 10000000, x * 170 + x * x % 30 FROM n WHERE x < 390;";

static void trace_make(void)
{
	sqlite3 *db;
	char *error = NULL;

	snprintf(path, sizeof(path), "%s/moetrace-timeline.XXXXXX", getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
	close(mkstemp(path));
	ck_assert_int_eq(sqlite3_open(path, &db), SQLITE_OK);
	sqlite3_exec(db, "PRAGMA journal_mode=OFF; PRAGMA synchronous=OFF; BEGIN", NULL, NULL, NULL);
	for (size_t i = 0; i < mt_n_schema_files; i++)
		ck_assert_int_eq(sqlite3_exec(db, mt_schema_files[i].sql, NULL, NULL, NULL), SQLITE_OK);
	sqlite3_exec(db, sql_trace, NULL, NULL, &error);
	ck_assert_msg(!error, "%s", error);
	ck_assert_int_eq(sqlite3_exec(db, "COMMIT", NULL, NULL, NULL), SQLITE_OK);
	sqlite3_close(db);
}

static void setup(void)
{
	static char uri[PATH_BYTES + 32];

	trace_make();
	snprintf(uri, sizeof(uri), "file:%s?mode=ro", path);
	ck_assert(mt_source_init(&source, &(struct mt_view_file){.path = path, .uri = uri}, false, &stops));
}

static void teardown(void)
{
	mt_source_destroy(&source);
	unlink(path);
}

/* ---- asking ---- */

struct array {
	char name[16], type[4];
	size_t n;
	const unsigned char *bytes;
};

struct answer {
	struct mt_view_reply reply;
	struct array arrays[24];
	size_t n_arrays;
	double step_ns, progress;
	struct mt_lane tracks[MT_TIMELINE_MAX_LANES], counters[MT_TIMELINE_MAX_LANES]; /* in the walk's terms */
};

static double header_number(const char *header, const char *name)
{
	const char *at = strstr(header, name);

	ck_assert_msg(at != NULL, "no %s in %s", name, header);
	return strtod(at + strlen(name), NULL);
}

static void answer_parse(struct answer *answer)
{
	const unsigned char *bytes = (const unsigned char *)answer->reply.bytes;
	uint32_t n_header;
	char *header, *at;
	size_t offset;

	ck_assert_int_eq(memcmp(bytes, "MTA1", 4), 0);
	memcpy(&n_header, bytes + 4, 4);
	header = malloc(n_header + 1);
	ck_assert(header != NULL);
	memcpy(header, bytes + 8, n_header);
	header[n_header] = '\0';
	answer->step_ns = header_number(header, "\"step_ns\":");
	answer->progress = header_number(header, "\"progress\":");
	offset = 8 + n_header;
	at = strstr(header, "\"arrays\":[");
	ck_assert(at != NULL);
	at += strlen("\"arrays\":[");
	while (*at == '[' || *at == ',') {
		struct array *array = &answer->arrays[answer->n_arrays++];
		size_t n_item;

		at += *at == ',';
		ck_assert_int_eq(sscanf(at, "[\"%15[^\"]\",\"%3[^\"]\",%zu]", array->name, array->type, &array->n), 3);
		n_item = (size_t)atoi(array->type + 1) / 8;
		array->bytes = bytes + offset;
		offset += (array->n * n_item + 7) / 8 * 8;
		at = strchr(at, ']') + 1;
	}
	free(header);
}

static unsigned ask(struct answer *answer, const struct mt_parameter *parameters, size_t n)
{
	struct mt_question question = {.name = "timeline", .peer_fd = -1, .n_parameters = n};

	memset(answer, 0, sizeof(*answer));
	memcpy(question.parameters, parameters, n * sizeof(*parameters));
	ck_assert(mt_view_reply_begin(&answer->reply));
	mt_answer(&question, &source, &answer->reply);
	if (answer->reply.status == MT_REPLY_OK)
		answer_parse(answer);
	return answer->reply.status;
}

/* An answer waits two seconds at most: ask until all is read. The test's own time limit ends this. */
static void ask_whole(struct answer *answer, const struct mt_parameter *parameters, size_t n)
{
	ck_assert_uint_eq(ask(answer, parameters, n), 200);
	while (answer->progress < 1) {
		mt_view_reply_free(&answer->reply);
		ck_assert_uint_eq(ask(answer, parameters, n), 200);
	}
}

static void lanes_find(struct answer *answer);

static void ask_part(struct answer *answer, int64_t from_ns, int64_t until_ns, int width)
{
	char from[24], until[24], pixels[12];

	snprintf(from, sizeof(from), "%lld", (long long)from_ns);
	snprintf(until, sizeof(until), "%lld", (long long)until_ns);
	snprintf(pixels, sizeof(pixels), "%d", width);
	ask_whole(answer, (const struct mt_parameter[]){
		{"recording", "1"}, {"from", from}, {"until", until}, {"width", pixels}, {"wait", "2000"}}, 5);
	lanes_find(answer);
}

static double value_of(const struct answer *answer, const char *name, size_t i)
{
	for (size_t j = 0; j < answer->n_arrays; j++) {
		const struct array *array = &answer->arrays[j];
		double f64;
		float f32;
		uint32_t u32 = 0;

		if (strcmp(array->name, name) != 0)
			continue;
		ck_assert_uint_lt(i, array->n);
		if (strcmp(array->type, "f64") == 0) {
			memcpy(&f64, array->bytes + 8 * i, 8);
			return f64;
		}
		if (strcmp(array->type, "f32") == 0) {
			memcpy(&f32, array->bytes + 4 * i, 4);
			return (double)f32;
		}
		memcpy(&u32, array->bytes + (size_t)atoi(array->type + 1) / 8 * i, (size_t)atoi(array->type + 1) / 8);
		return u32;
	}
	ck_abort_msg("no array %s", name);
}

static size_t length_of(const struct answer *answer, const char *name)
{
	for (size_t j = 0; j < answer->n_arrays; j++)
		if (strcmp(answer->arrays[j].name, name) == 0)
			return answer->arrays[j].n;
	return 0;
}

/* ---- by walking over all rows ---- */

static struct mt_items all;

static int item_compare(const void *a, const void *b)
{
	const struct mt_item *first = a, *second = b;
	const int order = mt_lane_compare(&first->lane, &second->lane);

	return order ? order : (first->start_ns > second->start_ns) - (first->start_ns < second->start_ns);
}

/* By the views, not by what is tested. Streams, threads and devices as lanes; depths are left out. */
static void rows_add(sqlite3 *db, enum mt_lane_type type, const char *sql)
{
	sqlite3_stmt *stmt;

	ck_assert_msg(sqlite3_prepare_v2(db, sql, -1, &stmt, NULL) == SQLITE_OK, "%s", sqlite3_errmsg(db));
	while (sqlite3_step(stmt) == SQLITE_ROW) {
		all.items[all.n++] = (struct mt_item){
			.lane = {type, sqlite3_column_int64(stmt, 0), 0, 0},
			.start_ns = sqlite3_column_int64(stmt, 1),
			.end_ns = sqlite3_column_int64(stmt, 2),
			.value = (float)sqlite3_column_double(stmt, 3),
		};
		ck_assert_uint_lt(all.n, all.size);
	}
	sqlite3_finalize(stmt);
}

static void rows_read(void)
{
	sqlite3 *db;

	all.size = 60000;
	all.items = calloc(all.size, sizeof(*all.items));
	ck_assert_int_eq(sqlite3_open(path, &db), SQLITE_OK);
	rows_add(db, MT_LANE_PASSES, "SELECT 1, begin_ns, end_ns FROM pass WHERE recording_id = 1");
	rows_add(db, MT_LANE_LAYERS, "SELECT 1, selected_ns, selected_ns + coalesce(duration_ns, 0) FROM layer_time "
				     "WHERE recording_id = 1 AND source = 'selection'");
	rows_add(db, MT_LANE_KERNELS, "SELECT stream, start_ns, start_ns + duration_ns FROM kernel_event "
				      "WHERE recording_id = 1 AND duration_ns >= 0");
	rows_add(db, MT_LANE_RANGES, "SELECT 1, start_ns, end_ns FROM range WHERE recording_id = 1");
	rows_add(db, MT_LANE_ACTIVE, "SELECT 0, selected_ns, selected_ns, active_experts FROM pass_layer JOIN pass "
				     "USING (pass_id) WHERE recording_id = 1 AND selected_ns IS NOT NULL UNION ALL "
				     "SELECT 0, begin_ns, begin_ns, avg(active_experts) FROM pass_layer JOIN pass USING "
				     "(pass_id) WHERE recording_id = 1 AND selected_ns IS NULL GROUP BY pass_id");
	rows_add(db, MT_LANE_ROWS, "SELECT 0, begin_ns, begin_ns, n_rows FROM pass WHERE recording_id = 1");
	rows_add(db, MT_LANE_POWER, "SELECT domain = 'gpu', time_ns, time_ns, coalesce(instant_w, counted_w, average_w) "
				    "FROM power WHERE recording_id = 1 AND coalesce(instant_w, counted_w, average_w) IS NOT NULL");
	rows_add(db, MT_LANE_TEMPERATURE, "SELECT 1, time_ns, time_ns, temperature_c FROM power_sample "
					  "WHERE recording_id = 1 AND temperature_c IS NOT NULL");
	sqlite3_close(db);
	qsort(all.items, all.n, sizeof(*all.items), item_compare);
}

/* What lies in a step. */
struct sums {
	double n, total_ns, longest_ns, low, high;
};

/* The steps that lie in a stretch whole. */
struct steps {
	double first_ns, step_ns;
	size_t n;
	struct sums *got, *wanted;
};

static void steps_begin(struct steps *steps, double from_ns, double until_ns, double step_ns)
{
	steps->first_ns = ceil(from_ns / step_ns) * step_ns;
	steps->step_ns = step_ns;
	steps->n = until_ns - steps->first_ns >= step_ns ? (size_t)((until_ns - steps->first_ns) / step_ns) : 0;
	steps->got = calloc(2 * steps->n + 1, sizeof(*steps->got));
	steps->wanted = steps->got + steps->n;
	for (size_t i = 0; i < 2 * steps->n; i++)
		steps->got[i] = (struct sums){.low = INFINITY, .high = -INFINITY};
}

static void steps_add(const struct steps *steps, struct sums *to, double time_ns, const struct sums *what)
{
	const double i = floor((time_ns - steps->first_ns) / steps->step_ns);
	struct sums *sums;

	if (i < 0 || i >= (double)steps->n)
		return;
	sums = &to[(size_t)i];
	sums->n += what->n;
	sums->total_ns += what->total_ns;
	sums->longest_ns = fmax(sums->longest_ns, what->longest_ns);
	sums->low = fmin(sums->low, what->low);
	sums->high = fmax(sums->high, what->high);
}

static void walk(const struct steps *steps, const struct mt_lane *lane)
{
	for (size_t i = 0; i < all.n; i++) {
		const struct mt_item *item = &all.items[i];
		const double length_ns = (double)(item->end_ns - item->start_ns);

		if (mt_lane_compare(&item->lane, lane) == 0)
			steps_add(steps, steps->wanted, (double)item->start_ns,
				  &(struct sums){1, length_ns, length_ns, (double)item->value, (double)item->value});
	}
}

static int lane_compare(const void *a, const void *b)
{
	const struct mt_timeline_lane *const *first = a, *const *second = b;

	return mt_lane_compare(&(*first)->lane, &(*second)->lane);
}

/* What the walk calls the lanes of an answer. */
static void lanes_find(struct answer *answer)
{
	static const struct mt_timeline_lane *lanes[MT_TIMELINE_MAX_LANES];
	const size_t n = source.timeline->n_lanes;
	size_t n_tracks = 0;

	for (size_t i = 0; i < n; i++)
		lanes[i] = &source.timeline->lanes[i];
	qsort(lanes, n, sizeof(lanes[0]), lane_compare);
	for (size_t i = 0; i < n; i++) {
		struct mt_lane lane = lanes[i]->lane;

		if (lane.type == MT_LANE_KERNELS)
			lane.a = lane.b;
		if (lane.type == MT_LANE_POWER)
			lane.a = strstr(lanes[i]->name, ", gpu") != NULL;
		lane.b = lane.depth = 0;
		if (lane.type < MT_LANE_N_BARS)
			answer->tracks[n_tracks++] = lane;
		else
			answer->counters[i - n_tracks] = lane;
	}
}

static void near(double is, double wanted, const char *what, const struct mt_lane *lane, const struct steps *steps,
		 size_t i)
{
	ck_assert_msg(is == wanted || fabs(is - wanted) <= 1e-6 * fabs(wanted) + 1e-6,
		      "%s of lane %d, %lld, %.0f ns from %.0f on: %.9g, not %.9g", what, (int)lane->type,
		      (long long)lane->a, steps->step_ns, steps->first_ns + (double)i * steps->step_ns, is, wanted);
}

/* Bars of all depths of a lane. */
static void bars_compare(const struct answer *answer, const struct mt_lane *lane, double from_ns, double until_ns,
			 double step_ns)
{
	struct steps steps;

	steps_begin(&steps, from_ns, until_ns, step_ns);
	for (size_t i = 0; i < length_of(answer, "track"); i++)
		if (mt_lane_compare(&answer->tracks[(size_t)value_of(answer, "track", i)], lane) == 0)
			steps_add(&steps, steps.got, value_of(answer, "start", i), &(struct sums){
				value_of(answer, "count", i), value_of(answer, "total", i),
				value_of(answer, "longest", i), 0, 0});
	walk(&steps, lane);
	for (size_t i = 0; i < steps.n; i++) {
		near(steps.got[i].n, steps.wanted[i].n, "bars", lane, &steps, i);
		near(steps.got[i].total_ns, steps.wanted[i].total_ns, "time", lane, &steps, i);
		near(steps.got[i].longest_ns, steps.wanted[i].longest_ns, "longest", lane, &steps, i);
	}
	free(steps.got);
}

static void points_compare(const struct answer *answer, const struct mt_lane *lane, double from_ns, double until_ns,
			   double step_ns)
{
	struct steps steps;

	steps_begin(&steps, from_ns, until_ns, step_ns);
	for (size_t i = 0; i < length_of(answer, "counter"); i++)
		if (mt_lane_compare(&answer->counters[(size_t)value_of(answer, "counter", i)], lane) == 0)
			steps_add(&steps, steps.got, value_of(answer, "time", i), &(struct sums){
				1, 0, 0, value_of(answer, "low", i), value_of(answer, "high", i)});
	walk(&steps, lane);
	for (size_t i = 0; i < steps.n; i++) {
		near(steps.got[i].low, steps.wanted[i].low, "lowest", lane, &steps, i);
		near(steps.got[i].high, steps.wanted[i].high, "highest", lane, &steps, i);
	}
	free(steps.got);
}

/* Every bar that reaches in from before is there, by itself or in one that covers it. */
static void reaching_compare(const struct answer *answer, double from_ns)
{
	for (size_t i = 0; i < all.n; i++) {
		const struct mt_item *item = &all.items[i];
		bool is_there = item->lane.type >= MT_LANE_N_BARS || (double)item->start_ns >= from_ns ||
				(double)item->end_ns <= from_ns;

		for (size_t j = 0; j < length_of(answer, "track") && !is_there; j++) {
			const struct mt_lane of = answer->tracks[(size_t)value_of(answer, "track", j)];

			is_there = mt_lane_compare(&of, &item->lane) == 0 && value_of(answer, "start", j) <= from_ns &&
				   value_of(answer, "end", j) >= (double)item->end_ns;
		}
		ck_assert_msg(is_there, "a bar [%lld, %lld) of lane type %d that reaches beyond %.0f is missing",
			      (long long)item->start_ns, (long long)item->end_ns, (int)item->lane.type, from_ns);
	}
}

/* With bins that are coarser than the answer's step, what they hold lies in their own steps. */
static double step_of(const struct answer *answer, enum mt_lane_type type, bool is_exact)
{
	double step_ns = answer->step_ns;

	for (size_t i = 0; i < source.timeline->n_lanes && !is_exact; i++)
		if (source.timeline->lanes[i].lane.type == type)
			step_ns = fmax(step_ns, exp2(source.timeline->lanes[i].bins.shift));
	return step_ns;
}

static void compare(int64_t from_ns, int64_t until_ns, int width, bool is_exact)
{
	static const struct mt_lane bars[] = {{MT_LANE_PASSES, 1, 0, 0}, {MT_LANE_LAYERS, 1, 0, 0},
		{MT_LANE_KERNELS, 0, 0, 0}, {MT_LANE_KERNELS, 1, 0, 0}, {MT_LANE_KERNELS, 2, 0, 0}, {MT_LANE_RANGES, 1, 0, 0}};
	static const struct mt_lane counters[] = {{MT_LANE_ACTIVE, 0, 0, 0}, {MT_LANE_ROWS, 0, 0, 0},
		{MT_LANE_POWER, 0, 0, 0}, {MT_LANE_POWER, 1, 0, 0}, {MT_LANE_TEMPERATURE, 1, 0, 0}};
	static struct answer answer;

	ask_part(&answer, from_ns, until_ns, width);
	ck_assert(answer.step_ns * 2 > (double)(until_ns - from_ns) / width);
	for (size_t i = 0; i < sizeof(bars) / sizeof(bars[0]); i++)
		bars_compare(&answer, &bars[i], (double)from_ns, (double)until_ns, step_of(&answer, bars[i].type, is_exact));
	for (size_t i = 0; i < sizeof(counters) / sizeof(counters[0]); i++)
		points_compare(&answer, &counters[i], (double)from_ns, (double)until_ns,
			       step_of(&answer, counters[i].type, is_exact));
	if (is_exact)
		reaching_compare(&answer, (double)from_ns);
	mt_view_reply_free(&answer.reply);
}

/* ---- tests ---- */

/* Wide steps come from bins, narrow ones from rows. */
START_TEST(whole_and_parts)
{
	rows_read();
	compare(0, 4000000000, 7, false);
	compare(-1000000, 4000000001, 61, false);
	compare(123456789, 987654321, 13, false);
	compare(700000001, 760000003, 97, true);
	compare(1000000000, 1000400000, 31, true);
	compare(1300000, 1300500, 20, true);
	free(all.items);
}
END_TEST

/* Rows that are too many for an answer stay as coarse as the bins are, and are all there. */
START_TEST(too_many_rows)
{
	static struct answer answer;

	rows_read();
	ask_part(&answer, 0, 1000, 10);
	mt_view_reply_free(&answer.reply);
	mt_timeline_lock(source.timeline);
	source.timeline->max_items = 0;
	for (size_t i = 0; i < source.timeline->n_lanes; i++)
		for (int more = 0; more < 3; more++)
			mt_bins_coarsen(&source.timeline->lanes[i].bins);
	mt_timeline_unlock(source.timeline);
	compare(700000001, 860000003, 997, false);
	compare(0, 4000000000, 47, false);
	free(all.items);
}
END_TEST

START_TEST(empty)
{
	static struct answer answer;

	ask_part(&answer, 5000000000, 6000000000, 100);
	ck_assert_uint_eq(length_of(&answer, "track"), 0);
	mt_view_reply_free(&answer.reply);
	ask_part(&answer, 2000, 1000, 100);
	ck_assert_uint_eq(length_of(&answer, "track"), 0);
	ck_assert_uint_eq(length_of(&answer, "counter"), 0);
	mt_view_reply_free(&answer.reply);
	ask_part(&answer, 1000, 1000, 100);
	ck_assert_uint_eq(length_of(&answer, "track"), 0);
	mt_view_reply_free(&answer.reply);
	ck_assert_uint_eq(ask(&answer, &(const struct mt_parameter){"recording", "77"}, 1), 200);
	ck_assert_uint_eq(length_of(&answer, "track"), 0);
	mt_view_reply_free(&answer.reply);
}
END_TEST

/* Whatever is asked, an answer is no longer than its pixels allow. */
START_TEST(hostile)
{
	static const char *const values[] = {"nan", "-inf", "inf", "0", "-0", "1e9", "-1e300", "1e300", "x", "",
					     "9223372036854775807", "-9223372036854775808", "0x7f", "1;DROP TABLE pass"};
	const size_t n = sizeof(values) / sizeof(values[0]);
	static struct answer answer;

	for (size_t i = 0; i < n * n; i += 3) {
		const struct mt_parameter parameters[] = {{"recording", "1"}, {"from", values[i % n]},
			{"until", values[i / n]}, {"width", values[(i * 5 + 2) % n]}, {"wait", values[(i + 3) % n]}};

		/* Waiting is tested elsewhere, and takes its time while reading is held. */
		ck_assert_uint_eq(ask(&answer, parameters, i == 0 ? 5 : 4), 200);
		ck_assert_uint_le(length_of(&answer, "track"), 10 * (2 * 20000 + 100));
		mt_view_reply_free(&answer.reply);
	}
}
END_TEST

static double ask_reading(const char *read, const char *wait)
{
	static struct answer answer;

	ck_assert_uint_eq(ask(&answer, (const struct mt_parameter[]){{"recording", "1"}, {"read", read}, {"wait", wait}}, 3), 200);
	mt_view_reply_free(&answer.reply);
	return answer.progress;
}

/* Reading stops where it is told to, and only goes on when it is told to. */
START_TEST(held)
{
	double before;

	ask_reading("", "0");
	before = ask_reading("no", "0");
	ck_assert(!source.timeline->has_thread);
	ck_assert_double_eq(ask_reading("", "50"), before);
	ask_reading("yes", "0");
	rows_read();
	compare(0, 4000000000, 7, false);
	free(all.items);
}
END_TEST

/* The end of the viewer, and another recording, end a reading that is on its way. */
START_TEST(ended)
{
	static struct answer answer;

	ck_assert_uint_eq(ask(&answer, &(const struct mt_parameter){"recording", "1"}, 1), 200);
	mt_view_reply_free(&answer.reply);
	ask_whole(&answer, (const struct mt_parameter[]){{"recording", "2"}, {"wait", "2000"}}, 2);
	ck_assert_int_eq((int)source.timeline->recording_id, 2);
	mt_view_reply_free(&answer.reply);
	ck_assert_uint_eq(ask(&answer, &(const struct mt_parameter){"recording", "1"}, 1), 200);
	mt_view_reply_free(&answer.reply);
	atomic_store(&stops, true);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("timeline");
	TCase *tcase = tcase_create("timeline");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, whole_and_parts);
	tcase_add_test(tcase, too_many_rows);
	tcase_add_test(tcase, empty);
	tcase_add_test(tcase, hostile);
	tcase_add_test(tcase, held);
	tcase_add_test(tcase, ended);
	suite_add_tcase(suite, tcase);
	return run_suite(suite);
}
