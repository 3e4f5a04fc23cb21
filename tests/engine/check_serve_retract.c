/* SPDX-License-Identifier: MIT */
/*
 * Serving where not all goes on to its end at once: a KV cache that is too small for what runs, prefixes
 * that are taken over, requests that may not become as long as they ask for. Texts and experts are
 * those of requests that none of this happens to.
 */
#include <string.h>

#include <check.h>

#include "tests/engine/support/fake_recorder.h"
#include "tests/engine/support/served.h"
#include "tests/support/run_suite.h"

/* Requests computed again have the text and the experts of those that never were retracted. */
START_TEST(test_retracted)
{
	static struct served_texts plain, texts;
	static struct fake_recorder kept;
	struct mtk_serve_options options = served_usual;
	const struct fake_recorder *recorder = fake_recorder();
	struct mtk_serve_stats stats;
	uint32_t n_retracts = 0, i;

	served_run(&served_usual, fake_recorder_reset(), &plain);
	kept = *recorder;
	options.limits.n_kv_positions = 300;
	options.limits.n_chunk = 16;
	stats = served_run(&options, fake_recorder_reset(), &texts);
	served_compare(&texts, &plain, SERVED_REQUESTS);
	for (i = 0; i < SERVED_REQUESTS; i++) {
		const struct fake_request *again = &recorder->requests[i];
		const struct fake_request *first = &kept.requests[i];

		ck_assert_int_eq(again->end_state, MOETRACE_REQUEST_FINISHED);
		ck_assert_uint_eq(again->n_positions, first->n_positions);
		ck_assert_uint_eq(again->n_tokens, first->n_tokens);
		ck_assert_mem_eq(again->tokens, first->tokens, sizeof(first->tokens));
		ck_assert_mem_eq(again->ids, first->ids, sizeof(first->ids));
		ck_assert_mem_eq(again->weights, first->weights, sizeof(first->weights));
		n_retracts += again->n_retracts;
	}
	ck_assert_uint_gt(n_retracts, 0);
	ck_assert_uint_eq(stats.n_retracts, n_retracts);
	ck_assert_uint_eq(stats.n_done, SERVED_REQUESTS);
	ck_assert_uint_eq(stats.n_aborted, 0);
}
END_TEST

/* Requests that take over prefixes have the text and the experts of those that compute all. */
START_TEST(test_prefixes_reused)
{
	static const uint32_t n_kv_positions[] = {0, 300, 300}, n_batch[] = {4, 4, 1};
	static struct served_texts plain, texts;
	static struct fake_recorder kept;
	struct mtk_serve_options options = served_usual;
	const struct fake_recorder *recorder = fake_recorder();
	struct mtk_serve_stats plain_stats, stats;
	uint32_t i;

	/* The last three begin like the one before. */
	served_workload->n_requests = 6;
	for (i = 3; i < 6; i++) {
		struct mtk_workload_request *request = &served_workload->requests[i];
		const size_t n = served_workload->requests[i - 1].n_prompt_bytes;

		memcpy(request->prompt, served_workload->requests[i - 1].prompt,
		       n < request->n_prompt_bytes ? n : request->n_prompt_bytes);
		request->max_new_tokens = 10;
	}
	plain_stats = served_run(&served_usual, fake_recorder_reset(), &plain);
	kept = *recorder;
	options.reuses_prefixes = true;
	options.limits.n_batch = n_batch[_i];
	options.limits.n_chunk = 16;
	options.limits.n_kv_positions = n_kv_positions[_i];
	stats = served_run(&options, fake_recorder_reset(), &texts);
	served_compare(&texts, &plain, 6);
	for (i = 0; i < 6; i++) {
		const struct fake_request *again = &recorder->requests[i];
		const struct fake_request *first = &kept.requests[i];

		ck_assert_uint_eq(again->n_positions, first->n_positions);
		ck_assert_mem_eq(again->ids, first->ids, sizeof(first->ids));
		ck_assert_mem_eq(again->weights, first->weights, sizeof(first->weights));
	}
	ck_assert_uint_gt(stats.n_reuses, 0);
	ck_assert_uint_eq(stats.n_reused_positions,
			  recorder->n_reused_by_slot + recorder->n_reused_by_link);
	if (stats.n_retracts == 0)
		ck_assert_uint_eq(recorder->n_rows + stats.n_reused_positions, kept.n_rows);
	if (n_batch[_i] == 1)
		ck_assert_uint_eq(recorder->n_reused_by_link, 0);
	else
		ck_assert_uint_gt(recorder->n_reused_by_link, 0);
	ck_assert_uint_eq(plain_stats.n_reused_positions, 0);
}
END_TEST

static bool stop_when_retracted(void *context, const struct mtk_serve_stats *stats)
{
	(void)context;
	return stats->n_retracts == 0;
}

/* What waits to be computed again is open, and ends with the run. */
START_TEST(test_retracted_and_interrupted)
{
	struct mtk_serve_options options = served_usual;
	struct mtk_serve_recording recording = {.session = fake_recorder_reset(),
							.model_name = "tinymoe",
							.records_tokens = true};
	const struct fake_recorder *recorder = fake_recorder();
	struct mtk_serve_stats stats;
	struct mtk_server *server;
	uint32_t n_retracted = 0, i;

	options.limits.n_kv_positions = 300;
	options.observe = stop_when_retracted;
	ck_assert_int_eq(mtk_server_create(served_model, served_workload, &options, &server, NULL), MOETRACE_OK);
	ck_assert_int_eq(mtk_server_run(server, &recording, &stats, NULL), MOETRACE_OK);
	ck_assert(stats.interrupted);
	for (i = 0; i < recorder->n_requests; i++) {
		ck_assert_int_ne(recorder->requests[i].end_state, 0);
		if (recorder->requests[i].n_retracts == 0)
			continue;
		n_retracted++;
		ck_assert_uint_gt(recorder->requests[i].n_before, 0);
		ck_assert_uint_eq(recorder->requests[i].n_positions, 0);
		ck_assert_int_eq(recorder->requests[i].end_state, MOETRACE_REQUEST_ABORTED);
	}
	ck_assert_uint_eq(n_retracted, stats.n_retracts);
	mtk_server_destroy(server);
}
END_TEST

/* A request of exactly as many tokens is done; a longer one is aborted, with the same beginning. */
START_TEST(test_aborted)
{
	static struct served_texts plain, texts;
	struct mtk_serve_options options = served_usual;
	struct mtk_serve_stats stats;
	uint32_t n_aborted = 0, i;

	served_run(&served_usual, NULL, &plain);
	options.limits.n_abort = (uint32_t)served_workload->requests[0].max_new_tokens;
	stats = served_run(&options, fake_recorder_reset(), &texts);
	for (i = 0; i < SERVED_REQUESTS; i++) {
		const struct mtk_workload_request *asked = &served_workload->requests[i];
		const struct fake_request *request = &fake_recorder()->requests[i];
		bool is_aborted = asked->max_new_tokens > options.limits.n_abort;

		ck_assert_uint_eq(texts.n_bytes[i],
				  is_aborted ? options.limits.n_abort : asked->max_new_tokens);
		ck_assert_mem_eq(texts.bytes[i], plain.bytes[i], texts.n_bytes[i]);
		ck_assert_int_eq(request->end_state,
				 is_aborted ? MOETRACE_REQUEST_ABORTED : MOETRACE_REQUEST_FINISHED);
		ck_assert_uint_eq(request->n_positions,
				  asked->n_prompt_bytes + texts.n_bytes[i] - 1);
		n_aborted += is_aborted;
	}
	ck_assert_uint_gt(n_aborted, 0);
	ck_assert_uint_lt(n_aborted, SERVED_REQUESTS);
	ck_assert_uint_eq(stats.n_aborted, n_aborted);
	ck_assert_uint_eq(stats.n_done, SERVED_REQUESTS);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("serve retract");
	TCase *tcase = served_tcase(suite);

	tcase_add_test(tcase, test_retracted);
	tcase_add_loop_test(tcase, test_prefixes_reused, 0, 3);
	tcase_add_test(tcase, test_retracted_and_interrupted);
	tcase_add_test(tcase, test_aborted);
	return run_suite(suite);
}
