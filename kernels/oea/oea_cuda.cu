/* SPDX-License-Identifier: MIT */
/*
 * The steps of oea_cpu.c. The first kernel finds what each row keeps and joins it to the union, in a
 * bit a column; the second takes what each row may have of it, a column's choosing value lying in
 * shared memory. Lane j of a row's warp holds entry j.
 */
#include "kernels/cuda/status.cuh"
#include "kernels/oea/oea_cuda.h"
#include "kernels/route/route_define.cuh"

#define NOT_FOUND UINT32_MAX

struct oea_args {
	struct mtk_oea_cuda oea;
	struct route_args route;
};

static __device__ __forceinline__ struct route_row row_of(const struct oea_args *args, uint32_t r)
{
	const bool has_bias = args->oea.route.bias != MTK_ROUTE_BIAS_NONE;
	const size_t offset = (size_t)r * args->route.n;

	return {&args->route, args->oea.logits + offset,
		has_bias ? args->oea.bias + (args->oea.route.bias_per_token ? offset : 0) : NULL};
}

static __device__ __forceinline__ const int32_t *base_of(const struct oea_args *args, uint32_t r)
{
	return args->oea.base_ids +
	       (size_t)r * (args->oea.route.top_k + args->oea.route.n_shared_slots);
}

/* The column of an id that the router wrote: shared slots may lie between the ranks' blocks. */
static __device__ __forceinline__ uint32_t column_of(const struct mtk_route_config *route,
						     int32_t id)
{
	const uint32_t n_block = route->n_local_experts + route->n_shared_slots;

	if (route->n_shared_slots == 0 || route->shared != MTK_ROUTE_SHARED_BLOCK)
		return (uint32_t)id;
	return (uint32_t)id - (uint32_t)id / n_block * route->n_shared_slots;
}

static __device__ __forceinline__ bool is_padding(const struct oea_args *args, uint32_t r)
{
	return args->oea.n_valid_rows && r >= *args->oea.n_valid_rows;
}

/* The share of a column in the row's score. */
static __device__ double mass_of(const struct route_row *row, struct route_norm norm, uint32_t e)
{
	if (row->args->config.scoring != MTK_ROUTE_SOFTMAX_SELECTED)
		return define_score(row, norm, e);
	return norm.sum > 0.0 ? define_power(define_score_logit(row, e), norm.max) / norm.sum : 0.0;
}

/* How many of the best k0 hold p of the row's mass together; k0 where they do not. */
static __device__ uint32_t count_mass(const struct oea_args *args, uint32_t r)
{
	const struct route_row row = row_of(args, r);
	const int32_t *ids = base_of(args, r);
	const bool is_selected = args->oea.route.scoring == MTK_ROUTE_SOFTMAX_SELECTED;
	const struct route_norm norm = is_selected ? define_norm(&row) : define_norm_if(&row);
	double sum = 0.0, mass = 0.0;
	uint32_t n = 0;

	for (uint32_t e = threadIdx.x; e < args->route.n; e += 32)
		sum += mass_of(&row, norm, e);
	sum = define_sum(sum);
	do
		mass += mass_of(&row, norm, column_of(&args->oea.route, ids[n++]));
	while (n < args->oea.oea.k0 && !(sum > 0.0 && mass >= args->oea.oea.p * sum));
	return n;
}

__global__ void __launch_bounds__(32)
	unite_kernel(const __grid_constant__ struct oea_args args)
{
	const struct mtk_route_config *route = &args.oea.route;
	const uint32_t r = blockIdx.x, lane = threadIdx.x;
	uint32_t n = 0;

	if (!is_padding(&args, r)) {
		n = route->top_k;
		if (args.oea.is_decode[r])
			n = args.oea.oea.p < 1.0 ? count_mass(&args, r) : args.oea.oea.k0;
	}
	if (lane == 0)
		args.oea.n_base[r] = n;
	if (lane < n) {
		const uint32_t column = column_of(route, base_of(&args, r)[lane]);

		atomicOr(args.oea.is_loaded + column / 32, 1u << column % 32);
	}
	/* Zero experts hold no weights: they are always there. */
	for (uint32_t e = route->n_experts + lane; r == 0 && e < args.route.n; e += 32)
		atomicOr(args.oea.is_loaded + e / 32, 1u << e % 32);
}

static __device__ __forceinline__ bool is_loaded(const struct oea_args *args, uint32_t column)
{
	return args->oea.is_loaded[column / 32] >> column % 32 & 1;
}

/* Whether a comes before b in the row's preferences. */
static __device__ __forceinline__ bool is_before(const double *values, uint32_t a, uint32_t b)
{
	return values[a] > values[b] || (values[a] == values[b] && a < b);
}

/* The best expert of the union that comes after `last`. */
static __device__ uint32_t next_loaded(const struct oea_args *args, const double *values,
				       uint32_t last)
{
	uint32_t best = NOT_FOUND;

	for (uint32_t e = threadIdx.x; e < args->route.n; e += 32)
		if (is_loaded(args, e) && values[e] != -INFINITY && is_before(values, last, e) &&
		    (best == NOT_FOUND || is_before(values, e, best)))
			best = e;
	for (int step = 16; step > 0; step /= 2) {
		const uint32_t other = __shfl_xor_sync(ROUTE_ALL_LANES, best, step);

		if (other != NOT_FOUND && (best == NOT_FOUND || is_before(values, other, best)))
			best = other;
	}
	return best;
}

static __device__ uint32_t rank_of(const struct oea_args *args, const double *values,
				   uint32_t column)
{
	uint32_t n = 0;

	for (uint32_t e = threadIdx.x; e < args->route.n; e += 32)
		n += is_before(values, e, column);
	return 1 + __reduce_add_sync(ROUTE_ALL_LANES, n);
}

/* The row's final set, lane j's being its entry j. Returns how many. */
static __device__ uint32_t take_columns(const struct oea_args *args, uint32_t r,
					const double *values, uint32_t *ret_column)
{
	const uint32_t lane = threadIdx.x;
	const int32_t *ids = base_of(args, r);
	uint32_t n = args->oea.n_base[r];
	uint32_t last = column_of(&args->oea.route, ids[n - 1]);

	if (lane < n)
		*ret_column = column_of(&args->oea.route, ids[lane]);
	while (n < args->oea.oea.k_max) {
		const uint32_t next = next_loaded(args, values, last);

		if (next == NOT_FOUND || rank_of(args, values, next) > args->oea.oea.max_rank)
			break;
		if (lane == n)
			*ret_column = next;
		last = next;
		n++;
	}
	return n;
}

static __device__ __forceinline__ uint32_t width_of(const struct oea_args *args)
{
	const uint32_t k_max = args->oea.oea.k_max, top_k = args->oea.route.top_k;

	return (k_max > top_k ? k_max : top_k) + args->oea.route.n_shared_slots;
}

/* The router's own row, in a row of the result: shared slots stay last. */
static __device__ void copy_row(const struct oea_args *args, uint32_t r)
{
	const struct mtk_route_config *route = &args->oea.route;
	const uint32_t width = width_of(args), n_from = route->top_k + route->n_shared_slots;
	const size_t from = (size_t)r * n_from, to = (size_t)r * width;

	for (uint32_t j = threadIdx.x; j < width; j += 32) {
		const bool is_shared = j >= width - route->n_shared_slots;
		const uint32_t source = is_shared ? j - (width - n_from) : j;
		const bool is_gap = !is_shared && j >= route->top_k;

		args->oea.ids[to + j] = is_gap ? -1 : args->oea.base_ids[from + source];
		args->oea.weights[to + j] = is_gap ? 0.0f : args->oea.base_weights[from + source];
	}
}

static __device__ void write_entries(const struct oea_args *args, uint32_t r, uint32_t n,
				     uint32_t column, float weight)
{
	const struct mtk_route_config *route = &args->oea.route;
	const uint32_t width = width_of(args);
	const size_t to = (size_t)r * width;

	for (uint32_t j = threadIdx.x; j < width; j += 32) {
		const uint32_t n_chosen = width - route->n_shared_slots;

		if (j >= n_chosen) {
			args->oea.ids[to + j] = route_shared_id(&args->route, j - n_chosen);
			args->oea.weights[to + j] = (float)route->shared_weight;
		} else {
			args->oea.ids[to + j] =
				j < n ? route_written_id(route, (int32_t)column) : -1;
			args->oea.weights[to + j] = j < n ? weight : 0.0f;
		}
	}
}

/* Whether the row keeps what the router had chosen, so that nothing need be computed. */
static __device__ bool keeps_choice(const struct oea_args *args, uint32_t r)
{
	const struct mtk_oea *oea = &args->oea.oea;
	const uint32_t top_k = args->oea.route.top_k, lane = threadIdx.x;
	bool is_there = true;

	if (is_padding(args, r) || !args->oea.is_decode[r])
		return true;
	if (oea->k_max != top_k || oea->max_rank < top_k)
		return false;
	if (lane < top_k && lane >= args->oea.n_base[r])
		is_there = is_loaded(args, column_of(&args->oea.route, base_of(args, r)[lane]));
	return __all_sync(ROUTE_ALL_LANES, is_there);
}

static __device__ void choose_row(const struct oea_args *args, uint32_t r, double *values)
{
	const struct mtk_route_config *route = &args->oea.route;
	const uint32_t lane = threadIdx.x;
	const struct route_row row = row_of(args, r);
	const struct route_norm norm = define_norm_if(&row);
	uint32_t column = 0, n;
	double weight = 0.0;
	bool is_base;
	uint8_t flags = 0;

	for (uint32_t e = lane; e < args->route.n; e += 32)
		values[e] = define_value(&row, norm, e);
	__syncwarp();
	if (route->groups != MTK_ROUTE_GROUPS_NONE)
		define_keep_groups(&args->route, values, values + args->route.n);
	n = take_columns(args, r, values, &column);
	is_base = n == route->top_k &&
		  (lane >= n || column == column_of(route, base_of(args, r)[lane]));
	if (__all_sync(ROUTE_ALL_LANES, is_base)) {
		copy_row(args, r);
		return;
	}
	if (lane < n)
		weight = define_weight(&row, norm, column, values[column], &flags);
	if (route->scoring == MTK_ROUTE_SOFTMAX_SELECTED)
		weight = define_softmax_selected(weight, lane < n);
	write_entries(args, r, n, column, define_weigh(route, lane < n ? weight : 0.0));
}

__global__ void __launch_bounds__(32)
	choose_kernel(const __grid_constant__ struct oea_args args)
{
	extern __shared__ double values[];

	if (keeps_choice(&args, blockIdx.x))
		copy_row(&args, blockIdx.x);
	else
		choose_row(&args, blockIdx.x, values);
}

int mtk_oea_cuda(const struct mtk_oea_cuda *oea, void *stream, struct mtk_error *error)
{
	const uint32_t n_columns = mtk_route_columns(&oea->route);
	const size_t n_bytes = (n_columns + oea->route.n_groups) * sizeof(double);
	cudaStream_t on = (cudaStream_t)stream;
	struct oea_args args = {};
	int status;

	if (oea->n_rows == 0)
		return MOETRACE_OK;
	args.oea = *oea;
	args.route.config = oea->route;
	args.route.n = n_columns;
	args.route.n_rows = oea->n_rows;
	status = mtk_cuda_fail(error,
			       cudaMemsetAsync(oea->is_loaded, 0, (n_columns + 31) / 32 * 4, on),
			       "clearing the union");
	if (!status)
		status = mtk_cuda_fail(
			error,
			cudaFuncSetAttribute(choose_kernel,
					     cudaFuncAttributeMaxDynamicSharedMemorySize,
					     (int)n_bytes),
			"shared memory for a rule");
	if (status)
		return status;
	unite_kernel<<<oea->n_rows, 32, 0, on>>>(args);
	choose_kernel<<<oea->n_rows, 32, n_bytes, on>>>(args);
	return mtk_cuda_launched(error, "a rule");
}
