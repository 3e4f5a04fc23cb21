/* SPDX-License-Identifier: MIT */
/*
 * The GPU as the cases of a forked test find it: looked for in a child, opened by each case.
 */
#include "tests/cuda/support/gpu.h"

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
