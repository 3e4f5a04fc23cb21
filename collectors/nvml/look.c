/* SPDX-License-Identifier: MIT */
/*
 * A look reads power and energy; once a second it also reads the limit, the clocks and the samples
 * that the driver has kept in between. What a GPU does not tell stays unknown, and so does what
 * cannot be.
 */
#include "collectors/nvml/look.h"

#include <stdio.h>
#include <string.h>

#define FULL_NS	    UINT64_C(1000000000) /* between looks at everything */
#define LINK_NS	    UINT64_C(10000000000) /* between looks at how it is connected: many calls */
/* No GPU draws as much: 100 kW. Such a figure is an error of the driver's. */
#define MAX_MW	    INT64_C(100000000)

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

static int64_t plausible_mw(int64_t mw)
{
	return mw <= MAX_MW ? mw : MT_UNKNOWN;
}

/* An error that may pass, in place of a figure that there is not. */
static void note_result(struct mtc_gpu *gpu, int result)
{
	if (result != MTC_NVML_OK && result != MTC_NVML_NOT_SUPPORTED &&
	    result != MTC_NVML_NOT_FOUND && result != MTC_NVML_BAD_ARGUMENT)
		gpu->error = result;
}

enum figure { INSTANT, AVERAGE, ENERGY, LIMIT, N_FIGURES };

/* What is asked of a scope; the GPU's limit has a call of its own. */
static uint32_t ask_scope(uint32_t scope, int is_full, struct mtc_nvml_field *ret_fields)
{
	const uint32_t fields[N_FIGURES] = {
		[INSTANT] = MTC_NVML_POWER_INSTANT,
		[AVERAGE] = MTC_NVML_POWER_AVERAGE,
		[ENERGY] = scope == MTC_NVML_SCOPE_GPU ? MTC_NVML_TOTAL_ENERGY : MTC_NVML_ENERGY,
		[LIMIT] = MTC_NVML_POWER_LIMIT,
	};
	uint32_t n = is_full && scope != MTC_NVML_SCOPE_GPU ? N_FIGURES : LIMIT;

	for (uint32_t i = 0; i < n; i++)
		ret_fields[i] = (struct mtc_nvml_field){ .field = fields[i],
							 .scope = scope,
							 .result = MTC_NVML_NOT_SUPPORTED };
	return n;
}

static void take_scope(struct mtc_gpu *gpu, const struct mtc_nvml_field *fields, uint32_t n,
		       struct mt_power_reading *reading)
{
	for (uint32_t i = 0; i < n; i++)
		note_result(gpu, fields[i].result);
	reading->instant_mw = plausible_mw(field_value(&fields[INSTANT]));
	reading->average_mw = plausible_mw(field_value(&fields[AVERAGE]));
	reading->energy_mj = field_value(&fields[ENERGY]);
	if (n > LIMIT)
		reading->limit_mw = plausible_mw(field_value(&fields[LIMIT]));
}

/* All scopes in one call: those that told nothing when they were all asked are left out. */
static void read_fields(const struct nvml *nvml, struct mtc_gpu *gpu, int is_full,
			struct mt_power_reading *readings)
{
	struct mtc_nvml_field fields[MTC_NVML_N_SCOPES * N_FIGURES];
	uint32_t firsts[MTC_NVML_N_SCOPES + 1] = { 0 };
	int result;

	for (uint32_t i = 0; i < MTC_NVML_N_SCOPES; i++) {
		firsts[i + 1] = firsts[i];
		if (gpu->has_scope[i])
			firsts[i + 1] += ask_scope(i, is_full, &fields[firsts[i]]);
	}
	result = nvml->api.get_field_values(gpu->handle, (int)firsts[MTC_NVML_N_SCOPES], fields);
	note_result(gpu, result);
	for (uint32_t i = 0; result == MTC_NVML_OK && i < MTC_NVML_N_SCOPES; i++)
		if (gpu->has_scope[i])
			take_scope(gpu, &fields[firsts[i]], firsts[i + 1] - firsts[i], &readings[i]);
}

static void read_power(const struct nvml *nvml, struct mtc_gpu *gpu, int is_full,
		       struct mt_power_reading *readings)
{
	struct mt_power_reading *reading = &readings[MTC_NVML_SCOPE_GPU];
	const struct mtc_nvml *api = &nvml->api;
	unsigned long long energy_mj;
	uint32_t power_mw;
	int result;

	if (api->get_field_values)
		read_fields(nvml, gpu, is_full, readings);
	/* Older drivers have one figure, and newer GPUs mean the average by it. */
	if (reading->instant_mw == MT_UNKNOWN && reading->average_mw == MT_UNKNOWN &&
	    api->power_usage) {
		result = api->power_usage(gpu->handle, &power_mw);
		note_result(gpu, result);
		reading->average_mw = plausible_mw(u32_or_unknown(result, &power_mw));
	}
	if (reading->energy_mj == MT_UNKNOWN && api->total_energy &&
	    api->total_energy(gpu->handle, &energy_mj) == MTC_NVML_OK && energy_mj <= INT64_MAX)
		reading->energy_mj = (int64_t)energy_mj;
}

static void read_limits(const struct nvml *nvml, const struct mtc_gpu *gpu,
			struct mt_power_reading *reading)
{
	const struct mtc_nvml *api = &nvml->api;
	unsigned long long bits;
	uint32_t value;

	if (api->enforced_limit)
		reading->limit_mw = plausible_mw(
			u32_or_unknown(api->enforced_limit(gpu->handle, &value), &value));
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

static void read_nvlinks(const struct nvml *nvml, const struct mtc_gpu *gpu,
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

/* Of bits, those of widths that PCIe has. */
#define PCIE_WIDTHS (1u << 1 | 1u << 2 | 1u << 4 | 1u << 8 | 1u << 12 | 1u << 16)

/* A driver that has no figure may say 0, or anything. */
static int64_t plausible_width(int64_t width)
{
	return width == 32 || (width > 0 && width < 32 && PCIE_WIDTHS >> width & 1) ? width :
										    MT_UNKNOWN;
}

static int64_t plausible_generation(int64_t generation)
{
	return generation >= 1 && generation <= 15 ? generation : MT_UNKNOWN;
}

/* How the GPU is connected, where that is not what was said last. */
static void read_link(struct nvml *nvml, struct mtc_gpu *gpu)
{
	struct mt_link_reading link = { gpu->device, 0, MT_UNKNOWN, MT_UNKNOWN, MT_UNKNOWN,
					MT_UNKNOWN };
	uint32_t value;

	if (nvml->api.pcie_generation)
		link.pcie_generation = plausible_generation(u32_or_unknown(
			nvml->api.pcie_generation(gpu->handle, &value), &value));
	if (nvml->api.pcie_width)
		link.pcie_width = plausible_width(
			u32_or_unknown(nvml->api.pcie_width(gpu->handle, &value), &value));
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

static struct mt_power_reading unknown_reading(const struct mtc_gpu *gpu, uint32_t scope)
{
	static const char *const domains[] = { "gpu", "module", "memory" };
	struct mt_power_reading reading = {
		.device = gpu->device,
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

	snprintf(reading.domain, sizeof(reading.domain), "%s", domains[scope]);
	return reading;
}

/* The samples that the driver has kept since the last time. */
static void drain_samples(struct nvml *nvml, struct mtc_gpu *gpu)
{
	uint32_t n = MTC_NVML_MAX_SAMPLES, type = MTC_NVML_U32;

	if (!nvml->api.get_samples ||
	    nvml->api.get_samples(gpu->handle, MTC_NVML_TOTAL_POWER, gpu->last_seen_us, &type, &n,
				  nvml->samples) != MTC_NVML_OK)
		return;
	for (uint32_t i = 0; i < n && i < MTC_NVML_MAX_SAMPLES; i++) {
		const struct mtc_nvml_sample *sample = &nvml->samples[i];
		struct mt_power_reading reading = unknown_reading(gpu, MTC_NVML_SCOPE_GPU);

		if (sample->timestamp_us <= gpu->last_seen_us ||
		    sample->timestamp_us > UINT64_MAX / 1000)
			continue;
		gpu->last_seen_us = sample->timestamp_us;
		reading.is_buffer = 1;
		reading.time_ns = nvml->out->from_realtime(nvml->out->context,
							   sample->timestamp_us * 1000);
		reading.instant_mw = plausible_mw(number_of(type, &sample->value));
		if (reading.time_ns <= gpu->last_sample_ns || reading.instant_mw == MT_UNKNOWN)
			continue;
		gpu->last_sample_ns = reading.time_ns;
		nvml->out->power(nvml->out->context, &reading);
	}
}

/* A counter that falls, or goes on by more than anything draws, is unknown. */
static void check_energy(struct mtc_gpu *gpu, uint32_t scope, struct mt_power_reading *reading)
{
	int64_t last_mj = gpu->energy_mj[scope];
	uint64_t passed_s = (reading->time_ns - gpu->energy_ns[scope]) / 1000000000 + 2;

	if (reading->energy_mj == MT_UNKNOWN)
		return;
	if (gpu->energy_ns[scope] &&
	    (reading->energy_mj < last_mj || passed_s > INT64_MAX / (uint64_t)MAX_MW ||
	     reading->energy_mj - last_mj > (int64_t)passed_s * MAX_MW)) {
		reading->energy_mj = MT_UNKNOWN;
		return;
	}
	gpu->energy_mj[scope] = reading->energy_mj;
	gpu->energy_ns[scope] = reading->time_ns;
}

/* Hand on what the scopes tell; returns whether the GPU itself told anything. */
static int deliver(const struct nvml *nvml, struct mtc_gpu *gpu, uint64_t time_ns, int64_t cost_ns,
		   struct mt_power_reading *readings)
{
	int has_told = 0;

	for (uint32_t i = 0; i < MTC_NVML_N_SCOPES; i++) {
		struct mt_power_reading *reading = &readings[i];

		reading->time_ns = time_ns;
		check_energy(gpu, i, reading);
		if (reading->instant_mw == MT_UNKNOWN && reading->average_mw == MT_UNKNOWN &&
		    reading->energy_mj == MT_UNKNOWN)
			continue;
		has_told |= i == MTC_NVML_SCOPE_GPU;
		/* One call for all of them. */
		if (i == MTC_NVML_SCOPE_GPU)
			reading->cost_ns = cost_ns;
		nvml->out->power(nvml->out->context, reading);
	}
	return has_told;
}

/* After the first look of a recording that worked: only what is there is asked for again. */
static void note_scopes(struct mtc_gpu *gpu, const struct mt_power_reading *readings)
{
	for (uint32_t i = MTC_NVML_SCOPE_GPU + 1; i < MTC_NVML_N_SCOPES; i++)
		gpu->has_scope[i] = readings[i].instant_mw != MT_UNKNOWN ||
				    readings[i].average_mw != MT_UNKNOWN ||
				    readings[i].energy_mj != MT_UNKNOWN;
}

int mtc_nvml_look(struct nvml *nvml, struct mtc_gpu *gpu)
{
	struct mt_power_reading readings[MTC_NVML_N_SCOPES];
	uint64_t before_ns = nvml->out->now_ns(nvml->out->context);
	int is_first = !gpu->full_ns;
	int is_full = is_first || before_ns - gpu->full_ns >= FULL_NS;
	uint64_t after_ns;

	for (uint32_t i = 0; i < MTC_NVML_N_SCOPES; i++)
		readings[i] = unknown_reading(gpu, i);
	gpu->error = MTC_NVML_OK;
	read_power(nvml, gpu, is_full, readings);
	if (is_full)
		read_limits(nvml, gpu, &readings[MTC_NVML_SCOPE_GPU]);
	after_ns = nvml->out->now_ns(nvml->out->context);
	if (!deliver(nvml, gpu, before_ns + (after_ns - before_ns) / 2,
		     (int64_t)(after_ns - before_ns), readings))
		return 0;
	if (is_first)
		note_scopes(gpu, readings);
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
