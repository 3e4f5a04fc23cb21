/* SPDX-License-Identifier: MIT */
/*
 * Which rank has which experts of a layer: in order, by a placement in JSON, or by a map of the
 * trace. Slots are spread over the ranks evenly, the slots of rank 0 first; every routed expert has
 * a slot, some have several, and a slot may be empty.
 */
#ifndef MT_SCHEMA_FUNCTIONS_RANK_MAP_H
#define MT_SCHEMA_FUNCTIONS_RANK_MAP_H

#include <sqlite3.h>
#include <stdint.h>

#include "trace_reader.h"
#include "tvf.h"

#define MT_SLOT_EMPTY UINT32_MAX

struct mt_rank_map {
	uint32_t n_experts, n_slots, n_ranks;
	uint32_t *expert_of; /* [n_slots]: MT_SLOT_EMPTY where there is none */
	uint32_t *replicas;  /* [n_experts] */
};

/*
 * Make the map of @layer, for messages of the function @name. @n_ranks: 0 where the map of the
 * trace is to say it. Return an SQLite code, after a message in @rows but for SQLITE_NOMEM; what
 * was made has to be freed either way.
 */
int mt_rank_map_in_order(struct mt_tvf_rows *rows, const char *name,
			 const struct mt_layer_facts *layer, uint32_t n_ranks,
			 struct mt_rank_map *ret_map);
int mt_rank_map_from_json(struct mt_tvf_rows *rows, const char *name, sqlite3 *db,
			  const struct mt_layer_facts *layer, sqlite3_value *placement,
			  uint32_t n_ranks, struct mt_rank_map *ret_map);
int mt_rank_map_recorded(struct mt_tvf_rows *rows, const char *name, sqlite3 *db,
			 const struct mt_layer_facts *layer, sqlite3_int64 epoch, uint32_t n_ranks,
			 struct mt_rank_map *ret_map);
void mt_rank_map_free(struct mt_rank_map *map);

#endif
