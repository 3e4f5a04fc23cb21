/* SPDX-License-Identifier: MIT */
/*
 * A GPU that fails in the middle of a recorded run: every later call of the engine and of the recorder
 * returns a status, nothing crashes or waits for ever, and the file says what was lost. The fault is
 * made by a kernel that writes where there is no memory; the process cannot use the GPU after it.
 */
#include <check.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <moetrace/cuda.h>

#include "kernels/cuda/device.h"
#include "kernels/embed/embed_cuda.h"
#include "kernels/engine/cuda_backend.h"
#include "kernels/engine/serve_record.h"
#include "tests/kernels/support/tinymoe.h"
#include "tests/support/run_suite.h"

struct run {
	struct tinymoe tiny;
	struct mtk_backend *backend;
	void *context;
	struct moetrace_session *session;
	struct moetrace_cuda_lane *lane;
	uint32_t model;
	uint32_t slot;
	int32_t position;
	char path[64];
};

static void open_run(struct run *run)
{
	const struct mtk_cuda_backend_settings settings = {.precision = MTK_CUDA_FP32};
	const struct mtk_context_settings context = {
		.n_slots = 2, .n_context = 64, .n_rows_max = 8, .n_threads = 1};
	struct mtk_error error = {""};

	run->tiny = tinymoe_open(1, 1, 1);
	ck_assert_msg(mtk_backend_cuda_create(run->tiny.model, &settings, &error, &run->backend) ==
			      MOETRACE_OK,
		      "%s", error.text);
	ck_assert_int_eq(run->backend->ops->context_create(run->backend, &context, &run->context,
							   &error),
			 0);
	ck_assert_int_eq(mtk_kv_cache_slot_acquire(run->backend->ops->cache(run->context),
						   &run->slot),
			 0);
	snprintf(run->path, sizeof(run->path), "/tmp/check_lost-%ld.db", (long)getpid());
	ck_assert_int_eq(moetrace_session_open(run->path, NULL, &run->session), 0);
	ck_assert_int_eq(mtk_serve_record_model(run->session, run->backend, NULL, "tinymoe",
						&run->model, &error),
			 0);
	ck_assert_int_eq(moetrace_start(run->session, NULL), 0);
	run->lane = run->backend->ops->record(run->context, run->session, run->model, false);
	ck_assert_ptr_nonnull(run->lane);
}

static int forward(struct run *run, struct mtk_error *error)
{
	int32_t token = 65, greedy = -1;
	uint8_t wanted = 1;
	const struct mtk_batch batch = {.n_rows = 1,
					.token_ids = &token,
					.positions = &run->position,
					.slots = &run->slot,
					.want_logits = &wanted};
	const struct mtk_forward_result result = {.greedy_ids = &greedy};
	struct moetrace_pass_info info;
	int status;

	MOETRACE_INIT(&info);
	info.model = run->model;
	info.phase = MOETRACE_PHASE_DECODE;
	info.n_rows = 1;
	(void)moetrace_cuda_pass_begin(run->lane, &info);
	status = run->backend->ops->forward(run->context, &batch, NULL, &result, error);
	(void)moetrace_cuda_pass_end(run->lane);
	run->position += status == MOETRACE_OK;
	return status;
}

/* The address 16 is nobody's. */
static void break_gpu(void)
{
	const struct mtk_embed_cuda embed = {.dtype = MTK_DTYPE_F32,
					     .n_rows = 1,
					     .n_vocab = 1,
					     .n_hidden = 4,
					     .weights = (const void *)16,
					     .token_ids = (const int32_t *)16,
					     .hidden = (float *)16};
	struct mtk_error error;

	(void)mtk_embed_cuda(&embed, NULL, &error);
	ck_assert_int_eq(mtk_cuda_stream_wait(NULL, &error), MOETRACE_E_IO);
}

START_TEST(test_lost_device)
{
	struct moetrace_session_status session;
	struct mtk_error error = {""};
	struct run run = {.position = 0};
	void *memory = NULL, *graph = NULL;

	open_run(&run);
	for (int i = 0; i < 5; i++)
		ck_assert_int_eq(forward(&run, &error), MOETRACE_OK);
	ck_assert_int_eq(moetrace_flush(run.session), MOETRACE_OK);
	break_gpu();
	for (int i = 0; i < 3; i++) {
		ck_assert_int_lt(forward(&run, &error), 0);
		ck_assert_int_eq(strncmp(error.text, "cuda: ", 6), 0);
	}
	printf("after the fault: %s\n", error.text);
	ck_assert_int_lt(mtk_cuda_alloc(16, &error, &memory), 0);
	ck_assert_int_lt(mtk_cuda_graph_begin(NULL, &error), 0);
	ck_assert_int_lt(mtk_cuda_graph_end(NULL, &error, &graph), 0);
	(void)moetrace_stop(run.session, "device lost");
	MOETRACE_INIT(&session);
	ck_assert_int_eq(moetrace_status(run.session, &session), MOETRACE_OK);
	ck_assert_uint_eq(session.recorded_passes, 5);
	ck_assert_uint_eq(session.dropped_passes, 3);
	ck_assert_int_eq(moetrace_session_close(run.session), MOETRACE_OK);
	unlink(run.path);
	run.backend->ops->context_destroy(run.context);
	mtk_backend_cuda_destroy(run.backend);
	tinymoe_close(&run.tiny);
}
END_TEST

int main(void)
{
	struct mtk_cuda_device device;
	struct mtk_error error;
	Suite *suite;
	TCase *tcase;

	if (!tinymoe_is_readable() || mtk_cuda_open(0, &error, &device) != MOETRACE_OK)
		return TINYMOE_SKIPPED;
	suite = suite_create("lost_cuda");
	tcase = tcase_create("device");
	tcase_add_test(tcase, test_lost_device);
	suite_add_tcase(suite, tcase);
	return run_suite_unforked(suite);
}
