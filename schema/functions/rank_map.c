/* SPDX-License-Identifier: MIT */
/*
 * The three sources of a map, and what all of them have to fulfil.
 */
#include <sqlite3ext.h>
SQLITE_EXTENSION_INIT3

#include "common/bytes.h"
#include "rank_map.h"
#include "placement.h"

#include <string.h>

void mt_rank_map_free(struct mt_rank_map *map)
{
	sqlite3_free(map->expert_of);
	sqlite3_free(map->replicas);
	memset(map, 0, sizeof(*map));
}

static int begin(const struct mt_layer_facts *layer, uint32_t n_slots, uint32_t n_ranks,
		 struct mt_rank_map *map)
{
	const size_t n_bytes = layer->n_experts * sizeof(*map->replicas);

	*map = (struct mt_rank_map){.n_experts = layer->n_experts,
				    .n_slots = n_slots,
				    .n_ranks = n_ranks,
				    .expert_of = sqlite3_malloc64(n_slots * sizeof(uint32_t) + 1),
				    .replicas = sqlite3_malloc64(n_bytes + 1)};
	if (!map->expert_of || !map->replicas)
		return SQLITE_NOMEM;
	memset(map->replicas, 0, n_bytes);
	return SQLITE_OK;
}

/* The slots are filled: every expert has one. */
static int finish(struct mt_tvf_rows *rows, const char *name, const struct mt_layer_facts *layer,
		  struct mt_rank_map *map)
{
	if (map->n_slots % map->n_ranks != 0)
		return mt_tvf_fail(rows,
				   "%s: placement of layer %lld: %u slots cannot be divided by %u"
				   " ranks",
				   name, layer->layer, map->n_slots, map->n_ranks);
	for (uint32_t i = 0; i < map->n_slots; i++)
		if (map->expert_of[i] != MT_SLOT_EMPTY)
			map->replicas[map->expert_of[i]]++;
	for (uint32_t i = 0; i < map->n_experts; i++)
		if (map->replicas[i] == 0)
			return mt_tvf_fail(rows,
					   "%s: placement of layer %lld: expert %u has no slot",
					   name, layer->layer, i);
	return SQLITE_OK;
}

int mt_rank_map_in_order(struct mt_tvf_rows *rows, const char *name,
			 const struct mt_layer_facts *layer, uint32_t n_ranks,
			 struct mt_rank_map *ret_map)
{
	int rc;

	if (layer->n_experts % n_ranks != 0)
		return mt_tvf_fail(rows,
				   "%s: layer %lld: %u experts cannot be divided by %u ranks: give"
				   " a placement",
				   name, layer->layer, layer->n_experts, n_ranks);
	rc = begin(layer, layer->n_experts, n_ranks, ret_map);
	for (uint32_t i = 0; rc == SQLITE_OK && i < ret_map->n_slots; i++)
		ret_map->expert_of[i] = i;
	return rc == SQLITE_OK ? finish(rows, name, layer, ret_map) : rc;
}

static int slots_step(struct mt_tvf_rows *rows, const char *name,
		      const struct mt_layer_facts *layer, sqlite3_stmt *stmt,
		      struct mt_rank_map *map)
{
	int rc;

	while ((rc = sqlite3_step(stmt)) == SQLITE_ROW) {
		const char *type = (const char *)sqlite3_column_text(stmt, 0);
		const sqlite3_int64 expert = sqlite3_column_int64(stmt, 1);

		if (!type || strcmp(type, "integer") != 0 || expert < 0 ||
		    expert >= layer->n_experts)
			return mt_tvf_fail(rows,
					   "%s: placement of layer %lld, slot %u: give an expert"
					   " from 0 to %u",
					   name, layer->layer, map->n_slots, layer->n_experts - 1);
		if (map->n_slots == MT_PLACEMENT_MAX)
			return mt_tvf_fail(rows, "%s: placement of layer %lld: more than %d slots",
					   name, layer->layer, MT_PLACEMENT_MAX);
		map->expert_of[map->n_slots++] = (uint32_t)expert;
	}
	return rc == SQLITE_DONE ? SQLITE_OK : rc;
}

int mt_rank_map_from_json(struct mt_tvf_rows *rows, const char *name, sqlite3 *db,
			  const struct mt_layer_facts *layer, sqlite3_value *placement,
			  uint32_t n_ranks, struct mt_rank_map *ret_map)
{
	sqlite3_stmt *stmt;
	int rc = sqlite3_prepare_v2(db,
				    "SELECT s.type, s.value FROM json_each(?1, '$[' || ?2 || ']')"
				    " AS s ORDER BY s.key",
				    -1, &stmt, NULL);

	if (rc != SQLITE_OK)
		return rc;
	sqlite3_bind_value(stmt, 1, placement);
	sqlite3_bind_int64(stmt, 2, layer->moe_ordinal);
	rc = begin(layer, MT_PLACEMENT_MAX, n_ranks, ret_map);
	ret_map->n_slots = 0;
	if (rc == SQLITE_OK)
		rc = slots_step(rows, name, layer, stmt, ret_map);
	sqlite3_finalize(stmt);
	if (rc != SQLITE_OK && rc != SQLITE_NOMEM && !rows->error)
		rc = mt_tvf_fail(rows, "%s: placement: %s", name, sqlite3_errmsg(db));
	return rc == SQLITE_OK ? finish(rows, name, layer, ret_map) : rc;
}

/* The statement stands on the map's row. */
static int recorded_read(struct mt_tvf_rows *rows, const char *name,
			 const struct mt_layer_facts *layer, sqlite3_stmt *stmt, uint32_t n_ranks,
			 struct mt_rank_map *map)
{
	const sqlite3_int64 n_recorded = sqlite3_column_int64(stmt, 0);
	const uint32_t n_slots = (uint32_t)sqlite3_column_bytes(stmt, 1) / 4;
	const uint8_t *blob = sqlite3_column_blob(stmt, 1);
	int rc;

	if (n_recorded < 0 || n_recorded > MT_PLACEMENT_MAX || n_slots > MT_PLACEMENT_MAX)
		return SQLITE_CORRUPT;
	if (n_ranks == 0 && n_recorded == 0)
		return mt_tvf_fail(rows,
				   "%s: layer %lld: the recorded map does not say how many ranks"
				   " there are: give n_ranks",
				   name, layer->layer);
	rc = begin(layer, n_slots, n_ranks ? n_ranks : (uint32_t)n_recorded, map);
	for (uint32_t i = 0; rc == SQLITE_OK && i < n_slots; i++) {
		map->expert_of[i] = mt_u32_at(blob + 4 * i);
		if (map->expert_of[i] != MT_SLOT_EMPTY && map->expert_of[i] >= layer->n_experts)
			rc = SQLITE_CORRUPT;
	}
	return rc == SQLITE_OK ? finish(rows, name, layer, map) : rc;
}

int mt_rank_map_recorded(struct mt_tvf_rows *rows, const char *name, sqlite3 *db,
			 const struct mt_layer_facts *layer, sqlite3_int64 epoch, uint32_t n_ranks,
			 struct mt_rank_map *ret_map)
{
	sqlite3_stmt *stmt;
	int rc = sqlite3_prepare_v2(db,
				    "SELECT coalesce(n_ranks, 0), slot_experts FROM expert_map"
				    " WHERE layer_id = ?1 AND epoch = ?2",
				    -1, &stmt, NULL);

	if (rc != SQLITE_OK)
		return rc;
	sqlite3_bind_int64(stmt, 1, layer->layer_id);
	sqlite3_bind_int64(stmt, 2, epoch);
	rc = sqlite3_step(stmt);
	rc = rc == SQLITE_ROW	 ? recorded_read(rows, name, layer, stmt, n_ranks, ret_map)
	     : rc == SQLITE_DONE ? SQLITE_CORRUPT
				 : rc;
	sqlite3_finalize(stmt);
	if (rc == SQLITE_CORRUPT)
		(void)mt_tvf_fail(rows,
				  "%s: expert_map (layer_id %lld, epoch %lld): there is no"
				  " such row, or its slots are not valid",
				  name, layer->layer_id, epoch);
	return rc;
}
