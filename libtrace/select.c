/* SPDX-License-Identifier: MIT */
/*
 * Handing over a layer's ids. Nothing here allocates, locks, logs, makes a system call or waits;
 * what does not fit is counted. Handing over a layer executes no locked instruction on the
 * main stream. What the writer has to settle first (orders to restore, physical ids,
 * candidates) goes the way of select_wide.c.
 */
#include "libtrace/hot.h"

#include <string.h>

#include "libtrace/abi.h"

int mt_check_matrix(struct moetrace_session *session, struct mt_matrix *matrix, const void *data,
		    uint32_t type, size_t row_bytes, uint32_t k)
{
	uint32_t type_bytes = mt_type_bytes(type);

	matrix->data = data;
	matrix->type = type;
	matrix->k = k;
	matrix->row_bytes = row_bytes ? row_bytes : (size_t)k * type_bytes;
	/* Sizes of types are powers of two, and a division would cost what a row costs. */
	if (matrix->row_bytes < (size_t)k * type_bytes || (matrix->row_bytes & (type_bytes - 1)))
		return mt_misuse(session, MT_MISUSE_TYPE), -1;
	if (matrix->n_rows && (!data || ((uintptr_t)data & (type_bytes - 1))))
		return mt_misuse(session, MT_MISUSE_POINTER), -1;
	return 0;
}

static int check_rows(const struct moetrace_pass *pass, const struct moetrace_selection *selection,
		      struct mt_checked *ret_checked)
{
	uint64_t n_with_padding = (uint64_t)pass->n_rows + pass->padding_rows;
	uint64_t next = 0;

	ret_checked->n_rows = selection->n_rows;
	ret_checked->n_padding = 0;
	if (!selection->row_map) {
		if (selection->n_rows != pass->n_rows && selection->n_rows != n_with_padding)
			return mt_misuse(pass->session, MT_MISUSE_ROWS), -1;
		ret_checked->n_rows = pass->n_rows;
		ret_checked->n_padding = selection->n_rows - pass->n_rows;
		return 0;
	}
	if (selection->n_rows > pass->n_rows)
		return mt_misuse(pass->session, MT_MISUSE_ROWS), -1;
	for (uint32_t i = 0; i < selection->n_rows; i++) {
		if (selection->row_map[i] < next || selection->row_map[i] >= pass->n_rows)
			return mt_misuse(pass->session, MT_MISUSE_ROW_MAP), -1;
		next = (uint64_t)selection->row_map[i] + 1;
	}
	return 0;
}

/* A rule may give a row more experts than the router does. */
static uint32_t most_entries(const struct mt_layer *layer)
{
	return layer->n_ids < MOETRACE_MAX_TOP_K ? layer->n_ids : MOETRACE_MAX_TOP_K;
}

static void check_rule(struct moetrace_session *session, const struct moetrace_selection *selection,
		       struct mt_checked *ret_checked)
{
	ret_checked->rule = selection->rule;
	if (selection->rule <= atomic_load_explicit(&session->n_rules, memory_order_acquire) &&
	    (selection->rule || !selection->base_ids))
		return;
	ret_checked->rule = 0;
	mt_misuse(session, MT_MISUSE_RULE);
}

static int check_base(const struct moetrace_pass *pass, const struct moetrace_selection *selection,
		      struct mt_checked *ret_checked)
{
	struct moetrace_session *session = pass->session;
	uint32_t base_k = selection->base_k ? selection->base_k : ret_checked->layer->top_k;

	ret_checked->base.type = MOETRACE_TYPE_NONE;
	if (!selection->base_ids || !ret_checked->rule || pass->mode != MOETRACE_MODE_PER_TOKEN)
		return 0;
	if (base_k > ret_checked->layer->top_k)
		return mt_misuse(session, MT_MISUSE_TOP_K), -1;
	ret_checked->base.n_rows = ret_checked->n_rows;
	return mt_check_matrix(session, &ret_checked->base, selection->base_ids, selection->id_type,
			    selection->base_ids_row_bytes, base_k);
}

/* Weights also tell the order, whether they are stored or not. */
static int wants_weights(const struct moetrace_pass *pass,
			 const struct moetrace_selection *selection)
{
	return pass->weight_format != MOETRACE_WEIGHT_FORMAT_NONE ||
	       (pass->mode == MOETRACE_MODE_PER_TOKEN &&
		selection->order == MOETRACE_ORDER_UNORDERED);
}

int mt_check_selection(const struct moetrace_pass *pass, const struct moetrace_selection *selection,
		       struct mt_checked *ret_checked)
{
	struct moetrace_session *session = pass->session;
	uint32_t k;

	if (selection->layer_index >= pass->model->n_layers)
		return mt_misuse(session, MT_MISUSE_LAYER), -1;
	ret_checked->layer = &pass->model->layers[selection->layer_index];
	check_rule(session, selection, ret_checked);
	k = selection->k ? selection->k : ret_checked->layer->top_k;
	if (k > (ret_checked->rule ? most_entries(ret_checked->layer) : ret_checked->layer->top_k))
		return mt_misuse(session, MT_MISUSE_TOP_K), -1;
	if (!mt_type_is_integer(selection->id_type) || selection->order > MOETRACE_ORDER_UNORDERED ||
	    selection->id_space > MOETRACE_ID_PHYSICAL ||
	    (selection->weight_type && !mt_type_is_number(selection->weight_type)))
		return mt_misuse(session, MT_MISUSE_TYPE), -1;
	if (check_rows(pass, selection, ret_checked))
		return -1;
	ret_checked->ids.n_rows = ret_checked->n_rows;
	ret_checked->weights.n_rows = ret_checked->n_rows;
	ret_checked->weights.type = MOETRACE_TYPE_NONE;
	ret_checked->weight_format = MOETRACE_WEIGHT_FORMAT_NONE;
	if (selection->weight_type && wants_weights(pass, selection)) {
		if (mt_check_matrix(session, &ret_checked->weights, selection->weights,
				 selection->weight_type, selection->weights_row_bytes, k))
			return -1;
		ret_checked->weight_format = pass->weight_format;
	}
	ret_checked->ids.n_rows = selection->n_rows;
	if (mt_check_matrix(session, &ret_checked->ids, selection->ids, selection->id_type,
			 selection->ids_row_bytes, k))
		return -1;
	ret_checked->ids.n_rows = ret_checked->n_rows;
	return check_base(pass, selection, ret_checked);
}

/* The stored rows' ids; the rare rows with fewer than k experts take the careful way. */
static void write_ids(struct mt_record_layer *to, const struct mt_layer_parts *parts,
		      const struct mt_checked *checked)
{
	to->has_valid = !mt_narrow_ids_all(&checked->ids, checked->layer->n_ids, to->id_bytes,
					   parts->ids);
	if (!to->has_valid)
		return;
	to->n_invalid = (uint32_t)mt_narrow_ids_some(
		&checked->ids, checked->layer->n_ids, to->id_bytes, parts->ids,
		checked->weights.type ? parts->weights : NULL, parts->n_valid);
}

/* The router's own choice; a row of it that is not whole makes all of it unknown. */
static void write_base_ids(struct moetrace_session *session, struct mt_record_layer *to,
			   const struct mt_layer_parts *parts, const struct mt_checked *checked)
{
	uint32_t n_ids = checked->layer->n_ids;

	to->has_base = 1;
	if (mt_narrow_ids_all(&checked->base, n_ids, to->id_bytes, parts->base_ids))
		return;
	/* n_valid is free until the rows' own ids are written. */
	(void)mt_narrow_ids_some(&checked->base, n_ids, to->id_bytes, parts->base_ids, NULL,
				 parts->n_valid);
	for (uint32_t row = 0; row < to->n_rows; row++)
		to->has_base &= parts->n_valid[row] == to->base_k;
	if (!to->has_base)
		mt_misuse(session, MT_MISUSE_RULE);
}

static void write_padding_ids(struct mt_record_layer *to, const struct mt_layer_parts *parts,
			      const struct mt_checked *checked)
{
	struct mt_matrix padding = checked->ids;
	uint8_t *ids = parts->ids + (uint64_t)to->n_rows * to->k * to->id_bytes;
	uint8_t *n_valid = parts->n_valid + to->n_rows;

	padding.data = (const uint8_t *)padding.data + to->n_rows * padding.row_bytes;
	padding.n_rows = to->n_padding;
	to->has_padding_valid = !mt_narrow_ids_all(&padding, checked->layer->n_ids, to->id_bytes,
						   ids);
	if (!to->has_padding_valid)
		return;
	(void)mt_narrow_ids_some(&padding, checked->layer->n_ids, to->id_bytes, ids, NULL, n_valid);
	/* Rows that fill the batch up may hold anything: nobody is told of what is invalid there. */
	for (uint32_t row = 0; row < to->n_padding; row++)
		n_valid[row] &= (uint8_t)~MT_ROW_INVALID;
}

static void write_layer(struct moetrace_session *session, struct mt_record_layer *to,
			const struct mt_record_layer *header,
			const struct moetrace_selection *selection, const struct mt_checked *checked)
{
	struct mt_layer_parts parts;

	/* All but what the reservation has filled in. */
	memcpy((uint8_t *)to + sizeof(to->record), (const uint8_t *)header + sizeof(to->record),
	       sizeof(*to) - sizeof(to->record));
	to->record.time_ns = header->record.time_ns;
	parts = mt_layer_parts(to);
	if (to->has_row_map)
		memcpy(parts.row_map, selection->row_map, (size_t)to->n_rows * 4);
	mt_copy_facts(to->facts, to->n_rows, selection, parts.margins, parts.row_flags);
	if (checked->weights.type)
		mt_narrow_weights(&checked->weights, to->weight_format, parts.weights);
	if (to->base_k)
		write_base_ids(session, to, &parts, checked);
	write_ids(to, &parts, checked);
	if (to->n_padding)
		write_padding_ids(to, &parts, checked);
}

void mt_drop_layer(struct moetrace_pass *pass, uint32_t layer, uint64_t n_bytes, uint64_t now_ns)
{
	atomic_fetch_or_explicit(&pass->dropped[layer / 64], UINT64_C(1) << (layer % 64),
				 memory_order_relaxed);
	atomic_fetch_add_explicit(&pass->n_dropped, 1, memory_order_relaxed);
	mt_count_loss(pass->session, mt_recording_of(pass), MT_LOSS_LAYER_RING_FULL, n_bytes,
		      now_ns);
}

/*
 * The form that nearly every runtime uses, int32 ids and fp32 weights of the pass's rows without
 * gaps, is worth a path of its own: checks, defaults and narrowing of the general one cost as
 * much again as copying 64 rows does.
 */
static int is_plain(const struct moetrace_pass *pass, const struct moetrace_selection *selection)
{
	const struct mt_layer *layer;
	uint64_t row_bytes;

	if (selection->size < sizeof(*selection) || selection->layer_index >= pass->model->n_layers)
		return 0;
	layer = &pass->model->layers[selection->layer_index];
	row_bytes = (uint64_t)layer->top_k * 4;
	return selection->id_type == MOETRACE_TYPE_I32 &&
	       selection->weight_type == MOETRACE_TYPE_F32 && layer->id_bytes == 1 &&
	       (selection->k == 0 || selection->k == layer->top_k) &&
	       selection->n_rows == pass->n_rows && selection->n_rows &&
	       (selection->ids_row_bytes == 0 || selection->ids_row_bytes == row_bytes) &&
	       (selection->weights_row_bytes == 0 || selection->weights_row_bytes == row_bytes) &&
	       !((uintptr_t)selection->row_map | (uintptr_t)selection->base_ids |
		 (uintptr_t)selection->physical_ids | selection->rule | selection->id_space |
		 selection->n_candidates | pass->is_special) &&
	       selection->order <= MOETRACE_ORDER_SELECTION && selection->ids &&
	       selection->weights && !(((uintptr_t)selection->ids | (uintptr_t)selection->weights) & 3);
}

/* Rows that lack an expert after all: the general way, into the same room. */
__attribute__((noinline)) static void write_not_plain(struct moetrace_pass *pass,
						      struct mt_record_layer *to,
						      const struct moetrace_selection *selection)
{
	struct mt_record_layer header = *to;
	struct mt_checked checked;

	if (!mt_check_selection(pass, selection, &checked))
		write_layer(pass->session, to, &header, selection, &checked);
}

#define GROUP_BYTES (MT_GROUP_LINES * MT_LINE_BYTES)

/*
 * A record begins: its first lines were asked for when the one before it ended. Of a long one
 * the processor sees by itself where it goes on; a short one is not worth it.
 */
static void prefetch_rest(const struct mt_record_layer *to, uint64_t n_bytes)
{
	if (n_bytes < 3 * GROUP_BYTES)
		return;
	mt_prefetch_group((const uint8_t *)to + GROUP_BYTES);
	mt_prefetch_group((const uint8_t *)to + 2ul * GROUP_BYTES);
}

/* The next record probably is as long. What lies past the ring's end is no harm to ask for. */
static void prefetch_next(const struct mt_record_layer *to, uint64_t n_bytes)
{
	if (n_bytes >= GROUP_BYTES)
		mt_prefetch_group((const uint8_t *)to + mt_whole_lines(n_bytes));
}

static inline __attribute__((always_inline)) void
write_plain(struct moetrace_pass *pass, const struct moetrace_selection *selection, uint8_t facts)
{
	const struct mt_layer *layer = &pass->model->layers[selection->layer_index];
	struct mt_ring *ring = mt_stream_of(pass);
	uint64_t n = (uint64_t)pass->n_rows * layer->top_k;
	uint64_t margins_bytes = facts & MT_FACT_MARGINS ? (uint64_t)pass->n_rows * 4 : 0;
	uint64_t flags_bytes = facts & MT_FACT_FLAGS ? pass->n_rows : 0;
	uint64_t n_bytes = sizeof(struct mt_record_layer) + margins_bytes + 3 * n + flags_bytes +
			   pass->n_rows;
	struct mt_reservation reservation =
		mt_stream_reserve(pass, ring, MT_RECORD_LAYER, n_bytes);
	struct mt_record_layer *to = (struct mt_record_layer *)reservation.record;
	uint8_t *weights = (uint8_t *)(to + 1) + margins_bytes;

	if (!to)
		return mt_drop_layer(pass, selection->layer_index, n_bytes, mt_pass_now(pass));
	/* The clock is read while the lines come. */
	prefetch_rest(to, n_bytes);
	to->record.time_ns = mt_session_ns(pass->session, mt_monotonic_ns());
	to->layer = selection->layer_index;
	to->n_rows = pass->n_rows;
	to->n_padding = 0;
	to->n_invalid = 0;
	to->k = (uint16_t)layer->top_k;
	to->id_bytes = 1;
	to->weight_format = MOETRACE_WEIGHT_FORMAT_FP16;
	to->order = (uint8_t)selection->order;
	to->has_row_map = 0;
	to->has_valid = 0;
	to->has_padding_valid = 0;
	to->untimed = selection->untimed != 0;
	to->base_k = 0;
	to->has_base = 0;
	to->facts = facts;
	to->rule = 0;
	mt_copy_facts(facts, to->n_rows, selection, (float *)(void *)(to + 1), weights + 3 * n);
	if (pass->session->narrow_plain(selection->ids, selection->weights, n, layer->n_ids,
					weights + 2 * n, (uint16_t *)(void *)weights))
		write_not_plain(pass, to, selection);
	prefetch_next(to, n_bytes);
	mt_ring_commit(ring, reservation);
}

static void select_plain(struct moetrace_pass *pass, const struct moetrace_selection *selection)
{
	write_plain(pass, selection, 0);
}

/* The same with margins, flags or both. Apart, so that rows without them do not pay for them. */
__attribute__((noinline)) static void select_facts(struct moetrace_pass *pass,
						   const struct moetrace_selection *selection)
{
	write_plain(pass, selection, mt_facts_of(pass, selection));
}

static void select_any(struct moetrace_pass *pass, const struct moetrace_selection *selection)
{
	struct mt_record_layer header = { .n_invalid = 0 };
	struct mt_reservation reservation;
	struct mt_checked checked;
	struct mt_ring *ring;
	uint64_t n_bytes;

	if (mt_check_selection(pass, selection, &checked))
		return;
	header.record.time_ns = mt_pass_now(pass);
	header.layer = selection->layer_index;
	header.n_rows = checked.n_rows;
	header.n_padding = checked.n_padding;
	header.k = (uint16_t)checked.ids.k;
	header.id_bytes = checked.layer->id_bytes;
	header.weight_format = (uint8_t)checked.weight_format;
	header.order = (uint8_t)selection->order;
	header.has_row_map = selection->row_map != NULL;
	header.untimed = selection->untimed != 0;
	header.rule = checked.rule;
	header.base_k = checked.base.type ? (uint8_t)checked.base.k : 0;
	header.facts = mt_facts_of(pass, selection);
	n_bytes = mt_layer_parts(&header).n_bytes;
	ring = mt_stream_of(pass);
	reservation = mt_stream_reserve(pass, ring, MT_RECORD_LAYER, n_bytes);
	if (!reservation.record)
		return mt_drop_layer(pass, selection->layer_index, n_bytes, header.record.time_ns);
	write_layer(pass->session, (struct mt_record_layer *)reservation.record, &header, selection,
		    &checked);
	mt_ring_commit(ring, reservation);
}

/* Apart, so that the plain way does not pay for its frame. */
__attribute__((noinline)) static void select_other(struct moetrace_pass *pass,
						   const struct moetrace_selection *selection)
{
	struct moetrace_selection room;

	if (!mt_abi_knows(selection->size, MT_FIRST_SELECTION))
		return mt_misuse(pass->session, MT_MISUSE_SIZE);
	selection = MT_ABI_WIDEN(selection, &room);
	if (mt_is_wide(pass, selection))
		mt_select_wide(pass, selection);
	else
		select_any(pass, selection);
}

void moetrace_select_experts(struct moetrace_pass *pass, const struct moetrace_selection *selection)
{
	if (!pass)
		return;
	if (!selection)
		return mt_misuse(pass->session, MT_MISUSE_SIZE);
	if (__builtin_expect(pass->tool.is_open, 0))
		pass->session->tool.ops->mark(pass->session->tool.layer, selection->layer_index);
	if (!is_plain(pass, selection))
		select_other(pass, selection);
	else if ((uintptr_t)selection->margins | (uintptr_t)selection->row_flags)
		select_facts(pass, selection);
	else
		select_plain(pass, selection);
}
