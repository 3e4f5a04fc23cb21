/* SPDX-License-Identifier: MIT */
/*
 * One batch under opportunistic expert activation, for every k0 at once. An expert is in the union
 * of all rows' best k0 exactly where k0 is above the least place that it has in any row. So one
 * walk over the ids, best places first, counts the unions of all k0, and an entry of a row survives
 * at k0 where its expert's least place is below k0: what a row loses at k0 is the weight of its
 * entries with a least place of k0 or more, a sum over places from the back.
 */
#ifndef MT_SCHEMA_FUNCTIONS_OEA_SWEEP_H
#define MT_SCHEMA_FUNCTIONS_OEA_SWEEP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/bytes.h"

#define MT_OEA_MAX_K  64
#define MT_OEA_N_BINS 512 /* of a row's lost weight, from 0 to 1 */

/* A row is rated where its weights add up to something between these. */
#define MT_OEA_MIN_WEIGHT 0x1p-100f
#define MT_OEA_MAX_WEIGHT 65536.0f

enum mt_oea_row {
	MT_OEA_ROW_KEPT = 1,	/* keeps its choice: all of it is in every union */
	MT_OEA_ROW_UNRATED = 2, /* what it loses does not count */
};

/* The entries of a row stand in the order of choice, fused shared slots left out. */
struct mt_oea_batch {
	const uint8_t *ids;	/* [n_rows][k], of id_bytes, little-endian */
	const uint8_t *weights; /* [n_rows][k] of two bytes; NULL: none */
	const uint8_t *n_valid; /* [n_rows]: entries in use, at most k; NULL: all */
	const uint8_t *rows;	/* [n_rows] of enum mt_oea_row; NULL: all 0 */
	size_t n_rows, k;	/* k: 1 to MT_OEA_MAX_K */
	size_t id_bytes;	/* 1 or 2 */
	uint32_t n_experts;	/* ids from there on hold no weights: they are in every union */
	bool is_bf16;		/* else fp16 */
};

/* Sums over rows that are rated, or counts of the batch; index k0 - 1. */
struct mt_oea_result {
	uint32_t n_kept_active;		 /* experts of rows that keep their choice */
	uint32_t active[MT_OEA_MAX_K];	 /* distinct experts after the rule; the last: before */
	uint64_t survivors[MT_OEA_MAX_K]; /* entries of changed rows that survive */
	uint64_t n_entries;		 /* entries of changed rows */
	uint64_t n_changed_rows;	 /* rows that the rule may change: not kept */
	uint64_t n_rated_rows;		 /* of them, those with weights that count */
	double lost[MT_OEA_MAX_K];	 /* share of a row's weight, summed over rated rows */
};

struct mt_oea_scratch {
	uint8_t place[65536];	 /* the least place of each id in the last batch; 255: unused */
	uint16_t active[65536];	 /* the experts in use, in the order in which they came */
	uint32_t n_active;
};

/* What the weights of a batch say about it. */
struct mt_oea_look {
	size_t n_looked;    /* rows of two entries or more */
	size_t n_equal;	    /* of them, those whose weights are all the same */
	size_t n_unordered; /* of them, those in which a weight is above the one before it */
};

void mt_oea_look(const struct mt_oea_batch *batch, struct mt_oea_look *ret_look);

/**
 * Sweep a batch.
 *
 * @bins  [k][MT_OEA_N_BINS], added to: rated rows by what they lose; those of k0 = k are undefined.
 *        NULL where there are no weights.
 */
void mt_oea_sweep(const struct mt_oea_batch *batch, struct mt_oea_scratch *scratch, uint32_t *bins,
		  struct mt_oea_result *ret_result);

/* Begin a batch: no expert has a place yet. */
void mt_oea_places_clear(const struct mt_oea_batch *batch, struct mt_oea_scratch *scratch);

/* A row's entries in use, and one of them. */
static inline size_t mt_oea_n_of(const struct mt_oea_batch *batch, size_t row)
{
	return batch->n_valid ? batch->n_valid[row] : batch->k;
}

static inline uint32_t mt_oea_id_at(const struct mt_oea_batch *batch, size_t row, size_t j)
{
	return mt_narrow_at(batch->ids, batch->id_bytes, row * batch->k + j);
}

/* A stored weight; not a number and infinity come out as 65536 or more, a sign is dropped. */
float mt_oea_weight(const uint8_t *bits, bool is_bf16);

/* The weight of an entry of a batch that has weights. */
static inline float mt_oea_weight_at(const struct mt_oea_batch *batch, size_t row, size_t j)
{
	return mt_oea_weight(batch->weights + (row * batch->k + j) * 2, batch->is_bf16);
}

#endif
