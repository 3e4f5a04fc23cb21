/* SPDX-License-Identifier: MIT */
/*
 * The few functions of the CUDA driver that the capture needs, declared by us and found at run
 * time, so that neither headers nor libraries of CUDA are needed to build or to run. Handles of
 * the driver (contexts, streams, events, modules, functions) are void *, addresses uint64_t.
 * Facts about names, values and layouts are those of the driver's public interface.
 */
#ifndef MT_CUDA_DRIVER_H
#define MT_CUDA_DRIVER_H

#include <stddef.h>
#include <stdint.h>

#define MT_CU_OUT_OF_MEMORY	   2
#define MT_CU_DEINITIALIZED	   4
#define MT_CU_INVALID_CONTEXT	   201 /* none is current */
#define MT_CU_INVALID_HANDLE	   400
#define MT_CU_NOT_READY		   600
#define MT_CU_CONTEXT_IS_DESTROYED 709
#define MT_CU_CAPTURE_IMPLICIT 906 /* another stream is captured, and this is the default one */

#define MT_CU_STREAM_NON_BLOCKING 1u
#define MT_CU_EVENT_DISABLE_TIMING 2u
#define MT_CU_MEMHOSTALLOC_PORTABLE 1u
#define MT_CU_MEMHOSTREGISTER_PORTABLE 1u
#define MT_CU_POINTER_CONTEXT 1
#define MT_CU_WAIT_GEQ 0u
#define MT_CU_CAPTURE_RELAXED 2

/* CUDA_MEMCPY2D: one side of a copy of rows, and the copy. */
struct mt_cu_side {
	size_t x_bytes;
	size_t y;
	unsigned int memory_type; /* 1: host, 2: device */
	const void *host;
	uint64_t device;
	void *array;
	size_t pitch;
};
struct mt_cu_copy_2d {
	struct mt_cu_side from;
	struct mt_cu_side to;
	size_t width_bytes;
	size_t height;
};
_Static_assert(sizeof(struct mt_cu_copy_2d) == 128, "the driver's layout");
#define MT_CU_MEMORY_DEVICE 2u

/*
 * X(member, symbols, arguments): the symbols are tried in this order, the newest version of the
 * function first. All are needed.
 */
#define MT_CU_FUNCTIONS(X)                                                                     \
	X(init, "cuInit", (unsigned int flags))                                                \
	X(driver_version, "cuDriverGetVersion", (int *ret_version))                            \
	X(device_get, "cuDeviceGet", (int *ret_device, int ordinal))                           \
	X(device_name, "cuDeviceGetName", (char *ret_name, int n_bytes, int device))           \
	X(device_uuid, "cuDeviceGetUuid_v2 cuDeviceGetUuid", (uint8_t * ret_uuid, int device)) \
	X(ctx_get_current, "cuCtxGetCurrent", (void **ret_context))                            \
	X(ctx_get_device, "cuCtxGetDevice", (int *ret_device))                                 \
	X(ctx_push, "cuCtxPushCurrent_v2 cuCtxPushCurrent", (void *context))                   \
	X(ctx_pop, "cuCtxPopCurrent_v2 cuCtxPopCurrent", (void **ret_context))                 \
	X(primary_retain, "cuDevicePrimaryCtxRetain", (void **ret_context, int device))        \
	X(primary_release, "cuDevicePrimaryCtxRelease_v2 cuDevicePrimaryCtxRelease",           \
	  (int device))                                                                        \
	X(mem_alloc, "cuMemAlloc_v2", (uint64_t *ret_address, size_t n_bytes))                 \
	X(mem_free, "cuMemFree_v2", (uint64_t address))                                        \
	X(host_alloc, "cuMemHostAlloc", (void **ret_memory, size_t n_bytes, unsigned int flags)) \
	X(host_free, "cuMemFreeHost", (void *memory))                                          \
	X(host_register, "cuMemHostRegister_v2 cuMemHostRegister",                             \
	  (void *memory, size_t n_bytes, unsigned int flags))                                  \
	X(host_unregister, "cuMemHostUnregister", (void *memory))                              \
	X(host_address, "cuMemHostGetDevicePointer_v2",                                        \
	  (uint64_t * ret_address, void *memory, unsigned int flags))                          \
	X(pointer_get, "cuPointerGetAttribute",                                                \
	  (void *ret_value, int attribute, uint64_t address))                                  \
	X(memset_async, "cuMemsetD8Async",                                                     \
	  (uint64_t address, unsigned char value, size_t n_bytes, void *stream))               \
	X(copy_to_host, "cuMemcpyDtoHAsync_v2",                                                \
	  (void *to, uint64_t from, size_t n_bytes, void *stream))                             \
	X(copy_on_device, "cuMemcpyDtoDAsync_v2",                                              \
	  (uint64_t to, uint64_t from, size_t n_bytes, void *stream))                          \
	X(copy_2d, "cuMemcpy2DAsync_v2", (const struct mt_cu_copy_2d *copy, void *stream))     \
	X(stream_create, "cuStreamCreate", (void **ret_stream, unsigned int flags))            \
	X(stream_destroy, "cuStreamDestroy_v2", (void *stream))                                \
	X(stream_wait, "cuStreamSynchronize", (void *stream))                                  \
	X(stream_query, "cuStreamQuery", (void *stream))                                       \
	X(stream_context, "cuStreamGetCtx", (void *stream, void **ret_context))                \
	X(stream_is_capturing, "cuStreamIsCapturing", (void *stream, int *ret_state))          \
	X(capture_mode, "cuThreadExchangeStreamCaptureMode", (int *mode))                      \
	X(stream_wait_event, "cuStreamWaitEvent",                                              \
	  (void *stream, void *event, unsigned int flags))                                     \
	X(event_create, "cuEventCreate", (void **ret_event, unsigned int flags))               \
	X(event_record, "cuEventRecord", (void *event, void *stream))                          \
	X(event_destroy, "cuEventDestroy_v2", (void *event))                                   \
	X(write_value, "cuStreamWriteValue64_v2 cuStreamWriteValue64",                         \
	  (void *stream, uint64_t address, uint64_t value, unsigned int flags))                \
	X(wait_value, "cuStreamWaitValue64_v2 cuStreamWaitValue64",                            \
	  (void *stream, uint64_t address, uint64_t value, unsigned int flags))                \
	X(module_load, "cuModuleLoadData", (void **ret_module, const void *image))             \
	X(module_unload, "cuModuleUnload", (void *module))                                     \
	X(module_function, "cuModuleGetFunction",                                              \
	  (void **ret_function, void *module, const char *name))                               \
	X(launch, "cuLaunchKernel",                                                            \
	  (void *function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z,      \
	   unsigned int block_x, unsigned int block_y, unsigned int block_z,                   \
	   unsigned int shared_bytes, void *stream, void **parameters, void **extra))          \
	X(error_name, "cuGetErrorName", (int error, const char **ret_name))

struct mt_cu {
#define MT_CU_MEMBER(member, symbols, arguments) int(*member) arguments;
	MT_CU_FUNCTIONS(MT_CU_MEMBER)
#undef MT_CU_MEMBER
};

/*
 * Open the driver, once a process and for ever: its threads would not survive an unloading.
 * MOETRACE_OK, or MOETRACE_E_UNSUPPORTED with the reason in @ret_error.
 */
int mt_cu_open(const struct mt_cu **ret_cu, char *ret_error, size_t error_bytes);

/*
 * While some thread of the program captures a stream, calls that are not part of it are errors that
 * also end the capture, unless the calling thread says that it knows better: a thread of ours for
 * ever, the program's for a while. Returns what is to be restored.
 */
int mt_cu_capture_relaxed(const struct mt_cu *cu);
void mt_cu_capture_restore(const struct mt_cu *cu, int mode);

/* The driver's name of an error, "" where it has none. */
const char *mt_cu_name(const struct mt_cu *cu, int error);

#endif
