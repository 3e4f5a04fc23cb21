/* SPDX-License-Identifier: MIT */
/* Loading of the example model for the tests of the engine. */
#include "tests/kernels/support/tinymoe.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>

#include <moetrace/status.h>

#include "common/json.h"
#include "kernels/engine/qwen3moe_config.h"
#include "kernels/engine/safetensors.h"
#include "tests/kernels/support/levels.h"

#define PATH_BYTES 4096

static void source_path(const char *path, char *full)
{
	const char *root = getenv("MOETRACE_SRCDIR");

	snprintf(full, PATH_BYTES, "%s/%s", root ? root : ".", path);
}

static int ignore_event(void *context, const struct mt_json_event *event,
			struct mt_json_error *error)
{
	(void)context;
	(void)event;
	(void)error;
	return MOETRACE_OK;
}

bool tinymoe_is_readable(void)
{
	const struct mt_json_limits limits = {.max_bytes = 4, .max_depth = 1};
	struct mt_json_error error;

	if (mt_json_parse("true", 4, &limits, ignore_event, NULL, &error) !=
	    MOETRACE_E_UNSUPPORTED)
		return true;
	printf("skipped: %s\n", error.text);
	return false;
}

void *tinymoe_read_file(const char *path, size_t n_bytes, size_t *ret_bytes)
{
	char full[PATH_BYTES];
	FILE *file;
	char *bytes;
	long size;

	source_path(path, full);
	file = fopen(full, "rb");
	ck_assert_msg(file != NULL, "%s: cannot be opened", full);
	ck_assert_int_eq(fseek(file, 0, SEEK_END), 0);
	size = ftell(file);
	ck_assert_int_gt(size, 0);
	rewind(file);
	if (n_bytes != 0)
		ck_assert_msg((size_t)size == n_bytes, "%s: %ld bytes, expected %zu", full, size,
			      n_bytes);
	bytes = malloc((size_t)size);
	ck_assert_ptr_nonnull(bytes);
	ck_assert_uint_eq(fread(bytes, 1, (size_t)size, file), (size_t)size);
	fclose(file);
	if (ret_bytes)
		*ret_bytes = (size_t)size;
	return bytes;
}

void tinymoe_use_level(int level)
{
	ck_assert_int_eq(setenv("MOETRACE_CPU", level_name(level), 1), 0);
}

struct tinymoe tinymoe_open(uint32_t n_slots, uint32_t n_rows_max, uint32_t n_threads)
{
	struct tinymoe tiny;
	struct mtk_safetensors *file;
	struct mtk_tensor_source source;
	struct mtk_error error = {""};
	char path[PATH_BYTES];
	char message[MTK_MESSAGE_BYTES] = "";
	int status;

	source_path("examples/tinymoe/tinymoe.safetensors", path);
	status = mtk_safetensors_open(path, &file, &error);
	ck_assert_msg(status == MOETRACE_OK, "%s", error.text);
	status = mtk_qwen3moe_config_read(file, 1024, &tiny.config, &error);
	ck_assert_msg(status == MOETRACE_OK, "%s", error.text);
	source = mtk_safetensors_source(file);
	status = mtk_model_create(&tiny.config, &source, message, &tiny.model);
	ck_assert_msg(status == MOETRACE_OK, "%s", message);
	mtk_safetensors_close(file);

	ck_assert_int_eq(mtk_workspace_create(tiny.model, n_rows_max, &tiny.workspace), 0);
	ck_assert_int_eq(mtk_kv_cache_create(&tiny.config, n_slots, 1024, &tiny.kv), 0);
	ck_assert_int_eq(mtk_threads_create(n_threads, &tiny.threads), 0);
	return tiny;
}

void tinymoe_close(struct tinymoe *tiny)
{
	mtk_threads_destroy(tiny->threads);
	mtk_kv_cache_destroy(tiny->kv);
	mtk_workspace_destroy(tiny->workspace);
	mtk_model_destroy(tiny->model);
}
