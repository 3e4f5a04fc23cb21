/* SPDX-License-Identifier: MIT */
/*
 * make_routing clean FIRST OUTPUT.db: recordings of right routers, one model for each of up to 16
 * presets from number FIRST on: what the definition chose on random logits, with the scores of all
 * experts in every second pass, and before it what the family's own router chose, where its choice
 * is in tests/data/router-oracle.
 * make_routing faults FIRST OUTPUT.db: recordings of broken ones, one model for each fault: a right
 * recording with exactly one thing broken. For each model a line says its number, its name, and
 * what is wrong with it.
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <moetrace/moetrace.h>

#include "tests/cli/make_routing.h"

static const struct {
	const char *name;
	const char *finding;
} faults[] = {
#define FAULT_ROW(identifier, name, finding) {name, finding},
	FAULTS(FAULT_ROW)
#undef FAULT_ROW
};

static struct moetrace_session *session;
static struct model model;

static void check(int status, const char *what)
{
	if (status == MOETRACE_OK)
		return;
	fprintf(stderr, "make_routing: %s: %s\n", what, moetrace_status_string(status));
	exit(1);
}

/* ---- the model ---- */

static uint32_t scoring_of(enum mtk_route_scoring scoring)
{
	static const uint32_t scorings[MTK_ROUTE_N_SCORINGS] = {
		[MTK_ROUTE_SOFTMAX] = MOETRACE_SCORING_SOFTMAX,
		[MTK_ROUTE_SIGMOID] = MOETRACE_SCORING_SIGMOID,
		[MTK_ROUTE_SQRTSOFTPLUS] = MOETRACE_SCORING_SQRTSOFTPLUS,
		[MTK_ROUTE_SOFTMAX_SELECTED] = MOETRACE_SCORING_SOFTMAX_SELECTED,
		[MTK_ROUTE_SPARSEMIXER] = MOETRACE_SCORING_SPARSEMIXER,
	};

	return scorings[scoring];
}

static void info_describe(const struct model *m, struct moetrace_layer_info *info)
{
	const struct mtk_route_config *told = &m->told;

	MOETRACE_INIT(info);
	info->n_experts = told->n_experts;
	info->n_zero_experts = told->n_zero_experts;
	info->n_shared_slots = told->n_shared_slots;
	info->top_k = mtk_route_width(told);
	info->scoring = scoring_of(told->scoring);
	if (told->groups != MTK_ROUTE_GROUPS_NONE) {
		info->n_groups = told->n_groups;
		info->topk_groups = told->n_keep_groups;
		info->group_top_n = told->groups == MTK_ROUTE_GROUPS_MAX ? 1 : 2;
	}
	info->renormalize =
		told->renormalise == MTK_ROUTE_RENORMALISE_NONE ? MOETRACE_NO : MOETRACE_YES;
	if (told->scale != 1.0) {
		info->routed_scaling_factor = told->scale;
		info->scaling_owner = told->scale_owner == MTK_ROUTE_SCALE_IN_ROUTER
					      ? MOETRACE_SCALING_ROUTER
					      : MOETRACE_SCALING_OUTPUT;
	}
	info->correction_bias = told->bias == MTK_ROUTE_BIAS_NONE ? MOETRACE_NO : MOETRACE_YES;
	info->bias_values = told->bias == MTK_ROUTE_BIAS_NONE ? NULL : m->bias;
	info->weight_kind = mtk_route_weight_kind(told);
	info->router_output = m->fault == NO_OUTPUT ? MOETRACE_ROUTER_OUTPUT_NONE
						    : MOETRACE_ROUTER_OUTPUT_STANDARD;
	info->gemm_block_rows = m->fault == PAGE_BY_DISPATCH || m->fault == PAGE_BY_REUSE ? 48 : 64;
}

/* Two layers after dense ones; of a preset the first two that have a router. */
static void model_add(struct model *m, const char *name)
{
	struct moetrace_layer_info layers[N_LAYERS];
	struct moetrace_model_info info;

	MOETRACE_INIT(&info);
	info.first_moe_ordinal = m->preset ? m->preset->n_hash_layers : 0;
	for (uint32_t i = 0; i < N_LAYERS; i++) {
		const uint32_t ordinal = info.first_moe_ordinal + i;

		info_describe(m, &layers[i]);
		layers[i].layer = m->fault == NUMBERS_SHIFTED ? i
				  : m->fault == INDEX_SHIFTED ? i + 1
				  : !m->preset		      ? N_DENSE + i
				  : m->preset->n_moe_layers == 0
					  ? i
					  : mtk_preset_layer_number(m->preset, ordinal);
	}
	info.name = name;
	info.layers = layers;
	info.n_moe_layers = N_LAYERS;
	info.n_layers = m->preset ? m->preset->n_layers : m->fault == NUMBERS_SHIFTED ? 3 : 0;
	check(moetrace_model_add(session, &info, &m->id), name);
}

/* Experts are moved by a step that differs from layer to layer and from map to map. */
static void map_set(struct model *m, uint32_t step, uint32_t n_more)
{
	int32_t slots[2 * N_LAYERS * MAX_COLUMNS];
	struct moetrace_expert_map map;

	m->n_slots = m->told.n_experts + n_more;
	for (uint32_t layer = 0; layer < N_LAYERS; layer++)
		for (uint32_t i = 0; i < m->n_slots; i++) {
			const uint32_t expert = (i * 5 + step + layer) % m->told.n_experts;

			m->slot_experts[layer][i] = (int32_t)expert;
			slots[layer * m->n_slots + i] = (int32_t)expert;
		}
	MOETRACE_INIT(&map);
	map.n_slots = m->n_slots;
	map.n_ranks = 2;
	map.slot_experts = slots;
	check(moetrace_expert_map_set(session, m->id, &map, NULL), "map");
}

/* ---- passes ---- */

static struct moetrace_pass *pass_begin(struct model *m, bool has_padding)
{
	const struct moetrace_slice slice = {
		.request = m->request,
		.first_position = m->position,
		.n_rows = has_padding ? N_ROWS - 8 : N_ROWS,
		.phase = MOETRACE_PHASE_PREFILL,
	};
	struct moetrace_pass_info info;

	MOETRACE_INIT(&info);
	info.model = m->id;
	info.phase = MOETRACE_PHASE_PREFILL;
	info.slices = &slice;
	info.n_slices = 1;
	info.n_rows = slice.n_rows;
	info.padding_rows = N_ROWS - slice.n_rows;
	m->position += slice.n_rows;
	return moetrace_pass_begin(session, &info);
}

static void layer_select(const struct model *m, struct moetrace_pass *pass, uint32_t layer)
{
	struct moetrace_selection selection;

	MOETRACE_INIT(&selection);
	selection.layer_index = m->fault == INDEX_SHIFTED ? layer + 1 : layer;
	selection.n_rows = N_ROWS;
	selection.id_type = MOETRACE_TYPE_I32;
	selection.ids = m->ids;
	selection.weight_type = MOETRACE_TYPE_F32;
	selection.weights = m->weights;
	selection.order = m->is_unordered ? MOETRACE_ORDER_UNORDERED : MOETRACE_ORDER_SELECTION;
	if (m->n_candidates > 0) {
		selection.n_candidates = m->n_candidates;
		selection.candidate_ids = m->candidates;
		selection.candidate_scores = m->candidate_scores;
		selection.candidate_score_type = MOETRACE_TYPE_F32;
	}
	moetrace_select_experts(pass, &selection);
}

/* Counts of four ranks that all have the same tokens. */
static void layer_count(const struct model *m, struct moetrace_pass *pass, uint32_t layer)
{
	int32_t counts[MAX_COLUMNS] = {0};
	struct moetrace_expert_counts info;

	for (uint32_t i = 0; i < N_ROWS * m->width; i++)
		counts[m->ids[i]] += 4;
	MOETRACE_INIT(&info);
	info.layer_index = layer;
	info.count_type = MOETRACE_TYPE_I32;
	info.counts = counts;
	info.n_counts = m->told.n_experts;
	moetrace_expert_load(pass, &info);
}

/* Tokens to each of two ranks, by the experts that were chosen. */
static void tokens_send(const struct model *m, struct moetrace_pass *pass, uint32_t layer)
{
	int32_t tokens[2] = {0, 0};
	struct moetrace_dispatch_info info;

	for (uint32_t i = 0; i < N_ROWS; i++) {
		bool goes[2] = {false, false};

		for (uint32_t j = 0; j < m->width; j++) {
			const int32_t slot = m->slots[i * m->width + j];

			goes[(uint32_t)slot / (m->n_slots / 2)] = true;
		}
		tokens[0] += goes[0];
		tokens[1] += goes[1];
	}
	MOETRACE_INIT(&info);
	info.layer_index = layer;
	info.count_type = MOETRACE_TYPE_I32;
	info.n_ranks = 2;
	info.rank_tokens = tokens;
	moetrace_dispatch(pass, &info);
}

static void layer_dispatch(struct moetrace_pass *pass, uint32_t layer)
{
	static const int32_t received[2] = {128, 256};
	struct moetrace_dispatch_info info;

	MOETRACE_INIT(&info);
	info.layer_index = layer;
	info.count_type = MOETRACE_TYPE_I32;
	info.n_local_experts = 2;
	info.received_tokens = received;
	info.received_alignment = 128;
	moetrace_dispatch(pass, &info);
}

static void pass_run(struct model *m, uint32_t number)
{
	struct moetrace_pass *pass;

	if (m->fault == SLOTS_BY_LOAD && number == N_PASSES / 2)
		map_set(m, 23, 0);
	pass = pass_begin(m, m->fault == PADDING);
	for (uint32_t layer = 0; layer < N_LAYERS; layer++) {
		routing_rows_make(m, number, layer);
		if (m->fault == NO_WRITER && layer == 1)
			continue;
		if (m->fault == COUNTS_OF_RANKS)
			layer_count(m, pass, layer);
		else
			layer_select(m, pass, layer);
		if (m->fault == PAGE_BY_DISPATCH)
			layer_dispatch(pass, layer);
		if (m->n_slots > 0 && m->fault <= SLOTS_BY_DISPATCH)
			tokens_send(m, pass, layer);
	}
	moetrace_pass_end(pass);
}

static void oracle_run(struct model *m)
{
	struct moetrace_pass *pass = pass_begin(m, false);

	for (uint32_t layer = 0; layer < N_LAYERS; layer++)
		layer_select(m, pass, layer);
	moetrace_pass_end(pass);
}

/* Requests that reuse whole pages of another one. */
static void reuse_run(const struct model *m)
{
	for (uint32_t i = 0; i < 4; i++) {
		struct moetrace_request_info info;
		struct moetrace_reuse reuse;
		uint64_t request;

		MOETRACE_INIT(&info);
		MOETRACE_INIT(&reuse);
		reuse.n_positions = 48 * (i + 1);
		reuse.source_request = m->request;
		reuse.source_attempt = MOETRACE_ATTEMPT_LAST;
		check(moetrace_request_begin(session, &info, &request), "request");
		check(moetrace_request_reuse(session, request, &reuse), "reuse");
		check(moetrace_request_end(session, request, MOETRACE_REQUEST_FINISHED,
					   reuse.n_positions),
		      "end");
	}
}

static void model_run(struct model *m, const char *name, uint32_t n_passes)
{
	struct moetrace_request_info info;

	m->n_columns = mtk_route_columns(&m->told);
	m->k = m->told.top_k;
	m->width = mtk_route_width(&m->told);
	m->runs = m->told;
	routing_break(m);
	routing_bias_make(m);
	model_add(m, name);
	if ((m->fault == NONE && !m->preset) || m->fault == NO_OUTPUT ||
	    (m->fault >= SLOTS_BY_DISPATCH && m->fault <= SLOTS_BY_SCORES))
		map_set(m, 7, 0);
	if (m->fault == SLOTS_BEYOND)
		map_set(m, 7, 16);
	MOETRACE_INIT(&info);
	info.external_id = name;
	check(moetrace_request_begin(session, &info, &m->request), "request");
	if (m->preset && routing_oracle_read(m))
		oracle_run(m);
	for (uint32_t i = 0; i < n_passes; i++)
		pass_run(m, i);
	if (m->fault == PAGE_BY_REUSE)
		reuse_run(m);
	check(moetrace_request_end(session, m->request, MOETRACE_REQUEST_FINISHED, m->position),
	      "end");
	/* Each model's passes are taken before the next one's fill the rings. */
	check(moetrace_flush(session), "flush");
}

int main(int argc, char **argv)
{
	const bool is_clean = argc == 4 && strcmp(argv[1], "clean") == 0;
	uint32_t first, n = 0;
	size_t n_presets;
	const struct mtk_preset *presets = mtk_presets(&n_presets);

	if (argc != 4 || (!is_clean && strcmp(argv[1], "faults") != 0)) {
		fputs("usage: make_routing clean|faults FIRST OUTPUT.db\n", stderr);
		return 2;
	}
	first = (uint32_t)strtoul(argv[2], NULL, 10);
	check(moetrace_session_open(argv[3], NULL, &session), "open");
	check(moetrace_start(session, NULL), "start");
	for (uint32_t i = first; n < MOETRACE_MAX_MODELS && i < (is_clean ? n_presets : N_FAULTS);
	     i++) {
		if (is_clean && !presets[i].has_routing)
			continue;
		memset(&model, 0, sizeof(model));
		model.fault = is_clean ? NONE : (enum fault)i;
		model.preset = is_clean ? &presets[i] : NULL;
		model.told = is_clean ? presets[i].route : routing_told(model.fault);
		model_run(&model, is_clean ? presets[i].name : faults[i].name,
			  is_clean ? 2 : N_PASSES);
		printf("%u %s %s\n", ++n, is_clean ? presets[i].name : faults[i].name,
		       is_clean ? "-" : faults[i].finding);
	}
	check(moetrace_stop(session, NULL), "stop");
	check(moetrace_session_close(session), "close");
	return 0;
}
