/* SPDX-License-Identifier: MIT */
/*
 * Every collector's table of operations, each defined in its own folder.
 */
#ifndef MTC_REGISTRY_H
#define MTC_REGISTRY_H

#include "libtrace/collector.h"

extern const struct mt_collector_ops mtc_cupti;
extern const struct mt_collector_ops mtc_host;
extern const struct mt_collector_ops mtc_null;
extern const struct mt_collector_ops mtc_nvml;
extern const struct mt_collector_ops mtc_nvtx;
extern const struct mt_collector_ops mtc_rapl;

#endif
