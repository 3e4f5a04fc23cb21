/* SPDX-License-Identifier: MIT */
/*
 * The two narrowings that nearly every runtime needs, with AVX2 and F16C: int32 ids to bytes
 * and fp32 weights to fp16. Sources may be unaligned; the loops do whole vectors only.
 */
#include "libtrace/narrow.h"

#if defined(__x86_64__)
#include <immintrin.h>

#include "common/f16.h"

int mt_narrow_has_avx2(void)
{
	/* Every processor with AVX2 that was ever sold has F16C, which clang 14 cannot be asked for. */
	return __builtin_cpu_supports("avx2") != 0;
}

__attribute__((target("avx2,f16c")))
uint64_t mt_narrow_i32_u8_avx2(const int32_t *ids, uint64_t n, uint32_t n_ids, uint8_t *ret_ids,
			       uint32_t *ret_bad)
{
	/* The packs work in 128-bit halves; this puts their four-byte groups back in order. */
	const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
	const __m256i limit = _mm256_set1_epi32((int32_t)(n_ids - 1));
	__m256i largest = _mm256_setzero_si256();
	uint64_t done;

	for (done = 0; done + 32 <= n; done += 32) {
		const __m256i *from = (const __m256i *)(const void *)(ids + done);
		__m256i a = _mm256_loadu_si256(from);
		__m256i b = _mm256_loadu_si256(from + 1);
		__m256i c = _mm256_loadu_si256(from + 2);
		__m256i d = _mm256_loadu_si256(from + 3);
		__m256i words;

		largest = _mm256_max_epu32(largest, _mm256_max_epu32(_mm256_max_epu32(a, b),
								     _mm256_max_epu32(c, d)));
		words = _mm256_packus_epi16(_mm256_packus_epi32(a, b), _mm256_packus_epi32(c, d));
		_mm256_storeu_si256((__m256i *)(void *)(ret_ids + done),
				    _mm256_permutevar8x32_epi32(words, order));
	}
	/* largest <= limit in every lane, as unsigned numbers, exactly if the maximum is limit. */
	*ret_bad = _mm256_movemask_epi8(_mm256_cmpeq_epi32(_mm256_max_epu32(largest, limit),
							   limit)) != -1;
	return done;
}

__attribute__((target("avx2,f16c")))
static inline __m128i narrow_8(const float *weights)
{
	return _mm256_cvtps_ph(_mm256_loadu_ps(weights), _MM_FROUND_TO_NEAREST_INT);
}

__attribute__((target("avx2,f16c")))
uint64_t mt_narrow_f32_f16_avx2(const float *weights, uint64_t n, uint16_t *ret_weights)
{
	uint64_t done;

	for (done = 0; done + 32 <= n; done += 32) {
		__m128i *to = (__m128i *)(void *)(ret_weights + done);

		_mm_storeu_si128(to, narrow_8(weights + done));
		_mm_storeu_si128(to + 1, narrow_8(weights + done + 8));
		_mm_storeu_si128(to + 2, narrow_8(weights + done + 16));
		_mm_storeu_si128(to + 3, narrow_8(weights + done + 24));
	}
	for (; done + 8 <= n; done += 8)
		_mm_storeu_si128((__m128i *)(void *)(ret_weights + done), narrow_8(weights + done));
	return done;
}

uint32_t mt_narrow_plain_avx2(const int32_t *ids, const float *weights, uint64_t n, uint32_t n_ids,
			      uint8_t *ret_ids, uint16_t *ret_weights)
{
	uint32_t bad;

	for (uint64_t i = mt_narrow_f32_f16_avx2(weights, n, ret_weights); i < n; i++)
		ret_weights[i] = mt_f16_from_f32(weights[i]);
	for (uint64_t i = mt_narrow_i32_u8_avx2(ids, n, n_ids, ret_ids, &bad); i < n; i++) {
		bad |= (uint32_t)ids[i] >= n_ids;
		ret_ids[i] = (uint8_t)ids[i];
	}
	return bad;
}

#else

int mt_narrow_has_avx2(void)
{
	return 0;
}

uint64_t mt_narrow_i32_u8_avx2(const int32_t *ids, uint64_t n, uint32_t n_ids, uint8_t *ret_ids,
			       uint32_t *ret_bad)
{
	(void)ids, (void)n, (void)n_ids, (void)ret_ids;
	*ret_bad = 0;
	return 0;
}

uint64_t mt_narrow_f32_f16_avx2(const float *weights, uint64_t n, uint16_t *ret_weights)
{
	(void)weights, (void)n, (void)ret_weights;
	return 0;
}

uint32_t mt_narrow_plain_avx2(const int32_t *ids, const float *weights, uint64_t n, uint32_t n_ids,
			      uint8_t *ret_ids, uint16_t *ret_weights)
{
	return mt_narrow_plain(ids, weights, n, n_ids, ret_ids, ret_weights);
}

#endif
