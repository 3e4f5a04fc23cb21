/* SPDX-License-Identifier: MIT */
/*
 * Readings of the collectors become rows, with each commit. Those from before the recording, and
 * all while nothing is recorded, are none of it; in flight mode they wait for the dump.
 */
#include "libtrace/writer_internal.h"

#include <stdlib.h>
#include <string.h>

#include "libtrace/collect.h"

#define AT_ONCE 256u

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

	if (status || !gpu || reading->limit_mw == MT_UNKNOWN || reading->limit_mw == gpu->limit_mw)
		return status;
	gpu->limit_mw = reading->limit_mw;
	return mt_store_device_limit(writer->store, device, gpu->limit_mw);
}

static int write_reading(struct mt_writer *writer, const struct mt_reading *reading)
{
	uint32_t device = reading->type == MT_READING_POWER ? reading->power.device :
			  reading->type == MT_READING_LINK  ? reading->link.device :
							      MT_DEVICE_HOST;
	int64_t id;
	int status;

	if (mt_reading_ns(reading) < writer->start_ns)
		return MOETRACE_OK;
	status = device_id(writer, device, &id);
	if (status || !id)
		return status;
	writer->n_readings[reading->source]++;
	if (reading->type == MT_READING_POWER)
		return write_power(writer, &reading->power, id);
	if (reading->type == MT_READING_LINK)
		return mt_store_link(writer->store, writer->recording_id, id, &reading->link);
	return mt_store_host(writer->store, writer->recording_id, &reading->host);
}

static int write_states(struct mt_writer *writer)
{
	int status = MOETRACE_OK;

	for (uint32_t i = 0; !status && i < mt_collect_count(writer->session->collect); i++) {
		struct mt_collect_status source;

		mt_collect_status_get(writer->session->collect, i, &source);
		if (source.is_known)
			status = mt_store_collector(writer->store, writer->recording_id, &source,
						    writer->n_readings[i]);
	}
	return status;
}

int mt_writer_write_readings(struct mt_writer *writer)
{
	struct mt_collect *collect = writer->session->collect;
	struct mt_reading readings[AT_ONCE];
	uint32_t n;
	int status = MOETRACE_OK;

	if (!collect || (writer->flight.recording_id && !writer->flight.is_writing))
		return MOETRACE_OK;
	mt_collect_watch(collect);
	do {
		n = mt_collect_take(collect, writer->recording_id ? writer->end_ns : UINT64_MAX,
				    readings, AT_ONCE);
		for (uint32_t i = 0; writer->recording_id && !status && i < n; i++)
			status = write_reading(writer, &readings[i]);
	} while (!status && n == AT_ONCE);
	return status || !writer->recording_id ? status : write_states(writer);
}
