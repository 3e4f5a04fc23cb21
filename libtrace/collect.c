/* SPDX-License-Identifier: MIT */
/*
 * Threads of collectors. Each sleeps while nothing is recorded; while something is, it reads at its
 * interval, which doubles when a reading takes more than a fiftieth of it.
 */
#include "libtrace/collect.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "libtrace/clock.h"
#include "libtrace/session.h"

/* A call that lasts for longer is taken for one that never ends. */
#define DEFAULT_HANG_MS 3000u
#define MAX_HANG_MS	3600000ul
#define MAX_INTERVAL_NS (10 * MT_NS_PER_S)
#define BACK_OFF 50u
#define FULL_WAIT_NS (MT_NS_PER_S / 10)
#define CLOCK_INTERVAL_NS MT_NS_PER_S

struct source {
	struct mt_collect *collect;
	const struct mt_collector_ops *ops;
	struct mt_collector_out out;
	pthread_t thread;
	int has_thread;
	int has_left;           /* its thread is about to end */
	int is_cut;             /* nobody waits for it any more */
	uint32_t n_begun;       /* recordings that it has read for */
	uint32_t n_finished;    /* ends of recordings that it has read for */
	uint64_t busy_since_ns; /* CLOCK_MONOTONIC; 0: it is not called */
	struct mt_collect_status status;
};

struct mt_collect {
	struct moetrace_session *session; /* for its names, which the threads do not outlive */
	uint64_t start_monotonic_ns;
	struct mt_collector_places places;
	char paths[5][256];
	uint64_t hang_ns;
	pthread_mutex_t lock;             /* protects all that follows */
	pthread_cond_t changed;
	uint32_t n_users;                 /* the session, and threads */
	int is_closing;
	uint32_t n_starts;                /* recordings begun */
	uint32_t n_stops;                 /* and ended */
	struct mt_clock_map realtime;
	uint64_t last_pair_ns;
	char used_uuid[64];               /* of the GPU whose passes are recorded; "": none */
	uint32_t n_devices;
	struct mt_collect_device devices[MT_MAX_COLLECT_DEVICES];
	uint32_t n_sources;
	struct source sources[MT_MAX_COLLECTORS];
	uint64_t head;                    /* readings ever put in */
	uint64_t tail;                    /* and taken, or pushed out */
	struct mt_reading readings[MT_MAX_READINGS];
};

/* ---- names ---- */

static const struct mt_collector_ops *find_ops(const char *name, size_t n_bytes)
{
	for (uint32_t i = 0; mtc_registry[i]; i++)
		if (strlen(mtc_registry[i]->name) == n_bytes &&
		    memcmp(mtc_registry[i]->name, name, n_bytes) == 0)
			return mtc_registry[i];
	return NULL;
}

/* The next name of a list; its length, 0: there is none. */
static size_t next_name(const char **list, const char **ret_name)
{
	size_t n_bytes;

	*list += strspn(*list, ",");
	n_bytes = strcspn(*list, ",");
	*ret_name = *list;
	*list += n_bytes;
	return n_bytes;
}

static int is_none(const char *list)
{
	return !list || strcmp(list, "none") == 0;
}

int mt_collect_check(const char *list, char *ret_wrong)
{
	const char *name;
	size_t n_bytes;

	while (!is_none(list) && (n_bytes = next_name(&list, &name))) {
		if (find_ops(name, n_bytes))
			continue;
		snprintf(ret_wrong, 32, "%.*s", n_bytes < 31 ? (int)n_bytes : 31, name);
		return 0;
	}
	return 1;
}

void mt_collect_names(char *ret_names, size_t names_bytes)
{
	size_t n = 0;

	for (uint32_t i = 0; mtc_registry[i] && n < names_bytes; i++)
		n += (size_t)snprintf(ret_names + n, names_bytes - n, "%s%s", i ? "," : "",
				      mtc_registry[i]->name);
}

/* ---- what collectors call ---- */

static uint64_t session_now_ns(void *context)
{
	const struct source *source = context;

	return mt_monotonic_ns() - source->collect->start_monotonic_ns;
}

static uint64_t from_realtime(void *context, uint64_t realtime_ns)
{
	struct source *source = context;
	uint64_t session_ns;

	pthread_mutex_lock(&source->collect->lock);
	session_ns = mt_clock_map_to_session(&source->collect->realtime, realtime_ns);
	pthread_mutex_unlock(&source->collect->lock);
	return session_ns;
}

static uint32_t gpu(void *context, const char *uuid, const char *name)
{
	struct source *source = context;
	struct mt_collect *collect = source->collect;
	uint32_t i;

	pthread_mutex_lock(&collect->lock);
	for (i = 0; i < collect->n_devices; i++)
		if (strcmp(collect->devices[i].uuid, uuid) == 0)
			break;
	if (i == collect->n_devices && i < MT_MAX_COLLECT_DEVICES) {
		struct mt_collect_device *device = &collect->devices[collect->n_devices++];

		snprintf(device->uuid, sizeof(device->uuid), "%s", uuid);
		snprintf(device->name, sizeof(device->name), "%s", name);
	}
	pthread_mutex_unlock(&collect->lock);
	return i < MT_MAX_COLLECT_DEVICES ? i + 1 : MT_NO_DEVICE;
}

static int wants_gpu(void *context, const char *uuid)
{
	struct source *source = context;
	int is_wanted;

	pthread_mutex_lock(&source->collect->lock);
	is_wanted = !source->collect->used_uuid[0] ||
		    strcmp(source->collect->used_uuid, uuid) == 0;
	pthread_mutex_unlock(&source->collect->lock);
	return is_wanted;
}

static void put(struct source *source, struct mt_reading *reading)
{
	struct mt_collect *collect = source->collect;

	reading->source = (uint32_t)(source - collect->sources);
	pthread_mutex_lock(&collect->lock);
	if (!source->is_cut) {
		if (collect->head - collect->tail == MT_MAX_READINGS) {
			const struct mt_reading *oldest =
				&collect->readings[collect->tail++ % MT_MAX_READINGS];

			collect->sources[oldest->source].status.n_dropped++;
		}
		collect->readings[collect->head++ % MT_MAX_READINGS] = *reading;
	}
	pthread_mutex_unlock(&collect->lock);
}

static void put_power(void *context, const struct mt_power_reading *reading)
{
	put(context, &(struct mt_reading){ .type = MT_READING_POWER, .power = *reading });
}

static void put_link(void *context, const struct mt_link_reading *reading)
{
	put(context, &(struct mt_reading){ .type = MT_READING_LINK, .link = *reading });
}

static void put_host(void *context, const struct mt_host_reading *reading)
{
	put(context, &(struct mt_reading){ .type = MT_READING_HOST, .host = *reading });
}

static void sleep_until(struct source *source, uint64_t until_ns)
{
	const struct timespec until = { (time_t)(until_ns / MT_NS_PER_S),
					(long)(until_ns % MT_NS_PER_S) };

	(void)pthread_cond_timedwait(&source->collect->changed, &source->collect->lock, &until);
}

/* Kernels come by the ten thousand: the writer takes them every 20 ms. */
static void put_kernel(void *context, const struct mt_kernel_reading *reading)
{
	struct source *source = context;
	struct mt_collect *collect = source->collect;
	uint64_t until_ns = mt_monotonic_ns() + FULL_WAIT_NS;

	pthread_mutex_lock(&collect->lock);
	while (collect->head - collect->tail == MT_MAX_READINGS && !source->is_cut &&
	       !collect->is_closing && mt_monotonic_ns() < until_ns)
		sleep_until(source, until_ns);
	pthread_mutex_unlock(&collect->lock);
	put(context, &(struct mt_reading){ .type = MT_READING_KERNEL, .kernel = *reading });
}

/* One that was cut off has no session any more. */
static uint32_t add_name(void *context, const char *name, uint32_t role, uint32_t moves_data)
{
	struct source *source = context;
	uint32_t number = 0;

	pthread_mutex_lock(&source->collect->lock);
	if (!source->is_cut)
		(void)mt_strings_add(&source->collect->session->strings, name, role, moves_data,
				     &number);
	pthread_mutex_unlock(&source->collect->lock);
	return number;
}

static void count_dropped(void *context, int64_t n)
{
	struct source *source = context;

	pthread_mutex_lock(&source->collect->lock);
	if (n == MT_UNKNOWN)
		source->status.is_dropped_unknown = 1;
	else
		source->status.n_dropped += (uint64_t)n;
	pthread_mutex_unlock(&source->collect->lock);
}

/* ---- a collector's thread ---- */

static uint64_t read_realtime(void *context)
{
	(void)context;
	return mt_clock_ns(CLOCK_REALTIME);
}

/* Under the lock, about once a second, by whichever thread comes along. */
static void note_clock(struct mt_collect *collect, struct source *source)
{
	struct mt_clock_pair pair;

	if (collect->realtime.n &&
	    mt_monotonic_ns() - collect->last_pair_ns < CLOCK_INTERVAL_NS)
		return;
	collect->last_pair_ns = mt_monotonic_ns();
	pair = mt_clock_read_pair(session_now_ns, read_realtime, source);
	mt_clock_map_add(&collect->realtime, &pair);
}

static void begin_call(struct source *source)
{
	note_clock(source->collect, source);
	source->busy_since_ns = mt_monotonic_ns();
	pthread_mutex_unlock(&source->collect->lock);
}

/* What the call took; a slow one makes the next ones rarer. */
static void end_call(struct source *source, const struct mt_collector_report *report)
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
	if (cost_ns * BACK_OFF > status->interval_ns && status->interval_ns * 2 <= MAX_INTERVAL_NS)
		status->interval_ns *= 2;
	if (!source->is_cut)
		status->report = *report;
	status->is_known = 1;
}

static void open_source(struct source *source, void **ret_collector)
{
	struct mt_collector_report report = { .state = MT_COLLECTOR_ON };

	begin_call(source);
	source->ops->open(&source->collect->places, &source->out, ret_collector, &report);
	end_call(source, &report);
}

static void poll_source(struct source *source, void *collector, int is_first, int is_last)
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
	end_call(source, &report);
}

/* Read while recordings come and go; under the lock except in calls. */
static void serve(struct source *source, void **collector)
{
	struct mt_collect *collect = source->collect;
	uint64_t due_ns = 0;

	while (!collect->is_closing && !source->is_cut) {
		int is_first = source->n_begun != collect->n_starts;
		int is_last = source->n_finished != collect->n_stops;

		if (!is_first && !is_last && collect->n_starts == collect->n_stops) {
			pthread_cond_wait(&collect->changed, &collect->lock);
		} else if (!is_first && !is_last && mt_monotonic_ns() < due_ns) {
			sleep_until(source, due_ns);
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

/* The last user frees it: the session, or a thread that was left behind. */
static void leave(struct mt_collect *collect)
{
	int is_last = --collect->n_users == 0;

	pthread_mutex_unlock(&collect->lock);
	if (is_last) {
		pthread_cond_destroy(&collect->changed);
		pthread_mutex_destroy(&collect->lock);
		free(collect);
	}
}

static void *run(void *argument)
{
	struct source *source = argument;
	void *collector = NULL;

	pthread_mutex_lock(&source->collect->lock);
	if (source->ops->is_early)
		open_source(source, &collector);
	pthread_cond_broadcast(&source->collect->changed);
	serve(source, &collector);
	if (collector) {
		begin_call(source);
		source->ops->close(collector);
		pthread_mutex_lock(&source->collect->lock);
		source->busy_since_ns = 0;
	}
	source->has_left = 1;
	pthread_cond_broadcast(&source->collect->changed);
	leave(source->collect);
	return NULL;
}

/* ---- the session's side ---- */

static int start_thread(struct source *source)
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

static void add_source(struct mt_collect *collect, const struct mt_collector_ops *ops)
{
	struct source *source = &collect->sources[collect->n_sources];

	for (uint32_t i = 0; i < collect->n_sources; i++)
		if (collect->sources[i].ops == ops)
			return;
	if (collect->n_sources == MT_MAX_COLLECTORS)
		return;
	collect->n_sources++;
	source->collect = collect;
	source->ops = ops;
	source->status.name = ops->name;
	source->status.interval_ns = ops->interval_ns;
	source->out = (struct mt_collector_out){
		.context = source,
		.now_ns = session_now_ns,
		.from_realtime = from_realtime,
		.gpu = gpu,
		.wants_gpu = wants_gpu,
		.power = put_power,
		.link = put_link,
		.host = put_host,
		.kernel = put_kernel,
		.name = add_name,
		.dropped = count_dropped,
	};
}

/* Where the environment says, else where it always is. */
static const char *place(char *ret_path, const char *variable, const char *otherwise)
{
	const char *value = secure_getenv(variable);

	snprintf(ret_path, 256, "%s", value && *value ? value : otherwise);
	return ret_path;
}

/* What must be there before the program makes its first graph. */
static void wait_until_open(struct source *source)
{
	uint64_t until_ns = mt_monotonic_ns() + source->collect->hang_ns;

	pthread_mutex_lock(&source->collect->lock);
	while (source->ops->is_early && !source->status.is_known && mt_monotonic_ns() < until_ns)
		sleep_until(source, until_ns);
	pthread_mutex_unlock(&source->collect->lock);
}

/* How long a call may last. */
static uint64_t hang_ns(void)
{
	const char *value = secure_getenv("MOETRACE_COLLECTOR_TIMEOUT_MS");
	unsigned long ms = value ? strtoul(value, NULL, 10) : 0;

	return (ms && ms <= MAX_HANG_MS ? ms : DEFAULT_HANG_MS) * MT_NS_PER_MS;
}

int mt_collect_open(struct moetrace_session *session, const char *list,
		    struct mt_collect **ret_collect)
{
	struct mt_collect *collect;
	pthread_condattr_t attributes;
	const char *name;
	size_t n_bytes;
	int status = MOETRACE_OK;

	*ret_collect = NULL;
	if (is_none(list) || !*list)
		return MOETRACE_OK;
	collect = calloc(1, sizeof(*collect));
	if (!collect)
		return MOETRACE_E_NOMEM;
	collect->session = session;
	collect->start_monotonic_ns = session->start_monotonic_ns;
	collect->places.cupti = place(collect->paths[3], "MOETRACE_CUPTI", "");
	collect->places.cupti_mode = place(collect->paths[4], "MOETRACE_CUPTI_MODE", "graph");
	collect->places.proc = place(collect->paths[0], "MOETRACE_PROC", "/proc");
	collect->places.powercap = place(collect->paths[1], "MOETRACE_POWERCAP", "/sys/class/powercap");
	collect->places.nvml = place(collect->paths[2], "MOETRACE_NVML", "libnvidia-ml.so.1");
	collect->hang_ns = hang_ns();
	pthread_mutex_init(&collect->lock, NULL);
	pthread_condattr_init(&attributes);
	pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
	pthread_cond_init(&collect->changed, &attributes);
	pthread_condattr_destroy(&attributes);
	while ((n_bytes = next_name(&list, &name)))
		add_source(collect, find_ops(name, n_bytes));
	collect->n_users = 1;
	for (uint32_t i = 0; !status && i < collect->n_sources; i++) {
		collect->n_users++;
		status = start_thread(&collect->sources[i]);
		collect->n_users -= status != 0;
	}
	if (status)
		mt_collect_close(collect);
	else
		*ret_collect = collect;
	for (uint32_t i = 0; !status && i < collect->n_sources; i++)
		wait_until_open(&collect->sources[i]);
	return status;
}

/* Under the lock. */
static void cut_off(struct source *source)
{
	struct mt_collector_report *report = &source->status.report;

	source->is_cut = 1;
	source->status.is_known = 1;
	report->state = MT_COLLECTOR_HUNG;
	snprintf(report->reason, sizeof(report->reason),
		 "a call did not come back for %llu ms: it was cut off, and recording goes on "
		 "without it; look at the driver's log",
		 (unsigned long long)(source->collect->hang_ns / MT_NS_PER_MS));
}

/* Under the lock: wait until its thread is about to end; 0: it does not. */
static int wait_for_thread(struct source *source)
{
	uint64_t until_ns = mt_monotonic_ns() + source->collect->hang_ns;

	while (!source->has_left && !(source->is_cut && source->busy_since_ns) &&
	       mt_monotonic_ns() < until_ns)
		sleep_until(source, until_ns);
	return source->has_left;
}

void mt_collect_close(struct mt_collect *collect)
{
	if (!collect)
		return;
	pthread_mutex_lock(&collect->lock);
	collect->is_closing = 1;
	pthread_cond_broadcast(&collect->changed);
	for (uint32_t i = 0; i < collect->n_sources; i++) {
		struct source *source = &collect->sources[i];
		int has_left = source->has_thread && wait_for_thread(source);

		source->is_cut = 1;
		pthread_mutex_unlock(&collect->lock);
		if (has_left)
			pthread_join(source->thread, NULL);
		else if (source->has_thread)
			(void)pthread_detach(source->thread);
		pthread_mutex_lock(&collect->lock);
	}
	leave(collect);
}

void mt_collect_free(struct mt_collect *collect)
{
	free(collect);
}

void mt_collect_start(struct mt_collect *collect)
{
	if (!collect)
		return;
	pthread_mutex_lock(&collect->lock);
	collect->n_starts++;
	pthread_cond_broadcast(&collect->changed);
	pthread_mutex_unlock(&collect->lock);
}

void mt_collect_use_gpu(struct mt_collect *collect, const char *uuid)
{
	if (!collect)
		return;
	pthread_mutex_lock(&collect->lock);
	snprintf(collect->used_uuid, sizeof(collect->used_uuid), "%s", uuid);
	pthread_mutex_unlock(&collect->lock);
}

static int has_finished(const struct mt_collect *collect)
{
	for (uint32_t i = 0; i < collect->n_sources; i++)
		if (!collect->sources[i].is_cut &&
		    collect->sources[i].n_finished != collect->n_stops)
			return 0;
	return 1;
}

void mt_collect_stop(struct mt_collect *collect, uint64_t wait_ns)
{
	uint64_t until_ns = mt_monotonic_ns() + wait_ns;
	const struct timespec until = { (time_t)(until_ns / MT_NS_PER_S),
					(long)(until_ns % MT_NS_PER_S) };

	if (!collect)
		return;
	pthread_mutex_lock(&collect->lock);
	if (collect->n_stops != collect->n_starts) {
		collect->n_stops = collect->n_starts;
		pthread_cond_broadcast(&collect->changed);
	}
	while (wait_ns && !has_finished(collect) &&
	       pthread_cond_timedwait(&collect->changed, &collect->lock, &until) != ETIMEDOUT)
		continue;
	pthread_mutex_unlock(&collect->lock);
}

/* ---- the writer's side ---- */

void mt_collect_reset(struct mt_collect *collect)
{
	if (!collect)
		return;
	pthread_mutex_lock(&collect->lock);
	for (uint32_t i = 0; i < collect->n_sources; i++) {
		struct mt_collect_status *status = &collect->sources[i].status;

		status->n_dropped = 0;
		status->is_dropped_unknown = 0;
		status->n_calls = 0;
		status->calls_ns = 0;
		status->longest_call_ns = 0;
	}
	pthread_mutex_unlock(&collect->lock);
}

void mt_collect_watch(struct mt_collect *collect)
{
	uint64_t now_ns = mt_monotonic_ns();

	if (!collect)
		return;
	pthread_mutex_lock(&collect->lock);
	for (uint32_t i = 0; i < collect->n_sources; i++) {
		struct source *source = &collect->sources[i];

		if (!source->is_cut && source->busy_since_ns &&
		    now_ns > source->busy_since_ns + collect->hang_ns)
			cut_off(source);
	}
	pthread_mutex_unlock(&collect->lock);
}

uint64_t mt_reading_ns(const struct mt_reading *reading)
{
	return reading->type == MT_READING_POWER ? reading->power.time_ns :
	       reading->type == MT_READING_LINK	 ? reading->link.time_ns :
	       reading->type == MT_READING_KERNEL ? reading->kernel.time_ns :
						   reading->host.time_ns;
}

uint32_t mt_collect_take(struct mt_collect *collect, uint64_t until_ns,
			 struct mt_reading *ret_readings, uint32_t n_max)
{
	uint32_t n = 0;

	if (!collect)
		return 0;
	pthread_mutex_lock(&collect->lock);
	while (n < n_max && collect->tail < collect->head &&
	       mt_reading_ns(&collect->readings[collect->tail % MT_MAX_READINGS]) <= until_ns)
		ret_readings[n++] = collect->readings[collect->tail++ % MT_MAX_READINGS];
	if (n)
		pthread_cond_broadcast(&collect->changed);
	pthread_mutex_unlock(&collect->lock);
	return n;
}

uint32_t mt_collect_count(const struct mt_collect *collect)
{
	return collect ? collect->n_sources : 0;
}

void mt_collect_status_get(struct mt_collect *collect, uint32_t source,
			   struct mt_collect_status *ret_status)
{
	pthread_mutex_lock(&collect->lock);
	*ret_status = collect->sources[source].status;
	pthread_mutex_unlock(&collect->lock);
}

int mt_collect_device_get(struct mt_collect *collect, uint32_t device,
			  struct mt_collect_device *ret_device)
{
	int is_there;

	pthread_mutex_lock(&collect->lock);
	is_there = device >= 1 && device <= collect->n_devices;
	if (is_there)
		*ret_device = collect->devices[device - 1];
	pthread_mutex_unlock(&collect->lock);
	return is_there;
}
