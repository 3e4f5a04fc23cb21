/* SPDX-License-Identifier: MIT */
/*
 * A wide layer is read twice: once to see that every row's order can be restored, since a layer
 * has one order for all of its rows, and once to write the rows.
 */
#include "libtrace/settle.h"

#include <stdlib.h>
#include <string.h>

#include "libtrace/narrow.h"
#include "libtrace/restore.h"

/* A layer on its way. */
struct settling {
	const struct mt_settle_input *input;
	struct mt_wide_parts from;
	uint32_t n_ids;      /* that ids of the record can have: logical or physical */
	int is_physical;     /* ids are physical */
	int has_physical;    /* physical ids are to be stored */
	enum mt_basis basis; /* NONE: rows stay as they are */
	struct mt_record_layer *to;
	struct mt_layer_parts parts;
	float *weights;      /* [n_rows][k], sorted as ids are */
	uint8_t *physical_ids;
	uint8_t physical_id_bytes;
	uint64_t misuse;
};

void mt_settler_free(struct mt_settler *settler)
{
	free(settler->layer);
	free(settler->weights);
	free(settler->physical_ids);
	free(settler->candidate_ids);
	free(settler->candidate_scores);
}

/* Grow memory to @n_bytes; what was in it is lost. Returns 0 on success. */
static int reserve(void *memory, uint64_t *capacity, uint64_t n_bytes)
{
	void **at = memory;

	if (n_bytes <= *capacity)
		return 0;
	free(*at);
	*capacity = 0;
	*at = malloc(n_bytes);
	if (!*at)
		return -1;
	*capacity = n_bytes;
	return 0;
}

static void store_id(uint8_t *ids, uint64_t index, uint8_t id_bytes, uint32_t id)
{
	uint16_t wide = (uint16_t)id;

	if (id_bytes == 1)
		ids[index] = (uint8_t)id;
	else
		memcpy(ids + index * 2, &wide, sizeof(wide));
}

#define NO_EXPERT (-1)
#define INVALID	  (-2)

/* The logical expert that an id of the record means. */
static int32_t expert_of(const struct settling *settling, int32_t id)
{
	const struct mt_settle_input *input = settling->input;
	uint32_t none_id = input->wide->none_id;
	int32_t logical;

	if (id < 0 || ((uint32_t)id == none_id && settling->n_ids <= none_id))
		return NO_EXPERT;
	if ((uint32_t)id >= settling->n_ids)
		return INVALID;
	if (!settling->is_physical)
		return id;
	logical = mt_logical_id(input->map, input->layer, input->wide->layer, (uint32_t)id);
	return logical < 0 ? INVALID : logical;
}

/* The entries of a row that are experts; returns how many. */
static uint32_t read_row(const struct settling *settling, uint32_t row, struct mt_entry *entries,
			 uint32_t *ret_n_invalid)
{
	const struct mt_record_wide *wide = settling->input->wide;
	uint64_t first = (uint64_t)row * wide->k;
	uint32_t n = 0;

	*ret_n_invalid = 0;
	for (uint32_t i = 0; i < wide->k; i++) {
		int32_t id = settling->from.ids[first + i];
		int32_t expert = expert_of(settling, id);

		*ret_n_invalid += expert == INVALID;
		if (expert < 0)
			continue;
		entries[n].id = expert;
		entries[n].physical = settling->is_physical ? id :
				      wide->has_physical   ? settling->from.physical_ids[first + i] :
							     -1;
		entries[n].weight = wide->has_weights ? settling->from.weights[first + i] : 0;
		n++;
	}
	return n;
}

/* What tells the order of every row; NONE: nothing does. */
static enum mt_basis find_basis(const struct settling *settling)
{
	const struct mt_record_wide *wide = settling->input->wide;
	struct mt_entry entries[MOETRACE_MAX_TOP_K];
	enum mt_basis bases[2];
	uint32_t n_bases = wide->order == MOETRACE_ORDER_UNORDERED ?
				   mt_restore_bases(settling->input, bases) :
				   0;

	for (uint32_t i = 0; i < n_bases; i++) {
		uint32_t row = 0;
		uint32_t n_invalid;

		for (; row < wide->n_rows; row++) {
			uint32_t n = read_row(settling, row, entries, &n_invalid);

			if (!mt_restore_keys(settling->input, bases[i], row, entries, n))
				break;
		}
		if (row == wide->n_rows)
			return bases[i];
	}
	return MT_BASIS_NONE;
}

/* A slot that the map does not give to the entry's expert takes all of them from the layer. */
static void write_physical(struct settling *settling, uint64_t at, const struct mt_entry *entry)
{
	const struct mt_settle_input *input = settling->input;
	uint32_t id = (uint32_t)entry->physical;

	if (!settling->has_physical)
		return;
	if (!settling->is_physical &&
	    (entry->physical < 0 || id >= mt_physical_ids(input->map, input->layer) ||
	     mt_logical_id(input->map, input->layer, input->wide->layer, id) != entry->id)) {
		settling->has_physical = 0;
		settling->misuse |= UINT64_C(1) << MT_MISUSE_MAP;
		return;
	}
	store_id(settling->physical_ids, at, settling->physical_id_bytes, id);
}

/* Returns 1 if entries of the row tied. */
static int write_row(struct settling *settling, uint32_t row)
{
	struct mt_record_layer *to = settling->to;
	struct mt_entry entries[MOETRACE_MAX_TOP_K];
	uint64_t first = (uint64_t)row * to->k;
	uint32_t n_invalid;
	uint32_t n = read_row(settling, row, entries, &n_invalid);
	int tied = 0;

	if (settling->basis) {
		(void)mt_restore_keys(settling->input, settling->basis, row, entries, n);
		tied = mt_restore_sort(settling->input, settling->basis, entries, n);
	}
	for (uint32_t i = 0; i < n; i++) {
		store_id(settling->parts.ids, first + i, to->id_bytes, (uint32_t)entries[i].id);
		settling->weights[first + i] = entries[i].weight;
		write_physical(settling, first + i, &entries[i]);
	}
	for (uint32_t i = n; i < to->k; i++) {
		store_id(settling->parts.ids, first + i, to->id_bytes, 0);
		settling->weights[first + i] = 0;
		if (settling->has_physical)
			store_id(settling->physical_ids, first + i, settling->physical_id_bytes, 0);
	}
	settling->parts.n_valid[row] = (uint8_t)(n | (n_invalid ? MT_ROW_INVALID : 0));
	to->has_valid |= n < to->k;
	to->n_invalid += n_invalid;
	return tied;
}

static void write_padding(struct settling *settling)
{
	struct mt_record_layer *to = settling->to;

	for (uint32_t row = to->n_rows; row < to->n_rows + to->n_padding; row++) {
		uint64_t first = (uint64_t)row * to->k;
		uint32_t n = 0;

		for (uint32_t i = 0; i < to->k; i++) {
			int32_t expert = expert_of(settling, settling->from.ids[first + i]);

			if (expert >= 0)
				store_id(settling->parts.ids, first + n++, to->id_bytes,
					 (uint32_t)expert);
		}
		settling->parts.n_valid[row] = (uint8_t)n;
		to->has_padding_valid |= n < to->k;
	}
}

/* Ids that are logical and whole, or none of them; returns 1 if they are. */
static int write_whole(const struct settling *settling, const int32_t *from, uint64_t n, uint8_t *to)
{
	uint32_t n_ids = settling->input->layer->n_ids;

	for (uint64_t i = 0; i < n; i++) {
		if (from[i] < 0 || (uint32_t)from[i] >= n_ids)
			return 0;
		store_id(to, i, settling->to->id_bytes, (uint32_t)from[i]);
	}
	return 1;
}

static void write_base(struct settling *settling)
{
	struct mt_record_layer *to = settling->to;

	if (!to->base_k)
		return;
	to->has_base = (uint8_t)write_whole(settling, settling->from.base_ids,
					    (uint64_t)to->n_rows * to->base_k,
					    settling->parts.base_ids);
	if (!to->has_base)
		settling->misuse |= UINT64_C(1) << MT_MISUSE_RULE;
}

static int write_candidates(struct mt_settler *settler, struct settling *settling,
			    struct mt_layer_extra *extra)
{
	const struct mt_record_wide *wide = settling->input->wide;
	uint64_t n = (uint64_t)wide->n_rows * wide->n_candidates;
	struct mt_matrix scores = {
		.data = settling->from.candidate_scores,
		.type = MOETRACE_TYPE_F32,
		.row_bytes = (size_t)wide->n_candidates * 4,
		.n_rows = wide->n_rows,
		.k = wide->n_candidates,
	};

	if (!n)
		return MOETRACE_OK;
	if (settling->input->weight_format == MOETRACE_WEIGHT_FORMAT_NONE) {
		/* To have told the order by them is reason enough to hand them over. */
		if (settling->basis != MT_BASIS_SCORES)
			settling->misuse |= UINT64_C(1) << MT_MISUSE_CANDIDATES;
		return MOETRACE_OK;
	}
	if (reserve(&settler->candidate_ids, &settler->candidate_bytes,
		    n * settling->to->id_bytes) ||
	    reserve(&settler->candidate_scores, &settler->score_bytes, n * 2))
		return MOETRACE_E_NOMEM;
	if (!write_whole(settling, settling->from.candidate_ids, n, settler->candidate_ids)) {
		settling->misuse |= UINT64_C(1) << MT_MISUSE_CANDIDATES;
		return MOETRACE_OK;
	}
	mt_narrow_weights(&scores, settling->input->weight_format, settler->candidate_scores);
	extra->n_candidates = wide->n_candidates;
	extra->candidate_ids = settler->candidate_ids;
	extra->candidate_scores = settler->candidate_scores;
	return MOETRACE_OK;
}

static struct mt_record_layer header_of(const struct mt_settle_input *input)
{
	const struct mt_record_wide *wide = input->wide;
	struct mt_record_layer header = {
		.layer = wide->layer,
		.n_rows = wide->n_rows,
		.n_padding = wide->n_padding,
		.k = wide->k,
		.id_bytes = input->layer->id_bytes,
		.weight_format = wide->has_weights ? (uint8_t)input->weight_format :
						     MOETRACE_WEIGHT_FORMAT_NONE,
		.order = wide->order,
		.has_row_map = wide->has_row_map,
		.untimed = wide->untimed,
		.base_k = wide->base_k,
		.facts = wide->facts,
		.rule = wide->rule,
	};

	header.record.time_ns = wide->record.time_ns;
	return header;
}

/* Memory for what is stored. Returns MOETRACE_OK or MOETRACE_E_NOMEM. */
static int make_room(struct mt_settler *settler, struct settling *settling)
{
	const struct mt_settle_input *input = settling->input;
	struct mt_record_layer header = header_of(input);
	uint64_t n = (uint64_t)header.n_rows * header.k;

	settling->physical_id_bytes =
		settling->has_physical && mt_physical_ids(input->map, input->layer) > 256 ? 2 : 1;
	if (reserve(&settler->layer, &settler->layer_bytes, mt_layer_parts(&header).n_bytes) ||
	    reserve(&settler->weights, &settler->n_weights, n * 4 + 1) ||
	    (settling->has_physical && reserve(&settler->physical_ids, &settler->physical_bytes,
					       n * settling->physical_id_bytes + 1)))
		return MOETRACE_E_NOMEM;
	memcpy((void *)settler->layer, &header, sizeof(header));
	settling->to = settler->layer;
	settling->parts = mt_layer_parts(settler->layer);
	settling->weights = settler->weights;
	settling->physical_ids = settler->physical_ids;
	if (header.has_row_map)
		memcpy(settling->parts.row_map, settling->from.row_map, header.n_rows * 4ul);
	if (header.facts & MT_FACT_MARGINS)
		memcpy(settling->parts.margins, settling->from.margins, header.n_rows * 4ul);
	if (header.facts & MT_FACT_FLAGS)
		memcpy(settling->parts.row_flags, settling->from.row_flags, header.n_rows);
	return MOETRACE_OK;
}

static void narrow_weights(const struct settling *settling)
{
	const struct mt_record_layer *to = settling->to;
	struct mt_matrix weights = {
		.data = settling->weights,
		.type = MOETRACE_TYPE_F32,
		.row_bytes = (size_t)to->k * 4,
		.n_rows = to->n_rows,
		.k = to->k,
	};

	if (to->weight_format != MOETRACE_WEIGHT_FORMAT_NONE)
		mt_narrow_weights(&weights, to->weight_format, settling->parts.weights);
}

static enum mt_layer_order order_of(const struct settling *settling)
{
	if (settling->basis)
		return MT_ORDER_RESTORED;
	return settling->input->wide->order == MOETRACE_ORDER_SELECTION ? MT_ORDER_SELECTION :
									  MT_ORDER_UNKNOWN;
}

int mt_settle(struct mt_settler *settler, const struct mt_settle_input *input,
	      struct mt_record_layer **ret_layer, struct mt_layer_extra *ret_extra,
	      uint64_t *ret_misuse)
{
	const struct mt_record_wide *wide = input->wide;
	struct settling settling = {
		.input = input,
		.from = mt_wide_parts(input->wide),
		.n_ids = input->layer->n_ids,
		.is_physical = wide->is_physical,
		.has_physical = (wide->is_physical || wide->has_physical) && input->map,
	};
	struct mt_layer_extra extra = { .tied_rows = MT_NULL };
	int64_t n_tied = 0;
	int status;

	if (wide->is_physical && !input->map)
		return MOETRACE_E_NOT_FOUND;
	if (wide->has_physical && !input->map)
		settling.misuse |= UINT64_C(1) << MT_MISUSE_MAP;
	if (wide->is_physical)
		settling.n_ids = mt_physical_ids(input->map, input->layer);
	status = make_room(settler, &settling);
	if (status)
		return status;
	settling.basis = find_basis(&settling);
	for (uint32_t row = 0; row < wide->n_rows; row++)
		n_tied += write_row(&settling, row);
	write_padding(&settling);
	narrow_weights(&settling);
	write_base(&settling);
	status = write_candidates(settler, &settling, &extra);
	extra.order = order_of(&settling);
	extra.tied_rows = settling.basis ? n_tied : MT_NULL;
	extra.physical_ids = settling.has_physical ? settling.physical_ids : NULL;
	extra.physical_id_bytes = settling.physical_id_bytes;
	*ret_layer = settling.to;
	*ret_extra = extra;
	*ret_misuse = settling.misuse;
	return status;
}
