/* SPDX-License-Identifier: MIT */
/*
 * A lane on a GPU made for tests beside a CUPTI made for tests: passes whose launches it hears of and
 * whose kernels it delivers.
 */
#ifndef TEST_CUPTI_LANE_H
#define TEST_CUPTI_LANE_H

#include <sqlite3.h>

#include "tests/collectors/support/cupti_toy.h"
#include "tests/cuda/support/gpu_toy.h"

enum { CUPTI_LAYERS = 3, CUPTI_ROWS = 4 };

extern const char *const cupti_kernel_names[5];

/* A session that records with a mode of the collector, whose records of kernels are on where it has any. */
struct gpu cupti_lane_start(const char *name, const char *mode);

/* Stop, close, and open the file. */
sqlite3 *cupti_lane_finish(struct gpu *gpu);

/* A number that no launch had, from any thread. */
uint32_t cupti_next_correlation(void);

/* A record of a kernel; of a node of graph 9 where @node is not 0. */
void cupti_put_kernel(const char *name, uint64_t start_ns, uint64_t length_ns, uint32_t correlation,
		      uint64_t node);

/* A kernel launched in the open pass, as a program would. */
void cupti_launch_kernel(struct gpu *gpu, const char *name);

/* A pass on the lane. */
void cupti_pass_begin(struct gpu *gpu);
void cupti_pass_end(struct gpu *gpu);

/* A pass told from the host that is a part of @parent, if that is not 0. */
struct moetrace_pass *cupti_host_begin(const struct gpu *gpu, uint64_t name, uint64_t parent);

#endif
