/* SPDX-License-Identifier: MIT */
/* Maps are made once a layer, and of recorded ones once an epoch. */
#include <sqlite3ext.h>
SQLITE_EXTENSION_INIT3

#include "array.h"
#include "oea_ranks.h"

#include <string.h>

struct mt_oea_map {
	sqlite3_int64 layer_id, epoch;
	struct mt_rank_map map; /* an expert is in a rank's slots once */
};

/* A second replica on the same rank loads nothing more. Replicas are not counted any longer. */
static void doubles_remove(struct mt_rank_map *map)
{
	const uint32_t a_rank = map->n_slots / map->n_ranks;
	uint32_t *last_rank = map->replicas;

	memset(last_rank, 0, map->n_experts * sizeof(*last_rank));
	for (uint32_t i = 0; i < map->n_slots; i++) {
		const uint32_t expert = map->expert_of[i];

		if (expert == MT_SLOT_EMPTY)
			continue;
		if (last_rank[expert] == i / a_rank + 1)
			map->expert_of[i] = MT_SLOT_EMPTY;
		last_rank[expert] = i / a_rank + 1;
	}
}

static int map_make(struct mt_oea_ranks *ranks, const struct mt_oea_layer *layer,
		    sqlite3_int64 epoch, struct mt_rank_map *ret_map)
{
	const struct mt_layer_facts facts = {
		.layer_id = layer->layer_id,
		.layer = layer->layer,
		.model_id = layer->model_id,
		.moe_ordinal = layer->moe_ordinal,
		.n_experts = layer->n_experts,
		.n_zero_experts = layer->n_zero_experts,
		.n_shared_slots = layer->n_shared_slots,
	};

	if (ranks->is_recorded)
		return mt_rank_map_recorded(ranks->rows, ranks->name, ranks->db, &facts, epoch,
					    ranks->n_ranks, ret_map);
	if (ranks->placement)
		return mt_rank_map_from_json(ranks->rows, ranks->name, ranks->db, &facts,
					     ranks->placement, ranks->n_ranks, ret_map);
	return mt_rank_map_in_order(ranks->rows, ranks->name, &facts, ranks->n_ranks, ret_map);
}

static int map_add(struct mt_oea_ranks *ranks, const struct mt_oea_layer *layer,
		   sqlite3_int64 epoch)
{
	struct mt_oea_map map = {.layer_id = layer->layer_id, .epoch = epoch};
	int rc = map_make(ranks, layer, epoch, &map.map);

	if (rc == SQLITE_OK)
		rc = mt_array_reserve(&ranks->maps, &ranks->size, ranks->n_maps + 1,
				      sizeof(*ranks->maps));
	if (rc != SQLITE_OK) {
		mt_rank_map_free(&map.map);
		return rc;
	}
	doubles_remove(&map.map);
	ranks->maps[ranks->n_maps++] = map;
	return SQLITE_OK;
}

static int map_find(struct mt_oea_ranks *ranks, const struct mt_oea_layer *layer,
		    sqlite3_int64 epoch, const struct mt_rank_map **ret_map)
{
	int rc;

	for (size_t i = 0; i < ranks->n_maps; i++) {
		const size_t at = (ranks->hint + i) % ranks->n_maps;

		if (ranks->maps[at].layer_id == layer->layer_id &&
		    ranks->maps[at].epoch == epoch) {
			ranks->hint = at + 1;
			*ret_map = &ranks->maps[at].map;
			return SQLITE_OK;
		}
	}
	rc = map_add(ranks, layer, epoch);
	if (rc == SQLITE_OK)
		*ret_map = &ranks->maps[ranks->n_maps - 1].map;
	return rc;
}

int mt_oea_ranks_open(struct mt_oea_ranks *ranks, struct mt_tvf_rows *rows, const char *name,
		      sqlite3 *db, uint32_t n_ranks, sqlite3_value *placement)
{
	const char *text = placement ? (const char *)sqlite3_value_text(placement) : NULL;

	*ranks = (struct mt_oea_ranks){.rows = rows,
				       .name = name,
				       .db = db,
				       .n_ranks = n_ranks,
				       .placement = placement,
				       .is_wanted = n_ranks > 0 || placement,
				       .is_recorded = text && strcmp(text, "recorded") == 0};
	if (ranks->is_wanted && n_ranks == 0 && !ranks->is_recorded)
		return mt_tvf_fail(rows, "%s: n_ranks: give how many ranks there are", name);
	return SQLITE_OK;
}

static int counts_reserve(struct mt_oea_ranks *ranks, uint32_t n_ranks)
{
	const size_t n = (size_t)n_ranks * MT_OEA_MAX_K;
	void *counts;

	if (n <= ranks->n_counts)
		return SQLITE_OK;
	counts = sqlite3_realloc64(ranks->counts, n * sizeof(*ranks->counts));
	if (!counts)
		return SQLITE_NOMEM;
	ranks->counts = counts;
	ranks->n_counts = n;
	memset(counts, 0, n * sizeof(*ranks->counts));
	return SQLITE_OK;
}

int mt_oea_ranks_count(struct mt_oea_ranks *ranks, const struct mt_oea_source *source,
		       const struct mt_oea_scratch *scratch)
{
	const size_t k = source->batch.k;
	const sqlite3_int64 epoch = ranks->is_recorded ? source->reader.map_epoch : 0;
	const struct mt_rank_map *map;
	uint32_t a_rank;
	int rc;

	memset(ranks->active, 0, k * sizeof(*ranks->active));
	ranks->active_before = 0;
	ranks->is_known = !ranks->is_recorded || epoch > 0;
	if (!ranks->is_known)
		return SQLITE_OK;
	rc = map_find(ranks, source->layer, epoch, &map);
	if (rc == SQLITE_OK)
		rc = counts_reserve(ranks, map->n_ranks);
	if (rc != SQLITE_OK)
		return rc;
	a_rank = map->n_slots / map->n_ranks;
	for (uint32_t rank = 0; rank < map->n_ranks; rank++) {
		uint32_t *counts = ranks->counts + (size_t)rank * MT_OEA_MAX_K, sum = 0;
		uint32_t n_active = 0;

		for (uint32_t i = rank * a_rank; i < (rank + 1) * a_rank; i++) {
			if (map->expert_of[i] == MT_SLOT_EMPTY ||
			    scratch->place[map->expert_of[i]] == 255)
				continue;
			n_active++;
			if (scratch->place[map->expert_of[i]] < MT_OEA_MAX_K)
				counts[scratch->place[map->expert_of[i]]]++;
		}
		if (n_active > ranks->active_before)
			ranks->active_before = n_active;
		for (size_t j = 0; j < k; j++) {
			sum += counts[j];
			if (sum > ranks->active[j])
				ranks->active[j] = sum;
		}
		memset(counts, 0, k * sizeof(*counts));
	}
	return SQLITE_OK;
}

void mt_oea_ranks_close(struct mt_oea_ranks *ranks)
{
	for (size_t i = 0; i < ranks->n_maps; i++)
		mt_rank_map_free(&ranks->maps[i].map);
	sqlite3_free(ranks->maps);
	sqlite3_free(ranks->counts);
}
