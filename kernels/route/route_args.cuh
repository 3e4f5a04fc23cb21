/* SPDX-License-Identifier: MIT */
/*
 * What a routing kernel is given, what the steps of a row hand on, and the end of a row: weighed
 * entries become outputs. Lane j of the warp holds entry j, top_k being at most 32.
 */
#ifndef MTK_ROUTE_ROUTE_ARGS_CUH
#define MTK_ROUTE_ROUTE_ARGS_CUH

#include <stdint.h>

#include "kernels/route/route.h"

#define ROUTE_ALL_LANES 0xffffffffu

/*
 * A branch to code that lies elsewhere costs a fetch, which is most of what a single row costs; so
 * code of the common settings is laid in one piece.
 */
#define ROUTE_LIKELY(condition)	  __builtin_expect(!!(condition), 1)
#define ROUTE_UNLIKELY(condition) __builtin_expect(!!(condition), 0)

enum route_mode {
	ROUTE_EXACT,	/* by logits as they are */
	ROUTE_MONOTONE, /* by a score that grows with the logit: logits have the same order */
	ROUTE_BOUNDED,	/* by values that were computed, whose error is bounded */
};

struct route_args {
	struct mtk_route_config config;
	uint32_t n; /* columns */
	uint32_t n_rows;
	const uint32_t *n_valid_rows;
	const float *logits;
	const float *bias;
	const int32_t *token_ids;
	const int32_t *hash_table;
	struct mtk_route_result result;
	/* Of the fast path. */
	enum route_mode mode;
	bool by_logit;	     /* the choosing value is a logit */
	bool has_vectors;    /* rows are aligned to 16 bytes */
	bool is_full;	     /* and no lane lacks a column */
	bool is_simple;	     /* no column's score depends on others or on a bias */
	bool scores_sigmoid; /* and the choosing value is a sigmoid */
	bool adds_bias;	     /* to the choosing value */
	bool has_groups;     /* some are left out */
	bool groups_top2;
	uint32_t group_shift; /* 1 << this lanes hold a group */
	uint32_t id_mask;     /* the bits of a key that hold the id */
	float error;	      /* of a score in fp32, relative to the largest one */
	double precise_error; /* of a score as route_precise() gives it */
	float factor;	      /* of the weights */
	float least_sum;      /* that they are divided by */
};

/* One row: NULL where the setting has no bias. */
struct route_row {
	const struct route_args *args;
	const float *logits;
	const float *bias;
};

/* What a lane holds of the row's choice. */
struct route_entry {
	int32_t id;
	float weight;
};

static __device__ __forceinline__ float route_sum(float value)
{
	for (int step = 16; step > 0; step /= 2)
		value += __shfl_xor_sync(ROUTE_ALL_LANES, value, step);
	return value;
}

static __device__ __forceinline__ float route_max(float value)
{
	for (int step = 16; step > 0; step /= 2)
		value = fmaxf(value, __shfl_xor_sync(ROUTE_ALL_LANES, value, step));
	return value;
}

static __device__ __forceinline__ int32_t route_written_id(const struct mtk_route_config *config,
							   int32_t id)
{
	if (ROUTE_LIKELY(config->n_shared_slots == 0 || config->shared != MTK_ROUTE_SHARED_BLOCK))
		return id;
	return id + (int32_t)((uint32_t)id / config->n_local_experts * config->n_shared_slots);
}

static __device__ __forceinline__ int32_t route_shared_id(const struct route_args *args,
							  uint32_t slot)
{
	const struct mtk_route_config *config = &args->config;

	if (config->shared == MTK_ROUTE_SHARED_GLOBAL)
		return (int32_t)(args->n + slot);
	return (int32_t)(config->rank * (config->n_local_experts + config->n_shared_slots) +
			 config->n_local_experts + slot);
}

static __device__ __forceinline__ uint32_t route_packed(int32_t id, float weight)
{
	uint32_t bits = __float_as_uint(weight);

	/* To the nearest bf16, halves to even; weights are never NaN. */
	bits += 0x7fff + (bits >> 16 & 1);
	return (uint32_t)id << 16 | bits >> 16;
}

static __device__ __forceinline__ void route_write(const struct route_args *args, uint32_t row,
						   uint32_t slot, struct route_entry entry)
{
	const uint32_t width = args->config.top_k + args->config.n_shared_slots;
	const size_t place = (size_t)row * width + slot;

	if (args->result.ids)
		args->result.ids[place] = entry.id;
	if (args->result.weights)
		args->result.weights[place] = entry.weight;
	if (ROUTE_UNLIKELY(args->result.packed != NULL))
		args->result.packed[place] = route_packed(entry.id, entry.weight);
}

static __device__ __forceinline__ struct route_entry
route_shared_entry(const struct route_args *args, uint32_t slot)
{
	return {route_shared_id(args, slot), (float)args->config.shared_weight};
}

/* The end of a row that selected something. */
template <class Hook>
static __device__ __forceinline__ void route_write_row(const struct route_args *args, uint32_t row,
						       uint32_t lane, struct route_entry entry,
						       uint8_t flags, const Hook &hook)
{
	const struct mtk_route_config *config = &args->config;

	if (lane < config->top_k) {
		entry.id = route_written_id(config, entry.id);
		route_write(args, row, lane, entry);
	}
	if (ROUTE_UNLIKELY(config->n_shared_slots > 0)) {
		if (lane < config->n_shared_slots)
			route_write(args, row, config->top_k + lane,
				    route_shared_entry(args, lane));
		if (lane >= config->top_k)
			entry = route_shared_entry(args, lane - config->top_k);
	}
	if (args->result.flags && lane == 0)
		args->result.flags[row] = flags;
	hook.store(entry.id, entry.weight, flags);
}

/* What a row has beside ids and weights of the chosen, which are written already. */
static __device__ __noinline__ void route_write_more(const struct route_args *args, uint32_t row,
						     uint32_t lane, struct route_entry entry,
						     uint8_t flags)
{
	const struct mtk_route_config *config = &args->config;
	const size_t width = config->top_k + config->n_shared_slots;

	if (args->result.packed && lane < config->top_k)
		args->result.packed[row * width + lane] = route_packed(entry.id, entry.weight);
	if (lane < config->n_shared_slots)
		route_write(args, row, config->top_k + lane, route_shared_entry(args, lane));
	if (args->result.flags && lane == 0)
		args->result.flags[row] = flags;
}

/* The end of a row that selects nothing. */
template <class Hook>
static __device__ __forceinline__ void route_write_empty_row(const struct route_args *args,
							     uint32_t row, uint32_t lane,
							     uint8_t flags, const Hook &hook)
{
	const uint32_t width = args->config.top_k + args->config.n_shared_slots;
	const struct route_entry empty = {-1, 0.0f};

	for (uint32_t slot = lane; slot < width; slot += 32)
		route_write(args, row, slot, empty);
	if (args->result.flags && lane == 0)
		args->result.flags[row] = flags;
	hook.store(empty.id, empty.weight, flags);
}

/*
 * What happens to a row beside its outputs. A kernel is made for a hook, which is a parameter of
 * its launch. With HAS_HEAD the grid has one block more, the last, which does head() alone. A warp
 * has a Row: open() issues loads and waits for none, behind those of the row's columns;
 * arrive() is called when these have come; store() by all lanes at the row's end, lane j with
 * entry j, padding included (id -1), or store_margin() where the kernel knows margins.
 */
struct route_no_hook {
	static constexpr bool HAS_HEAD = false;
	struct Row {
		__device__ __forceinline__ void open(const struct route_no_hook &, uint32_t,
						     uint32_t)
		{
		}
		__device__ __forceinline__ void arrive()
		{
		}
		__device__ __forceinline__ void store(int32_t, float, uint8_t) const
		{
		}
		__device__ __forceinline__ void store_margin(int32_t, float, uint8_t, float) const
		{
		}
	};
	__device__ __forceinline__ void head() const
	{
	}
};

/* A hook's row for code that no usual row comes to. */
template <class Hook>
static __device__ __forceinline__ typename Hook::Row route_hook_row(const Hook &hook, uint32_t row,
								    uint32_t lane)
{
	typename Hook::Row to;

	to.open(hook, row, lane);
	to.arrive();
	return to;
}

template <class Hook>
static __device__ __noinline__ void route_write_padding(const struct route_args *args, uint32_t row,
							uint32_t lane, const Hook &hook)
{
	route_write_empty_row(args, row, lane, 0, route_hook_row(hook, row, lane));
}

#endif
