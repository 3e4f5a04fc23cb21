/* SPDX-License-Identifier: MIT */
/*
 * The thread pool. A loop is published as a generation: the upper half of `claim` is its number,
 * the lower half the next piece to hand out. A thread takes a piece by a compare-and-swap on the
 * whole word, so one that woke late, for a loop that is over, cannot take a piece of a later one,
 * and the caller never waits for a thread that took nothing. The lock protects n_sleeping and
 * stop, and pairs the last look at `claim` before sleeping with the wake-up after publishing.
 */
#include "kernels/threads.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/prctl.h>

#include <moetrace/status.h>

/* Looks before an idle thread sleeps (some tens of microseconds), and before a caller yields. */
#define SPIN_LIMIT 2000

/* The lower half of claim when no piece is left to hand out, whatever the loop's n_pieces. */
#define NO_PIECE UINT32_MAX

struct job {
	mtk_task_fn fn;
	void *arg;
	uint32_t n;
	uint32_t grain;
	uint32_t n_pieces;
};

struct mtk_threads {
	/* On lines of their own: written by every thread. */
	_Alignas(64) atomic_uint_least64_t claim;
	_Alignas(64) atomic_uint n_done;	/* pieces finished in this generation */

	/*
	 * The job, written while claim says NO_PIECE. Whoever reads a value of a later job by an
	 * acquire has that NO_PIECE before its compare-and-swap, which therefore fails.
	 */
	_Alignas(64) _Atomic(mtk_task_fn) fn;
	_Atomic(void *) arg;
	atomic_uint n;
	atomic_uint grain;
	atomic_uint n_pieces;
	atomic_uint n_sleeping;

	pthread_mutex_t lock;
	pthread_cond_t wake;
	bool stop;

	uint32_t n_threads;
	uint32_t n_started;
	pthread_t threads[];
};

static void relax(void)
{
#if defined(__x86_64__)
	__builtin_ia32_pause();
#endif
}

static uint64_t claim_make(uint32_t generation, uint32_t piece)
{
	return (uint64_t)generation << 32 | piece;
}

/* Take the next piece of the open loop. False when there is none. */
static bool claim_piece(struct mtk_threads *threads, struct job *ret_job, uint32_t *ret_piece)
{
	/* Pairs with the release in publish(): the job of this generation is visible. */
	uint64_t claim = atomic_load_explicit(&threads->claim, memory_order_acquire);

	for (;;) {
		struct job job = {
			.fn = atomic_load_explicit(&threads->fn, memory_order_acquire),
			.arg = atomic_load_explicit(&threads->arg, memory_order_acquire),
			.n = atomic_load_explicit(&threads->n, memory_order_acquire),
			.grain = atomic_load_explicit(&threads->grain, memory_order_acquire),
			.n_pieces = atomic_load_explicit(&threads->n_pieces, memory_order_acquire),
		};
		uint32_t piece = (uint32_t)claim;

		if (piece == NO_PIECE || piece >= job.n_pieces)
			return false;
		/* Success proves that no other generation was published since the job was read. */
		if (atomic_compare_exchange_weak_explicit(&threads->claim, &claim, claim + 1,
							  memory_order_acq_rel,
							  memory_order_acquire)) {
			*ret_job = job;
			*ret_piece = piece;
			return true;
		}
	}
}

static void run_pieces(struct mtk_threads *threads)
{
	struct job job;
	uint32_t piece;

	while (claim_piece(threads, &job, &piece)) {
		uint32_t begin = piece * job.grain;
		uint32_t left = job.n - begin;

		job.fn(job.arg, begin, begin + (left < job.grain ? left : job.grain));
		/* Pairs with the acquire in mtk_threads_run(): the piece's writes are visible. */
		atomic_fetch_add_explicit(&threads->n_done, 1, memory_order_release);
	}
}

static uint32_t generation_of(struct mtk_threads *threads)
{
	return (uint32_t)(atomic_load(&threads->claim) >> 32);
}

/* Wait for a generation other than seen. False when the pool is being destroyed. */
static bool wait_for_work(struct mtk_threads *threads, uint32_t seen)
{
	bool stop;

	for (int i = 0; i < SPIN_LIMIT; i++) {
		if (generation_of(threads) != seen)
			return true;
		relax();
	}
	pthread_mutex_lock(&threads->lock);
	/* Sequentially consistent, as publish() is: it sees the sleeper, or we see its loop. */
	atomic_fetch_add(&threads->n_sleeping, 1);
	while (generation_of(threads) == seen && !threads->stop)
		pthread_cond_wait(&threads->wake, &threads->lock);
	atomic_fetch_sub(&threads->n_sleeping, 1);
	stop = threads->stop;
	pthread_mutex_unlock(&threads->lock);
	return !stop;
}

static void *thread_main(void *arg)
{
	struct mtk_threads *threads = arg;
	uint32_t seen = 0;

	/* Not the program's name: whose processor time it is shows in the host's lists. */
	(void)prctl(PR_SET_NAME, "engine");
	while (wait_for_work(threads, seen)) {
		seen = generation_of(threads);
		run_pieces(threads);
	}
	return NULL;
}

static void publish(struct mtk_threads *threads, const struct job *job)
{
	uint32_t generation = generation_of(threads);

	atomic_store(&threads->claim, claim_make(generation, NO_PIECE));
	atomic_store(&threads->fn, job->fn);
	atomic_store(&threads->arg, job->arg);
	atomic_store(&threads->n, job->n);
	atomic_store(&threads->grain, job->grain);
	atomic_store(&threads->n_pieces, job->n_pieces);
	atomic_store(&threads->n_done, 0);
	atomic_store(&threads->claim, claim_make(generation + 1, 0));
	if (atomic_load(&threads->n_sleeping) == 0)
		return;
	pthread_mutex_lock(&threads->lock);
	pthread_cond_broadcast(&threads->wake);
	pthread_mutex_unlock(&threads->lock);
}

void mtk_threads_run(struct mtk_threads *threads, uint32_t n, uint32_t grain, mtk_task_fn fn,
		     void *arg)
{
	struct job job = {fn, arg, n, grain, n / grain + (n % grain != 0)};
	int n_looks = 0;

	if (n == 0)
		return;
	if (job.n_pieces == 1 || threads->n_threads == 1) {
		fn(arg, 0, n);
		return;
	}
	publish(threads, &job);
	run_pieces(threads);
	/* Pairs with the release in run_pieces(). */
	while (atomic_load_explicit(&threads->n_done, memory_order_acquire) != job.n_pieces) {
		if (++n_looks > SPIN_LIMIT)
			sched_yield();
		else
			relax();
	}
}

static void stop_threads(struct mtk_threads *threads)
{
	pthread_mutex_lock(&threads->lock);
	threads->stop = true;
	pthread_cond_broadcast(&threads->wake);
	pthread_mutex_unlock(&threads->lock);
	for (uint32_t i = 0; i < threads->n_started; i++)
		pthread_join(threads->threads[i], NULL);
}

int mtk_threads_create(uint32_t n_threads, struct mtk_threads **ret_threads)
{
	struct mtk_threads *threads;
	size_t bytes;

	if (n_threads == 0 || n_threads > MTK_MAX_THREADS)
		return MOETRACE_E_INVALID;
	bytes = sizeof(*threads) + (n_threads - 1) * sizeof(pthread_t);
	bytes = (bytes + 63) / 64 * 64;
	threads = aligned_alloc(64, bytes);
	if (!threads)
		return MOETRACE_E_NOMEM;
	*threads = (struct mtk_threads){.n_threads = n_threads, .claim = claim_make(0, NO_PIECE)};
	pthread_mutex_init(&threads->lock, NULL);
	pthread_cond_init(&threads->wake, NULL);

	for (; threads->n_started < n_threads - 1; threads->n_started++)
		if (pthread_create(&threads->threads[threads->n_started], NULL, thread_main,
				   threads))
			goto err_threads;
	*ret_threads = threads;
	return MOETRACE_OK;

err_threads:
	mtk_threads_destroy(threads);
	return MOETRACE_E_LIMIT;
}

void mtk_threads_destroy(struct mtk_threads *threads)
{
	if (!threads)
		return;
	stop_threads(threads);
	pthread_cond_destroy(&threads->wake);
	pthread_mutex_destroy(&threads->lock);
	free(threads);
}

uint32_t mtk_threads_count(const struct mtk_threads *threads)
{
	return threads->n_threads;
}
