/* SPDX-License-Identifier: MIT */
/*
 * The order of a row's entries, as far as the file tells the scores that chose: as weights that are
 * scores, perhaps times a factor, or as the scores of candidates, plus the layer's bias. Stored in
 * 16 bits they are rounded. Where nothing is added that keeps their order, so that they must
 * descend; where a bias is added, an entry must stand clearly above the one before to be wrong. A
 * row is at fault if everything that tells its order contradicts it.
 */
#include "cli/check.h"

#include <math.h>

#include "common/bytes.h"
#include "common/f16.h"

enum basis {
	BASIS_WEIGHTS,
	BASIS_SCORES,
	N_BASES
};

struct row {
	const struct check_layer *layer;
	const struct check_run *run;
	int64_t stored;
	int64_t n_valid;
};

/* A score with its bias, and how far it may be from what the router compared. */
struct key {
	double value;
	double error;
	bool is_known;
};

static uint32_t id_at(const struct row *row, const uint8_t *ids, int64_t at)
{
	return mt_narrow_at(ids, (size_t)row->run->id_bytes, (size_t)at);
}

static float number_of(uint32_t bits, bool is_bf16)
{
	return is_bf16 ? mt_f32_from_bf16((uint16_t)bits) : mt_f32_from_f16((uint16_t)bits);
}

/* What a number of 16 bits was before it was divided by @scale and got the bias of @id. */
static struct key key_make(const struct check_layer *layer, uint32_t id, double number,
			   bool is_bf16, double scale)
{
	struct key key = {.value = number, .is_known = true};

	if (!layer->bias)
		return key;
	/* Half a unit in the last place, of subnormal numbers in fp16 of their fixed one. */
	key.error = is_bf16 ? fabs(number) * 0x1p-8 : fabs(number) * 0x1p-11 + 0x1p-25;
	key.error /= scale;
	key.value = number / scale + layer->bias[id];
	/* The router and the recorder compute in fp32. */
	key.error += (fabs(key.value) + fabs(number / scale)) * 0x1p-22;
	return key;
}

static struct key weight_key(const struct row *row, int64_t i, uint32_t id)
{
	uint32_t bits = mt_u16_at(row->run->weights + 2 * (row->stored * row->run->k + i));

	return key_make(row->layer, id, number_of(bits, row->run->is_bf16), row->run->is_bf16,
			row->layer->weight_scale);
}

static struct key score_key(const struct row *row, uint32_t id)
{
	const struct check_run *run = row->run;
	int64_t first = row->stored * run->n_candidates;

	for (int64_t at = first; at < first + run->n_candidates; at++)
		if (id_at(row, run->candidate_ids, at) == id)
			return key_make(row->layer, id,
					number_of(mt_u16_at(run->candidate_scores + 2 * at),
						  run->is_score_bf16),
					run->is_score_bf16, 1);
	return (struct key){.is_known = false};
}

static bool can_tell(const struct row *row, enum basis basis)
{
	const struct check_layer *layer = row->layer;

	if (!layer->is_unbiased && !layer->bias)
		return false;
	if (basis == BASIS_SCORES)
		return row->run->candidate_ids && row->run->candidate_scores;
	return row->run->weights && layer->has_ordered_weights &&
	       (layer->is_unbiased || layer->weight_scale > 0);
}

/* Whether @basis contradicts the order; @ret_tells: whether it says anything of all entries. */
static bool contradicts(const struct row *row, enum basis basis, bool *ret_tells)
{
	uint32_t first_shared = row->layer->n_ids - row->layer->n_shared;
	struct key before = {.is_known = false};
	bool is_wrong = false;

	*ret_tells = false;
	for (int64_t i = 0; i < row->n_valid; i++) {
		uint32_t id = id_at(row, row->run->ids, row->stored * row->run->k + i);
		struct key key;

		if (id >= first_shared)
			break;
		key = basis == BASIS_SCORES ? score_key(row, id) : weight_key(row, i, id);
		if (!key.is_known)
			return false;
		if (before.is_known && key.value - before.value > key.error + before.error)
			is_wrong = true;
		before = key;
	}
	*ret_tells = true;
	return is_wrong;
}

/* Fused shared slots come last; in a restored order by id, too. */
static bool shared_are_last(const struct row *row, bool is_restored)
{
	uint32_t first_shared = row->layer->n_ids - row->layer->n_shared;

	for (int64_t i = 1; i < row->n_valid; i++) {
		int64_t at = row->stored * row->run->k + i;
		uint32_t before = id_at(row, row->run->ids, at - 1);
		uint32_t id = id_at(row, row->run->ids, at);

		if (before >= first_shared && (id < first_shared || (is_restored && id < before)))
			return false;
	}
	return true;
}

const char *check_order_fault(const struct check_layer *layer, const struct check_run *run,
			      int64_t stored, int64_t n_valid, bool is_restored, bool is_routed)
{
	const struct row row = {layer, run, stored, n_valid};
	bool is_told = false;

	if (!shared_are_last(&row, is_restored))
		return is_restored ? "a restored order in which a shared slot is not last"
				   : "an order of selection in which a shared slot is not last";
	/* Simulated choices are in the order in which they were drawn, whatever their weights. */
	if (!is_routed && !is_restored)
		return NULL;
	for (enum basis basis = 0; basis < N_BASES; basis++) {
		bool tells;

		if (!can_tell(&row, basis))
			continue;
		if (!contradicts(&row, basis, &tells) && tells)
			return NULL;
		is_told |= tells;
	}
	if (!is_told)
		return NULL;
	return is_restored ? "a restored order that does not descend"
			   : "an order of selection that does not descend";
}
