/* SPDX-License-Identifier: MIT */
/*
 * From CUPTI's records to readings. Used by the collector's thread alone.
 */
#ifndef MTC_CUPTI_RECORDS_H
#define MTC_CUPTI_RECORDS_H

#include "collectors/cupti/api.h"
#include "collectors/cupti/graphs.h"
#include "libtrace/collector.h"

#define MTC_CUPTI_MAX_DEVICES 16u

struct mtc_cupti_records {
	const struct mtc_cupti *api;
	const struct mt_collector_out *out;
	struct mtc_cupti_graphs *graphs;
	struct mtc_cupti_serial *serial;
	int is_wanted;  /* else what comes is of no recording */
	int is_sampled; /* kernels are, of some passes alone */
	uint32_t devices[MTC_CUPTI_MAX_DEVICES]; /* by ordinal; MT_NO_DEVICE: not asked yet */
	uint32_t n_taken; /* records since somebody set it to 0 */
	uint32_t last_correlation; /* of the latest launch among them; 0: none */
};

/* Forget what devices were called. */
void mtc_cupti_records_begin(struct mtc_cupti_records *records);
/* A buffer that came back. */
void mtc_cupti_records_take(void *records, uint8_t *buffer, size_t valid_bytes);

#endif
