/* SPDX-License-Identifier: MIT */
/*
 * A model checker for small pieces of lock-free code. The code under test is compiled with its
 * atomic operations replaced by those of this header; a scenario of two or three threads is then
 * run under every interleaving of these operations, and every load returns in turn every value
 * that the C11 memory model's release and acquire allow it to see: an old one, too. What is not
 * atomic is named by explore_read() and explore_write(), which find data races by
 * happens-before, whatever the interleaving.
 *
 * The model: each atomic object has a list of messages in modification order; a thread's view
 * says which is the oldest that it may still read; a release store carries its thread's view and
 * clock to whoever acquires it; read-modify-writes read the newest message and extend a release
 * sequence; a sequentially consistent load does not read past the last sequentially consistent
 * store. Stores append to the modification order, which is no restriction for objects that one
 * thread at a time stores to, or that are only changed by read-modify-writes.
 * Interleavings that differ only in the order of independent operations are run once (sleep
 * sets).
 */
#ifndef MT_TEST_EXPLORE_H
#define MT_TEST_EXPLORE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum { EXPLORE_MAX_THREADS = 4 };

/* One execution: @setup prepares the objects, the threads run, @finish looks at the outcome. */
struct explore_scenario {
	const char *name;
	void (*setup)(void);
	void (*threads[EXPLORE_MAX_THREADS])(void);
	uint32_t n_threads;
	void (*finish)(void); /* sees everything that the threads did */
};

/* Operations whose order is taken as relaxed, to see that the order is needed. */
enum explore_weaken {
	EXPLORE_AS_WRITTEN,
	EXPLORE_NO_RELEASE,
	EXPLORE_NO_ACQUIRE,
};

struct explore_result {
	uint64_t n_executions; /* run to their end */
	uint64_t n_pruned;     /* found to equal an earlier one */
	bool is_exhausted;     /* false: more than the limit */
	char fault[256];       /* "" if no execution failed */
};

/* Run the scenario under all interleavings, at most @limit of them, or until one fails. */
struct explore_result explore_run(const struct explore_scenario *scenario, uint64_t limit);

/* Treat the operations on objects that @is_meant accepts as weaker than written. */
void explore_weaken(enum explore_weaken what, bool (*is_meant)(const void *object));

/* Accesses to memory that is not atomic. */
void explore_read(const void *memory);
void explore_write(const void *memory);

/* End the execution with a fault. */
void explore_fault(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* What the replaced operations call. */
uint64_t explore_load(const void *object, uint64_t now, memory_order order);
void explore_store(const void *object, uint64_t now, uint64_t value, memory_order order);
bool explore_exchange(const void *object, uint64_t now, uint64_t *expected, uint64_t value,
		      memory_order success, memory_order failure);
uint64_t explore_fetch_or(const void *object, uint64_t now, uint64_t bits, memory_order order);

/*
 * Included after <stdatomic.h> and before the code under test. The object's own memory is only
 * read, for its first value.
 */
#ifdef EXPLORE_REPLACES_ATOMICS
#undef atomic_load_explicit
#undef atomic_store_explicit
#undef atomic_store
#undef atomic_compare_exchange_weak
#undef atomic_compare_exchange_weak_explicit
#undef atomic_fetch_or
#define explore_now(object) (*(const volatile uint64_t *)(const volatile void *)(object))
#define atomic_load_explicit(object, order) \
	explore_load((const void *)(object), explore_now(object), order)
#define atomic_store_explicit(object, value, order) \
	explore_store((const void *)(object), explore_now(object), value, order)
#define atomic_store(object, value) atomic_store_explicit(object, value, memory_order_seq_cst)
#define atomic_compare_exchange_weak_explicit(object, expected, value, success, failure)        \
	explore_exchange((const void *)(object), explore_now(object), expected, value, success, \
			 failure)
#define atomic_compare_exchange_weak(object, expected, value)                                \
	atomic_compare_exchange_weak_explicit(object, expected, value, memory_order_seq_cst, \
					      memory_order_seq_cst)
#define atomic_fetch_or(object, bits) \
	explore_fetch_or((const void *)(object), explore_now(object), bits, memory_order_seq_cst)
#endif

#endif
