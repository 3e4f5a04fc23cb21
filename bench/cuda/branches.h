/* SPDX-License-Identifier: MIT */
/* A graph of two captured streams, for bench_branches. */
#ifndef MTK_BENCH_BRANCHES_H
#define MTK_BENCH_BRANCHES_H

#include <stdint.h>

#include "kernels/engine/error.h"

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Two branches of n kernels each, left_kernel and right_kernel, which take some microseconds, so that
 * both run at once; join_kernel follows both.
 */
int branches_make(uint32_t n, void *stream, void *beside, struct mtk_error *error, void **ret_graph);

#ifdef __cplusplus
}
#endif

#endif
