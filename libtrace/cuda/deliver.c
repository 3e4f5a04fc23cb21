/* SPDX-License-Identifier: MIT */
/*
 * From a record of the pinned ring to the recorder: the pass is begun and ended there with the
 * times that it had, and each layer that was stored is handed over like any selection.
 *
 * Invariant: nothing is handed over that no kernel wrote in this pass. A layer counts by its
 * head, a row by its mark; both carry the stamp of the pass.
 */
#include <stdlib.h>
#include <time.h>

#include "libtrace/clock.h"
#include "libtrace/cuda/capture.h"

#define PAUSE_NS 100000
/* How long the recorder's rings may stay full before layers are dropped. */
#define PATIENCE_NS (5 * MT_NS_PER_S)
/* A record of a layer beside its rows, and the pass's end. */
#define SLACK_BYTES 16384u

struct mt_cuda_scratch {
	uint32_t n_rows;
	uint32_t row_map[];
};

void mt_cuda_scratch_free(struct mt_cuda_scratch *scratch)
{
	free(scratch);
}

void mt_cuda_lose(struct moetrace_cuda *cuda, uint64_t n)
{
	uint64_t now_ns = mt_session_ns(cuda->session, mt_monotonic_ns());

	for (uint64_t i = 0; i < n; i++)
		mt_count_loss(cuda->session, MT_LOSS_PASS_DEVICE, 0, now_ns);
	atomic_fetch_add(&cuda->n_lost, n);
}

/* Nothing is gained by waiting: the writer has given up, or there is none. */
static int is_hopeless(const struct moetrace_cuda *cuda, uint64_t until_ns)
{
	return atomic_load(&cuda->session->failed) || mt_monotonic_ns() > until_ns;
}

static void rest(void)
{
	const struct timespec pause = { 0, PAUSE_NS };

	nanosleep(&pause, NULL);
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
		rest();
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
		rest();
}

/* The GPU's time of a layer lies between the pass's begin and its arrival, and so corrects the
   offset between the clocks, which drift apart. */
static uint64_t to_session_ns(struct moetrace_cuda *cuda, uint64_t timer_ns, uint64_t begin_ns,
			      uint64_t arrival_ns)
{
	int64_t least = (int64_t)(begin_ns - timer_ns);
	int64_t most = (int64_t)(arrival_ns - timer_ns);

	if (!cuda->has_offset || cuda->offset_ns < least)
		cuda->offset_ns = least;
	if (cuda->offset_ns > most)
		cuda->offset_ns = most;
	cuda->has_offset = 1;
	return timer_ns + (uint64_t)cuda->offset_ns;
}

/* Room for a map of the pass's rows; NULL: out of memory. */
static uint32_t *row_map(struct moetrace_cuda *cuda, uint32_t n_rows)
{
	struct mt_cuda_scratch *scratch = cuda->scratch;

	if (scratch && scratch->n_rows >= n_rows)
		return scratch->row_map;
	free(scratch);
	scratch = malloc(sizeof(*scratch) + (size_t)n_rows * 4);
	cuda->scratch = scratch;
	if (!scratch)
		return NULL;
	scratch->n_rows = n_rows;
	return scratch->row_map;
}

/* A layer's rows as the GPU left them. */
struct seen {
	const struct mt_cuda_head *head;
	const uint8_t *rows;
	const struct mt_cuda_layer *layer;
	uint32_t stamp;
};

static int is_written(const struct seen *seen, uint32_t row)
{
	const uint32_t *mark = (const uint32_t *)(const void *)(seen->rows +
								 (size_t)row * seen->layer->row_bytes +
								 seen->layer->mark_offset);

	return (*mark & MT_CUDA_STAMP_MASK) == seen->stamp;
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
 * says it was launched for. 0: neither is so, and the layer stays unwritten.
 */
static int choose_rows(struct moetrace_cuda *cuda, const struct mt_cuda_record *record,
		       const struct seen *seen, struct moetrace_selection *selection)
{
	uint32_t n_all = record->n_rows + record->padding_rows;
	uint32_t n = count_written(seen, 0, record->n_rows);
	uint32_t *map;

	selection->n_rows = n;
	if (n == record->n_rows) {
		if (record->padding_rows &&
		    count_written(seen, record->n_rows, n_all) == record->padding_rows)
			selection->n_rows = n_all;
		return 1;
	}
	if (n == seen->head->n_rows && (map = row_map(cuda, record->n_rows))) {
		uint32_t *at = map;

		for (uint32_t row = 0; row < record->n_rows; row++)
			if (is_written(seen, row))
				*at++ = row;
		selection->row_map = map;
		return 1;
	}
	mt_misuse(cuda->session, MT_MISUSE_CUDA_ROWS);
	return 0;
}

/* Rows that a map names follow each other only in the map: they are moved together. */
static void gather(const struct seen *seen, uint8_t *rows, const uint32_t *map, uint32_t n_rows)
{
	for (uint32_t i = 0; i < n_rows; i++)
		memmove(rows + (size_t)i * seen->layer->row_bytes,
			rows + (size_t)map[i] * seen->layer->row_bytes, seen->layer->row_bytes);
}

static void deliver_layer(struct moetrace_cuda_lane *lane, const struct mt_cuda_record *record,
			  uint32_t layer_index, uint8_t *data, uint64_t arrival_ns)
{
	struct moetrace_cuda *cuda = lane->cuda;
	const struct mt_cuda_layer *layer = &lane->layers[layer_index];
	uint8_t *rows = data + MT_CUDA_HEAD_BYTES;
	struct seen seen = { (const struct mt_cuda_head *)(void *)data, rows, layer, record->stamp };
	struct moetrace_selection selection;

	if (seen.head->stamp != record->stamp || seen.head->layer_index != layer_index)
		return;
	MOETRACE_INIT(&selection);
	if (!choose_rows(cuda, record, &seen, &selection))
		return;
	if (selection.row_map)
		gather(&seen, rows, selection.row_map, selection.n_rows);
	selection.layer_index = layer_index;
	selection.k = layer->k;
	selection.order = lane->order;
	selection.id_type = layer->id_bytes == 1 ? MOETRACE_TYPE_U8 : MOETRACE_TYPE_U16;
	selection.ids = rows;
	selection.ids_row_bytes = layer->row_bytes;
	if (lane->weight_format != MOETRACE_WEIGHT_FORMAT_NONE) {
		selection.weight_type = lane->weight_format == MOETRACE_WEIGHT_FORMAT_BF16 ?
						MOETRACE_TYPE_BF16 :
						MOETRACE_TYPE_F16;
		selection.weights = rows + layer->weights_offset;
		selection.weights_row_bytes = layer->row_bytes;
	}
	mt_pass_set_time(lane->pass, to_session_ns(cuda, seen.head->timer_ns, record->start.begin_ns,
						   arrival_ns));
	wait_for_room(cuda, lane->pass, mt_cuda_layer_bytes(layer, selection.n_rows));
	moetrace_select_experts(lane->pass, &selection);
}

static void deliver_stored(struct moetrace_cuda_lane *lane, struct mt_cuda_record *record,
			   uint64_t arrival_ns)
{
	uint8_t *data = (uint8_t *)record + record->data_offset;
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

static void settle(struct moetrace_cuda *cuda, int is_delivered)
{
	atomic_fetch_add(&cuda->n_delivered, (uint64_t)is_delivered);
	/* Last: whoever waits for it finds the pass in the recorder's rings. */
	atomic_fetch_add(&cuda->n_settled, 1);
}

/* The first record of a pass; 0: there is nothing more to deliver. */
static int deliver_begin(struct moetrace_cuda_lane *lane, struct mt_cuda_record *record)
{
	struct moetrace_cuda *cuda = lane->cuda;
	int status = MOETRACE_OK;

	lane->next_layer = 0;
	lane->pass = NULL;
	if (record->start.recording_id)
		status = record->is_lost ? MOETRACE_E_IO : begin_pass(lane, record);
	if (lane->pass)
		return 1;
	if (status)
		mt_cuda_lose(cuda, 1);
	settle(cuda, !status && record->start.recording_id);
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
	settle(cuda, 1);
}
