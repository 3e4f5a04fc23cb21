/* SPDX-License-Identifier: MIT */
/*
 * The driver's functions, as far as the recorder uses them. Each call is counted, and can be
 * made to fail. A stream does one piece of work after the other: in between it can be held or
 * delayed. All streams share one lock; work itself runs without it.
 */
#include "tests/cuda/fake/fake_cuda.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "libtrace/cuda/driver.h"
#include "tests/cuda/support/device.h"

#define API		    __attribute__((visibility("default")))
#define OFFSET_NS	    UINT64_C(1000000000000000)
#define MAX_FUNCTIONS	    64
#define MAX_PARAMETER_BYTES 4096

enum kind {
	KIND_CALL,
	KIND_COPY,
	KIND_COPY_2D,
	KIND_SET,
	KIND_WRITE,
	KIND_WAIT_VALUE,
	KIND_RECORD,
	KIND_WAIT_EVENT,
};

struct event {
	uint64_t n_recorded; /* calls of cuEventRecord */
	uint64_t n_reached;
};

struct work {
	struct work *next;
	enum kind kind;
	uint64_t to, from, value;
	size_t n_bytes;
	struct mt_cu_copy_2d copy;
	struct event *event;
	void (*run)(void *argument);
	_Alignas(16) uint8_t argument[];
};

struct stream {
	pthread_t thread;
	struct work *first, **last;
	bool is_working, is_closing, is_capturing, is_held;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* protects everything below */
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static struct stream *default_stream;
static bool is_held, has_context = true;
static uint32_t n_capturing;
static uint32_t delay_us;
static uint64_t n_allocated_bytes;
static struct {
	const char *symbol;
	uint64_t n_calls;
} functions[MAX_FUNCTIONS];
static char bad_symbol[64];
static uint32_t n_good_left;
static int bad_error;
#define N_DEVICES 2
static int contexts[N_DEVICES]; /* a primary context each; that of the first is current */
static _Thread_local int *pushed;
static _Thread_local int capture_mode;

static uint64_t timer_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec + OFFSET_NS;
}

/* Count a call; what it is to answer. */
static int called(const char *symbol)
{
	int result = 0;
	int i = 0;

	pthread_mutex_lock(&lock);
	while (i < MAX_FUNCTIONS - 1 && functions[i].symbol && functions[i].symbol != symbol)
		i++;
	functions[i].symbol = symbol;
	functions[i].n_calls++;
	if (bad_symbol[0] && strncmp(symbol, bad_symbol, strlen(bad_symbol)) == 0) {
		if (n_good_left)
			n_good_left--;
		else
			result = bad_error;
	}
	pthread_mutex_unlock(&lock);
	return result;
}

static bool must_wait(const struct work *work)
{
	if (work->kind == KIND_WAIT_VALUE)
		return (int64_t)(__atomic_load_n((uint64_t *)(uintptr_t)work->to,
						 __ATOMIC_ACQUIRE) -
				 work->value) < 0;
	return work->kind == KIND_WAIT_EVENT && work->event->n_reached < work->value;
}

static void do_copy_2d(const struct mt_cu_copy_2d *copy)
{
	for (size_t i = 0; i < copy->height; i++)
		memcpy((uint8_t *)(uintptr_t)copy->to.device + i * copy->to.pitch,
		       (uint8_t *)(uintptr_t)copy->from.device + i * copy->from.pitch,
		       copy->width_bytes);
}

static void do_work(struct work *work)
{
	void *to = (void *)(uintptr_t)work->to;

	switch (work->kind) {
	case KIND_CALL:
		work->run(work->argument);
		break;
	case KIND_COPY:
		memcpy(to, (void *)(uintptr_t)work->from, work->n_bytes);
		break;
	case KIND_COPY_2D:
		do_copy_2d(&work->copy);
		break;
	case KIND_SET:
		memset(to, (int)work->value, work->n_bytes);
		break;
	case KIND_WRITE:
		__atomic_store_n((uint64_t *)to, work->value, __ATOMIC_RELEASE);
		break;
	default:
		break;
	}
}

static void *stream_main(void *argument)
{
	struct stream *stream = argument;

	pthread_mutex_lock(&lock);
	while (!stream->is_closing || stream->first) {
		struct work *work = stream->first;
		struct timespec pause = {0, (long)delay_us * 1000};

		if (!work || is_held || stream->is_held || must_wait(work)) {
			pthread_cond_wait(&changed, &lock);
			continue;
		}
		stream->first = work->next;
		if (!stream->first)
			stream->last = &stream->first;
		stream->is_working = true;
		pthread_mutex_unlock(&lock);
		if (pause.tv_nsec)
			nanosleep(&pause, NULL);
		do_work(work);
		pthread_mutex_lock(&lock);
		stream->is_working = false;
		if (work->kind == KIND_RECORD && work->event->n_reached < work->value)
			work->event->n_reached = work->value;
		free(work);
		pthread_cond_broadcast(&changed);
	}
	pthread_mutex_unlock(&lock);
	return NULL;
}

static struct stream *stream_create(void)
{
	struct stream *stream = calloc(1, sizeof(*stream));

	if (!stream)
		abort();
	stream->last = &stream->first;
	if (pthread_create(&stream->thread, NULL, stream_main, stream))
		abort();
	return stream;
}

static struct stream *stream_of(void *handle)
{
	if (handle)
		return handle;
	pthread_mutex_lock(&lock);
	if (!default_stream)
		default_stream = stream_create();
	pthread_mutex_unlock(&lock);
	return default_stream;
}

static struct work *work_new(enum kind kind, uint32_t size)
{
	struct work *work = calloc(1, sizeof(*work) + size + 16);

	if (!work)
		abort();
	work->kind = kind;
	return work;
}

static int push(void *handle, struct work *work)
{
	struct stream *stream = stream_of(handle);

	pthread_mutex_lock(&lock);
	*stream->last = work;
	stream->last = &work->next;
	pthread_cond_broadcast(&changed);
	pthread_mutex_unlock(&lock);
	return 0;
}

static void wait_for(struct stream *stream)
{
	pthread_mutex_lock(&lock);
	while (stream->first || stream->is_working)
		pthread_cond_wait(&changed, &lock);
	pthread_mutex_unlock(&lock);
}

/* ---- the driver's functions ---- */

#define CALLED(symbol)                       \
	do {                                 \
		int answer = called(symbol); \
		if (answer)                  \
			return answer;       \
	} while (0)

API int cuInit(unsigned int flags);
API int cuInit(unsigned int flags)
{
	(void)flags;
	CALLED("cuInit");
	return 0;
}

API int cuDriverGetVersion(int *version);
API int cuDriverGetVersion(int *version)
{
	*version = 13000;
	return 0;
}

API int cuDeviceGet(int *device, int ordinal);
API int cuDeviceGet(int *device, int ordinal)
{
	*device = ordinal;
	return ordinal >= 0 && ordinal < N_DEVICES ? 0 : 101;
}

API int cuDeviceGetName(char *name, int n_bytes, int device);
API int cuDeviceGetName(char *name, int n_bytes, int device)
{
	(void)device;
	strncpy(name, "Fake GPU", (size_t)n_bytes);
	return 0;
}

API int cuDeviceGetUuid_v2(uint8_t *uuid, int device);
API int cuDeviceGetUuid_v2(uint8_t *uuid, int device)
{
	for (int i = 0; i < 16; i++)
		uuid[i] = (uint8_t)(i * 17);
	uuid[15] -= (uint8_t)device;
	return 0;
}

API int cuCtxGetCurrent(void **context);
API int cuCtxGetCurrent(void **context)
{
	CALLED("cuCtxGetCurrent");
	*context = has_context ? &contexts[0] : NULL;
	return 0;
}

API int cuCtxGetDevice(int *device);
API int cuCtxGetDevice(int *device)
{
	*device = 0;
	return 0;
}

API int cuCtxPushCurrent_v2(void *context);
API int cuCtxPushCurrent_v2(void *context)
{
	CALLED("cuCtxPushCurrent");
	if (context != &contexts[0] && context != &contexts[1])
		return 201;
	pushed = context;
	return 0;
}

API int cuCtxPopCurrent_v2(void **context);
API int cuCtxPopCurrent_v2(void **context)
{
	*context = pushed;
	pushed = NULL;
	return 0;
}

API int cuDevicePrimaryCtxRetain(void **context, int device);
API int cuDevicePrimaryCtxRetain(void **context, int device)
{
	CALLED("cuDevicePrimaryCtxRetain");
	*context = &contexts[device];
	return 0;
}

/*
 * In front of what is handed out, which is aligned to 256 bytes like device memory. All of it is on
 * a list: what a program leaves to the driver is no leak of the process.
 */
struct block {
	struct block *next, **link;
	size_t n_bytes;
	bool is_event;
};

static struct block *blocks;

static void *memory_new(size_t n_bytes, bool is_event)
{
	struct block *block = NULL;

	if (posix_memalign((void **)&block, 256, n_bytes + 256))
		return NULL;
	block->n_bytes = n_bytes;
	block->is_event = is_event;
	pthread_mutex_lock(&lock);
	block->next = blocks;
	block->link = &blocks;
	if (blocks)
		blocks->link = &block->next;
	blocks = block;
	n_allocated_bytes += is_event ? 0 : n_bytes;
	pthread_mutex_unlock(&lock);
	return (uint8_t *)block + 256;
}

static void memory_free(void *memory)
{
	struct block *block = (struct block *)(void *)((uint8_t *)memory - 256);

	pthread_mutex_lock(&lock);
	*block->link = block->next;
	if (block->next)
		block->next->link = block->link;
	n_allocated_bytes -= block->is_event ? 0 : block->n_bytes;
	pthread_mutex_unlock(&lock);
	free(block);
}

/* What ends the capture of any stream, unless the calling thread is relaxed about it. */
static int is_forbidden(void)
{
	int result;

	pthread_mutex_lock(&lock);
	result = n_capturing && capture_mode != MT_CU_CAPTURE_RELAXED ? 900 : 0;
	pthread_mutex_unlock(&lock);
	return result;
}

API int cuThreadExchangeStreamCaptureMode(int *mode);
API int cuThreadExchangeStreamCaptureMode(int *mode)
{
	const int before = capture_mode;

	CALLED("cuThreadExchangeStreamCaptureMode");
	capture_mode = *mode;
	*mode = before;
	return 0;
}

API int cuMemAlloc_v2(uint64_t *address, size_t n_bytes);
API int cuMemAlloc_v2(uint64_t *address, size_t n_bytes)
{
	void *memory;

	CALLED("cuMemAlloc");
	if (is_forbidden())
		return 900;
	memory = memory_new(n_bytes, false);
	*address = (uint64_t)(uintptr_t)memory;
	return memory ? 0 : 2;
}

API int cuMemFree_v2(uint64_t address);
API int cuMemFree_v2(uint64_t address)
{
	CALLED("cuMemFree");
	memory_free((void *)(uintptr_t)address);
	return 0;
}

API int cuMemHostAlloc(void **memory, size_t n_bytes, unsigned int flags);
API int cuMemHostAlloc(void **memory, size_t n_bytes, unsigned int flags)
{
	(void)flags;
	CALLED("cuMemHostAlloc");
	if (is_forbidden())
		return 900;
	*memory = memory_new(n_bytes, false);
	return *memory ? 0 : 2;
}

API int cuMemFreeHost(void *memory);
API int cuMemFreeHost(void *memory)
{
	CALLED("cuMemFreeHost");
	memory_free(memory);
	return 0;
}

API int cuMemsetD8Async(uint64_t address, unsigned char value, size_t n_bytes, void *stream);
API int cuMemsetD8Async(uint64_t address, unsigned char value, size_t n_bytes, void *stream)
{
	struct work *work;

	CALLED("cuMemsetD8Async");
	work = work_new(KIND_SET, 0);
	work->to = address;
	work->value = value;
	work->n_bytes = n_bytes;
	return push(stream, work);
}

static int copy(uint64_t to, uint64_t from, size_t n_bytes, void *stream)
{
	struct work *work = work_new(KIND_COPY, 0);

	work->to = to;
	work->from = from;
	work->n_bytes = n_bytes;
	return push(stream, work);
}

API int cuMemcpyDtoHAsync_v2(void *to, uint64_t from, size_t n_bytes, void *stream);
API int cuMemcpyDtoHAsync_v2(void *to, uint64_t from, size_t n_bytes, void *stream)
{
	CALLED("cuMemcpyDtoHAsync");
	return copy((uint64_t)(uintptr_t)to, from, n_bytes, stream);
}

API int cuMemcpyDtoDAsync_v2(uint64_t to, uint64_t from, size_t n_bytes, void *stream);
API int cuMemcpyDtoDAsync_v2(uint64_t to, uint64_t from, size_t n_bytes, void *stream)
{
	CALLED("cuMemcpyDtoDAsync");
	return copy(to, from, n_bytes, stream);
}

API int cuMemcpy2DAsync_v2(const struct mt_cu_copy_2d *given, void *stream);
API int cuMemcpy2DAsync_v2(const struct mt_cu_copy_2d *given, void *stream)
{
	struct work *work;

	CALLED("cuMemcpy2DAsync");
	work = work_new(KIND_COPY_2D, 0);
	work->copy = *given;
	return push(stream, work);
}

API int cuStreamCreate(void **stream, unsigned int flags);
API int cuStreamCreate(void **stream, unsigned int flags)
{
	(void)flags;
	CALLED("cuStreamCreate");
	*stream = stream_create();
	return 0;
}

API int cuStreamDestroy_v2(void *handle);
API int cuStreamDestroy_v2(void *handle)
{
	struct stream *stream = handle;

	CALLED("cuStreamDestroy");
	pthread_mutex_lock(&lock);
	stream->is_closing = true;
	pthread_cond_broadcast(&changed);
	pthread_mutex_unlock(&lock);
	pthread_join(stream->thread, NULL);
	free(stream);
	return 0;
}

API int cuStreamSynchronize(void *stream);
API int cuStreamSynchronize(void *stream)
{
	CALLED("cuStreamSynchronize");
	wait_for(stream_of(stream));
	return 0;
}

API int cuStreamQuery(void *stream);
API int cuStreamQuery(void *stream)
{
	(void)stream;
	CALLED("cuStreamQuery");
	return is_forbidden() ? 900 : MT_CU_NOT_READY;
}

API int cuStreamIsCapturing(void *stream, int *state);
API int cuStreamIsCapturing(void *stream, int *state)
{
	CALLED("cuStreamIsCapturing");
	*state = stream_of(stream)->is_capturing;
	return 0;
}

API int cuEventCreate(void **event, unsigned int flags);
API int cuEventCreate(void **event, unsigned int flags)
{
	(void)flags;
	CALLED("cuEventCreate");
	*event = memory_new(sizeof(struct event), true);
	if (*event)
		memset(*event, 0, sizeof(struct event));
	return *event ? 0 : 2;
}

API int cuEventDestroy_v2(void *event);
API int cuEventDestroy_v2(void *event)
{
	CALLED("cuEventDestroy");
	memory_free(event);
	return 0;
}

API int cuEventRecord(void *event, void *stream);
API int cuEventRecord(void *event, void *stream)
{
	struct work *work;

	CALLED("cuEventRecord");
	work = work_new(KIND_RECORD, 0);
	work->event = event;
	pthread_mutex_lock(&lock);
	work->value = ++work->event->n_recorded;
	pthread_mutex_unlock(&lock);
	return push(stream, work);
}

API int cuStreamWaitEvent(void *stream, void *event, unsigned int flags);
API int cuStreamWaitEvent(void *stream, void *event, unsigned int flags)
{
	struct work *work;

	(void)flags;
	CALLED("cuStreamWaitEvent");
	work = work_new(KIND_WAIT_EVENT, 0);
	work->event = event;
	pthread_mutex_lock(&lock);
	work->value = work->event->n_recorded;
	pthread_mutex_unlock(&lock);
	return push(stream, work);
}

static int write_64(void *stream, uint64_t address, uint64_t value)
{
	struct work *work = work_new(KIND_WRITE, 0);

	work->to = address;
	work->value = value;
	return push(stream, work);
}

API int cuStreamWriteValue64_v2(void *stream, uint64_t address, uint64_t value, unsigned int flags);
API int cuStreamWriteValue64_v2(void *stream, uint64_t address, uint64_t value, unsigned int flags)
{
	(void)flags;
	CALLED("cuStreamWriteValue64");
	return write_64(stream, address, value);
}

API int cuStreamWaitValue64_v2(void *stream, uint64_t address, uint64_t value, unsigned int flags);
API int cuStreamWaitValue64_v2(void *stream, uint64_t address, uint64_t value, unsigned int flags)
{
	struct work *work;

	CALLED("cuStreamWaitValue64");
	if (flags != MT_CU_WAIT_GEQ)
		return 801;
	work = work_new(KIND_WAIT_VALUE, 0);
	work->to = address;
	work->value = value;
	return push(stream, work);
}

/* The recorder's own kernels, in C. */
static void run_write(void *argument)
{
	const uint64_t *parameters = argument;

	__atomic_store_n((uint64_t *)(uintptr_t)parameters[0], parameters[1], __ATOMIC_RELEASE);
}

static void run_timer(void *argument)
{
	volatile uint64_t *out = *(volatile uint64_t **)argument;

	out[1] = 32;
	out[0] = timer_ns();
}

static void run_store(void *argument)
{
	device_store(argument, timer_ns());
}

API int cuModuleLoadData(void **module, const void *image);
API int cuModuleLoadData(void **module, const void *image)
{
	CALLED("cuModuleLoadData");
	*module = (void *)(uintptr_t)image;
	return 0;
}

API int cuModuleUnload(void *module);
API int cuModuleUnload(void *module)
{
	(void)module;
	CALLED("cuModuleUnload");
	return 0;
}

API int cuModuleGetFunction(void **function, void *module, const char *name);
API int cuModuleGetFunction(void **function, void *module, const char *name)
{
	static const char *const names[] = {"mt_write", "mt_timer", "mt_store"};

	CALLED("cuModuleGetFunction");
	for (uintptr_t i = 0; i < 3; i++) {
		char entry[64] = ".visible .entry ";

		strcat(entry, names[i]);
		if (strcmp(name, names[i]) == 0 && strstr(module, entry)) {
			*function = (void *)(i + 1);
			return 0;
		}
	}
	return 500;
}

API int cuLaunchKernel(void *function, unsigned int grid_x, unsigned int grid_y,
		       unsigned int grid_z, unsigned int block_x, unsigned int block_y,
		       unsigned int block_z, unsigned int shared_bytes, void *stream,
		       void **parameters, void **extra);
API int cuLaunchKernel(void *function, unsigned int grid_x, unsigned int grid_y,
		       unsigned int grid_z, unsigned int block_x, unsigned int block_y,
		       unsigned int block_z, unsigned int shared_bytes, void *stream,
		       void **parameters, void **extra)
{
	static void (*const runs[])(void *) = {run_write, run_timer, run_store};
	uintptr_t which = (uintptr_t)function - 1;
	struct work *work;

	CALLED("cuLaunchKernel");
	if (which > 2 || grid_z != 1 || block_y != 1 || block_z != 1 || shared_bytes || extra ||
	    !grid_x || !grid_y || !block_x)
		return 1;
	work = work_new(KIND_CALL, MAX_PARAMETER_BYTES);
	work->run = runs[which];
	if (which == 0) {
		memcpy(work->argument, parameters[0], 8);
		memcpy(work->argument + 8, parameters[1], 8);
	} else if (which == 1) {
		memcpy(work->argument, parameters[0], 8);
	} else {
		device_store_args(parameters[0], grid_x, grid_y, block_x, work->argument);
	}
	return push(stream, work);
}

API int cuGetErrorName(int error, const char **name);
API int cuGetErrorName(int error, const char **name)
{
	*name = error == 999 ? "CUDA_ERROR_UNKNOWN" : NULL;
	return *name ? 0 : 1;
}

/* ---- steering ---- */

static void launch(void *stream, void (*run)(void *argument), const void *argument, uint32_t size)
{
	struct work *work = work_new(KIND_CALL, size);

	work->run = run;
	if (size)
		memcpy(work->argument, argument, size);
	push(stream, work);
}

static void *stream_new(void)
{
	return stream_create();
}

static void stream_wait(void *stream)
{
	wait_for(stream_of(stream));
}

static void fail(const char *symbol, uint32_t n_good, int error)
{
	pthread_mutex_lock(&lock);
	strncpy(bad_symbol, symbol, sizeof(bad_symbol) - 1);
	n_good_left = n_good;
	bad_error = error;
	pthread_mutex_unlock(&lock);
}

static void heal(void)
{
	pthread_mutex_lock(&lock);
	bad_symbol[0] = '\0';
	pthread_mutex_unlock(&lock);
}

static void set_delay(uint32_t us)
{
	pthread_mutex_lock(&lock);
	delay_us = us;
	pthread_mutex_unlock(&lock);
}

static void hold(bool held)
{
	pthread_mutex_lock(&lock);
	is_held = held;
	pthread_cond_broadcast(&changed);
	pthread_mutex_unlock(&lock);
}

static void hold_one(void *stream, bool held)
{
	pthread_mutex_lock(&lock);
	((struct stream *)stream)->is_held = held;
	pthread_cond_broadcast(&changed);
	pthread_mutex_unlock(&lock);
}

static void capture(void *stream, bool is_capturing)
{
	stream_of(stream)->is_capturing = is_capturing;
	pthread_mutex_lock(&lock);
	n_capturing += is_capturing ? 1 : -1u;
	pthread_mutex_unlock(&lock);
}

static void make_current(bool is_current)
{
	has_context = is_current;
}

static uint64_t n_calls(const char *symbol)
{
	uint64_t n = 0;

	pthread_mutex_lock(&lock);
	for (int i = 0; i < MAX_FUNCTIONS && functions[i].symbol; i++)
		if (strncmp(functions[i].symbol, symbol, strlen(symbol)) == 0)
			n += functions[i].n_calls;
	pthread_mutex_unlock(&lock);
	return n;
}

static uint64_t allocated_bytes(void)
{
	uint64_t n_bytes;

	pthread_mutex_lock(&lock);
	n_bytes = n_allocated_bytes;
	pthread_mutex_unlock(&lock);
	return n_bytes;
}

API const struct fake_api *fake_api(void)
{
	static const struct fake_api api = {launch,	  stream_new, stream_wait, fail,
					    heal,	  set_delay,  hold,	   hold_one,
					    capture,	  make_current, n_calls,   timer_ns,
					    allocated_bytes};

	return &api;
}
