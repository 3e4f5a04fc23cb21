/* SPDX-License-Identifier: MIT */
/*
 * A pass begins: its slices are taken out of the record, whose they are and which rows are kept is
 * settled, and its place is made ready for layers. Invariant: a pass is open only when all memory
 * that its layers need is there.
 */
#include "libtrace/assembly_internal.h"

#include <stdlib.h>
#include <string.h>

#include "libtrace/sampling.h"

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
	return status ? status : mt_assembly_release_owners(assembly, pass);
}

int mt_assembly_begin_pass(struct mt_assembly *assembly, struct mt_open_pass *pass,
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
	pass->model = assembly->session->models[mt_open_pass_model(pass)];
	n_cells = assembly->load->models[mt_open_pass_model(pass)].n_cells;
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
