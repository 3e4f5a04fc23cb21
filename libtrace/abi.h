/* SPDX-License-Identifier: MIT */
/*
 * Structs of callers that were built with other headers. Members are only ever appended, so a
 * struct's size says which of them its program knows: at least those of the first version,
 * which are listed here and never change. What a shorter struct lacks counts as 0, its default;
 * what a longer one has beyond this library's own is not looked at.
 */
#ifndef MT_ABI_H
#define MT_ABI_H

#include <stddef.h>
#include <string.h>

#include <moetrace/cuda.h>
#include <moetrace/moetrace.h>

#define MT_BYTES_UP_TO(type, member) (offsetof(type, member) + sizeof(((type *)0)->member))

enum {
	MT_FIRST_SESSION_OPTS = MT_BYTES_UP_TO(struct moetrace_session_opts, window_ns),
	MT_FIRST_RECORDING_OPTS = MT_BYTES_UP_TO(struct moetrace_recording_opts, routing_source),
	MT_FIRST_STATUS = MT_BYTES_UP_TO(struct moetrace_session_status, writer_cpu_ns),
	MT_FIRST_MODEL_INFO = MT_BYTES_UP_TO(struct moetrace_model_info, first_moe_ordinal),
	MT_FIRST_LAYER_INFO = MT_BYTES_UP_TO(struct moetrace_layer_info, impl_reason),
	MT_FIRST_REQUEST_INFO = MT_BYTES_UP_TO(struct moetrace_request_info, prompt_positions),
	MT_FIRST_REUSE = MT_BYTES_UP_TO(struct moetrace_reuse, kv_slots),
	MT_FIRST_EXPERTS_OPTS = MT_BYTES_UP_TO(struct moetrace_routed_experts_opts, base64),
	MT_FIRST_PASS_INFO = MT_BYTES_UP_TO(struct moetrace_pass_info, runtime_pass),
	MT_FIRST_EXPERT_MAP = MT_BYTES_UP_TO(struct moetrace_expert_map, slot_experts),
	MT_FIRST_EXPERT_COUNTS = MT_BYTES_UP_TO(struct moetrace_expert_counts, untimed),
	MT_FIRST_DISPATCH = MT_BYTES_UP_TO(struct moetrace_dispatch_info, received_alignment),
	MT_FIRST_COLLECTIVE = MT_BYTES_UP_TO(struct moetrace_collective, n_channels),
	MT_FIRST_SELECTION = MT_BYTES_UP_TO(struct moetrace_selection, untimed),
	MT_FIRST_CUDA_OPTS = MT_BYTES_UP_TO(struct moetrace_cuda_opts, ring_bytes),
	MT_FIRST_CUDA_STATUS = MT_BYTES_UP_TO(struct moetrace_cuda_status, refused_passes),
	MT_FIRST_CUDA_LANE_INFO = MT_BYTES_UP_TO(struct moetrace_cuda_lane_info, id_space),
	MT_FIRST_CUDA_BUFFER = MT_BYTES_UP_TO(struct moetrace_cuda_buffer, layer_bytes),
	MT_FIRST_CUDA_LAYERS = MT_BYTES_UP_TO(struct moetrace_cuda_layers, weights_row_bytes),
};

/* Larger than any version will be: a size member that nobody set. */
#define MT_ABI_MAX_BYTES 8192

/* Whether a struct of this size can be one of the callers' versions. */
static inline int mt_abi_knows(size_t size, size_t first_bytes)
{
	return size >= first_bytes && size <= MT_ABI_MAX_BYTES;
}

/*
 * @given, whose size is one that mt_abi_knows(), with all members of this library's version:
 * itself where it is long enough, else a copy in @room.
 */
static inline const void *mt_abi_widen(const void *given, size_t size, void *room,
				       size_t room_bytes)
{
	if (__builtin_expect(size >= room_bytes, 1))
		return given;
	memset(room, 0, room_bytes);
	memcpy(room, given, size);
	return room;
}

/* The other way, for what is handed out: what the caller's version lacks is cut off, what this
   library does not know is 0. The size member stays the caller's. */
static inline void mt_abi_narrow(void *to, size_t size, const void *known, size_t known_bytes)
{
	const size_t n_bytes = size < known_bytes ? size : known_bytes;

	memcpy((char *)to + sizeof(size), (const char *)known + sizeof(size),
	       n_bytes - sizeof(size));
	memset((char *)to + n_bytes, 0, size - n_bytes);
}

#define MT_ABI_WIDEN(given, room) mt_abi_widen((given), (given)->size, (room), sizeof(*(room)))

#endif
