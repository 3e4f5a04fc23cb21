/* SPDX-License-Identifier: MIT */
/*
 * Passes on a lane: the hot path of device-side capture. Nothing here allocates, locks, logs or
 * waits; memory is a reservation in the pinned ring, by one atomic operation.
 *
 * Recording is latched as in the recorder's own pass.c: the pass is counted for a recording first,
 * then it is read whether that one is still on; stop clears the recording first and then looks for
 * passes that are counted. The GPU takes part by the lane's word: kernels of a pass that is not
 * recorded find no tag of theirs there.
 */
#include <moetrace/cuda.h>

#include <string.h>

#include "libtrace/abi.h"
#include "libtrace/clock.h"
#include "libtrace/cuda/capture.h"

static uint64_t now_ns(const struct moetrace_cuda_lane *lane)
{
	return mt_session_ns(lane->cuda->session, mt_monotonic_ns());
}

/* ---- what launches belong to ---- */

static void tie_begin(struct moetrace_cuda_lane *lane)
{
	struct mt_ties *ties = lane->cuda->session->ties;

	if (lane->tie && mt_ties_are_used(ties) && lane->record)
		mt_tie_begin(ties, lane->tie, mt_thread_number(),
			     (uintptr_t)lane->stream, lane->model, lane->number_of_pass);
}

static void tie_end(struct moetrace_cuda_lane *lane)
{
	if (lane->tie)
		mt_tie_end(lane->cuda->session->ties, lane->tie);
}

void moetrace_cuda_mark(struct moetrace_cuda_lane *lane, uint32_t layer_index, uint32_t role)
{
	struct mt_ties *ties = lane && lane->tie ? lane->cuda->session->ties : NULL;

	if (!ties || !mt_ties_are_used(ties))
		return;
	if ((layer_index >= lane->n_layers && layer_index != MOETRACE_NO_LAYER) ||
	    (role > MOETRACE_ROLE_COPY && role != MOETRACE_ROLE_BY_NAME))
		return mt_misuse(lane->cuda->session, MT_MISUSE_CUDA_MARK);
	mt_tie_mark(ties, lane->tie, mt_thread_number(),
		    mt_mark(MT_MARK_SET, lane->model,
			    role == MOETRACE_ROLE_BY_NAME ? MT_MARK_NO_ROLE : role,
			    layer_index == MOETRACE_NO_LAYER ? MT_MARK_NO_LAYER : layer_index));
}

/* Groups have at most a quarter of the ring, an adopted buffer, which has none, half of it. */
static int place_of(const struct moetrace_cuda_lane *lane, uint32_t layer_index, uint32_t n_rows,
		    struct mt_cuda_group *ret_group)
{
	const struct moetrace_cuda_buffer *buffer = &lane->buffer;
	uint64_t layer_bytes = (uint64_t)n_rows * buffer->row_bytes;

	if (n_rows > MOETRACE_CUDA_MAX_ROWS)
		return -1;
	if (!lane->has_buffer)
		return mt_cuda_group_of(lane->layers, lane->n_layers, layer_index,
					mt_cuda_rows_of_code(mt_cuda_rows_code(n_rows)),
					lane->cuda->ring_bytes / 4, ret_group);
	if (n_rows > buffer->max_rows)
		return -1;
	*ret_group = (struct mt_cuda_group){
		.end_layer = lane->n_layers,
		.n_bytes = buffer->row_bytes >= buffer->layer_bytes ? layer_bytes :
								       layer_bytes * lane->n_layers,
	};
	return ret_group->n_bytes <= lane->cuda->ring_bytes / 2 ? 0 : -1;
}

int moetrace_cuda_target_get(struct moetrace_cuda_lane *lane, uint32_t layer_index, uint32_t n_rows,
			 struct moetrace_cuda_target *ret_target)
{
	const struct mt_cuda_layer *layer;
	struct mt_cuda_group group;
	uint32_t code;

	if (!ret_target)
		return MOETRACE_E_INVALID;
	memset(ret_target, 0, sizeof(*ret_target));
	if (!lane)
		return MOETRACE_E_INVALID;
	if (atomic_load_explicit(&lane->cuda->session->forked, memory_order_relaxed))
		return MOETRACE_E_STATE;
	if (layer_index >= lane->n_layers) {
		mt_misuse(lane->cuda->session, MT_MISUSE_CUDA_STORE);
		return MOETRACE_E_INVALID;
	}
	if (n_rows > MOETRACE_CUDA_MAX_ROWS)
		return MOETRACE_E_LIMIT;
	if (!n_rows)
		return MOETRACE_OK;
	code = mt_cuda_rows_code(n_rows);
	if (mt_cuda_group_of(lane->layers, lane->n_layers, layer_index, mt_cuda_rows_of_code(code),
			     lane->cuda->ring_bytes / 4, &group))
		return MOETRACE_E_LIMIT;
	layer = &lane->layers[layer_index];
	ret_target->word = lane->word;
	ret_target->base = lane->cuda->device_ring + group.layer_offset;
	ret_target->n_rows = mt_cuda_rows_of_code(code);
	ret_target->packed = mt_cuda_tag(code, group.group) | layer->k << 16;
	ret_target->indices = layer->n_ids | layer_index << 16;
	return MOETRACE_OK;
}

static uint32_t new_stamp(struct moetrace_cuda *cuda)
{
	uint32_t n = atomic_fetch_add_explicit(&cuda->n_stamps, 1, memory_order_relaxed);

	/* Neither 0 nor all ones, which untouched memory has. */
	return 1 + n % (MT_CUDA_STAMP_MASK - 1);
}

static void note_peak(struct moetrace_cuda *cuda)
{
	uint64_t n_bytes = mt_ring_waiting_bytes(&cuda->ring);

	/* Two threads may overtake each other: it is a hint for whoever sizes the ring. */
	if (n_bytes > atomic_load_explicit(&cuda->peak_bytes, memory_order_relaxed))
		atomic_store_explicit(&cuda->peak_bytes, n_bytes, memory_order_relaxed);
}

/* Room for @head_bytes of description and the data of a group; NULL: the ring is full. */
static struct mt_cuda_record *reserve(struct moetrace_cuda_lane *lane, uint64_t head_bytes,
				      const struct mt_cuda_group *group,
				      struct mt_reservation *ret_reservation)
{
	struct moetrace_cuda *cuda = lane->cuda;
	uint64_t data_offset = mt_cuda_granules(head_bytes);
	struct mt_cuda_record *record;

	*ret_reservation = mt_ring_reserve(&cuda->ring, MT_RECORD_BEGIN,
					   data_offset + mt_cuda_granules(group->n_bytes));
	record = (struct mt_cuda_record *)ret_reservation->record;
	if (!record)
		return NULL;
	note_peak(cuda);
	atomic_store_explicit(&record->is_done, 0, memory_order_relaxed);
	record->data_offset = data_offset;
	record->data_bytes = group->n_bytes;
	record->stamp = new_stamp(cuda);
	record->first_layer = group->first_layer;
	record->end_layer = group->end_layer;
	record->lane = (uint8_t)lane->number;
	record->is_first = 0;
	record->is_last = 0;
	record->is_lost = 0;
	record->has_data = group->n_bytes > 0;
	record->is_adopted = lane->has_buffer != 0;
	if (lane->has_buffer)
		record->buffer = lane->buffer;
	return record;
}

static void commit(struct moetrace_cuda_lane *lane)
{
	mt_ring_commit(&lane->cuda->ring, lane->reservation);
	lane->record = NULL;
}

/* A driver that is broken is not asked again: its streams may be gone. */
static int is_broken(const struct moetrace_cuda *cuda)
{
	return atomic_load(&cuda->error) != 0;
}

/* Kernels of what comes next store nothing. */
static int clear_word(struct moetrace_cuda_lane *lane)
{
	if (mt_cuda_is_closed(lane->word_value))
		return MOETRACE_OK;
	return is_broken(lane->cuda) ? MOETRACE_E_IO :
				       mt_cuda_write_word(lane, mt_cuda_closed(lane->word_value));
}

static int write_word(struct moetrace_cuda_lane *lane, struct mt_cuda_record *record,
		      uint32_t group, uint32_t n_rows)
{
	uint64_t offset = (uint64_t)((const uint8_t *)record - lane->cuda->ring.data) +
			  record->data_offset;
	uint32_t tag = mt_cuda_tag(mt_cuda_rows_code(n_rows), group);

	/* Half of all stamps have gone to other lanes since this one's last pass. */
	record->is_after_long = (int64_t)(lane->word_value - mt_cuda_closed_word(record)) >= 0;
	if (!record->has_data || record->is_adopted)
		return clear_word(lane);
	return mt_cuda_write_word(lane, mt_cuda_word(record->stamp, offset, tag));
}

/* The description of the pass, behind the record. */
static void describe(struct mt_cuda_record *record, const struct moetrace_pass_info *info)
{
	struct mt_cuda_parts parts;

	record->is_first = 1;
	record->runtime_pass = info->runtime_pass ? *info->runtime_pass : 0;
	record->has_runtime_pass = info->runtime_pass != NULL;
	record->parent = info->parent;
	record->microbatch = info->microbatch ? *info->microbatch : 0;
	record->has_microbatch = info->microbatch != NULL;
	record->kv_slot_type = info->kv_slot_type;
	record->model = info->model;
	record->phase = info->phase;
	record->n_rows = info->n_rows;
	record->padding_rows = info->padding_rows;
	record->n_slices = info->n_slices;
	parts = mt_cuda_parts(record);
	if (info->n_slices)
		memcpy(parts.slices, info->slices, info->n_slices * sizeof(*parts.slices));
	if (record->start.slot_bytes)
		memcpy(parts.kv_slots, info->kv_slots,
		       (size_t)info->n_rows * record->start.slot_bytes);
	for (uint32_t i = 0; i < info->n_slices; i++) {
		struct moetrace_slice *slice = &parts.slices[i];

		if (!slice->positions)
			continue;
		memcpy(parts.positions, slice->positions, (size_t)slice->n_rows * 4);
		slice->positions = parts.positions;
		parts.positions += slice->n_rows;
	}
}

/*
 * The recording that a pass is of which begins now, and where it is counted; 0: there is none. -1:
 * whoever gave up waiting for the recording before has counted it as lost there.
 */
static int64_t latch(struct moetrace_cuda *cuda, uint32_t recording_id)
{
	while (recording_id) {
		uint32_t current_id;

		/* Pairs with moetrace_stop(): counted first, looked at then; it does it the other way. */
		atomic_fetch_add(mt_cuda_open_of(cuda, recording_id), 1);
		current_id = atomic_load(&cuda->session->recording_id);
		if (current_id == recording_id)
			break;
		if (!mt_cuda_uncount(cuda, recording_id))
			return -1;
		recording_id = current_id;
	}
	return recording_id;
}

/* A pass that was counted finds no room, or no device; its loss is counted while stop waits for it. */
static int refuse(struct moetrace_cuda_lane *lane, uint32_t recording_id, enum mt_loss_kind kind,
		  uint64_t n_bytes, int status)
{
	struct moetrace_cuda *cuda = lane->cuda;

	/* Else it was counted as lost already, when its recording was given up. */
	if (mt_cuda_refusal_begin(cuda, recording_id)) {
		atomic_fetch_add(kind == MT_LOSS_PASS_DEVICE_FULL ? &cuda->n_refused :
								    &cuda->n_lost, 1);
		mt_count_loss(cuda->session, recording_id, kind, n_bytes, now_ns(lane));
		mt_cuda_refusal_end(cuda, recording_id);
	}
	(void)clear_word(lane);
	return status;
}

/* The GPU has no part in the pass, or none any more. */
static int close_record(struct moetrace_cuda_lane *lane, int is_lost)
{
	lane->record->has_data = 0;
	lane->record->is_last = 1;
	lane->record->is_lost = is_lost != 0;
	commit(lane);
	return is_lost ? MOETRACE_E_IO : clear_word(lane);
}

/* Numbers of passes on a GPU are above those of the rings, and each device has its own. */
static uint64_t new_number(struct moetrace_cuda *cuda)
{
	return (UINT64_C(1) << 63) + ((uint64_t)cuda->index << 56) +
	       atomic_fetch_add_explicit(&cuda->n_numbers, 1, memory_order_relaxed);
}

/* The pass is counted: it will be in flight until its record is taken. Else it is refused. */
static int open_record(struct moetrace_cuda_lane *lane, const struct moetrace_pass_info *info,
		       const struct mt_pass_start *start)
{
	struct moetrace_cuda *cuda = lane->cuda;
	uint32_t n_rows = info->n_rows + info->padding_rows;
	struct mt_cuda_group group = { .end_layer = lane->n_layers };
	uint64_t head_bytes = sizeof(struct mt_cuda_record) +
			      (uint64_t)info->n_slices * sizeof(*info->slices) +
			      mt_slots_bytes(info->n_rows, start->slot_bytes) +
			      start->n_positions * 4;
	struct mt_cuda_record *record;

	if (is_broken(cuda))
		return refuse(lane, start->recording_id, MT_LOSS_PASS_DEVICE, head_bytes,
			      MOETRACE_E_IO);
	if (n_rows && lane->n_layers && place_of(lane, 0, n_rows, &group))
		return refuse(lane, start->recording_id, MT_LOSS_PASS_DEVICE_FULL, head_bytes,
			      MOETRACE_E_LIMIT);
	record = reserve(lane, head_bytes, &group, &lane->reservation);
	if (!record)
		return refuse(lane, start->recording_id, MT_LOSS_PASS_DEVICE_FULL,
			      head_bytes + group.n_bytes, MOETRACE_E_LIMIT);
	lane->record = record;
	/* A count of whoever is in a call on the lane. */
	atomic_store_explicit(&lane->n_begun,
			      atomic_load_explicit(&lane->n_begun, memory_order_relaxed) + 1,
			      memory_order_relaxed);
	mt_ties_set_out(cuda->session->ties, cuda->index);
	record->start = *start;
	record->start.number = lane->number_of_pass = new_number(cuda);
	record->start.gpu = cuda->index + 1;
	record->start.begin_ns = now_ns(lane);
	describe(record, info);
	mt_pass_latch(cuda->session, info, &record->start);
	if (record->start.skip)
		return close_record(lane, 0);
	if (write_word(lane, record, 0, n_rows))
		return close_record(lane, 1);
	mt_tool_begin(&cuda->session->tool,
		      cuda->session->tool.phases[info->phase % MT_N_TOOL_PHASES],
		      info->runtime_pass ? *info->runtime_pass : record->start.number, &lane->tool);
	tie_begin(lane);
	return MOETRACE_OK;
}

/* The open pass, or its last group, is over for the host. */
static int finish(struct moetrace_cuda_lane *lane, int is_lost)
{
	struct mt_cuda_record *record = lane->record;
	int status = MOETRACE_OK;

	lane->is_open = 0;
	mt_tool_end(&lane->cuda->session->tool, &lane->tool);
	tie_end(lane);
	if (!record)
		return MOETRACE_OK;
	record->end_ns = now_ns(lane);
	record->is_last = 1;
	if (record->has_data)
		status = is_broken(lane->cuda) ? MOETRACE_E_IO : mt_cuda_ship(lane, record);
	record->is_lost = is_lost || status;
	if (status)
		record->has_data = 0;
	commit(lane);
	return status;
}

static int misused(struct moetrace_cuda_lane *lane, enum mt_misuse misuse, int status)
{
	mt_misuse(lane->cuda->session, misuse);
	return status;
}

/* Nothing can be done in the lane's stream now, from this thread. */
static int is_barred(struct moetrace_cuda_lane *lane)
{
	if (is_broken(lane->cuda))
		return 0;
	switch (mt_cuda_ask_stream(lane)) {
	case MT_CUDA_STREAM_CAPTURING:
		mt_misuse(lane->cuda->session, MT_MISUSE_CUDA_CAPTURING);
		return 1;
	case MT_CUDA_STREAM_STRANGE:
		mt_misuse(lane->cuda->session, MT_MISUSE_CUDA_STREAM);
		return 1;
	default:
		return 0;
	}
}

static int begin(struct moetrace_cuda_lane *lane, const struct moetrace_pass_info *info)
{
	struct moetrace_session *session = lane->cuda->session;
	struct moetrace_pass_info room;
	struct mt_pass_start start;
	uint32_t recording_id = atomic_load(&session->recording_id);
	int64_t latched;

	if (!recording_id && !lane->is_open && mt_cuda_is_closed(lane->word_value)) {
		lane->is_open = 1;
		return MOETRACE_OK;
	}
	if (is_barred(lane))
		return MOETRACE_E_STATE;
	if (lane->is_open && lane->record)
		mt_misuse(session, MT_MISUSE_CUDA_LANE);
	if (lane->is_open)
		(void)finish(lane, 1);
	lane->is_open = 1;
	if (!recording_id)
		return clear_word(lane);
	if (!info || !mt_abi_knows(info->size, MT_FIRST_PASS_INFO)) {
		(void)clear_word(lane);
		return misused(lane, MT_MISUSE_SIZE, MOETRACE_E_INVALID);
	}
	info = MT_ABI_WIDEN(info, &room);
	if (mt_pass_check(session, info, &start)) {
		(void)clear_word(lane);
		return MOETRACE_E_INVALID;
	}
	if (info->model != lane->model) {
		(void)clear_word(lane);
		return misused(lane, MT_MISUSE_CUDA_LANE, MOETRACE_E_INVALID);
	}
	latched = latch(lane->cuda, recording_id);
	if (latched <= 0) {
		int status = clear_word(lane);

		return latched ? MOETRACE_E_IO : status;
	}
	start.recording_id = (uint32_t)latched;
	return open_record(lane, info, &start);
}

/* The next group has a place of its own; the one before goes to the host meanwhile. */
static int next_group(struct moetrace_cuda_lane *lane, uint32_t layer_index)
{
	struct mt_cuda_record *before = lane->record;
	uint32_t n_rows = before->n_rows + before->padding_rows;
	struct mt_reservation reservation;
	struct mt_cuda_record *record;
	struct mt_cuda_group group;
	int status;

	if (place_of(lane, layer_index, n_rows, &group))
		return MOETRACE_E_LIMIT;
	record = reserve(lane, sizeof(*record), &group, &reservation);
	/* Layers that no record has are stored as dropped. */
	if (!record) {
		(void)clear_word(lane);
		return MOETRACE_E_LIMIT;
	}
	record->start = before->start;
	record->n_rows = before->n_rows;
	record->padding_rows = before->padding_rows;
	status = write_word(lane, record, group.group, n_rows);
	if (!status)
		status = mt_cuda_ship(lane, before);
	before->end_ns = now_ns(lane);
	before->is_lost = status != 0;
	if (status)
		before->has_data = 0;
	commit(lane);
	lane->record = record;
	lane->reservation = reservation;
	if (status) {
		record->has_data = 0;
		(void)finish(lane, 1);
		lane->is_open = 1;
	}
	return status;
}

static int layers(struct moetrace_cuda_lane *lane, uint32_t layer_index)
{
	if (layer_index >= lane->n_layers)
		return misused(lane, MT_MISUSE_CUDA_GROUP, MOETRACE_E_INVALID);
	if (!lane->record || !lane->record->has_data || layer_index < lane->record->end_layer)
		return MOETRACE_OK;
	if (is_barred(lane))
		return MOETRACE_E_STATE;
	return next_group(lane, layer_index);
}

static int end(struct moetrace_cuda_lane *lane)
{
	if (!lane->is_open)
		return misused(lane, MT_MISUSE_CUDA_LANE, MOETRACE_E_STATE);
	if (lane->record && is_barred(lane))
		return MOETRACE_E_STATE;
	return finish(lane, 0);
}

/* Whether the lane may be used: 0, else the status for the caller. */
static int enter(struct moetrace_cuda_lane *lane)
{
	if (atomic_load_explicit(&lane->cuda->session->forked, memory_order_relaxed))
		return MOETRACE_E_STATE;
	/* Pairs with leave(): what the last user wrote is seen. */
	if (atomic_exchange_explicit(&lane->is_busy, 1, memory_order_acquire))
		return misused(lane, MT_MISUSE_CUDA_LANE, MOETRACE_E_STATE);
	return MOETRACE_OK;
}

static int leave(struct moetrace_cuda_lane *lane, int status)
{
	atomic_store_explicit(&lane->is_busy, 0, memory_order_release);
	return status;
}

int moetrace_cuda_pass_begin(struct moetrace_cuda_lane *lane, const struct moetrace_pass_info *info)
{
	int status = lane ? enter(lane) : MOETRACE_OK;

	return lane && !status ? leave(lane, begin(lane, info)) : status;
}

int moetrace_cuda_pass_layers(struct moetrace_cuda_lane *lane, uint32_t layer_index)
{
	int status = lane ? enter(lane) : MOETRACE_OK;

	return lane && !status ? leave(lane, layers(lane, layer_index)) : status;
}

int moetrace_cuda_pass_end(struct moetrace_cuda_lane *lane)
{
	int status = lane ? enter(lane) : MOETRACE_OK;

	return lane && !status ? leave(lane, end(lane)) : status;
}

uint64_t moetrace_cuda_pass_number(const struct moetrace_cuda_lane *lane)
{
	return lane && lane->is_open && lane->record ? lane->number_of_pass : 0;
}

/* One row: the layers may follow each other as the rows would. */
static int is_one_row_a_layer(const struct moetrace_cuda_buffer *buffer)
{
	return buffer->max_rows == 1 && buffer->row_bytes == buffer->layer_bytes;
}

/* Of a row of the widest layer. */
static uint64_t entries_bytes(const struct moetrace_cuda_lane *lane, uint32_t type)
{
	uint32_t k = 0;

	for (uint32_t i = 0; i < lane->n_layers; i++)
		k = lane->layers[i].k > k ? lane->layers[i].k : k;
	return (uint64_t)k * mt_type_bytes(type);
}

/* The driver copies rows that lie up to 2 GiB apart. */
static int check_buffer(const struct moetrace_cuda_lane *lane,
			const struct moetrace_cuda_buffer *buffer)
{
	uint64_t entry_bytes = mt_type_bytes(buffer->id_type);
	uint64_t least_bytes = entries_bytes(lane, buffer->id_type);

	if (!mt_type_is_integer(buffer->id_type) || buffer->order > MOETRACE_ORDER_UNORDERED ||
	    !buffer->ids || !buffer->max_rows || buffer->max_rows > MOETRACE_CUDA_MAX_ROWS ||
	    buffer->row_bytes > INT32_MAX || buffer->layer_bytes > INT32_MAX ||
	    buffer->layer_bytes % entry_bytes || buffer->row_bytes % entry_bytes)
		return -1;
	if (buffer->row_bytes < least_bytes || buffer->layer_bytes < least_bytes)
		return -1;
	if (is_one_row_a_layer(buffer))
		return 0;
	if (buffer->row_bytes >= buffer->layer_bytes)
		return buffer->layer_bytes * lane->n_layers > buffer->row_bytes ? -1 : 0;
	return buffer->row_bytes * buffer->max_rows > buffer->layer_bytes ? -1 : 0;
}

static int adopt(struct moetrace_cuda_lane *lane, const struct moetrace_cuda_buffer *buffer)
{
	struct moetrace_session *session = lane->cuda->session;
	struct moetrace_cuda_buffer room;

	if (buffer && !mt_abi_knows(buffer->size, MT_FIRST_CUDA_BUFFER))
		return mt_session_error(session, MOETRACE_E_INVALID,
					"cuda: adopt: size is not set; use MOETRACE_INIT()");
	if (lane->is_open)
		return mt_session_error(session, MOETRACE_E_STATE,
					"cuda: adopt: a pass is open in the lane");
	buffer = buffer ? MT_ABI_WIDEN(buffer, &room) : NULL;
	if (buffer && check_buffer(lane, buffer))
		return mt_session_error(session, MOETRACE_E_INVALID,
					"cuda: adopt: types, distances or rows of the buffer do not "
					"fit the lane's model, or each other");
	lane->has_buffer = buffer != NULL;
	if (buffer) {
		lane->buffer = *buffer;
		lane->entries_bytes = entries_bytes(lane, buffer->id_type);
	}
	/* As one row of all layers, so that the larger stride spans the smaller one again. */
	if (buffer && is_one_row_a_layer(buffer))
		lane->buffer.row_bytes = lane->n_layers * buffer->layer_bytes;
	return MOETRACE_OK;
}

int moetrace_cuda_adopt(struct moetrace_cuda_lane *lane, const struct moetrace_cuda_buffer *buffer)
{
	int status;

	if (!lane)
		return MOETRACE_E_INVALID;
	status = enter(lane);
	return status ? status : leave(lane, adopt(lane, buffer));
}
