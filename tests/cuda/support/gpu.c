/* SPDX-License-Identifier: MIT */
/*
 * The GPU as the cases of a forked test find it: looked for in a child, opened by each case.
 */
#include "tests/cuda/support/gpu.h"

#include <check.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/cuda/support/graph.h"
#include "tests/unit/support/suite.h"

bool gpu_is_here(void)
{
	char reason[256];
	int status = 0;
	pid_t child = fork();

	if (child == 0) {
		const int result = graph_open(reason, sizeof(reason));

		if (result)
			fprintf(stderr, "%s\n", reason);
		_exit(result ? 1 : 0);
	}
	return child > 0 && waitpid(child, &status, 0) == child && status == 0;
}

void gpu_open(void)
{
	char reason[256];

	REQUIRE(graph_open(reason, sizeof(reason)) == 0, "%s", reason);
}

struct moetrace_cuda *gpu_attach(struct moetrace_session *session, uint64_t ring_bytes)
{
	struct moetrace_cuda_opts opts;
	struct moetrace_cuda *cuda;
	char reason[256];

	MOETRACE_INIT(&opts);
	opts.ring_bytes = ring_bytes;
	if (moetrace_cuda_attach(session, &opts, &cuda)) {
		moetrace_errmsg(session, reason, sizeof(reason));
		ck_abort_msg("%s", reason);
	}
	return cuda;
}

struct moetrace_cuda_lane *gpu_lane_add(struct moetrace_cuda *cuda, uint32_t model, void *stream,
					uint32_t n_layers, uint32_t n_rows,
					struct moetrace_cuda_target *ret_targets)
{
	struct moetrace_cuda_lane_info info;
	struct moetrace_cuda_lane *lane;

	MOETRACE_INIT(&info);
	info.stream = stream;
	info.model = model;
	info.order = MOETRACE_ORDER_SELECTION;
	ck_assert_int_eq(moetrace_cuda_lane_add(cuda, &info, &lane), MOETRACE_OK);
	for (uint32_t i = 0; i < n_layers; i++)
		ck_assert_int_eq(moetrace_cuda_target_get(lane, i, n_rows, &ret_targets[i]),
				 MOETRACE_OK);
	return lane;
}
