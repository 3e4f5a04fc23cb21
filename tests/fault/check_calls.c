/* SPDX-License-Identifier: MIT */
/*
 * The hot path neither allocates nor locks. This program defines the C library's functions
 * for memory and locks itself, which the dynamic linker then gives to every library, and
 * counts those calls that a thread makes while it is on the hot path. The thread is new each
 * time, so that what happens on a first call is seen, too.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "tests/fault/support/hot.h"
#include "tests/unit/support/suite.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define HAS_OWN_MALLOC 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define HAS_OWN_MALLOC 1
#endif
#endif

#ifdef HAS_OWN_MALLOC

int main(void)
{
	fprintf(stderr, "skipped: the sanitizer has its own functions for memory and locks\n");
	return SUITE_SKIPPED;
}

#else

static _Thread_local bool is_hot;
static _Thread_local uint32_t n_calls;
static _Thread_local const char *last_call;

static void count(const char *name)
{
	if (!is_hot)
		return;
	n_calls++;
	last_call = name;
}

/* ---- the functions that are counted ---- */

#pragma GCC visibility push(default)

extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t n, size_t size);
extern void *__libc_realloc(void *memory, size_t size);
extern void *__libc_memalign(size_t alignment, size_t size);
extern void __libc_free(void *memory);

void *malloc(size_t size)
{
	count("malloc");
	return __libc_malloc(size);
}

void *calloc(size_t n, size_t size)
{
	count("calloc");
	return __libc_calloc(n, size);
}

void *realloc(void *memory, size_t size)
{
	count("realloc");
	return __libc_realloc(memory, size);
}

void free(void *memory)
{
	count("free");
	__libc_free(memory);
}

void *aligned_alloc(size_t alignment, size_t size)
{
	count("aligned_alloc");
	return __libc_memalign(alignment, size);
}

int posix_memalign(void **ret_memory, size_t alignment, size_t size)
{
	count("posix_memalign");
	*ret_memory = __libc_memalign(alignment, size);
	return *ret_memory ? 0 : 12;
}

void *mmap(void *address, size_t length, int protection, int flags, int fd, off_t offset)
{
	count("mmap");
	return (void *)syscall(SYS_mmap, address, length, protection, flags, fd, offset);
}

int munmap(void *address, size_t length)
{
	count("munmap");
	return (int)syscall(SYS_munmap, address, length);
}

int madvise(void *address, size_t length, int advice)
{
	count("madvise");
	return (int)syscall(SYS_madvise, address, length, advice);
}

/* NAME(parameters) that forwards to the C library's function of that name. */
#define COUNTED(name, parameters, arguments)                    \
	int name parameters                                     \
	{                                                       \
		static int(*next) parameters;                   \
                                                                \
		count(#name);                                   \
		if (!next) {                                    \
			void *symbol = dlsym(RTLD_NEXT, #name); \
                                                                \
			memcpy(&next, &symbol, sizeof(symbol)); \
		}                                               \
		return next arguments;                          \
	}

COUNTED(pthread_mutex_lock, (pthread_mutex_t * mutex), (mutex))
COUNTED(pthread_mutex_trylock, (pthread_mutex_t * mutex), (mutex))
COUNTED(pthread_mutex_unlock, (pthread_mutex_t * mutex), (mutex))
COUNTED(pthread_cond_wait, (pthread_cond_t * cond, pthread_mutex_t *mutex), (cond, mutex))
COUNTED(pthread_cond_timedwait,
	(pthread_cond_t * cond, pthread_mutex_t *mutex, const struct timespec *until),
	(cond, mutex, until))
COUNTED(pthread_cond_signal, (pthread_cond_t * cond), (cond))
COUNTED(pthread_cond_broadcast, (pthread_cond_t * cond), (cond))
COUNTED(pthread_rwlock_rdlock, (pthread_rwlock_t * lock), (lock))
COUNTED(pthread_rwlock_tryrdlock, (pthread_rwlock_t * lock), (lock))
COUNTED(pthread_rwlock_wrlock, (pthread_rwlock_t * lock), (lock))
COUNTED(pthread_rwlock_trywrlock, (pthread_rwlock_t * lock), (lock))
COUNTED(pthread_rwlock_unlock, (pthread_rwlock_t * lock), (lock))
COUNTED(pthread_spin_lock, (pthread_spinlock_t * lock), (lock))
COUNTED(pthread_once, (pthread_once_t * once, void (*run)(void)), (once, run))
COUNTED(pthread_setspecific, (pthread_key_t key, const void *value), (key, value))
COUNTED(sem_post, (sem_t * semaphore), (semaphore))
COUNTED(sem_wait, (sem_t * semaphore), (semaphore))
COUNTED(sched_yield, (void), ())
COUNTED(nanosleep, (const struct timespec *wait, struct timespec *rest), (wait, rest))
COUNTED(usleep, (useconds_t wait), (wait))

#pragma GCC visibility pop

/* ---- the tests ---- */

static const struct api *api;

struct watched {
	void (*run)(struct hot *hot);
	struct hot *hot;
	uint32_t n_calls;
	const char *last_call;
};

static void *watch(void *argument)
{
	struct watched *watched = argument;

	is_hot = true;
	watched->run(watched->hot);
	is_hot = false;
	watched->n_calls = n_calls;
	watched->last_call = last_call;
	return NULL;
}

static struct watched run_watched(void (*run)(struct hot *hot), struct hot *hot)
{
	struct watched watched = {.run = run, .hot = hot};
	pthread_t id;

	ck_assert_int_eq(pthread_create(&id, NULL, watch, &watched), 0);
	ck_assert_int_eq(pthread_join(id, NULL), 0);
	return watched;
}

START_TEST(test_no_call)
{
	struct hot *hot = hot_prepare(api, _i);
	const struct watched watched = run_watched(hot_go, hot);

	ck_assert_msg(watched.n_calls == 0, "scenario %d: %u calls, the last of %s", _i,
		      watched.n_calls, watched.last_call);
	hot_finish(hot);
}
END_TEST

/* The counting itself: what may allocate and lock is seen doing so inside the library. */
static void flush(struct hot *hot)
{
	hot->api->flush(hot->session);
}

static void allocate(struct hot *hot)
{
	void *volatile memory = malloc(100);

	(void)hot;
	free(memory);
}

START_TEST(test_calls_are_counted)
{
	struct hot *hot = hot_prepare(api, HOT_DECODE);

	ck_assert_uint_eq(run_watched(allocate, hot).n_calls, 2);
	ck_assert_uint_gt(run_watched(flush, hot).n_calls, 0);
	hot_go(hot);
	hot_finish(hot);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("calls");
	TCase *tcase = tcase_create("hot path");

	api = api_get();
	if (!api)
		return SUITE_SKIPPED;
	tcase_add_test(tcase, test_calls_are_counted);
	tcase_add_loop_test(tcase, test_no_call, 0, HOT_N_SCENARIOS);
	suite_add_tcase(suite, tcase);
	return suite_run(suite);
}

#endif
