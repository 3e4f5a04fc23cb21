/* SPDX-License-Identifier: MIT */
/*
 * Settling: from a layer as the runtime passed it to what is stored. Physical ids become
 * logical ones, entries without an expert are left out, the order of the selection is restored
 * where it can be, and everything is narrowed. Used by the writer thread alone.
 */
#ifndef MT_SETTLE_H
#define MT_SETTLE_H

#include <stdint.h>

#include "libtrace/expert_map.h"
#include "libtrace/record.h"
#include "libtrace/store/store.h"

/* What a settled layer has beside the parts of its record. */
struct mt_layer_extra {
	enum mt_layer_order order;
	int64_t tied_rows;           /* MT_NULL: the order was not restored */
	uint8_t *physical_ids;       /* NULL: none */
	uint8_t physical_id_bytes;
	uint32_t n_candidates;       /* 0: none */
	uint8_t *candidate_ids;
	uint16_t *candidate_scores;
};

/* Memory that is kept from layer to layer. */
struct mt_settler {
	struct mt_record_layer *layer;
	uint64_t layer_bytes;
	float *weights;
	uint64_t n_weights;
	uint8_t *physical_ids;
	uint64_t physical_bytes;
	uint8_t *candidate_ids;
	uint64_t candidate_bytes;
	uint16_t *candidate_scores;
	uint64_t score_bytes;
};

/* What to settle, and how. */
struct mt_settle_input {
	struct mt_record_wide *wide;
	const struct mt_layer *layer;
	const struct moetrace_layer_info *info;
	const struct mt_expert_map *map; /* of the record's epoch; NULL: none, or none any more */
	uint32_t weight_format;          /* enum moetrace_weight_format, to store */
};

/*
 * @ret_layer, @ret_extra  Valid until the next call.
 * @ret_misuse             A bit (UINT64_C(1) << kind) an enum mt_misuse that was seen.
 *
 * Returns MOETRACE_OK; MOETRACE_E_NOT_FOUND: ids are physical and the map that explains them is
 * gone; MOETRACE_E_NOMEM.
 */
int mt_settle(struct mt_settler *settler, const struct mt_settle_input *input,
	      struct mt_record_layer **ret_layer, struct mt_layer_extra *ret_extra,
	      uint64_t *ret_misuse);

void mt_settler_free(struct mt_settler *settler);

#endif
