/* SPDX-License-Identifier: MIT */
/*
 * A ring is a stream of bytes with two ever-growing positions, head and tail, over memory
 * of a power of two. Invariants: tail <= head <= tail + n_bytes; both are multiples of a
 * cache line; a record never wraps (a PAD record fills the end).
 *
 * A record is complete when its first word equals key ^ position. Old contents of the memory
 * cannot pass for that: the key is random and the position is different in every lap. The
 * writer only looks at the word at tail, which is always the start of a record.
 */
#include "libtrace/ring.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <time.h>

static uint64_t random_key(void)
{
	uint64_t key = 0;
	struct timespec now;

	if (getrandom(&key, sizeof(key), GRND_NONBLOCK) != (ssize_t)sizeof(key)) {
		clock_gettime(CLOCK_MONOTONIC, &now);
		key = (uint64_t)now.tv_nsec * UINT64_C(0x9e3779b97f4a7c15);
	}
	return key | 1;
}

void mt_ring_open(struct mt_ring *ring, uint8_t *data, uint64_t n_bytes)
{
	ring->data = data;
	ring->n_bytes = n_bytes;
	ring->key = random_key();
}

static void open_pair(struct mt_ring_pool *pool, uint32_t index, uint8_t *main, uint8_t *side,
		      uint64_t ring_bytes)
{
	mt_ring_open(&pool->rings[index], main, ring_bytes);
	mt_ring_open(&pool->rings[pool->n_rings + index], side, ring_bytes / 4);
}

int mt_ring_pool_open(struct mt_ring_pool *pool, uint32_t n_rings, uint64_t ring_bytes)
{
	uint64_t side_bytes = ring_bytes / 4;
	uint64_t memory_bytes = (ring_bytes + side_bytes) * n_rings;
	uint64_t mapped_bytes = memory_bytes + ring_bytes + side_bytes;
	void *memory = mmap(NULL, mapped_bytes, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (memory == MAP_FAILED)
		return MOETRACE_E_NOMEM;
	/* Huge pages spare the hot path TLB misses; a refusal changes nothing. */
	(void)madvise(memory, mapped_bytes, MADV_HUGEPAGE);
	memset(memory, 0, memory_bytes);
	memset(pool->rings, 0, sizeof(pool->rings));
	pool->memory = memory;
	pool->mapped_bytes = mapped_bytes;
	atomic_store(&pool->memory_bytes, memory_bytes);
	pool->n_rings = n_rings + 1;
	pool->n_streams = 2 * pool->n_rings;
	for (uint32_t i = 0; i < n_rings; i++)
		open_pair(pool, i, pool->memory + i * ring_bytes,
			  pool->memory + n_rings * ring_bytes + i * side_bytes, ring_bytes);
	open_pair(pool, n_rings, pool->memory + memory_bytes,
		  pool->memory + memory_bytes + ring_bytes, ring_bytes);
	pool->late = n_rings;
	atomic_store(&pool->free, UINT64_MAX >> (MT_MAX_RINGS - n_rings));
	atomic_store(&pool->free_late, 1);
	return MOETRACE_OK;
}

void mt_ring_pool_touch_late(struct mt_ring_pool *pool)
{
	uint64_t memory_bytes = atomic_load(&pool->memory_bytes);

	memset(pool->memory + memory_bytes, 0, pool->mapped_bytes - memory_bytes);
	atomic_store(&pool->memory_bytes, pool->mapped_bytes);
}

void mt_ring_pool_close(struct mt_ring_pool *pool)
{
	if (pool->memory)
		munmap(pool->memory, pool->mapped_bytes);
	pool->memory = NULL;
}

static struct mt_ring *best_ring(struct mt_ring_pool *pool, uint64_t free)
{
	struct mt_ring *best = NULL;
	uint64_t best_bytes = UINT64_MAX;

	while (free) {
		struct mt_ring *ring = &pool->rings[__builtin_ctzll(free)];
		uint64_t waiting_bytes = mt_ring_waiting_bytes(ring);

		if (waiting_bytes <= ring->n_bytes / 2)
			return ring;
		if (waiting_bytes < best_bytes) {
			best = ring;
			best_bytes = waiting_bytes;
		}
		free &= free - 1;
	}
	return best;
}

struct mt_ring *mt_ring_claim(struct mt_ring_pool *pool)
{
	uint64_t free = atomic_load_explicit(&pool->free, memory_order_relaxed);

	while (free) {
		struct mt_ring *ring = best_ring(pool, free);
		uint64_t bit = UINT64_C(1) << (ring - pool->rings);

		/*
		 * Sequentially consistent: a pass claims first and then looks whether recording
		 * is on; stop turns it off and then looks who holds a ring. One sees the other.
		 * Also pairs with the release of the ring's last holder.
		 */
		if (atomic_compare_exchange_weak(&pool->free, &free, free & ~bit))
			return ring;
	}
	return NULL;
}

int mt_ring_claim_one(struct mt_ring_pool *pool, uint32_t index)
{
	uint64_t free = atomic_load_explicit(&pool->free, memory_order_relaxed);
	uint64_t bit = UINT64_C(1) << index;

	/* As in mt_ring_claim(). */
	while (free & bit)
		if (atomic_compare_exchange_weak(&pool->free, &free, free & ~bit))
			return 1;
	return 0;
}

struct mt_ring *mt_ring_claim_late(struct mt_ring_pool *pool)
{
	/* As in mt_ring_claim(). */
	return atomic_exchange(&pool->free_late, 0) ? &pool->rings[pool->late] : NULL;
}

void mt_ring_release(struct mt_ring_pool *pool, struct mt_ring *ring)
{
	uint32_t index = mt_ring_index(pool, ring);

	/* Releases what this holder wrote into the ring's pass to the next holder. */
	if (index != pool->late)
		atomic_fetch_or(&pool->free, UINT64_C(1) << index);
	else
		atomic_store(&pool->free_late, 1);
}

uint32_t mt_ring_index(const struct mt_ring_pool *pool, const struct mt_ring *ring)
{
	return (uint32_t)(ring - pool->rings);
}

void mt_ring_pad(struct mt_ring *ring, uint64_t head, uint64_t n_bytes)
{
	struct mt_reservation pad = { mt_ring_at(ring, head), head };

	pad.record->n_bytes = n_bytes;
	pad.record->type = MT_RECORD_PAD;
	pad.record->time_ns = 0;
	mt_ring_commit(ring, pad);
}

struct mt_reservation mt_ring_reserve(struct mt_ring *ring, enum mt_record_type type,
				      uint64_t n_bytes)
{
	struct mt_reservation none = { NULL, 0 };
	uint64_t head = atomic_load_explicit(&ring->head, memory_order_relaxed);
	uint64_t pad_bytes;

	if (n_bytes > ring->n_bytes)
		return none;
	n_bytes = mt_whole_lines(n_bytes);
	do {
		pad_bytes = mt_ring_pad_bytes(ring, head, n_bytes);
		if (!mt_ring_has_room(ring, head, pad_bytes + n_bytes))
			return none;
	} while (!atomic_compare_exchange_weak_explicit(&ring->head, &head,
							head + pad_bytes + n_bytes,
							memory_order_release,
							memory_order_relaxed));
	return mt_ring_start(ring, type, head, pad_bytes, n_bytes);
}

struct mt_record *mt_ring_peek(struct mt_ring *ring, uint64_t limit)
{
	uint64_t tail = atomic_load_explicit(&ring->tail, memory_order_relaxed);
	struct mt_record *record = mt_ring_at(ring, tail);

	if (tail >= limit)
		return NULL;
	if (atomic_load_explicit(&record->stamp, memory_order_acquire) != (ring->key ^ tail))
		return NULL;
	return record;
}

void mt_ring_take(struct mt_ring *ring, const struct mt_record *record)
{
	uint64_t tail = atomic_load_explicit(&ring->tail, memory_order_relaxed);

	atomic_store_explicit(&ring->tail, tail + record->n_bytes, memory_order_release);
}
