/* SPDX-License-Identifier: MIT */
/*
 * A pass closes: its verdict, its row and those of its slices and layers, and what it means for the
 * requests and for expert load. Invariant: all of it goes into the transaction that is open, so
 * that a reader finds the whole pass or nothing of it.
 */
#include "libtrace/assembly_internal.h"

#include <string.h>

#include "libtrace/collectives.h"
#include "libtrace/kernels.h"
#include "libtrace/layer.h"
#include "libtrace/parts.h"

/* Layers that did not come: dropped by us, or never written. Returns the pass's reasons. */
static uint32_t judge(const struct mt_assembly *assembly, struct mt_open_pass *pass,
		      const struct mt_record_end *end)
{
	uint32_t reasons = (end ? 0 : MT_REASON_UNENDED) |
			   (pass->is_sampled ? MT_REASON_SAMPLED : 0);

	if (pass->so_far.invalid_ids)
		reasons |= MT_REASON_INVALID;
	for (uint32_t i = 0; i < pass->model->n_layers; i++) {
		struct mt_layer_row *row = &pass->layers[i].row;

		if (row->state == MT_LAYER_STORED)
			continue;
		if (row->state == MT_LAYER_COUNTED) {
			if (assembly->mode == MOETRACE_MODE_PER_TOKEN)
				reasons |= MT_REASON_COUNTED;
			continue;
		}
		if (end && (end->dropped_layers[i / 64] >> (i % 64) & 1)) {
			row->state = MT_LAYER_DROPPED;
			reasons |= MT_REASON_LOST;
		} else if (pass->begin.n_rows && end) {
			reasons |= MT_REASON_UNWRITTEN;
			pass->so_far.unwritten_layers++;
		}
	}
	return reasons;
}

static const char *const phase_names[] = {
	[MOETRACE_PHASE_PREFILL] = "prefill", [MOETRACE_PHASE_DECODE] = "decode",
	[MOETRACE_PHASE_MIXED] = "mixed",     [MOETRACE_PHASE_VERIFY] = "verify",
	[MOETRACE_PHASE_DRAFT] = "draft",     [MOETRACE_PHASE_IDLE] = "idle",
	[MOETRACE_PHASE_DUMMY] = "dummy",
};

/* A device's message comes before its first pass. */
static int64_t device_of(const struct mt_assembly *assembly, uint32_t gpu)
{
	const int64_t device_id = gpu ? assembly->gpu_ids[gpu - 1] : 0;

	return device_id ? device_id : MT_NULL;
}

static int write_pass(struct mt_assembly *assembly, const struct mt_open_pass *pass,
		      const struct mt_record_end *end, uint32_t reasons)
{
	char text[MT_REASONS_BYTES];
	struct mt_pass_row row = {
		.pass_id = assembly->last_pass_id,
		.recording_id = assembly->recording_id,
		.model_id = pass->model->model_id,
		.phase = phase_names[pass->begin.phase],
		.begin_ns = (int64_t)pass->begin.record.time_ns,
		.end_ns = end ? (int64_t)end->record.time_ns : MT_NULL,
		.n_rows = pass->begin.n_rows,
		.padding_rows = pass->begin.padding_rows,
		.runtime_pass = pass->begin.has_runtime_pass ? (int64_t)pass->begin.runtime_pass :
							       MT_NULL,
		.parent_pass_id = mt_parts_parent(assembly, pass),
		.microbatch = pass->begin.has_microbatch ? pass->begin.microbatch : MT_NULL,
		.device_id = device_of(assembly, pass->begin.gpu),
		.verdict = reasons ? "partial" : "complete",
		.reasons = mt_reasons_text(reasons, text),
		.n_dropped = end ? (int64_t)end->n_dropped : 0,
	};

	return mt_store_pass(assembly->store, &row);
}

/* A list of positions that follow each other says no more than its first one. */
static int is_consecutive(const uint32_t *positions, uint32_t n)
{
	for (uint32_t i = 1; i < n; i++)
		if (positions[i] != positions[i - 1] + 1u || positions[i] == 0)
			return 0;
	return 1;
}

/*
 * A pass's invalid ids are a fault of the slices that have them, not of those beside; and rows are
 * missing of the requests that are not sampled.
 */
static uint32_t slice_reasons(const struct mt_open_pass *pass, const struct mt_slice_row *row,
			      uint32_t reasons)
{
	if (pass->is_sampled && row->n_rows && pass->is_kept[row->row_offset])
		reasons &= ~(uint32_t)MT_REASON_SAMPLED;
	if ((reasons & MT_REASON_INVALID) &&
	    !memchr(pass->invalid_rows + row->row_offset, 1, (size_t)row->n_rows))
		reasons &= ~(uint32_t)MT_REASON_INVALID;
	return reasons;
}

static void keep_slice(struct mt_open_pass *pass, const struct mt_slice_owner *owner,
		       const struct mt_ledger_slice *seen, uint32_t row_offset)
{
	struct mt_experts_slice slice = {
		.request_id = owner->request ? owner->request->request_id : 0,
		.attempt = seen->attempt,
		.phase = seen->phase,
		.first_position = seen->first_position,
		.positions = seen->positions,
		.accepted = seen->accepted,
		.row_offset = row_offset,
		.n_rows = seen->n_rows,
	};

	if (!pass->recent || mt_recent_slice(pass->recent, seen->slice, &slice) == MOETRACE_OK)
		return;
	mt_recent_free(pass->recent);
	pass->recent = NULL;
}

/* The pass is complete in memory, or all before it is given up. */
static void keep_pass(struct mt_assembly *assembly, struct mt_open_pass *pass)
{
	for (uint32_t i = 0; pass->recent && i < pass->model->n_layers; i++)
		pass->recent->layers[i].rows.state = pass->layers[i].row.state;
	if (pass->recent)
		pass->recent->is_sampled = pass->is_sampled;
	if (pass->begin.n_slices && assembly->mode != MOETRACE_MODE_STAT)
		mt_recent_end(&assembly->recent, pass->recent, pass->pass_id);
	pass->recent = NULL;
}

static int write_slice(struct mt_assembly *assembly, struct mt_open_pass *pass,
		       const struct mt_record_slice *slice, const struct mt_slice_owner *owner,
		       struct mt_slice_row *row, uint32_t reasons)
{
	struct mt_ledger_slice seen = {
		.number = pass->begin.number,
		.pass_id = row->pass_id,
		.slice = (uint32_t)row->slice,
		.attempt = owner->attempt,
		.model_id = pass->model->model_id,
		.is_target = pass->model->kind == MOETRACE_MODEL_TARGET,
		.phase = slice->phase,
		.first_position = slice->first_position,
		.n_rows = slice->n_rows,
	};
	int status = MOETRACE_OK;

	row->request_id = owner->request ? owner->request->request_id : MT_NULL;
	row->attempt = owner->attempt;
	row->first_position = slice->first_position;
	row->n_rows = slice->n_rows;
	if (row->positions) {
		row->first_position = seen.first_position = row->positions[0];
		if (is_consecutive(row->positions, slice->n_rows))
			row->positions = NULL;
	}
	seen.positions = row->positions;
	seen.pass_reasons = slice_reasons(pass, row, reasons);
	row->phase = phase_names[slice->phase];
	row->accepted = seen.accepted = mt_assembly_accepted(pass, seen.slice);
	keep_slice(pass, owner, &seen, (uint32_t)row->row_offset);
	if (owner->request)
		status = mt_ledger_slice(assembly->ledger, owner->request, &seen);
	return status ? status : mt_store_slice(assembly->store, row);
}

static int write_slices(struct mt_assembly *assembly, struct mt_open_pass *pass,
			uint32_t reasons)
{
	struct mt_slice_row row = { .pass_id = assembly->last_pass_id };
	const uint32_t *positions = pass->positions;
	const struct mt_slice_owner nobody = { .request = NULL };
	struct mt_record_slice none = { .n_rows = pass->begin.n_rows, .phase = pass->begin.phase };
	int status = MOETRACE_OK;

	if (pass->begin.n_slices == 0 && pass->begin.n_rows)
		return write_slice(assembly, pass, &none, &nobody, &row, reasons);
	for (uint32_t i = 0; !status && i < pass->begin.n_slices; i++) {
		const struct mt_record_slice *slice = &pass->slices[i];

		row.slice = i;
		row.positions = slice->has_positions && slice->n_rows ? positions : NULL;
		status = write_slice(assembly, pass, slice, &pass->owners[i], &row, reasons);
		row.row_offset += slice->n_rows;
		positions += slice->has_positions ? slice->n_rows : 0;
	}
	return status;
}

int mt_assembly_close_pass(struct mt_assembly *assembly, struct mt_open_pass *pass,
			   const struct mt_record_end *end)
{
	uint32_t reasons = judge(assembly, pass, end);
	int status = MOETRACE_OK;

	pass->is_open = 0;
	assembly->last_pass_id += assembly->mode != MOETRACE_MODE_STAT;
	pass->pass_id = assembly->mode != MOETRACE_MODE_STAT ? assembly->last_pass_id : 0;
	assembly->counts.passes++;
	assembly->counts.rows += pass->begin.n_rows;
	assembly->counts.layers += pass->so_far.layers;
	assembly->counts.assignments += pass->so_far.assignments;
	assembly->counts.invalid_ids += pass->so_far.invalid_ids;
	assembly->counts.unwritten_layers += pass->so_far.unwritten_layers;
	if (pass->pass_id)
		mt_tied_note(assembly->tied, pass->begin.number, pass->pass_id, pass->model);
	if (assembly->mode != MOETRACE_MODE_STAT)
		status = write_pass(assembly, pass, end, reasons);
	if (!status && assembly->mode != MOETRACE_MODE_STAT)
		status = write_slices(assembly, pass, reasons);
	if (!status)
		status = mt_layers_write(assembly, pass);
	if (!status)
		status = mt_kernels_write(assembly, pass, end ? end->record.time_ns : UINT64_MAX);
	if (!status)
		status = mt_collectives_write(assembly, pass);
	if (!status)
		status = mt_parts_adopt(assembly, pass);
	keep_pass(assembly, pass);
	return status ? status : mt_assembly_release_owners(assembly, pass);
}
