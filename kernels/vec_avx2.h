/* SPDX-License-Identifier: MIT */
/*
 * Sixteen fp32 lanes as two AVX2 registers. The vector paths of all operations are written in
 * these terms, with the same lanes and the same order of additions on every vector level.
 * For inclusion by cpu_avx2.c alone.
 */
#include <immintrin.h>
#include <stdint.h>

#define VEC_LANES 16
/* Panels beside 1, 2, 3 and 4 to 6 rows of a linear operation: the fastest that were measured. */
#define VEC_GEMM_PANELS_1 4
#define VEC_GEMM_PANELS_2 2
#define VEC_GEMM_PANELS_3 1
#define VEC_GEMM_PANELS_MORE 1
/* Blocks of keys that fit the registers beside two query heads. */
#define VEC_ATTENTION_BLOCKS 2
#define VEC_TARGET __attribute__((target("avx2,fma,f16c")))
#define VEC_FN static inline __attribute__((always_inline)) VEC_TARGET

struct vec {
	__m256 lo;
	__m256 hi;
};

VEC_FN struct vec vec_set1(float value)
{
	__m256 all = _mm256_set1_ps(value);

	return (struct vec){all, all};
}

VEC_FN struct vec vec_load(const float *from)
{
	return (struct vec){_mm256_loadu_ps(from), _mm256_loadu_ps(from + 8)};
}

VEC_FN void vec_store(float *to, struct vec a)
{
	_mm256_storeu_ps(to, a.lo);
	_mm256_storeu_ps(to + 8, a.hi);
}

VEC_FN struct vec vec_load_f16(const uint16_t *from)
{
	return (struct vec){_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)from)),
			    _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(from + 8)))};
}

VEC_FN __m256 vec_widen_bf16(const uint16_t *from)
{
	__m128i halves = _mm_loadu_si128((const __m128i *)from);

	return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(halves), 16));
}

VEC_FN struct vec vec_load_bf16(const uint16_t *from)
{
	return (struct vec){vec_widen_bf16(from), vec_widen_bf16(from + 8)};
}

/* All ones in the lanes below n, which may be anything from 0 up. */
VEC_FN __m256i vec_mask_below(uint32_t n)
{
	const __m256i lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);

	return _mm256_cmpgt_epi32(_mm256_set1_epi32(n > 8 ? 8 : (int)n), lanes);
}

/* The first n lanes, n at most 16; the others read nothing and are zero. */
VEC_FN struct vec vec_load_first(const float *from, uint32_t n)
{
	if (n == VEC_LANES)
		return vec_load(from);
	return (struct vec){_mm256_maskload_ps(from, vec_mask_below(n)),
			    n > 8 ? _mm256_maskload_ps(from + 8, vec_mask_below(n - 8))
				  : _mm256_setzero_ps()};
}

VEC_FN void vec_store_first(float *to, uint32_t n, struct vec a)
{
	if (n == VEC_LANES) {
		vec_store(to, a);
		return;
	}
	_mm256_maskstore_ps(to, vec_mask_below(n), a.lo);
	if (n > 8)
		_mm256_maskstore_ps(to + 8, vec_mask_below(n - 8), a.hi);
}

VEC_FN struct vec vec_add(struct vec a, struct vec b)
{
	return (struct vec){_mm256_add_ps(a.lo, b.lo), _mm256_add_ps(a.hi, b.hi)};
}

VEC_FN struct vec vec_sub(struct vec a, struct vec b)
{
	return (struct vec){_mm256_sub_ps(a.lo, b.lo), _mm256_sub_ps(a.hi, b.hi)};
}

VEC_FN struct vec vec_mul(struct vec a, struct vec b)
{
	return (struct vec){_mm256_mul_ps(a.lo, b.lo), _mm256_mul_ps(a.hi, b.hi)};
}

VEC_FN struct vec vec_div(struct vec a, struct vec b)
{
	return (struct vec){_mm256_div_ps(a.lo, b.lo), _mm256_div_ps(a.hi, b.hi)};
}

/* a * b + c, rounded once. */
VEC_FN struct vec vec_fma(struct vec a, struct vec b, struct vec c)
{
	return (struct vec){_mm256_fmadd_ps(a.lo, b.lo, c.lo), _mm256_fmadd_ps(a.hi, b.hi, c.hi)};
}

/* The larger of each pair; b where either is NaN. */
VEC_FN struct vec vec_max(struct vec a, struct vec b)
{
	return (struct vec){_mm256_max_ps(a.lo, b.lo), _mm256_max_ps(a.hi, b.hi)};
}

VEC_FN struct vec vec_min(struct vec a, struct vec b)
{
	return (struct vec){_mm256_min_ps(a.lo, b.lo), _mm256_min_ps(a.hi, b.hi)};
}

/* 0 in the lanes where a < b, value in the others and where either is NaN. */
VEC_FN struct vec vec_unless_less(struct vec a, struct vec b, struct vec value)
{
	return (struct vec){_mm256_and_ps(_mm256_cmp_ps(a.lo, b.lo, _CMP_NLT_UQ), value.lo),
			    _mm256_and_ps(_mm256_cmp_ps(a.hi, b.hi, _CMP_NLT_UQ), value.hi)};
}

/* Bit i is set where lane i of a equals lane i of b. */
VEC_FN uint32_t vec_equal_bits(struct vec a, struct vec b)
{
	return (uint32_t)_mm256_movemask_ps(_mm256_cmp_ps(a.lo, b.lo, _CMP_EQ_OQ)) |
	       (uint32_t)_mm256_movemask_ps(_mm256_cmp_ps(a.hi, b.hi, _CMP_EQ_OQ)) << 8;
}

VEC_FN struct vec vec_round(struct vec a)
{
	return (struct vec){
		_mm256_round_ps(a.lo, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC),
		_mm256_round_ps(a.hi, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)};
}

VEC_FN __m256 vec_pow2_half(__m256 exponent)
{
	__m256i biased = _mm256_add_epi32(_mm256_cvtps_epi32(exponent), _mm256_set1_epi32(127));

	return _mm256_castsi256_ps(_mm256_slli_epi32(biased, 23));
}

/* 2 to the power of whole numbers from -126 to 127. */
VEC_FN struct vec vec_pow2(struct vec exponent)
{
	return (struct vec){vec_pow2_half(exponent.lo), vec_pow2_half(exponent.hi)};
}

/* Lanes i and i + 8, then i and i + 4, then i and i + 2, then the last two. */
VEC_FN float vec_sum(struct vec a)
{
	__m256 eight = _mm256_add_ps(a.lo, a.hi);
	__m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
	__m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));

	return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

VEC_FN float vec_max_lane(struct vec a)
{
	__m256 eight = _mm256_max_ps(a.lo, a.hi);
	__m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
	__m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));

	return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
}

VEC_FN struct vec vec_abs(struct vec a)
{
	const __m256 sign = _mm256_set1_ps(-0.0f);

	return (struct vec){_mm256_andnot_ps(sign, a.lo), _mm256_andnot_ps(sign, a.hi)};
}

VEC_FN struct vec vec_sqrt(struct vec a)
{
	return (struct vec){_mm256_sqrt_ps(a.lo), _mm256_sqrt_ps(a.hi)};
}

/* x in the lanes where a < b, y in the others. */
VEC_FN struct vec vec_choose_less(struct vec a, struct vec b, struct vec x, struct vec y)
{
	return (struct vec){_mm256_blendv_ps(y.lo, x.lo, _mm256_cmp_ps(a.lo, b.lo, _CMP_LT_OQ)),
			    _mm256_blendv_ps(y.hi, x.hi, _mm256_cmp_ps(a.hi, b.hi, _CMP_LT_OQ))};
}

/* Bit i is set where lane i of a is less than lane i of b. */
VEC_FN uint32_t vec_less_bits(struct vec a, struct vec b)
{
	return (uint32_t)_mm256_movemask_ps(_mm256_cmp_ps(a.lo, b.lo, _CMP_LT_OQ)) |
	       (uint32_t)_mm256_movemask_ps(_mm256_cmp_ps(a.hi, b.hi, _CMP_LT_OQ)) << 8;
}

/* The first n lanes of a, n at most 16, and fill in the others. */
VEC_FN struct vec vec_keep_first(struct vec a, uint32_t n, struct vec fill)
{
	return (struct vec){
		_mm256_blendv_ps(fill.lo, a.lo, _mm256_castsi256_ps(vec_mask_below(n))),
		_mm256_blendv_ps(fill.hi, a.hi,
				 _mm256_castsi256_ps(vec_mask_below(n > 8 ? n - 8 : 0)))};
}

VEC_FN struct vec vec_set_lane(struct vec a, uint32_t lane, struct vec value)
{
	const __m256i lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
	__m256i lo = _mm256_cmpeq_epi32(lanes, _mm256_set1_epi32((int)lane));
	__m256i hi = _mm256_cmpeq_epi32(lanes, _mm256_set1_epi32((int)lane - 8));

	return (struct vec){_mm256_blendv_ps(a.lo, value.lo, _mm256_castsi256_ps(lo)),
			    _mm256_blendv_ps(a.hi, value.hi, _mm256_castsi256_ps(hi))};
}

VEC_FN float vec_first(struct vec a)
{
	return _mm_cvtss_f32(_mm256_castps256_ps128(a.lo));
}

/*
 * Append the lanes of from whose bits are set to values, and base + lane to places. Both have
 * room for all lanes. Returns how many.
 */
VEC_FN uint32_t vec_append(const float *from, uint32_t bits, int32_t base, float *values,
			   int32_t *places)
{
	uint32_t n = 0;

	for (; bits != 0; bits &= bits - 1) {
		int32_t lane = __builtin_ctz(bits);

		values[n] = from[lane];
		places[n++] = base + lane;
	}
	return n;
}

/* The two largest of 32 lanes, the same value twice if it occurs twice. */
VEC_FN float vec_top2(struct vec a, struct vec b, float *ret_second)
{
	__m256 high = _mm256_max_ps(a.lo, b.lo), low = _mm256_min_ps(a.lo, b.lo);
	__m256 high2 = _mm256_max_ps(a.hi, b.hi), low2 = _mm256_min_ps(a.hi, b.hi);
	__m256 top = _mm256_max_ps(high, high2);
	__m256 next = _mm256_max_ps(_mm256_min_ps(high, high2), _mm256_max_ps(low, low2));
	__m128 top_a = _mm256_castps256_ps128(top), top_b = _mm256_extractf128_ps(top, 1);
	__m128 next_a = _mm256_castps256_ps128(next), next_b = _mm256_extractf128_ps(next, 1);
	__m128 one = _mm_max_ps(top_a, top_b);
	__m128 two = _mm_max_ps(_mm_min_ps(top_a, top_b), _mm_max_ps(next_a, next_b));
	__m128 other = _mm_movehl_ps(one, one);

	two = _mm_max_ps(_mm_min_ps(one, other), _mm_max_ps(two, _mm_movehl_ps(two, two)));
	one = _mm_max_ps(one, other);
	other = _mm_movehdup_ps(one);
	two = _mm_max_ps(_mm_min_ps(one, other), _mm_max_ps(two, _mm_movehdup_ps(two)));
	*ret_second = _mm_cvtss_f32(two);
	return _mm_cvtss_f32(_mm_max_ss(one, other));
}

#include "kernels/vec.h"
