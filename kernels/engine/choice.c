/* SPDX-License-Identifier: MIT */
/*
 * Zipf's choice is the top_k of log-weights with Gumbel noise, which is drawing without
 * replacement. Which expert has which place is drawn anew for each layer.
 */
#include "kernels/engine/choice.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

#include <moetrace/status.h>

#include "kernels/engine/expert_pool.h"

struct mtk_choice {
	struct mtk_choice_settings settings;
	double *log_weights; /* zipf: [n_layers][n_columns] */
};

void mtk_replay_destroy(struct mtk_replay *replay)
{
	if (!replay)
		return;
	for (uint32_t i = 0; replay->requests && i < replay->n_requests; i++)
		free(replay->requests[i].ids);
	free(replay->requests);
	free(replay);
}

static int check_replay(const struct mtk_choice_settings *s, struct mtk_error *error)
{
	if (!s->replay)
		return mtk_error_set(error, MOETRACE_E_INVALID, "choice: replay: there is none");
	if (s->replay->n_layers < s->n_layers)
		return mtk_error_set(error, MOETRACE_E_INVALID,
				     "choice: replay: n_layers: %u were recorded, the run has %u",
				     s->replay->n_layers, s->n_layers);
	if (s->replay->top_k != s->top_k)
		return mtk_error_set(error, MOETRACE_E_INVALID,
				     "choice: replay: top_k: %u was recorded, the run has %u",
				     s->replay->top_k, s->top_k);
	return MOETRACE_OK;
}

static int check_settings(const struct mtk_choice_settings *s, struct mtk_error *error)
{
	if ((unsigned int)s->kind > MTK_CHOICE_REPLAY)
		return mtk_error_set(error, MOETRACE_E_INVALID, "choice: kind: %d is unknown",
				     (int)s->kind);
	if (s->n_columns < 1 || s->n_columns > MTK_ROUTE_MAX_COLUMNS)
		return mtk_error_set(error, MOETRACE_E_INVALID,
				     "choice: n_columns: %u is not in 1 .. %d", s->n_columns,
				     MTK_ROUTE_MAX_COLUMNS);
	if (s->top_k < 1 || s->top_k > MTK_ROUTE_MAX_TOP_K || s->top_k > s->n_columns)
		return mtk_error_set(error, MOETRACE_E_INVALID,
				     "choice: top_k: %u is not in 1 .. %d, or above n_columns",
				     s->top_k, MTK_ROUTE_MAX_TOP_K);
	if (s->kind == MTK_CHOICE_ZIPF &&
	    !(s->exponent >= 0.0 && s->exponent <= MTK_CHOICE_MAX_EXPONENT))
		return mtk_error_set(error, MOETRACE_E_INVALID,
				     "choice: exponent: %g is not in 0 .. %g", s->exponent,
				     MTK_CHOICE_MAX_EXPONENT);
	return s->kind == MTK_CHOICE_REPLAY ? check_replay(s, error) : MOETRACE_OK;
}

/* Give every expert of a layer a place of its own, and the logarithm of its likelihood. */
static void fill_log_weights(const struct mtk_choice_settings *s, uint32_t layer, double *weights)
{
	const uint64_t seed = mtk_synthetic_hash(s->seed, layer);

	for (uint32_t e = 0; e < s->n_columns; e++) {
		uint32_t other = (uint32_t)(mtk_synthetic_hash(seed, e) % (e + 1));

		weights[e] = weights[other];
		weights[other] = -s->exponent * log(e + 1.0);
	}
}

int mtk_choice_create(const struct mtk_choice_settings *settings, struct mtk_error *error,
		      struct mtk_choice **ret_choice)
{
	struct mtk_choice *choice;
	int status = check_settings(settings, error);

	if (status)
		return status;
	*ret_choice = NULL;
	if (settings->kind == MTK_CHOICE_MODEL)
		return MOETRACE_OK;
	choice = calloc(1, sizeof(*choice));
	if (!choice)
		return mtk_error_set(error, MOETRACE_E_NOMEM, "out of memory");
	choice->settings = *settings;
	if (settings->kind == MTK_CHOICE_ZIPF) {
		choice->log_weights =
			calloc((size_t)settings->n_layers * settings->n_columns, sizeof(double));
		if (!choice->log_weights) {
			free(choice);
			return mtk_error_set(error, MOETRACE_E_NOMEM, "out of memory");
		}
		for (uint32_t i = 0; i < settings->n_layers; i++)
			fill_log_weights(settings, i,
					 choice->log_weights + (size_t)i * settings->n_columns);
	}
	*ret_choice = choice;
	return MOETRACE_OK;
}

void mtk_choice_destroy(struct mtk_choice *choice)
{
	if (!choice)
		return;
	free(choice->log_weights);
	free(choice);
}

const struct mtk_choice_settings *mtk_choice_borrow_settings(const struct mtk_choice *choice)
{
	return &choice->settings;
}

uint32_t mtk_choice_positions(const struct mtk_choice *choice, uint32_t request)
{
	const struct mtk_replay *replay = choice->settings.replay;

	if (choice->settings.kind != MTK_CHOICE_REPLAY)
		return UINT32_MAX;
	return request < replay->n_requests ? replay->requests[request].n_positions : 0;
}

static bool holds(const int32_t *ids, uint32_t n, int32_t id)
{
	for (uint32_t j = 0; j < n; j++)
		if (ids[j] == id)
			return true;
	return false;
}

/* A number that is taken already stands for the highest one, which cannot be. */
void mtk_choice_draw(uint64_t seed, uint32_t n_columns, uint32_t top_k, int32_t *ret_ids)
{
	for (uint32_t j = 0; j < top_k; j++) {
		const uint32_t highest = n_columns - top_k + j;
		int32_t id = (int32_t)(mtk_synthetic_hash(seed, j) % (highest + 1));

		ret_ids[j] = holds(ret_ids, j, id) ? (int32_t)highest : id;
	}
}

/* The draw favours low ids in its first places: an order of its own makes all orders as likely. */
static void shuffle(uint64_t seed, uint32_t top_k, int32_t *ids)
{
	for (uint32_t j = top_k; j > 1; j--) {
		const uint32_t other = (uint32_t)(mtk_synthetic_hash(seed, top_k + j) % j);
		const int32_t id = ids[j - 1];

		ids[j - 1] = ids[other];
		ids[other] = id;
	}
}

static void draw_zipf(const struct mtk_choice *choice, uint32_t layer, uint64_t seed, double *keys,
		      int32_t *ret_ids)
{
	const uint32_t n = choice->settings.n_columns;
	const double *log_weights = choice->log_weights + (size_t)layer * n;

	for (uint32_t e = 0; e < n; e++) {
		/* Between 0 and 1, and neither. */
		double drawn = ((double)(mtk_synthetic_hash(seed, e) >> 12) + 0.5) * 0x1p-52;

		keys[e] = log_weights[e] - log(-log(drawn));
	}
	for (uint32_t j = 0; j < choice->settings.top_k; j++) {
		uint32_t best = 0;

		for (uint32_t e = 1; e < n; e++)
			best = keys[e] > keys[best] ? e : best;
		ret_ids[j] = (int32_t)best;
		keys[best] = -INFINITY;
	}
}

static void replay_row(const struct mtk_replay *replay, uint32_t layer, uint32_t request,
		       uint32_t position, int32_t *ret_ids)
{
	const uint16_t *ids = replay->requests[request].ids +
			      ((size_t)position * replay->n_layers + layer) * replay->top_k;

	for (uint32_t j = 0; j < replay->top_k; j++)
		ret_ids[j] = ids[j];
}

void mtk_choice_row(const struct mtk_choice *choice, uint32_t layer, uint32_t request,
		    uint32_t position, double *scratch, int32_t *ret_ids)
{
	const struct mtk_choice_settings *s = &choice->settings;
	uint64_t seed = mtk_synthetic_hash(s->seed, request);
	uint64_t first;

	seed = mtk_synthetic_hash(mtk_synthetic_hash(seed, position), layer);
	switch (s->kind) {
	case MTK_CHOICE_UNIFORM:
		mtk_choice_draw(seed, s->n_columns, s->top_k, ret_ids);
		shuffle(seed, s->top_k, ret_ids);
		break;
	case MTK_CHOICE_ROUND_ROBIN:
		first = ((uint64_t)request + position) * s->top_k + layer;
		for (uint32_t j = 0; j < s->top_k; j++)
			ret_ids[j] = (int32_t)((first + j) % s->n_columns);
		break;
	case MTK_CHOICE_ZIPF:
		draw_zipf(choice, layer, seed, scratch, ret_ids);
		break;
	default:
		replay_row(s->replay, layer, request, position, ret_ids);
		break;
	}
}
