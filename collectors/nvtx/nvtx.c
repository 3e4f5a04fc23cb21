/* SPDX-License-Identifier: MIT */
/*
 * Ranges for the tool that listens to those of NVTX, in a domain of their own. The header finds the
 * tool by what the tool's user has set, of which nothing is changed here; without one no call gets
 * any further than the recorder. Begun and ended by number, since a pass may end on another thread.
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define NVTX_AS_SYSTEM_HEADER
#include <nvtx3/nvToolsExt.h>

#include "collectors/registry.h"
#include "collectors/report.h"

static pthread_once_t once = PTHREAD_ONCE_INIT;
static nvtxDomainHandle_t domain; /* of the process; NULL: nobody listens */

static void make_domain(void)
{
	domain = nvtxDomainCreateA("moetrace");
}

/* MOETRACE_NVTX=0 leaves the tool alone. */
static int is_wanted(void)
{
	const char *value = secure_getenv("MOETRACE_NVTX");

	return !value || strcmp(value, "0") != 0;
}

static int tool_open(void)
{
	if (!is_wanted())
		return 0;
	(void)pthread_once(&once, make_domain);
	return domain != NULL;
}

static void *tool_name(const char *name)
{
	return nvtxDomainRegisterStringA(domain, name);
}

static nvtxEventAttributes_t attributes(void *name, uint64_t payload)
{
	nvtxEventAttributes_t event = {
		.version = NVTX_VERSION,
		.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE,
		.payloadType = NVTX_PAYLOAD_TYPE_UNSIGNED_INT64,
		.payload.ullValue = payload,
		.messageType = NVTX_MESSAGE_TYPE_REGISTERED,
		.message.registered = name,
	};

	return event;
}

static uint64_t tool_begin(void *name, uint64_t payload)
{
	const nvtxEventAttributes_t event = attributes(name, payload);

	return nvtxDomainRangeStartEx(domain, &event);
}

static void tool_end(uint64_t range)
{
	nvtxDomainRangeEnd(domain, range);
}

static void tool_mark(void *name, uint64_t payload)
{
	const nvtxEventAttributes_t event = attributes(name, payload);

	nvtxDomainMarkEx(domain, &event);
}

const struct mt_range_tool_ops mtc_range_tool = {
	.open = tool_open,
	.name = tool_name,
	.begin = tool_begin,
	.end = tool_end,
	.mark = tool_mark,
};

/* ---- the state, for whoever asks ---- */

static void nvtx_open(const struct mt_collector_places *places, const struct mt_collector_out *out,
		      void **ret_collector, struct mt_collector_report *ret_report)
{
	const char *path = secure_getenv("NVTX_INJECTION64_PATH");

	(void)places;
	(void)out;
	*ret_collector = NULL;
	if (tool_open())
		mtc_report(ret_report, MT_COLLECTOR_ON,
			   "passes and ranges also go to the tool that listens, %.150s, in domain "
			   "moetrace",
			   path && *path ? path : "which is a part of the program");
	else if (!is_wanted())
		mtc_report(ret_report, MT_COLLECTOR_ABSENT,
			   "MOETRACE_NVTX=0: ranges are in the trace alone");
	else if (path && *path)
		mtc_report(ret_report, MT_COLLECTOR_ABSENT,
			   "what NVTX_INJECTION64_PATH names, %.150s, takes no ranges: they are in the "
			   "trace alone",
			   path);
	else
		mtc_report(ret_report, MT_COLLECTOR_ABSENT,
			   "no tool listens to NVTX: ranges are in the trace alone; nsys and ncu "
			   "listen, or a library in NVTX_INJECTION64_PATH");
}

static void nvtx_poll(void *collector, struct mt_collector_report *report)
{
	(void)collector;
	(void)report;
}

static void nvtx_close(void *collector)
{
	(void)collector;
}

const struct mt_collector_ops mtc_nvtx = {
	.name = "nvtx",
	.interval_ns = 1000000000,
	.open = nvtx_open,
	.poll = nvtx_poll,
	.close = nvtx_close,
};
