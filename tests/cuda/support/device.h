/* SPDX-License-Identifier: MIT */
/*
 * What kernels do with a target, in plain C: an independent reading of <moetrace/cuda_device.cuh>
 * and of the layout that the recorder documents, for tests without a GPU.
 */
#ifndef TEST_CUDA_DEVICE_H
#define TEST_CUDA_DEVICE_H

#include <stdbool.h>
#include <stdint.h>

#include <moetrace/cuda.h>

/* The word of a target's lane, and whether it is that target's. */
uint64_t device_load(const struct moetrace_cuda_target *target);
bool device_is_on(const struct moetrace_cuda_target *target, uint64_t word);

/* Its entries a row. */
uint32_t device_k(const struct moetrace_cuda_target *target);

/* A row of k ids and weights (NULL: none). */
void device_store_row(const struct moetrace_cuda_target *target, uint64_t word, uint32_t row,
		      const int64_t *ids, const double *weights, uint32_t flags);

/* The margin of a row that was stored. */
void device_store_margin(const struct moetrace_cuda_target *target, uint64_t word, uint32_t row,
			 float margin);

/* The layer's head: it was launched for @n_rows rows, at @timer_ns. */
void device_store_head(const struct moetrace_cuda_target *target, uint64_t word, uint32_t n_rows,
		       uint64_t timer_ns);

/* The recorder's store kernel: its argument and grid, copied to @ret_launch, and its run. */
void device_store_args(const void *parameter, uint32_t grid_x, uint32_t grid_y, uint32_t block_x,
		       void *ret_launch);
void device_store(const void *launch, uint64_t timer_ns);

#endif
