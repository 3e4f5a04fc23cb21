/* SPDX-License-Identifier: MIT */
/*
 * A model of a known shape on a GPU, with weights made where they lie and 16-bit inputs, and what is
 * measured on it: passes of decoding or prefill, with and without recording. Every failure ends the
 * program; without a GPU it ends with 77.
 */
#ifndef MTK_BENCH_ENGINE_RIG_H
#define MTK_BENCH_ENGINE_RIG_H

#include <moetrace/cuda.h>

#include "kernels/engine/cuda_internal.h"
#include "kernels/oea/oea.h"

struct rig {
	struct mtk_model *model;
	struct mtk_backend *backend;
	struct mtk_cuda_state *state;
	const char *shape;
};

/* A context for passes, and how its passes are recorded. */
struct lane {
	struct mtk_cuda_context *context;
	struct moetrace_session *session; /* NULL: it is not */
	struct moetrace_cuda_lane *lane;  /* of its passes' begin and end */
	struct moetrace_cuda_lane *known; /* to its kernels */
	int recording;
	uint32_t model;
	char path[256];
	void **spare; /* graphs of whichever of lane and twin is not in the context now; NULL: no twin */
	/* What the host spent in begin and end of its passes so far. */
	double begin_us;
	double end_us;
	uint64_t n_passes;
};

#define RIG_UNRECORDED -1 /* the kernels know no lane; else an enum mtk_cuda_recording */

/* n_local_experts 0: all. n_context bounds the positions of its contexts. */
struct rig rig_open(const char *shape, uint32_t n_local_experts, uint32_t n_context,
		    bool without_cublas);
/* The same with the first n_layers layers; 0: all. */
struct rig rig_open_layers(const char *shape, uint32_t n_layers, uint32_t n_local_experts,
			   uint32_t n_context, bool without_cublas);
void rig_close(struct rig *rig);

/* A recorded lane is idle until rig_record(). */
struct lane rig_lane(struct rig *rig, uint32_t n_slots, uint32_t n_context, uint32_t n_rows_max,
		     const struct mtk_oea *oea, int recording);
void rig_lane_close(struct lane *lane);

/*
 * The same passes by kernels that know no lane, in the memory of the lane's context: where buffers lie
 * alone changes a decode step of one row by up to 0.4 %. Not closed; it lives as long as the lane.
 */
struct lane rig_twin(struct lane *lane);

/* Let the lane's passes be recorded, or not. */
void rig_record(struct lane *lane, bool is_on);

/*
 * Decode one row of each of n_rows sequences at a position, and wait for it, as serving does. The
 * hooks may be NULL.
 */
void rig_decode(struct rig *rig, struct lane *lane, uint32_t n_rows, uint32_t position,
		const struct mtk_forward_hooks *hooks);

/* Launch the graph of the last rig_decode(): no begin, no end, no wait. */
void rig_launch(struct rig *rig, const struct lane *lane, uint32_t n_rows);

/* Replay the graph of the last rig_decode() so many times without waiting in between. */
void rig_replay(struct rig *rig, struct lane *lane, uint32_t n_rows, uint32_t n_replays);

/* One pass of the first n_positions of n_sequences sequences. */
void rig_prefill(struct rig *rig, struct lane *lane, uint32_t n_sequences, uint32_t n_positions);

double rig_now_us(void);
void rig_must(int status, const struct mtk_error *error, const char *what);

#endif
