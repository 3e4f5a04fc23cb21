/* SPDX-License-Identifier: MIT */
/*
 * What the benchmarks on a GPU share: the time of launches inside a graph, and the two floors
 * that any kernel has: an empty one in the same graph, and bytes over the bandwidth of a copy, both
 * measured in the same run.
 */
#ifndef MTK_BENCH_GPU_TIME_H
#define MTK_BENCH_GPU_TIME_H

#include <stddef.h>
#include <stdint.h>

#include "kernels/engine/error.h"

/* Launches something into a stream; MOETRACE_OK or a status with the error filled. */
typedef int (*gpu_launch_fn)(void *arg, void *stream, struct mtk_error *error);

/* Opens GPU 0 and prints it; ends the program with 77 where there is none. */
void gpu_time_open(void);

/*
 * The median time of one launch: a graph of n_launches is replayed n_runs times, each replay timed
 * by itself. Ends the program where a call fails.
 */
double gpu_time_us(gpu_launch_fn launch, void *arg, uint32_t n_launches, uint32_t n_runs);

/* A kernel that does nothing; @arg is not looked at. */
int gpu_launch_empty(void *arg, void *stream, struct mtk_error *error);

double gpu_time_empty_us(void);

/* Bytes a nanosecond of the faster of two copies, read and written bytes both counted. */
double gpu_copy_bandwidth(void);

/* Bytes a nanosecond of reading alone, which is faster: the memory need not turn around. */
double gpu_read_bandwidth(void);

/* Device memory, zeros, or what `from` holds. Lives until the program ends. */
void *gpu_time_memory(size_t n_bytes, const void *from);

void gpu_time_write(void *to, const void *from, size_t n_bytes);

/* Device memory of 16-bit floats, bf16 or fp16, pseudo-random in -scale .. scale. */
void *gpu_time_random16(size_t n, float scale, int is_bf16);

#endif
