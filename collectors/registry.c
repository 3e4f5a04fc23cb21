/* SPDX-License-Identifier: MIT */
/*
 * The collectors, in the order in which they are named to people.
 */
#include "collectors/registry.h"

#include <stddef.h>

const struct mt_collector_ops *const mtc_registry[] = {
	&mtc_host, &mtc_rapl, &mtc_nvml, &mtc_nvtx, &mtc_cupti, &mtc_null, NULL,
};
