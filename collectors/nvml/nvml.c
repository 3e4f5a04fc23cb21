/* SPDX-License-Identifier: MIT */
/*
 * Power, energy and what belongs to them of the GPUs that the program uses, by their vendor's
 * management library. A look reads power and energy; once a second it also reads the limit, the
 * clocks and the samples that the driver has kept in between. What a GPU does not tell stays
 * unknown and is named in the report.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "collectors/nvml/api.h"
#include "collectors/registry.h"
#include "collectors/report.h"

#define MAX_GPUS    64u
#define MAX_SAMPLES 512u
#define FULL_NS	    UINT64_C(1000000000) /* between looks at everything */
#define LINK_NS	    UINT64_C(10000000000) /* between looks at how it is connected: many calls */

struct gpu {
	struct mtc_nvml_gpu *handle;
	char uuid[96];
	char name[96];
	uint32_t device;       /* number outside; MT_NO_DEVICE: it is left alone */
	uint64_t full_ns;      /* last look at everything */
	uint64_t last_seen_us; /* newest of the driver's samples that was taken */
	uint64_t last_sample_ns;
	int64_t energy_mj;     /* of the last look: a counter that falls is not believed */
	struct mt_link_reading link;
	int has_link;
	uint64_t link_ns;      /* last look at it */
};

struct nvml {
	struct mtc_nvml api;
	const struct mt_collector_out *out;
	uint32_t n_gpus;
	struct gpu gpus[MAX_GPUS];
	struct mtc_nvml_sample samples[MAX_SAMPLES];
};

/* ---- one value ---- */

/* By its address: what the call wrote is read after the call. */
static int64_t u32_or_unknown(int result, const uint32_t *value)
{
	return result == MTC_NVML_OK ? (int64_t)*value : MT_UNKNOWN;
}

static int64_t number_of(uint32_t type, const void *value)
{
	uint64_t u64;
	uint32_t u32;
	double f64;

	memcpy(&u64, value, sizeof(u64));
	memcpy(&u32, value, sizeof(u32));
	memcpy(&f64, value, sizeof(f64));
	if (type == MTC_NVML_U32)
		return u32;
	if (type == MTC_NVML_DOUBLE)
		return f64 >= 0 && f64 < 1e15 ? (int64_t)f64 : MT_UNKNOWN;
	return u64 <= INT64_MAX ? (int64_t)u64 : MT_UNKNOWN;
}

static int64_t field_value(const struct mtc_nvml_field *field)
{
	return field->result == MTC_NVML_OK ? number_of(field->value_type, &field->value) :
					      MT_UNKNOWN;
}

/* ---- a look ---- */

static void read_power(const struct nvml *nvml, const struct gpu *gpu,
		       struct mt_power_reading *reading)
{
	const struct mtc_nvml *api = &nvml->api;
	struct mtc_nvml_field fields[3] = {
		{ .field = MTC_NVML_POWER_INSTANT, .result = MTC_NVML_NOT_SUPPORTED },
		{ .field = MTC_NVML_POWER_AVERAGE, .result = MTC_NVML_NOT_SUPPORTED },
		{ .field = MTC_NVML_TOTAL_ENERGY, .result = MTC_NVML_NOT_SUPPORTED },
	};
	unsigned long long energy_mj;
	uint32_t power_mw;

	if (api->get_field_values && api->get_field_values(gpu->handle, 3, fields) == MTC_NVML_OK) {
		reading->instant_mw = field_value(&fields[0]);
		reading->average_mw = field_value(&fields[1]);
		reading->energy_mj = field_value(&fields[2]);
	}
	/* Older drivers have one figure, and newer GPUs mean the average by it. */
	if (reading->instant_mw == MT_UNKNOWN && reading->average_mw == MT_UNKNOWN &&
	    api->power_usage)
		reading->average_mw =
			u32_or_unknown(api->power_usage(gpu->handle, &power_mw), &power_mw);
	if (reading->energy_mj == MT_UNKNOWN && api->total_energy &&
	    api->total_energy(gpu->handle, &energy_mj) == MTC_NVML_OK && energy_mj <= INT64_MAX)
		reading->energy_mj = (int64_t)energy_mj;
}

static void read_limits(const struct nvml *nvml, const struct gpu *gpu,
			struct mt_power_reading *reading)
{
	const struct mtc_nvml *api = &nvml->api;
	unsigned long long bits;
	uint32_t value;

	if (api->enforced_limit)
		reading->limit_mw =
			u32_or_unknown(api->enforced_limit(gpu->handle, &value), &value);
	if (api->throttle_reasons && api->throttle_reasons(gpu->handle, &bits) == MTC_NVML_OK &&
	    bits <= INT64_MAX)
		reading->throttle_reasons = (int64_t)bits;
	if (api->clock) {
		reading->processor_mhz = u32_or_unknown(
			api->clock(gpu->handle, MTC_NVML_CLOCK_SM, &value), &value);
		reading->memory_mhz = u32_or_unknown(
			api->clock(gpu->handle, MTC_NVML_CLOCK_MEM, &value), &value);
	}
	if (api->temperature)
		reading->temperature_c =
			u32_or_unknown(api->temperature(gpu->handle, 0, &value), &value);
}

static void read_nvlinks(const struct nvml *nvml, const struct gpu *gpu,
			 struct mt_link_reading *link)
{
	uint32_t is_active;

	for (uint32_t i = 0; nvml->api.nvlink_state && i < MTC_NVML_MAX_LINKS; i++) {
		if (nvml->api.nvlink_state(gpu->handle, i, &is_active) != MTC_NVML_OK)
			break;
		if (link->nvlinks == MT_UNKNOWN)
			link->nvlinks = link->active_nvlinks = 0;
		link->nvlinks++;
		link->active_nvlinks += is_active != 0;
	}
}

/* How the GPU is connected, where that is not what was said last. */
static void read_link(struct nvml *nvml, struct gpu *gpu)
{
	struct mt_link_reading link = { gpu->device, 0, MT_UNKNOWN, MT_UNKNOWN, MT_UNKNOWN,
					MT_UNKNOWN };
	uint32_t value;

	if (nvml->api.pcie_generation)
		link.pcie_generation = u32_or_unknown(
			nvml->api.pcie_generation(gpu->handle, &value), &value);
	if (nvml->api.pcie_width)
		link.pcie_width =
			u32_or_unknown(nvml->api.pcie_width(gpu->handle, &value), &value);
	read_nvlinks(nvml, gpu, &link);
	if (gpu->has_link && gpu->link.pcie_generation == link.pcie_generation &&
	    gpu->link.pcie_width == link.pcie_width && gpu->link.nvlinks == link.nvlinks &&
	    gpu->link.active_nvlinks == link.active_nvlinks)
		return;
	link.time_ns = nvml->out->now_ns(nvml->out->context);
	gpu->link = link;
	gpu->has_link = 1;
	nvml->out->link(nvml->out->context, &link);
}

static struct mt_power_reading unknown_reading(const struct gpu *gpu)
{
	struct mt_power_reading reading = {
		.device = gpu->device,
		.domain = "gpu",
		.instant_mw = MT_UNKNOWN,
		.average_mw = MT_UNKNOWN,
		.energy_mj = MT_UNKNOWN,
		.limit_mw = MT_UNKNOWN,
		.throttle_reasons = MT_UNKNOWN,
		.processor_mhz = MT_UNKNOWN,
		.memory_mhz = MT_UNKNOWN,
		.temperature_c = MT_UNKNOWN,
		.cost_ns = MT_UNKNOWN,
	};

	return reading;
}

/* The samples that the driver has kept since the last time. */
static void drain_samples(struct nvml *nvml, struct gpu *gpu)
{
	uint32_t n = MAX_SAMPLES, type = MTC_NVML_U32;

	if (!nvml->api.get_samples ||
	    nvml->api.get_samples(gpu->handle, MTC_NVML_TOTAL_POWER, gpu->last_seen_us, &type, &n,
				  nvml->samples) != MTC_NVML_OK)
		return;
	for (uint32_t i = 0; i < n && i < MAX_SAMPLES; i++) {
		const struct mtc_nvml_sample *sample = &nvml->samples[i];
		struct mt_power_reading reading = unknown_reading(gpu);

		if (sample->timestamp_us <= gpu->last_seen_us ||
		    sample->timestamp_us > UINT64_MAX / 1000)
			continue;
		gpu->last_seen_us = sample->timestamp_us;
		reading.is_buffer = 1;
		reading.time_ns = nvml->out->from_realtime(nvml->out->context,
							   sample->timestamp_us * 1000);
		reading.instant_mw = number_of(type, &sample->value);
		if (reading.time_ns <= gpu->last_sample_ns || reading.instant_mw == MT_UNKNOWN)
			continue;
		gpu->last_sample_ns = reading.time_ns;
		nvml->out->power(nvml->out->context, &reading);
	}
}

/* Returns whether the GPU told anything. */
static int read_gpu(struct nvml *nvml, struct gpu *gpu)
{
	struct mt_power_reading reading = unknown_reading(gpu);
	uint64_t before_ns = nvml->out->now_ns(nvml->out->context);
	int is_full = !gpu->full_ns || before_ns - gpu->full_ns >= FULL_NS;
	uint64_t after_ns;

	read_power(nvml, gpu, &reading);
	if (is_full)
		read_limits(nvml, gpu, &reading);
	after_ns = nvml->out->now_ns(nvml->out->context);
	reading.time_ns = before_ns + (after_ns - before_ns) / 2;
	reading.cost_ns = (int64_t)(after_ns - before_ns);
	if (reading.energy_mj != MT_UNKNOWN && reading.energy_mj < gpu->energy_mj)
		reading.energy_mj = MT_UNKNOWN;
	else if (reading.energy_mj != MT_UNKNOWN)
		gpu->energy_mj = reading.energy_mj;
	if (reading.instant_mw == MT_UNKNOWN && reading.average_mw == MT_UNKNOWN &&
	    reading.energy_mj == MT_UNKNOWN)
		return 0;
	nvml->out->power(nvml->out->context, &reading);
	if (is_full) {
		gpu->full_ns = before_ns;
		if (!gpu->has_link || before_ns - gpu->link_ns >= LINK_NS) {
			gpu->link_ns = before_ns;
			read_link(nvml, gpu);
		}
		drain_samples(nvml, gpu);
	}
	return 1;
}

static void nvml_poll(void *collector, struct mt_collector_report *report)
{
	struct nvml *nvml = collector;
	uint32_t n_used = 0, n_told = 0;

	for (uint32_t i = 0; i < nvml->n_gpus; i++) {
		if (nvml->gpus[i].device == MT_NO_DEVICE)
			continue;
		n_used++;
		n_told += (uint32_t)read_gpu(nvml, &nvml->gpus[i]);
	}
	if (n_used && !n_told)
		mtc_report(report, MT_COLLECTOR_UNSUPPORTED,
			   "the driver tells neither power nor energy of %u GPU(s): energy is "
			   "unknown, not 0",
			   n_used);
	else if (n_used > n_told)
		mtc_report(report, MT_COLLECTOR_ON, "%u of %u GPUs tell neither power nor energy",
			   n_used - n_told, n_used);
}

/* ---- life ---- */

/* The GPUs that the program uses, and everything is said anew. */
static void nvml_begin(void *collector)
{
	struct nvml *nvml = collector;

	for (uint32_t i = 0; i < nvml->n_gpus; i++) {
		struct gpu *gpu = &nvml->gpus[i];

		gpu->device = nvml->out->wants_gpu(nvml->out->context, gpu->uuid) ?
				      nvml->out->gpu(nvml->out->context, gpu->uuid, gpu->name) :
				      MT_NO_DEVICE;
		gpu->has_link = 0;
		gpu->full_ns = 0;
	}
}

static int find_gpus(struct nvml *nvml, struct mt_collector_report *report)
{
	const struct mtc_nvml *api = &nvml->api;
	uint32_t n = 0;
	int result = api->count(&n);

	for (uint32_t i = 0; result == MTC_NVML_OK && i < n && nvml->n_gpus < MAX_GPUS; i++) {
		struct gpu *gpu = &nvml->gpus[nvml->n_gpus];

		if (api->handle(i, &gpu->handle) != MTC_NVML_OK ||
		    api->uuid(gpu->handle, gpu->uuid, sizeof(gpu->uuid)) != MTC_NVML_OK)
			continue;
		if (!api->name ||
		    api->name(gpu->handle, gpu->name, sizeof(gpu->name)) != MTC_NVML_OK)
			gpu->name[0] = '\0';
		gpu->device = MT_NO_DEVICE;
		nvml->n_gpus++;
	}
	if (nvml->n_gpus)
		return 0;
	mtc_report(report, MT_COLLECTOR_ABSENT, "the driver shows no GPU%s%s",
		   result == MTC_NVML_OK ? "" : ": ",
		   result == MTC_NVML_OK ? "" : api->error_string(result));
	return -1;
}

static int start_library(struct nvml *nvml, struct mt_collector_report *report)
{
	int result = nvml->api.init();

	if (result == MTC_NVML_OK)
		return 0;
	mtc_report(report,
		   result == MTC_NVML_NO_DRIVER	     ? MT_COLLECTOR_ABSENT :
		   result == MTC_NVML_NO_PERMISSION ? MT_COLLECTOR_DENIED :
						       MT_COLLECTOR_FAILED,
		   "NVML does not start: %s", nvml->api.error_string(result));
	return -1;
}

static void tell_versions(const struct nvml *nvml, struct mt_collector_report *report)
{
	const struct mtc_nvml *api = &nvml->api;
	char library[64];

	if (api->driver_version(report->version, sizeof(report->version)) == MTC_NVML_OK)
		nvml->out->version(nvml->out->context, "driver", report->version);
	if (api->nvml_version && api->nvml_version(library, sizeof(library)) == MTC_NVML_OK)
		nvml->out->version(nvml->out->context, "nvml", library);
}

static void nvml_open(const struct mt_collector_places *places, const struct mt_collector_out *out,
		      void **ret_collector, struct mt_collector_report *ret_report)
{
	struct nvml *nvml = calloc(1, sizeof(*nvml));
	char error[200];

	if (!nvml) {
		mtc_report(ret_report, MT_COLLECTOR_FAILED, "out of memory");
		return;
	}
	nvml->out = out;
	if (mtc_nvml_open(places->nvml, &nvml->api, error, sizeof(error))) {
		mtc_report(ret_report, MT_COLLECTOR_ABSENT, "no NVML: %s", error);
		goto err_nvml;
	}
	if (start_library(nvml, ret_report))
		goto err_library;
	tell_versions(nvml, ret_report);
	if (find_gpus(nvml, ret_report))
		goto err_init;
	*ret_collector = nvml;
	return;

err_init:
	(void)nvml->api.shutdown();
err_library:
	mtc_nvml_close(&nvml->api);
err_nvml:
	free(nvml);
}

static void nvml_close(void *collector)
{
	struct nvml *nvml = collector;

	(void)nvml->api.shutdown();
	mtc_nvml_close(&nvml->api);
	free(nvml);
}

const struct mt_collector_ops mtc_nvml = {
	.name = "nvml",
	.interval_ns = 100000000,
	.open = nvml_open,
	.begin = nvml_begin,
	.poll = nvml_poll,
	.close = nvml_close,
};
