/* SPDX-License-Identifier: MIT */
/*
 * CUPTI's stamps are CLOCK_REALTIME; 0 stands for none. A stamp that cannot be true is marked, never
 * left out.
 */
#include "collectors/cupti/times.h"

/* What a stamp may lie ahead of now, or before its launch, by errors of the clocks' conversion. */
#define AHEAD_NS  1000000000
#define BEFORE_NS 1000000

static int64_t session_ns(const struct mt_collector_out *out, uint64_t stamp_ns)
{
	return stamp_ns ? (int64_t)out->from_clock(out->context, MT_CLOCK_CUPTI, stamp_ns) : 0;
}

void mtc_cupti_times(const struct mt_collector_out *out, uint64_t start_ns, uint64_t end_ns,
		     uint64_t launch_ns, struct mt_kernel_reading *reading)
{
	reading->start_ns = session_ns(out, start_ns);
	/* The length is the source's, whatever the conversion does meanwhile. */
	reading->end_ns = reading->start_ns && end_ns > start_ns ?
				  reading->start_ns + (int64_t)(end_ns - start_ns) :
				  session_ns(out, end_ns);
	if (!start_ns)
		reading->flags |= MT_TIME_UNSTAMPED;
	else if (!end_ns)
		reading->flags |= MT_TIME_UNENDED;
	else if (end_ns < start_ns)
		reading->flags |= MT_TIME_REVERSED;
	if ((start_ns && !reading->start_ns) || (end_ns && !reading->end_ns) ||
	    reading->start_ns > (int64_t)out->now_ns(out->context) + AHEAD_NS)
		reading->flags |= MT_TIME_OUTSIDE | MT_TIME_UNSTAMPED;
	else if (launch_ns && reading->start_ns &&
		 reading->start_ns + BEFORE_NS < (int64_t)launch_ns)
		reading->flags |= MT_TIME_UNLAUNCHED;
	if (!reading->start_ns)
		reading->start_ns = MT_UNKNOWN;
	if (!reading->end_ns)
		reading->end_ns = MT_UNKNOWN;
}
