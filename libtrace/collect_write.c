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

/* The key of a launch's shape: there are few of them. */
static int shape_id(struct mt_writer *writer, const struct mt_kernel_reading *reading,
		    int64_t *ret_shape_id)
{
	struct mt_shape_row row = { 0, { reading->grid[0], reading->grid[1], reading->grid[2],
					 reading->block[0], reading->block[1], reading->block[2],
					 reading->registers, reading->static_shared_bytes,
					 reading->dynamic_shared_bytes } };
	struct mt_shape_row *grown;
	uint32_t i = writer->n_shapes;

	while (i > 0 && memcmp(writer->shapes[i - 1].values, row.values, sizeof(row.values)) != 0)
		i--;
	*ret_shape_id = i;
	if (i > 0)
		return MOETRACE_OK;
	grown = realloc(writer->shapes, (writer->n_shapes + 1ul) * sizeof(*grown));
	if (!grown)
		return MOETRACE_E_NOMEM;
	writer->shapes = grown;
	row.launch_shape_id = ++writer->n_shapes;
	grown[writer->n_shapes - 1] = row;
	*ret_shape_id = row.launch_shape_id;
	return mt_store_launch_shape(writer->store, &row);
}

static int write_kernel(struct mt_writer *writer, const struct mt_kernel_reading *reading,
			int64_t device)
{
	struct mt_kernel_row row = {
		.recording_id = writer->recording_id,
		.device_id = device,
		.stream = reading->stream,
		.name_id = reading->name,
		.start_ns = reading->start_ns,
		.end_ns = reading->end_ns,
		.pass_id = MT_NULL,
		.layer_id = MT_NULL,
		.known_by = MT_NULL,
		.flags = reading->flags,
		.launch_shape_id = MT_NULL,
		.correlation = reading->correlation,
	};
	int status;

	if (reading->is_graph)
		return mt_store_graph_launch(writer->store, &row);
	status = shape_id(writer, reading, &row.launch_shape_id);
	return status ? status : mt_store_kernel(writer->store, &row);
}

/* A kernel that ended before the recording began is none of it. */
static int is_early_kernel(const struct mt_writer *writer, const struct mt_reading *reading)
{
	return reading->type == MT_READING_KERNEL && reading->kernel.end_ns != MT_UNKNOWN &&
	       reading->kernel.end_ns < (int64_t)writer->start_ns;
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

	if (mt_reading_ns(reading) < writer->start_ns || is_early_kernel(writer, reading) ||
	    (reading->type == MT_READING_KERNEL && !reading->kernel.is_graph &&
	     !reading->kernel.name))
		return MOETRACE_OK;
	status = device_id(writer, device, &id);
	if (!status && reading->type == MT_READING_CLOCK)
		return mt_store_device_clock(writer->store, id ? id : MT_NULL, &reading->clock);
	if (status || !id)
		return status;
	writer->n_readings[reading->source]++;
	if (reading->type == MT_READING_POWER)
		return write_power(writer, &reading->power, id);
	if (reading->type == MT_READING_KERNEL) {
		writer->n_invalid[reading->source] += reading->kernel.flags != 0;
		return write_kernel(writer, &reading->kernel, id);
	}
	if (reading->type == MT_READING_LINK)
		return mt_store_link(writer->store, writer->recording_id, id, &reading->link);
	return mt_store_host(writer->store, writer->recording_id, &reading->host);
}

int mt_writer_write_collectors(struct mt_writer *writer)
{
	int status = MOETRACE_OK;

	for (uint32_t i = 0; writer->recording_id && !status && i < mt_collect_count(writer->session->collect); i++) {
		struct mt_collect_status source;

		mt_collect_status_get(writer->session->collect, i, &source);
		if (source.is_known)
			status = mt_store_collector(writer->store, writer->recording_id, &source,
						    writer->n_readings[i], writer->n_invalid[i]);
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
	return status;
}
