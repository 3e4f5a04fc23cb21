/* SPDX-License-Identifier: MIT */
/*
 * The toy runtime on the fake GPU: router kernels that store what toy_expert() and toy_weight()
 * say, so that a file recorded through the device can be held against one that was recorded from
 * host memory.
 */
#ifndef TEST_GPU_TOY_H
#define TEST_GPU_TOY_H

#include <sqlite3.h>

#include <moetrace/cuda.h>

#include "tests/cuda/fake/fake_cuda.h"
#include "tests/unit/support/toy.h"

/* Load the libcuda.so.1 of a folder of tests/cuda in the build, before the recorder looks for one. */
void *gpu_load_driver(const char *folder);

/* Load the fake driver; ends the test case where it is not there. */
const struct fake_api *gpu_load(void);

/* A toy that records, with a device and a lane in a stream of its own. */
struct gpu {
	const struct fake_api *fake;
	struct toy toy;
	struct moetrace_cuda *cuda;
	struct moetrace_cuda_lane *lane;
	void *stream;
	uint32_t flags; /* that router kernels store with each row */
	bool has_margins;
	float (*margin)(uint32_t layer, uint32_t row); /* that router kernels store; NULL: none */
};

/* A ring as large as that of who asks for none. */
#define GPU_USUAL_RING UINT64_MAX

/*
 * With a ring of so many bytes (0: a small one). Passes in flight are waited for as long as a test
 * may take.
 */
struct gpu gpu_start(const char *name, uint32_t n_layers, uint32_t n_experts, uint32_t top_k,
		     uint64_t ring_bytes);

/* For tests of passes that do not come: they are given up soon. */
struct gpu gpu_start_hasty(const char *name, uint32_t n_layers, uint32_t n_experts, uint32_t top_k);

/* With these options, and nothing recorded yet; @ring_bytes 0: a small one. */
struct gpu gpu_open_idle(const char *name, const struct moetrace_session_opts *opts,
			 uint32_t n_layers, uint32_t n_experts, uint32_t top_k, uint64_t ring_bytes);

/* A further lane in a new stream, with margins if gpu->has_margins. */
struct moetrace_cuda_lane *gpu_lane(struct gpu *gpu, void **ret_stream);

/* The same toy with a lane on the second device, and a ring of 1 MiB there. */
struct gpu gpu_second_device(const struct gpu *gpu);

/* Describe a pass of one slice of @request, which begins at @first_position. */
struct moetrace_pass_info gpu_info(const struct gpu *gpu, struct moetrace_slice *slice,
				   uint64_t request, uint32_t first_position, uint32_t n_rows,
				   uint32_t padding_rows);

/* Launch the router of a layer, for rows [0, n_rows) of passes with @n_all rows. */
void gpu_route(struct gpu *gpu, struct moetrace_cuda_lane *lane, void *stream, uint32_t layer,
	       uint32_t n_rows, uint32_t n_all);

/* Begin, all layers, end; the status of begin. */
int gpu_pass(struct gpu *gpu, uint64_t request, uint32_t first_position, uint32_t n_rows,
	     uint32_t padding_rows);

struct moetrace_cuda_status gpu_status(const struct gpu *gpu);

/* All ids, then all weights of a file, in order of storage, as hexadecimal; to be freed. */
char *gpu_stored(sqlite3 *db);

#endif
