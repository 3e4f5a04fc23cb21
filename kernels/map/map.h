/* SPDX-License-Identifier: MIT */
/*
 * From logical experts, which the router chooses, to physical experts, the copies that ranks hold.
 * An expert may have several copies (replicas), also on one rank; each row and slot gets one of
 * them by a rule that reads nothing but the row's number, its slot and the settings, so every rank
 * that knows them finds the same copy, in whatever batch, order or thread the row stands.
 */
#ifndef MTK_MAP_MAP_H
#define MTK_MAP_MAP_H

#include <stdint.h>

#include "kernels/engine/error.h"

enum mtk_map_kind {
	/* One copy an expert: static_physical, or the copy with the lowest number. */
	MTK_MAP_STATIC,
	/* Copy number row % n of the n copies in ascending order. */
	MTK_MAP_DYNAMIC,
	/* The copy whose share of [0, 1) holds (mtk_map_hash() >> 1) / 2^63, in ascending order. */
	MTK_MAP_PROBABILITY,
};

struct mtk_map_settings {
	enum mtk_map_kind kind;
	uint32_t n_logical;
	uint32_t n_physical;
	const int32_t *physical_to_logical;	/* [n_physical]; -1: the place holds no expert */
	const int32_t *static_physical;		/* [n_logical]; NULL: the lowest copy */
	const float *probabilities;		/* [n_physical], relative; NULL: equal shares */
	uint64_t seed;				/* of MTK_MAP_PROBABILITY; one a layer, say */
};

struct mtk_map;

/**
 * Check the settings and build the tables; the settings' arrays are not needed afterwards.
 *
 * Returns  MOETRACE_OK, MOETRACE_E_INVALID (@error names the field and its entry) or
 *          MOETRACE_E_NOMEM.
 * Owner    caller; release with mtk_map_destroy().
 */
int mtk_map_create(const struct mtk_map_settings *settings, struct mtk_error *error,
		   struct mtk_map **ret_map);

/* NULL is allowed. */
void mtk_map_destroy(struct mtk_map *map);

/* The physical experts of a logical one, ascending; their number is at least 1. */
const int32_t *mtk_map_replicas(const struct mtk_map *map, uint32_t logical, uint32_t *ret_n);

/*
 * mix(mix(mix(seed) ^ row) ^ slot), where mix(x) adds 0x9e3779b97f4a7c15 to x and then does
 * x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9, x = (x ^ x >> 27) * 0x94d049bb133111eb, x ^= x >> 31.
 */
uint64_t mtk_map_hash(uint64_t seed, uint64_t row, uint32_t slot);

struct mtk_map_rows {
	uint32_t top_k;
	uint64_t first_number;		/* row r has the number first_number + r, unless */
	const uint64_t *numbers;	/* numbers[r] says otherwise; NULL: it does not */
	const int32_t *ids;		/* [n_rows][top_k], logical; -1 stays -1 */
	int32_t *physical_ids;		/* [n_rows][top_k]; may be ids itself */
};

/*
 * Map the rows [begin, end). Returns the number of ids that were neither -1 nor a logical expert;
 * they become -1, so that no consumer meets them.
 */
uint64_t mtk_map_run(const struct mtk_map *map, const struct mtk_map_rows *rows, uint32_t begin,
		     uint32_t end);

#endif
