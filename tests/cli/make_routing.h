/* SPDX-License-Identifier: MIT */
/*
 * Routers for make_routing: what is told of one, what really runs, and the rows that it makes, with
 * one thing broken or nothing.
 */
#ifndef TESTS_CLI_MAKE_ROUTING_H
#define TESTS_CLI_MAKE_ROUTING_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/presets/presets.h"

enum {
	N_PASSES = 8,
	N_ROWS = 48,
	N_LAYERS = 2,
	MAX_COLUMNS = 1024,
	MAX_WIDTH = 32,
	N_DENSE = 3,
};

/* What is broken, and the finding that says so. */
#define FAULTS(X)                                                                  \
	X(NONE, "right", "-")                                                      \
	X(SLOTS_BY_DISPATCH, "slots_by_dispatch", "id_space")                      \
	X(SLOTS_BY_BIAS, "slots_by_bias", "id_space")                              \
	X(SLOTS_BY_LOAD, "slots_by_load", "id_space")                              \
	X(SLOTS_BY_SCORES, "slots_by_scores", "id_space")                          \
	X(SLOTS_BEYOND, "slots_beyond", "id_space")                                \
	X(DUPLICATE, "duplicate", "duplicate_ids")                                 \
	X(PADDING, "padding", "padding_routed")                                    \
	X(NO_OUTPUT, "no_output", "router_output")                                 \
	X(NO_WRITER, "no_writer", "router_output")                                 \
	X(INDEX_SHIFTED, "index_shifted", "layer_shift")                           \
	X(NUMBERS_SHIFTED, "numbers_shifted", "layer_shift")                       \
	X(GROUPS_IGNORED, "groups_ignored", "groups")                              \
	X(GROUPS_BY_MAX, "groups_by_max", "groups")                                \
	X(LEFT_OUT, "left_out", "choice")                                          \
	X(BIAS_UNUSED, "bias_unused", "choice")                                    \
	X(BIAS_ROUNDED, "bias_rounded", "choice")                                  \
	X(TIES_BY_HIGHER, "ties_by_higher", "tie_rule")                            \
	X(BIAS_IN_WEIGHTS, "bias_in_weights", "biased_weights")                    \
	X(BIAS_IN_WEIGHTS_TOLD, "bias_in_weights_beside_scores", "biased_weights") \
	X(SIGMOID_FOR_SOFTMAX, "sigmoid_for_softmax", "scoring")                   \
	X(NOT_RENORMALIZED, "not_renormalized", "renormalize")                     \
	X(RENORMALIZED, "renormalized", "renormalize")                             \
	X(NORM_SHARED, "norm_shared", "norm_shared")                               \
	X(SCALED_NEVER, "scaled_never", "scaling")                                 \
	X(SCALED_TWICE, "scaled_twice", "scaling")                                 \
	X(SCALED_BY_BOTH, "scaled_by_both", "scaling")                             \
	X(SCALED_NEVER_RAW, "scaled_never_raw", "scaling")                         \
	X(SHARED_SCALED, "shared_scaled", "shared_scaling")                        \
	X(SHARED_AT_INVERSE, "shared_at_inverse", "shared_scaling")                \
	X(SHARED_AT_ZERO, "shared_at_zero", "shared_scaling")                      \
	X(WEIGHTS_ZERO, "weights_zero", "no_weights")                              \
	X(WEIGHTS_ZERO_SOME, "weights_zero_some", "no_weights")                    \
	X(WEIGHTS_NAN, "weights_nan", "no_weights")                                \
	X(WEIGHTS_INFINITE, "weights_infinite", "no_weights")                      \
	X(FIRST_SWAPPED, "first_swapped", "choice")                                \
	X(EQUAL, "equal", "equal_weights")                                         \
	X(COUNTS_OF_RANKS, "counts_of_ranks", "rank_multiplied")                   \
	X(PAGE_BY_DISPATCH, "page_by_dispatch", "block_rows")                      \
	X(PAGE_BY_REUSE, "page_by_reuse", "block_rows")

enum fault {
#define FAULT_ENUM(identifier, name, finding) identifier,
	FAULTS(FAULT_ENUM)
#undef FAULT_ENUM
		N_FAULTS
};

/* A model: what is told of it, what really runs, and its rows. */
struct model {
	enum fault fault;
	const struct mtk_preset *preset; /* NULL: of a fault */
	struct mtk_route_config told, runs;
	uint32_t id;
	uint64_t request;
	uint32_t position;
	uint32_t n_columns, k, width;
	float bias[MAX_COLUMNS];
	int32_t slot_experts[N_LAYERS][2 * MAX_COLUMNS];
	uint32_t n_slots;
	float logits[N_ROWS * MAX_COLUMNS];
	int32_t ids[N_ROWS * MAX_WIDTH], slots[N_ROWS * MAX_WIDTH];
	float weights[N_ROWS * MAX_WIDTH];
	int32_t candidates[N_ROWS * MAX_COLUMNS];
	float candidate_scores[N_ROWS * MAX_COLUMNS];
	float scores[N_ROWS * MAX_COLUMNS]; /* of all columns */
	uint32_t n_candidates;
	bool is_unordered;
};

/* The setting that is told of a fault's model. */
struct mtk_route_config routing_told(enum fault fault);
/* The setting that runs in place of it. */
void routing_break(struct model *m);
/* The biases: of the family's own router, or made. */
void routing_bias_make(struct model *m);
/* What the router chooses in a layer of a pass, and the scores beside it. */
void routing_rows_make(struct model *m, uint32_t pass, uint32_t layer);
/* What the family's own router chose; false: it is not there. */
bool routing_oracle_read(struct model *m);

#endif
