/* SPDX-License-Identifier: MIT */
/*
 * Expert maps: which logical expert each physical slot of a layer holds, by epoch. The caller's
 * thread makes a map, the writer owns it from then on.
 */
#ifndef MT_EXPERT_MAP_H
#define MT_EXPERT_MAP_H

#include <stdint.h>

#include "libtrace/session.h"

/* Maps of a model that are kept: a pass that outlives more changes loses its physical ids. */
#define MT_KEPT_MAPS 16u

struct mt_expert_map {
	uint64_t set_ns; /* session clock */
	int is_written;  /* into the file in force; the writer's */
	uint32_t model; /* index in the session */
	uint32_t epoch;
	uint32_t n_slots;
	uint32_t n_ranks; /* 0: unknown */
	uint32_t n_layers;
	int32_t *slot_experts; /* [n_layers][n_slots], negative: empty */
};

/* The maps that the writer needs. */
struct mt_expert_maps {
	struct mt_expert_map *maps[MOETRACE_MAX_MODELS][MT_KEPT_MAPS]; /* at epoch % MT_KEPT_MAPS */
};

void mt_expert_map_free(struct mt_expert_map *map);

/* Takes ownership; the map that it replaces is freed. */
void mt_expert_maps_put(struct mt_expert_maps *maps, struct mt_expert_map *map);
/* NULL: there is none, or none any more. */
const struct mt_expert_map *mt_expert_maps_find(const struct mt_expert_maps *maps, uint32_t model,
						uint32_t epoch);
void mt_expert_maps_free(struct mt_expert_maps *maps);

/* Ids that a layer has in physical numbers: slots, then zero experts and fused shared slots. */
static inline uint32_t mt_physical_ids(const struct mt_expert_map *map, const struct mt_layer *layer)
{
	return map->n_slots + (layer->n_ids - layer->n_experts);
}

/* The logical id of a physical one; -1: the slot is empty, or there is no such id. */
static inline int32_t mt_logical_id(const struct mt_expert_map *map, const struct mt_layer *layer,
				    uint32_t layer_index, uint32_t id)
{
	if (id < map->n_slots)
		return map->slot_experts[(uint64_t)layer_index * map->n_slots + id];
	if (id >= mt_physical_ids(map, layer))
		return -1;
	return (int32_t)(layer->n_experts + (id - map->n_slots));
}

#endif
