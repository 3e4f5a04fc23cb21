/* SPDX-License-Identifier: MIT */
/*
 * What collectors call, and the list of readings between them and the writer. Each call takes the
 * lock for a moment; what a collector that was cut off says is dropped.
 */
#include "libtrace/collect_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libtrace/session.h"

#define FULL_WAIT_NS (MT_NS_PER_S / 10)

uint64_t mt_collect_now_ns(void *context)
{
	const struct mt_source *source = context;

	return mt_monotonic_ns() - source->collect->start_monotonic_ns;
}

static uint64_t from_realtime(void *context, uint64_t realtime_ns)
{
	struct mt_source *source = context;
	uint64_t session_ns;

	pthread_mutex_lock(&source->collect->lock);
	session_ns = mt_clock_map_to_session(&source->collect->realtime, realtime_ns);
	pthread_mutex_unlock(&source->collect->lock);
	return session_ns;
}

void mt_reading_release(struct mt_reading *reading)
{
	if (reading->type != MT_READING_KERNEL)
		return;
	free(reading->kernel.node_times);
	reading->kernel.node_times = NULL;
}

static void put(struct mt_source *source, struct mt_reading *reading)
{
	struct mt_collect *collect = source->collect;

	reading->source = (uint32_t)(source - collect->sources);
	pthread_mutex_lock(&collect->lock);
	if (source->is_cut) {
		mt_reading_release(reading);
	} else {
		if (collect->head - collect->tail == MT_MAX_READINGS) {
			struct mt_reading *oldest =
				&collect->readings[collect->tail++ % MT_MAX_READINGS];

			collect->sources[oldest->source].status.n_dropped++;
			collect->sources[oldest->source].pushed_out_ns = mt_reading_ns(oldest);
			mt_reading_release(oldest);
		}
		collect->readings[collect->head++ % MT_MAX_READINGS] = *reading;
	}
	pthread_mutex_unlock(&collect->lock);
}

/* The session's clock and another one, for mt_clock_read_pair(). */
struct comparison {
	struct mt_source *source;
	mt_clock_read_fn *read;
	void *reader;
};

static uint64_t read_session(void *context)
{
	return mt_collect_now_ns(((struct comparison *)context)->source);
}

static uint64_t read_other(void *context)
{
	struct comparison *comparison = context;

	return comparison->read(comparison->reader);
}

static void compare_clock(void *context, uint32_t device, enum mt_clock_kind clock,
			  mt_clock_read_fn *read, void *reader)
{
	struct mt_source *source = context;
	struct mt_collect *collect = source->collect;
	struct comparison comparison = { source, read, reader };
	/* Not under the lock: it calls a library. */
	struct mt_clock_pair pair = mt_clock_read_pair(read_session, read_other, &comparison);
	int is_due;

	if (!pair.other_ns)
		return;
	pthread_mutex_lock(&collect->lock);
	mt_clock_map_add(&collect->clocks[clock], &pair);
	is_due = !collect->clock_stored_ns[clock] ||
		 pair.session_ns - collect->clock_stored_ns[clock] >= MT_NS_PER_S;
	if (is_due)
		collect->clock_stored_ns[clock] = pair.session_ns;
	pthread_mutex_unlock(&collect->lock);
	if (is_due)
		put(source, &(struct mt_reading){
				    .type = MT_READING_CLOCK,
				    .clock = { device, clock, pair.session_ns, pair.other_ns,
					       pair.uncertainty_ns },
			    });
}

static uint64_t from_clock(void *context, enum mt_clock_kind clock, uint64_t clock_ns)
{
	struct mt_source *source = context;
	uint64_t session_ns;

	pthread_mutex_lock(&source->collect->lock);
	session_ns = mt_clock_map_to_session(&source->collect->clocks[clock], clock_ns);
	pthread_mutex_unlock(&source->collect->lock);
	return session_ns;
}

static uint32_t gpu(void *context, const char *uuid, const char *name)
{
	struct mt_source *source = context;
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
	struct mt_source *source = context;
	int is_wanted;

	pthread_mutex_lock(&source->collect->lock);
	is_wanted = !source->collect->n_used;
	for (uint32_t i = 0; i < source->collect->n_used; i++)
		is_wanted |= strcmp(source->collect->used_uuids[i], uuid) == 0;
	pthread_mutex_unlock(&source->collect->lock);
	return is_wanted;
}

static void note_version(void *context, const char *what, const char *version)
{
	struct mt_source *source = context;

	pthread_mutex_lock(&source->collect->lock);
	if (!source->is_cut)
		mt_versions_set(&source->collect->versions, what, version);
	pthread_mutex_unlock(&source->collect->lock);
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

static void put_overhead(void *context, const struct mt_overhead_reading *reading)
{
	put(context, &(struct mt_reading){ .type = MT_READING_OVERHEAD, .overhead = *reading });
}

/* Kernels come by the ten thousand: the writer takes them every 20 ms. */
static void put_kernel(void *context, const struct mt_kernel_reading *reading)
{
	struct mt_source *source = context;
	struct mt_collect *collect = source->collect;
	uint64_t until_ns = mt_monotonic_ns() + FULL_WAIT_NS;

	pthread_mutex_lock(&collect->lock);
	while (collect->head - collect->tail == MT_MAX_READINGS && !source->is_cut &&
	       !collect->is_closing && mt_monotonic_ns() < until_ns)
		mt_collect_sleep_until(source, until_ns);
	pthread_mutex_unlock(&collect->lock);
	put(context, &(struct mt_reading){ .type = MT_READING_KERNEL, .kernel = *reading });
}

/* One that was cut off has no session any more. */
static uint32_t add_name(void *context, const char *name, uint32_t role, uint32_t moves_data)
{
	struct mt_source *source = context;
	uint32_t number = 0;

	pthread_mutex_lock(&source->collect->lock);
	if (!source->is_cut)
		(void)mt_strings_add(&source->collect->session->strings, name, role, moves_data,
				     NULL, &number);
	pthread_mutex_unlock(&source->collect->lock);
	return number;
}

static void count_dropped(void *context, int64_t n)
{
	struct mt_source *source = context;

	pthread_mutex_lock(&source->collect->lock);
	if (n == MT_UNKNOWN)
		source->status.is_dropped_unknown = 1;
	else
		source->status.n_dropped += (uint64_t)n;
	source->n_dropped += n == MT_UNKNOWN ? 0 : (uint64_t)n;
	pthread_mutex_unlock(&source->collect->lock);
}

void mt_collect_out_fill(struct mt_source *source)
{
	source->out = (struct mt_collector_out){
		.context = source,
		.now_ns = mt_collect_now_ns,
		.from_realtime = from_realtime,
		.compare_clock = compare_clock,
		.from_clock = from_clock,
		.version = note_version,
		.gpu = gpu,
		.wants_gpu = wants_gpu,
		.power = put_power,
		.link = put_link,
		.host = put_host,
		.kernel = put_kernel,
		.overhead = put_overhead,
		.name = add_name,
		.dropped = count_dropped,
	};
	mt_collect_graph_fill(&source->out);
}

/* ---- the writer's side ---- */

uint64_t mt_reading_ns(const struct mt_reading *reading)
{
	return reading->type == MT_READING_POWER ? reading->power.time_ns :
	       reading->type == MT_READING_LINK	 ? reading->link.time_ns :
	       reading->type == MT_READING_KERNEL ? reading->kernel.time_ns :
	       reading->type == MT_READING_CLOCK ? reading->clock.session_ns :
	       reading->type == MT_READING_OVERHEAD ? reading->overhead.time_ns :
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

void mt_collect_lose(struct mt_collect *collect, uint32_t source)
{
	count_dropped(&collect->sources[source], 1);
}

void mt_collect_versions_get(struct mt_collect *collect, struct mt_versions *versions)
{
	if (!collect)
		return;
	pthread_mutex_lock(&collect->lock);
	for (uint32_t i = 0; i < collect->versions.n; i++)
		mt_versions_set(versions, collect->versions.entries[i].what,
				collect->versions.entries[i].version);
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
