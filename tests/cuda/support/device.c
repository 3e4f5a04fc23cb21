/* SPDX-License-Identifier: MIT */
/*
 * Kernels in plain C; see device.h.
 */
#include "tests/cuda/support/device.h"

#include <stdlib.h>
#include <string.h>

#include "libtrace/cuda/store_args.h"
#include "tests/unit/support/half.h"

struct launch {
	struct mt_cuda_store_args args;
	uint32_t grid_x, grid_y, block_x;
};

uint64_t device_load(const struct moetrace_cuda_target *target)
{
	return target->word ? __atomic_load_n((const uint64_t *)(uintptr_t)target->word,
					      __ATOMIC_ACQUIRE)
			    : 0;
}

bool device_is_on(const struct moetrace_cuda_target *target, uint64_t word)
{
	return word != 0 && target->word != 0 && word % 16384 == target->packed % 65536;
}

uint32_t device_k(const struct moetrace_cuda_target *target)
{
	return target->packed / 65536 % 256;
}

static uint8_t *place(const struct moetrace_cuda_target *target, uint64_t word)
{
	const uint64_t granule = word / 16384 % (1u << 22);

	return (uint8_t *)(uintptr_t)(target->base + granule * 256);
}

static uint8_t *row_of(const struct moetrace_cuda_target *target, uint64_t word, uint32_t row)
{
	return place(target, word) + 16 + (size_t)row * 8 * (device_k(target) + 1);
}

/* Pair @i of a row: two words. */
static void store_pair(uint8_t *row, uint32_t i, uint32_t first, float second)
{
	memcpy(row + 8 * (size_t)i, &first, 4);
	memcpy(row + 8 * (size_t)i + 4, &second, 4);
}

void device_store_row(const struct moetrace_cuda_target *target, uint64_t word, uint32_t row,
		      const int64_t *ids, const double *weights, uint32_t flags)
{
	const uint32_t mark = (uint32_t)(word >> 36) | flags << 28;
	uint8_t *at = row_of(target, word, row);

	if (row >= target->n_rows)
		return;
	for (uint32_t i = 0; i < device_k(target); i++)
		store_pair(at, i, (uint32_t)(ids[i] < 0 ? -1 : ids[i] > INT32_MAX ? INT32_MAX : ids[i]),
			   weights ? (float)weights[i] : 0.0f);
	store_pair(at, device_k(target), mark, 0.0f);
}

void device_store_margin(const struct moetrace_cuda_target *target, uint64_t word, uint32_t row,
			 float margin)
{
	memcpy(row_of(target, word, row) + 8 * (size_t)device_k(target) + 4, &margin, 4);
}

void device_store_head(const struct moetrace_cuda_target *target, uint64_t word, uint32_t n_rows,
		       uint64_t timer_ns)
{
	const uint32_t head[] = {(uint32_t)(word >> 36), target->indices >> 16, n_rows,
				 (uint32_t)timer_ns};

	memcpy(place(target, word), head, sizeof(head));
}

void device_store_args(const void *parameter, uint32_t grid_x, uint32_t grid_y, uint32_t block_x,
		       void *ret_launch)
{
	struct launch *launch = ret_launch;

	memcpy(&launch->args, parameter, sizeof(launch->args));
	launch->grid_x = grid_x;
	launch->grid_y = grid_y;
	launch->block_x = block_x;
}

static int64_t read_id(const uint8_t *row, uint32_t type, uint32_t i)
{
	int64_t id64 = 0;
	int32_t id32 = 0;
	int16_t id16 = 0;

	switch (type) {
	case MOETRACE_TYPE_I64:
		memcpy(&id64, row + 8 * (size_t)i, 8);
		return id64;
	case MOETRACE_TYPE_I32:
		memcpy(&id32, row + 4 * (size_t)i, 4);
		return id32;
	case MOETRACE_TYPE_I16:
		memcpy(&id16, row + 2 * (size_t)i, 2);
		return id16;
	case MOETRACE_TYPE_U8:
		return row[i];
	default:
		abort();
	}
}

static double read_weight(const uint8_t *row, uint32_t type, uint32_t i)
{
	uint16_t half = 0;
	float weight = 0;

	if (type == MOETRACE_TYPE_F32) {
		memcpy(&weight, row + 4 * (size_t)i, 4);
		return (double)weight;
	}
	memcpy(&half, row + 2 * (size_t)i, 2);
	return half_to_double(type == MOETRACE_TYPE_BF16 ? &half_bf16 : &half_fp16, half);
}

static void store_layer_row(const struct mt_cuda_store_args *args,
			    const struct mt_cuda_store_layer *layer, uint64_t word, uint32_t row)
{
	const uint8_t *ids = (const uint8_t *)(uintptr_t)layer->ids + row * args->rows.ids_bytes;
	const uint8_t *weights =
		(const uint8_t *)(uintptr_t)layer->weights + row * args->rows.weights_bytes;
	int64_t row_ids[MOETRACE_MAX_TOP_K];
	double row_weights[MOETRACE_MAX_TOP_K];

	for (uint32_t i = 0; i < device_k(&layer->target); i++) {
		row_ids[i] = read_id(ids, args->rows.id_type, i);
		row_weights[i] = layer->weights ? read_weight(weights, args->rows.weight_type, i) : 0;
	}
	device_store_row(&layer->target, word, row, row_ids, row_weights, 0);
}

void device_store(const void *given, uint64_t timer_ns)
{
	const struct launch *launch = given;
	const struct mt_cuda_store_args *args = &launch->args;
	const uint32_t n_covered = launch->grid_x * (launch->block_x / 32);

	for (uint32_t i = 0; i < launch->grid_y; i++) {
		const struct mt_cuda_store_layer *layer = &args->layers[i];
		const uint64_t word = device_load(&layer->target);

		if (!device_is_on(&layer->target, word))
			continue;
		for (uint32_t row = 0; row < args->rows.n_rows && row < n_covered; row++)
			store_layer_row(args, layer, word, row);
		if (args->rows.n_rows)
			device_store_head(&layer->target, word, args->rows.n_rows, timer_ns);
	}
}
