/* SPDX-License-Identifier: MIT */
/*
 * Narrowing in plain C, and the choice of the vector loops. The hot path comes here, so
 * nothing is allocated or remembered; whether the processor has AVX2 is a load from a
 * variable that the compiler's run time fills before main.
 */
#include "libtrace/narrow.h"

#include <string.h>

#include <moetrace/moetrace.h>

#include "common/f16.h"
#include "libtrace/record.h"

uint32_t mt_type_bytes(uint32_t type)
{
	static const uint8_t type_bytes[] = {
		[MOETRACE_TYPE_I8] = 1,  [MOETRACE_TYPE_U8] = 1,  [MOETRACE_TYPE_I16] = 2,
		[MOETRACE_TYPE_U16] = 2, [MOETRACE_TYPE_I32] = 4, [MOETRACE_TYPE_U32] = 4,
		[MOETRACE_TYPE_I64] = 8, [MOETRACE_TYPE_U64] = 8, [MOETRACE_TYPE_F32] = 4,
		[MOETRACE_TYPE_F16] = 2, [MOETRACE_TYPE_BF16] = 2,
	};

	return type < sizeof(type_bytes) ? type_bytes[type] : 0;
}

int mt_type_is_integer(uint32_t type)
{
	return type >= MOETRACE_TYPE_I8 && type <= MOETRACE_TYPE_U64;
}

int mt_type_is_number(uint32_t type)
{
	return type >= MOETRACE_TYPE_F32 && type <= MOETRACE_TYPE_BF16;
}

/*
 * One loop a pair of types: out of range is remembered, not branched on, so that the
 * compiler can use vectors. A negative id becomes a huge unsigned one.
 */
#define DEFINE_IDS_ALL(name, from_type, wide_type, to_type)                                   \
	static uint32_t name(const from_type *from, uint64_t n, uint32_t n_ids, to_type *to)  \
	{                                                                                     \
		uint32_t bad = 0;                                                             \
                                                                                              \
		for (uint64_t i = 0; i < n; i++) {                                            \
			bad |= (wide_type)from[i] >= n_ids;                                   \
			to[i] = (to_type)from[i];                                             \
		}                                                                             \
		return bad;                                                                   \
	}

DEFINE_IDS_ALL(u8_to_u8, uint8_t, uint32_t, uint8_t)
DEFINE_IDS_ALL(i16_to_u8, int16_t, uint32_t, uint8_t)
DEFINE_IDS_ALL(u16_to_u8, uint16_t, uint32_t, uint8_t)
DEFINE_IDS_ALL(u16_to_u16, uint16_t, uint32_t, uint16_t)
DEFINE_IDS_ALL(i16_to_u16, int16_t, uint32_t, uint16_t)
DEFINE_IDS_ALL(i32_to_u8, uint32_t, uint32_t, uint8_t)
DEFINE_IDS_ALL(i32_to_u16, uint32_t, uint32_t, uint16_t)
DEFINE_IDS_ALL(i64_to_u8, uint64_t, uint64_t, uint8_t)
DEFINE_IDS_ALL(i64_to_u16, uint64_t, uint64_t, uint16_t)

static uint32_t ids_i32_u8(const void *ids, uint64_t n, uint32_t n_ids, uint8_t *ret_ids)
{
	uint32_t bad = 0;
	uint64_t done = 0;

	if (mt_narrow_has_avx2())
		done = mt_narrow_i32_u8_avx2(ids, n, n_ids, ret_ids, &bad);
	return bad | i32_to_u8((const uint32_t *)ids + done, n - done, n_ids, ret_ids + done);
}

/* Returns 0 if all of @n ids were in range. */
static uint32_t ids_run(const void *ids, uint32_t type, uint64_t n, uint32_t n_ids,
			uint8_t id_bytes, void *to)
{
	switch (type) {
	case MOETRACE_TYPE_U8:
		return id_bytes == 1 ? u8_to_u8(ids, n, n_ids, to) : 1;
	case MOETRACE_TYPE_I16:
		return id_bytes == 1 ? i16_to_u8(ids, n, n_ids, to) : i16_to_u16(ids, n, n_ids, to);
	case MOETRACE_TYPE_U16:
		return id_bytes == 1 ? u16_to_u8(ids, n, n_ids, to) : u16_to_u16(ids, n, n_ids, to);
	case MOETRACE_TYPE_I32:
	case MOETRACE_TYPE_U32:
		return id_bytes == 1 ? ids_i32_u8(ids, n, n_ids, to) : i32_to_u16(ids, n, n_ids, to);
	case MOETRACE_TYPE_I64:
	case MOETRACE_TYPE_U64:
		return id_bytes == 1 ? i64_to_u8(ids, n, n_ids, to) : i64_to_u16(ids, n, n_ids, to);
	default:
		return 1;
	}
}

int mt_narrow_ids_all(const struct mt_matrix *ids, uint32_t n_ids, uint8_t id_bytes, void *ret_ids)
{
	size_t dense_bytes = (size_t)ids->k * mt_type_bytes(ids->type);
	uint32_t bad = 0;

	if (ids->row_bytes == dense_bytes)
		return !ids_run(ids->data, ids->type, ids->n_rows * ids->k, n_ids, id_bytes,
				ret_ids);
	for (uint64_t row = 0; row < ids->n_rows; row++)
		bad |= ids_run((const uint8_t *)ids->data + row * ids->row_bytes, ids->type, ids->k,
			       n_ids, id_bytes, (uint8_t *)ret_ids + row * ids->k * id_bytes);
	return !bad;
}

#define NO_EXPERT INT64_C(-1)

/*
 * An id of any type; NO_EXPERT where the type's way of saying so is used and the layer has no
 * such id. Too large: INT64_MAX.
 */
static int64_t load_id(const uint8_t *at, uint32_t type, uint32_t n_ids)
{
	union {
		int8_t i8;
		uint8_t u8;
		int16_t i16;
		uint16_t u16;
		int32_t i32;
		uint32_t u32;
		int64_t i64;
		uint64_t u64;
	} value = { 0 };

	memcpy(&value, at, mt_type_bytes(type));
	switch (type) {
	case MOETRACE_TYPE_I8:
		return value.i8 < 0 ? NO_EXPERT : value.i8;
	case MOETRACE_TYPE_U8:
		return value.u8 == UINT8_MAX && n_ids <= UINT8_MAX ? NO_EXPERT : value.u8;
	case MOETRACE_TYPE_I16:
		return value.i16 < 0 ? NO_EXPERT : value.i16;
	case MOETRACE_TYPE_U16:
		return value.u16 == UINT16_MAX && n_ids <= UINT16_MAX ? NO_EXPERT : value.u16;
	case MOETRACE_TYPE_I32:
		return value.i32 < 0 ? NO_EXPERT : value.i32;
	case MOETRACE_TYPE_U32:
		return value.u32 == UINT32_MAX ? NO_EXPERT : value.u32;
	case MOETRACE_TYPE_I64:
		return value.i64 < 0 ? NO_EXPERT : value.i64;
	default:
		if (value.u64 == UINT64_MAX)
			return NO_EXPERT;
		return value.u64 > INT64_MAX ? INT64_MAX : (int64_t)value.u64;
	}
}

static void store_id(void *ids, uint64_t index, uint8_t id_bytes, uint32_t id)
{
	if (id_bytes == 1)
		((uint8_t *)ids)[index] = (uint8_t)id;
	else
		((uint16_t *)ids)[index] = (uint16_t)id;
}

uint64_t mt_narrow_ids_some(const struct mt_matrix *ids, uint32_t n_ids, uint8_t id_bytes,
			    void *ret_ids, uint16_t *weights, uint8_t *ret_n_valid)
{
	uint32_t from_bytes = mt_type_bytes(ids->type);
	uint64_t n_invalid = 0;

	for (uint64_t row = 0; row < ids->n_rows; row++) {
		const uint8_t *from = (const uint8_t *)ids->data + row * ids->row_bytes;
		uint64_t first = row * ids->k;
		uint32_t n_valid = 0;
		uint64_t n_before = n_invalid;

		for (uint32_t i = 0; i < ids->k; i++) {
			int64_t id = load_id(from + (size_t)i * from_bytes, ids->type, n_ids);

			if (id < 0 || id >= n_ids) {
				n_invalid += id >= 0;
				continue;
			}
			store_id(ret_ids, first + n_valid, id_bytes, (uint32_t)id);
			if (weights)
				weights[first + n_valid] = weights[first + i];
			n_valid++;
		}
		ret_n_valid[row] = (uint8_t)(n_valid | (n_invalid != n_before ? MT_ROW_INVALID : 0));
		for (uint32_t i = n_valid; i < ids->k; i++) {
			store_id(ret_ids, first + i, id_bytes, 0);
			if (weights)
				weights[first + i] = 0;
		}
	}
	return n_invalid;
}

static void weights_f32_f16(const float *from, uint64_t n, uint16_t *to)
{
	uint64_t done = mt_narrow_has_avx2() ? mt_narrow_f32_f16_avx2(from, n, to) : 0;

	for (uint64_t i = done; i < n; i++)
		to[i] = mt_f16_from_f32(from[i]);
}

uint32_t mt_narrow_plain(const int32_t *ids, const float *weights, uint64_t n, uint32_t n_ids,
			 uint8_t *ret_ids, uint16_t *ret_weights)
{
	for (uint64_t i = 0; i < n; i++)
		ret_weights[i] = mt_f16_from_f32(weights[i]);
	return i32_to_u8((const uint32_t *)ids, n, n_ids, ret_ids);
}

mt_narrow_plain_fn mt_narrow_plain_choose(void)
{
	if (mt_narrow_has_avx512())
		return mt_narrow_plain_avx512;
	return mt_narrow_has_avx2() ? mt_narrow_plain_avx2 : mt_narrow_plain;
}

static void weights_f32_bf16(const float *from, uint64_t n, uint16_t *to)
{
	for (uint64_t i = 0; i < n; i++)
		to[i] = mt_bf16_from_f32(from[i]);
}

static void weights_f16_bf16(const uint16_t *from, uint64_t n, uint16_t *to)
{
	for (uint64_t i = 0; i < n; i++)
		to[i] = mt_bf16_from_f32(mt_f32_from_f16(from[i]));
}

static void weights_bf16_f16(const uint16_t *from, uint64_t n, uint16_t *to)
{
	for (uint64_t i = 0; i < n; i++)
		to[i] = mt_f16_from_f32(mt_f32_from_bf16(from[i]));
}

static void weights_run(const void *from, uint32_t type, uint32_t weight_format, uint64_t n,
			uint16_t *to)
{
	int to_bf16 = weight_format == MOETRACE_WEIGHT_FORMAT_BF16;

	if (type == MOETRACE_TYPE_F32 && to_bf16)
		weights_f32_bf16(from, n, to);
	else if (type == MOETRACE_TYPE_F32)
		weights_f32_f16(from, n, to);
	else if ((type == MOETRACE_TYPE_BF16) == to_bf16)
		memcpy(to, from, n * 2);
	else if (to_bf16)
		weights_f16_bf16(from, n, to);
	else
		weights_bf16_f16(from, n, to);
}

void mt_narrow_weights(const struct mt_matrix *weights, uint32_t weight_format,
		       uint16_t *ret_weights)
{
	size_t dense_bytes = (size_t)weights->k * mt_type_bytes(weights->type);

	if (weights->row_bytes == dense_bytes) {
		weights_run(weights->data, weights->type, weight_format,
			    weights->n_rows * weights->k, ret_weights);
		return;
	}
	for (uint64_t row = 0; row < weights->n_rows; row++)
		weights_run((const uint8_t *)weights->data + row * weights->row_bytes,
			    weights->type, weight_format, weights->k,
			    ret_weights + row * weights->k);
}
