/* SPDX-License-Identifier: MIT */
/*
 * A map is copied and checked before its epoch exists, and never changes afterwards. Its message
 * is in the queue before any record can name its epoch.
 */
#include "libtrace/expert_map.h"

#include <stdlib.h>
#include <string.h>

#include "libtrace/abi.h"

void mt_expert_map_free(struct mt_expert_map *map)
{
	if (map)
		free(map->slot_experts);
	free(map);
}

void mt_expert_maps_put(struct mt_expert_maps *maps, struct mt_expert_map *map)
{
	struct mt_expert_map **place = &maps->maps[map->model][map->epoch % MT_KEPT_MAPS];

	mt_expert_map_free(*place);
	*place = map;
}

const struct mt_expert_map *mt_expert_maps_find(const struct mt_expert_maps *maps, uint32_t model,
						uint32_t epoch)
{
	const struct mt_expert_map *map = maps->maps[model][epoch % MT_KEPT_MAPS];

	return map && map->epoch == epoch ? map : NULL;
}

void mt_expert_maps_free(struct mt_expert_maps *maps)
{
	for (uint32_t i = 0; i < MOETRACE_MAX_MODELS; i++)
		for (uint32_t j = 0; j < MT_KEPT_MAPS; j++)
			mt_expert_map_free(maps->maps[i][j]);
}

static int check_map(struct moetrace_session *session, uint32_t model,
		     const struct moetrace_expert_map *map)
{
	if (!map || !mt_abi_knows(map->size, MT_FIRST_EXPERT_MAP) || !map->n_slots || !map->slot_experts)
		return mt_session_error(session, MOETRACE_E_INVALID,
					"expert map: no description, size, slots or experts");
	if (model == 0 || model > atomic_load(&session->n_models))
		return mt_session_error(session, MOETRACE_E_INVALID,
					"expert map: model %u was not added", model);
	if (map->n_slots > MOETRACE_MAX_SLOTS)
		return mt_session_error(session, MOETRACE_E_LIMIT,
					"expert map: %u slots are above %u", map->n_slots,
					MOETRACE_MAX_SLOTS);
	if (map->n_ranks && map->n_slots % map->n_ranks)
		return mt_session_error(session, MOETRACE_E_INVALID,
					"expert map: %u slots do not spread evenly over %u ranks",
					map->n_slots, map->n_ranks);
	return MOETRACE_OK;
}

static int check_experts(struct moetrace_session *session, const struct mt_model *model,
			 const struct moetrace_expert_map *map)
{
	for (uint32_t layer = 0; layer < model->n_layers; layer++) {
		const int32_t *experts = map->slot_experts + (size_t)layer * map->n_slots;

		for (uint32_t slot = 0; slot < map->n_slots; slot++)
			if (experts[slot] >= (int64_t)model->layers[layer].n_experts)
				return mt_session_error(session, MOETRACE_E_INVALID,
							"expert map: layer index %u, slot %u: there is "
							"no expert %d",
							layer, slot, experts[slot]);
	}
	return MOETRACE_OK;
}

static struct mt_expert_map *copy_map(const struct mt_model *model,
				      const struct moetrace_expert_map *map)
{
	struct mt_expert_map *copy = calloc(1, sizeof(*copy));
	size_t n = (size_t)model->n_layers * map->n_slots;

	if (!copy)
		return NULL;
	copy->slot_experts = malloc((n + 1) * sizeof(*copy->slot_experts));
	if (!copy->slot_experts) {
		free(copy);
		return NULL;
	}
	/* What is empty is -1, so that files of equal maps are equal. */
	for (size_t i = 0; i < n; i++)
		copy->slot_experts[i] = map->slot_experts[i] < 0 ? -1 : map->slot_experts[i];
	copy->model = model->model_id - 1;
	copy->n_slots = map->n_slots;
	copy->n_ranks = map->n_ranks;
	copy->n_layers = model->n_layers;
	return copy;
}

int moetrace_expert_map_set(struct moetrace_session *session, uint32_t model,
			    const struct moetrace_expert_map *map, uint32_t *ret_epoch)
{
	struct mt_message *message;
	struct mt_expert_map *copy;
	int status;

	if (ret_epoch)
		*ret_epoch = 0;
	if (!session)
		return MOETRACE_E_INVALID;
	if (atomic_load(&session->forked))
		return MOETRACE_E_STATE;
	status = check_map(session, model, map);
	if (!status)
		status = check_experts(session, session->models[model - 1], map);
	if (status)
		return status;
	message = mt_message_new(MT_MESSAGE_EXPERT_MAP, NULL, NULL);
	copy = message ? copy_map(session->models[model - 1], map) : NULL;
	if (!copy) {
		if (message)
			mt_message_free(message);
		return mt_session_error(session, MOETRACE_E_NOMEM, "out of memory");
	}
	pthread_mutex_lock(&session->control);
	copy->epoch = atomic_load(&session->map_epochs[model - 1]) + 1;
	message->map = copy;
	if (ret_epoch)
		*ret_epoch = copy->epoch;
	mt_session_post(session, message);
	/* The queue has the map before a pass can begin under it. */
	atomic_store(&session->map_epochs[model - 1], copy->epoch);
	pthread_mutex_unlock(&session->control);
	return MOETRACE_OK;
}
