/* SPDX-License-Identifier: MIT */
/*
 * Kernels last 1 ns where nothing else is said, so that what is launched on one stream is in order.
 */
#include "tests/collectors/support/cupti_lane.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "collectors/cupti/api.h"
#include "tests/unit/support/suite.h"

enum { GRAPH = 9 };

const char *const cupti_kernel_names[5] = { "embed_k", "attention_k", "gate_k", "topk_k", "expert_k" };

static _Atomic uint32_t last_correlation = 100;

uint32_t cupti_next_correlation(void)
{
	return ++last_correlation;
}

struct gpu cupti_lane_start(const char *name, const char *mode)
{
	char list[64];
	struct gpu gpu;

	cupti_fake = fakes_cupti();
	fakes_be_patient();
	snprintf(list, sizeof(list), "cupti=%s", mode);
	fakes_set("MOETRACE_COLLECTORS", list);
	gpu = gpu_start(name, CUPTI_LAYERS, 16, 2, 0);
	/* With a first flush what was before is thrown away, with the second one it is the recording's. */
	WAIT_UNTIL(cupti_fake->n_flushes() >= 2);
	/* It is tried once at the opening, and on from the first look, or the sampler's, on. */
	if (strcmp(mode, "graph") != 0 && !strstr(mode, "=3600"))
		WAIT_UNTIL(cupti_fake->n_enabled(MTC_CUPTI_CONCURRENT_KERNEL) >= 2);
	return gpu;
}

sqlite3 *cupti_lane_finish(struct gpu *gpu)
{
	return cupti_toy_finish(&gpu->toy);
}

void cupti_put_kernel(const char *name, uint64_t start_ns, uint64_t length_ns, uint32_t correlation,
		      uint64_t node)
{
	const struct fake_cupti_record record = {
		.kind = MTC_CUPTI_CONCURRENT_KERNEL,
		.name = name,
		.start_ns = start_ns,
		.end_ns = start_ns ? start_ns + length_ns : 0,
		.correlation = correlation,
		.graph = node ? GRAPH : 0,
		.node = node,
	};

	cupti_fake->put(&record);
}

void cupti_launch_kernel(struct gpu *gpu, const char *name)
{
	uint32_t correlation = cupti_next_correlation();

	cupti_fake->launch(0, gpu->stream, correlation);
	cupti_put_kernel(name, fakes_realtime_ns(), 1, correlation, 0);
}

void cupti_pass_begin(struct gpu *gpu)
{
	struct moetrace_slice slice;
	const struct moetrace_pass_info info =
		gpu_info(gpu, &slice, MOETRACE_NO_REQUEST, 0, CUPTI_ROWS, 0);

	ck_assert_int_eq(moetrace_cuda_pass_begin(gpu->lane, &info), MOETRACE_OK);
}

void cupti_pass_end(struct gpu *gpu)
{
	for (uint32_t i = 0; i < CUPTI_LAYERS; i++)
		gpu_route(gpu, gpu->lane, gpu->stream, i, CUPTI_ROWS, CUPTI_ROWS);
	ck_assert_int_eq(moetrace_cuda_pass_end(gpu->lane), MOETRACE_OK);
}

struct moetrace_pass *cupti_host_begin(const struct gpu *gpu, uint64_t name, uint64_t parent)
{
	struct moetrace_pass_info info;
	struct moetrace_pass *pass;

	MOETRACE_INIT(&info);
	info.model = gpu->toy.model;
	info.phase = MOETRACE_PHASE_DECODE;
	info.runtime_pass = &name;
	info.parent = parent;
	pass = moetrace_pass_begin(gpu->toy.session, &info);
	ck_assert_ptr_nonnull(pass);
	return pass;
}
