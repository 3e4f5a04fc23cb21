/* SPDX-License-Identifier: MIT */
/*
 * Whether this machine has a GPU, for tests whose cases run forked: CUDA does not survive a fork,
 * so the test itself must not open it before.
 */
#ifndef TEST_CUDA_GPU_H
#define TEST_CUDA_GPU_H

#include <stdbool.h>

/* Asks in a child; why there is none goes to stderr. */
bool gpu_is_here(void);

/* Opens it in this process; ends the test case where that fails. */
void gpu_open(void);

#endif
