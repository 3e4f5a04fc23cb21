/* SPDX-License-Identifier: MIT */
/*
 * Rings: memory that passes write records into and the writer takes them out of.
 *
 * A pool is made and touched once. A pass claims a ring by one atomic operation and gives it
 * back when it ends; what it wrote stays until the writer has taken it. A ring has a main
 * stream, which one thread at a time writes into with plain stores, and a side stream of a
 * quarter of its size for the other threads of the pass. (Locked instructions wait for all
 * stores before them: on the main stream they would cost as much as the copy itself.)
 * Nobody waits: a reservation that does not fit fails.
 */
#ifndef MT_RING_H
#define MT_RING_H

#include <stdatomic.h>
#include <stdint.h>

#include "libtrace/record.h"

#define MT_MAX_RINGS 64u /* that passes of the current recording claim */
#define MT_N_RINGS (MT_MAX_RINGS + 1) /* with the one for late passes */
#define MT_MAX_STREAMS (2 * MT_N_RINGS)

struct mt_ring {
	_Alignas(MT_LINE_BYTES) _Atomic uint64_t head; /* bytes ever reserved, by producers */
	_Alignas(MT_LINE_BYTES) _Atomic uint64_t tail; /* bytes ever taken, by the writer */
	_Alignas(MT_LINE_BYTES) uint8_t *data;
	uint64_t n_bytes; /* power of two */
	uint64_t key;     /* odd, so that no stamp is zero */
};

struct mt_ring_pool {
	_Alignas(MT_LINE_BYTES) _Atomic uint64_t free; /* a bit a ring that nobody holds */
	_Atomic uint64_t free_late; /* 1: nobody holds the ring for late passes */
	uint32_t late;    /* its index: it is the last one */
	uint32_t n_rings; /* with it */
	uint32_t n_streams; /* main streams [n_rings], then side streams [n_rings] */
	_Atomic uint64_t memory_bytes; /* that were touched */
	uint64_t mapped_bytes;
	uint8_t *memory;
	struct mt_ring rings[MT_MAX_STREAMS];
};

/* A reservation: where to write, and its position in the ring's stream of bytes. */
struct mt_reservation {
	struct mt_record *record; /* NULL: no room */
	uint64_t position;
};

/* A ring of a pool's kind over other memory, of a power of two bytes; all its members are zero. */
void mt_ring_open(struct mt_ring *ring, uint8_t *data, uint64_t n_bytes);

/*
 * Returns MOETRACE_OK or MOETRACE_E_NOMEM. Touches every page of @n_rings rings, at most MT_MAX_RINGS.
 * Behind them lies the ring for late passes: nobody claims it before its pages were touched, too.
 */
int mt_ring_pool_open(struct mt_ring_pool *pool, uint32_t n_rings, uint64_t ring_bytes);
void mt_ring_pool_touch_late(struct mt_ring_pool *pool);
void mt_ring_pool_close(struct mt_ring_pool *pool);

/* Claim a ring that is at most half full, else the emptiest free one; NULL: none is free. */
struct mt_ring *mt_ring_claim(struct mt_ring_pool *pool);
/* This one; 0: it is not free. */
int mt_ring_claim_one(struct mt_ring_pool *pool, uint32_t index);
/*
 * While the writer ends a recording, what the next one has put into a ring stays there, and a pass
 * of the old one that comes late must not lie behind it. So there is a ring that passes of the
 * current recording never claim; NULL: somebody has it.
 */
struct mt_ring *mt_ring_claim_late(struct mt_ring_pool *pool);
void mt_ring_release(struct mt_ring_pool *pool, struct mt_ring *ring);
uint32_t mt_ring_index(const struct mt_ring_pool *pool, const struct mt_ring *ring);

/* Does somebody hold the ring of this index? */
static inline int mt_ring_is_held(struct mt_ring_pool *pool, uint32_t index)
{
	return index == pool->late ? !atomic_load(&pool->free_late) :
				     !(atomic_load(&pool->free) >> index & 1);
}

/* The side stream of a main stream. */
static inline struct mt_ring *mt_ring_side(struct mt_ring_pool *pool, struct mt_ring *ring)
{
	return ring + pool->n_rings;
}

/* ---- of both ways to reserve ---- */

static inline struct mt_record *mt_ring_at(struct mt_ring *ring, uint64_t position)
{
	return (struct mt_record *)(ring->data + (position & (ring->n_bytes - 1)));
}

static inline uint64_t mt_whole_lines(uint64_t n_bytes)
{
	return (n_bytes + MT_LINE_BYTES - 1) & ~(uint64_t)(MT_LINE_BYTES - 1);
}

/* Bytes to skip at @head so that @n_bytes do not wrap. */
static inline uint64_t mt_ring_pad_bytes(const struct mt_ring *ring, uint64_t head,
					 uint64_t n_bytes)
{
	uint64_t to_end_bytes = ring->n_bytes - (head & (ring->n_bytes - 1));

	return n_bytes > to_end_bytes ? to_end_bytes : 0;
}

static inline int mt_ring_has_room(struct mt_ring *ring, uint64_t head, uint64_t n_bytes)
{
	/* Pairs with mt_ring_take(): the writer is done with the memory before tail. */
	uint64_t tail = atomic_load_explicit(&ring->tail, memory_order_acquire);

	return head - tail + n_bytes <= ring->n_bytes;
}

/* Fill what is skipped. */
void mt_ring_pad(struct mt_ring *ring, uint64_t head, uint64_t n_bytes);

/* What lies between @head and @head + pad_bytes + n_bytes is the caller's. */
static inline struct mt_reservation mt_ring_start(struct mt_ring *ring, enum mt_record_type type,
						  uint64_t head, uint64_t pad_bytes,
						  uint64_t n_bytes)
{
	struct mt_reservation got = { mt_ring_at(ring, head + pad_bytes), head + pad_bytes };

	if (pad_bytes)
		mt_ring_pad(ring, head, pad_bytes);
	got.record->n_bytes = n_bytes;
	got.record->type = type;
	return got;
}

/*
 * Reserve @n_bytes (rounded up to lines) and set the record's size and type. At least
 * @keep_free_bytes stay free behind it for records that must not be lost. The first is for
 * the only producer of the moment, the second for any number of them.
 */
static inline struct mt_reservation mt_ring_reserve_alone(struct mt_ring *ring,
							  enum mt_record_type type,
							  uint64_t n_bytes,
							  uint64_t keep_free_bytes)
{
	struct mt_reservation none = { NULL, 0 };
	uint64_t head = atomic_load_explicit(&ring->head, memory_order_relaxed);
	uint64_t pad_bytes;

	if (n_bytes > ring->n_bytes)
		return none;
	n_bytes = mt_whole_lines(n_bytes);
	pad_bytes = mt_ring_pad_bytes(ring, head, n_bytes);
	if (!mt_ring_has_room(ring, head, pad_bytes + n_bytes + keep_free_bytes))
		return none;
	atomic_store_explicit(&ring->head, head + pad_bytes + n_bytes, memory_order_release);
	return mt_ring_start(ring, type, head, pad_bytes, n_bytes);
}

struct mt_reservation mt_ring_reserve(struct mt_ring *ring, enum mt_record_type type,
				      uint64_t n_bytes);

static inline void mt_ring_commit(struct mt_ring *ring, struct mt_reservation reservation)
{
	/* Pairs with mt_ring_peek(): the whole record is visible once the stamp is. */
	atomic_store_explicit(&reservation.record->stamp, ring->key ^ reservation.position,
			      memory_order_release);
}

/*
 * Writer only. The next complete record before position @limit, or NULL: none is there, or
 * its producer is still copying. mt_ring_take() makes its memory free again.
 */
struct mt_record *mt_ring_peek(struct mt_ring *ring, uint64_t limit);
void mt_ring_take(struct mt_ring *ring, const struct mt_record *record);

static inline uint64_t mt_ring_head(struct mt_ring *ring)
{
	/* Pairs with the reservations: what was reserved before is seen. */
	return atomic_load_explicit(&ring->head, memory_order_acquire);
}

/*
 * The positions of all streams [n_streams]. Side streams are read first: whoever sees a record
 * of a pass there sees its BEGIN in the main stream.
 */
static inline void mt_ring_heads(struct mt_ring_pool *pool, uint64_t *ret_heads)
{
	for (uint32_t i = pool->n_streams; i > 0; i--)
		ret_heads[i - 1] = mt_ring_head(&pool->rings[i - 1]);
}

/* Writer only. */
static inline uint64_t mt_ring_tail(struct mt_ring *ring)
{
	return atomic_load_explicit(&ring->tail, memory_order_relaxed);
}

static inline uint64_t mt_ring_waiting_bytes(struct mt_ring *ring)
{
	uint64_t tail = atomic_load_explicit(&ring->tail, memory_order_acquire);

	return mt_ring_head(ring) - tail;
}

#endif
