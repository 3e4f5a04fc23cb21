/* SPDX-License-Identifier: MIT */
/*
 * The GPU as the engine sees it: whether there is one, its memory, streams and graphs. No CUDA
 * type is named here: a stream and a graph are opaque pointers, and NULL is the default stream.
 * The CUDA runtime is linked into whoever links these functions; the driver is found when the
 * first of them is called. Where it is missing, too old or without a GPU, mtk_cuda_open() says so
 * and the CPU is to be used; nothing else fails because of it.
 *
 * Functions that take a struct mtk_error fill it exactly when they return a negative status.
 */
#ifndef MTK_CUDA_DEVICE_H
#define MTK_CUDA_DEVICE_H

#include <stddef.h>
#include <stdint.h>

#include "kernels/engine/error.h"

#ifdef __cplusplus
extern "C" {
#endif

struct mtk_cuda_device {
	char name[128];
	uint32_t major; /* compute capability */
	uint32_t minor;
	uint32_t n_multiprocessors;
	uint64_t memory_bytes;
	uint64_t l2_bytes;
	uint32_t runtime_version; /* 1000 * major + 10 * minor, of this build */
	uint32_t driver_version;  /* the newest runtime that the driver serves */
};

/*
 * Make a GPU current for the calling thread. MOETRACE_E_UNSUPPORTED: there is no driver, no GPU of
 * that number, or none that the code of this build runs on.
 */
int mtk_cuda_open(uint32_t number, struct mtk_error *error, struct mtk_cuda_device *ret_device);

/* Device memory, not initialised. MOETRACE_E_NOMEM where it does not fit. */
int mtk_cuda_alloc(size_t n_bytes, struct mtk_error *error, void **ret_memory);

/* NULL is allowed. Waits for the device. */
void mtk_cuda_free(void *memory);

/* Host memory that copies reach without a detour; freed by mtk_cuda_host_free(), NULL allowed. */
int mtk_cuda_host_alloc(size_t n_bytes, struct mtk_error *error, void **ret_memory);
void mtk_cuda_host_free(void *memory);

/* Copies between host and device and on it, and zeros; in stream order, without waiting. */
int mtk_cuda_upload(void *to_device, const void *from, size_t n_bytes, void *stream,
		    struct mtk_error *error);
int mtk_cuda_download(void *to, const void *from_device, size_t n_bytes, void *stream,
		      struct mtk_error *error);
int mtk_cuda_copy(void *to_device, const void *from_device, size_t n_bytes, void *stream,
		  struct mtk_error *error);
int mtk_cuda_zero(void *memory, size_t n_bytes, void *stream, struct mtk_error *error);

int mtk_cuda_stream_create(struct mtk_error *error, void **ret_stream);
void mtk_cuda_stream_destroy(void *stream);

/* Wait for all work of a stream; MOETRACE_E_IO where any of it failed. */
int mtk_cuda_stream_wait(void *stream, struct mtk_error *error);

/* What is launched into the stream between begin and end becomes a graph and does not run. */
int mtk_cuda_graph_begin(void *stream, struct mtk_error *error);
int mtk_cuda_graph_end(void *stream, struct mtk_error *error, void **ret_graph);
int mtk_cuda_graph_launch(void *graph, void *stream, struct mtk_error *error);
void mtk_cuda_graph_destroy(void *graph);

/* Times on a stream, for benchmarks: microseconds between two events that have passed. */
int mtk_cuda_event_create(struct mtk_error *error, void **ret_event);
void mtk_cuda_event_destroy(void *event);
int mtk_cuda_event_record(void *event, void *stream, struct mtk_error *error);
int mtk_cuda_event_elapsed_us(void *begin, void *end, struct mtk_error *error, double *ret_us);

/*
 * Order: an event without a time, cheaper to record; and what is launched into a stream from here on comes
 * behind what the event was last recorded behind (in a capture the stream becomes a part of it).
 */
int mtk_cuda_event_create_untimed(struct mtk_error *error, void **ret_event);
int mtk_cuda_stream_follow(void *stream, void *event, struct mtk_error *error);

#ifdef __cplusplus
}
#endif

#endif
