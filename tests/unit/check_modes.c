/* SPDX-License-Identifier: MIT */
/*
 * What a recording keeps: modes per_token, per_pass and stat of the same passes, sampling by
 * pass, phase and request, and regions that are disabled. A mode is held against what per_token
 * keeps of the same passes.
 */
#include <stdlib.h>
#include <string.h>

#include "tests/unit/support/agree.h"
#include "tests/unit/support/db.h"
#include "tests/unit/support/suite.h"
#include "tests/unit/support/toy.h"

#define N_LAYERS  3
#define N_EXPERTS 16
#define TOP_K	  4

static struct moetrace_recording_opts mode_opts(uint32_t mode)
{
	struct moetrace_recording_opts opts;

	MOETRACE_INIT(&opts);
	opts.mode = mode;
	return opts;
}

static struct toy open_and_start(const char *name, const struct moetrace_recording_opts *opts)
{
	struct toy toy = toy_open(name, NULL, N_LAYERS, N_EXPERTS, TOP_K);

	ck_assert_int_eq(moetrace_start(toy.session, opts), MOETRACE_OK);
	return toy;
}

/* A pass of two requests, prefill beside decode. */
static void mixed_pass(const struct toy *toy, uint64_t a, uint64_t b, uint32_t position)
{
	const struct moetrace_slice slices[] = {
		{.request = a, .first_position = 3 * position, .n_rows = 3,
		 .phase = MOETRACE_PHASE_PREFILL},
		{.request = b, .first_position = position, .n_rows = 1,
		 .phase = MOETRACE_PHASE_DECODE},
	};
	struct moetrace_pass *pass = toy_begin(toy, MOETRACE_PHASE_MIXED, slices, 2);

	toy_finish(toy, pass, 4);
}

static void end_request(const struct toy *toy, uint64_t request)
{
	ck_assert_int_eq(moetrace_request_end(toy->session, request, MOETRACE_REQUEST_FINISHED,
					      MOETRACE_POSITIONS_UNKNOWN),
			 MOETRACE_OK);
}

/* Ten mixed passes and a prefill pass, as one recording; the request ends in it. */
static void serve(const struct toy *toy)
{
	uint64_t a = toy_request(toy, "a"), b = toy_request(toy, "b");
	uint32_t i;

	for (i = 0; i < 10; i++)
		mixed_pass(toy, a, b, i);
	toy_pass(toy, MOETRACE_PHASE_PREFILL, b, 10, 5);
	end_request(toy, a);
	end_request(toy, b);
}

/* The three modes one after the other in one file: the same tokens of every expert and phase. */
START_TEST(test_modes_have_the_same_windows)
{
	struct toy toy = toy_open("modes.db", NULL, N_LAYERS, N_EXPERTS, TOP_K);
	sqlite3 *db;
	uint32_t mode;

	for (mode = MOETRACE_MODE_PER_TOKEN; mode <= MOETRACE_MODE_STAT; mode++) {
		struct moetrace_recording_opts opts = mode_opts(mode);

		ck_assert_int_eq(moetrace_start(toy.session, &opts), MOETRACE_OK);
		serve(&toy);
		ck_assert_int_eq(moetrace_stop(toy.session, NULL), MOETRACE_OK);
	}
	db = toy_close_and_open(&toy);
	ck_assert_str_eq(db_text(db, "SELECT group_concat(mode) FROM recording"),
			 "per_token,per_pass,stat");
	for (mode = 2; mode <= 3; mode++)
		ck_assert_int_eq(
			db_int(db,
			       "SELECT count(*) FROM (SELECT layer_id, expert, prefill_tokens,"
			       " decode_tokens, tokens FROM expert_load WHERE recording_id = 1"
			       " EXCEPT SELECT layer_id, expert, prefill_tokens, decode_tokens,"
			       " tokens FROM expert_load WHERE recording_id = %u)",
			       mode),
			0);
	/* rows x k in each layer. */
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM (SELECT sum(tokens) AS n FROM expert_load"
				    " GROUP BY recording_id, layer_id) WHERE n <> %d",
				45 * TOP_K),
			 0);
	ck_assert_int_eq(db_stat(db, 3, "recorded_assignments"), 45 * TOP_K * N_LAYERS);
	ck_assert_int_eq(db_stat(db, 3, "recorded_passes"), 11);
	ck_assert_int_eq(db_stat(db, 3, "recorded_rows"), 45);
	db_close(db);
}
END_TEST

START_TEST(test_per_pass_keeps_counts_and_no_rows)
{
	struct moetrace_recording_opts opts = mode_opts(MOETRACE_MODE_PER_PASS);
	struct toy toy = open_and_start("per-pass.db", &opts);
	sqlite3 *db;

	serve(&toy);
	db = toy_close_and_open(&toy);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM topk"), 0);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM token_topk"), 0);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM pass_layer WHERE state = 3"),
			 11 * N_LAYERS);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM pass WHERE verdict = 'complete'"), 11);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM request WHERE verdict = 'complete'"), 2);
	/* A count is the rows of the pass and layer that selected the expert. */
	ck_assert_int_eq(
		db_int(db, "SELECT sum(b.value) FROM layer_load AS l JOIN byte AS i ON i.value <"
			   " length(counts) JOIN byte AS b ON b.byte = substr(counts, i.value + 1,"
			   " 1) WHERE count_bytes = 1"),
		45 * TOP_K * N_LAYERS);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM pass_layer WHERE active_experts IS NULL"
				    " OR max_load IS NULL OR n_rows NOT IN (4, 5)"),
			 0);
	db_close(db);
}
END_TEST

START_TEST(test_stat_keeps_windows_alone)
{
	struct moetrace_recording_opts opts = mode_opts(MOETRACE_MODE_STAT);
	struct toy toy = open_and_start("stat.db", &opts);
	sqlite3 *db;

	serve(&toy);
	db = toy_close_and_open(&toy);
	ck_assert_int_eq(db_int(db, "SELECT (SELECT count(*) FROM pass) + (SELECT count(*) FROM"
				    " pass_request) + (SELECT count(*) FROM pass_layer) + (SELECT"
				    " count(*) FROM layer_load) + (SELECT count(*) FROM request)"),
			 0);
	ck_assert_int_gt(db_int(db, "SELECT count(*) FROM expert_load_window"), 0);
	db_close(db);
}
END_TEST

/* A layer that nobody writes is named, and is no layer whose experts are dead. */
START_TEST(test_R8_unwritten_layer_in_every_mode)
{
	struct moetrace_recording_opts opts = mode_opts((uint32_t)_i);
	struct toy toy = open_and_start("unwritten.db", &opts);
	const struct moetrace_slice slice = {.n_rows = 2};
	struct moetrace_pass *pass = toy_begin(&toy, MOETRACE_PHASE_DUMMY, &slice, 1);
	sqlite3 *db;

	toy_select(&toy, pass, 0, 2);
	toy_select(&toy, pass, 2, 2);
	moetrace_pass_end(pass);
	db = toy_close_and_open(&toy);
	ck_assert_int_eq(db_stat(db, 1, "unwritten_layers"), 1);
	if (_i != MOETRACE_MODE_STAT)
		ck_assert_str_eq(db_text(db, "SELECT reasons || ',' || state FROM pass JOIN"
					     " pass_layer USING (pass_id) JOIN layer USING"
					     " (layer_id) WHERE moe_ordinal = 1"),
				 "unwritten,1");
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM expert_load_window JOIN layer USING"
				    " (layer_id) WHERE moe_ordinal = 1"),
			 0);
	db_close(db);
}
END_TEST

START_TEST(test_sampling_every_nth_pass)
{
	struct moetrace_recording_opts opts = mode_opts(MOETRACE_MODE_PER_TOKEN);
	struct toy toy;
	uint64_t request;
	sqlite3 *db;
	uint32_t i;

	opts.sample_every_n_passes = 4;
	toy = open_and_start("every-4.db", &opts);
	request = toy_request(&toy, "r");
	for (i = 0; i < 10; i++)
		ck_assert_int_eq(toy_pass(&toy, MOETRACE_PHASE_DECODE, request, i, 1), i % 4 == 0);
	end_request(&toy, request);
	db = toy_close_and_open(&toy);
	ck_assert_str_eq(db_text(db, "SELECT sampling FROM recording"), "passes=4");
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM pass WHERE verdict = 'complete'"), 3);
	ck_assert_int_eq(db_stat(db, 1, "sampled_passes"), 7);
	ck_assert_str_eq(db_text(db, "SELECT group_concat(first_position) FROM pass_request"),
			 "0,4,8");
	ck_assert_str_eq(db_text(db, "SELECT verdict || ':' || reasons || ':' || n_positions FROM"
				     " request"),
			 "partial:sampled:10");
	ck_assert_int_eq(db_int(db, "SELECT sum(tokens) FROM expert_load"), 3 * TOP_K * N_LAYERS);
	db_close(db);
}
END_TEST

/* Target and draft take turns: each is sampled by itself. */
START_TEST(test_sampling_counts_models_apart)
{
	struct moetrace_recording_opts opts = mode_opts(MOETRACE_MODE_PER_TOKEN);
	struct toy toy, draft;
	sqlite3 *db;
	uint32_t i;

	opts.sample_every_n_passes = 2;
	toy = toy_open("turns.db", NULL, N_LAYERS, N_EXPERTS, TOP_K);
	draft = toy;
	draft.model = toy_model_add(toy.session, "other", 0, N_LAYERS, N_EXPERTS, TOP_K);
	ck_assert_int_eq(moetrace_start(toy.session, &opts), MOETRACE_OK);
	for (i = 0; i < 8; i++)
		toy_pass(i % 2 ? &draft : &toy, MOETRACE_PHASE_DUMMY, MOETRACE_NO_REQUEST, 0, 1);
	db = toy_close_and_open(&toy);
	ck_assert_str_eq(db_text(db, "SELECT group_concat(n) FROM (SELECT count(*) AS n FROM pass"
				     " GROUP BY model_id)"),
			 "2,2");
	db_close(db);
}
END_TEST

START_TEST(test_sampling_by_phase)
{
	struct moetrace_recording_opts opts = mode_opts(MOETRACE_MODE_PER_PASS);
	struct toy toy;
	sqlite3 *db;
	uint64_t request;

	opts.sample_phases = 1u << MOETRACE_PHASE_DECODE | 1u << MOETRACE_PHASE_VERIFY;
	toy = open_and_start("phases.db", &opts);
	request = toy_request(&toy, "r");
	ck_assert(!toy_pass(&toy, MOETRACE_PHASE_PREFILL, request, 0, 4));
	ck_assert(toy_pass(&toy, MOETRACE_PHASE_DECODE, request, 4, 1));
	end_request(&toy, request);
	db = toy_close_and_open(&toy);
	ck_assert_str_eq(db_text(db, "SELECT sampling FROM recording"), "phases=decode+verify");
	ck_assert_str_eq(db_text(db, "SELECT group_concat(phase) FROM pass"), "decode");
	ck_assert_str_eq(db_text(db, "SELECT reasons FROM request"), "sampled");
	db_close(db);
}
END_TEST

/* Rows of every other request are kept; what is said of load is of all rows. */
START_TEST(test_sampling_by_request)
{
	struct moetrace_recording_opts opts = mode_opts(MOETRACE_MODE_PER_TOKEN);
	static const char loads_sql[] = "SELECT group_concat(active_experts || ',' || max_load) FROM"
					" pass_layer";
	struct toy toy, whole;
	sqlite3 *db, *twin;
	char *loads[2];
	int i;

	opts.sample_every_n_requests = 2;
	toy = open_and_start("requests.db", &opts);
	serve(&toy);
	db = toy_close_and_open(&toy);
	whole = open_and_start("whole.db", NULL);
	serve(&whole);
	twin = toy_close_and_open(&whole);
	ck_assert_str_eq(db_text(db, "SELECT group_concat(external_id || ':' || verdict || ':' ||"
				     " ifnull(reasons, '')) FROM request"),
			 "a:complete:,b:partial:sampled");
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM pass WHERE reasons = 'sampled'"), 11);
	/* Three of the four rows of ten passes; none of the pass of b alone. */
	ck_assert_int_eq(db_int(db, "SELECT sum(n_rows) FROM pass_layer"), 30 * N_LAYERS);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM token_topk JOIN request USING"
				    " (request_id) WHERE external_id <> 'a'"),
			 0);
	ck_assert_int_eq(db_stat(db, 1, "recorded_assignments"), 30 * N_LAYERS * TOP_K);
	ck_assert_int_eq(db_stat(db, 1, "load_assignments"), 45 * N_LAYERS * TOP_K);
	for (i = 0; i < 2; i++)
		loads[i] = strdup(db_text(i ? twin : db, "%s", loads_sql));
	ck_assert_str_eq(loads[0], loads[1]);
	free(loads[0]);
	free(loads[1]);
	db_close(db);
	db_close(twin);
}
END_TEST

START_TEST(test_regions_nest)
{
	struct toy toy = open_and_start("regions.db", NULL);
	uint64_t request = toy_request(&toy, "r");
	sqlite3 *db;

	moetrace_region_disable(NULL);
	moetrace_region_enable(NULL);
	moetrace_region_disable(toy.session);
	moetrace_region_disable(toy.session);
	ck_assert(!toy_pass(&toy, MOETRACE_PHASE_PREFILL, request, 0, 4));
	moetrace_region_enable(toy.session);
	ck_assert(!toy_pass(&toy, MOETRACE_PHASE_DECODE, request, 4, 1));
	moetrace_region_enable(toy.session);
	ck_assert(toy_pass(&toy, MOETRACE_PHASE_DECODE, request, 5, 1));
	moetrace_region_enable(toy.session);
	ck_assert(toy_pass(&toy, MOETRACE_PHASE_DECODE, request, 6, 1));
	end_request(&toy, request);
	db = toy_close_and_open(&toy);
	ck_assert_str_eq(db_text(db, "SELECT verdict || ':' || reasons || ':' || n_positions FROM"
				     " request"),
			 "partial:disabled:7");
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM pass WHERE verdict = 'complete'"), 2);
	ck_assert_int_eq(db_stat(db, 1, "disabled_passes"), 2);
	ck_assert_int_eq(db_stat(db, 1, "misuse"), 1);
	ck_assert_int_eq(db_int(db, "SELECT sum(tokens) FROM expert_load"), 2 * TOP_K * N_LAYERS);
	db_close(db);
}
END_TEST

START_TEST(test_options_out_of_range)
{
	struct toy toy = toy_open("options.db", NULL, N_LAYERS, N_EXPERTS, TOP_K);
	struct moetrace_recording_opts opts = mode_opts(3);

	ck_assert_int_eq(moetrace_start(toy.session, &opts), MOETRACE_E_INVALID);
	opts = mode_opts(MOETRACE_MODE_STAT);
	opts.sample_every_n_requests = 2;
	ck_assert_int_eq(moetrace_start(toy.session, &opts), MOETRACE_E_INVALID);
	opts = mode_opts(MOETRACE_MODE_STAT);
	opts.sample_phases = 1;
	ck_assert_int_eq(moetrace_start(toy.session, &opts), MOETRACE_E_INVALID);
	opts.sample_phases = 0;
	ck_assert_int_eq(moetrace_start(toy.session, &opts), MOETRACE_OK);
	toy_close(&toy);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("modes");
	TCase *modes = tcase_create("modes");
	TCase *left_out = tcase_create("left out");

	tcase_add_test(modes, test_modes_have_the_same_windows);
	tcase_add_test(modes, test_per_pass_keeps_counts_and_no_rows);
	tcase_add_test(modes, test_stat_keeps_windows_alone);
	tcase_add_loop_test(modes, test_R8_unwritten_layer_in_every_mode, 0, 3);
	tcase_add_test(modes, test_options_out_of_range);
	tcase_add_test(left_out, test_sampling_every_nth_pass);
	tcase_add_test(left_out, test_sampling_counts_models_apart);
	tcase_add_test(left_out, test_sampling_by_phase);
	tcase_add_test(left_out, test_sampling_by_request);
	tcase_add_test(left_out, test_regions_nest);
	suite_add_tcase(suite, modes);
	suite_add_tcase(suite, left_out);
	return suite_run(suite);
}
