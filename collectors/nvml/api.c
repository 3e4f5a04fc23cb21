/* SPDX-License-Identifier: MIT */
/*
 * The library's functions by name. Several of them changed their meaning once and have had a number
 * in their name since; the numbered ones are asked for.
 */
#include "collectors/nvml/api.h"

#include <dlfcn.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "common/library.h"

_Static_assert(sizeof(struct mtc_nvml_field) == 40, "the library's layout");
_Static_assert(sizeof(struct mtc_nvml_sample) == 16, "the library's layout");

struct entry {
	size_t offset;
	const char *name;
};

#define ENTRY(member, name) { offsetof(struct mtc_nvml, member), name }

static const struct entry required[] = {
	ENTRY(init, "nvmlInit_v2"),
	ENTRY(shutdown, "nvmlShutdown"),
	ENTRY(error_string, "nvmlErrorString"),
	ENTRY(driver_version, "nvmlSystemGetDriverVersion"),
	ENTRY(count, "nvmlDeviceGetCount_v2"),
	ENTRY(handle, "nvmlDeviceGetHandleByIndex_v2"),
	ENTRY(uuid, "nvmlDeviceGetUUID"),
};

static const struct entry optional[] = {
	ENTRY(nvml_version, "nvmlSystemGetNVMLVersion"),
	ENTRY(name, "nvmlDeviceGetName"),
	ENTRY(get_field_values, "nvmlDeviceGetFieldValues"),
	ENTRY(power_usage, "nvmlDeviceGetPowerUsage"),
	ENTRY(total_energy, "nvmlDeviceGetTotalEnergyConsumption"),
	ENTRY(enforced_limit, "nvmlDeviceGetEnforcedPowerLimit"),
	ENTRY(throttle_reasons, "nvmlDeviceGetCurrentClocksThrottleReasons"),
	ENTRY(clock, "nvmlDeviceGetClockInfo"),
	ENTRY(temperature, "nvmlDeviceGetTemperature"),
	ENTRY(pcie_generation, "nvmlDeviceGetCurrPcieLinkGeneration"),
	ENTRY(pcie_width, "nvmlDeviceGetCurrPcieLinkWidth"),
	ENTRY(nvlink_state, "nvmlDeviceGetNvLinkState"),
	ENTRY(get_samples, "nvmlDeviceGetSamples"),
};

static int resolve(struct mtc_nvml *nvml, const struct entry *entry)
{
	void *symbol = dlsym(nvml->library, entry->name);

	/* A function's address as data, which POSIX allows and C does not spell. */
	memcpy((char *)nvml + entry->offset, &symbol, sizeof(symbol));
	return symbol ? 0 : -1;
}

int mtc_nvml_open(const char *path, struct mtc_nvml *ret_nvml, char *ret_error, int error_bytes)
{
	enum mt_library_state state;
	char why[160];

	memset(ret_nvml, 0, sizeof(*ret_nvml));
	state = mt_library_open(path, RTLD_NOW | RTLD_LOCAL, &ret_nvml->library, why, sizeof(why));
	if (state != MT_LIBRARY_FOUND) {
		snprintf(ret_error, (size_t)error_bytes, "%s: %s",
			 state == MT_LIBRARY_WRONG ? "NVML cannot be opened" : "no NVML", why);
		return -1;
	}
	for (size_t i = 0; i < sizeof(required) / sizeof(required[0]); i++) {
		if (resolve(ret_nvml, &required[i]) == 0)
			continue;
		snprintf(ret_error, (size_t)error_bytes,
			 "no NVML: %.90s: no %s: the driver is too old", path, required[i].name);
		mtc_nvml_close(ret_nvml);
		return -1;
	}
	for (size_t i = 0; i < sizeof(optional) / sizeof(optional[0]); i++)
		(void)resolve(ret_nvml, &optional[i]);
	return 0;
}

void mtc_nvml_close(struct mtc_nvml *nvml)
{
	dlclose(nvml->library);
}
