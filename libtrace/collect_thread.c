/* SPDX-License-Identifier: MIT */
/*
 * The threads of collectors. Each sleeps while nothing is recorded; while something is, it reads at
 * its interval, which doubles when a reading takes more than a tenth of it in the mean. The lock is held but
 * in a collector's calls.
 */
#include "libtrace/collect_internal.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "libtrace/session.h"

#define MAX_INTERVAL_NS (10 * MT_NS_PER_S)
/* A power reading of a large GPU takes 3 to 4 ms: that is to be possible ten times a second. */
#define BACK_OFF 10u
#define COME_BACK 25u
#define MEAN_OF 8
#define CLOCK_INTERVAL_NS MT_NS_PER_S

void mt_collect_sleep_until(struct mt_source *source, uint64_t until_ns)
{
	const struct timespec until = { (time_t)(until_ns / MT_NS_PER_S),
					(long)(until_ns % MT_NS_PER_S) };

	(void)pthread_cond_timedwait(&source->collect->changed, &source->collect->lock, &until);
}

static uint64_t read_realtime(void *context)
{
	(void)context;
	return mt_clock_ns(CLOCK_REALTIME);
}

/* Under the lock, about once a second, by whichever thread comes along. */
static void note_clock(struct mt_collect *collect, struct mt_source *source)
{
	struct mt_clock_pair pair;

	if (collect->realtime.n &&
	    mt_monotonic_ns() - collect->last_pair_ns < CLOCK_INTERVAL_NS)
		return;
	collect->last_pair_ns = mt_monotonic_ns();
	pair = mt_clock_read_pair(mt_collect_now_ns, read_realtime, source);
	mt_clock_map_add(&collect->realtime, &pair);
}

static void begin_call(struct mt_source *source)
{
	note_clock(source->collect, source);
	source->busy_since_ns = mt_monotonic_ns();
	pthread_mutex_unlock(&source->collect->lock);
}

/* Slow readings become rarer, until they are quick again. The first one brings everything up. */
static void set_pace(struct mt_source *source, uint64_t cost_ns, int is_first)
{
	uint64_t *interval_ns = &source->status.interval_ns;
	int64_t change_ns = (int64_t)cost_ns - (int64_t)source->mean_ns;

	if (is_first)
		return;
	source->mean_ns = source->mean_ns ?
				  source->mean_ns + (uint64_t)(change_ns / MEAN_OF) :
				  cost_ns;
	if (source->mean_ns * BACK_OFF > *interval_ns && *interval_ns * 2 <= MAX_INTERVAL_NS)
		*interval_ns *= 2;
	else if (source->mean_ns * COME_BACK < *interval_ns &&
		 *interval_ns / 2 >= source->ops->interval_ns)
		*interval_ns /= 2;
}

/* What the call took. */
static uint64_t end_call(struct mt_source *source, const struct mt_collector_report *report)
{
	struct mt_collect_status *status = &source->status;
	uint64_t cost_ns;

	pthread_mutex_lock(&source->collect->lock);
	cost_ns = mt_monotonic_ns() - source->busy_since_ns;
	source->busy_since_ns = 0;
	status->n_calls++;
	status->calls_ns += cost_ns;
	if (cost_ns > status->longest_call_ns)
		status->longest_call_ns = cost_ns;
	mt_collect_call_note(source, cost_ns);
	if (!source->is_cut)
		status->report = *report;
	status->is_known = 1;
	pthread_cond_broadcast(&source->collect->changed);
	return cost_ns;
}

static void open_source(struct mt_source *source, void **ret_collector)
{
	struct mt_collector_report report = { .state = MT_COLLECTOR_ON };

	begin_call(source);
	source->ops->open(&source->collect->places, &source->out, ret_collector, &report);
	(void)end_call(source, &report);
}

static void poll_source(struct mt_source *source, void *collector, int is_first, int is_last)
{
	struct mt_collector_report report = source->status.report;

	if (source->status.report.state != MT_COLLECTOR_ON)
		return;
	begin_call(source);
	if (is_first && source->ops->begin)
		source->ops->begin(collector);
	source->ops->poll(collector, &report);
	if (is_last && source->ops->rest)
		source->ops->rest(collector);
	set_pace(source, end_call(source, &report), is_first);
}

/*
 * A recording has ended, and the next one has begun meanwhile: the end comes first, as what begins
 * after it would be ended with it. Of a recording that was never read there is none.
 */
static void end_last(struct mt_source *source, void *collector)
{
	uint32_t n_stops = source->collect->n_stops;

	if (source->n_begun != source->n_finished)
		poll_source(source, collector, 0, 1);
	source->n_finished = n_stops;
	pthread_cond_broadcast(&source->collect->changed);
}

/* Read while recordings come and go; under the lock except in calls. */
static void serve(struct mt_source *source, void **collector)
{
	struct mt_collect *collect = source->collect;
	uint64_t due_ns = 0;

	while (!collect->is_closing && !source->is_cut) {
		int is_first = source->n_begun != collect->n_starts;
		int is_last = source->n_finished != collect->n_stops;

		if (!is_first && !is_last && collect->n_starts == collect->n_stops) {
			pthread_cond_wait(&collect->changed, &collect->lock);
		} else if (!is_first && !is_last && mt_monotonic_ns() < due_ns) {
			mt_collect_sleep_until(source, due_ns);
		} else if (is_first && is_last && collect->n_starts != collect->n_stops) {
			end_last(source, *collector);
		} else {
			uint32_t n_starts = collect->n_starts, n_stops = collect->n_stops;

			if (!source->status.is_known)
				open_source(source, collector);
			poll_source(source, *collector, is_first, is_last);
			source->n_begun = n_starts;
			source->n_finished = n_stops;
			due_ns = mt_monotonic_ns() + source->status.interval_ns;
			pthread_cond_broadcast(&collect->changed);
		}
	}
}

void mt_collect_leave(struct mt_collect *collect)
{
	int is_last = --collect->n_users == 0;

	pthread_mutex_unlock(&collect->lock);
	if (is_last) {
		pthread_cond_destroy(&collect->changed);
		pthread_mutex_destroy(&collect->lock);
		mt_collect_free(collect);
	}
}

static void *run(void *argument)
{
	struct mt_source *source = argument;
	void *collector = NULL;

	pthread_mutex_lock(&source->collect->lock);
	if (source->ops->is_early)
		open_source(source, &collector);
	pthread_cond_broadcast(&source->collect->changed);
	serve(source, &collector);
	if (collector) {
		source->is_ending = 1;
		begin_call(source);
		source->ops->close(collector);
		pthread_mutex_lock(&source->collect->lock);
		source->busy_since_ns = 0;
	}
	source->has_left = 1;
	pthread_cond_broadcast(&source->collect->changed);
	mt_collect_leave(source->collect);
	return NULL;
}

int mt_collect_thread_start(struct mt_source *source)
{
	char name[16];
	sigset_t all, before;
	int result;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	result = pthread_create(&source->thread, NULL, run, source);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (result)
		return MOETRACE_E_NOMEM;
	snprintf(name, sizeof(name), "moetrace-%.6s", source->ops->name);
	(void)pthread_setname_np(source->thread, name);
	source->has_thread = 1;
	return MOETRACE_OK;
}
