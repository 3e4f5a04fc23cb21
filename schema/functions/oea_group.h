/* SPDX-License-Identifier: MIT */
/*
 * Sums over batches under a rule, a group a key, for every value of the rule's parameter at once:
 * figures of groups are quotients of sums, never means of quotients. Intervals come from the
 * passes: each group keeps the sums of at most MT_OEA_N_BLOCKS blocks of consecutive passes of
 * equal number (two neighbours become one when there are too many), and draws blocks with
 * replacement. Steps that follow each other resemble each other, so blocks are drawn, not passes.
 */
#ifndef MT_SCHEMA_FUNCTIONS_OEA_GROUP_H
#define MT_SCHEMA_FUNCTIONS_OEA_GROUP_H

#include <sqlite3.h>

#include "oea_batch.h"

#define MT_OEA_N_BLOCKS	  64
#define MT_OEA_MIN_BLOCKS 8 /* with fewer there is no interval */

struct mt_oea_key {
	sqlite3_int64 recording_id, model_id;
	sqlite3_int64 layer_id; /* 0: all layers */
	uint32_t kind;		/* enum mt_oea_kind */
	uint32_t bucket;	/* the largest power of two that bounds its batches; 0: all */
	uint32_t k;		/* entries of a row, shared slots left out */
	uint32_t refusal;	/* enum mt_oea_refusal */
};

/* What one batch adds; index: the rule's parameter. */
struct mt_oea_figures {
	uint32_t n_params;
	uint32_t active_before;
	const uint32_t *active;	     /* [n_params] */
	const uint64_t *survivors;   /* [n_params] */
	const double *lost;	     /* [n_params] */
	const double *uniform;	     /* [n_params] */
	double uniform_before;
	const uint32_t *rank_active; /* [n_params]; NULL: no placement */
	uint32_t rank_active_before;
	uint64_t n_entries, n_changed_rows, n_rated_rows;
	uint32_t fill_max; /* entries of a full row */
	uint32_t n_zero_experts;
	bool takes_unknown; /* what rows could take is not known */
	bool no_map;	 /* nor where experts were */
	/* In a general form; NULL: rows fill up from the union, to fill_max entries or to all of it. */
	const uint64_t *n_below; /* [n_params]: rows that end with fewer than k */
	const uint64_t *n_taken; /* [n_params]: entries that rows take from the union */
	/* Of the rows whose further candidates are known; NULL: none. */
	const uint64_t *n_truncated; /* [n_params] */
	const double *retained;	     /* [n_params] */
	uint64_t n_candidate_rows;
};

struct mt_oea_sums {
	uint64_t n_batches, n_rated_rows, active_before;
};

struct mt_oea_param {
	uint64_t active, survivors, swapped, below_k, rank_active, n_truncated;
	double lost, uniform, retained;
};

struct mt_oea_group {
	struct mt_oea_key key;
	sqlite3_int64 layer; /* the number of layer_id in the model */
	sqlite3_int64 pass_id;
	uint32_t n_params;
	uint64_t n_passes, n_rows, n_changed_rows, n_entries, n_candidate_rows, n_restored_rows;
	uint64_t padding_active, n_padding_unknown, rank_active_before;
	double uniform_before;
	bool takes_unknown, has_ranks, no_map;
	struct mt_oea_sums sums;
	struct mt_oea_param *params;	   /* [n_params] */
	uint32_t *bins;			   /* [n_params][MT_OEA_N_BINS] */
	struct mt_oea_sums *blocks;	   /* [MT_OEA_N_BLOCKS] */
	struct mt_oea_param *block_params; /* [MT_OEA_N_BLOCKS][n_params]: active and lost alone */
	uint32_t n_blocks, block_passes, block_size; /* passes of the last block, of the others */
};

struct mt_oea_groups {
	struct mt_oea_group **groups; /* in the order in which they were met */
	size_t n_groups, size;
	uint32_t *slots; /* of the hash table: a group's number + 1; 0: free */
	size_t n_slots;
	size_t n_bytes;
};

struct mt_oea_interval {
	double ratio_low, ratio_high; /* of active experts after to before */
	double saved_low, saved_high; /* active experts less, a batch */
	double lost_low, lost_high;   /* lost weight a rated row */
};

/**
 * The group of @key, made where it is new.
 *
 * Returns SQLITE_OK, SQLITE_NOMEM, or SQLITE_TOOBIG: there would be more groups than memory is
 * spent on.
 */
int mt_oea_groups_find(struct mt_oea_groups *groups, const struct mt_oea_key *key,
		       uint32_t n_params, struct mt_oea_group **ret_group);
void mt_oea_groups_free(struct mt_oea_groups *groups);

/* Count a batch of @n_rows rows in; without figures where it was refused. */
void mt_oea_group_add(struct mt_oea_group *group, sqlite3_int64 pass_id, size_t n_rows,
		      const struct mt_oea_figures *figures);

/* Returns whether there are enough blocks. */
bool mt_oea_group_interval(const struct mt_oea_group *group, uint32_t param,
			   struct mt_oea_interval *ret_interval);
/* The lost weight that a share @q of the rated rows does not exceed. */
double mt_oea_group_lost_quantile(const struct mt_oea_group *group, uint32_t param, double q);

#endif
