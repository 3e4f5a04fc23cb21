/* SPDX-License-Identifier: MIT */
/*
 * The map's tables and the look-up. Shares of the probability rule are kept as limits of
 * the hash, ascending within an expert, so that a choice is integer comparisons alone; a copy with
 * share 0 has the limit of the copy before it and is never chosen.
 */
#include "kernels/map/map_tables.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

#include <moetrace/status.h>

static uint64_t mix(uint64_t x)
{
	x += UINT64_C(0x9e3779b97f4a7c15);
	x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
	return x ^ x >> 31;
}

uint64_t mtk_map_hash(uint64_t seed, uint64_t row, uint32_t slot)
{
	return mix(mix(mix(seed) ^ row) ^ slot);
}

static int check_sizes(const struct mtk_map_settings *s, struct mtk_error *error)
{
	if ((unsigned int)s->kind > MTK_MAP_PROBABILITY)
		return mtk_error_set(error, MOETRACE_E_INVALID, "map: kind: %d is not a rule",
				     (int)s->kind);
	if (s->n_logical == 0 || s->n_logical > INT32_MAX)
		return mtk_error_set(error, MOETRACE_E_INVALID,
				     "map: n_logical: %u is not in 1 .. %d", s->n_logical,
				     INT32_MAX);
	if (s->n_physical < s->n_logical || s->n_physical > INT32_MAX)
		return mtk_error_set(error, MOETRACE_E_INVALID,
				     "map: n_physical: %u is not in n_logical (%u) .. %d",
				     s->n_physical, s->n_logical, INT32_MAX);
	if (!s->physical_to_logical)
		return mtk_error_set(error, MOETRACE_E_INVALID,
				     "map: physical_to_logical: is missing");
	if (s->static_physical && s->kind != MTK_MAP_STATIC)
		return mtk_error_set(error, MOETRACE_E_INVALID,
				     "map: static_physical: only the static rule takes it");
	if (s->probabilities && s->kind != MTK_MAP_PROBABILITY)
		return mtk_error_set(error, MOETRACE_E_INVALID,
				     "map: probabilities: only the probability rule takes them");
	return MOETRACE_OK;
}

static int check_entries(const struct mtk_map_settings *s, struct mtk_error *error)
{
	for (uint32_t p = 0; p < s->n_physical; p++) {
		int32_t logical = s->physical_to_logical[p];

		if (logical < -1 || logical >= (int64_t)s->n_logical)
			return mtk_error_set(error, MOETRACE_E_INVALID,
					     "map: physical_to_logical[%u]: %d is not in -1 .. %u",
					     p, logical, s->n_logical - 1);
	}
	for (uint32_t p = 0; s->probabilities && p < s->n_physical; p++)
		if (!(s->probabilities[p] >= 0.0f) || isinf(s->probabilities[p]))
			return mtk_error_set(error, MOETRACE_E_INVALID,
					     "map: probabilities[%u]: %g is not a finite number "
					     "of at least 0",
					     p, (double)s->probabilities[p]);
	return MOETRACE_OK;
}

static int check_static(const struct mtk_map_settings *s, struct mtk_error *error)
{
	for (uint32_t e = 0; s->static_physical && e < s->n_logical; e++) {
		int32_t physical = s->static_physical[e];

		if (physical < 0 || physical >= (int64_t)s->n_physical)
			return mtk_error_set(error, MOETRACE_E_INVALID,
					     "map: static_physical[%u]: %d is not in 0 .. %u", e,
					     physical, s->n_physical - 1);
		if (s->physical_to_logical[physical] != (int32_t)e)
			return mtk_error_set(error, MOETRACE_E_INVALID,
					     "map: static_physical[%u]: physical expert %d holds "
					     "logical expert %d",
					     e, physical, s->physical_to_logical[physical]);
	}
	return MOETRACE_OK;
}

/* A counting sort of the places by expert, hence ascending within one. */
static int fill_replicas(struct mtk_map *map, const struct mtk_map_settings *s,
			 struct mtk_error *error)
{
	uint32_t *first = map->first;

	for (uint32_t p = 0; p < s->n_physical; p++)
		if (s->physical_to_logical[p] >= 0)
			first[s->physical_to_logical[p] + 1]++;
	for (uint32_t e = 0; e < s->n_logical; e++) {
		if (first[e + 1] == 0)
			return mtk_error_set(error, MOETRACE_E_INVALID,
					     "map: physical_to_logical: logical expert %u has no "
					     "physical expert",
					     e);
		first[e + 1] += first[e];
	}
	/* Until the end, chosen counts the replicas that are in place. */
	for (uint32_t p = 0; p < s->n_physical; p++) {
		int32_t e = s->physical_to_logical[p];

		if (e >= 0)
			map->replicas[first[e] + (uint32_t)map->chosen[e]++] = (int32_t)p;
	}
	for (uint32_t e = 0; e < s->n_logical; e++)
		map->chosen[e] =
			s->static_physical ? s->static_physical[e] : map->replicas[first[e]];
	return MOETRACE_OK;
}

static int fill_limits(struct mtk_map *map, const struct mtk_map_settings *s,
		       struct mtk_error *error)
{
	for (uint32_t e = 0; e < s->n_logical; e++) {
		double sum = 0.0, before = 0.0;

		for (uint32_t i = map->first[e]; i < map->first[e + 1]; i++)
			sum += s->probabilities ? (double)s->probabilities[map->replicas[i]] : 1.0;
		if (!(sum > 0.0))
			return mtk_error_set(error, MOETRACE_E_INVALID,
					     "map: probabilities: those of logical expert %u are "
					     "all 0",
					     e);
		for (uint32_t i = map->first[e]; i < map->first[e + 1]; i++) {
			before +=
				s->probabilities ? (double)s->probabilities[map->replicas[i]] : 1.0;
			map->limits[i] = (uint64_t)(before / sum * 0x1p63);
		}
	}
	return MOETRACE_OK;
}

static int take_tables(struct mtk_map *map, const struct mtk_map_settings *s)
{
	map->first = calloc((size_t)s->n_logical + 1, sizeof(*map->first));
	map->replicas = malloc(s->n_physical * sizeof(*map->replicas));
	map->limits = calloc(s->n_physical, sizeof(*map->limits));
	map->chosen = calloc(s->n_logical, sizeof(*map->chosen));
	if (!map->first || !map->replicas || !map->limits || !map->chosen)
		return MOETRACE_E_NOMEM;
	return MOETRACE_OK;
}

int mtk_map_create(const struct mtk_map_settings *settings, struct mtk_error *error,
		   struct mtk_map **ret_map)
{
	struct mtk_map *map;
	int status = check_sizes(settings, error);

	if (!status)
		status = check_entries(settings, error);
	if (!status)
		status = check_static(settings, error);
	if (status)
		return status;
	map = calloc(1, sizeof(*map));
	if (!map || take_tables(map, settings)) {
		status = mtk_error_set(error, MOETRACE_E_NOMEM, "map: out of memory");
		goto err_map;
	}
	map->kind = settings->kind;
	map->n_logical = settings->n_logical;
	map->n_physical = settings->n_physical;
	map->seed_hash = mix(settings->seed);
	status = fill_replicas(map, settings, error);
	if (!status)
		status = fill_limits(map, settings, error);
	if (status)
		goto err_map;
	*ret_map = map;
	return MOETRACE_OK;

err_map:
	mtk_map_destroy(map);
	return status;
}

void mtk_map_destroy(struct mtk_map *map)
{
	if (!map)
		return;
	free(map->first);
	free(map->replicas);
	free(map->limits);
	free(map->chosen);
	free(map);
}

const int32_t *mtk_map_replicas(const struct mtk_map *map, uint32_t logical, uint32_t *ret_n)
{
	*ret_n = map->first[logical + 1] - map->first[logical];
	return map->replicas + map->first[logical];
}

static int32_t choose(const struct mtk_map *map, uint32_t logical, uint64_t row, uint64_t row_hash,
		      uint32_t slot)
{
	const uint32_t first = map->first[logical];
	const uint32_t n = map->first[logical + 1] - first;
	uint64_t hash;
	uint32_t i;

	if (map->kind == MTK_MAP_STATIC)
		return map->chosen[logical];
	if (map->kind == MTK_MAP_DYNAMIC)
		return map->replicas[first + row % n];
	/* The last limit is 2^63, above every value. */
	hash = mix(row_hash ^ slot) >> 1;
	for (i = first; hash >= map->limits[i];)
		i++;
	return map->replicas[i];
}

uint64_t mtk_map_run(const struct mtk_map *map, const struct mtk_map_rows *rows, uint32_t begin,
		     uint32_t end)
{
	uint64_t n_invalid = 0;

	for (uint32_t r = begin; r < end; r++) {
		const int32_t *ids = rows->ids + (size_t)r * rows->top_k;
		int32_t *physical_ids = rows->physical_ids + (size_t)r * rows->top_k;
		uint64_t row = rows->numbers ? rows->numbers[r] : rows->first_number + r;
		uint64_t row_hash = mix(map->seed_hash ^ row);

		for (uint32_t j = 0; j < rows->top_k; j++) {
			int32_t id = ids[j];
			bool known = id >= 0 && (uint32_t)id < map->n_logical;

			n_invalid += !known && id != -1;
			physical_ids[j] = known ? choose(map, (uint32_t)id, row, row_hash, j) : -1;
		}
	}
	return n_invalid;
}
