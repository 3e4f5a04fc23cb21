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

#include "libtrace/assembly_internal.h"
#include "libtrace/collectives.h"
#include "libtrace/kernels.h"
#include "libtrace/layer.h"
#include "libtrace/parts.h"

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
	for (uint32_t i = 0; i < MT_N_RINGS; i++) {
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

int mt_assembly_release_owners(struct mt_assembly *assembly, struct mt_open_pass *pass)
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

const uint8_t *mt_assembly_accepted(const struct mt_open_pass *pass, uint32_t slice)
{
	const struct mt_early_accept *accept = pass->accepts;

	while (accept && accept->slice != slice)
		accept = accept->next;
	return accept ? accept->accepted : NULL;
}

static int accept_early(struct mt_open_pass *pass, struct mt_message *message)
{
	struct mt_early_accept *accept;
	uint32_t slice = message->state;

	if (slice >= pass->begin.n_slices || !pass->owners[slice].request ||
	    pass->slices[slice].phase != MOETRACE_PHASE_VERIFY ||
	    pass->slices[slice].n_rows != message->n_tokens || mt_assembly_accepted(pass, slice))
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
		return mt_assembly_begin_pass(assembly, pass, (struct mt_record_begin *)record);
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
		return mt_assembly_close_pass(assembly, pass, (struct mt_record_end *)record);
	default:
		return MOETRACE_OK;
	}
}

void mt_assembly_drop(struct mt_assembly *assembly)
{
	for (uint32_t i = 0; i < MT_N_RINGS; i++) {
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

	for (uint32_t i = 0; !status && i < MT_N_RINGS; i++) {
		if (!assembly->passes[i].is_open)
			continue;
		assembly->counts.unended++;
		status = mt_assembly_close_pass(assembly, &assembly->passes[i], NULL);
	}
	mt_parts_forget(assembly);
	return status;
}
