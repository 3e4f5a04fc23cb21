/* SPDX-License-Identifier: MIT */
/*
 * Invariants: a pass is in the file entirely or not at all (with its slices, layers, load
 * counts and what it means for its requests), except for top-k rows that no layer points to
 * when the process was killed in the middle of it; counts of an open pass are zero again when
 * it is closed.
 */
#include "libtrace/assembly.h"

#include <stdlib.h>
#include <string.h>

#include "libtrace/collectives.h"
#include "libtrace/kernels.h"
#include "libtrace/layer.h"
#include "libtrace/parts.h"
#include "libtrace/sampling.h"

void mt_assembly_open(struct mt_assembly *assembly, struct moetrace_session *session,
		      struct mt_store *store, struct mt_ledger *ledger, struct mt_load *load)
{
	memset(assembly, 0, sizeof(*assembly));
	assembly->session = session;
	assembly->store = store;
	assembly->ledger = ledger;
	assembly->load = load;
	assembly->recent.max_bytes = session->opts.experts_window_bytes;
}

static void free_accepts(struct mt_open_pass *pass)
{
	while (pass->accepts) {
		struct mt_early_accept *accept = pass->accepts;

		pass->accepts = accept->next;
		free(accept->accepted);
		free(accept);
	}
}

void mt_assembly_close(struct mt_assembly *assembly)
{
	mt_recent_clear(&assembly->recent);
	for (uint32_t i = 0; i < MT_MAX_RINGS; i++) {
		struct mt_open_pass *pass = &assembly->passes[i];

		free_accepts(pass);
		mt_recent_free(pass->recent);
		free(pass->slices);
		free(pass->owners);
		free(pass->positions);
		free(pass->row_classes);
		free(pass->invalid_rows);
		free(pass->layers);
		free(pass->counts);
		free(pass->is_kept);
		free(pass->dispatches);
		free(pass->kernels);
		free(pass->collectives);
	}
	mt_expert_maps_free(&assembly->maps);
	mt_settler_free(&assembly->settler);
	free(assembly->row_map);
	free(assembly->load_sum);
}

/* Grow an array to @n elements; what was in it is lost, what is new is zero. */
static int reserve(void *array, uint64_t *capacity, uint64_t n, size_t element_bytes)
{
	void **at = array;

	if (n <= *capacity)
		return MOETRACE_OK;
	free(*at);
	*capacity = 0;
	*at = calloc(n, element_bytes);
	if (!*at)
		return MOETRACE_E_NOMEM;
	*capacity = n;
	return MOETRACE_OK;
}

static enum mt_load_class class_of(const struct mt_record_slice *slice)
{
	if (slice->request == MOETRACE_NO_REQUEST)
		return MT_LOAD_OTHER;
	switch (slice->phase) {
	case MOETRACE_PHASE_PREFILL:
		return MT_LOAD_PREFILL;
	case MOETRACE_PHASE_DECODE:
		return MT_LOAD_DECODE;
	case MOETRACE_PHASE_VERIFY:
		return MT_LOAD_VERIFY;
	default:
		return MT_LOAD_OTHER;
	}
}

static void classify_rows(struct mt_open_pass *pass)
{
	uint8_t *at = pass->row_classes;

	int is_first = 1;

	pass->one_class = MT_LOAD_OTHER;
	for (uint32_t i = 0; i < pass->begin.n_slices; i++) {
		int load_class = (int)class_of(&pass->slices[i]);

		if (!pass->slices[i].n_rows)
			continue;
		pass->one_class = is_first || load_class == pass->one_class ? load_class : -1;
		is_first = 0;
		if (pass->one_class < 0)
			break;
	}
	if (pass->one_class >= 0)
		return;
	for (uint32_t i = 0; i < pass->begin.n_slices; i++) {
		memset(at, (int)class_of(&pass->slices[i]), pass->slices[i].n_rows);
		at += pass->slices[i].n_rows;
	}
}

static uint32_t model_index(const struct mt_open_pass *pass)
{
	return pass->begin.model - 1;
}

/*
 * Whose the slices are: known now, since a request may retract or end before its pass does.
 * Requests that are not open make rows of no request.
 */
static void latch_owners(struct mt_assembly *assembly, struct mt_open_pass *pass)
{
	uint64_t begin_ns = pass->begin.record.time_ns;

	for (uint32_t i = 0; i < pass->begin.n_slices; i++) {
		struct mt_record_slice *slice = &pass->slices[i];
		struct mt_slice_owner *owner = &pass->owners[i];

		owner->request = slice->request ? mt_ledger_find(assembly->ledger, slice->request) :
						  NULL;
		/* Nobody has its handle before it begins. */
		if (owner->request && owner->request->begin_ns > begin_ns)
			owner->request = NULL;
		if (owner->request) {
			owner->attempt = owner->request->attempt;
			mt_ledger_hold(owner->request, begin_ns);
		} else if (slice->request) {
			slice->request = MOETRACE_NO_REQUEST;
			mt_misuse(assembly->session, MT_MISUSE_REQUEST);
		}
	}
}

/* A slot of the record; -1: the row has none. */
static int64_t slot_at(const struct mt_record_begin *begin, uint32_t row)
{
	const uint8_t *slots = (const uint8_t *)(begin + 1);
	int64_t wide;
	int32_t narrow;

	if (begin->slot_bytes == 8) {
		memcpy(&wide, slots + row * 8ul, sizeof(wide));
		return wide;
	}
	memcpy(&narrow, slots + row * 4ul, sizeof(narrow));
	return begin->slots_are_signed ? narrow : (int64_t)(uint32_t)narrow;
}

/* Who computes what the slots will hold. */
static void note_slots(struct mt_assembly *assembly, const struct mt_open_pass *pass,
		       const struct mt_record_begin *begin)
{
	const uint32_t *positions = pass->positions;
	uint32_t row = 0;

	mt_ledger_slots_lost(assembly->ledger, mt_lost_passes_ns(assembly->session));
	/* What it wrote, a pass that was lost may have written over. */
	if (begin->record.time_ns <= assembly->ledger->slots_lost_ns)
		return;
	for (uint32_t i = 0; i < begin->n_slices; i++) {
		const struct mt_record_slice *slice = &pass->slices[i];
		struct mt_slot owner = {
			.request = slice->phase == MOETRACE_PHASE_DRAFT ? 0 : slice->request,
			.attempt = pass->owners[i].attempt,
		};

		for (uint32_t k = 0; k < slice->n_rows; k++, row++) {
			int64_t slot = slot_at(begin, row);

			owner.position = slice->has_positions ? positions[k] :
								slice->first_position + k;
			if (slot >= 0)
				mt_slots_set(&assembly->ledger->slots, (uint64_t)slot, &owner);
		}
		positions += slice->has_positions ? slice->n_rows : 0;
	}
}

/* Which rows are kept, where only some requests are sampled. */
static int choose_rows(struct mt_assembly *assembly, struct mt_open_pass *pass)
{
	uint32_t n = assembly->sample_every_n_requests;
	uint8_t *at;

	pass->is_sampled = 0;
	if (n <= 1)
		return MOETRACE_OK;
	if (reserve(&pass->is_kept, &pass->kept_capacity, pass->begin.n_rows + 1ul, 1))
		return MOETRACE_E_NOMEM;
	at = pass->is_kept;
	memset(at, 0, pass->begin.n_rows);
	for (uint32_t i = 0; i < pass->begin.n_slices; i++) {
		const struct mt_record_slice *slice = &pass->slices[i];

		memset(at, mt_is_sampled_request(slice->request, n), slice->n_rows);
		at += slice->n_rows;
	}
	pass->is_sampled = memchr(pass->is_kept, 0, pass->begin.n_rows) != NULL;
	return MOETRACE_OK;
}

/* Room for the counts of one layer of any model. */
static int reserve_sum(struct mt_assembly *assembly, const struct mt_model *model)
{
	for (uint32_t i = 0; i < model->n_layers; i++) {
		uint32_t n_ids = model->layers[i].n_ids;
		uint32_t *sum;

		if (n_ids <= assembly->n_load_sum)
			continue;
		sum = realloc(assembly->load_sum, n_ids * sizeof(*sum));
		if (!sum)
			return MOETRACE_E_NOMEM;
		assembly->load_sum = sum;
		assembly->n_load_sum = n_ids;
	}
	return MOETRACE_OK;
}

/* Requests that ended while the pass ran end now. */
static int release_owners(struct mt_assembly *assembly, struct mt_open_pass *pass)
{
	int status = MOETRACE_OK;

	free_accepts(pass);
	for (uint32_t i = 0; i < pass->begin.n_slices; i++) {
		int result = pass->owners[i].request ?
				     mt_ledger_release(assembly->ledger, pass->owners[i].request) :
				     MOETRACE_OK;

		status = status ? status : result;
	}
	return status;
}

/*
 * A pass that is left out says which positions it carried, and no more. Which rows of a verify
 * slice were accepted is never told of it.
 */
static int skip_pass(struct mt_assembly *assembly, struct mt_open_pass *pass)
{
	int is_disabled = pass->begin.skip == MT_SKIP_DISABLED;
	const uint32_t *positions = pass->positions;
	int status = MOETRACE_OK;

	assembly->counts.disabled_passes += is_disabled;
	assembly->counts.sampled_passes += !is_disabled;
	memset(pass->row_classes, 0, pass->begin.n_rows);
	for (uint32_t i = 0; i < pass->begin.n_slices; i++) {
		const struct mt_record_slice *slice = &pass->slices[i];
		struct mt_ledger_slice seen = {
			.attempt = pass->owners[i].attempt,
			.model_id = pass->model->model_id,
			.is_target = pass->model->kind == MOETRACE_MODEL_TARGET,
			.phase = slice->phase,
			.first_position = slice->first_position,
			.n_rows = slice->n_rows,
			.positions = slice->has_positions && slice->n_rows ? positions : NULL,
			.accepted = slice->phase == MOETRACE_PHASE_VERIFY ? pass->row_classes :
									    NULL,
			.pass_reasons = is_disabled ? MT_REASON_DISABLED : MT_REASON_SAMPLED,
		};

		positions += slice->has_positions ? slice->n_rows : 0;
		if (!status && pass->owners[i].request && assembly->mode != MOETRACE_MODE_STAT)
			status = mt_ledger_slice(assembly->ledger, pass->owners[i].request, &seen);
	}
	return status ? status : release_owners(assembly, pass);
}

static int begin_pass(struct mt_assembly *assembly, struct mt_open_pass *pass,
		      const struct mt_record_begin *begin)
{
	const struct mt_record_slice *slices =
		(const void *)((const uint8_t *)(begin + 1) +
			       mt_slots_bytes(begin->n_rows, begin->slot_bytes));
	uint64_t n_cells;

	pass->is_open = 0;
	pass->pass_id = 0;
	pass->parent_pass_id = 0;
	if (begin->recording_id != assembly->recording_id)
		return MOETRACE_OK;
	memcpy(&pass->begin, begin, sizeof(pass->begin));
	mt_assembly_note_number(assembly, begin->number);
	pass->model = assembly->session->models[model_index(pass)];
	n_cells = assembly->load->models[model_index(pass)].n_cells;
	if (reserve(&pass->slices, &pass->slices_capacity, begin->n_slices + 1ul,
		    sizeof(*pass->slices)) ||
	    reserve(&pass->owners, &pass->owners_capacity, begin->n_slices + 1ul,
		    sizeof(*pass->owners)) ||
	    reserve(&pass->positions, &pass->positions_capacity, begin->n_positions + 1ul, 4) ||
	    reserve(&pass->row_classes, &pass->rows_capacity, begin->n_rows + 1ul, 1) ||
	    reserve(&pass->invalid_rows, &pass->invalid_capacity, begin->n_rows + 1ul, 1) ||
	    reserve(&pass->layers, &pass->layers_capacity, pass->model->n_layers + 1ul,
		    sizeof(*pass->layers)) ||
	    reserve(&pass->counts, &pass->counts_capacity, n_cells * MT_N_LOAD + 1,
		    sizeof(*pass->counts)) ||
	    reserve_sum(assembly, pass->model))
		return MOETRACE_E_NOMEM;
	memcpy(pass->slices, slices, begin->n_slices * sizeof(*slices));
	memcpy(pass->positions, slices + begin->n_slices, begin->n_positions * 4ul);
	latch_owners(assembly, pass);
	if (begin->slot_bytes && pass->model->kind == MOETRACE_MODEL_TARGET &&
	    assembly->mode != MOETRACE_MODE_STAT)
		note_slots(assembly, pass, begin);
	if (begin->skip)
		return skip_pass(assembly, pass);
	classify_rows(pass);
	if (choose_rows(assembly, pass))
		return MOETRACE_E_NOMEM;
	pass->dispatch_bytes = 0;
	pass->n_kernels = 0;
	pass->n_collectives = 0;
	memset(&pass->so_far, 0, sizeof(pass->so_far));
	for (uint32_t i = 0; i < pass->model->n_layers; i++) {
		pass->layers[i].row.state = MT_LAYER_UNWRITTEN;
		pass->layers[i].row.map_epoch = begin->map_epoch ? begin->map_epoch : MT_NULL;
		pass->layers[i].classes = 0;
		pass->layers[i].has_dispatch = 0;
	}
	/* In mode STAT passes have no numbers, and nobody can ask for them. */
	if (begin->n_slices && assembly->mode != MOETRACE_MODE_STAT)
		pass->recent = mt_recent_begin(&assembly->recent, begin->model,
					       pass->model->n_layers, begin->n_slices);
	pass->is_open = 1;
	return MOETRACE_OK;
}

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

static const uint8_t *find_accepted(const struct mt_open_pass *pass, uint32_t slice)
{
	const struct mt_early_accept *accept = pass->accepts;

	while (accept && accept->slice != slice)
		accept = accept->next;
	return accept ? accept->accepted : NULL;
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
	row->accepted = seen.accepted = find_accepted(pass, seen.slice);
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

static int close_pass(struct mt_assembly *assembly, struct mt_open_pass *pass,
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
	return status ? status : release_owners(assembly, pass);
}

static int accept_early(struct mt_open_pass *pass, struct mt_message *message)
{
	struct mt_early_accept *accept;
	uint32_t slice = message->state;

	if (slice >= pass->begin.n_slices || !pass->owners[slice].request ||
	    pass->slices[slice].phase != MOETRACE_PHASE_VERIFY ||
	    pass->slices[slice].n_rows != message->n_tokens || find_accepted(pass, slice))
		return MOETRACE_E_NOT_FOUND;
	accept = calloc(1, sizeof(*accept));
	if (!accept)
		return MOETRACE_E_NOMEM;
	accept->slice = slice;
	accept->accepted = message->data;
	message->data = NULL;
	accept->next = pass->accepts;
	pass->accepts = accept;
	return MOETRACE_OK;
}

void mt_assembly_note_number(struct mt_assembly *assembly, uint64_t number)
{
	uint64_t *newest = &assembly->newest_numbers[mt_number_index(number)];

	*newest = number > *newest ? number : *newest;
}

void mt_assembly_end_numbers(struct mt_assembly *assembly)
{
	memcpy(assembly->ended_numbers, assembly->newest_numbers, sizeof(assembly->ended_numbers));
}

int mt_assembly_accept(struct mt_assembly *assembly, struct mt_message *message)
{
	struct mt_open_pass *pass = &assembly->passes[(message->number - 1) % MT_MAX_RINGS];
	int64_t pass_id;
	int status;

	/* No rows are kept that could be accepted. */
	if (assembly->mode == MOETRACE_MODE_STAT ||
	    message->number <= assembly->ended_numbers[mt_number_index(message->number)])
		return MOETRACE_OK;
	if (pass->is_open && pass->begin.number == message->number)
		return accept_early(pass, message);
	status = mt_ledger_accept(assembly->ledger, message->number, message->state, message->data,
				  message->n_tokens, &pass_id);
	if (!status)
		mt_recent_accept(&assembly->recent, pass_id, message->state, message->data);
	return status;
}

int mt_assembly_record(struct mt_assembly *assembly, uint32_t ring, struct mt_record *record)
{
	struct mt_open_pass *pass = &assembly->passes[ring];

	if (record->type == MT_RECORD_BEGIN)
		return begin_pass(assembly, pass, (struct mt_record_begin *)record);
	if (!pass->is_open)
		return MOETRACE_OK;
	switch (record->type) {
	case MT_RECORD_LAYER:
		return mt_layer_record(assembly, pass, (struct mt_record_layer *)record);
	case MT_RECORD_WIDE:
		return mt_layer_wide(assembly, pass, (struct mt_record_wide *)record);
	case MT_RECORD_COUNTS:
		return mt_layer_counts(assembly, pass, (struct mt_record_counts *)record);
	case MT_RECORD_DISPATCH:
		return mt_layer_dispatch(assembly, pass, (struct mt_record_dispatch *)record);
	case MT_RECORD_KERNELS:
		return mt_kernels_record(pass, (struct mt_record_kernels *)record);
	case MT_RECORD_COLLECTIVE:
		return mt_collective_record(pass, (struct mt_record_collective *)record);
	case MT_RECORD_END:
		return close_pass(assembly, pass, (struct mt_record_end *)record);
	default:
		return MOETRACE_OK;
	}
}

void mt_assembly_drop(struct mt_assembly *assembly)
{
	for (uint32_t i = 0; i < MT_MAX_RINGS; i++) {
		struct mt_open_pass *pass = &assembly->passes[i];

		pass->is_open = 0;
		/* Also of a pass that failed half-way to be closed. */
		if (pass->counts)
			memset(pass->counts, 0, pass->counts_capacity * sizeof(*pass->counts));
	}
}

int mt_assembly_cut(struct mt_assembly *assembly)
{
	int status = MOETRACE_OK;

	for (uint32_t i = 0; !status && i < MT_MAX_RINGS; i++) {
		if (!assembly->passes[i].is_open)
			continue;
		assembly->counts.unended++;
		status = close_pass(assembly, &assembly->passes[i], NULL);
	}
	mt_parts_forget(assembly);
	return status;
}
