/* SPDX-License-Identifier: MIT */
/*
 * A stand-in for the recorder: the functions of the public interface that the engine calls, which
 * keep what they were told and check the order that the interface asks for. A test that links it
 * does not link the library.
 */
#ifndef MTK_TESTS_FAKE_RECORDER_H
#define MTK_TESTS_FAKE_RECORDER_H

#include <stdbool.h>
#include <stdint.h>

#include <moetrace/moetrace.h>

#define FAKE_MAX_REQUESTS  256
#define FAKE_MAX_POSITIONS 512
#define FAKE_MAX_LAYERS	   8
#define FAKE_MAX_TOP_K	   8

struct fake_request {
	char external_id[64];
	uint32_t n_prompt;
	uint32_t n_attributes;
	char attribute[64]; /* of the last one: key=value */
	uint32_t tokens[FAKE_MAX_POSITIONS];
	uint32_t n_tokens;
	uint32_t n_computed; /* positions reused or seen in passes, in order and without a gap */
	uint32_t n_retracts;
	uint32_t n_reused;   /* of n_computed, taken over: from 0 on */
	uint32_t n_before;   /* positions computed at the last retract */
	int end_state;	     /* 0: open */
	uint64_t n_positions;
	/*
	 * The experts of each position and layer, in the order of selection; of reused ones those
	 * of the source.
	 */
	int32_t ids[FAKE_MAX_POSITIONS][FAKE_MAX_LAYERS][FAKE_MAX_TOP_K];
	float weights[FAKE_MAX_POSITIONS][FAKE_MAX_LAYERS][FAKE_MAX_TOP_K];
};

struct fake_recorder {
	struct fake_request requests[FAKE_MAX_REQUESTS]; /* handle - 1 */
	uint32_t n_requests;
	uint32_t n_layers;
	uint32_t top_k;
	uint64_t n_passes;
	uint64_t n_rows;
	uint32_t n_passes_of_phase[MOETRACE_PHASE_DUMMY + 1];
	uint64_t n_reused_by_slot;
	uint64_t n_reused_by_link;
	uint32_t n_rules;
	char rule[64];		 /* the last one's name */
	uint64_t n_ruled_layers; /* of passes */
	/* Answers to give instead of success; 0: success. */
	int model_status;
	int rule_status;
	int request_status;
	uint32_t request_status_at; /* the request that gets it, from 0 */
};

/* Forget everything; the session to hand to the engine. */
struct moetrace_session *fake_recorder_reset(void);

struct fake_recorder *fake_recorder(void);

/* A lane for a back end that pretends to have one; whether a pass is open in it. */
struct moetrace_cuda_lane *fake_recorder_lane(void);
bool fake_recorder_lane_is_open(void);

#endif
