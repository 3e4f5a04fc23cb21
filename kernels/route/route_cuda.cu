/* SPDX-License-Identifier: MIT */
/*
 * Which kernel serves a setting, and its launch. A lane of the fast path holds the fewest
 * columns that the row needs, of the widths that kernels are made for; with groups a width that
 * makes a group a power of two of lanes.
 */
#include <string.h>

#include "kernels/cuda/status.cuh"
#include "kernels/route/route_cuda.h"
#include "kernels/route/route_kernel.cuh"
#include "kernels/route/route_variants.cuh"

/* Ascending. */
static const uint32_t lane_widths[] = {2, 4, 5, 8, 12, 16, 28, 32};
#define N_WIDTHS (sizeof(lane_widths) / sizeof(lane_widths[0]))

static uint32_t columns_of(const struct mtk_route_config *config)
{
	return config->n_experts + config->n_zero_experts;
}

static bool has_groups(const struct mtk_route_config *config)
{
	return config->groups != MTK_ROUTE_GROUPS_NONE && config->n_keep_groups < config->n_groups;
}

static bool is_by_logit(const struct mtk_route_config *config)
{
	return config->choose_by == MTK_ROUTE_BY_LOGIT ||
	       config->bias == MTK_ROUTE_BIAS_LOGIT_CHOICE ||
	       config->scoring == MTK_ROUTE_SOFTMAX_SELECTED;
}

/* Lanes that hold a group when a lane holds width columns; 0: it cannot be. */
static uint32_t group_lanes(const struct mtk_route_config *config, uint32_t width)
{
	const uint32_t size = columns_of(config) / config->n_groups;
	const uint32_t n_lanes = size / width;

	if (size % width != 0 || (n_lanes & (n_lanes - 1)) != 0)
		return 0;
	return n_lanes;
}

static const char *why_not_fast(const struct mtk_route_config *config)
{
	if (config->hash_table)
		return "ids follow from token ids: nothing is to choose";
	if (config->scoring == MTK_ROUTE_SPARSEMIXER)
		return "sparsemixer takes a softmax for each entry";
	if (config->soft_cap > 0.0)
		return "a soft cap is applied in double precision";
	if (config->scoring == MTK_ROUTE_SQRTSOFTPLUS &&
	    config->softplus != MTK_ROUTE_SOFTPLUS_LOG1P)
		return "the logarithm of a rounded number is taken in double precision";
	if (has_groups(config) && config->groups == MTK_ROUTE_GROUPS_TOPN &&
	    config->group_top_n > 2)
		return "a group's score is the sum of more than two values";
	if (columns_of(config) > 32 * lane_widths[N_WIDTHS - 1])
		return "more columns than the lanes of a warp hold";
	return NULL;
}

uint32_t mtk_route_cuda_lane_columns(const struct mtk_route_config *config, const char **ret_reason)
{
	const char *reason = why_not_fast(config);

	*ret_reason = reason ? reason : "columns in registers";
	if (reason)
		return 0;
	for (size_t i = 0; i < N_WIDTHS; i++)
		if (32 * lane_widths[i] >= columns_of(config) &&
		    (!has_groups(config) || group_lanes(config, lane_widths[i]) != 0))
			return lane_widths[i];
	*ret_reason = "no width makes a group a power of two of lanes";
	return 0;
}

static uint32_t id_mask(uint32_t width)
{
	uint32_t mask = 63;

	while (mask < 32 * width - 1)
		mask = 2 * mask + 1;
	return mask;
}

static bool is_aligned(const void *pointer)
{
	return (uintptr_t)pointer % 16 == 0;
}

static void prepare_fast(struct route_args *args, uint32_t width)
{
	const struct mtk_route_config *config = &args->config;
	const bool by_logit = is_by_logit(config);

	args->by_logit = by_logit;
	args->mode = config->bias != MTK_ROUTE_BIAS_NONE || has_groups(config) ? ROUTE_BOUNDED
		     : by_logit						       ? ROUTE_EXACT
									       : ROUTE_MONOTONE;
	args->has_vectors = args->n % 4 == 0 && is_aligned(args->logits) && is_aligned(args->bias);
	args->is_full = args->has_vectors && args->n == 32 * width;
	args->is_simple = config->bias != MTK_ROUTE_BIAS_LOGIT &&
			  config->scoring != MTK_ROUTE_SOFTMAX &&
			  config->scoring != MTK_ROUTE_SQRTSOFTPLUS;
	args->scores_sigmoid = config->scoring == MTK_ROUTE_SIGMOID && !by_logit;
	args->id_mask = id_mask(width);
	args->has_groups = has_groups(config);
	if (args->has_groups)
		while (1u << args->group_shift < group_lanes(config, width))
			args->group_shift++;
	args->groups_top2 = config->groups == MTK_ROUTE_GROUPS_TOP2 ||
			    (config->groups == MTK_ROUTE_GROUPS_TOPN && config->group_top_n == 2);
	args->adds_bias =
		config->bias == MTK_ROUTE_BIAS_SCORE || config->bias == MTK_ROUTE_BIAS_LOGIT_CHOICE;
	args->precise_error = by_logit				     ? 0.0
			      : config->scoring == MTK_ROUTE_SOFTMAX ? ROUTE_ERROR_SOFTMAX
								     : 1e-11;
	args->factor =
		config->scale_owner == MTK_ROUTE_SCALE_IN_ROUTER ? (float)config->scale : 1.0f;
	args->least_sum = config->renormalise == MTK_ROUTE_RENORMALISE_CLAMP
				  ? (float)config->renormalise_min
				  : 0.0f;
	if (by_logit)
		args->error = 0.0f;
	else if (config->scoring == MTK_ROUTE_SOFTMAX)
		args->error = ROUTE_ERROR_SOFTMAX;
	else
		args->error = config->scoring == MTK_ROUTE_SIGMOID ? ROUTE_ERROR_SIGMOID
								   : ROUTE_ERROR_SQRTSOFTPLUS;
	/* A score moves no further than its logit does; see route_prepare() for the bound of it. */
	if (config->bias == MTK_ROUTE_BIAS_LOGIT)
		args->error += 4e-6f;
}

/* The definition's buffer can exceed what a block has without asking. */
static int launch_define(const struct route_args *args, size_t n_bytes, bool has_weights,
			 cudaStream_t stream, struct mtk_error *error)
{
	int status = mtk_cuda_fail(error,
				   cudaFuncSetAttribute(route_define_kernel<struct route_no_hook>,
							cudaFuncAttributeMaxDynamicSharedMemorySize,
							(int)n_bytes),
				   "shared memory for routing");

	if (status)
		return status;
	route_define_kernel<<<args->n_rows, 32, n_bytes, stream>>>(*args, route_no_hook(),
								   has_weights);
	return MOETRACE_OK;
}

static int launch(const struct route_args *args, uint32_t width, cudaStream_t stream,
		  struct mtk_error *error)
{
	const size_t n_bytes = (args->n + args->config.n_groups) * sizeof(double);

	if (mtk_route_lean_launch(args, width, n_bytes, stream))
		return MOETRACE_OK;
	switch (width) {
	case 2:
		route_fast_launch<2>(args, n_bytes, route_no_hook(), stream);
		break;
	case 4:
		route_fast_launch<4>(args, n_bytes, route_no_hook(), stream);
		break;
	case 5:
		route_fast_launch<5>(args, n_bytes, route_no_hook(), stream);
		break;
	case 8:
		route_fast_launch<8>(args, n_bytes, route_no_hook(), stream);
		break;
	case 12:
		route_fast_launch<12>(args, n_bytes, route_no_hook(), stream);
		break;
	case 16:
		route_fast_launch<16>(args, n_bytes, route_no_hook(), stream);
		break;
	case 28:
		route_fast_launch<28>(args, n_bytes, route_no_hook(), stream);
		break;
	case 32:
		route_fast_launch<32>(args, n_bytes, route_no_hook(), stream);
		break;
	default:
		return launch_define(args, n_bytes, false, stream, error);
	}
	return MOETRACE_OK;
}

/*
 * The definition goes over what was chosen, for what it alone knows. Ids are the same by either, but
 * of weights the last bits are not: those of the kernel that is fast stay, so that a run gives the
 * same with margins as without.
 */
static int launch_margins(const struct route_args *args, uint32_t width,
			  const struct moetrace_cuda_target *target, cudaStream_t stream,
			  struct mtk_error *error)
{
	const bool has_weights = width > 0 && args->result.weights;
	int status = has_weights ? launch(args, width, stream, error) : MOETRACE_OK;

	if (status)
		return status;
	return target ? mtk_route_record_define(args, target, has_weights, stream, error)
		      : launch_define(args, (args->n + args->config.n_groups) * sizeof(double),
				      has_weights, stream, error);
}

static struct route_args prepare(const struct mtk_route_config *config,
				 const struct mtk_route_cuda_batch *batch, uint32_t width)
{
	struct route_args args;

	memset(&args, 0, sizeof(args));
	args.config = *config;
	args.n = columns_of(config);
	args.n_rows = batch->n_rows;
	args.n_valid_rows = batch->n_valid_rows;
	args.logits = batch->logits;
	args.bias = config->bias != MTK_ROUTE_BIAS_NONE ? batch->bias : NULL;
	args.token_ids = batch->token_ids;
	args.hash_table = batch->hash_table;
	if (width > 0)
		prepare_fast(&args, width);
	return args;
}

bool mtk_route_cuda_records(const struct mtk_route_config *config)
{
	const struct mtk_route_cuda_batch batch = {};
	const char *reason;
	const uint32_t width = mtk_route_cuda_lane_columns(config, &reason);
	const struct route_args args = prepare(config, &batch, width);

	return mtk_route_record_has(&args, width);
}

bool mtk_route_cuda_records_margins(const struct mtk_route_config *config)
{
	return mtk_route_width(config) <= 31 && !config->hash_table;
}

int mtk_route_cuda(const struct mtk_route_config *config, const struct mtk_route_cuda_batch *batch,
		   const struct mtk_route_result *result, void *stream, struct mtk_error *error)
{
	const bool has_target = batch->target && batch->target->word;
	const bool records_margins = has_target && (batch->with_margins || result->margins) &&
				     mtk_route_cuda_records_margins(config);
	const bool records = has_target && mtk_route_cuda_records(config);
	const char *reason;
	const uint32_t width = mtk_route_cuda_lane_columns(config, &reason);
	struct route_args args = prepare(config, batch, width);
	int status = MOETRACE_OK;

	if (batch->n_rows == 0)
		return MOETRACE_OK;
	args.result = *result;
	if (records_margins || result->margins)
		status = launch_margins(&args, width, records_margins ? batch->target : NULL,
					(cudaStream_t)stream, error);
	else if (!records)
		status = launch(&args, width, (cudaStream_t)stream, error);
	else if (!mtk_route_record_launch(&args, width,
					  (args.n + config->n_groups) * sizeof(double),
					  batch->target, (cudaStream_t)stream))
		/* The kernel wants what these rows do not have: the definition records any. */
		status = launch_margins(&args, width, batch->target, (cudaStream_t)stream, error);
	return status ? status : mtk_cuda_launched(error, "routing");
}
