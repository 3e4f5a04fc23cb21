/* SPDX-License-Identifier: MIT */
/*
 * Whether this machine has a GPU, for tests whose cases run forked: CUDA does not survive a fork,
 * so the test itself must not open it before. And what these cases begin with.
 */
#ifndef TEST_CUDA_GPU_H
#define TEST_CUDA_GPU_H

#include <stdbool.h>
#include <stdint.h>

#include <moetrace/cuda.h>

/* Asks in a child; why there is none goes to stderr. */
bool gpu_is_here(void);

/* Opens it in this process; ends the test case where that fails. */
void gpu_open(void);

/* Attach to the GPU that is open; ends the test case where that fails. @ring_bytes 0: the default. */
struct moetrace_cuda *gpu_attach(struct moetrace_session *session, uint64_t ring_bytes);

/* A lane in a stream, and the targets of its layers for passes of @n_rows rows. */
struct moetrace_cuda_lane *gpu_lane_add(struct moetrace_cuda *cuda, uint32_t model, void *stream,
					uint32_t n_layers, uint32_t n_rows,
					struct moetrace_cuda_target *ret_targets);

#endif
