/* SPDX-License-Identifier: MIT */
/*
 * What a machine can do at most: bytes a second out of memory, and operations a second where nothing
 * is read. A fused multiply-add counts as two operations. Rates of the same operations on the same
 * machine are held against these.
 */
#ifndef MTK_PEAKS_PEAKS_H
#define MTK_PEAKS_PEAKS_H

#include <stddef.h>
#include <stdint.h>

#include "kernels/threads.h"

/* Multiply-adds in a round of mtk_peak_fma_fn: enough chains to hide the latency of one. */
#define MTK_PEAK_FMAS 160

/* Do @n_rounds of MTK_PEAK_FMAS multiply-adds; the result depends on all of them. */
typedef float (*mtk_peak_fma_fn)(uint64_t n_rounds);
/* Read @n floats, a multiple of 64; the result depends on all of them. */
typedef float (*mtk_peak_read_fn)(const float *from, size_t n);

float mtk_peak_fma_plain(uint64_t n_rounds);
float mtk_peak_read_plain(const float *from, size_t n);

struct mtk_peaks {
	const char *level; /* the instruction set, as MOETRACE_CPU names it */
	uint32_t n_threads;
	double flop_per_s;
	double bytes_per_s;
};

struct mtk_cpu_ops;

/**
 * Measure this machine with all threads of a pool; the best of several short runs each, about half a
 * second together. Takes @n_bytes of memory, which should be some times what the caches hold.
 *
 * Returns MOETRACE_OK or MOETRACE_E_NOMEM.
 */
int mtk_peaks_measure(const struct mtk_cpu_ops *ops, struct mtk_threads *threads, size_t n_bytes,
		      struct mtk_peaks *ret_peaks);

#endif
