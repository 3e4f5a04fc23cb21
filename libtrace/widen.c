/* SPDX-License-Identifier: MIT */
/*
 * Widening in plain C: what the hot path copies where the writer has to settle a layer. Of the
 * types of runtimes, int32 and fp32 are copied as they are.
 */
#include "libtrace/narrow.h"

#include <string.h>

#include <moetrace/moetrace.h>

#include "common/f16.h"

#define DEFINE_WIDEN(name, from_type)                                                         \
	static void name(const from_type *from, uint64_t n, int32_t *to)                      \
	{                                                                                     \
		for (uint64_t i = 0; i < n; i++)                                              \
			to[i] = (int32_t)from[i];                                             \
	}

DEFINE_WIDEN(widen_i8, int8_t)
DEFINE_WIDEN(widen_u8, uint8_t)
DEFINE_WIDEN(widen_i16, int16_t)
DEFINE_WIDEN(widen_u16, uint16_t)

static void widen_u32(const uint32_t *from, uint64_t n, int32_t *to)
{
	for (uint64_t i = 0; i < n; i++)
		to[i] = from[i] == UINT32_MAX ? -1 :
			from[i] > INT32_MAX   ? INT32_MAX :
						(int32_t)from[i];
}

static void widen_i64(const int64_t *from, uint64_t n, int32_t *to)
{
	for (uint64_t i = 0; i < n; i++)
		to[i] = from[i] < 0 ? -1 : from[i] > INT32_MAX ? INT32_MAX : (int32_t)from[i];
}

static void widen_u64(const uint64_t *from, uint64_t n, int32_t *to)
{
	for (uint64_t i = 0; i < n; i++)
		to[i] = from[i] == UINT64_MAX ? -1 :
			from[i] > INT32_MAX   ? INT32_MAX :
						(int32_t)from[i];
}

static void widen_run(const void *from, uint32_t type, uint64_t n, int32_t *to)
{
	switch (type) {
	case MOETRACE_TYPE_I8:
		widen_i8(from, n, to);
		break;
	case MOETRACE_TYPE_U8:
		widen_u8(from, n, to);
		break;
	case MOETRACE_TYPE_I16:
		widen_i16(from, n, to);
		break;
	case MOETRACE_TYPE_U16:
		widen_u16(from, n, to);
		break;
	case MOETRACE_TYPE_I32:
		memcpy(to, from, n * sizeof(*to));
		break;
	case MOETRACE_TYPE_U32:
		widen_u32(from, n, to);
		break;
	case MOETRACE_TYPE_I64:
		widen_i64(from, n, to);
		break;
	default:
		widen_u64(from, n, to);
	}
}

void mt_widen_ids(const struct mt_matrix *ids, int32_t *ret_ids)
{
	if (ids->row_bytes == (size_t)ids->k * mt_type_bytes(ids->type)) {
		if (ids->n_rows)
			widen_run(ids->data, ids->type, ids->n_rows * ids->k, ret_ids);
		return;
	}
	for (uint64_t row = 0; row < ids->n_rows; row++)
		widen_run((const uint8_t *)ids->data + row * ids->row_bytes, ids->type, ids->k,
			  ret_ids + row * ids->k);
}

static void numbers_run(const void *from, uint32_t type, uint64_t n, float *to)
{
	const uint16_t *halves = from;

	if (type == MOETRACE_TYPE_F32) {
		memcpy(to, from, n * sizeof(*to));
		return;
	}
	for (uint64_t i = 0; i < n; i++)
		to[i] = type == MOETRACE_TYPE_F16 ? mt_f32_from_f16(halves[i]) :
						    mt_f32_from_bf16(halves[i]);
}

void mt_widen_numbers(const struct mt_matrix *numbers, float *ret_numbers)
{
	for (uint64_t row = 0; row < numbers->n_rows; row++)
		numbers_run((const uint8_t *)numbers->data + row * numbers->row_bytes,
			    numbers->type, numbers->k, ret_numbers + row * numbers->k);
}
