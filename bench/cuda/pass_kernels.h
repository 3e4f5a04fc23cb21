/* SPDX-License-Identifier: MIT */
/*
 * The kernels of bench_pass: a graph that notes on the GPU when it began and when it ended, and what
 * a pass's end could be done by in place of operations of the driver. All launch and return.
 */
#ifndef MTK_BENCH_PASS_KERNELS_H
#define MTK_BENCH_PASS_KERNELS_H

#include <stddef.h>
#include <stdint.h>

#include "kernels/engine/error.h"

#ifdef __cplusplus
extern "C" {
#endif

#define PASS_MAX_STAMPS 1024

/* Device memory: the GPU's timer at the begin and the end of each graph since the last clearing. */
struct pass_stamps {
	uint64_t n;
	uint64_t ns[PASS_MAX_STAMPS][2];
};

/* What a kernel copies, and the words it writes behind that; an address of 0: none. */
struct pass_ship {
	uint64_t to;
	uint64_t from;
	uint64_t n_bytes; /* of 16 */
	uint64_t word;
	uint64_t word_value;
	uint64_t done; /* host memory */
	uint64_t done_value;
};

/* Copies, then makes what was copied visible to the host, then writes the words. */
int pass_launch_ship(const struct pass_ship *ship, void *stream, struct mtk_error *error);

/*
 * A graph of n_kernels that take about a microsecond each, between one that stamps its begin and one that
 * stamps its end. With an address in @fetch_from the first kernel of all copies 8 bytes from there.
 */
int pass_graph_make(struct pass_stamps *stamps, uint32_t n_kernels, uint64_t fetch_from,
		    uint64_t fetch_to, void *stream, struct mtk_error *error, void **ret_graph);

#ifdef __cplusplus
}
#endif

#endif
