/* SPDX-License-Identifier: MIT */
/*
 * Opportunistic expert activation on a GPU against its definition: random routers and rules, rows
 * that are hard to route, prefill and padding rows among them. The router's own choice is that of the
 * definition on both sides. Double precision may round two scores apart on one side alone, so a row
 * in some thousands may differ; the union of its batch then does, too. With MOETRACE_TEST_SMALL set
 * there are few batches, of which nothing is said by how many rows differ.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <moetrace/status.h>

#include "kernels/oea/oea_cuda.h"
#include "tests/kernels/cuda/support/gpu.h"
#include "tests/routing/support/settings.h"

enum { N_SETTINGS = 400, MAX_ROWS = 70 };

struct batch {
	struct mtk_route_config route;
	struct mtk_oea oea;
	uint32_t n_rows;
	uint32_t n_valid;
	uint32_t n_columns;
	float *logits;
	float *bias;
	uint8_t *is_decode;
	int32_t *base_ids;
	float *base_weights;
	int32_t *ids;
	float *weights;
};

/* A rule that fits the router. False: it takes none. */
static bool random_rule(struct random *random, const struct mtk_route_config *route,
			struct mtk_oea *ret_oea)
{
	struct mtk_oea given = {.k0 = 1 + random_below(random, route->top_k)};
	const uint32_t n = mtk_route_columns(route);

	if (random_below(random, 2))
		given.k_max = given.k0 + random_below(random, 4);
	if (random_below(random, 3) == 0)
		given.p = 0.05 + 0.9 * fabs((double)random_unit(random));
	if (random_below(random, 3) == 0)
		given.max_rank = 1 + random_below(random, n);
	return mtk_oea_resolve(&given, route, ret_oea, NULL) == MOETRACE_OK;
}

static void fill(struct random *random, struct batch *b)
{
	const struct mtk_route_config *route = &b->route;
	const size_t n = (size_t)b->n_rows * b->n_columns;
	const size_t n_bias = route->bias_per_token ? n : b->n_columns;
	const uint32_t width = mtk_route_width(route);

	b->logits = gpu_host(n * sizeof(float));
	b->bias = gpu_host(n_bias * sizeof(float));
	b->is_decode = gpu_host(b->n_rows);
	for (uint32_t r = 0; r < b->n_rows; r++) {
		random_logits(random, route, b->logits + (size_t)r * b->n_columns);
		b->is_decode[r] = random_below(random, 4) != 0;
	}
	for (size_t i = 0; i < n_bias; i += b->n_columns)
		random_biases(random, b->n_columns, b->bias + i);
	b->base_ids = gpu_host((size_t)b->n_rows * width * sizeof(int32_t));
	b->base_weights = gpu_host((size_t)b->n_rows * width * sizeof(float));
	b->ids = gpu_host((size_t)b->n_rows * mtk_oea_width(&b->oea, route) * sizeof(int32_t));
	b->weights = gpu_host((size_t)b->n_rows * mtk_oea_width(&b->oea, route) * sizeof(float));
}

static void define(struct batch *b)
{
	void *scratch = gpu_host(mtk_route_scratch_floats(b->n_columns) * sizeof(float));
	uint8_t n_base[MAX_ROWS], *is_loaded = gpu_host(b->n_columns);
	const struct mtk_route_batch rows = {.n_rows = b->n_rows,
					     .n_valid_rows = b->n_valid,
					     .logits = b->logits,
					     .bias = b->bias};
	const struct mtk_route_result base = {.ids = b->base_ids, .weights = b->base_weights};
	const struct mtk_oea_result result = {.ids = b->ids, .weights = b->weights};
	const struct mtk_oea_batch batch = {.oea = &b->oea,
					    .route = &b->route,
					    .rows = rows,
					    .is_decode = b->is_decode,
					    .base_ids = b->base_ids,
					    .base_weights = b->base_weights,
					    .n_base = n_base,
					    .is_loaded = is_loaded};

	mtk_route_plain(&b->route, &rows, 0, b->n_rows, scratch, &base);
	mtk_oea_base(&batch, 0, b->n_rows, scratch);
	mtk_oea_unite(&batch);
	mtk_oea_choose(&batch, 0, b->n_rows, scratch, &result);
	free(scratch);
	free(is_loaded);
}

/* Rows whose ids differ; weights of the others must agree. */
static uint32_t compare(const struct batch *b)
{
	const uint32_t width = mtk_oea_width(&b->oea, &b->route);
	const uint32_t n_base = mtk_route_width(&b->route);
	const size_t n = (size_t)b->n_rows * width, n_from = (size_t)b->n_rows * n_base;
	const size_t n_logits = (size_t)b->n_rows * b->n_columns;
	struct mtk_oea_cuda oea = {.oea = b->oea, .route = b->route, .n_rows = b->n_rows};
	int32_t *ids = gpu_host(n * sizeof(*ids));
	float *weights = gpu_host(n * sizeof(*weights));
	uint32_t n_different = 0;
	struct mtk_error error;

	oea.n_valid_rows = gpu_copy_of(&b->n_valid, sizeof(b->n_valid));
	oea.logits = gpu_copy_of(b->logits, n_logits * sizeof(float));
	oea.bias = gpu_copy_of(
		b->bias, (b->route.bias_per_token ? n_logits : b->n_columns) * sizeof(float));
	oea.is_decode = gpu_copy_of(b->is_decode, b->n_rows);
	oea.base_ids = gpu_copy_of(b->base_ids, n_from * sizeof(int32_t));
	oea.base_weights = gpu_copy_of(b->base_weights, n_from * sizeof(float));
	oea.n_base = gpu_memory(b->n_rows * sizeof(uint32_t));
	oea.is_loaded = gpu_memory((b->n_columns / 32 + 1) * sizeof(uint32_t));
	oea.ids = gpu_memory(n * sizeof(*ids));
	oea.weights = gpu_memory(n * sizeof(*weights));
	gpu_must(mtk_oea_cuda(&oea, gpu_stream(), &error), &error, "the rule");
	gpu_read(ids, oea.ids, n * sizeof(*ids));
	gpu_read(weights, oea.weights, n * sizeof(*weights));
	for (size_t r = 0; r < b->n_rows; r++) {
		const size_t first = r * width;

		if (memcmp(ids + first, b->ids + first, width * sizeof(*ids)) != 0) {
			n_different++;
			continue;
		}
		for (size_t j = first; j < first + width; j++)
			gpu_check(fabs((double)weights[j] - (double)b->weights[j]) <=
					  1e-6 * fmax(1.0, fabs((double)b->weights[j])),
				  "row %zu: weight %.9g, not %.9g", r, (double)weights[j],
				  (double)b->weights[j]);
	}
	gpu_free_all();
	free(ids);
	free(weights);
	return n_different;
}

int main(void)
{
	struct random random = {5};
	const uint32_t n_wanted = gpu_is_small() ? N_SETTINGS / 10 : N_SETTINGS;
	uint32_t n_rows = 0, n_different = 0, n_settings = 0;

	gpu_open_or_skip();
	while (n_settings < n_wanted) {
		struct batch b = {.route = random_setting(&random)};

		if (!random_rule(&random, &b.route, &b.oea))
			continue;
		b.n_columns = mtk_route_columns(&b.route);
		b.n_rows = 1 + random_below(&random, MAX_ROWS);
		b.n_valid = random_below(&random, 3) ? b.n_rows : random_below(&random, b.n_rows);
		fill(&random, &b);
		define(&b);
		n_different += compare(&b);
		n_rows += b.n_rows;
		n_settings++;
		free(b.logits);
		free(b.bias);
		free(b.is_decode);
		free(b.base_ids);
		free(b.base_weights);
		free(b.ids);
		free(b.weights);
	}
	printf("oea: %u rows under %u rules, %u with other ids\n", n_rows, n_settings, n_different);
	gpu_check(gpu_is_small() || n_different * 2000 <= n_rows, "%u of %u rows have other ids", n_different, n_rows);
	return 0;
}
