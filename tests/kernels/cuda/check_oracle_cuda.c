/* SPDX-License-Identifier: MIT */
/*
 * The routers of model families on a GPU: what each one's reference implementation chose on random
 * logits. Rows are compared as sets: sorted by id, ids equal and weights within 2e-6; by the kernel that
 * serves the setting, by that kernel with padding, and by the definition's, which margins ask for.
 */
#include <stdio.h>
#include <stdlib.h>

#include "kernels/cuda/device.h"
#include "kernels/route/route_cuda.h"
#include "tests/kernels/cuda/support/gpu.h"
#include "tests/routing/support/oracle.h"

static void route(const struct oracle *oracle, const uint32_t *n_valid_rows, bool has_margins)
{
	const struct mtk_route_config *config = &oracle->preset->route;
	const uint32_t n = mtk_route_columns(config), width = mtk_route_width(config);
	const size_t n_entries = (size_t)ORACLE_ROWS * width;
	const struct mtk_route_cuda_batch batch = {
		.n_rows = ORACLE_ROWS,
		.n_valid_rows = n_valid_rows,
		.logits = gpu_copy_of(oracle->logits, (size_t)ORACLE_ROWS * n * sizeof(float)),
		.bias = gpu_copy_of(oracle->bias, n * sizeof(float)),
	};
	const struct mtk_route_result device = {
		.ids = gpu_memory(n_entries * sizeof(int32_t)),
		.weights = gpu_memory(n_entries * sizeof(float)),
		.margins = has_margins ? gpu_memory(ORACLE_ROWS * sizeof(float)) : NULL,
	};
	int32_t *ids = gpu_host(n_entries * sizeof(*ids));
	float *weights = gpu_host(n_entries * sizeof(*weights));
	char text[ORACLE_MESSAGE_BYTES];
	struct mtk_error error;

	gpu_check(width == config->top_k, "%s has shared slots", oracle->preset->name);
	gpu_must(mtk_cuda_stream_wait(gpu_stream(), &error), &error, "uploads");
	gpu_must(mtk_route_cuda(config, &batch, &device, gpu_stream(), &error), &error, "routing");
	gpu_read(ids, device.ids, n_entries * sizeof(*ids));
	gpu_read(weights, device.weights, n_entries * sizeof(*weights));
	gpu_check(oracle_compare(oracle, ids, weights, text) == 0, "%s", text);
	free(ids);
	free(weights);
	gpu_free_all();
}

int main(void)
{
	const uint32_t n_rows = ORACLE_ROWS;

	gpu_open_or_skip();
	for (uint32_t i = 0; i < ORACLE_N_FAMILIES; i++) {
		char text[ORACLE_MESSAGE_BYTES];
		struct oracle oracle;

		gpu_check(oracle_load(oracle_families[i], &oracle, text) == 0, "%s", text);
		route(&oracle, NULL, false);
		route(&oracle, gpu_copy_of(&n_rows, sizeof(n_rows)), false);
		route(&oracle, NULL, true);
		oracle_free(&oracle);
	}
	printf("%u rows of %u families, thrice\n", ORACLE_ROWS, ORACLE_N_FAMILIES);
	return 0;
}
