/* SPDX-License-Identifier: MIT */
/*
 * What the store kernel is launched with, for host and device: a parameter of a kernel, by value.
 */
#ifndef MT_CUDA_STORE_ARGS_H
#define MT_CUDA_STORE_ARGS_H

#include <moetrace/cuda.h>

#define MT_CUDA_STORE_LAYERS 32u
#define MT_CUDA_STORE_THREADS 128u /* a warp a row */

struct mt_cuda_store_layer {
	struct moetrace_cuda_target target;
	uint64_t ids;     /* addresses */
	uint64_t weights; /* 0: none */
};

struct mt_cuda_store_args {
	uint64_t ids_row_bytes;
	uint64_t weights_row_bytes;
	uint32_t n_rows;
	uint32_t id_type;     /* enum moetrace_type */
	uint32_t weight_type; /* enum moetrace_type */
	uint32_t reserved;
	struct mt_cuda_store_layer layers[MT_CUDA_STORE_LAYERS];
};

#endif
