/* SPDX-License-Identifier: MIT */
/*
 * The routers of make_routing. Everything follows from pass, layer, row and column; the choice is
 * made by the definition, by a setting that is not the one told where that is the fault.
 */
#include "tests/cli/make_routing.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A number from 0 to 1 that follows from three. */
static double noise(uint32_t a, uint32_t b, uint32_t c)
{
	uint64_t x = ((uint64_t)a << 40) + ((uint64_t)b << 20) + c + UINT64_C(0x9e3779b97f4a7c15);

	x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
	return (double)((x ^ (x >> 31)) >> 11) * 0x1p-53;
}

/* ---- settings ---- */

/* DeepSeek-V3's rule in small: 8 of 64 experts in 4 of 8 groups. */
static struct mtk_route_config grouped_config(void)
{
	struct mtk_route_config config = mtk_route_config_make(64, 8);

	config.scoring = MTK_ROUTE_SIGMOID;
	config.bias = MTK_ROUTE_BIAS_SCORE;
	config.groups = MTK_ROUTE_GROUPS_TOP2;
	config.n_groups = 8;
	config.n_keep_groups = 4;
	config.renormalise = MTK_ROUTE_RENORMALISE_EPSILON;
	config.scale = 2.5;
	return config;
}

static struct mtk_route_config ungrouped_config(void)
{
	struct mtk_route_config config = grouped_config();

	config.groups = MTK_ROUTE_GROUPS_NONE;
	config.n_groups = config.n_keep_groups = 0;
	return config;
}

/* OLMoE's in small: a softmax over all, nothing else. */
static struct mtk_route_config plain_config(void)
{
	return mtk_route_config_make(64, 6);
}

/* With a fused shared slot. */
static struct mtk_route_config shared_config(void)
{
	struct mtk_route_config config = ungrouped_config();

	config.n_shared_slots = 1;
	return config;
}

struct mtk_route_config routing_told(enum fault fault)
{
	struct mtk_route_config config;

	switch (fault) {
	case SLOTS_BY_LOAD:
	case SLOTS_BY_DISPATCH:
	case LEFT_OUT:
	case TIES_BY_HIGHER:
	case SIGMOID_FOR_SOFTMAX:
	case RENORMALIZED:
	case FIRST_SWAPPED:
		return plain_config();
	case SCALED_NEVER_RAW:
		config = plain_config();
		config.scale = 16;
		return config;
	case NORM_SHARED:
	case SHARED_SCALED:
	case SHARED_AT_INVERSE:
	case SHARED_AT_ZERO:
		return shared_config();
	case SLOTS_BY_BIAS:
	case SLOTS_BY_SCORES:
	case BIAS_UNUSED:
	case BIAS_ROUNDED:
	case BIAS_IN_WEIGHTS:
	case BIAS_IN_WEIGHTS_TOLD:
		return ungrouped_config();
	case SCALED_BY_BOTH:
		config = grouped_config();
		config.scale_owner = MTK_ROUTE_SCALE_ON_OUTPUT;
		return config;
	default:
		return grouped_config();
	}
}

/* The router that really runs, as far as it is another setting. */
void routing_break(struct model *m)
{
	struct mtk_route_config *runs = &m->runs;

	switch (m->fault) {
	case GROUPS_IGNORED:
		runs->groups = MTK_ROUTE_GROUPS_NONE;
		runs->n_groups = runs->n_keep_groups = 0;
		break;
	case GROUPS_BY_MAX:
		runs->groups = MTK_ROUTE_GROUPS_MAX;
		break;
	case BIAS_UNUSED:
		runs->bias = MTK_ROUTE_BIAS_NONE;
		break;
	case SIGMOID_FOR_SOFTMAX:
		runs->scoring = MTK_ROUTE_SIGMOID;
		break;
	case NOT_RENORMALIZED:
		runs->renormalise = MTK_ROUTE_RENORMALISE_NONE;
		break;
	case RENORMALIZED:
		runs->renormalise = MTK_ROUTE_RENORMALISE_EPSILON;
		break;
	case SCALED_NEVER:
	case SCALED_NEVER_RAW:
		runs->scale = 1;
		break;
	case SCALED_TWICE:
		runs->scale *= runs->scale;
		break;
	case SCALED_BY_BOTH:
		runs->scale_owner = MTK_ROUTE_SCALE_IN_ROUTER;
		break;
	case SHARED_SCALED:
		runs->shared_weight = runs->scale;
		break;
	case SHARED_AT_INVERSE:
		runs->shared_weight = 1 / runs->scale;
		break;
	case SHARED_AT_ZERO:
		runs->shared_weight = 0;
		break;
	default:
		break;
	}
}

/* ---- rows ---- */

static void logits_make(struct model *m, uint32_t pass, uint32_t layer)
{
	const double popular = m->fault == SLOTS_BY_LOAD ? 3 : 0;

	for (uint32_t i = 0; i < N_ROWS; i++)
		for (uint32_t e = 0; e < m->n_columns; e++) {
			const uint32_t at = (pass * N_LAYERS + layer) * N_ROWS + i;
			double x =
				1.5 * (noise(at, e, 1) + noise(at, e, 2) + noise(at, e, 3) - 1.5);

			x += popular * noise(0, e, 4);
			/* Many equal scores, as of low precision. */
			if (m->fault == TIES_BY_HIGHER)
				x = round(x * 8) / 8;
			m->logits[i * m->n_columns + e] = (float)(2 * x);
		}
}

static void scores_make(struct model *m)
{
	for (uint32_t i = 0; i < N_ROWS; i++) {
		const float *logits = &m->logits[i * m->n_columns];
		double sum = 0;

		for (uint32_t e = 0; e < m->n_columns; e++)
			sum += exp((double)logits[e]);
		for (uint32_t e = 0; e < m->n_columns; e++) {
			const double x = (double)logits[e];

			m->scores[i * m->n_columns + e] =
				(float)(m->told.scoring == MTK_ROUTE_SIGMOID ? 1 / (1 + exp(-x))
					: m->told.scoring == MTK_ROUTE_SQRTSOFTPLUS
						? sqrt(log1p(exp(x)))
						: exp(x) / sum);
		}
	}
}

/* The choice on what the router compares; where ties are to fall the wrong way, on its mirror. */
static void route(struct model *m)
{
	static float mirror[N_ROWS * MAX_COLUMNS], bias[MAX_COLUMNS];
	static float scratch[64 * MAX_COLUMNS];
	const bool is_mirrored = m->fault == TIES_BY_HIGHER;
	const uint32_t n = m->n_columns;
	struct mtk_route_batch batch = {.n_rows = N_ROWS, .n_valid_rows = N_ROWS};
	const struct mtk_route_result result = {.ids = m->ids, .weights = m->weights};

	for (uint32_t e = 0; e < n; e++)
		/* As if it had been stored in bf16: 8 bits. */
		bias[e] = m->fault == BIAS_ROUNDED ? roundf(m->bias[e] * 4) / 4 : m->bias[e];
	for (uint32_t i = 0; i < N_ROWS; i++)
		for (uint32_t e = 0; e < n; e++)
			mirror[i * n + e] = m->logits[i * n + (is_mirrored ? n - 1 - e : e)];
	batch.logits = mirror;
	batch.bias = m->runs.bias == MTK_ROUTE_BIAS_NONE ? NULL : bias;
	mtk_route_plain(&m->runs, &batch, 0, N_ROWS, scratch, &result);
	for (uint32_t i = 0; is_mirrored && i < N_ROWS * m->width; i++)
		m->ids[i] = (int32_t)n - 1 - m->ids[i];
}

/* The slot that holds an expert: the last one, so that copies beyond the experts are used. */
static int32_t slot_of(const struct model *m, uint32_t layer, int32_t expert)
{
	for (uint32_t i = m->n_slots; i-- > 0;)
		if (m->slot_experts[layer][i] == expert)
			return (int32_t)i;
	return expert;
}

static void slots_make(struct model *m, uint32_t layer)
{
	for (uint32_t i = 0; i < N_ROWS * m->width; i++)
		m->slots[i] = slot_of(m, layer, m->ids[i]);
}

/* Weights that are scores with their bias, divided by their sum and scaled. */
static void bias_into_weights(struct model *m)
{
	for (uint32_t i = 0; i < N_ROWS; i++) {
		float *weights = &m->weights[i * m->width];
		double sum = 0;

		for (uint32_t j = 0; j < m->k; j++) {
			const int32_t id = m->ids[i * m->width + j];

			weights[j] = m->scores[i * m->n_columns + (uint32_t)id] + m->bias[id];
			sum += (double)weights[j];
		}
		for (uint32_t j = 0; j < m->k; j++)
			weights[j] = (float)(m->told.scale * (double)weights[j] / sum);
	}
}

/* The shared slot's weight takes part in the sum. */
static void shared_into_sum(struct model *m)
{
	for (uint32_t i = 0; i < N_ROWS; i++) {
		float *weights = &m->weights[i * m->width];
		double sum = 0;

		for (uint32_t j = 0; j < m->width; j++)
			sum += (double)weights[j];
		for (uint32_t j = 0; j < m->width; j++)
			weights[j] = (float)(m->told.scale * (double)weights[j] / sum);
	}
}

/* The scores of all experts, or of the few best ones of those that a row did not take. */
static void candidates_make(struct model *m)
{
	for (uint32_t i = 0; i < N_ROWS; i++) {
		const float *scores = &m->scores[i * m->n_columns];
		const int32_t *ids = &m->ids[i * m->width];
		bool is_taken[MAX_COLUMNS] = {false};

		for (uint32_t j = 0; j < m->width && m->n_candidates < m->n_columns; j++)
			is_taken[ids[j]] = true;
		for (uint32_t j = 0; j < m->n_candidates; j++) {
			int32_t best = -1;

			for (uint32_t e = 0; e < m->n_columns; e++)
				if (!is_taken[e] &&
				    (best < 0 ||
				     scores[e] + m->bias[e] > scores[best] + m->bias[best]))
					best = (int32_t)e;
			is_taken[best] = true;
			m->candidates[i * m->n_candidates + j] = best;
			m->candidate_scores[i * m->n_candidates + j] = scores[best];
		}
	}
}

/* The last expert of each row makes room for one that is not as good. */
static void last_leave_out(struct model *m)
{
	for (uint32_t i = 0; i < N_ROWS; i++) {
		const uint32_t last = i * m->width + m->k - 1;
		const uint32_t worst = (i + 1) * m->n_candidates - 1;
		const int32_t id = m->ids[last];
		const float score = m->weights[last];

		m->ids[last] = m->candidates[worst];
		m->weights[last] = m->candidate_scores[worst];
		m->candidates[worst] = id;
		m->candidate_scores[worst] = score;
	}
}

/* Every @step-th row has one weight everywhere, or in its first entry alone. */
static void weights_set(struct model *m, uint32_t step, uint32_t n_entries, float weight)
{
	for (uint32_t i = 0; i < N_ROWS; i += step)
		for (uint32_t j = 0; j < n_entries; j++)
			m->weights[i * m->width + j] = weight;
}

/* The best two of a row in the other order, each with its weight. */
static void first_swap(struct model *m)
{
	for (uint32_t i = 0; i < N_ROWS; i++) {
		int32_t *ids = &m->ids[i * m->width];
		float *weights = &m->weights[i * m->width];
		const int32_t id = ids[0];
		const float weight = weights[0];

		ids[0] = ids[1];
		weights[0] = weights[1];
		ids[1] = id;
		weights[1] = weight;
	}
}

static void rows_break(struct model *m)
{
	switch (m->fault) {
	case SLOTS_BY_BIAS:
	case SLOTS_BY_LOAD:
	case SLOTS_BY_DISPATCH:
	case SLOTS_BY_SCORES:
	case SLOTS_BEYOND:
		memcpy(m->ids, m->slots, sizeof(m->ids));
		break;
	case LEFT_OUT:
		last_leave_out(m);
		break;
	case DUPLICATE:
		m->ids[5 * m->width + 1] = m->ids[5 * m->width];
		break;
	case BIAS_IN_WEIGHTS:
	case BIAS_IN_WEIGHTS_TOLD:
		bias_into_weights(m);
		break;
	case NORM_SHARED:
		shared_into_sum(m);
		break;
	case WEIGHTS_ZERO:
		weights_set(m, 1, m->width, 0);
		break;
	case WEIGHTS_ZERO_SOME:
		weights_set(m, 3, m->width, 0);
		break;
	case WEIGHTS_NAN:
		weights_set(m, 16, m->width, NAN);
		break;
	case WEIGHTS_INFINITE:
		weights_set(m, 16, 1, INFINITY);
		break;
	case FIRST_SWAPPED:
		first_swap(m);
		break;
	case EQUAL:
		for (uint32_t i = 0; i < N_ROWS * m->width; i++)
			m->weights[i] = (float)(m->told.scale / m->k);
		break;
	default:
		break;
	}
}

/* How many candidates are told beside the rows of a pass. */
static uint32_t n_candidates(const struct model *m, uint32_t pass)
{
	if (m->preset && (m->told.scoring == MTK_ROUTE_SOFTMAX_SELECTED ||
			  m->told.scoring == MTK_ROUTE_SPARSEMIXER))
		return 0;
	if (m->preset)
		return pass % 2 == 1 ? m->n_columns : 4;
	if (m->fault == LEFT_OUT)
		return 4;
	return m->fault == GROUPS_BY_MAX || m->fault == SLOTS_BY_SCORES ||
			       m->fault == BIAS_IN_WEIGHTS_TOLD || m->fault == BIAS_UNUSED
		       ? m->n_columns
		       : 0;
}

void routing_rows_make(struct model *m, uint32_t pass, uint32_t layer)
{
	logits_make(m, pass, layer);
	route(m);
	scores_make(m);
	m->is_unordered = false;
	m->n_candidates = n_candidates(m, pass);
	candidates_make(m);
	if (m->n_slots > 0)
		slots_make(m, layer);
	rows_break(m);
}

/* ---- what a family's own router chose ---- */

static bool items_read(const struct model *m, const char *name, void *items, size_t n)
{
	const char *root = getenv("MOETRACE_SRCDIR");
	char path[4096];
	FILE *file;
	bool is_read;

	snprintf(path, sizeof(path), "%s/tests/data/router-oracle/%s/%s", root ? root : ".",
		 m->preset->name, name);
	file = fopen(path, "rb");
	if (!file)
		return false;
	is_read = fread(items, 4, n, file) == n;
	fclose(file);
	return is_read;
}

void routing_bias_make(struct model *m)
{
	const double spread = m->told.scoring == MTK_ROUTE_SOFTMAX ? 0.01 : 0.3;

	if (m->told.bias == MTK_ROUTE_BIAS_NONE ||
	    (m->preset && items_read(m, "correction_bias.f32", m->bias, m->n_columns)))
		return;
	for (uint32_t e = 0; e < m->n_columns; e++)
		m->bias[e] = (float)(spread * (noise(1, e, 5) - 0.3)) +
			     (m->fault == BIAS_ROUNDED ? 34.5f : 0);
}

/* Ids by number, as they were stored: the recorder is told that their order is none. */
bool routing_oracle_read(struct model *m)
{
	m->is_unordered = true;
	m->n_candidates = 0;
	return items_read(m, "ids_sorted.i32", m->ids, (size_t)N_ROWS * m->width) &&
	       items_read(m, "weights_by_id.f32", m->weights, (size_t)N_ROWS * m->width);
}
