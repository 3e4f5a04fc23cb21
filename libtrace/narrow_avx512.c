/* SPDX-License-Identifier: MIT */
/*
 * The plain narrowing with AVX-512, in stores of whole lines where the destination is aligned.
 * Sources and destinations need not be.
 */
#include "libtrace/narrow.h"

#if defined(__x86_64__)
#include <immintrin.h>

int mt_narrow_has_avx512(void)
{
	return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
	       __builtin_cpu_supports("avx512vl");
}

#define TARGET __attribute__((target("avx512f,avx512bw,avx512vl")))

/* 32 weights: a line of fp16 in one store, which halves what misses cost in small ones. */
TARGET static inline void store_line(const float *weights, uint16_t *ret_weights)
{
	__m256i low = _mm512_cvtps_ph(_mm512_loadu_ps(weights), _MM_FROUND_TO_NEAREST_INT);
	__m256i high = _mm512_cvtps_ph(_mm512_loadu_ps(weights + 16), _MM_FROUND_TO_NEAREST_INT);

	_mm512_storeu_si512(ret_weights,
			    _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1));
}

TARGET static inline __m256i narrow_32(__m512i low, __m512i high)
{
	return _mm256_inserti128_si256(_mm256_castsi128_si256(_mm512_cvtepi32_epi8(low)),
				       _mm512_cvtepi32_epi8(high), 1);
}

/* 64 ids: a line of bytes; returns the largest of them in each lane. */
TARGET static inline __m512i store_ids(const int32_t *ids, uint8_t *ret_ids)
{
	__m512i a = _mm512_loadu_si512(ids);
	__m512i b = _mm512_loadu_si512(ids + 16);
	__m512i c = _mm512_loadu_si512(ids + 32);
	__m512i d = _mm512_loadu_si512(ids + 48);

	_mm512_storeu_si512(ret_ids, _mm512_inserti64x4(_mm512_castsi256_si512(narrow_32(a, b)),
							narrow_32(c, d), 1));
	return _mm512_max_epu32(_mm512_max_epu32(a, b), _mm512_max_epu32(c, d));
}

/* The first @n of 16, 16 or more: all. */
TARGET static inline __mmask16 first_of(uint64_t n)
{
	return (__mmask16)(n < 16 ? (1u << n) - 1 : 0xffff);
}

TARGET
uint32_t mt_narrow_plain_avx512(const int32_t *ids, const float *weights, uint64_t n,
				uint32_t n_ids, uint8_t *ret_ids, uint16_t *ret_weights)
{
	__m512i largest = _mm512_setzero_si512();
	uint64_t i;

	for (i = 0; i + 32 <= n; i += 32)
		store_line(weights + i, ret_weights + i);
	for (; i < n; i += 16) {
		__mmask16 some = first_of(n - i);
		__m512 last = _mm512_maskz_loadu_ps(some, weights + i);

		_mm256_mask_storeu_epi16(ret_weights + i, some,
					 _mm512_cvtps_ph(last, _MM_FROUND_TO_NEAREST_INT));
	}
	for (i = 0; i + 64 <= n; i += 64)
		largest = _mm512_max_epu32(largest, store_ids(ids + i, ret_ids + i));
	for (; i < n; i += 16) {
		__mmask16 some = first_of(n - i);
		__m512i id = _mm512_maskz_loadu_epi32(some, ids + i);

		largest = _mm512_max_epu32(largest, id);
		_mm_mask_storeu_epi8(ret_ids + i, some, _mm512_cvtepi32_epi8(id));
	}
	return _mm512_reduce_max_epu32(largest) >= n_ids;
}

#else

int mt_narrow_has_avx512(void)
{
	return 0;
}

uint32_t mt_narrow_plain_avx512(const int32_t *ids, const float *weights, uint64_t n,
				uint32_t n_ids, uint8_t *ret_ids, uint16_t *ret_weights)
{
	return mt_narrow_plain(ids, weights, n, n_ids, ret_ids, ret_weights);
}

#endif
