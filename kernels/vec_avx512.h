/* SPDX-License-Identifier: MIT */
/*
 * Sixteen fp32 lanes as one AVX-512 register: the same terms as vec_avx2.h, with the same results
 * bit for bit. For inclusion by cpu_avx512.c alone.
 */
#include <immintrin.h>
#include <stdint.h>

#define VEC_LANES 16
/* Panels beside 1, 2, 3 and 4 to 6 rows of a linear operation: the fastest that were measured. */
#define VEC_GEMM_PANELS_1 4
#define VEC_GEMM_PANELS_2 4
#define VEC_GEMM_PANELS_3 4
#define VEC_GEMM_PANELS_MORE 4
/* Blocks of keys that fit the registers beside two query heads. */
#define VEC_ATTENTION_BLOCKS 4
#define VEC_TARGET __attribute__((target("avx512f,avx512vl,avx512bw,avx512dq,avx2,fma,f16c")))
#define VEC_FN static inline __attribute__((always_inline)) VEC_TARGET

struct vec {
	__m512 all;
};

VEC_FN struct vec vec_set1(float value)
{
	return (struct vec){_mm512_set1_ps(value)};
}

VEC_FN struct vec vec_load(const float *from)
{
	return (struct vec){_mm512_loadu_ps(from)};
}

VEC_FN void vec_store(float *to, struct vec a)
{
	_mm512_storeu_ps(to, a.all);
}

VEC_FN struct vec vec_load_f16(const uint16_t *from)
{
	return (struct vec){_mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)from))};
}

VEC_FN struct vec vec_load_bf16(const uint16_t *from)
{
	__m256i halves = _mm256_loadu_si256((const __m256i *)from);

	return (struct vec){
		_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16))};
}

/* The first n lanes, n at most 16; the others read nothing and are zero. */
VEC_FN struct vec vec_load_first(const float *from, uint32_t n)
{
	return (struct vec){_mm512_maskz_loadu_ps((__mmask16)((1u << n) - 1), from)};
}

VEC_FN void vec_store_first(float *to, uint32_t n, struct vec a)
{
	_mm512_mask_storeu_ps(to, (__mmask16)((1u << n) - 1), a.all);
}

VEC_FN struct vec vec_add(struct vec a, struct vec b)
{
	return (struct vec){_mm512_add_ps(a.all, b.all)};
}

VEC_FN struct vec vec_sub(struct vec a, struct vec b)
{
	return (struct vec){_mm512_sub_ps(a.all, b.all)};
}

VEC_FN struct vec vec_mul(struct vec a, struct vec b)
{
	return (struct vec){_mm512_mul_ps(a.all, b.all)};
}

VEC_FN struct vec vec_div(struct vec a, struct vec b)
{
	return (struct vec){_mm512_div_ps(a.all, b.all)};
}

/* a * b + c, rounded once. */
VEC_FN struct vec vec_fma(struct vec a, struct vec b, struct vec c)
{
	return (struct vec){_mm512_fmadd_ps(a.all, b.all, c.all)};
}

/* The larger of each pair; b where either is NaN. */
VEC_FN struct vec vec_max(struct vec a, struct vec b)
{
	return (struct vec){_mm512_max_ps(a.all, b.all)};
}

VEC_FN struct vec vec_min(struct vec a, struct vec b)
{
	return (struct vec){_mm512_min_ps(a.all, b.all)};
}

/* 0 in the lanes where a < b, value in the others and where either is NaN. */
VEC_FN struct vec vec_unless_less(struct vec a, struct vec b, struct vec value)
{
	return (struct vec){
		_mm512_maskz_mov_ps(_mm512_cmp_ps_mask(a.all, b.all, _CMP_NLT_UQ), value.all)};
}

/* Bit i is set where lane i of a equals lane i of b. */
VEC_FN uint32_t vec_equal_bits(struct vec a, struct vec b)
{
	return _mm512_cmp_ps_mask(a.all, b.all, _CMP_EQ_OQ);
}

VEC_FN struct vec vec_round(struct vec a)
{
	return (struct vec){
		_mm512_roundscale_ps(a.all, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)};
}

/* 2 to the power of whole numbers from -126 to 127. */
VEC_FN struct vec vec_pow2(struct vec exponent)
{
	__m512i biased = _mm512_add_epi32(_mm512_cvtps_epi32(exponent.all), _mm512_set1_epi32(127));

	return (struct vec){_mm512_castsi512_ps(_mm512_slli_epi32(biased, 23))};
}

/* Lanes i and i + 8, then i and i + 4, then i and i + 2, then the last two. */
VEC_FN float vec_sum(struct vec a)
{
	__m256 eight =
		_mm256_add_ps(_mm512_castps512_ps256(a.all), _mm512_extractf32x8_ps(a.all, 1));
	__m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
	__m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));

	return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

VEC_FN float vec_max_lane(struct vec a)
{
	__m256 eight =
		_mm256_max_ps(_mm512_castps512_ps256(a.all), _mm512_extractf32x8_ps(a.all, 1));
	__m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
	__m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));

	return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
}

VEC_FN struct vec vec_abs(struct vec a)
{
	return (struct vec){_mm512_abs_ps(a.all)};
}

VEC_FN struct vec vec_sqrt(struct vec a)
{
	return (struct vec){_mm512_sqrt_ps(a.all)};
}

/* x in the lanes where a < b, y in the others. */
VEC_FN struct vec vec_choose_less(struct vec a, struct vec b, struct vec x, struct vec y)
{
	return (struct vec){
		_mm512_mask_mov_ps(y.all, _mm512_cmp_ps_mask(a.all, b.all, _CMP_LT_OQ), x.all)};
}

/* Bit i is set where lane i of a is less than lane i of b. */
VEC_FN uint32_t vec_less_bits(struct vec a, struct vec b)
{
	return _mm512_cmp_ps_mask(a.all, b.all, _CMP_LT_OQ);
}

/* The first n lanes of a, n at most 16, and fill in the others. */
VEC_FN struct vec vec_keep_first(struct vec a, uint32_t n, struct vec fill)
{
	return (struct vec){_mm512_mask_mov_ps(fill.all, (__mmask16)((1u << n) - 1), a.all)};
}

VEC_FN struct vec vec_set_lane(struct vec a, uint32_t lane, struct vec value)
{
	return (struct vec){_mm512_mask_mov_ps(a.all, (__mmask16)(1u << lane), value.all)};
}

VEC_FN float vec_first(struct vec a)
{
	return _mm_cvtss_f32(_mm512_castps512_ps128(a.all));
}

/*
 * Append the lanes of from whose bits are set to values, and base + lane to places. Both have
 * room for all lanes. Returns how many.
 */
VEC_FN uint32_t vec_append(const float *from, uint32_t bits, int32_t base, float *values,
			   int32_t *places)
{
	const __m512i lanes = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12,
						13, 14, 15);
	__mmask16 mask = (__mmask16)bits;
	__m512i each = _mm512_add_epi32(lanes, _mm512_set1_epi32(base));

	_mm512_storeu_ps(values, _mm512_maskz_compress_ps(mask, _mm512_loadu_ps(from)));
	_mm512_storeu_si512(places, _mm512_maskz_compress_epi32(mask, each));
	return (uint32_t)__builtin_popcount(bits);
}

/* The two largest of 32 lanes, the same value twice if it occurs twice. */
VEC_FN float vec_top2(struct vec a, struct vec b, float *ret_second)
{
	__m512 both = _mm512_max_ps(a.all, b.all), less = _mm512_min_ps(a.all, b.all);
	__m256 high = _mm512_castps512_ps256(both), high2 = _mm512_extractf32x8_ps(both, 1);
	__m256 low = _mm512_castps512_ps256(less), low2 = _mm512_extractf32x8_ps(less, 1);
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
