/* SPDX-License-Identifier: MIT */
/*
 * Times of CUPTI on the session's clock.
 */
#ifndef MTC_CUPTI_TIMES_H
#define MTC_CUPTI_TIMES_H

#include "libtrace/collector.h"

/* Set both times, and in flags what is wrong with them; @launch_ns on the session's clock, 0: not known. */
void mtc_cupti_times(const struct mt_collector_out *out, uint64_t start_ns, uint64_t end_ns,
		     uint64_t launch_ns, struct mt_kernel_reading *reading);

#endif
