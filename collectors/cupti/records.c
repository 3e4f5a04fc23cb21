/* SPDX-License-Identifier: MIT */
/*
 * The records of a buffer, one after the other. Kernels of graphs are put together by launch; launches
 * of graphs go through the order of their stream; what is launched alone and CUPTI's own time are handed
 * on at once.
 */
#include "collectors/cupti/records.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "collectors/cupti/launches.h"
#include "collectors/cupti/serial.h"
#include "collectors/cupti/times.h"
#include "common/library.h"

/* The GPU behind an ordinal of CUDA: asked from the driver, whose library is there already. */
static void find_gpu(uint32_t ordinal, char *ret_uuid, size_t uuid_bytes)
{
	char why[160];
	void *library = NULL;
	int is_there = mt_library_open("libcuda.so.1", RTLD_NOW | RTLD_LOCAL, &library, why,
				       sizeof(why)) == MT_LIBRARY_FOUND;
	void *symbols[2] = { is_there ? dlsym(library, "cuDeviceGet") : NULL,
			     is_there ? dlsym(library, "cuDeviceGetUuid_v2") : NULL };
	int (*get)(int *, int) = NULL;
	int (*get_uuid)(unsigned char *, int) = NULL;
	unsigned char b[16];
	int device;

	memcpy(&get, &symbols[0], sizeof(get));
	memcpy(&get_uuid, &symbols[1], sizeof(get_uuid));
	snprintf(ret_uuid, uuid_bytes, "cuda:%u", ordinal);
	if (!get || !get_uuid || get(&device, (int)ordinal) || get_uuid(b, device))
		return;
	snprintf(ret_uuid, uuid_bytes,
		 "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", b[0],
		 b[1], b[2], b[3], b[4], b[5], b[6], b[7], b[8], b[9], b[10], b[11], b[12], b[13],
		 b[14], b[15]);
}

static uint32_t device_of(struct mtc_cupti_records *records, uint32_t ordinal)
{
	char uuid[64];

	if (ordinal >= MTC_CUPTI_MAX_DEVICES)
		return MT_NO_DEVICE;
	if (records->devices[ordinal] == MT_NO_DEVICE) {
		find_gpu(ordinal, uuid, sizeof(uuid));
		records->devices[ordinal] =
			records->out->gpu(records->out->context, uuid, "");
	}
	return records->devices[ordinal];
}

/* The latest one that was delivered; ids go round. */
static void note_delivered(struct mtc_cupti_records *records, uint32_t correlation)
{
	if (!records->last_correlation || (int32_t)(correlation - records->last_correlation) > 0)
		records->last_correlation = correlation;
}

static void copy_shape(const struct mtc_cupti_kernel *kernel, int32_t *ret_shape)
{
	memcpy(ret_shape, kernel->grid, sizeof(kernel->grid));
	memcpy(ret_shape + 3, kernel->block, sizeof(kernel->block));
	ret_shape[6] = kernel->registers;
	ret_shape[7] = kernel->static_shared_bytes;
	ret_shape[8] = kernel->dynamic_shared_bytes;
}

static void take_node(struct mtc_cupti_records *records, const struct mtc_cupti_kernel *kernel)
{
	const struct mtc_cupti_launch_record launch = {
		.correlation = kernel->correlation,
		.graph = kernel->graph,
		.device = device_of(records, kernel->device),
		.stream = kernel->stream,
		.is_sampled = records->is_sampled != 0,
	};
	struct mtc_cupti_node_record node = {
		.node_id = kernel->graph_node,
		.start_ns = kernel->start_ns,
		.end_ns = kernel->end_ns,
		.stream = kernel->stream,
		.name = kernel->name,
	};

	note_delivered(records, kernel->correlation);
	copy_shape(kernel, node.shape);
	if (mtc_cupti_graphs_add(records->graphs, &launch, &node))
		records->out->dropped(records->out->context, 1);
}

static void take_kernel(struct mtc_cupti_records *records, const struct mtc_cupti_kernel *kernel)
{
	const struct mt_collector_out *out = records->out;
	struct mtc_cupti_tie tie = mtc_cupti_launch_tie(kernel->correlation);
	struct mt_kernel_reading reading = {
		.device = device_of(records, kernel->device),
		.is_sampled = records->is_sampled != 0,
		.time_ns = out->now_ns(out->context),
		.name = mtc_cupti_graphs_name(records->graphs, kernel->name,
					      tie.mark ? mt_mark_role(tie.mark) : MT_MARK_NO_ROLE),
		.stream = kernel->stream,
		.correlation = kernel->correlation,
		.pass = tie.pass,
		.mark = tie.mark,
	};

	note_delivered(records, kernel->correlation);
	copy_shape(kernel, reading.shape);
	mtc_cupti_times(out, kernel->start_ns, kernel->end_ns, tie.launch_ns, &reading);
	/* Those that chain may overlap as they like, and their stamps are nobody else's. */
	out->kernel(out->context, &reading);
}

static void take_graph(struct mtc_cupti_records *records, const struct mtc_cupti_graph *graph)
{
	const struct mt_collector_out *out = records->out;
	struct mtc_cupti_tie tie = mtc_cupti_launch_tie(graph->correlation);
	struct mt_kernel_reading reading = {
		.device = device_of(records, graph->device),
		.time_ns = out->now_ns(out->context),
		.is_graph = 1,
		.stream = graph->stream,
		.correlation = graph->correlation,
		.pass = tie.pass,
		.mark = tie.mark,
	};

	note_delivered(records, graph->correlation);
	mtc_cupti_times(out, graph->start_ns, graph->end_ns, tie.launch_ns, &reading);
	mtc_cupti_serial_add(records->serial, &reading);
}

static const char *overhead_kind(uint32_t overhead)
{
	static const char *const kinds[] = { NULL, "buffer_flush", "instrumentation", "resource",
					     "module_loading", "function_loading",
					     "command_buffer_full", "buffer_request" };
	uint32_t i = overhead >> 16;

	if (overhead == 1)
		return "compiler";
	return i < sizeof(kinds) / sizeof(kinds[0]) && kinds[i] ? kinds[i] : "other";
}

/* Those without times say nothing. */
static void take_overhead(struct mtc_cupti_records *records,
			  const struct mtc_cupti_overhead *overhead)
{
	const struct mt_collector_out *out = records->out;
	int has_data = records->api->version_number >= MTC_CUPTI_OVERHEAD_DATA;
	uint64_t start_ns = overhead->start_ns ?
				    out->from_clock(out->context, MT_CLOCK_CUPTI, overhead->start_ns) :
				    0;
	struct mt_overhead_reading reading = {
		.time_ns = out->now_ns(out->context),
		.start_ns = (int64_t)start_ns,
		.end_ns = (int64_t)(start_ns + overhead->end_ns - overhead->start_ns),
		.correlation = has_data ? overhead->correlation : 0,
		.kind = overhead_kind(overhead->overhead),
	};

	if (records->is_wanted && start_ns && overhead->end_ns >= overhead->start_ns)
		out->overhead(out->context, &reading);
	if (has_data)
		free(overhead->data);
}

void mtc_cupti_records_begin(struct mtc_cupti_records *records)
{
	memset(records->devices, 0xff, sizeof(records->devices));
}

void mtc_cupti_records_take(void *context, uint8_t *buffer, size_t valid_bytes)
{
	struct mtc_cupti_records *records = context;
	void *record = NULL;
	uint32_t kind;
	int result;

	while ((result = records->api->next_record(buffer, valid_bytes, &record)) == MTC_CUPTI_OK) {
		memcpy(&kind, record, sizeof(kind));
		records->n_taken += kind != MTC_CUPTI_OVERHEAD;
		if (kind == MTC_CUPTI_OVERHEAD)
			take_overhead(records, record);
		else if (!records->is_wanted)
			continue;
		else if (kind == MTC_CUPTI_GRAPH_TRACE)
			take_graph(records, record);
		else if (kind == MTC_CUPTI_CONCURRENT_KERNEL &&
			 ((const struct mtc_cupti_kernel *)record)->graph)
			take_node(records, record);
		else if (kind == MTC_CUPTI_CONCURRENT_KERNEL)
			take_kernel(records, record);
	}
	/* Nobody knows how many are behind one that cannot be read. */
	if (result != MTC_CUPTI_MAX_LIMIT_REACHED && records->is_wanted)
		records->out->dropped(records->out->context, MT_UNKNOWN);
}
