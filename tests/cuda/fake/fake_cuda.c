/* SPDX-License-Identifier: MIT */
/*
 * The fake driver itself: its state, devices and contexts, kernels of the recorder's own, and how tests
 * steer it. Each call is counted, and can be made to fail. Streams are in fake_stream.c, memory in
 * fake_memory.c.
 */
#include "tests/cuda/fake/fake_cuda.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tests/cuda/fake/fake_internal.h"
#include "tests/cuda/support/device.h"

#define OFFSET_NS	    UINT64_C(1000000000000000)
#define MAX_FUNCTIONS	    64
#define MAX_PARAMETER_BYTES 4096

pthread_mutex_t fake_lock = PTHREAD_MUTEX_INITIALIZER;
pthread_cond_t fake_changed = PTHREAD_COND_INITIALIZER;
bool fake_is_held;
uint32_t fake_delay_us;
uint64_t fake_n_allocated_bytes;

static bool has_context = true;
static uint32_t n_capturing;
static struct {
	const char *symbol;
	uint64_t n_calls;
} functions[MAX_FUNCTIONS];
static char bad_symbol[64];
static uint32_t n_good_left;
static int bad_error;
static char slow_symbol[64];
static uint32_t n_stalled;
int fake_contexts[FAKE_N_DEVICES];
static _Thread_local int *pushed;
static _Thread_local int capture_mode;

uint64_t fake_timer_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec + OFFSET_NS;
}

static int is_slow(const char *symbol)
{
	return slow_symbol[0] && strncmp(symbol, slow_symbol, strlen(slow_symbol)) == 0;
}

/* Count a call; what it is to answer. */
int fake_called(const char *symbol)
{
	int result = 0;
	int i = 0;

	pthread_mutex_lock(&fake_lock);
	if (fake_is_destroyed)
		result = MT_CU_CONTEXT_IS_DESTROYED;
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
	if (is_slow(symbol)) {
		n_stalled++;
		pthread_cond_broadcast(&fake_changed);
	}
	while (is_slow(symbol))
		pthread_cond_wait(&fake_changed, &fake_lock);
	pthread_mutex_unlock(&fake_lock);
	return result;
}

int fake_is_forbidden(void)
{
	int result;

	pthread_mutex_lock(&fake_lock);
	result = n_capturing && capture_mode != MT_CU_CAPTURE_RELAXED ? 900 : 0;
	pthread_mutex_unlock(&fake_lock);
	return result;
}

/* ---- the driver's functions ---- */

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
	return ordinal >= 0 && ordinal < FAKE_N_DEVICES ? 0 : 101;
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
	CALLED("cuDeviceGetUuid");
	for (int i = 0; i < 16; i++)
		uuid[i] = (uint8_t)(i * 17);
	uuid[15] -= (uint8_t)device;
	return 0;
}

API int cuCtxGetCurrent(void **context);
API int cuCtxGetCurrent(void **context)
{
	CALLED("cuCtxGetCurrent");
	*context = has_context ? &fake_contexts[0] : NULL;
	return 0;
}

API int cuCtxGetDevice(int *device);
API int cuCtxGetDevice(int *device)
{
	*device = pushed == &fake_contexts[1];
	return 0;
}

API int cuCtxPushCurrent_v2(void *context);
API int cuCtxPushCurrent_v2(void *context)
{
	CALLED("cuCtxPushCurrent");
	if (context != &fake_contexts[0] && context != &fake_contexts[1])
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

API int cuThreadExchangeStreamCaptureMode(int *mode);
API int cuThreadExchangeStreamCaptureMode(int *mode)
{
	const int before = capture_mode;

	CALLED("cuThreadExchangeStreamCaptureMode");
	capture_mode = *mode;
	*mode = before;
	return 0;
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
	out[0] = fake_timer_ns();
}

static void run_store(void *argument)
{
	device_store(argument, fake_timer_ns());
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
	static const char *const names[] = {"mt_write", "mt_timer", "mt_store", "mt_store_one"};

	CALLED("cuModuleGetFunction");
	for (uintptr_t i = 0; i < 4; i++) {
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
	static void (*const runs[])(void *) = {run_write, run_timer, run_store, run_store};
	uintptr_t which = (uintptr_t)function - 1;
	struct work *work;

	CALLED("cuLaunchKernel");
	if (which > 3 || grid_z != 1 || block_y != 1 || block_z != 1 || shared_bytes || extra ||
	    !grid_x || !grid_y || !block_x)
		return 1;
	work = fake_work_new(KIND_CALL, MAX_PARAMETER_BYTES);
	work->run = runs[which];
	if (which == 0) {
		memcpy(work->argument, parameters[0], 8);
		memcpy(work->argument + 8, parameters[1], 8);
	} else if (which == 1) {
		memcpy(work->argument, parameters[0], 8);
	} else {
		device_store_args(parameters[0], grid_x, grid_y, block_x, work->argument);
	}
	return fake_push(stream, work);
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
	struct work *work = fake_work_new(KIND_CALL, size);

	work->run = run;
	if (size)
		memcpy(work->argument, argument, size);
	fake_push(stream, work);
}

static void *stream_new(void)
{
	return fake_stream_create();
}

static void stream_wait(void *stream)
{
	fake_wait_for(fake_stream_of(stream));
}

static void fail(const char *symbol, uint32_t n_good, int error)
{
	pthread_mutex_lock(&fake_lock);
	strncpy(bad_symbol, symbol, sizeof(bad_symbol) - 1);
	n_good_left = n_good;
	bad_error = error;
	pthread_mutex_unlock(&fake_lock);
}

static void heal(void)
{
	pthread_mutex_lock(&fake_lock);
	bad_symbol[0] = '\0';
	pthread_mutex_unlock(&fake_lock);
}

/* Until another stall, "" for none. */
static void stall(const char *symbol)
{
	pthread_mutex_lock(&fake_lock);
	memset(slow_symbol, 0, sizeof(slow_symbol));
	strncpy(slow_symbol, symbol, sizeof(slow_symbol) - 1);
	n_stalled = 0;
	pthread_cond_broadcast(&fake_changed);
	pthread_mutex_unlock(&fake_lock);
}

static void wait_for_stalled(void)
{
	pthread_mutex_lock(&fake_lock);
	while (!n_stalled)
		pthread_cond_wait(&fake_changed, &fake_lock);
	pthread_mutex_unlock(&fake_lock);
}

static void set_delay(uint32_t us)
{
	pthread_mutex_lock(&fake_lock);
	fake_delay_us = us;
	pthread_mutex_unlock(&fake_lock);
}

static void hold(bool held)
{
	pthread_mutex_lock(&fake_lock);
	fake_is_held = held;
	pthread_cond_broadcast(&fake_changed);
	pthread_mutex_unlock(&fake_lock);
}

static void hold_one(void *stream, bool held)
{
	pthread_mutex_lock(&fake_lock);
	((struct stream *)stream)->is_held = held;
	pthread_cond_broadcast(&fake_changed);
	pthread_mutex_unlock(&fake_lock);
}

static void capture(void *stream, bool is_capturing)
{
	fake_stream_of(stream)->is_capturing = is_capturing;
	pthread_mutex_lock(&fake_lock);
	n_capturing += is_capturing ? 1 : -1u;
	pthread_mutex_unlock(&fake_lock);
}

static void make_current(bool is_current)
{
	has_context = is_current;
}

static uint64_t n_calls(const char *symbol)
{
	uint64_t n = 0;

	pthread_mutex_lock(&fake_lock);
	for (int i = 0; i < MAX_FUNCTIONS && functions[i].symbol; i++)
		if (strncmp(functions[i].symbol, symbol, strlen(symbol)) == 0)
			n += functions[i].n_calls;
	pthread_mutex_unlock(&fake_lock);
	return n;
}

static uint64_t allocated_bytes(void)
{
	uint64_t n_bytes;

	pthread_mutex_lock(&fake_lock);
	n_bytes = fake_n_allocated_bytes;
	pthread_mutex_unlock(&fake_lock);
	return n_bytes;
}

API const struct fake_api *fake_api(void)
{
	static const struct fake_api api = {launch,	  stream_new, stream_wait, fail,
					    heal,	  stall,      wait_for_stalled,
					    set_delay,	  hold,	      hold_one,
					    capture,	  make_current, n_calls,   fake_timer_ns,
					    allocated_bytes, fake_destroy_contexts,
					    fake_stream_of_device, fake_n_retained};

	return &api;
}
