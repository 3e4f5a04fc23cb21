/* SPDX-License-Identifier: MIT */
/*
 * The plain narrowing with AVX-512: a quarter of the instructions of the AVX2 loops. Sources
 * and destinations may be unaligned.
 */
#include "libtrace/narrow.h"

#if defined(__x86_64__)
#include <immintrin.h>

int mt_narrow_has_avx512(void)
{
	return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
	       __builtin_cpu_supports("avx512vl");
}

__attribute__((target("avx512f,avx512bw,avx512vl")))
uint32_t mt_narrow_plain_avx512(const int32_t *ids, const float *weights, uint64_t n,
				uint32_t n_ids, uint8_t *ret_ids, uint16_t *ret_weights)
{
	__m512i largest = _mm512_setzero_si512();
	uint64_t i;

	for (i = 0; i + 16 <= n; i += 16)
		_mm256_storeu_si256((__m256i *)(void *)(ret_weights + i),
				    _mm512_cvtps_ph(_mm512_loadu_ps(weights + i),
						    _MM_FROUND_TO_NEAREST_INT));
	if (i < n) {
		__mmask16 rest = (__mmask16)((1u << (n - i)) - 1);
		__m512 last = _mm512_maskz_loadu_ps(rest, weights + i);

		_mm256_mask_storeu_epi16(ret_weights + i, rest,
					 _mm512_cvtps_ph(last, _MM_FROUND_TO_NEAREST_INT));
	}
	for (i = 0; i + 16 <= n; i += 16) {
		__m512i id = _mm512_loadu_si512(ids + i);

		largest = _mm512_max_epu32(largest, id);
		_mm_storeu_si128((__m128i *)(void *)(ret_ids + i), _mm512_cvtepi32_epi8(id));
	}
	if (i < n) {
		__mmask16 rest = (__mmask16)((1u << (n - i)) - 1);
		__m512i id = _mm512_maskz_loadu_epi32(rest, ids + i);

		largest = _mm512_max_epu32(largest, id);
		_mm_mask_storeu_epi8(ret_ids + i, rest, _mm512_cvtepi32_epi8(id));
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
