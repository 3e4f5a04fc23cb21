/* SPDX-License-Identifier: MIT */
/* The helpers of the tests on a GPU. */
#include "tests/kernels/cuda/support/gpu.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <moetrace/status.h>

#include "kernels/cuda/device.h"

#define MAX_BUFFERS 256

static void *stream;
static void *buffers[MAX_BUFFERS];
static size_t n_buffers;

void gpu_open_or_skip(void)
{
	struct mtk_cuda_device device;
	struct mtk_error error;
	int status = mtk_cuda_open(0, &error, &device);

	if (status == MOETRACE_E_UNSUPPORTED) {
		printf("skipped: %s\n", error.text);
		exit(77);
	}
	gpu_must(status, &error, "opening the GPU");
	printf("%s, compute capability %u.%u\n", device.name, device.major, device.minor);
	gpu_must(mtk_cuda_stream_create(&error, &stream), &error, "a stream");
}

void *gpu_stream(void)
{
	return stream;
}

void gpu_check(bool condition, const char *format, ...)
{
	va_list list;

	if (condition)
		return;
	va_start(list, format);
	fputs("failed: ", stderr);
	vfprintf(stderr, format, list);
	fputc('\n', stderr);
	va_end(list);
	exit(1);
}

void gpu_must(int status, const struct mtk_error *error, const char *what)
{
	gpu_check(status == MOETRACE_OK, "%s: status %d: %s", what, status,
		  error ? error->text : "");
}

static void *keep(size_t n_bytes)
{
	struct mtk_error error;
	void *memory;

	gpu_check(n_buffers < MAX_BUFFERS, "more than %d buffers", MAX_BUFFERS);
	gpu_must(mtk_cuda_alloc(n_bytes, &error, &memory), &error, "device memory");
	buffers[n_buffers++] = memory;
	return memory;
}

void *gpu_copy_of(const void *from, size_t n_bytes)
{
	struct mtk_error error;
	void *memory;

	if (!from)
		return NULL;
	memory = keep(n_bytes);
	gpu_must(mtk_cuda_upload(memory, from, n_bytes, stream, &error), &error, "upload");
	return memory;
}

void *gpu_memory(size_t n_bytes)
{
	void *pattern = gpu_host(n_bytes);
	void *memory;

	memset(pattern, 0xa5, n_bytes);
	memory = gpu_copy_of(pattern, n_bytes);
	free(pattern);
	return memory;
}

void gpu_read(void *to, const void *from_device, size_t n_bytes)
{
	struct mtk_error error;

	gpu_must(mtk_cuda_stream_wait(stream, &error), &error, "waiting");
	gpu_must(mtk_cuda_download(to, from_device, n_bytes, stream, &error), &error, "download");
	gpu_must(mtk_cuda_stream_wait(stream, &error), &error, "waiting");
}

void gpu_free_all(void)
{
	while (n_buffers > 0)
		mtk_cuda_free(buffers[--n_buffers]);
}

bool gpu_is_small(void)
{
	return getenv("MOETRACE_TEST_SMALL") != NULL;
}

void *gpu_host(size_t n_bytes)
{
	void *memory = malloc(n_bytes > 0 ? n_bytes : 1);

	gpu_check(memory != NULL, "out of memory");
	return memory;
}
