/* SPDX-License-Identifier: MIT */
/*
 * Keys: 32 bits, the upper ones of a float made comparable as an unsigned number, the lower ones
 * the mask of ids less the id. So keys of a row are distinct, the larger one comes first, and
 * equal floats come by lower id; floats that differ in the bits that the id took must be compared
 * by themselves. Each lane keeps the largest keys of its columns sorted; the warp takes the
 * largest of all by one reduction a time.
 */
#ifndef MTK_ROUTE_ROUTE_KEYS_CUH
#define MTK_ROUTE_ROUTE_KEYS_CUH

#include <stdint.h>

/* Keys that a lane keeps sorted. */
#define ROUTE_QUEUE 8

/* Both zeros are one value. */
static __device__ __forceinline__ uint32_t route_ordered(float value)
{
	const uint32_t bits = __float_as_uint(value + 0.0f);

	return bits ^ ((uint32_t)((int32_t)bits >> 31) | 0x80000000u);
}

static __device__ __forceinline__ float route_unordered(uint32_t ordered)
{
	return __uint_as_float(ordered & 0x80000000u ? ordered ^ 0x80000000u : ~ordered);
}

static __device__ __forceinline__ uint32_t route_key(float value, uint32_t mask, uint32_t id)
{
	return (route_ordered(value) & ~mask) | (mask - id);
}

/* The least and the largest float that a key can stand for. */
static __device__ __forceinline__ float route_key_low(uint32_t key, uint32_t mask)
{
	return route_unordered(key & ~mask);
}

static __device__ __forceinline__ float route_key_high(uint32_t key, uint32_t mask)
{
	return route_unordered(key | mask);
}

static __device__ __forceinline__ void route_order(uint32_t *a, uint32_t *b)
{
	const uint32_t larger = max(*a, *b);

	*b = min(*a, *b);
	*a = larger;
}

/* Sorting networks, largest first, of the fewest comparisons. */
static __device__ __forceinline__ void route_sort4(uint32_t *k)
{
	route_order(k + 0, k + 2);
	route_order(k + 1, k + 3);
	route_order(k + 0, k + 1);
	route_order(k + 2, k + 3);
	route_order(k + 1, k + 2);
}

static __device__ __forceinline__ void route_sort5(uint32_t *k)
{
	route_order(k + 0, k + 3);
	route_order(k + 1, k + 4);
	route_order(k + 0, k + 2);
	route_order(k + 1, k + 3);
	route_order(k + 0, k + 1);
	route_order(k + 2, k + 4);
	route_order(k + 1, k + 2);
	route_order(k + 3, k + 4);
	route_order(k + 2, k + 3);
}

static __device__ __forceinline__ void route_sort8(uint32_t *k)
{
	for (int i = 0; i < 2; i++) {
		route_order(k + i, k + i + 2);
		route_order(k + i + 4, k + i + 6);
	}
	for (int i = 0; i < 4; i++)
		route_order(k + i, k + i + 4);
	for (int i = 0; i < 8; i += 2)
		route_order(k + i, k + i + 1);
	route_order(k + 2, k + 4);
	route_order(k + 3, k + 5);
	route_order(k + 1, k + 4);
	route_order(k + 3, k + 6);
	route_order(k + 1, k + 2);
	route_order(k + 3, k + 4);
	route_order(k + 5, k + 6);
}

template <int N> static __device__ __forceinline__ void route_sort(uint32_t *k)
{
	static_assert(N == 2 || N == 4 || N == 5 || N == 8, "a network for it");
	if constexpr (N == 2)
		route_order(k, k + 1);
	else if constexpr (N == 4)
		route_sort4(k);
	else if constexpr (N == 5)
		route_sort5(k);
	else
		route_sort8(k);
}

/* queue becomes the eight largest of itself and of N sorted keys, sorted. */
template <int N>
static __device__ __forceinline__ void route_merge(uint32_t *queue, const uint32_t *k)
{
#pragma unroll
	for (int i = ROUTE_QUEUE - N; i < ROUTE_QUEUE; i++)
		queue[i] = max(queue[i], k[ROUTE_QUEUE - 1 - i]);
#pragma unroll
	for (int step = 4; step > 0; step /= 2)
#pragma unroll
		for (int i = 0; i < ROUTE_QUEUE; i++)
			if ((i & step) == 0)
				route_order(queue + i, queue + i + step);
}

/* Sort the keys of a lane; of more than ROUTE_QUEUE the largest, which come first. */
template <int N> static __device__ __forceinline__ void route_make_queue(uint32_t *keys)
{
	if constexpr (N <= ROUTE_QUEUE) {
		route_sort<N>(keys);
	} else {
		route_sort8(keys);
#pragma unroll
		for (int i = 8; i < N; i += 8) {
			if (N - i >= 8) {
				route_sort8(keys + i);
				route_merge<8>(keys, keys + i);
			} else {
				route_sort4(keys + i);
				route_merge<4>(keys, keys + i);
			}
		}
	}
}

/* Take the largest key of the warp out of its lane's queue; 0: none is left. */
template <int N> static __device__ __forceinline__ uint32_t route_take(uint32_t *queue)
{
	constexpr int LENGTH = N < ROUTE_QUEUE ? N : ROUTE_QUEUE;
	const uint32_t largest = __reduce_max_sync(0xffffffffu, queue[0]);
	const bool is_mine = queue[0] == largest;

#pragma unroll
	for (int i = 0; i + 1 < LENGTH; i++)
		queue[i] = is_mine ? queue[i + 1] : queue[i];
	queue[LENGTH - 1] = is_mine ? 0 : queue[LENGTH - 1];
	return largest;
}

#endif
