/* SPDX-License-Identifier: MIT */
/*
 * Which of the lean kernels serves a setting, and its launch, for a hook. Those of top-8, which
 * most models have, are laid out in one piece; the others count.
 */
#ifndef MTK_ROUTE_ROUTE_LEAN_LAUNCH_CUH
#define MTK_ROUTE_ROUTE_LEAN_LAUNCH_CUH

#include <string.h>

#include "kernels/route/route_lean.cuh"

/* They are spread over all multiprocessors. */
#define ROUTE_LEAN_FEW_ROWS 256u

/* Two logits in this range that differ have different scores. */
static inline void route_lean_limit(const struct route_args *args, struct route_lean_args *lean)
{
	lean->least_logit = -ROUTE_LARGEST;
	lean->most_logit = ROUTE_LARGEST;
	lean->widest = INFINITY;
	if (args->by_logit)
		return;
	lean->near_zero = 1e-6f;
	if (args->config.scoring == MTK_ROUTE_SOFTMAX) {
		lean->least_logit = -64.0f;
		lean->most_logit = 64.0f;
		lean->widest = 79.0f;
	} else {
		lean->least_logit = -80.0f;
		lean->most_logit = 16.0f;
	}
}

static inline struct route_lean_args route_lean_prepare(const struct route_args *args)
{
	const struct mtk_route_config *config = &args->config;
	const struct mtk_route_result *result = &args->result;
	struct route_lean_args lean;

	memset(&lean, 0, sizeof(lean));
	lean.logits = args->logits;
	lean.bias = args->bias;
	lean.ids = result->ids;
	lean.weights = result->weights;
	lean.n_valid_rows = args->n_valid_rows;
	lean.n_rows = args->n_rows;
	lean.top_k = config->top_k;
	lean.width = config->top_k + config->n_shared_slots;
	lean.bias_stride = config->bias_per_token ? args->n : 0;
	lean.factor = args->factor;
	lean.least_sum = args->least_sum;
	lean.is_softmax = config->scoring == MTK_ROUTE_SOFTMAX ||
			  config->scoring == MTK_ROUTE_SOFTMAX_SELECTED;
	lean.divides = lean.is_softmax || config->renormalise != MTK_ROUTE_RENORMALISE_NONE;
	lean.has_more = config->n_shared_slots > 0 || result->packed || result->flags;
	lean.groups_top2 = args->groups_top2;
	lean.n_keep_groups = config->n_keep_groups;
	route_lean_limit(args, &lean);
	return lean;
}

static inline enum route_lean route_lean_kind_of_logit(const struct route_args *args)
{
	const struct mtk_route_config *config = &args->config;
	const bool is_plain = config->renormalise == MTK_ROUTE_RENORMALISE_EPSILON ||
			      config->renormalise == MTK_ROUTE_RENORMALISE_IF_POSITIVE;

	switch (config->scoring) {
	case MTK_ROUTE_SIGMOID:
		return ROUTE_LEAN_LOGIT;
	case MTK_ROUTE_SOFTMAX:
		/* The sum over all columns cancels. */
		return is_plain ? ROUTE_LEAN_LOGIT : ROUTE_LEAN_NONE;
	case MTK_ROUTE_SOFTMAX_SELECTED:
		return is_plain || config->renormalise == MTK_ROUTE_RENORMALISE_NONE
			       ? ROUTE_LEAN_LOGIT
			       : ROUTE_LEAN_NONE;
	default:
		return ROUTE_LEAN_NONE;
	}
}

static inline enum route_lean route_lean_kind_of(const struct route_args *args)
{
	const struct mtk_route_config *config = &args->config;

	if (!args->is_full || config->top_k > 31 ||
	    (config->n_shared_slots > 0 && config->shared == MTK_ROUTE_SHARED_BLOCK))
		return ROUTE_LEAN_NONE;
	if (config->bias == MTK_ROUTE_BIAS_NONE && !args->has_groups)
		return route_lean_kind_of_logit(args);
	if (config->bias != MTK_ROUTE_BIAS_SCORE || !args->scores_sigmoid)
		return ROUTE_LEAN_NONE;
	if (!args->has_groups)
		return ROUTE_LEAN_SIGMOID;
	return args->group_shift == ROUTE_LEAN_GROUP_SHIFT ? ROUTE_LEAN_GROUPS : ROUTE_LEAN_NONE;
}

template <enum route_lean KIND, int N, class Hook>
static void route_lean_start(const struct route_args *args, size_t n_bytes, const Hook &hook,
			     cudaStream_t stream)
{
	constexpr int SHORT = KIND == ROUTE_LEAN_GROUPS ? 6 : 4, LONG = N < 8 ? 4 : 8;
	const uint32_t n_warps = args->n_rows <= ROUTE_LEAN_FEW_ROWS ? 1 : ROUTE_MAX_THREADS / 32;
	const uint32_t n_blocks = route_blocks<Hook>(args, n_warps);
	const struct route_lean_args lean = route_lean_prepare(args);

	if (lean.top_k == 8)
		route_lean_kernel<KIND, N, 8, SHORT>
			<<<n_blocks, 32 * n_warps, n_warps * n_bytes, stream>>>(lean, hook, *args);
	else
		route_lean_kernel<KIND, N, 0, LONG>
			<<<n_blocks, 32 * n_warps, n_warps * n_bytes, stream>>>(lean, hook, *args);
}

/* X(kind, columns of a lane): the kernels that there are. */
#define ROUTE_LEAN_KERNELS(X) \
	X(SIGMOID, 4)         \
	X(SIGMOID, 8)         \
	X(SIGMOID, 12)        \
	X(SIGMOID, 16)        \
	X(SIGMOID, 28)        \
	X(GROUPS, 8)          \
	X(LOGIT, 4)           \
	X(LOGIT, 8)           \
	X(LOGIT, 16)

#define ROUTE_LEAN_KEY(kind, width) ((uint32_t)(kind) << 8 | (width))

/* Whether there is one for a setting whose lanes hold `width` columns; args are prepared. */
static inline bool route_lean_has(const struct route_args *args, uint32_t width)
{
	switch (ROUTE_LEAN_KEY(route_lean_kind_of(args), width)) {
#define ROUTE_LEAN_CASE(kind, width) case ROUTE_LEAN_KEY(ROUTE_LEAN_##kind, width):
		ROUTE_LEAN_KERNELS(ROUTE_LEAN_CASE)
#undef ROUTE_LEAN_CASE
		return true;
	default:
		return false;
	}
}

/* Launch it. Returns false where there is none: then nothing was launched. */
template <class Hook>
static bool route_lean_launch(const struct route_args *args, uint32_t width, size_t n_bytes,
			      const Hook &hook, cudaStream_t stream)
{
	if (!args->result.ids || !args->result.weights)
		return false;
	switch (ROUTE_LEAN_KEY(route_lean_kind_of(args), width)) {
#define ROUTE_LEAN_CASE(kind, width)                    \
	case ROUTE_LEAN_KEY(ROUTE_LEAN_##kind, width):  \
		route_lean_start<ROUTE_LEAN_##kind, width>(args, n_bytes, hook, stream); \
		return true;
		ROUTE_LEAN_KERNELS(ROUTE_LEAN_CASE)
#undef ROUTE_LEAN_CASE
	default:
		return false;
	}
}

#endif
