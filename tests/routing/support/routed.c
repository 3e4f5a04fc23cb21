/* SPDX-License-Identifier: MIT */
/*
 * What a router leaves as it was is told from what it wrote: all bits of a result are set before.
 */
#include "tests/routing/support/routed.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

#include <moetrace/status.h>

#include "kernels/cpu.h"

struct mtk_route_result routed_result(struct routed *routed)
{
	return (struct mtk_route_result){routed->ids, routed->weights, routed->packed,
					 routed->flags, routed->margins};
}

void *routed_scratch(const struct mtk_route_config *config)
{
	void *scratch = malloc(mtk_route_scratch_floats(mtk_route_columns(config)) * sizeof(float));

	ck_assert_ptr_nonnull(scratch);
	return scratch;
}

void routed_assert_valid(const struct mtk_route_config *config)
{
	char message[MTK_ROUTE_MESSAGE_BYTES] = "";

	ck_assert_msg(mtk_route_config_check(config, message) == MOETRACE_OK, "%s", message);
}

struct routed *routed_run(int level, const struct mtk_route_config *config, uint32_t n_rows,
			  const float *logits, const float *bias)
{
	static struct routed routed;
	const struct mtk_route_batch batch = {n_rows, n_rows, logits, bias, NULL};
	const struct mtk_route_result result = routed_result(&routed);
	void *scratch = routed_scratch(config);

	routed_assert_valid(config);
	memset(&routed, 0xff, sizeof(routed));
	mtk_cpu_ops_find((enum mtk_cpu_level)level)
		->route(config, &batch, 0, n_rows, scratch, &result);
	free(scratch);
	return &routed;
}

void routed_assert_ids(const struct routed *routed, uint32_t n, const int32_t *ids)
{
	for (uint32_t j = 0; j < n; j++)
		ck_assert_msg(routed->ids[j] == ids[j], "place %u: id %d, not %d", j,
			      routed->ids[j], ids[j]);
}
