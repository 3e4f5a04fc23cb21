/* SPDX-License-Identifier: MIT */
/*
 * The walks of oea_sweep.h. The common shape, one-byte ids of eight entries a row that are all in
 * use and rows that are all changed, is compiled by itself from the same text: the loops are then
 * unrolled and nothing is asked a row. What an entry costs is a load and a store of its expert's
 * place, and in the second walk an addition to the sum of that place. Entries that survive are
 * counted in the bytes of one word, so that rows do not wait for each other's stores.
 */
#include "oea_sweep.h"

#include <endian.h>
#include <string.h>

#define ALWAYS_INLINE inline __attribute__((always_inline))

/* Loops of eight are written out: compilers leave them rolled at the level that we build with. */
#define EIGHT(step) step(0) step(1) step(2) step(3) step(4) step(5) step(6) step(7)

/* Rows whose entries the bytes of a word can count: 31 * 8 < 256. */
#define ROWS_A_WORD 31

float mt_oea_weight(const uint8_t *bits, bool is_bf16)
{
	const uint32_t half = (uint32_t)(bits[0] | bits[1] << 8) & 0x7fff;
	const uint32_t wide = half << (is_bf16 ? 16 : 13);
	float value;

	memcpy(&value, &wide, sizeof(value));
	/* A product, so that denormal halves come out right. */
	return is_bf16 ? value : value * 0x1p112f;
}

static ALWAYS_INLINE uint32_t id_at(const uint8_t *ids, size_t id_bytes, size_t i)
{
	return id_bytes == 1 ? ids[i] : (uint32_t)(ids[2 * i] | ids[2 * i + 1] << 8);
}

/* ---- the weights' look ---- */

static uint16_t half_at(const uint8_t *weights, size_t i)
{
	return (uint16_t)(weights[2 * i] | weights[2 * i + 1] << 8);
}

static void look_at_row(const uint8_t *weights, size_t n, struct mt_oea_look *look)
{
	unsigned differs = 0, rises = 0, before;

	if (n < 2)
		return;
	before = half_at(weights, 0);
	for (size_t j = 1; j < n; j++) {
		const unsigned half = half_at(weights, j);

		differs |= half ^ before;
		rises |= half > before;
		before = half;
	}
	look->n_looked++;
	look->n_equal += differs == 0;
	look->n_unordered += rises;
}

static ALWAYS_INLINE uint64_t word_at(const uint8_t *bytes)
{
	uint64_t word;

	memcpy(&word, bytes, sizeof(word));
	return le64toh(word);
}

/*
 * Eight weights as two words of four. Lane by lane, a number with the top bit set minus the lane
 * behind it keeps that bit exactly where the next weight is not larger.
 */
static void look_at_eight(const uint8_t *weights, struct mt_oea_look *look)
{
	const uint64_t tops = UINT64_C(0x8000800080008000);
	const uint64_t low = word_at(weights), high = word_at(weights + 8);
	uint64_t rises;

	if ((low | high) & tops) {
		look_at_row(weights, 8, look);
		return;
	}
	rises = ~((low | tops) - (low >> 16 | high << 48)) | ~((high | tops) - (high >> 16));
	look->n_looked++;
	look->n_equal += low == high && low == (low & 0xffff) * UINT64_C(0x0001000100010001);
	look->n_unordered += (rises & tops) != 0;
}

void mt_oea_look(const struct mt_oea_batch *batch, struct mt_oea_look *ret_look)
{
	struct mt_oea_look look = {0, 0, 0};

	for (size_t r = 0; batch->weights && r < batch->n_rows; r++) {
		if (batch->k == 8 && !batch->n_valid)
			look_at_eight(batch->weights + r * 16, &look);
		else
			look_at_row(batch->weights + r * batch->k * 2,
				    batch->n_valid ? batch->n_valid[r] : batch->k, &look);
	}
	*ret_look = look;
}

/* ---- the first walk: places and unions ---- */

void mt_oea_places_clear(const struct mt_oea_batch *batch, struct mt_oea_scratch *scratch)
{
	const size_t n_ids = batch->id_bytes == 1 ? 256 : 65536;
	const size_t n_experts = batch->n_experts < n_ids ? batch->n_experts : n_ids;

	memset(scratch->place, 255, n_experts);
	/* Experts without weights, and ids that no expert has, are never news. */
	memset(scratch->place + n_experts, 0, n_ids - n_experts);
	scratch->n_active = 0;
}

/* Stores of bytes may alias anything, so what the walk counts is kept in locals. */
static ALWAYS_INLINE uint32_t meet(uint8_t *place_of, uint16_t *active, uint32_t n_active,
				   uint32_t id, uint8_t place)
{
	const uint8_t before = place_of[id];
	const bool is_new = before == 255;

	active[n_active] = (uint16_t)id;
	place_of[id] = is_new ? place : before;
	return n_active + is_new;
}

static void unite_kept(const struct mt_oea_batch *batch, struct mt_oea_scratch *scratch)
{
	for (size_t r = 0; r < batch->n_rows; r++) {
		const size_t n = batch->n_valid ? batch->n_valid[r] : batch->k;

		for (size_t j = 0; (batch->rows[r] & MT_OEA_ROW_KEPT) && j < n; j++)
			scratch->n_active =
				meet(scratch->place, scratch->active, scratch->n_active,
				     id_at(batch->ids, batch->id_bytes, r * batch->k + j), 0);
	}
}

static ALWAYS_INLINE void unite(const struct mt_oea_batch *batch, size_t id_bytes, size_t k,
				bool is_common, struct mt_oea_scratch *scratch, uint32_t *active)
{
	const uint8_t *ids = batch->ids, *rows = batch->rows, *n_valid = batch->n_valid;
	const size_t n_rows = batch->n_rows;
	uint32_t n = scratch->n_active;

	for (size_t j = 0; j < k; j++) {
		for (size_t r = 0; r < n_rows; r++) {
			if (!is_common && rows && (rows[r] & MT_OEA_ROW_KEPT))
				continue;
			if (!is_common && n_valid && j >= n_valid[r])
				continue;
			n = meet(scratch->place, scratch->active, n, id_at(ids, id_bytes, r * k + j),
				 (uint8_t)j);
		}
		active[j] = n;
	}
	scratch->n_active = n;
}

/* ---- the second walk: what rows lose ---- */

/* Sums from the back: sums[j] becomes the weight of the places from j on. Returns all of it. */
static ALWAYS_INLINE float sum_up(float *sums, size_t k)
{
	for (size_t j = k - 1; j > 0; j--)
		sums[j - 1] += sums[j];
	return sums[0];
}

/* Neither a row without weight nor one with a weight that is no number can be rated. */
static ALWAYS_INLINE bool is_rated(float total)
{
	return total > MT_OEA_MIN_WEIGHT && total < MT_OEA_MAX_WEIGHT;
}

static void lose_row(const struct mt_oea_batch *batch, size_t r,
		     const struct mt_oea_scratch *scratch, uint32_t *bins,
		     struct mt_oea_result *result)
{
	const size_t n = batch->n_valid ? batch->n_valid[r] : batch->k, k = batch->k;
	float sums[MT_OEA_MAX_K] = {0}, total;

	for (size_t j = 0; j < n; j++) {
		const size_t at = r * k + j;
		const uint8_t place = scratch->place[id_at(batch->ids, batch->id_bytes, at)];

		result->survivors[place]++;
		if (batch->weights)
			sums[place] += mt_oea_weight(batch->weights + 2 * at, batch->is_bf16);
	}
	result->n_entries += n;
	result->n_changed_rows++;
	total = sum_up(sums, k);
	if (!is_rated(total) || (batch->rows && (batch->rows[r] & MT_OEA_ROW_UNRATED)))
		return;
	result->n_rated_rows++;
	for (size_t k0 = 1; k0 < k; k0++) {
		const float lost = sums[k0] * (1.0f / total);
		const uint32_t bin = (uint32_t)(lost * MT_OEA_N_BINS);

		result->lost[k0 - 1] += (double)lost;
		bins[(k0 - 1) * MT_OEA_N_BINS + (bin < MT_OEA_N_BINS ? bin : MT_OEA_N_BINS - 1)]++;
	}
}

/* Eight lanes; the compiler has them in as many registers as the machine's level needs. */
typedef uint16_t u16x8 __attribute__((vector_size(16)));
typedef uint32_t u32x8 __attribute__((vector_size(32)));
typedef int32_t i32x8 __attribute__((vector_size(32)));
typedef float f32x8 __attribute__((vector_size(32)));

static ALWAYS_INLINE void weights_of_eight(const uint8_t *weights, float *ret_weights)
{
	u16x8 halves;
	u32x8 wide;
	f32x8 values;

	memcpy(&halves, weights, sizeof(halves));
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
	halves = halves << 8 | halves >> 8;
#endif
	wide = (__builtin_convertvector(halves, u32x8) & 0x7fff) << 13;
	memcpy(&values, &wide, sizeof(values));
	values *= 0x1p112f;
	memcpy(ret_weights, &values, sizeof(values));
}

static ALWAYS_INLINE float sum_up_eight(float *sums)
{
	sums[6] += sums[7];
	sums[5] += sums[6];
	sums[4] += sums[5];
	sums[3] += sums[4];
	sums[2] += sums[3];
	sums[1] += sums[2];
	sums[0] += sums[1];
	return sums[0];
}

/* A row's losses for k0 of 1 to 7: sums[1] to sums[7], as shares. */
static ALWAYS_INLINE void rate_eight(const float *sums, float total, f32x8 *lost, uint32_t *bins)
{
	f32x8 shares;
	i32x8 places;
	int32_t place[8], at;

	memcpy(&shares, sums, sizeof(shares));
	shares *= 1.0f / total;
	*lost += shares;
	places = __builtin_convertvector(shares * (float)MT_OEA_N_BINS, i32x8);
	memcpy(place, &places, sizeof(place));
	/* The first lane is all of the row, which is never lost; its bin is the one behind. */
#define STEP(j)                                                                                    \
	at = place[j] < MT_OEA_N_BINS - 1 ? place[j] : MT_OEA_N_BINS - 1;                          \
	bins[(j + 7) % 8 * MT_OEA_N_BINS + at]++;
	EIGHT(STEP)
#undef STEP
}

/* Rows of eight one-byte ids with fp16 weights: see the head of the file. */
static void lose_eight(const struct mt_oea_batch *batch, size_t begin, size_t end,
		       const struct mt_oea_scratch *scratch, uint32_t *bins,
		       struct mt_oea_result *result)
{
	static const uint64_t one[8] = {1,
					UINT64_C(1) << 8,
					UINT64_C(1) << 16,
					UINT64_C(1) << 24,
					UINT64_C(1) << 32,
					UINT64_C(1) << 40,
					UINT64_C(1) << 48,
					UINT64_C(1) << 56};
	const uint8_t *ids = batch->ids + begin * 8, *halves = batch->weights + begin * 16;
	const uint8_t *place_of = scratch->place;
	f32x8 lost = {0};
	uint64_t counts = 0, n_rated = 0;
	size_t place;

	for (size_t r = begin; r < end; r++, ids += 8, halves += 16) {
		float sums[8] = {0}, weights[8], total;

		weights_of_eight(halves, weights);
#define STEP(j)                                                                                    \
	place = place_of[ids[j]] & 7;                                                              \
	counts += one[place];                                                                      \
	sums[place] += weights[j];
		EIGHT(STEP)
#undef STEP
		total = sum_up_eight(sums);
		if (!is_rated(total))
			continue;
		rate_eight(sums, total, &lost, bins);
		n_rated++;
	}
	for (size_t j = 0; j < 8; j++)
		result->survivors[j] += counts >> (8 * j) & 255;
	for (size_t j = 1; j < 8; j++)
		result->lost[j - 1] += (double)lost[j];
	result->n_rated_rows += n_rated;
	result->n_entries += (end - begin) * 8;
	result->n_changed_rows += end - begin;
}

static void lose_common(const struct mt_oea_batch *batch, const struct mt_oea_scratch *scratch,
			uint32_t *bins, struct mt_oea_result *result)
{
	for (size_t begin = 0; begin < batch->n_rows; begin += ROWS_A_WORD) {
		const size_t n = batch->n_rows - begin;

		lose_eight(batch, begin, begin + (n < ROWS_A_WORD ? n : ROWS_A_WORD), scratch, bins,
			   result);
	}
}

static void lose(const struct mt_oea_batch *batch, const struct mt_oea_scratch *scratch,
		 uint32_t *bins, struct mt_oea_result *result)
{
	for (size_t r = 0; r < batch->n_rows; r++)
		if (!(batch->rows && (batch->rows[r] & MT_OEA_ROW_KEPT)))
			lose_row(batch, r, scratch, bins, result);
}

/* Most of a result is never used; clearing all of it takes as long as a few rows. */
static void result_clear(struct mt_oea_result *result, size_t k)
{
	memset(result->active, 0, k * sizeof(*result->active));
	memset(result->survivors, 0, k * sizeof(*result->survivors));
	memset(result->lost, 0, k * sizeof(*result->lost));
	result->n_kept_active = 0;
	result->n_entries = 0;
	result->n_changed_rows = 0;
	result->n_rated_rows = 0;
}

void mt_oea_sweep(const struct mt_oea_batch *batch, struct mt_oea_scratch *scratch, uint32_t *bins,
		  struct mt_oea_result *ret_result)
{
	const bool is_common =
		batch->id_bytes == 1 && batch->k == 8 && !batch->n_valid && !batch->rows;

	result_clear(ret_result, batch->k);
	mt_oea_places_clear(batch, scratch);
	if (batch->rows)
		unite_kept(batch, scratch);
	ret_result->n_kept_active = scratch->n_active;
	if (is_common)
		unite(batch, 1, 8, true, scratch, ret_result->active);
	else
		unite(batch, batch->id_bytes, batch->k, false, scratch, ret_result->active);
	if (is_common && batch->weights && !batch->is_bf16)
		lose_common(batch, scratch, bins, ret_result);
	else
		lose(batch, scratch, bins, ret_result);
	/* Until here by place; an entry survives at k0 where its place is below. */
	for (size_t j = 1; j < batch->k; j++)
		ret_result->survivors[j] += ret_result->survivors[j - 1];
}
