/* SPDX-License-Identifier: MIT */
/*
 * The example model and workload, served; see served.h.
 */
#include "tests/engine/support/served.h"

#include <check.h>
#include <string.h>

#include <moetrace/status.h>

#include "kernels/engine/qwen3moe_config.h"
#include "tests/engine/support/model_file.h"

/* Few enough for slow builds. */
#define MAX_NEW_TOKENS 40

struct mtk_model *served_model;
struct mtk_workload *served_workload;
const struct mtk_serve_options served_usual = {
	.limits = {.n_batch = 4, .n_chunk = 64, .n_context = 1024, .stop_byte = -1},
	.n_threads = 2,
};

static void setup(void)
{
	struct mtk_safetensors *file;
	struct mtk_tensor_source source;
	struct mtk_model_config config;
	char message[MTK_MESSAGE_BYTES];

	ck_assert_int_eq(mtk_safetensors_open(model_file_tinymoe_path(), &file, NULL), MOETRACE_OK);
	ck_assert_int_eq(mtk_qwen3moe_config_read(file, 1024, &config, NULL), MOETRACE_OK);
	source = mtk_safetensors_source(file);
	ck_assert_int_eq(mtk_model_create(&config, &source, message, &served_model), MOETRACE_OK);
	mtk_safetensors_close(file);
	ck_assert_int_eq(mtk_workload_read(model_file_workload_path(), &served_workload, NULL),
			 MOETRACE_OK);
	served_workload->n_requests = SERVED_REQUESTS;
	for (uint32_t i = 0; i < SERVED_REQUESTS; i++)
		if (served_workload->requests[i].max_new_tokens > MAX_NEW_TOKENS)
			served_workload->requests[i].max_new_tokens = MAX_NEW_TOKENS;
}

static void teardown(void)
{
	/* All of them are released, also those that were left out. */
	served_workload->n_requests = 64;
	mtk_workload_destroy(served_workload);
	mtk_model_destroy(served_model);
}

struct mtk_serve_stats served_run(const struct mtk_serve_options *options,
				  struct moetrace_session *session, struct served_texts *ret_texts)
{
	struct mtk_serve_recording recording = {
		.session = session, .model_name = "tinymoe", .records_tokens = true};
	struct mtk_serve_stats stats;
	struct mtk_server *server;
	struct mtk_error error = {.text = ""};
	uint32_t i;

	ck_assert_msg(mtk_server_create(served_model, served_workload, options, &server, &error) ==
			      MOETRACE_OK,
		      "%s", error.text);
	ck_assert_msg(mtk_server_run(server, &recording, &stats, &error) == MOETRACE_OK, "%s",
		      error.text);
	ck_assert_int_eq(mtk_server_run(server, &recording, &stats, &error), MOETRACE_E_STATE);
	for (i = 0; i < served_workload->n_requests; i++) {
		const struct mtk_sequence *sequence = mtk_server_sequence(server, i);

		ret_texts->n_bytes[i] = sequence->n_generated;
		memcpy(ret_texts->bytes[i], sequence->text, sequence->n_generated);
	}
	mtk_server_destroy(server);
	return stats;
}

void served_compare(const struct served_texts *got, const struct served_texts *want, uint32_t n)
{
	uint32_t i;

	for (i = 0; i < n; i++) {
		ck_assert_uint_eq(got->n_bytes[i], want->n_bytes[i]);
		ck_assert_mem_eq(got->bytes[i], want->bytes[i], want->n_bytes[i]);
	}
}

TCase *served_tcase(Suite *suite)
{
	TCase *tcase = tcase_create("example");

	suite_add_tcase(suite, tcase);
	tcase_add_unchecked_fixture(tcase, setup, teardown);
	tcase_set_timeout(tcase, 120);
	return tcase;
}
