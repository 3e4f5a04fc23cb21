/* SPDX-License-Identifier: MIT */
/*
 * In place of nvtx.c where the header of NVTX was not there, or not wanted, when this was built.
 */
#include <stddef.h>

#include "collectors/registry.h"
#include "collectors/report.h"

static int no_tool(void)
{
	return 0;
}

/* Nobody calls the others without a tool. */
const struct mt_range_tool_ops mtc_range_tool = { .open = no_tool };

static void no_nvtx_open(const struct mt_collector_places *places,
			 const struct mt_collector_out *out, void **ret_collector,
			 struct mt_collector_report *ret_report)
{
	(void)places;
	(void)out;
	*ret_collector = NULL;
	mtc_report(ret_report, MT_COLLECTOR_UNSUPPORTED,
		   "built without NVTX: ranges are in the trace alone; build with "
		   "nvtx3/nvToolsExt.h, of the CUDA toolkit, for a tool to see them");
}

static void no_nvtx_poll(void *collector, struct mt_collector_report *report)
{
	(void)collector;
	(void)report;
}

static void no_nvtx_close(void *collector)
{
	(void)collector;
}

const struct mt_collector_ops mtc_nvtx = {
	.name = "nvtx",
	.interval_ns = 1000000000,
	.open = no_nvtx_open,
	.poll = no_nvtx_poll,
	.close = no_nvtx_close,
};
