/* SPDX-License-Identifier: MIT */
/*
 * Placement of experts on ranks by their loads, after the method that DeepSeek published as
 * EPLB (https://github.com/deepseek-ai/EPLB): written from its description, and equal to it but
 * for the choice between equal loads, where the lower number comes first.
 *
 *   1. Groups of experts are packed onto nodes, heaviest first, each onto the node that has the
 *      least load and still has room.
 *   2. In each node, experts get their replicas one by one: the next goes to the expert whose
 *      load a replica is the largest.
 *   3. In each node, replicas are packed onto ranks as groups were onto nodes.
 *
 * Where the groups cannot be divided by the nodes, all is one group on one node (the published
 * "global" policy). Loads and their sums are single precision, as there.
 */
#ifndef MT_SCHEMA_FUNCTIONS_PLACEMENT_H
#define MT_SCHEMA_FUNCTIONS_PLACEMENT_H

#include <stdbool.h>
#include <stdint.h>

#define MT_PLACEMENT_MAX	   65536 /* experts, replicas and ranks */
#define MT_PLACEMENT_MESSAGE_BYTES 160

struct mt_placement_shape {
	uint32_t n_experts;
	uint32_t n_replicas; /* of all experts together: slots */
	uint32_t n_ranks;
	uint32_t n_groups; /* of experts; 1: none */
	uint32_t n_nodes;  /* of ranks */
};

/* Whether there is a placement of that shape; if not, one line into @message says why. */
bool mt_placement_is_possible(const struct mt_placement_shape *shape,
			      char message[MT_PLACEMENT_MESSAGE_BYTES]);

/**
 * Place the experts of one layer.
 *
 * @shape         mt_placement_is_possible().
 * @loads         [n_experts], finite and not negative.
 * @spreads       Do not leave two replicas of an expert on one rank where a swap within the node
 *                avoids it, and be no worse than replicas dealt out in turn: what the published
 *                method does not look at.
 * @ret_experts   [n_replicas]: the expert in each slot; rank r has the slots from
 *                r * n_replicas / n_ranks on.
 * @ret_replicas  [n_experts]: how many slots each expert has.
 *
 * Returns false: out of memory.
 */
bool mt_placement_make(const struct mt_placement_shape *shape, const float *loads, bool spreads,
		       uint32_t *ret_experts, uint32_t *ret_replicas);

#endif
