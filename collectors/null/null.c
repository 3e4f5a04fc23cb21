/* SPDX-License-Identifier: MIT */
/*
 * A collector that reads nothing: what the recorder's own machinery costs is measured with it.
 */
#include <string.h>

#include "collectors/registry.h"

static void null_open(const struct mt_collector_places *places, const struct mt_collector_out *out,
		      void **ret_collector, struct mt_collector_report *ret_report)
{
	(void)places;
	(void)out;
	*ret_collector = NULL;
	memset(ret_report, 0, sizeof(*ret_report));
}

static void null_poll(void *collector, struct mt_collector_report *report)
{
	(void)collector;
	(void)report;
}

static void null_close(void *collector)
{
	(void)collector;
}

const struct mt_collector_ops mtc_null = {
	.name = "null",
	.interval_ns = 100000000,
	.open = null_open,
	.poll = null_poll,
	.close = null_close,
};
