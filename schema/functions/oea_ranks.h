/* SPDX-License-Identifier: MIT */
/*
 * How many experts of a swept batch the rank with the most of them has, for every k0: with expert
 * parallelism the slowest rank counts, not the mean. An expert counts on each rank that has it.
 */
#ifndef MT_SCHEMA_FUNCTIONS_OEA_RANKS_H
#define MT_SCHEMA_FUNCTIONS_OEA_RANKS_H

#include "oea_batch.h"
#include "rank_map.h"

struct mt_oea_ranks {
	struct mt_tvf_rows *rows; /* takes the messages */
	const char *name;
	sqlite3 *db;
	uint32_t n_ranks; /* 0: as the recorded map says; without one, nothing is counted */
	sqlite3_value *placement;
	bool is_wanted, is_recorded;
	struct mt_oea_map *maps;
	size_t n_maps, size, hint;
	uint32_t *counts; /* [ranks][MT_OEA_MAX_K]; 0 between batches */
	size_t n_counts;

	bool is_known; /* of the last batch; else no map was in force */
	uint32_t active[MT_OEA_MAX_K], active_before;
};

/* Arguments as in moe_balance; NULL where absent. Returns an SQLite code. */
int mt_oea_ranks_open(struct mt_oea_ranks *ranks, struct mt_tvf_rows *rows, const char *name,
		      sqlite3 *db, uint32_t n_ranks, sqlite3_value *placement);
/* Fills active: [batch.k]. */
int mt_oea_ranks_count(struct mt_oea_ranks *ranks, const struct mt_oea_source *source,
		       const struct mt_oea_scratch *scratch);
void mt_oea_ranks_close(struct mt_oea_ranks *ranks);

#endif
