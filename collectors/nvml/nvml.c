/* SPDX-License-Identifier: MIT */
/*
 * Power, energy and what belongs to them of the GPUs that the program uses, by their vendor's
 * management library: of the GPU itself, and where it tells them, of its memory and of the module
 * around it. A look reads power and energy; once a second it also reads the limit, the clocks and the
 * samples that the driver has kept in between. What a GPU does not tell stays unknown and is named in
 * the report; a look that fails is made again.
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
/* No GPU draws as much: 100 kW. Such a figure is an error of the driver's. */
#define MAX_MW	    INT64_C(100000000)

struct gpu {
	struct mtc_nvml_gpu *handle;
	char uuid[96];
	char name[96];
	uint32_t device;       /* number outside; MT_NO_DEVICE: it is left alone */
	uint64_t full_ns;      /* last look at everything */
	uint64_t last_seen_us; /* newest of the driver's samples that was taken */
	uint64_t last_sample_ns;
	int64_t energy_mj[MTC_NVML_N_SCOPES]; /* last one: a counter that falls, or jumps, is not believed */
	uint64_t energy_ns[MTC_NVML_N_SCOPES]; /* when that was; 0: never */
	uint8_t has_scope[MTC_NVML_N_SCOPES]; /* by the first look of a recording */
	int error;             /* of the last look, other than that it does not tell */
	struct mt_link_reading link;
	int has_link;
	uint64_t link_ns;      /* last look at it */
};

struct nvml {
	struct mtc_nvml api;
	const struct mt_collector_out *out;
	struct mtc_retry retry;
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

static int64_t plausible_mw(int64_t mw)
{
	return mw <= MAX_MW ? mw : MT_UNKNOWN;
}

/* An error that may pass, in place of a figure that there is not. */
static void note_result(struct gpu *gpu, int result)
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

static void take_scope(struct gpu *gpu, const struct mtc_nvml_field *fields, uint32_t n,
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
static void read_fields(const struct nvml *nvml, struct gpu *gpu, int is_full,
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

static void read_power(const struct nvml *nvml, struct gpu *gpu, int is_full,
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

static void read_limits(const struct nvml *nvml, const struct gpu *gpu,
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
static void read_link(struct nvml *nvml, struct gpu *gpu)
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

static struct mt_power_reading unknown_reading(const struct gpu *gpu, uint32_t scope)
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
static void drain_samples(struct nvml *nvml, struct gpu *gpu)
{
	uint32_t n = MAX_SAMPLES, type = MTC_NVML_U32;

	if (!nvml->api.get_samples ||
	    nvml->api.get_samples(gpu->handle, MTC_NVML_TOTAL_POWER, gpu->last_seen_us, &type, &n,
				  nvml->samples) != MTC_NVML_OK)
		return;
	for (uint32_t i = 0; i < n && i < MAX_SAMPLES; i++) {
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
static void check_energy(struct gpu *gpu, uint32_t scope, struct mt_power_reading *reading)
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
static int deliver(const struct nvml *nvml, struct gpu *gpu, uint64_t time_ns, int64_t cost_ns,
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
static void note_scopes(struct gpu *gpu, const struct mt_power_reading *readings)
{
	for (uint32_t i = MTC_NVML_SCOPE_GPU + 1; i < MTC_NVML_N_SCOPES; i++)
		gpu->has_scope[i] = readings[i].instant_mw != MT_UNKNOWN ||
				    readings[i].average_mw != MT_UNKNOWN ||
				    readings[i].energy_mj != MT_UNKNOWN;
}

/* Returns whether the GPU told anything. */
static int read_gpu(struct nvml *nvml, struct gpu *gpu)
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

/* ---- what is said of it ---- */

struct look {
	uint32_t n_used;
	uint32_t n_told;
	uint32_t n_failed; /* for another reason than that they do not tell */
	int error;	   /* of one of these */
	uint32_t n_without[MTC_NVML_N_SCOPES]; /* GPUs that tell, but not of this */
};

static struct look look_at(struct nvml *nvml)
{
	struct look look = { .n_used = 0 };

	for (uint32_t i = 0; i < nvml->n_gpus; i++) {
		struct gpu *gpu = &nvml->gpus[i];
		int has_told;

		if (gpu->device == MT_NO_DEVICE)
			continue;
		has_told = read_gpu(nvml, gpu);
		look.n_used++;
		look.n_told += (uint32_t)has_told;
		if (!has_told && gpu->error) {
			look.n_failed++;
			look.error = gpu->error;
		}
		for (uint32_t s = 0; has_told && s < MTC_NVML_N_SCOPES; s++)
			look.n_without[s] += !gpu->has_scope[s] || !nvml->api.get_field_values;
	}
	return look;
}

/* Unsupported parts are recorded as such; a reason says that there is no figure of them. */
static void tell_scopes(const struct look *look, struct mt_collector_report *report)
{
	uint32_t n_module = look->n_without[MTC_NVML_SCOPE_MODULE];
	uint32_t n_memory = look->n_without[MTC_NVML_SCOPE_MEMORY];
	char module[64] = "", memory[64] = "";

	if (n_module)
		snprintf(module, sizeof(module), "of the module by %u", n_module);
	if (n_memory)
		snprintf(memory, sizeof(memory), "of memory by %u", n_memory);
	if (n_module || n_memory)
		mtc_report(report, MT_COLLECTOR_ON,
			   "power of GPUs is read; power %s%s%s of %u GPU(s) is not supported: it is "
			   "unknown, not 0",
			   module, n_module && n_memory ? ", " : "", memory, look->n_used);
	else
		report->reason[0] = '\0';
}

static void tell_failed(struct nvml *nvml, const struct look *look,
			struct mt_collector_report *report)
{
	const char *error = nvml->api.error_string(look->error);

	nvml->out->dropped(nvml->out->context, look->n_failed);
	if (!look->n_told && mtc_retry_failed(&nvml->retry))
		mtc_report(report, MT_COLLECTOR_FAILED,
			   "NVML failed %u times in a row: %.100s; see whether nvidia-smi shows the GPU, "
			   "look for NVRM in the kernel's log, and start the program again",
			   MTC_MAX_FAILED, error);
	else
		mtc_report(report, MT_COLLECTOR_ON,
			   "%u of %u GPUs could not be read the last time: %.100s; if that goes on, see "
			   "whether nvidia-smi shows them",
			   look->n_failed, look->n_used, error);
}

static void nvml_poll(void *collector, struct mt_collector_report *report)
{
	struct nvml *nvml = collector;
	struct look look;

	if (!mtc_retry_is_due(&nvml->retry))
		return;
	look = look_at(nvml);
	if (look.n_told)
		mtc_retry_worked(&nvml->retry);
	if (look.n_failed)
		tell_failed(nvml, &look, report);
	else if (look.n_used && !look.n_told)
		mtc_report(report, MT_COLLECTOR_UNSUPPORTED,
			   "the driver tells neither power nor energy of %u GPU(s): energy is "
			   "unknown, not 0; a virtual GPU has none, measure on its host",
			   look.n_used);
	else if (look.n_used > look.n_told)
		mtc_report(report, MT_COLLECTOR_ON,
			   "%u of %u GPUs tell neither power nor energy: theirs is unknown, not 0",
			   look.n_used - look.n_told, look.n_used);
	else if (look.n_used)
		tell_scopes(&look, report);
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
		memset(gpu->has_scope, 1, sizeof(gpu->has_scope));
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
	mtc_report(report, MT_COLLECTOR_ABSENT,
		   "the driver shows no GPU%s%.80s; 'nvidia-smi -L' lists them, and in a container "
		   "those that were given to it",
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
		   "NVML does not start: %.80s; %s", nvml->api.error_string(result),
		   result == MTC_NVML_NO_DRIVER ?
			   "load the GPU's driver, in a container let the host's in" :
		   result == MTC_NVML_NO_PERMISSION ?
			   "let the user open /dev/nvidiactl and /dev/nvidia*, in a container have the "
			   "GPU given to it" :
			   "see what nvidia-smi says, and look for NVRM in the kernel's log");
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
		mtc_report(ret_report, MT_COLLECTOR_FAILED,
			   "out of memory: let the program have more, and start it again");
		return;
	}
	nvml->out = out;
	if (mtc_nvml_open(places->nvml, &nvml->api, error, sizeof(error))) {
		mtc_report(ret_report, MT_COLLECTOR_ABSENT,
			   "%.170s; it comes with the GPU's driver: install that, or name the library "
			   "with MOETRACE_NVML",
			   error);
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
