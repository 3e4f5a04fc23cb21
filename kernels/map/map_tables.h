/* SPDX-License-Identifier: MIT */
/* What a map consists of, for the code that copies it to a GPU. */
#ifndef MTK_MAP_MAP_TABLES_H
#define MTK_MAP_MAP_TABLES_H

#include "kernels/map/map.h"

struct mtk_map {
	enum mtk_map_kind kind;
	uint32_t n_logical;
	uint32_t n_physical;
	uint64_t seed_hash;
	uint32_t *first;   /* [n_logical + 1]: where each expert's replicas begin */
	int32_t *replicas; /* [n_physical]: by logical expert, ascending */
	uint64_t *limits;  /* of hash >> 1, in the same order */
	int32_t *chosen;   /* [n_logical]: the copy of the static rule */
};

#endif
