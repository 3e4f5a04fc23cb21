/* SPDX-License-Identifier: MIT */
/*
 * What each rank of expert parallelism had to do in a layer of a pass, or would have had under
 * another placement, and how even that is. An expert's tokens are shared evenly by its replicas, so
 * loads are fractions. Shared experts are no part of it, unless a way is asked for: 'even', every
 * rank computes them for its own share of the rows; 'waterfill', the row's shared experts go to the
 * ranks that have the least to do, until all are level.
 */
#ifndef MT_SCHEMA_FUNCTIONS_RANK_LOAD_H
#define MT_SCHEMA_FUNCTIONS_RANK_LOAD_H

#include "pass_load.h"
#include "rank_map.h"
#include "tvf.h"

enum mt_shared { MT_SHARED_NONE, MT_SHARED_EVEN, MT_SHARED_WATERFILL };

struct mt_rank_load {
	struct mt_pass_load load;
	struct mt_tvf_rows *rows; /* takes the messages */
	const char *name;
	sqlite3 *db;
	uint32_t n_ranks; /* 0: as the recorded map says */
	sqlite3_value *placement;
	bool is_recorded; /* by the maps of the trace */
	enum mt_shared shared;
	struct mt_known_map *maps;
	size_t n_maps, maps_size, hint;

	const struct mt_rank_map *map;
	bool is_known;	/* else nothing is: no counts, or no map was in force */
	double *ranks;	/* [map->n_ranks] */
	double *sorted; /* the same, for figures */
	double tokens;	/* their sum */
};

/* How even the ranks of one layer of a pass are; tokens is above 0. */
struct mt_balance {
	double mean, max, max_over_mean;
	double balancedness; /* (mean + 1e-5) / (max + 1e-5), as SGLang has it */
	double cv;	     /* standard deviation / mean */
	double gini;	     /* 0: even; (n - 1) / n: one rank has all */
	double entropy;	     /* of the shares, over log of the ranks: 1 is even */
	uint32_t hottest_rank;
};

/* The arguments of the functions that use it, in their order. */
enum mt_rank_argument {
	MT_RANK_ARG_RANKS,
	MT_RANK_ARG_PLACEMENT,
	MT_RANK_ARG_SHARED,
	MT_RANK_ARG_PHASE,
	MT_RANK_ARG_MODEL,
	MT_RANK_ARG_RECORDING,
	MT_N_RANK_ARGUMENTS
};
#define MT_RANK_ARGUMENTS_SQL                                                                    \
	" n_ranks INTEGER HIDDEN, placement TEXT HIDDEN, shared TEXT HIDDEN, phase_is TEXT HIDDEN," \
	" model_is INTEGER HIDDEN, recording_is INTEGER HIDDEN)"

/* Return SQLite codes, after a message in rows where there is more to say; next ROW or DONE. */
int mt_rank_load_open(struct mt_rank_load *load, sqlite3 *db, const struct mt_tvf *tvf,
		      sqlite3_value *const *arguments, struct mt_tvf_rows *rows);
int mt_rank_load_next(struct mt_rank_load *load);
void mt_rank_load_close(struct mt_rank_load *load);

/* Figures of the current layer. */
void mt_rank_load_balance(struct mt_rank_load *load, struct mt_balance *ret_balance);

#endif
