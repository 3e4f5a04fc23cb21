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
	return word != 0 && target->word != 0 && word % 16384 == target->tag;
}

static uint8_t *place(const struct moetrace_cuda_target *target, uint64_t word)
{
	const uint64_t granule = word / 16384 % (1u << 22);

	return (uint8_t *)(uintptr_t)(target->ring + granule * 256 + target->layer_offset);
}

static uint8_t *row_of(const struct moetrace_cuda_target *target, uint64_t word, uint32_t row)
{
	return place(target, word) + 32 + (size_t)row * target->row_bytes;
}

static void store_entry(const struct moetrace_cuda_target *target, uint8_t *row, uint32_t rank,
			int64_t id, double weight)
{
	const uint16_t none = target->id_bytes == 1 ? 0xff : 0xffff;
	const uint16_t value = (uint16_t)(id < 0		  ? none
					  : id >= target->n_ids ? none - 1
								: id);
	const size_t ids_bytes = ((size_t)target->k * target->id_bytes + 1) / 2 * 2;
	const struct half_format *format =
		target->weight_format == MOETRACE_WEIGHT_FORMAT_BF16 ? &half_bf16 : &half_fp16;
	const uint16_t half = half_from_double(format, weight);

	memcpy(row + (size_t)rank * target->id_bytes, &value, target->id_bytes);
	if (target->weight_format != MOETRACE_WEIGHT_FORMAT_NONE)
		memcpy(row + ids_bytes + 2 * (size_t)rank, &half, 2);
}

void device_store_row(const struct moetrace_cuda_target *target, uint64_t word, uint32_t row,
		      const int64_t *ids, const double *weights, uint32_t flags)
{
	const uint32_t mark = (uint32_t)(word >> 36) | flags << 28;
	uint8_t *at = row_of(target, word, row);

	if (row >= target->n_rows)
		return;
	for (uint32_t i = 0; i < target->k; i++)
		store_entry(target, at, i, ids[i], weights ? weights[i] : 0);
	memcpy(at + target->row_bytes - 4, &mark, 4);
}

void device_store_head(const struct moetrace_cuda_target *target, uint64_t word, uint32_t n_rows,
		       uint64_t timer_ns)
{
	const uint32_t head[] = {(uint32_t)(word >> 36), target->layer_index, n_rows, 0};
	uint8_t *at = place(target, word);

	memcpy(at, head, sizeof(head));
	memcpy(at + sizeof(head), &timer_ns, 8);
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
	const uint8_t *ids = (const uint8_t *)(uintptr_t)layer->ids + row * args->ids_row_bytes;
	const uint8_t *weights =
		(const uint8_t *)(uintptr_t)layer->weights + row * args->weights_row_bytes;
	int64_t row_ids[MOETRACE_MAX_TOP_K];
	double row_weights[MOETRACE_MAX_TOP_K];

	for (uint32_t i = 0; i < layer->target.k; i++) {
		row_ids[i] = read_id(ids, args->id_type, i);
		row_weights[i] = layer->weights ? read_weight(weights, args->weight_type, i) : 0;
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
		for (uint32_t row = 0; row < args->n_rows && row < n_covered; row++)
			store_layer_row(args, layer, word, row);
		if (args->n_rows)
			device_store_head(&layer->target, word, args->n_rows, timer_ns);
	}
}
