/* SPDX-License-Identifier: MIT */
/*
 * From a record of the pinned ring to the recorder: the pass is begun and ended there with the
 * times that it had, and each layer that was stored is handed over like any selection.
 *
 * Invariant: nothing is handed over that no kernel wrote in this pass. A layer counts by its
 * head, a row by its mark; both carry the stamp of the pass.
 */
#include <stdlib.h>
#include <string.h>

#include "libtrace/clock.h"
#include "libtrace/cuda/capture.h"

/* How long the recorder's rings may stay full before layers are dropped. */
#define PATIENCE_NS (5 * MT_NS_PER_S)
/* A record of a layer beside its rows, and the pass's end. */
#define SLACK_BYTES 16384u

/*
 * A layer's rows, unpacked: row_map u32 and margins f32 [n_rows], then ids i32 and weights f32
 * [n_rows][k] each, then flags u8 [n_rows].
 */
struct mt_cuda_scratch {
	uint64_t n_bytes;
	uint32_t words[];
};

void mt_cuda_scratch_free(struct mt_cuda_scratch *scratch)
{
	free(scratch);
}

void mt_cuda_lose(struct moetrace_cuda *cuda, uint32_t recording_id, uint64_t n)
{
	mt_count_losses(cuda->session, recording_id, MT_LOSS_PASS_DEVICE, n, 0,
			mt_session_ns(cuda->session, mt_monotonic_ns()));
	atomic_fetch_add(&cuda->n_lost, n);
}

/* Nothing is gained by waiting: the writer has given up, or waits itself. */
static int is_hopeless(const struct moetrace_cuda *cuda, uint64_t until_ns)
{
	return atomic_load(&cuda->session->failed) || atomic_load(&cuda->n_hurried) ||
	       mt_monotonic_ns() > until_ns;
}

/* The pass begins in the recorder; MOETRACE_E_LIMIT: it found no room there. */
static int begin_pass(struct moetrace_cuda_lane *lane, struct mt_cuda_record *record)
{
	struct moetrace_cuda *cuda = lane->cuda;
	uint64_t until_ns = mt_monotonic_ns() + PATIENCE_NS;
	struct mt_cuda_parts parts = mt_cuda_parts(record);
	struct moetrace_pass_info info;
	int status;

	MOETRACE_INIT(&info);
	info.model = record->model;
	info.phase = record->phase;
	info.n_rows = record->n_rows;
	info.padding_rows = record->padding_rows;
	info.n_slices = record->n_slices;
	info.slices = record->n_slices ? parts.slices : NULL;
	info.runtime_pass = record->has_runtime_pass ? &record->runtime_pass : NULL;
	info.parent = record->parent;
	info.microbatch = record->has_microbatch ? &record->microbatch : NULL;
	info.kv_slots = record->start.slot_bytes ? parts.kv_slots : NULL;
	info.kv_slot_type = record->kv_slot_type;
	while ((status = mt_pass_begin_late(cuda->session, &info, &record->start, &lane->pass)) &&
	       !is_hopeless(cuda, until_ns))
		mt_cuda_rest();
	return status;
}

/* The rings are the host's measure: wait until the writer has made room, if it can. */
static void wait_for_room(struct moetrace_cuda *cuda, struct moetrace_pass *pass, uint64_t n_bytes)
{
	uint64_t until_ns = mt_monotonic_ns() + PATIENCE_NS;
	uint64_t waiting_bytes;

	while ((waiting_bytes = mt_ring_waiting_bytes(pass->ring)) &&
	       pass->ring->n_bytes - waiting_bytes < n_bytes + SLACK_BYTES &&
	       !is_hopeless(cuda, until_ns))
		mt_cuda_rest();
}

/*
 * The GPU's time of a layer, of which 32 bits are known, lies between the pass's begin and its arrival,
 * and so corrects the offset between the clocks, which drift apart.
 */
static uint64_t to_session_ns(struct moetrace_cuda *cuda, uint32_t timer_ns, uint64_t begin_ns,
			      uint64_t arrival_ns)
{
	uint64_t time_ns;
	int64_t late_ns;

	if (!cuda->has_offset)
		cuda->offset_ns = (uint32_t)arrival_ns - timer_ns;
	cuda->has_offset = 1;
	time_ns = mt_cuda_whole_ns(timer_ns + cuda->offset_ns, begin_ns, arrival_ns);
	late_ns = (int64_t)(time_ns - begin_ns);
	if (late_ns < 0 || time_ns > arrival_ns) {
		time_ns = late_ns < 0 ? begin_ns : arrival_ns;
		cuda->offset_ns = (uint32_t)time_ns - timer_ns;
	}
	return time_ns;
}

/* Room for @n_rows rows of @k entries; NULL: out of memory. */
static struct mt_cuda_scratch *scratch_of(struct moetrace_cuda *cuda, uint32_t n_rows, uint32_t k)
{
	struct mt_cuda_scratch *scratch = cuda->scratch;
	uint64_t n_bytes = (uint64_t)n_rows * 4 * (2ul * k + 3);

	if (scratch && scratch->n_bytes >= n_bytes)
		return scratch;
	free(scratch);
	scratch = malloc(sizeof(*scratch) + n_bytes);
	cuda->scratch = scratch;
	if (scratch)
		scratch->n_bytes = n_bytes;
	return scratch;
}

/* A layer's rows as the GPU left them. */
struct seen {
	const struct mt_cuda_head *head;
	const uint32_t *rows;
	const struct mt_cuda_layer *layer;
	uint32_t stamp;
};

static const uint32_t *row_at(const struct seen *seen, uint64_t row)
{
	return seen->rows + row * (seen->layer->row_bytes / 4);
}

static uint32_t mark_of(const struct seen *seen, uint64_t row)
{
	return row_at(seen, row)[2ul * seen->layer->k];
}

static int is_written(const struct seen *seen, uint64_t row)
{
	return (mark_of(seen, row) & MT_CUDA_STAMP_MASK) == seen->stamp;
}

static uint32_t count_written(const struct seen *seen, uint32_t first, uint32_t end)
{
	uint32_t n = 0;

	for (uint32_t row = first; row < end; row++)
		n += (uint32_t)is_written(seen, row);
	return n;
}

/*
 * Which rows of the layer are to be handed over: all, all with padding, or those that its kernel
 * says it was launched for, by a map. 0: neither is so, and the layer stays unwritten.
 */
static int choose_rows(struct moetrace_cuda *cuda, const struct mt_cuda_record *record,
		       const struct seen *seen, uint32_t *map, struct moetrace_selection *selection)
{
	uint32_t n_all = record->n_rows + record->padding_rows;
	uint32_t n = count_written(seen, 0, record->n_rows);

	selection->n_rows = n;
	if (n == record->n_rows) {
		if (record->padding_rows &&
		    count_written(seen, record->n_rows, n_all) == record->padding_rows)
			selection->n_rows = n_all;
		return 1;
	}
	if (n != seen->head->n_rows) {
		mt_misuse(cuda->session, MT_MISUSE_CUDA_ROWS);
		return 0;
	}
	for (uint32_t row = 0, i = 0; row < record->n_rows; row++)
		if (is_written(seen, row))
			map[i++] = row;
	selection->row_map = map;
	return 1;
}

/* Entries of the chosen rows, apart into ids and weights. */
static void unpack(struct moetrace_session *session, const struct seen *seen,
		   const struct moetrace_selection *selection, uint32_t *ret_ids,
		   uint32_t *ret_weights)
{
	uint32_t k = seen->layer->k;

	for (uint64_t i = 0; i < selection->n_rows; i++) {
		uint64_t row = selection->row_map ? selection->row_map[i] : i;
		const uint32_t *entries = row_at(seen, row);

		for (uint32_t j = 0; j < k; j++) {
			*ret_ids++ = entries[2ul * j];
			*ret_weights++ = entries[2ul * j + 1];
		}
		if (entries[2ul * k] & MT_CUDA_FLAG_NAN)
			mt_misuse(session, MT_MISUSE_CUDA_NAN);
	}
}

/* Margins and flags, if the kernel told those of every row. */
static void unpack_facts(const struct seen *seen, float *margins, uint8_t *flags,
			 struct moetrace_selection *selection)
{
	uint32_t k = seen->layer->k;

	for (uint64_t i = 0; i < selection->n_rows; i++) {
		uint64_t row = selection->row_map ? selection->row_map[i] : i;
		uint32_t mark = mark_of(seen, row);

		if (!(mark & MT_CUDA_FLAG_MARGIN))
			return;
		memcpy(&margins[i], row_at(seen, row) + 2ul * k + 1, sizeof(margins[i]));
		flags[i] = (uint8_t)((mark & MT_CUDA_FLAG_NAN ? MOETRACE_ROW_NAN : 0) |
				     (mark & MT_CUDA_FLAG_TIE ? MOETRACE_ROW_TIE : 0));
	}
	selection->margins = margins;
	selection->row_flags = flags;
}

static void deliver_layer(struct moetrace_cuda_lane *lane, const struct mt_cuda_record *record,
			  uint32_t layer_index, const uint8_t *data, uint64_t arrival_ns)
{
	struct moetrace_cuda *cuda = lane->cuda;
	const struct mt_cuda_layer *layer = &lane->layers[layer_index];
	uint32_t n_all = record->n_rows + record->padding_rows;
	struct seen seen = { (const struct mt_cuda_head *)(const void *)data,
			     (const uint32_t *)(const void *)(data + MT_CUDA_HEAD_BYTES), layer,
			     record->stamp };
	struct mt_cuda_scratch *scratch = scratch_of(cuda, n_all, layer->k);
	struct moetrace_selection selection;
	uint32_t *ids, *weights;

	if (!scratch || seen.head->stamp != record->stamp ||
	    seen.head->layer_index != layer_index)
		return;
	MOETRACE_INIT(&selection);
	if (!choose_rows(cuda, record, &seen, scratch->words, &selection))
		return;
	ids = scratch->words + 2ul * n_all;
	weights = ids + (uint64_t)n_all * layer->k;
	unpack(cuda->session, &seen, &selection, ids, weights);
	if (lane->has_margins)
		unpack_facts(&seen, (float *)(scratch->words + n_all),
			     (uint8_t *)(weights + (uint64_t)n_all * layer->k), &selection);
	selection.layer_index = layer_index;
	selection.k = layer->k;
	selection.order = lane->order;
	selection.id_space = lane->id_space;
	selection.id_type = MOETRACE_TYPE_I32;
	selection.ids = ids;
	if (lane->weight_format != MOETRACE_WEIGHT_FORMAT_NONE) {
		selection.weight_type = MOETRACE_TYPE_F32;
		selection.weights = weights;
	}
	mt_cuda_timer_note(cuda, seen.head->timer_ns, record->start.begin_ns, arrival_ns);
	mt_pass_set_time(lane->pass, to_session_ns(cuda, seen.head->timer_ns,
						   record->start.begin_ns, arrival_ns));
	wait_for_room(cuda, lane->pass, mt_cuda_layer_bytes(layer, selection.n_rows));
	moetrace_select_experts(lane->pass, &selection);
}

static void deliver_stored(struct moetrace_cuda_lane *lane, struct mt_cuda_record *record,
			   uint64_t arrival_ns)
{
	const uint8_t *data = (const uint8_t *)record + record->data_offset;
	uint32_t n_rows = mt_cuda_rows_of_code(
		mt_cuda_rows_code(record->n_rows + record->padding_rows));

	for (uint32_t i = record->first_layer; i < record->end_layer; i++) {
		deliver_layer(lane, record, i, data, arrival_ns);
		data += mt_cuda_layer_bytes(&lane->layers[i], n_rows);
	}
}

static void deliver_adopted(struct moetrace_cuda_lane *lane, struct mt_cuda_record *record,
			    uint64_t arrival_ns)
{
	const struct moetrace_cuda_buffer *buffer = &record->buffer;
	uint32_t n_rows = record->n_rows + (buffer->padding_is_valid ? record->padding_rows : 0);
	uint64_t layer_bytes = buffer->row_bytes >= buffer->layer_bytes ?
				       buffer->layer_bytes :
				       n_rows * buffer->row_bytes;
	const uint8_t *data = (const uint8_t *)record + record->data_offset;

	for (uint32_t i = 0; i < lane->n_layers; i++) {
		struct moetrace_selection selection;

		MOETRACE_INIT(&selection);
		selection.layer_index = i;
		selection.k = lane->layers[i].k;
		selection.n_rows = n_rows;
		selection.order = buffer->order;
		selection.id_space = lane->id_space;
		selection.id_type = buffer->id_type;
		selection.ids = data + i * layer_bytes;
		selection.ids_row_bytes = buffer->row_bytes;
		selection.untimed = 1;
		mt_pass_set_time(lane->pass, arrival_ns);
		wait_for_room(lane->cuda, lane->pass, (uint64_t)n_rows * lane->layers[i].row_bytes);
		moetrace_select_experts(lane->pass, &selection);
	}
}

/* Layers that found no room in the ring: they have no record. */
static void drop_layers(struct moetrace_cuda_lane *lane, uint32_t end_layer, uint64_t now_ns)
{
	for (; lane->next_layer < end_layer; lane->next_layer++)
		mt_drop_layer(lane->pass, lane->next_layer, 0, now_ns);
}

void mt_cuda_deliver_end(struct moetrace_cuda_lane *lane, uint64_t end_ns)
{
	drop_layers(lane, lane->n_layers, end_ns);
	mt_pass_set_time(lane->pass, end_ns);
	moetrace_pass_end(lane->pass);
	lane->pass = NULL;
}

static void settle(struct moetrace_cuda *cuda, const struct mt_cuda_record *record,
		   int is_delivered)
{
	atomic_fetch_add(&cuda->n_delivered, (uint64_t)is_delivered);
	/* Last: whoever waits for it finds the pass in the recorder's rings. */
	(void)mt_cuda_uncount(cuda, record->start.recording_id);
}

/* The first record of a pass; 0: there is nothing more to deliver. */
static int deliver_begin(struct moetrace_cuda_lane *lane, struct mt_cuda_record *record)
{
	struct moetrace_cuda *cuda = lane->cuda;
	int status;

	lane->next_layer = 0;
	lane->pass = NULL;
	status = record->is_lost ? MOETRACE_E_IO : begin_pass(lane, record);
	if (lane->pass)
		return 1;
	if (status)
		mt_cuda_lose(cuda, record->start.recording_id, 1);
	settle(cuda, record, !status);
	return 0;
}

void mt_cuda_deliver(struct moetrace_cuda *cuda, struct mt_cuda_record *record)
{
	struct moetrace_cuda_lane *lane = &cuda->lanes[record->lane];
	uint64_t now_ns = mt_session_ns(cuda->session, mt_monotonic_ns());

	if (record->is_first && !deliver_begin(lane, record))
		return;
	/* A further group of a pass that could not be begun, or was abandoned. */
	if (!lane->pass)
		return;
	drop_layers(lane, record->first_layer, now_ns);
	if (record->is_lost)
		drop_layers(lane, record->end_layer, now_ns);
	else if (record->has_data && record->is_adopted)
		deliver_adopted(lane, record, now_ns);
	else if (record->has_data)
		deliver_stored(lane, record, now_ns);
	lane->next_layer = record->end_layer;
	if (!record->is_last)
		return;
	mt_cuda_deliver_end(lane, now_ns);
	settle(cuda, record, 1);
}
