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

#include "kernels/vec.h"
