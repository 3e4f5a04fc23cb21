/* SPDX-License-Identifier: MIT */
/*
 * The promises of the readers, as checks on whatever they accept.
 */
#include "tests/fuzz/fuzz_input.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <moetrace/status.h>

#include "common/json.h"
#include "common/utf8.h"
#include "kernels/engine/qwen3moe_config.h"
#include "kernels/engine/safetensors.h"
#include "kernels/engine/workload.h"

static void require(int holds, const char *promise)
{
	if (holds)
		return;
	fprintf(stderr, "broken: %s\n", promise);
	abort();
}

static void error_check(const struct mtk_error *error)
{
	const char *at;

	require(memchr(error->text, '\0', sizeof(error->text)) != NULL, "an error is terminated");
	require(error->text[0] != '\0', "a failure has words");
	for (at = error->text; *at != '\0'; at++)
		require((unsigned char)*at >= 0x20 && *at != 0x7f, "an error has no control byte");
}

/* Read every byte of a tensor, so that a sanitizer sees a range that is too long. */
static size_t tensor_check(const struct mtk_tensor *tensor)
{
	static const size_t element_bytes[] = {
		[MTK_DTYPE_F32] = 4, [MTK_DTYPE_F16] = 2, [MTK_DTYPE_BF16] = 2};
	const unsigned char *data = tensor->data;
	uint64_t n_elements = 1;
	volatile unsigned char sum = 0;
	size_t i;

	require(tensor->n_dims <= MTK_TENSOR_MAX_DIMS, "dimensions are limited");
	for (i = 0; i < tensor->n_dims; i++)
		n_elements *= tensor->dims[i];
	require(n_elements * element_bytes[tensor->dtype] == tensor->n_bytes,
		"a tensor has the bytes of its shape");
	for (i = 0; i < tensor->n_bytes; i++)
		sum = (unsigned char)(sum + data[i]);
	return tensor->n_bytes;
}

static void file_check(struct mtk_safetensors *file, size_t n_bytes)
{
	struct mtk_tensor_source source = mtk_safetensors_source(file);
	struct mtk_model_config config;
	struct mtk_tensor tensor, found;
	struct mtk_error error = {.text = ""};
	const char *name, *last = NULL;
	size_t n_data_bytes = 0, i;

	for (i = 0; i < mtk_safetensors_n_tensors(file); i++) {
		name = mtk_safetensors_tensor_at(file, i, &tensor);
		require(!last || strcmp(last, name) < 0, "names ascend and differ");
		last = name;
		n_data_bytes += tensor_check(&tensor);
		require(source.find(source.ctx, name, &found) == MOETRACE_OK &&
				found.data == tensor.data,
			"every tensor is found by its name");
	}
	require(n_data_bytes <= n_bytes, "tensors do not overlap");
	if (mtk_qwen3moe_config_read(file, 64, &config, &error) < 0)
		error_check(&error);
	else
		require(config.top_k <= config.n_experts && config.n_heads % config.n_kv_heads == 0,
			"a configuration that is read is possible");
}

int fuzz_safetensors_input(const unsigned char *bytes, size_t n_bytes)
{
	struct mtk_safetensors *file = NULL;
	struct mtk_error error = {.text = ""};

	if (mtk_safetensors_parse("fuzz", bytes, n_bytes, &file, &error) < 0) {
		require(!file, "outputs are set on success only");
		error_check(&error);
		return 0;
	}
	file_check(file, n_bytes);
	mtk_safetensors_close(file);
	return 1;
}

struct depths {
	uint32_t depth;
};

static int json_receive(void *context, const struct mt_json_event *event,
			struct mt_json_error *error)
{
	struct depths *depths = context;
	double number;

	(void)error;
	if (event->kind == MT_JSON_OBJECT_END || event->kind == MT_JSON_ARRAY_END)
		depths->depth--;
	require(event->depth == depths->depth, "depths are those of the text");
	if (event->kind == MT_JSON_OBJECT_BEGIN || event->kind == MT_JSON_ARRAY_BEGIN)
		depths->depth++;
	if (event->kind == MT_JSON_STRING || event->kind == MT_JSON_KEY)
		require(mt_utf8_is_valid(event->text, event->n_bytes), "strings are UTF-8");
	if (event->kind == MT_JSON_NUMBER)
		(void)mt_json_double(event, &number);
	return MOETRACE_OK;
}

int fuzz_json_input(const unsigned char *bytes, size_t n_bytes)
{
	struct mt_json_limits limits = {1 << 20, 16};
	struct mt_json_error error = {.text = ""};
	struct depths depths = {0};

	if (mt_json_parse((const char *)bytes, n_bytes, &limits, json_receive, &depths, &error) <
	    0) {
		require(error.text[0] != '\0', "a failure has words");
		require(error.byte <= n_bytes && error.line >= 1 && error.column >= 1,
			"a failure has a place in the text");
		return 0;
	}
	require(depths.depth == 0, "containers are closed");
	return 1;
}

int fuzz_workload_input(const unsigned char *bytes, size_t n_bytes)
{
	struct mtk_workload *workload = NULL;
	struct mtk_error error = {.text = ""};
	size_t i;

	if (mtk_workload_parse("fuzz", (const char *)bytes, n_bytes, &workload, &error) < 0) {
		require(!workload, "outputs are set on success only");
		error_check(&error);
		return 0;
	}
	require(workload->n_requests > 0, "a workload has requests");
	for (i = 0; i < workload->n_requests; i++) {
		const struct mtk_workload_request *request = &workload->requests[i];

		require(request->id[0] != '\0' && request->n_prompt_bytes > 0 &&
				request->max_new_tokens > 0,
			"a request has an id, a prompt and tokens to generate");
	}
	mtk_workload_destroy(workload);
	return 1;
}
