/* SPDX-License-Identifier: MIT */
/*
 * Readings of the collectors become rows, with each commit. Those from before the recording, and
 * all while nothing is recorded, are none of it; in flight mode they wait for the dump.
 */
#include "libtrace/writer_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libtrace/collect.h"

#define AT_ONCE 256u
/* So long after the last reading, and two intervals and a call, something is missing. */
#define MAX_SILENT_NS (500 * MT_NS_PER_MS)

/* ---- devices ---- */

int mt_writer_write_gpus(struct mt_writer *writer)
{
	int status = MOETRACE_OK;

	while (!status && writer->n_gpus_written < writer->n_gpus) {
		const struct mt_writer_gpu *gpu = &writer->gpus[writer->n_gpus_written++];

		status = mt_store_device(writer->store, "cuda", gpu->name, gpu->uuid, MT_NULL);
		if (!status && gpu->limit_mw != MT_UNKNOWN)
			status = mt_store_device_limit(writer->store,
						       MT_HOST_DEVICE_ID + writer->n_gpus_written,
						       gpu->limit_mw);
	}
	return status;
}

/* The place of a GPU among all; one whose id is not known is always another one. */
static struct mt_writer_gpu *find_gpu(struct mt_writer *writer, const char *uuid)
{
	for (uint32_t i = 0; uuid && i < writer->n_gpus; i++)
		if (writer->gpus[i].uuid && strcmp(writer->gpus[i].uuid, uuid) == 0)
			return &writer->gpus[i];
	return NULL;
}

int mt_writer_gpu(struct mt_writer *writer, const char *name, const char *uuid,
		  uint32_t *ret_index)
{
	struct mt_writer_gpu *gpu = find_gpu(writer, uuid);
	struct mt_writer_gpu *grown;

	if (!gpu) {
		grown = realloc(writer->gpus, (writer->n_gpus + 1ul) * sizeof(*grown));
		if (!grown)
			return MOETRACE_E_NOMEM;
		writer->gpus = grown;
		gpu = &grown[writer->n_gpus];
		*gpu = (struct mt_writer_gpu){ name ? strdup(name) : NULL,
					       uuid ? strdup(uuid) : NULL, MT_UNKNOWN };
		writer->n_gpus++;
	}
	*ret_index = (uint32_t)(gpu - writer->gpus);
	return mt_writer_write_gpus(writer);
}

void mt_writer_free_gpus(struct mt_writer *writer)
{
	for (uint32_t i = 0; i < writer->n_gpus; i++) {
		free(writer->gpus[i].name);
		free(writer->gpus[i].uuid);
	}
	free(writer->gpus);
}

/* The key of a collector's device; 0: it has none. */
static int device_id(struct mt_writer *writer, uint32_t device, int64_t *ret_device_id)
{
	struct mt_collect_device named;
	uint32_t index;
	int status;

	*ret_device_id = device == MT_DEVICE_HOST ? MT_HOST_DEVICE_ID : 0;
	if (device == MT_DEVICE_HOST ||
	    !mt_collect_device_get(writer->session->collect, device, &named))
		return MOETRACE_OK;
	status = mt_writer_gpu(writer, named.name[0] ? named.name : NULL, named.uuid, &index);
	*ret_device_id = status ? 0 : MT_HOST_DEVICE_ID + 1 + (int64_t)index;
	return status;
}

/* ---- readings ---- */

static int write_power(struct mt_writer *writer, const struct mt_power_reading *reading,
		       int64_t device)
{
	struct mt_writer_gpu *gpu =
		device > MT_HOST_DEVICE_ID ? &writer->gpus[device - MT_HOST_DEVICE_ID - 1] : NULL;
	int status = mt_store_power(writer->store, writer->recording_id, device, reading);

	/* A device's limit is not that of a part of it, or of what it is a part of. */
	if (status || !gpu || strcmp(reading->domain, "gpu") != 0 ||
	    reading->limit_mw == MT_UNKNOWN || reading->limit_mw == gpu->limit_mw)
		return status;
	gpu->limit_mw = reading->limit_mw;
	return mt_store_device_limit(writer->store, device, gpu->limit_mw);
}

/* Of a device that is not known, or of a kernel whose name, or a launch whose graph, is not. */
static int lose(struct mt_writer *writer, const struct mt_reading *reading)
{
	mt_collect_lose(writer->session->collect, reading->source);
	return MOETRACE_OK;
}

static int write_kernel(struct mt_writer *writer, const struct mt_reading *reading, int64_t device)
{
	int status = mt_writer_write_kernel(writer, &reading->kernel, device);

	if (status == MOETRACE_E_NOT_FOUND) {
		writer->n_readings[reading->source]--;
		return lose(writer, reading);
	}
	writer->n_invalid[reading->source] +=
		reading->kernel.flags != 0 || reading->kernel.n_untimed != 0;
	return status;
}

static int write_reading(struct mt_writer *writer, const struct mt_reading *reading)
{
	uint32_t device = reading->type == MT_READING_POWER ? reading->power.device :
			  reading->type == MT_READING_LINK  ? reading->link.device :
			  reading->type == MT_READING_KERNEL ? reading->kernel.device :
			  reading->type == MT_READING_CLOCK ? reading->clock.device :
							      MT_DEVICE_HOST;
	int64_t id;
	int status;

	if (mt_reading_ns(reading) < writer->start_ns ||
	    (reading->type == MT_READING_KERNEL &&
	     mt_writer_kernel_is_left_out(writer, &reading->kernel)))
		return MOETRACE_OK;
	status = device_id(writer, device, &id);
	if (!status && reading->type == MT_READING_CLOCK)
		return mt_store_device_clock(writer->store, id ? id : MT_NULL, &reading->clock);
	if (status)
		return status;
	if (!id)
		return lose(writer, reading);
	writer->n_readings[reading->source]++;
	if (mt_reading_ns(reading) > writer->last_reading_ns[reading->source])
		writer->last_reading_ns[reading->source] = mt_reading_ns(reading);
	switch (reading->type) {
	case MT_READING_POWER:
		return write_power(writer, &reading->power, id);
	case MT_READING_KERNEL:
		return write_kernel(writer, reading, id);
	case MT_READING_OVERHEAD:
		return mt_store_overhead(writer->store, writer->recording_id, &reading->overhead);
	case MT_READING_LINK:
		return mt_store_link(writer->store, writer->recording_id, id, &reading->link);
	default:
		return mt_store_host(writer->store, writer->recording_id, &reading->host);
	}
}

/* Written, or kept until its pass has closed; it is given back in the end. */
static int take_reading(struct mt_writer *writer, struct mt_reading *reading)
{
	int status;

	if (writer->recording_id && reading->type == MT_READING_KERNEL &&
	    mt_writer_kernel_waits(writer, &reading->kernel) &&
	    mt_tied_wait(&writer->tied, reading))
		return MOETRACE_OK;
	status = writer->recording_id ? write_reading(writer, reading) : MOETRACE_OK;
	mt_reading_release(reading);
	return status;
}

/* Those whose pass has come, or that have waited long enough; the others keep their order. */
static int take_waiting(struct mt_writer *writer)
{
	struct mt_tied *tied = &writer->tied;
	uint32_t n_kept = 0;
	int status = MOETRACE_OK;

	for (uint32_t i = 0; i < tied->n_waiting; i++) {
		struct mt_reading *reading = &tied->waiting[i];
		int failed = MOETRACE_OK;

		if (writer->recording_id && mt_writer_kernel_waits(writer, &reading->kernel)) {
			tied->waiting[n_kept++] = *reading;
			continue;
		}
		if (writer->recording_id)
			failed = write_reading(writer, reading);
		mt_reading_release(reading);
		status = status ? status : failed;
	}
	tied->n_waiting = n_kept;
	return status;
}

/* Its row is there from the first commit on; a recording may end before it is given up. */
static void say_unanswered(struct mt_collect_status *status)
{
	struct mt_collector_report *report = &status->report;

	report->state = MT_COLLECTOR_HUNG;
	status->is_dropped_unknown = 1;
	snprintf(report->reason, sizeof(report->reason),
		 "it has not answered yet: its start has not come back while this was recorded; "
		 "record for longer, and look at the driver's log");
}

/* Those that read at intervals bring rows until the end as long as nothing is wrong. */
static int reads_always(const char *name)
{
	static const char *const names[] = { "host", "rapl", "nvml" };

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (strcmp(name, names[i]) == 0)
			return 1;
	return 0;
}

/* A recording is over: a source that is on and has no more to say has read from the start to the end. */
static void say_silent(const struct mt_writer *writer, uint32_t i, struct mt_collect_status *status)
{
	struct mt_collector_report *report = &status->report;
	const uint64_t longest_ns = status->is_calls_unknown ? 0 : status->longest_call_ns;
	const uint64_t silent_ns = writer->end_ns - writer->last_reading_ns[i];

	if (report->state != MT_COLLECTOR_ON || report->reason[0] || !reads_always(status->name))
		return;
	if (!writer->n_readings[i]) {
		snprintf(report->reason, sizeof(report->reason),
			 "it read nothing while this was recorded: record for longer");
	} else if (!status->n_dropped && writer->end_ns > writer->last_reading_ns[i] &&
		   silent_ns > 2 * status->interval_ns + longest_ns + MAX_SILENT_NS) {
		status->is_dropped_unknown = 1;
		snprintf(report->reason, sizeof(report->reason),
			 "it read nothing in the last %llu ms: the machine was busy, record again",
			 (unsigned long long)(silent_ns / MT_NS_PER_MS));
	}
}

int mt_writer_write_collectors(struct mt_writer *writer)
{
	const int is_over = writer->end_ns != UINT64_MAX;
	const uint32_t n = mt_collect_count(writer->session->collect);
	int status = MOETRACE_OK;

	for (uint32_t i = 0; writer->recording_id && !status && i < n; i++) {
		struct mt_collect_status source;

		mt_collect_status_get(writer->session->collect, i, is_over, &source);
		if (!source.is_known)
			say_unanswered(&source);
		if (is_over)
			say_silent(writer, i, &source);
		status = mt_store_collector(writer->store, writer->recording_id, &source,
					    writer->n_readings[i], writer->n_invalid[i]);
	}
	return status;
}

int mt_writer_write_hung(struct mt_writer *writer)
{
	const uint32_t n = mt_collect_count(writer->session->collect);
	int status = MOETRACE_OK;

	for (uint32_t i = 0; !status && i < n; i++) {
		struct mt_collect_status source;

		mt_collect_status_get(writer->session->collect, i, 0, &source);
		if (source.has_hung_at_end)
			status = mt_store_collector_hung(writer->store, writer->file_recording_id,
							 &source);
	}
	return status;
}

int mt_writer_write_readings(struct mt_writer *writer)
{
	struct mt_collect *collect = writer->session->collect;
	struct mt_reading readings[AT_ONCE];
	uint32_t n;
	int status;

	/* In flight mode they wait for the dump, from before the first commit on. */
	if (!collect || !writer->flight.recording_id != !writer->flight.is_writing)
		return MOETRACE_OK;
	mt_collect_watch(collect);
	writer->looked_for.number = 0;
	status = take_waiting(writer);
	do {
		n = mt_collect_take(collect, writer->recording_id ? writer->end_ns : UINT64_MAX,
				    readings, AT_ONCE);
		for (uint32_t i = 0; i < n; i++) {
			int failed = take_reading(writer, &readings[i]);

			status = status ? status : failed;
		}
	} while (!status && n == AT_ONCE);
	return status;
}
