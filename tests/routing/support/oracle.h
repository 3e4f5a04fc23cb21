/* SPDX-License-Identifier: MIT */
/*
 * The choices of reference implementations in tests/data/router-oracle: of each family a number of rows
 * of random logits, with the experts that were chosen, sorted by id, and their weights.
 */
#ifndef ROUTING_ORACLE_H
#define ROUTING_ORACLE_H

#include <stdint.h>

#include "kernels/presets/presets.h"

#define ORACLE_ROWS	     48
#define ORACLE_N_FAMILIES    22
#define ORACLE_MESSAGE_BYTES 4200

/* A preset has the name of its family. */
extern const char *const oracle_families[ORACLE_N_FAMILIES];

struct oracle {
	const struct mtk_preset *preset;
	float *logits;	/* [ORACLE_ROWS][columns] */
	float *bias;	/* [columns]; NULL: the family has none */
	int32_t *ids;	/* [ORACLE_ROWS][top_k] */
	float *weights; /* as these */
};

/* 0, or -1 with why not; what was read is freed by oracle_free() in either case. */
int oracle_load(const char *family, struct oracle *ret_oracle, char *ret_message);
void oracle_free(struct oracle *oracle);

/* Sort the rows of a choice by id, and compare: ids are equal, weights within 2e-6. 0, or -1 with where. */
int oracle_compare(const struct oracle *oracle, int32_t *ids, float *weights, char *ret_message);

#endif
