/* SPDX-License-Identifier: MIT */
/*
 * Power, energy and what belongs to them of the GPUs that the program uses, by their vendor's
 * management library: of the GPU itself, and where it tells them, of its memory and of the module
 * around it (look.c). What a GPU does not tell stays unknown and is named in the report; a look that
 * fails is made again.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "collectors/nvml/look.h"

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
		struct mtc_gpu *gpu = &nvml->gpus[i];
		int has_told;

		if (gpu->device == MT_NO_DEVICE)
			continue;
		has_told = mtc_nvml_look(nvml, gpu);
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
		struct mtc_gpu *gpu = &nvml->gpus[i];

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

	for (uint32_t i = 0; result == MTC_NVML_OK && i < n && nvml->n_gpus < MTC_NVML_MAX_GPUS; i++) {
		struct mtc_gpu *gpu = &nvml->gpus[nvml->n_gpus];

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
