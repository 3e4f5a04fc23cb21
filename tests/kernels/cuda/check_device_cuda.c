/* SPDX-License-Identifier: MIT */
/*
 * The device functions: a machine without a GPU gets a status and a sentence; on one with a GPU
 * copies, graphs, and the errors of what cannot be. Both ends are tests: nothing is skipped.
 */
#include <stdio.h>
#include <string.h>

#include <moetrace/status.h>

#include "kernels/cuda/cublas.h"
#include "kernels/cuda/device.h"
#include "tests/kernels/cuda/support/gpu.h"

static void check_absent(int status, const struct mtk_error *error)
{
	gpu_check(status == MOETRACE_E_UNSUPPORTED, "without a GPU the status is %d", status);
	gpu_check(strncmp(error->text, "cuda: ", 6) == 0 && strlen(error->text) > 10,
		  "without a GPU the text is \"%s\"", error->text);
	printf("no GPU: %s\n", error->text);
}

/* Where there is no library, or no GPU for it, a sentence says so and nothing else happens. */
static void check_cublas(bool has_gpu)
{
	char text[128] = "";
	struct mtk_cublas *cublas =
		mtk_cublas_open(has_gpu ? gpu_stream() : NULL, text, sizeof(text));

	printf("%s\n", text);
	gpu_check(strncmp(text, cublas ? "cuBLAS " : "no cuBLAS: ", cublas ? 7 : 11) == 0,
		  "cuBLAS is found as \"%s\"", text);
	gpu_check(!cublas || has_gpu, "cuBLAS starts without a GPU");
	mtk_cublas_close(cublas);
}

static void check_copies(void)
{
	const char text[] = "thirty-three bytes of ordinary text";
	char back[sizeof(text)] = "";
	struct mtk_error error;
	void *memory = gpu_copy_of(text, sizeof(text));
	void *second = gpu_memory(sizeof(text));

	gpu_must(mtk_cuda_copy(second, memory, sizeof(text), gpu_stream(), &error), &error, "copy");
	gpu_read(back, second, sizeof(text));
	gpu_check(memcmp(text, back, sizeof(text)) == 0, "what came back is \"%s\"", back);
	gpu_must(mtk_cuda_zero(second, sizeof(text), gpu_stream(), &error), &error, "zero");
	gpu_read(back, second, sizeof(text));
	for (size_t i = 0; i < sizeof(text); i++)
		gpu_check(back[i] == 0, "byte %zu is %d, not zero", i, back[i]);
}

/* A captured copy runs when the graph is launched, as often as it is, and not before. */
static void check_graph(void)
{
	uint32_t values[2] = {7, 1}, got = 0;
	struct mtk_error error;
	uint32_t *memory = gpu_copy_of(values, sizeof(values));
	void *graph;

	gpu_must(mtk_cuda_graph_begin(gpu_stream(), &error), &error, "capture");
	gpu_must(mtk_cuda_copy(memory + 1, memory, sizeof(*memory), gpu_stream(), &error), &error,
		 "a captured copy");
	gpu_must(mtk_cuda_graph_end(gpu_stream(), &error, &graph), &error, "the graph");
	gpu_read(&got, memory + 1, sizeof(got));
	gpu_check(got == 1, "a captured copy ran at once: %u", got);
	gpu_must(mtk_cuda_graph_launch(graph, gpu_stream(), &error), &error, "launch");
	gpu_read(&got, memory + 1, sizeof(got));
	gpu_check(got == 7, "after the launch the value is %u", got);
	mtk_cuda_graph_destroy(graph);
}

static void check_errors(void)
{
	struct mtk_cuda_device device;
	struct mtk_error error;
	void *memory = NULL, *graph = NULL;

	gpu_check(mtk_cuda_open(9999, &error, &device) == MOETRACE_E_UNSUPPORTED &&
			  strstr(error.text, "9999"),
		  "GPU 9999: \"%s\"", error.text);
	gpu_check(mtk_cuda_alloc((size_t)1 << 50, &error, &memory) == MOETRACE_E_NOMEM && !memory,
		  "a petabyte: \"%s\"", error.text);
	gpu_check(mtk_cuda_graph_end(gpu_stream(), &error, &graph) != MOETRACE_OK && !graph,
		  "a graph that was not begun");
	/* None of it stays behind. */
	gpu_must(mtk_cuda_stream_wait(gpu_stream(), &error), &error, "after the errors");
	check_copies();
}

int main(void)
{
	struct mtk_cuda_device device;
	struct mtk_error error;
	int status = mtk_cuda_open(0, &error, &device);

	if (status != MOETRACE_OK) {
		check_absent(status, &error);
		check_cublas(false);
		return 0;
	}
	gpu_open_or_skip();
	check_copies();
	check_graph();
	check_errors();
	check_cublas(true);
	gpu_free_all();
	return 0;
}
