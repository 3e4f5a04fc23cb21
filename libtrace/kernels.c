/* SPDX-License-Identifier: MIT */
/*
 * From KERNELS records to rows of table kernel. They were checked on the hot path, so only what
 * lies outside of the pass's own time is left to be marked.
 */
#include "libtrace/kernels.h"

#include "libtrace/collector.h"

#include <stdlib.h>
#include <string.h>

int mt_kernels_record(struct mt_open_pass *pass, const struct mt_record_kernels *record)
{
	uint64_t n = pass->n_kernels + record->n_times;
	uint64_t capacity = pass->kernels_capacity ? pass->kernels_capacity : 256;
	struct moetrace_kernel_time *grown;

	while (capacity < n)
		capacity *= 2;
	if (capacity > pass->kernels_capacity) {
		grown = realloc(pass->kernels, capacity * sizeof(*grown));
		if (!grown)
			return MOETRACE_E_NOMEM;
		pass->kernels = grown;
		pass->kernels_capacity = capacity;
	}
	memcpy(pass->kernels + pass->n_kernels, record->times,
	       record->n_times * sizeof(*record->times));
	pass->n_kernels = n;
	return MOETRACE_OK;
}

int mt_kernels_write(struct mt_assembly *assembly, struct mt_open_pass *pass, uint64_t end_ns)
{
	struct mt_kernel_row row = {
		.recording_id = assembly->recording_id,
		.device_id = MT_HOST_DEVICE_ID,
		.stream = MT_NULL,
		.pass_id = pass->pass_id,
		.known_by = MT_KNOWN_TOLD,
		.launch_shape_id = MT_NULL,
		.correlation = MT_NULL,
	};
	int status = MOETRACE_OK;

	if (assembly->mode == MOETRACE_MODE_STAT)
		return MOETRACE_OK;
	for (uint64_t i = 0; !status && i < pass->n_kernels; i++) {
		const struct moetrace_kernel_time *time = &pass->kernels[i];

		row.name_id = time->name;
		row.start_ns = (int64_t)time->start_ns;
		row.end_ns = (int64_t)time->end_ns;
		row.layer_id = time->layer_index == MOETRACE_NO_LAYER ?
				       MT_NULL :
				       (int64_t)pass->model->layers[time->layer_index].layer_id;
		row.flags = time->start_ns < pass->begin.record.time_ns || time->end_ns > end_ns ?
				    MT_TIME_OUTSIDE :
				    0;
		status = mt_store_kernel(assembly->store, &row);
	}
	assembly->counts.kernels += pass->n_kernels;
	return status;
}
