/* SPDX-License-Identifier: MIT */
/*
 * The model files of the tests.
 */
#include "tests/engine/support/model_file.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <check.h>

const char model_file_sound_header[] =
	"{\"__metadata__\":{\"architecture\":\"Qwen3MoeForCausalLM\",\"config\":\"{\\\"vocab_"
	"size\\\": 256}\"},"
	"\"embed\":{\"dtype\":\"F16\",\"shape\":[3,5],\"data_offsets\":[0,30]},"
	"\"norm\":{\"dtype\":\"F32\",\"shape\":[7],\"data_offsets\":[30,58]},"
	"\"scalar\":{\"dtype\":\"BF16\",\"shape\":[],\"data_offsets\":[58,60]},"
	"\"none\":{\"dtype\":\"F32\",\"shape\":[4,0],\"data_offsets\":[60,60]},"
	"\"experts.down\":{\"data_offsets\":[60,118],\"shape\":[1,29,1],\"dtype\":\"BF16\"}}   ";

struct model_file model_file_make(const char *header, size_t data_bytes)
{
	struct model_file file = {.header_bytes = strlen(header)};
	size_t i;

	file.n_bytes = 8 + file.header_bytes + data_bytes;
	file.bytes = malloc(file.n_bytes);
	ck_assert_ptr_nonnull(file.bytes);
	for (i = 0; i < 8; i++)
		file.bytes[i] = (unsigned char)((uint64_t)file.header_bytes >> 8 * i);
	memcpy(file.bytes + 8, header, file.header_bytes);
	for (i = 0; i < data_bytes; i++)
		file.bytes[8 + file.header_bytes + i] = (unsigned char)i;
	return file;
}

struct model_file model_file_sound(void)
{
	return model_file_make(model_file_sound_header, MODEL_FILE_SOUND_DATA_BYTES);
}

void model_file_release(struct model_file *file)
{
	free(file->bytes);
	memset(file, 0, sizeof(*file));
}

static const char *example_path(const char *name)
{
	static char path[4096];
	const char *source = getenv("MOETRACE_SRCDIR");

	snprintf(path, sizeof(path), "%s/examples/tinymoe/%s", source ? source : ".", name);
	return path;
}

const char *model_file_tinymoe_path(void)
{
	return example_path("tinymoe.safetensors");
}

const char *model_file_workload_path(void)
{
	return example_path("workload.jsonl");
}
