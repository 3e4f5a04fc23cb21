/* SPDX-License-Identifier: MIT */
/*
 * The driver calls of the hot path. A pass costs five at most: its word is written; at its end
 * the word is closed (an adopted buffer is copied aside before, and had no word to write); the
 * side stream waits for that, copies, and writes the done word. All are asynchronous.
 *
 * Words of a lane only grow, as their stamps do, and a closed word is larger than the one before
 * it: so one write closes the pass, which makes a graph that is replayed outside of a pass find
 * nothing to write to, and tells the side stream that the pass is over. Where the driver refuses
 * waits for values an event tells it, and the word stays until the next pass. Stamps come round: a
 * lane whose last pass is 2^27 passes of other lanes ago has a word that would pass for a later one;
 * there an event tells it, too, for the one pass by a call more.
 *
 * An error of the driver here means that the device is lost or misused: from then on nothing is
 * recorded, and no memory of the ring that a copy may still write to is used again.
 */
#include "libtrace/cuda/capture.h"

void mt_cuda_fail(struct moetrace_cuda *cuda, const char *call, int result)
{
	int none = 0;

	/* Pairs with the drain thread, which reports the first error when it knows its call, too. */
	if (atomic_compare_exchange_strong(&cuda->error, &none, result))
		atomic_store(&cuda->error_call, call);
}

/* Of these the caller is the cause, and the device lives on. */
static int is_callers(int result)
{
	return result == MT_CU_INVALID_CONTEXT || result == MT_CU_INVALID_HANDLE;
}

enum mt_cuda_ask mt_cuda_ask_stream(struct moetrace_cuda_lane *lane)
{
	int state = 0;
	int result = lane->cuda->cu->stream_is_capturing(lane->stream, &state);

	if (is_callers(result))
		return MT_CUDA_STREAM_STRANGE;
	if (result == MT_CU_DEINITIALIZED || result == MT_CU_CONTEXT_IS_DESTROYED)
		mt_cuda_fail(lane->cuda, "a look at a lane's stream", result);
	return result == MT_CU_CAPTURE_IMPLICIT || state != 0 ? MT_CUDA_STREAM_CAPTURING :
								MT_CUDA_STREAM_FREE;
}

/* A 64-bit value at an address, in stream order, everything before it visible to the host. */
static int write_value(struct moetrace_cuda *cuda, void *stream, uint64_t address, uint64_t value)
{
	void *parameters[] = { &address, &value };

	if (cuda->has_write)
		return cuda->cu->write_value(stream, address, value, 0);
	return cuda->cu->launch(cuda->write_kernel, 1, 1, 1, 1, 1, 1, 0, stream, parameters, NULL);
}

int mt_cuda_write_word(struct moetrace_cuda_lane *lane, uint64_t value)
{
	int result = write_value(lane->cuda, lane->stream, lane->word, value);

	/* While the word is closed, no kernel stores anything that could be in the way later. */
	if (is_callers(result) && mt_cuda_is_closed(lane->word_value)) {
		mt_misuse(lane->cuda->session, MT_MISUSE_CUDA_STREAM);
		return MOETRACE_E_IO;
	}
	if (result) {
		mt_cuda_fail(lane->cuda, "the write of a lane's word", result);
		return MOETRACE_E_IO;
	}
	lane->word_value = value;
	return MOETRACE_OK;
}

/* The side stream goes on when the lane's is at the end of the record's pass or group. */
static int follow(struct moetrace_cuda_lane *lane, const struct mt_cuda_record *record)
{
	const struct mt_cu *cu = lane->cuda->cu;
	uint64_t closed = mt_cuda_closed_word(record);
	int result = 0;

	/* The word of a next group says it already, or that there was no room for one. */
	if (lane->cuda->has_wait && record->is_last && lane->word_value != closed) {
		result = write_value(lane->cuda, lane->stream, lane->word, closed);
		lane->word_value = closed;
	}
	if (!result && lane->cuda->has_wait && !record->is_after_long)
		return cu->wait_value(lane->side, lane->word, closed, MT_CU_WAIT_GEQ);
	if (!result)
		result = cu->event_record(lane->event, lane->stream);
	return result ? result : cu->stream_wait_event(lane->side, lane->event, 0);
}

/*
 * The rows that the runtime's kernels left in its own buffer, before it reuses that. What is read ends
 * with the last row's last id, as the runtime's memory may.
 */
static int copy_adopted(struct moetrace_cuda_lane *lane, const struct mt_cuda_record *record,
			uint64_t to)
{
	const struct moetrace_cuda_buffer *buffer = &lane->buffer;
	uint64_t n_rows = record->n_rows + (buffer->padding_is_valid ? record->padding_rows : 0);
	uint64_t rows_bytes = n_rows ? (n_rows - 1) * buffer->row_bytes + lane->entries_bytes : 0;
	struct mt_cu_copy_2d copy = {
		.from = { .memory_type = MT_CU_MEMORY_DEVICE,
			  .device = buffer->ids,
			  .pitch = buffer->layer_bytes },
		.to = { .memory_type = MT_CU_MEMORY_DEVICE,
			.device = to,
			.pitch = n_rows * buffer->row_bytes },
		.width_bytes = rows_bytes,
		.height = lane->n_layers,
	};

	if (!n_rows)
		return 0;
	/* Rows that hold all layers follow each other; layers that hold all rows have gaps. */
	if (buffer->row_bytes >= buffer->layer_bytes)
		return lane->cuda->cu->copy_on_device(
			to, buffer->ids, rows_bytes + (lane->n_layers - 1) * buffer->layer_bytes,
			lane->stream);
	return lane->cuda->cu->copy_2d(&copy, lane->stream);
}

int mt_cuda_ship(struct moetrace_cuda_lane *lane, struct mt_cuda_record *record)
{
	struct moetrace_cuda *cuda = lane->cuda;
	uint8_t *data = (uint8_t *)record + record->data_offset;
	uint64_t from = cuda->device_ring + (uint64_t)(data - cuda->ring.data);
	const char *call = "the copy of an adopted buffer";
	int result = record->is_adopted ? copy_adopted(lane, record, from) : 0;

	if (!result) {
		call = "the signal between streams";
		result = follow(lane, record);
	}
	if (!result) {
		call = "the copy to the host";
		result = cuda->cu->copy_to_host(data, from, record->data_bytes, lane->side);
	}
	if (!result) {
		call = "the write of a pass's done word";
		result = write_value(cuda, lane->side, (uint64_t)(uintptr_t)&record->is_done,
				     record->stamp);
	}
	if (result)
		mt_cuda_fail(cuda, call, result);
	return result ? MOETRACE_E_IO : MOETRACE_OK;
}
