/* SPDX-License-Identifier: MIT */
/*
 * Handing over a layer that the writer has to settle before it is stored: entries whose order is
 * to be restored, physical ids, further candidates. The hot path only checks and copies, ids as
 * int32 and weights unnarrowed as fp32, because what is decided about them needs both.
 */
#include "libtrace/hot.h"

#include <string.h>


/* Further arrays of a selection, checked. Type NONE: none. */
struct extras {
	struct mt_matrix physical;
	struct mt_matrix candidates;
	struct mt_matrix scores;
	uint32_t map_epoch;
};

int mt_check_epoch(const struct moetrace_pass *pass, uint32_t epoch, uint32_t *ret_epoch)
{
	struct moetrace_session *session = pass->session;
	uint32_t model = pass->model->model_id - 1;

	if (!epoch)
		epoch = pass->map_epoch;
	if (!epoch || epoch > atomic_load_explicit(&session->map_epochs[model], memory_order_acquire))
		return mt_misuse(session, MT_MISUSE_MAP), -1;
	*ret_epoch = epoch;
	return 0;
}

static int check_physical(const struct moetrace_pass *pass,
			  const struct moetrace_selection *selection,
			  const struct mt_checked *checked, struct extras *ret_extras)
{
	int is_stored = pass->mode == MOETRACE_MODE_PER_TOKEN;

	ret_extras->physical.type = MOETRACE_TYPE_NONE;
	ret_extras->map_epoch = 0;
	if (selection->id_space == MOETRACE_ID_LOGICAL && !selection->physical_ids)
		return 0;
	if (mt_check_epoch(pass, selection->map_epoch, &ret_extras->map_epoch))
		return -1;
	if (selection->id_space == MOETRACE_ID_PHYSICAL || !is_stored)
		return 0;
	ret_extras->physical.n_rows = checked->n_rows;
	return mt_check_matrix(pass->session, &ret_extras->physical, selection->physical_ids,
			       selection->id_type, selection->physical_ids_row_bytes,
			       checked->ids.k);
}

static int check_candidates(const struct moetrace_pass *pass,
			    const struct moetrace_selection *selection,
			    const struct mt_checked *checked, struct extras *ret_extras)
{
	struct moetrace_session *session = pass->session;
	uint32_t n = selection->n_candidates;

	ret_extras->candidates.type = MOETRACE_TYPE_NONE;
	if (!n || pass->mode != MOETRACE_MODE_PER_TOKEN)
		return 0;
	if (n > checked->layer->n_ids || !mt_type_is_number(selection->candidate_score_type))
		return mt_misuse(session, MT_MISUSE_CANDIDATES), 0;
	ret_extras->candidates.n_rows = checked->n_rows;
	ret_extras->scores.n_rows = checked->n_rows;
	if (mt_check_matrix(session, &ret_extras->candidates, selection->candidate_ids,
			    selection->id_type, selection->candidate_ids_row_bytes, n))
		return -1;
	return mt_check_matrix(session, &ret_extras->scores, selection->candidate_scores,
			       selection->candidate_score_type,
			       selection->candidate_scores_row_bytes, n);
}

static uint32_t none_id(uint32_t id_type)
{
	if (id_type == MOETRACE_TYPE_U8)
		return UINT8_MAX;
	return id_type == MOETRACE_TYPE_U16 ? UINT16_MAX : UINT32_MAX;
}

static struct mt_record_wide header_of(const struct moetrace_pass *pass,
				       const struct moetrace_selection *selection,
				       const struct mt_checked *checked, const struct extras *extras)
{
	struct mt_record_wide header = {
		.layer = selection->layer_index,
		.n_rows = checked->n_rows,
		.n_padding = checked->n_padding,
		.rule = checked->rule,
		.map_epoch = extras->map_epoch,
		.none_id = none_id(selection->id_type),
		.n_candidates = extras->candidates.type ? extras->candidates.k : 0,
		.k = (uint16_t)checked->ids.k,
		.order = (uint8_t)selection->order,
		.is_physical = selection->id_space == MOETRACE_ID_PHYSICAL,
		.has_row_map = selection->row_map != NULL,
		.has_weights = checked->weights.type != MOETRACE_TYPE_NONE,
		.has_physical = extras->physical.type != MOETRACE_TYPE_NONE,
		.untimed = selection->untimed != 0,
		.base_k = checked->base.type ? (uint8_t)checked->base.k : 0,
		.weight_type = (uint8_t)checked->weights.type,
		.score_type = (uint8_t)selection->candidate_score_type,
		.facts = mt_facts_of(pass, selection),
	};

	header.record.time_ns = mt_pass_now(pass);
	return header;
}

static void write_wide(struct mt_record_wide *to, const struct mt_record_wide *header,
		       const struct moetrace_selection *selection, const struct mt_checked *checked,
		       const struct extras *extras)
{
	struct mt_matrix ids = checked->ids;
	struct mt_wide_parts parts;

	/* All but what the reservation has filled in. */
	memcpy((uint8_t *)to + sizeof(to->record), (const uint8_t *)header + sizeof(to->record),
	       sizeof(*to) - sizeof(to->record));
	to->record.time_ns = header->record.time_ns;
	parts = mt_wide_parts(to);
	if (to->has_row_map)
		memcpy(parts.row_map, selection->row_map, (size_t)to->n_rows * 4);
	mt_copy_facts(to->facts, to->n_rows, selection, parts.margins, parts.row_flags);
	ids.n_rows = (uint64_t)to->n_rows + to->n_padding;
	mt_widen_ids(&ids, parts.ids);
	if (to->has_weights)
		mt_widen_numbers(&checked->weights, parts.weights);
	if (to->has_physical)
		mt_widen_ids(&extras->physical, parts.physical_ids);
	if (to->base_k)
		mt_widen_ids(&checked->base, parts.base_ids);
	if (to->n_candidates) {
		mt_widen_ids(&extras->candidates, parts.candidate_ids);
		mt_widen_numbers(&extras->scores, parts.candidate_scores);
	}
}

void mt_select_wide(struct moetrace_pass *pass, const struct moetrace_selection *selection)
{
	struct mt_record_wide header;
	struct mt_reservation reservation;
	struct mt_checked checked;
	struct extras extras;
	struct mt_ring *ring;
	uint64_t n_bytes;

	if (mt_check_selection(pass, selection, &checked) ||
	    check_physical(pass, selection, &checked, &extras) ||
	    check_candidates(pass, selection, &checked, &extras))
		return;
	header = header_of(pass, selection, &checked, &extras);
	n_bytes = mt_wide_parts(&header).n_bytes;
	ring = mt_stream_of(pass);
	reservation = mt_stream_reserve(pass, ring, MT_RECORD_WIDE, n_bytes);
	if (!reservation.record)
		return mt_drop_layer(pass, selection->layer_index, n_bytes, header.record.time_ns);
	write_wide((struct mt_record_wide *)reservation.record, &header, selection, &checked,
		   &extras);
	mt_ring_commit(ring, reservation);
}
