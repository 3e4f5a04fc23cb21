/* SPDX-License-Identifier: MIT */
/*
 * What the judgements of a layer share. How much evidence a statistical finding needs stands here.
 */
#ifndef MT_CLI_ROUTING_JUDGE_H
#define MT_CLI_ROUTING_JUDGE_H

#include "cli/routing.h"

/* Rows, pairs, passes and assignments below which nothing statistical is said. */
#define LEAST_ROWS   64
#define LEAST_TIES   32
#define LEAST_PASSES 4
#define LEAST_LOAD   500
/* The share of the rows that contradict that a cause must explain. */
#define NEARLY_ALL 0.99
/* Numbers that differ by less, relative to the one that is right, are equal. */
#define NEAR 0.005

/* A layer of a recording, and what has been found of it. */
struct routing_judged {
	struct routing *routing;
	struct routing_count *count;
	struct routing_layer *layer;
	bool is_found[ROUTING_N_LOOKS];
	int status;
};

/* Several looks count into one fault: here are the numbers of one of them. */
struct routing_fault routing_judged_fault(const struct routing_judged *j, enum routing_look look,
					  uint64_t n_bad, uint64_t n_seen);

/* A finding, unless an error came before it. */
__attribute__((format(printf, 6, 7))) void
routing_judged_find(struct routing_judged *j, enum routing_look look, bool is_proved,
		    const char *rule, struct routing_fault fault, const char *evidence, ...);

/* What explains a layer's weights; after what is found of its ids and its choice. */
void routing_judge_weights(struct routing_judged *j);

#endif
