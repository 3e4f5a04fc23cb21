/* SPDX-License-Identifier: MIT */
/*
 * A model's skeleton on a real GPU, for the test of the capture and its benchmark: a CUDA graph in
 * which each layer is four small kernels and a router, one warp a row, top-8 of 256 experts. Every
 * replay routes other scores. The router writes ids and weights to buffers of its own in any
 * case; compiled with capture it also stores them for the recorder.
 *
 * Errors of CUDA end the program with a message: there is nothing to test then.
 */
#ifndef TEST_CUDA_GRAPH_H
#define TEST_CUDA_GRAPH_H

#include <stddef.h>
#include <stdint.h>

#include <moetrace/cuda.h>

#ifdef __cplusplus
extern "C" {
#endif

#define GRAPH_EXPERTS 256
#define GRAPH_TOP_K   8

struct graph;
struct graph_buffers; /* what the kernels of one stream work on */

/* 0: there is a GPU, whose context is current now; else why not, in @ret_reason. */
int graph_open(char *ret_reason, size_t reason_bytes);

/* How many GPUs there are, and which one the calls that follow are for. */
uint32_t graph_n_devices(void);
void graph_use(uint32_t ordinal);

void *graph_stream_new(void);
void graph_stream_wait(void *stream);
/* Take the device's memory but for @left_bytes; give it back. */
void graph_memory_take(size_t left_bytes);
void graph_memory_give(void);
/* Destroy the device's context, and all that is in it. */
void graph_reset(void);
/* Begin a capture that is thrown away by _end(). */
void graph_capture_begin(void *stream);
void graph_capture_end(void *stream);

/* Room for @n_kept replays' outputs. */
struct graph_buffers *graph_buffers_new(uint32_t n_layers, uint32_t n_rows, uint32_t n_kept);
/*
 * A router in place of the skeleton's own, which launches into @stream, with @target NULL without
 * capture; scores are logits then, a sum of two uniform numbers about 0, and @bias adds to what
 * is chosen by.
 */
typedef void (*graph_router_fn)(void *stream, const float *logits, const float *bias, int32_t *ids,
				float *weights, uint32_t n_rows,
				const struct moetrace_cuda_target *target);
void graph_use_router(struct graph_buffers *buffers, graph_router_fn router);
/* Addresses of the outputs, [n_layers][n_rows][8] int32 and fp32. */
uint64_t graph_ids(struct graph_buffers *buffers);
uint64_t graph_weights(struct graph_buffers *buffers);

/*
 * Layers [first, end), captured in @stream. @targets [n_layers]; NULL: the router is compiled
 * without capture. @extra runs at the end of the capture; NULL: nothing does.
 */
struct graph *graph_new(struct graph_buffers *buffers, void *stream, uint32_t first, uint32_t end,
			const struct moetrace_cuda_target *targets, void (*extra)(void *context),
			void *context);
void graph_launch(struct graph *graph, void *stream);

/* The same layers, launched kernel by kernel. */
void graph_eager(struct graph_buffers *buffers, void *stream, uint32_t first, uint32_t end,
		 const struct moetrace_cuda_target *targets);
/* Launch what copies all ids into @ids, [n_rows][n_layers][8], as runtimes keep them. */
void graph_spread(struct graph_buffers *buffers, void *stream, uint64_t ids);
/* Device memory that is never freed, cleared. */
uint64_t graph_memory_new(size_t n_bytes);

/* Keep the outputs as number @i, in stream order; read what was kept. */
void graph_keep(struct graph_buffers *buffers, uint32_t i, void *stream);
void graph_kept(struct graph_buffers *buffers, uint32_t i, int32_t *ret_ids, float *ret_weights);

/* Microseconds a replay of @n replays back to back; @around is called with 0 before each and with 1
   after it. NULL: nothing is. */
double graph_time_us(struct graph *graph, void *stream, uint32_t n,
		     void (*around)(void *context, int is_after), void *context);

#ifdef __cplusplus
}
#endif

#endif
