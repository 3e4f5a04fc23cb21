/* SPDX-License-Identifier: MIT */
/*
 * What the store kernels are launched with, for host and device: a parameter of a kernel, by value.
 * The kernel of one layer takes the begin of what the other takes: a graph carries the parameters of
 * each of its launches.
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

/* Of all layers. */
struct mt_cuda_store_rows {
	uint64_t ids_bytes; /* from row to row */
	uint64_t weights_bytes;
	uint32_t n_rows;
	uint32_t id_type;     /* enum moetrace_type */
	uint32_t weight_type; /* enum moetrace_type */
	uint32_t reserved;
};

struct mt_cuda_store_args {
	struct mt_cuda_store_rows rows;
	struct mt_cuda_store_layer layers[MT_CUDA_STORE_LAYERS];
};

struct mt_cuda_store_one {
	struct mt_cuda_store_rows rows;
	struct mt_cuda_store_layer layer;
};

#endif
