/* SPDX-License-Identifier: MIT */
/*
 * Serving the example workload on the example model: what the recorder is told, and that the text
 * and the experts of every request are the same for any batch, chunk, context and thread count,
 * alone and among others, with and without recording, greedy and sampled.
 */
#include <stdio.h>
#include <string.h>

#include <check.h>

#include "kernels/engine/backend.h"
#include "kernels/oea/oea.h"
#include "tests/engine/support/fake_recorder.h"
#include "tests/engine/support/served.h"
#include "tests/support/run_suite.h"

START_TEST(test_recorder_is_told)
{
	static struct served_texts texts;
	struct moetrace_session *session = fake_recorder_reset();
	struct mtk_serve_stats stats = served_run(&served_usual, session, &texts);
	const struct fake_recorder *kept = fake_recorder();
	uint64_t n_rows = 0;
	uint32_t i, j;

	ck_assert_uint_eq(kept->n_requests, SERVED_REQUESTS);
	ck_assert_uint_eq(kept->n_layers, 6);
	for (i = 0; i < SERVED_REQUESTS; i++) {
		const struct fake_request *request = &kept->requests[i];
		const struct mtk_workload_request *asked = &served_workload->requests[i];

		ck_assert_str_eq(request->external_id, asked->id);
		ck_assert_uint_eq(request->n_attributes, 1);
		ck_assert_int_eq(strncmp(request->attribute, "domain=", 7), 0);
		ck_assert_int_eq(request->end_state, MOETRACE_REQUEST_FINISHED);
		ck_assert_uint_eq(request->n_prompt, asked->n_prompt_bytes);
		ck_assert_uint_eq(request->n_positions,
				  asked->n_prompt_bytes + asked->max_new_tokens - 1);
		/* Every token, with the last one, which was sampled and not computed. */
		ck_assert_uint_eq(request->n_tokens, request->n_positions + 1);
		for (j = 0; j < request->n_tokens; j++)
			ck_assert_uint_eq(
				request->tokens[j],
				j < request->n_prompt
					? asked->prompt[j]
					: (unsigned char)texts.bytes[i][j - request->n_prompt]);
		n_rows += request->n_positions;
	}
	ck_assert_uint_eq(kept->n_rows, n_rows);
	ck_assert_uint_eq(stats.prefill_rows + stats.decode_rows, n_rows);
	ck_assert_uint_eq(kept->n_passes_of_phase[MOETRACE_PHASE_PREFILL], stats.n_prefill_passes);
	ck_assert_uint_eq(kept->n_passes_of_phase[MOETRACE_PHASE_DECODE], stats.n_decode_passes);
	ck_assert_uint_eq(kept->n_passes_of_phase[MOETRACE_PHASE_MIXED], stats.n_mixed_passes);
	ck_assert_uint_gt(stats.n_mixed_passes, 0);
	ck_assert_uint_eq(stats.n_done, SERVED_REQUESTS);
	ck_assert_uint_gt(stats.prefill_ns, 0);
	ck_assert_uint_gt(stats.decode_ns, stats.decode_only_ns);
	ck_assert_uint_le(stats.prefill_ns + stats.decode_ns, stats.total_ns);
	ck_assert(!stats.interrupted);
}
END_TEST

/* Passes with decode rows run under the rule; with k0 = k it says so and changes nothing. */
START_TEST(test_rule_is_told)
{
	static struct served_texts plain, same, ruled;
	struct mtk_oea oea = {.k0 = 8};
	struct mtk_serve_options options = served_usual;
	struct mtk_serve_stats stats;

	options.oea = &oea;
	served_run(&served_usual, fake_recorder_reset(), &plain);
	ck_assert_uint_eq(fake_recorder()->n_rules, 0);
	ck_assert_uint_eq(fake_recorder()->n_ruled_layers, 0);
	stats = served_run(&options, fake_recorder_reset(), &same);
	ck_assert_str_eq(fake_recorder()->rule, "oea:k0=8");
	ck_assert_uint_eq(fake_recorder()->n_ruled_layers,
			  6 * (stats.n_decode_passes + stats.n_mixed_passes));
	served_compare(&same, &plain, SERVED_REQUESTS);
	oea.k0 = 1;
	served_run(&options, NULL, &ruled);
	ck_assert_mem_ne(&ruled, &plain, sizeof(ruled));
}
END_TEST

static const struct {
	uint32_t n_batch, n_chunk, n_threads, n_context;
} shapes[] = {
	{1, 1, 1, 1024},    {1, 1000, 1, 1024}, {12, 7, 1, 512},
	{12, 1000, 2, 400}, {3, 33, 2, 1024},	{65536, 1048576, 3, 1024},
};

START_TEST(test_any_shape_gives_the_same)
{
	static struct served_texts want, got;
	static struct fake_recorder kept;
	struct mtk_serve_options options = served_usual;

	options.temperature = _i & 1 ? 0.8f : 0.0f;
	options.seed = 42;
	served_run(&options, fake_recorder_reset(), &want);
	kept = *fake_recorder();
	options.limits.n_batch = shapes[_i].n_batch;
	options.limits.n_chunk = shapes[_i].n_chunk;
	options.limits.n_context = shapes[_i].n_context;
	options.n_threads = shapes[_i].n_threads;
	served_run(&options, fake_recorder_reset(), &got);
	served_compare(&got, &want, SERVED_REQUESTS);
	ck_assert_int_eq(memcmp(kept.requests, fake_recorder()->requests, sizeof(kept.requests)),
			 0);
	ck_assert_uint_eq(kept.n_rows, fake_recorder()->n_rows);
}
END_TEST

START_TEST(test_recording_changes_nothing)
{
	static struct served_texts recorded, plain;

	served_run(&served_usual, fake_recorder_reset(), &recorded);
	served_run(&served_usual, NULL, &plain);
	served_compare(&plain, &recorded, SERVED_REQUESTS);
}
END_TEST

/* A request alone takes the same experts as among others. */
START_TEST(test_alone_gives_the_same)
{
	static struct served_texts want, got;
	static struct fake_request among;

	served_run(&served_usual, fake_recorder_reset(), &want);
	among = fake_recorder()->requests[0];
	served_workload->n_requests = 1;
	served_run(&served_usual, fake_recorder_reset(), &got);
	served_compare(&got, &want, 1);
	ck_assert_mem_eq(&among, &fake_recorder()->requests[0], sizeof(among));
}
END_TEST

START_TEST(test_seed_and_temperature)
{
	static struct served_texts first, again, other, greedy;
	struct mtk_serve_options options = served_usual;

	served_run(&options, NULL, &greedy);
	options.temperature = 1.0f;
	served_run(&options, NULL, &first);
	served_run(&options, NULL, &again);
	options.seed = 1;
	served_run(&options, NULL, &other);
	served_compare(&again, &first, SERVED_REQUESTS);
	ck_assert_mem_ne(&other, &first, sizeof(first));
	ck_assert_mem_ne(&greedy, &first, sizeof(first));
	/* Temperatures towards zero end at the greedy choice. */
	options.temperature = 1e-6f;
	served_run(&options, NULL, &first);
	served_compare(&first, &greedy, SERVED_REQUESTS);
}
END_TEST

START_TEST(test_stop_byte)
{
	static struct served_texts whole, stopped;
	struct mtk_serve_options options = served_usual;
	uint32_t n_stopped = 0, i;

	served_run(&options, NULL, &whole);
	options.limits.stop_byte = 'e';
	served_run(&options, fake_recorder_reset(), &stopped);
	for (i = 0; i < SERVED_REQUESTS; i++) {
		const char *stop = memchr(whole.bytes[i], 'e', whole.n_bytes[i]);
		uint32_t want = stop ? (uint32_t)(stop - whole.bytes[i]) + 1 : whole.n_bytes[i];

		n_stopped += stop != NULL;
		ck_assert_uint_eq(stopped.n_bytes[i], want);
		ck_assert_mem_eq(stopped.bytes[i], whole.bytes[i], want);
		ck_assert_uint_eq(fake_recorder()->requests[i].n_positions,
				  fake_recorder()->requests[i].n_prompt + want - 1);
	}
	ck_assert_uint_gt(n_stopped, 0);
}
END_TEST

static bool stop_after_two(void *context, const struct mtk_serve_stats *stats)
{
	uint32_t *n_calls = context;

	ck_assert_uint_gt(stats->total_ns, 0);
	return ++*n_calls < 2;
}

/*
 * A back end with a lane, which launches a pass and then waits for it. One that does not say when all is
 * launched is told by its return; the third pass fails, on the way or while it is waited for.
 */
enum lane_case { LANE_TELLS, LANE_IS_SILENT, LANE_FAILS_LAUNCHING, LANE_FAILS_WAITING, N_LANE_CASES };

static struct {
	enum lane_case is;
	uint32_t n_passes;
} lane_state;

/* The positions of the pass were not computed after all. */
static int lane_failed(const struct mtk_batch *batch, const char *what, struct mtk_error *error)
{
	for (uint32_t row = 0; row < batch->n_rows; row++)
		fake_recorder()->requests[batch->requests[row]].n_computed--;
	return mtk_error_set(error, MOETRACE_E_IO, "%s", what);
}

static int lane_forward(void *context, const struct mtk_batch *batch,
			const struct mtk_forward_hooks *hooks,
			const struct mtk_forward_result *result, struct mtk_error *error)
{
	const bool fails = ++lane_state.n_passes == 3;

	ck_assert(fake_recorder_lane_is_open());
	ck_assert_ptr_nonnull(hooks);
	ck_assert_ptr_null(hooks->select_experts);
	if (lane_state.is == LANE_FAILS_LAUNCHING && fails)
		return lane_failed(batch, "the launch failed", error);
	if (lane_state.is != LANE_IS_SILENT) {
		hooks->launched(hooks->ctx);
		ck_assert(!fake_recorder_lane_is_open());
	}
	if (lane_state.is == LANE_FAILS_WAITING && fails)
		return lane_failed(batch, "the GPU failed", error);
	return mtk_backend_cpu(served_model).ops->forward(context, batch, NULL, result, error);
}

static struct moetrace_cuda_lane *lane_record(void *context, struct moetrace_session *session,
					      uint32_t number, bool with_margins)
{
	(void)context;
	(void)session;
	(void)number;
	(void)with_margins;
	return fake_recorder_lane();
}

/* Each pass is ended once, where it can be before it is waited for. */
START_TEST(test_lane)
{
	struct mtk_backend backend = mtk_backend_cpu(served_model);
	struct mtk_backend_ops ops = *backend.ops;
	struct mtk_serve_options options = served_usual;
	struct mtk_serve_recording recording = {.session = fake_recorder_reset(),
						.model_name = "tinymoe"};
	struct mtk_error error = {.text = ""};
	const bool fails = _i >= LANE_FAILS_LAUNCHING;
	struct mtk_serve_stats stats;
	struct mtk_server *server;

	ops.forward = lane_forward;
	ops.record = lane_record;
	backend.ops = &ops;
	options.backend = &backend;
	lane_state.is = (enum lane_case)_i;
	lane_state.n_passes = 0;
	served_workload->n_requests = 4;
	ck_assert_int_eq(mtk_server_create(served_model, served_workload, &options, &server, &error), MOETRACE_OK);
	ck_assert_int_eq(mtk_server_run(server, &recording, &stats, &error),
			 fails ? MOETRACE_E_IO : MOETRACE_OK);
	ck_assert_uint_eq(fake_recorder()->n_passes, lane_state.n_passes);
	ck_assert(!fake_recorder_lane_is_open());
	if (fails)
		ck_assert_uint_eq(lane_state.n_passes, 3);
	mtk_server_destroy(server);
}
END_TEST

START_TEST(test_interrupted)
{
	struct mtk_serve_options options = served_usual;
	struct mtk_serve_recording recording = {.session = fake_recorder_reset(),
							.model_name = "tinymoe",
							.records_tokens = false};
	struct mtk_serve_stats stats;
	struct mtk_server *server;
	uint32_t n_calls = 0, i;

	options.observe = stop_after_two;
	options.observe_context = &n_calls;
	ck_assert_int_eq(mtk_server_create(served_model, served_workload, &options, &server, NULL), MOETRACE_OK);
	ck_assert_int_eq(mtk_server_run(server, &recording, &stats, NULL), MOETRACE_OK);
	ck_assert(stats.interrupted);
	ck_assert_uint_eq(n_calls, 2);
	ck_assert_uint_eq(stats.n_done, 0);
	ck_assert_uint_eq(fake_recorder()->n_requests, 4);
	for (i = 0; i < 4; i++) {
		ck_assert_int_eq(fake_recorder()->requests[i].end_state, MOETRACE_REQUEST_ABORTED);
		ck_assert_uint_eq(fake_recorder()->requests[i].n_tokens, 0);
	}
	mtk_server_destroy(server);
}
END_TEST

START_TEST(test_recorder_fails)
{
	struct mtk_serve_recording recording = {.session = fake_recorder_reset(),
							.model_name = "tinymoe",
							.records_tokens = false};
	struct mtk_serve_stats stats;
	struct mtk_server *server;
	struct mtk_error error;
	const struct mtk_oea oea = {.k0 = 3};
	struct mtk_serve_options options = served_usual;

	fake_recorder()->model_status = MOETRACE_E_LIMIT;
	ck_assert_int_eq(mtk_server_create(served_model, served_workload, &served_usual, &server, NULL), MOETRACE_OK);
	ck_assert_int_eq(mtk_server_run(server, &recording, &stats, &error), MOETRACE_E_LIMIT);
	ck_assert_uint_eq(stats.total_ns, 0);
	ck_assert_str_eq(error.text, "the model cannot be recorded: a status");
	mtk_server_destroy(server);

	options.oea = &oea;
	fake_recorder_reset();
	fake_recorder()->rule_status = MOETRACE_E_NOMEM;
	ck_assert_int_eq(mtk_server_create(served_model, served_workload, &options, &server, NULL), MOETRACE_OK);
	ck_assert_int_eq(mtk_server_run(server, &recording, &stats, &error), MOETRACE_E_NOMEM);
	ck_assert_str_eq(error.text, "rule oea:k0=3 cannot be recorded: a status");
	ck_assert_uint_eq(fake_recorder()->n_requests, 0);
	mtk_server_destroy(server);

	fake_recorder_reset();
	fake_recorder()->request_status = MOETRACE_E_NOMEM;
	fake_recorder()->request_status_at = 2;
	ck_assert_int_eq(mtk_server_create(served_model, served_workload, &served_usual, &server, NULL), MOETRACE_OK);
	ck_assert_int_eq(mtk_server_run(server, &recording, &stats, &error), MOETRACE_E_NOMEM);
	ck_assert_str_eq(error.text, "request 2 cannot be recorded: a status");
	ck_assert_int_eq(fake_recorder()->requests[0].end_state, MOETRACE_REQUEST_FAILED);
	ck_assert_int_eq(fake_recorder()->requests[1].end_state, MOETRACE_REQUEST_FAILED);
	mtk_server_destroy(server);
}
END_TEST

START_TEST(test_create_refuses)
{
	struct mtk_serve_options options = served_usual;
	struct mtk_server *server;
	struct mtk_error error;

	options.limits.n_context = 100;
	ck_assert_int_eq(mtk_server_create(served_model, served_workload, &options, &server, &error),
			 MOETRACE_E_LIMIT);
	ck_assert_ptr_nonnull(strstr(error.text, "line 3: the prompt has"));
	options = served_usual;
	options.limits.n_batch = 0;
	ck_assert_int_eq(mtk_server_create(served_model, served_workload, &options, &server, &error),
			 MOETRACE_E_INVALID);
	options = served_usual;
	options.n_threads = 0;
	ck_assert_int_eq(mtk_server_create(served_model, served_workload, &options, &server, &error),
			 MOETRACE_E_INVALID);
	ck_assert_ptr_nonnull(strstr(error.text, "0 threads"));
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("serve");
	TCase *tcase = served_tcase(suite);

	tcase_add_test(tcase, test_recorder_is_told);
	tcase_add_test(tcase, test_rule_is_told);
	tcase_add_loop_test(tcase, test_any_shape_gives_the_same, 0,
			    sizeof(shapes) / sizeof(shapes[0]));
	tcase_add_test(tcase, test_recording_changes_nothing);
	tcase_add_test(tcase, test_alone_gives_the_same);
	tcase_add_test(tcase, test_seed_and_temperature);
	tcase_add_test(tcase, test_stop_byte);
	tcase_add_loop_test(tcase, test_lane, 0, N_LANE_CASES);
	tcase_add_test(tcase, test_interrupted);
	tcase_add_test(tcase, test_recorder_fails);
	tcase_add_test(tcase, test_create_refuses);
	return run_suite(suite);
}
