/* SPDX-License-Identifier: MIT */
/*
 * Narrowing: expert ids of any integer type to one or two bytes, weights to two. Each call
 * treats rows of k entries that lie row_bytes apart and writes them without gaps.
 */
#ifndef MT_NARROW_H
#define MT_NARROW_H

#include <stddef.h>
#include <stdint.h>

struct mt_matrix {
	const void *data;
	uint32_t type;    /* enum moetrace_type */
	size_t row_bytes; /* from row to row */
	uint64_t n_rows;
	uint32_t k;
};

/*
 * The fast way for ids that are all in [0, n_ids): returns 1, or 0 if one is not, or the type
 * has no fast way; what was written is then of no use.
 */
int mt_narrow_ids_all(const struct mt_matrix *ids, uint32_t n_ids, uint8_t id_bytes, void *ret_ids);

/*
 * The careful way: entries without an expert (negative, or the largest value of an unsigned
 * type) and invalid ids are left out, their row's weights with them; ret_n_valid [n_rows]
 * counts what stays (with MT_ROW_INVALID where an id was invalid), the rest of a row is 0.
 *
 * @weights  [n_rows][k] already narrowed, compacted in place; NULL: none.
 *
 * Returns the number of invalid ids.
 */
uint64_t mt_narrow_ids_some(const struct mt_matrix *ids, uint32_t n_ids, uint8_t id_bytes,
			    void *ret_ids, uint16_t *weights, uint8_t *ret_n_valid);

/*
 * Widening, for layers that the writer settles: ids to int32, negative ones as they are (or -1),
 * those above INT32_MAX as INT32_MAX, except that the largest value of an unsigned type of 4 or
 * 8 bytes is -1; numbers to fp32. Both [n_rows][k] without gaps.
 */
void mt_widen_ids(const struct mt_matrix *ids, int32_t *ret_ids);
void mt_widen_numbers(const struct mt_matrix *numbers, float *ret_numbers);

/* @weight_format: FP16 or BF16 of enum moetrace_weight_format. */
void mt_narrow_weights(const struct mt_matrix *weights, uint32_t weight_format,
		       uint16_t *ret_weights);

/*
 * What nearly every runtime hands over, in one go: @n int32 ids to bytes and @n fp32 weights to
 * fp16. Returns 0 if all ids are in [0, n_ids); what was written is else of no use.
 */
typedef uint32_t (*mt_narrow_plain_fn)(const int32_t *ids, const float *weights, uint64_t n,
				       uint32_t n_ids, uint8_t *ret_ids, uint16_t *ret_weights);
mt_narrow_plain_fn mt_narrow_plain_choose(void);
uint32_t mt_narrow_plain(const int32_t *ids, const float *weights, uint64_t n, uint32_t n_ids,
			 uint8_t *ret_ids, uint16_t *ret_weights);
uint32_t mt_narrow_plain_avx2(const int32_t *ids, const float *weights, uint64_t n, uint32_t n_ids,
			      uint8_t *ret_ids, uint16_t *ret_weights);
uint32_t mt_narrow_plain_avx512(const int32_t *ids, const float *weights, uint64_t n,
				uint32_t n_ids, uint8_t *ret_ids, uint16_t *ret_weights);

/* Bytes of an element; 0: not an element type. */
uint32_t mt_type_bytes(uint32_t type);
int mt_type_is_integer(uint32_t type);
int mt_type_is_number(uint32_t type);

/* The vector loops, where the processor has them; each returns how many it did (a multiple
   of its width, from the start). ret_bad: not 0 if one of these ids is out of range. */
uint64_t mt_narrow_i32_u8_avx2(const int32_t *ids, uint64_t n, uint32_t n_ids, uint8_t *ret_ids,
			       uint32_t *ret_bad);
uint64_t mt_narrow_f32_f16_avx2(const float *weights, uint64_t n, uint16_t *ret_weights);
int mt_narrow_has_avx2(void);
int mt_narrow_has_avx512(void);

#endif
