/* SPDX-License-Identifier: MIT */
/*
 * A small fixed pool of threads that runs one parallel loop at a time. The caller takes part, so
 * a pool of n threads starts n - 1. Idle threads spin for a few microseconds and then sleep.
 * Which thread runs which piece is not fixed: pieces must not depend on each other.
 */
#ifndef MTK_THREADS_H
#define MTK_THREADS_H

#include <stdint.h>

struct mtk_threads;

#define MTK_MAX_THREADS 256

/* Runs the piece [begin, end) of a loop. */
typedef void (*mtk_task_fn)(void *arg, uint32_t begin, uint32_t end);

/**
 * Returns  MOETRACE_OK, MOETRACE_E_INVALID (n_threads is 0 or over MTK_MAX_THREADS),
 *          MOETRACE_E_NOMEM or MOETRACE_E_LIMIT (the system refused a thread).
 * Owner    caller; release with mtk_threads_destroy().
 */
int mtk_threads_create(uint32_t n_threads, struct mtk_threads **ret_threads);

/* Joins the threads. NULL is allowed. */
void mtk_threads_destroy(struct mtk_threads *threads);

uint32_t mtk_threads_count(const struct mtk_threads *threads);

/*
 * Run fn over [0, n) in pieces of grain iterations, on all threads, and return when all are done.
 * What fits one piece, or a pool of one thread, runs as one piece on the caller.
 * Everything written before the call is seen by the pieces, and what they wrote by the caller.
 */
void mtk_threads_run(struct mtk_threads *threads, uint32_t n, uint32_t grain, mtk_task_fn fn,
		     void *arg);

#endif
