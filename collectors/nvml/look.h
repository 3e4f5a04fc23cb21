/* SPDX-License-Identifier: MIT */
/*
 * One look at a GPU: what it is told of, and what the next look needs to know.
 */
#ifndef MTC_NVML_LOOK_H
#define MTC_NVML_LOOK_H

#include "collectors/nvml/api.h"
#include "collectors/registry.h"
#include "collectors/report.h"

#define MTC_NVML_MAX_GPUS    64u
#define MTC_NVML_MAX_SAMPLES 512u

struct mtc_gpu {
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
	struct mtc_gpu gpus[MTC_NVML_MAX_GPUS];
	struct mtc_nvml_sample samples[MTC_NVML_MAX_SAMPLES];
};

/* Read it, and hand on what it tells; returns whether it told anything. */
int mtc_nvml_look(struct nvml *nvml, struct mtc_gpu *gpu);

#endif
