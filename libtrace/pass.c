/* SPDX-License-Identifier: MIT */
/*
 * The hot path. Nothing here allocates, locks, logs, makes a system call or waits; what does
 * not fit is counted. A pass lives in the ring that it claimed, so it needs no thread-local
 * memory and any thread may hand over its layers: the first that does has the ring's main
 * stream to itself, others share the side stream. Handing over a layer executes no locked
 * instruction on the main stream.
 *
 * Recording is latched: the ring is claimed first, then the recording is read; stop clears
 * the recording first and then looks for claimed rings. So every pass is either seen by stop
 * or sees that recording is off.
 */
#include "libtrace/session.h"

#include <string.h>

#include "libtrace/abi.h"
#include "libtrace/clock.h"
#include "libtrace/narrow.h"

/* Kept free in the ring while a pass runs, so that its end always fits, behind padding. */
#define END_BYTES ((sizeof(struct mt_record_end) + MT_LINE_BYTES) * 2)

void mt_misuse(struct moetrace_session *session, enum mt_misuse misuse)
{
	atomic_fetch_add_explicit(&session->misuse[misuse], 1, memory_order_relaxed);
}

static void count_loss(struct moetrace_session *session, enum mt_loss_kind kind, uint64_t n_bytes,
		       uint64_t now_ns)
{
	struct mt_loss *loss = &session->losses[kind];
	uint64_t none = 0;

	atomic_compare_exchange_strong_explicit(&loss->first_ns, &none, now_ns,
						memory_order_relaxed, memory_order_relaxed);
	atomic_store_explicit(&loss->last_ns, now_ns, memory_order_relaxed);
	atomic_fetch_add_explicit(&loss->n_bytes, n_bytes, memory_order_relaxed);
	/* Pairs with mt_losses_read(): the times are in place once the count is. */
	atomic_fetch_add_explicit(&loss->n, 1, memory_order_release);
}

void mt_losses_read(struct moetrace_session *session, struct mt_loss_counts *ret_counts)
{
	for (int i = 0; i < MT_N_LOSS; i++) {
		/* Pairs with count_loss(). */
		ret_counts->n[i] = atomic_load_explicit(&session->losses[i].n, memory_order_acquire);
		ret_counts->n_bytes[i] = atomic_load(&session->losses[i].n_bytes);
	}
}

uint64_t mt_lost_passes(const struct mt_loss_counts *counts)
{
	return counts->n[MT_LOSS_PASS_NO_RING] + counts->n[MT_LOSS_PASS_RING_FULL];
}

static int is_slice_phase(uint32_t phase)
{
	return phase >= MOETRACE_PHASE_PREFILL && phase <= MOETRACE_PHASE_DUMMY &&
	       phase != MOETRACE_PHASE_MIXED;
}

/* Check a pass's description; returns 0 if it is consistent. */
static int check_info(struct moetrace_session *session, const struct moetrace_pass_info *info,
		      uint64_t *ret_n_positions)
{
	uint64_t n_rows = 0;
	uint64_t n_positions = 0;

	if (info->model == 0 || info->model > atomic_load_explicit(&session->n_models,
								    memory_order_acquire))
		return mt_misuse(session, MT_MISUSE_MODEL), -1;
	if (info->phase < MOETRACE_PHASE_PREFILL || info->phase > MOETRACE_PHASE_DUMMY)
		return mt_misuse(session, MT_MISUSE_PHASE), -1;
	if ((uint64_t)info->n_rows + info->padding_rows > MOETRACE_MAX_ROWS)
		return mt_misuse(session, MT_MISUSE_RANGE), -1;
	if (info->n_slices && !info->slices)
		return mt_misuse(session, MT_MISUSE_SLICES), -1;
	if (!info->n_slices && info->n_rows && info->phase == MOETRACE_PHASE_MIXED)
		return mt_misuse(session, MT_MISUSE_PHASE), -1;
	for (uint32_t i = 0; i < info->n_slices; i++) {
		const struct moetrace_slice *slice = &info->slices[i];

		if (!is_slice_phase(slice->phase ? slice->phase : info->phase))
			return mt_misuse(session, MT_MISUSE_PHASE), -1;
		if (slice->request && !slice->positions && slice->n_rows &&
		    slice->first_position > UINT32_MAX - (slice->n_rows - 1))
			return mt_misuse(session, MT_MISUSE_RANGE), -1;
		n_rows += slice->n_rows;
		n_positions += slice->positions ? slice->n_rows : 0;
	}
	if (info->n_slices && n_rows != info->n_rows)
		return mt_misuse(session, MT_MISUSE_SLICES), -1;
	*ret_n_positions = n_positions;
	return 0;
}

/* Bytes of a KV slot; 0: none are told, -1: they cannot be read. */
static int slot_bytes(struct moetrace_session *session, const struct moetrace_pass_info *info)
{
	uint32_t type_bytes = mt_type_is_integer(info->kv_slot_type) ?
				      mt_type_bytes(info->kv_slot_type) :
				      0;

	if (type_bytes < 4 || ((uintptr_t)info->kv_slots & (type_bytes - 1)))
		return mt_misuse(session, MT_MISUSE_SLOTS), -1;
	return (int)type_bytes;
}

static void write_slices(struct mt_record_begin *begin, const struct moetrace_pass_info *info)
{
	uint64_t slots_bytes = mt_slots_bytes(info->n_rows, begin->slot_bytes);
	struct mt_record_slice *to =
		(struct mt_record_slice *)(void *)((uint8_t *)(begin + 1) + slots_bytes);
	uint32_t *positions = (uint32_t *)(to + info->n_slices);

	if (begin->slot_bytes)
		memcpy(begin + 1, info->kv_slots, (size_t)info->n_rows * begin->slot_bytes);
	for (uint32_t i = 0; i < info->n_slices; i++, to++) {
		const struct moetrace_slice *from = &info->slices[i];

		to->request = from->request;
		to->first_position = from->first_position;
		to->n_rows = from->n_rows;
		to->phase = from->phase ? from->phase : info->phase;
		to->has_positions = from->positions != NULL;
		if (from->positions) {
			memcpy(positions, from->positions, (size_t)from->n_rows * 4);
			positions += from->n_rows;
		}
	}
}

static void write_begin(struct moetrace_pass *pass, struct mt_reservation reservation,
			const struct moetrace_pass_info *info, uint64_t n_positions,
			uint32_t slot_bytes, uint64_t now_ns)
{
	struct mt_record_begin *begin = (struct mt_record_begin *)reservation.record;

	begin->record.time_ns = now_ns;
	begin->runtime_pass = info->runtime_pass ? *info->runtime_pass : 0;
	begin->has_runtime_pass = info->runtime_pass != NULL;
	begin->number = pass->number;
	begin->parent = info->parent;
	begin->microbatch = info->microbatch ? *info->microbatch : 0;
	begin->has_microbatch = info->microbatch != NULL;
	begin->slot_bytes = (uint8_t)slot_bytes;
	begin->slots_are_signed = info->kv_slot_type == MOETRACE_TYPE_I32 ||
				  info->kv_slot_type == MOETRACE_TYPE_I64;
	begin->recording_id = atomic_load_explicit(&pass->recording_id, memory_order_relaxed);
	begin->model = info->model;
	begin->phase = info->phase;
	begin->n_rows = info->n_rows;
	begin->padding_rows = info->padding_rows;
	begin->n_slices = info->n_slices;
	begin->n_positions = (uint32_t)n_positions;
	write_slices(begin, info);
	mt_ring_commit(pass->ring, reservation);
}

static void reset_pass(struct moetrace_pass *pass, const struct moetrace_pass_info *info)
{
	pass->model = pass->session->models[info->model - 1];
	pass->number += MT_MAX_RINGS;
	pass->n_rows = info->n_rows;
	pass->padding_rows = info->padding_rows;
	atomic_store_explicit(&pass->owner, 0, memory_order_relaxed);
	atomic_store_explicit(&pass->n_dropped, 0, memory_order_relaxed);
	for (uint32_t i = 0; i < (pass->model->n_layers + 63) / 64; i++)
		atomic_store_explicit(&pass->dropped[i], 0, memory_order_relaxed);
}

static void release(struct moetrace_session *session, struct moetrace_pass *pass)
{
	/* 0 tells stop that whoever claims the ring next has not latched its recording yet. */
	atomic_store_explicit(&pass->recording_id, 0, memory_order_relaxed);
	mt_ring_release(&session->pool, pass->ring);
}

struct moetrace_pass *moetrace_pass_begin(struct moetrace_session *session,
					  const struct moetrace_pass_info *info)
{
	struct mt_reservation reservation;
	struct moetrace_pass *pass;
	struct mt_ring *ring;
	uint64_t n_positions;
	uint64_t n_bytes;
	uint64_t now_ns;
	struct moetrace_pass_info room;
	int kv_bytes = 0;

	if (!session || !atomic_load_explicit(&session->recording_id, memory_order_relaxed))
		return NULL;
	if (!info || !mt_abi_knows(info->size, MT_FIRST_PASS_INFO))
		return mt_misuse(session, MT_MISUSE_SIZE), NULL;
	info = MT_ABI_WIDEN(info, &room);
	if (check_info(session, info, &n_positions))
		return NULL;
	n_bytes = sizeof(struct mt_record_begin) +
		  (uint64_t)info->n_slices * sizeof(struct mt_record_slice) + n_positions * 4;
	if (info->kv_slots) {
		kv_bytes = slot_bytes(session, info);
		if (kv_bytes < 0)
			return NULL;
		n_bytes += mt_slots_bytes(info->n_rows, (uint32_t)kv_bytes);
	}
	now_ns = mt_session_ns(session, mt_monotonic_ns());
	ring = mt_ring_claim(&session->pool);
	if (!ring) {
		count_loss(session, MT_LOSS_PASS_NO_RING, n_bytes, now_ns);
		return NULL;
	}
	pass = &session->passes[mt_ring_index(&session->pool, ring)];
	pass->session = session;
	pass->ring = ring;
	atomic_store(&pass->recording_id, atomic_load(&session->recording_id));
	if (!atomic_load_explicit(&pass->recording_id, memory_order_relaxed))
		goto err_release;
	reservation = mt_ring_reserve_alone(ring, MT_RECORD_BEGIN, n_bytes, END_BYTES);
	if (!reservation.record) {
		count_loss(session, MT_LOSS_PASS_RING_FULL, n_bytes, now_ns);
		goto err_release;
	}
	reset_pass(pass, info);
	write_begin(pass, reservation, info, n_positions, (uint32_t)kv_bytes, now_ns);
	return pass;

err_release:
	release(session, pass);
	return NULL;
}

uint64_t moetrace_pass_number(const struct moetrace_pass *pass)
{
	return pass ? pass->number : 0;
}

/* A selection, checked, with its defaults filled in. */
struct checked {
	const struct mt_layer *layer;
	struct mt_matrix ids;
	struct mt_matrix weights; /* type NONE: none, or not to be stored */
	struct mt_matrix base;    /* type NONE: none */
	uint32_t rule;
	uint32_t n_rows;
	uint32_t n_padding;
	uint32_t weight_format;
};

static int check_matrix(struct moetrace_session *session, struct mt_matrix *matrix,
			const void *data, uint32_t type, size_t row_bytes, uint32_t k)
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
		      struct checked *ret_checked)
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
		       struct checked *ret_checked)
{
	ret_checked->rule = selection->rule;
	if (selection->rule <= atomic_load_explicit(&session->n_rules, memory_order_acquire) &&
	    (selection->rule || !selection->base_ids))
		return;
	ret_checked->rule = 0;
	mt_misuse(session, MT_MISUSE_RULE);
}

static int check_base(struct moetrace_session *session, const struct moetrace_selection *selection,
		      struct checked *ret_checked)
{
	uint32_t base_k = selection->base_k ? selection->base_k : ret_checked->layer->top_k;

	ret_checked->base.type = MOETRACE_TYPE_NONE;
	if (!selection->base_ids || !ret_checked->rule)
		return 0;
	if (base_k > ret_checked->layer->top_k)
		return mt_misuse(session, MT_MISUSE_TOP_K), -1;
	ret_checked->base.n_rows = ret_checked->n_rows;
	return check_matrix(session, &ret_checked->base, selection->base_ids, selection->id_type,
			    selection->base_ids_row_bytes, base_k);
}

static int check_selection(const struct moetrace_pass *pass,
			   const struct moetrace_selection *selection, struct checked *ret_checked)
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
	if (!mt_type_is_integer(selection->id_type) || selection->order > MOETRACE_ORDER_SELECTION ||
	    (selection->weight_type && !mt_type_is_number(selection->weight_type)))
		return mt_misuse(session, MT_MISUSE_TYPE), -1;
	if (check_rows(pass, selection, ret_checked))
		return -1;
	ret_checked->ids.n_rows = ret_checked->n_rows;
	ret_checked->weights.n_rows = ret_checked->n_rows;
	ret_checked->weights.type = MOETRACE_TYPE_NONE;
	ret_checked->weight_format = MOETRACE_WEIGHT_FORMAT_NONE;
	if (selection->weight_type && session->opts.weight_format != MOETRACE_WEIGHT_FORMAT_NONE) {
		if (check_matrix(session, &ret_checked->weights, selection->weights,
				 selection->weight_type, selection->weights_row_bytes, k))
			return -1;
		ret_checked->weight_format = session->opts.weight_format;
	}
	ret_checked->ids.n_rows = selection->n_rows;
	if (check_matrix(session, &ret_checked->ids, selection->ids, selection->id_type,
			 selection->ids_row_bytes, k))
		return -1;
	ret_checked->ids.n_rows = ret_checked->n_rows;
	return check_base(session, selection, ret_checked);
}

/* The stored rows' ids; the rare rows with fewer than k experts take the careful way. */
static void write_ids(struct mt_record_layer *to, const struct mt_layer_parts *parts,
		      const struct checked *checked)
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
			   const struct mt_layer_parts *parts, const struct checked *checked)
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
			      const struct checked *checked)
{
	struct mt_matrix padding = checked->ids;
	uint8_t *ids = parts->ids + (uint64_t)to->n_rows * to->k * to->id_bytes;

	padding.data = (const uint8_t *)padding.data + to->n_rows * padding.row_bytes;
	padding.n_rows = to->n_padding;
	to->has_padding_valid = !mt_narrow_ids_all(&padding, checked->layer->n_ids, to->id_bytes,
						   ids);
	if (to->has_padding_valid)
		(void)mt_narrow_ids_some(&padding, checked->layer->n_ids, to->id_bytes, ids, NULL,
					 parts->n_valid + to->n_rows);
}

static void write_layer(struct moetrace_session *session, struct mt_record_layer *to,
			const struct mt_record_layer *header,
			const struct moetrace_selection *selection, const struct checked *checked)
{
	struct mt_layer_parts parts;

	/* All but what the reservation has filled in. */
	memcpy((uint8_t *)to + sizeof(to->record), (const uint8_t *)header + sizeof(to->record),
	       sizeof(*to) - sizeof(to->record));
	to->record.time_ns = header->record.time_ns;
	parts = mt_layer_parts(to);
	if (to->has_row_map)
		memcpy(parts.row_map, selection->row_map, (size_t)to->n_rows * 4);
	if (checked->weights.type)
		mt_narrow_weights(&checked->weights, to->weight_format, parts.weights);
	if (to->base_k)
		write_base_ids(session, to, &parts, checked);
	write_ids(to, &parts, checked);
	if (to->n_padding)
		write_padding_ids(to, &parts, checked);
}

static void drop_layer(struct moetrace_pass *pass, uint32_t layer, uint64_t n_bytes,
		       uint64_t now_ns)
{
	atomic_fetch_or_explicit(&pass->dropped[layer / 64], UINT64_C(1) << (layer % 64),
				 memory_order_relaxed);
	atomic_fetch_add_explicit(&pass->n_dropped, 1, memory_order_relaxed);
	count_loss(pass->session, MT_LOSS_LAYER_RING_FULL, n_bytes, now_ns);
}

/* A number that no other living thread has; not thread-local memory, which may be allocated. */
static uintptr_t thread_number(void)
{
#if defined(__x86_64__) && defined(__GNUC__)
	return (uintptr_t)__builtin_thread_pointer();
#else
	return (uintptr_t)pthread_self();
#endif
}

/* The stream that the calling thread writes this pass's layers into. */
static struct mt_ring *stream_of(struct moetrace_pass *pass)
{
	uintptr_t self = thread_number();
	uintptr_t owner = atomic_load_explicit(&pass->owner, memory_order_relaxed);

	if (owner == 0 && atomic_compare_exchange_strong_explicit(&pass->owner, &owner, self,
								  memory_order_relaxed,
								  memory_order_relaxed))
		owner = self;
	return owner == self ? pass->ring : mt_ring_side(&pass->session->pool, pass->ring);
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
	       pass->session->opts.weight_format == MOETRACE_WEIGHT_FORMAT_FP16 &&
	       (selection->k == 0 || selection->k == layer->top_k) &&
	       selection->n_rows == pass->n_rows && selection->n_rows &&
	       (selection->ids_row_bytes == 0 || selection->ids_row_bytes == row_bytes) &&
	       (selection->weights_row_bytes == 0 || selection->weights_row_bytes == row_bytes) &&
	       !selection->row_map && !selection->rule && !selection->base_ids &&
	       selection->order <= MOETRACE_ORDER_SELECTION && selection->ids &&
	       selection->weights && !(((uintptr_t)selection->ids | (uintptr_t)selection->weights) & 3);
}

/* Rows that lack an expert after all: the general way, into the same room. */
__attribute__((noinline)) static void write_not_plain(struct moetrace_pass *pass,
						      struct mt_record_layer *to,
						      const struct moetrace_selection *selection)
{
	struct mt_record_layer header = *to;
	struct checked checked;

	if (!check_selection(pass, selection, &checked))
		write_layer(pass->session, to, &header, selection, &checked);
}

static void select_plain(struct moetrace_pass *pass, const struct moetrace_selection *selection)
{
	const struct mt_layer *layer = &pass->model->layers[selection->layer_index];
	struct mt_ring *ring = stream_of(pass);
	uint64_t n = (uint64_t)pass->n_rows * layer->top_k;
	uint64_t n_bytes = sizeof(struct mt_record_layer) + 3 * n + pass->n_rows;
	uint64_t now_ns = mt_session_ns(pass->session, mt_monotonic_ns());
	struct mt_reservation reservation =
		ring == pass->ring ?
			mt_ring_reserve_alone(ring, MT_RECORD_LAYER, n_bytes, END_BYTES) :
			mt_ring_reserve(ring, MT_RECORD_LAYER, n_bytes);
	struct mt_record_layer *to = (struct mt_record_layer *)reservation.record;
	uint8_t *weights = (uint8_t *)(to + 1);

	if (!to)
		return drop_layer(pass, selection->layer_index, n_bytes, now_ns);
	to->record.time_ns = now_ns;
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
	to->rule = 0;
	if (pass->session->narrow_plain(selection->ids, selection->weights, n, layer->n_ids,
					weights + 2 * n, (uint16_t *)(void *)weights))
		write_not_plain(pass, to, selection);
	mt_ring_commit(ring, reservation);
}

/* Apart, so that the plain way does not pay for its frame. */
__attribute__((noinline)) static void select_any(struct moetrace_pass *pass,
						 const struct moetrace_selection *selection)
{
	struct mt_record_layer header = { .n_invalid = 0 };
	struct moetrace_selection room;
	struct mt_reservation reservation;
	struct checked checked;
	struct mt_ring *ring;
	uint64_t n_bytes;

	if (!mt_abi_knows(selection->size, MT_FIRST_SELECTION))
		return mt_misuse(pass->session, MT_MISUSE_SIZE);
	selection = MT_ABI_WIDEN(selection, &room);
	if (check_selection(pass, selection, &checked))
		return;
	header.record.time_ns = mt_session_ns(pass->session, mt_monotonic_ns());
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
	n_bytes = mt_layer_parts(&header).n_bytes;
	ring = stream_of(pass);
	reservation = ring == pass->ring ?
			      mt_ring_reserve_alone(ring, MT_RECORD_LAYER, n_bytes, END_BYTES) :
			      mt_ring_reserve(ring, MT_RECORD_LAYER, n_bytes);
	if (!reservation.record)
		return drop_layer(pass, selection->layer_index, n_bytes, header.record.time_ns);
	write_layer(pass->session, (struct mt_record_layer *)reservation.record, &header, selection,
		    &checked);
	mt_ring_commit(ring, reservation);
}

void moetrace_select_experts(struct moetrace_pass *pass, const struct moetrace_selection *selection)
{
	if (!pass)
		return;
	if (!selection)
		return mt_misuse(pass->session, MT_MISUSE_SIZE);
	if (is_plain(pass, selection))
		select_plain(pass, selection);
	else
		select_any(pass, selection);
}

void moetrace_pass_end(struct moetrace_pass *pass)
{
	struct mt_reservation reservation;
	struct mt_record_end *end;

	if (!pass)
		return;
	/* Cannot fail: END_BYTES were kept free and only this call takes them. */
	reservation = mt_ring_reserve_alone(pass->ring, MT_RECORD_END, sizeof(*end), 0);
	end = (struct mt_record_end *)reservation.record;
	end->record.time_ns = mt_session_ns(pass->session, mt_monotonic_ns());
	end->side_position = mt_ring_head(mt_ring_side(&pass->session->pool, pass->ring));
	end->n_dropped = atomic_load_explicit(&pass->n_dropped, memory_order_relaxed);
	for (uint32_t i = 0; i < (pass->model->n_layers + 63) / 64; i++)
		end->dropped_layers[i] = atomic_load_explicit(&pass->dropped[i],
							      memory_order_relaxed);
	mt_ring_commit(pass->ring, reservation);
	release(pass->session, pass);
}
