/* SPDX-License-Identifier: MIT */
/*
 * What a recording says of the calls of its collectors: how many there were, how long they took, and
 * that one has not come back. The last calls are remembered, since flight mode learns afterwards when
 * its recording began. Under the lock, but for what takes it.
 */
#include <stdio.h>
#include <string.h>

#include "libtrace/collect_internal.h"

void mt_collect_call_note(struct mt_source *source, uint64_t cost_ns)
{
	struct mt_call *call = &source->calls[source->n_noted++ % MT_MAX_CALLS];

	*call = (struct mt_call){ mt_collect_now_ns(source), cost_ns, source->n_dropped };
	source->n_dropped = 0;
}

/* The calls behind readings since @start_ns; 0: the oldest of them are not remembered. */
static int recount(const struct mt_source *source, uint64_t start_ns,
		   struct mt_collect_status *status)
{
	uint64_t n = source->n_noted;

	status->n_dropped = source->n_dropped;
	status->n_calls = 0;
	status->calls_ns = 0;
	status->longest_call_ns = 0;
	while (n && source->n_noted - n < MT_MAX_CALLS) {
		const struct mt_call *call = &source->calls[--n % MT_MAX_CALLS];

		if (call->end_ns < start_ns)
			return 1;
		status->n_calls++;
		status->calls_ns += call->cost_ns;
		status->n_dropped += call->n_dropped;
		if (call->cost_ns > status->longest_call_ns)
			status->longest_call_ns = call->cost_ns;
	}
	return !n;
}

void mt_collect_recount(struct mt_collect *collect, uint64_t start_ns)
{
	if (!collect)
		return;
	pthread_mutex_lock(&collect->lock);
	for (uint32_t i = 0; i < collect->n_sources; i++) {
		struct mt_source *source = &collect->sources[i];

		source->status.is_calls_unknown = !recount(source, start_ns, &source->status);
		source->status.is_dropped_unknown |= source->status.is_calls_unknown ||
						     source->pushed_out_ns >= start_ns;
	}
	pthread_mutex_unlock(&collect->lock);
}

void mt_collect_reset(struct mt_collect *collect)
{
	if (!collect)
		return;
	pthread_mutex_lock(&collect->lock);
	for (uint32_t i = 0; i < collect->n_sources; i++) {
		struct mt_source *source = &collect->sources[i];
		struct mt_collect_status *status = &source->status;

		source->n_dropped = 0;
		source->pushed_out_ns = 0;
		status->n_dropped = 0;
		status->is_dropped_unknown = 0;
		status->is_calls_unknown = 0;
		status->n_calls = 0;
		status->calls_ns = 0;
		status->longest_call_ns = 0;
	}
	pthread_mutex_unlock(&collect->lock);
}

/* ---- what has not come back ---- */

/* What the source itself had to say stays, as far as there is room. */
static void say_missing(struct mt_collect_status *status, const char *text)
{
	char *reason = status->report.reason;
	const size_t n_text = strlen(text), n_own = strlen(reason);

	status->is_dropped_unknown = 1;
	if (!n_own || n_text + 2 + n_own >= sizeof(status->report.reason)) {
		snprintf(reason, sizeof(status->report.reason), "%s", text);
	} else {
		memmove(reason + n_text + 2, reason, n_own + 1);
		memcpy(reason, text, n_text);
		memcpy(reason + n_text, "; ", 2);
	}
}

static void say_hung(struct mt_collect_status *status, uint64_t busy_ns)
{
	status->report.state = MT_COLLECTOR_HUNG;
	snprintf(status->report.reason, sizeof(status->report.reason),
		 "a call had not come back for %llu ms when this was written, and what it was to read is "
		 "missing: look at the driver's log, and record again",
		 (unsigned long long)(busy_ns / MT_NS_PER_MS));
}

/*
 * Of a source that is on: what it lacks because of calls that are not over. An end that nobody waited
 * for has its last look after it.
 */
static void say_unfinished(const struct mt_source *source, int is_over,
			   struct mt_collect_status *status)
{
	const struct mt_collect *collect = source->collect;
	uint64_t since_ns = source->is_ending ? 0 : source->busy_since_ns;
	uint64_t busy_ns = since_ns ? mt_monotonic_ns() - since_ns : 0;
	int lacks_last = is_over && collect->n_waited == collect->n_stops &&
			 source->n_finished != collect->n_stops;

	if (since_ns && busy_ns >= mt_collect_patience_ns(collect))
		say_hung(status, busy_ns);
	else if (lacks_last && since_ns)
		say_missing(status, "its last look had not come back when the recording ended: it is "
				    "slow, or the machine was busy, record again");
	else if (lacks_last)
		say_missing(status, "its last look had not been made when the recording ended: "
				    "the machine was busy, record again");
	else if (is_over && since_ns && since_ns < collect->stopped_ns)
		say_missing(status, "a call was under way when the recording ended, and for a tenth of "
				    "a second more: what it read may be missing");
	else if (is_over && !status->n_calls && !status->is_calls_unknown)
		say_missing(status, "it was not asked while this was recorded: record for longer");
}

void mt_collect_status_get(struct mt_collect *collect, uint32_t source, int is_over,
			   struct mt_collect_status *ret_status)
{
	pthread_mutex_lock(&collect->lock);
	*ret_status = collect->sources[source].status;
	if (ret_status->is_known && ret_status->report.state == MT_COLLECTOR_ON)
		say_unfinished(&collect->sources[source], is_over, ret_status);
	/* Who does not answer does not say what it lost. */
	if (ret_status->report.state == MT_COLLECTOR_HUNG)
		ret_status->is_dropped_unknown = 1;
	pthread_mutex_unlock(&collect->lock);
}
