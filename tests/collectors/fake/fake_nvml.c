/* SPDX-License-Identifier: MIT */
/*
 * A management library for tests: two GPUs of 300 W whose figures change ten times a second, like
 * the real ones. FAKE_NVML in the environment names what is wrong with it, looked at in every call:
 * no_driver, no_permission, no_gpu, unsupported (no power, no energy), no_instant, slow (a look takes
 * 10 ms), hang (it never comes back), start_hangs (nor does the start), end_stalls (nor the end),
 * limit_falls (to 650 W after the first look), lost (the GPUs do not answer), absurd (9 GW, a link of 3 lanes). The first GPU
 * tells of its memory, the second one of the module around it. Built with FAKE_NVML_OLD it lacks what
 * old drivers lack.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "collectors/nvml/api.h"

/* The library's names are for everybody. */
#pragma GCC visibility push(default)

int nvmlInit_v2(void);
int nvmlShutdown(void);
const char *nvmlErrorString(int result);
int nvmlSystemGetDriverVersion(char *ret_text, uint32_t n_bytes);
int nvmlDeviceGetCount_v2(uint32_t *ret_n);
int nvmlDeviceGetHandleByIndex_v2(uint32_t index, struct mtc_nvml_gpu **ret_handle);
int nvmlDeviceGetUUID(struct mtc_nvml_gpu *gpu, char *ret_text, uint32_t n_bytes);
int nvmlDeviceGetPowerUsage(struct mtc_nvml_gpu *gpu, uint32_t *ret_mw);

#define GPU_IS_LOST 15

struct mtc_nvml_gpu {
	char uuid[48];
};

static struct mtc_nvml_gpu gpus[2] = { { "GPU-00000000-0000-0000-0000-000000000001" },
				       { "GPU-00000000-0000-0000-0000-000000000002" } };

static int is_wrong(const char *what)
{
	const char *list = getenv("FAKE_NVML");

	return list && strstr(list, what) != NULL;
}

int nvmlInit_v2(void)
{
	const struct timespec for_ever = { 1000000, 0 };

	while (is_wrong("start_hangs"))
		nanosleep(&for_ever, NULL);
	if (is_wrong("no_driver"))
		return MTC_NVML_NO_DRIVER;
	return is_wrong("no_permission") ? MTC_NVML_NO_PERMISSION : MTC_NVML_OK;
}

int nvmlShutdown(void)
{
	const struct timespec for_ever = { 1000000, 0 };

	while (is_wrong("end_stalls"))
		nanosleep(&for_ever, NULL);
	return MTC_NVML_OK;
}

const char *nvmlErrorString(int result)
{
	return result == MTC_NVML_NO_DRIVER ? "Driver Not Loaded" :
	       result == GPU_IS_LOST	    ? "GPU is lost" :
					      "Insufficient Permissions";
}

int nvmlSystemGetDriverVersion(char *ret_text, uint32_t n_bytes)
{
	snprintf(ret_text, n_bytes, "999.1");
	return MTC_NVML_OK;
}

int nvmlDeviceGetCount_v2(uint32_t *ret_n)
{
	*ret_n = is_wrong("no_gpu") ? 0 : 2;
	return MTC_NVML_OK;
}

int nvmlDeviceGetHandleByIndex_v2(uint32_t index, struct mtc_nvml_gpu **ret_handle)
{
	*ret_handle = &gpus[index % 2];
	return MTC_NVML_OK;
}

int nvmlDeviceGetUUID(struct mtc_nvml_gpu *gpu, char *ret_text, uint32_t n_bytes)
{
	snprintf(ret_text, n_bytes, "%s", gpu->uuid);
	return MTC_NVML_OK;
}

int nvmlDeviceGetPowerUsage(struct mtc_nvml_gpu *gpu, uint32_t *ret_mw)
{
	(void)gpu;
	if (is_wrong("lost"))
		return GPU_IS_LOST;
	if (is_wrong("unsupported"))
		return MTC_NVML_NOT_SUPPORTED;
	*ret_mw = 250000;
	return MTC_NVML_OK;
}

#ifndef FAKE_NVML_OLD

static uint64_t clock_ms(clockid_t clock)
{
	struct timespec now;

	clock_gettime(clock, &now);
	return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

/* Figures are refreshed ten times a second. */
static uint64_t tick(void)
{
	return clock_ms(CLOCK_MONOTONIC) / 100;
}

static void take_time(void)
{
	const struct timespec slow = { 0, 10 * 1000 * 1000 };
	const struct timespec for_ever = { 1000000, 0 };

	if (is_wrong("slow"))
		nanosleep(&slow, NULL);
	while (is_wrong("hang"))
		nanosleep(&for_ever, NULL);
}

int nvmlSystemGetNVMLVersion(char *ret_text, uint32_t n_bytes);
int nvmlDeviceGetName(struct mtc_nvml_gpu *gpu, char *ret_text, uint32_t n_bytes);
int nvmlDeviceGetFieldValues(struct mtc_nvml_gpu *gpu, int n, struct mtc_nvml_field *fields);
int nvmlDeviceGetEnforcedPowerLimit(struct mtc_nvml_gpu *gpu, uint32_t *ret_mw);
int nvmlDeviceGetCurrentClocksThrottleReasons(struct mtc_nvml_gpu *gpu, unsigned long long *ret_bits);
int nvmlDeviceGetClockInfo(struct mtc_nvml_gpu *gpu, uint32_t type, uint32_t *ret_mhz);
int nvmlDeviceGetTemperature(struct mtc_nvml_gpu *gpu, uint32_t sensor, uint32_t *ret_celsius);
int nvmlDeviceGetCurrPcieLinkGeneration(struct mtc_nvml_gpu *gpu, uint32_t *ret_generation);
int nvmlDeviceGetCurrPcieLinkWidth(struct mtc_nvml_gpu *gpu, uint32_t *ret_width);
int nvmlDeviceGetNvLinkState(struct mtc_nvml_gpu *gpu, uint32_t link, uint32_t *ret_is_active);
int nvmlDeviceGetSamples(struct mtc_nvml_gpu *gpu, uint32_t type, unsigned long long last_seen_us,
			 uint32_t *ret_value_type, uint32_t *n,
			 struct mtc_nvml_sample *ret_samples);

int nvmlSystemGetNVMLVersion(char *ret_text, uint32_t n_bytes)
{
	snprintf(ret_text, n_bytes, "13.999.1");
	return MTC_NVML_OK;
}

int nvmlDeviceGetName(struct mtc_nvml_gpu *gpu, char *ret_text, uint32_t n_bytes)
{
	(void)gpu;
	snprintf(ret_text, n_bytes, "Fake GPU");
	return MTC_NVML_OK;
}

/* mW of a scope at this moment; 0: it is not told. */
static uint32_t power_mw(const struct mtc_nvml_gpu *gpu, uint32_t scope)
{
	if (is_wrong("unsupported"))
		return 0;
	if (scope == MTC_NVML_SCOPE_MEMORY)
		return gpu == &gpus[0] ? 60000 : 0;
	if (scope == MTC_NVML_SCOPE_MODULE)
		return gpu == &gpus[1] ? 500000 : 0;
	return 300000;
}

static void fill_field(const struct mtc_nvml_gpu *gpu, struct mtc_nvml_field *field)
{
	uint32_t mw = power_mw(gpu, field->scope);

	field->result = mw ? MTC_NVML_OK : MTC_NVML_NOT_SUPPORTED;
	field->value_type = MTC_NVML_U32;
	field->value.u64 = 0;
	switch (field->field) {
	case MTC_NVML_TOTAL_ENERGY:
	case MTC_NVML_ENERGY:
		field->value_type = MTC_NVML_U64;
		field->value.u64 = tick() * (mw / 10); /* for 100 ms */
		break;
	case MTC_NVML_POWER_INSTANT:
		field->value.u32 = is_wrong("absurd") ? 4000000000u : mw;
		if (is_wrong("no_instant"))
			field->result = MTC_NVML_NOT_SUPPORTED;
		break;
	case MTC_NVML_POWER_AVERAGE:
		field->value.u32 = mw - 1000;
		break;
	default:
		field->value.u32 = 900000;
		if (field->scope != MTC_NVML_SCOPE_MODULE)
			field->result = MTC_NVML_NOT_SUPPORTED;
		break;
	}
}

int nvmlDeviceGetFieldValues(struct mtc_nvml_gpu *gpu, int n, struct mtc_nvml_field *fields)
{
	take_time();
	if (is_wrong("lost"))
		return GPU_IS_LOST;
	for (int i = 0; i < n; i++)
		fill_field(gpu, &fields[i]);
	return MTC_NVML_OK;
}

int nvmlDeviceGetEnforcedPowerLimit(struct mtc_nvml_gpu *gpu, uint32_t *ret_mw)
{
	static int n_looks[2];

	*ret_mw = is_wrong("limit_falls") && n_looks[gpu - gpus]++ ? 650000 : 700000;
	return MTC_NVML_OK;
}

int nvmlDeviceGetCurrentClocksThrottleReasons(struct mtc_nvml_gpu *gpu, unsigned long long *ret_bits)
{
	(void)gpu;
	*ret_bits = 4;
	return MTC_NVML_OK;
}

int nvmlDeviceGetClockInfo(struct mtc_nvml_gpu *gpu, uint32_t type, uint32_t *ret_mhz)
{
	(void)gpu;
	*ret_mhz = type == MTC_NVML_CLOCK_SM ? 1980 : 2619;
	return MTC_NVML_OK;
}

int nvmlDeviceGetTemperature(struct mtc_nvml_gpu *gpu, uint32_t sensor, uint32_t *ret_celsius)
{
	(void)gpu;
	(void)sensor;
	*ret_celsius = 45;
	return MTC_NVML_OK;
}

int nvmlDeviceGetCurrPcieLinkGeneration(struct mtc_nvml_gpu *gpu, uint32_t *ret_generation)
{
	(void)gpu;
	*ret_generation = is_wrong("absurd") ? 0 : 5;
	return MTC_NVML_OK;
}

int nvmlDeviceGetCurrPcieLinkWidth(struct mtc_nvml_gpu *gpu, uint32_t *ret_width)
{
	(void)gpu;
	*ret_width = is_wrong("absurd") ? 3 : 16;
	return MTC_NVML_OK;
}

int nvmlDeviceGetNvLinkState(struct mtc_nvml_gpu *gpu, uint32_t link, uint32_t *ret_is_active)
{
	if (gpu == &gpus[1])
		return MTC_NVML_NOT_SUPPORTED;
	*ret_is_active = link != 3;
	return MTC_NVML_OK;
}

/* Every 20 ms, the last hundred of them. */
int nvmlDeviceGetSamples(struct mtc_nvml_gpu *gpu, uint32_t type, unsigned long long last_seen_us,
			 uint32_t *ret_value_type, uint32_t *n,
			 struct mtc_nvml_sample *ret_samples)
{
	uint64_t last = clock_ms(CLOCK_REALTIME) / 20;
	uint32_t n_max = *n;

	(void)type;
	if (gpu == &gpus[1])
		return MTC_NVML_NOT_FOUND;
	*ret_value_type = MTC_NVML_U32;
	*n = 0;
	for (uint64_t i = last - 99; i <= last && *n < n_max; i++) {
		if (i * 20000 <= last_seen_us)
			continue;
		ret_samples[*n].timestamp_us = i * 20000;
		ret_samples[*n].value.u64 = 0;
		ret_samples[(*n)++].value.u32 = 290000 + (uint32_t)(i % 10) * 1000;
	}
	return MTC_NVML_OK;
}

#endif
