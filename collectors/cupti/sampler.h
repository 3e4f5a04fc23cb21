/* SPDX-License-Identifier: MIT */
/*
 * Kernel records that are on for some passes alone. A thread of its own switches them, since the
 * program's threads must not: on when a pass is due, off when a pass has gone through from its begin to its
 * end meanwhile. Passes that were not seen as a whole are left out later.
 */
#ifndef MTC_CUPTI_SAMPLER_H
#define MTC_CUPTI_SAMPLER_H

#include "collectors/cupti/api.h"
#include "collectors/cupti/mode.h"
#include "libtrace/collector.h"

struct mtc_cupti_sampler;

/* Start with a recording; NULL: no memory or no thread. */
struct mtc_cupti_sampler *mtc_cupti_sampler_start(const struct mtc_cupti *api,
						  const struct mtc_cupti_mode *mode,
						  const struct mt_collector_out *out);

/* End it: records are off afterwards. The first error that CUPTI gave, or MTC_CUPTI_OK. */
int mtc_cupti_sampler_stop(struct mtc_cupti_sampler *sampler);

/* The same error, while it runs. */
int mtc_cupti_sampler_result(struct mtc_cupti_sampler *sampler);

#endif
