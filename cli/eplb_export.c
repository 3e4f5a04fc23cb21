/* SPDX-License-Identifier: MIT */
/*
 * Placements in the form that engines read:
 *
 *   sglang  the JSON file of --init-expert-location: physical_to_logical_map, a row for every layer
 * of the model (python/sglang/srt/eplb/expert_location.py; num_layers counts dense layers, whose
 *           rows are read and not used). Here they hold the experts in order.
 *   vllm    the JSON of eplb_config.initial_expert_map_path, as vLLM's pull request 49572 proposes
 * it: a list for each layer with experts. trtllm  the YAML of moe_config.load_balancer, as
 * TensorRT-LLM's examples/wide_ep/ep_load_balancer/generate_eplb_config.py writes it: assignments
 * by number of the layer in the model.
 */
#include "cli/cmd_eplb.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include <moetrace/moetrace.h>

#include "cli/cli.h"

enum mt_export mt_export_parse(const char *name)
{
	if (strcmp(name, "sglang") == 0)
		return MT_EXPORT_SGLANG;
	if (strcmp(name, "vllm") == 0)
		return MT_EXPORT_VLLM;
	if (strcmp(name, "trtllm") == 0)
		return MT_EXPORT_TRTLLM;
	return MT_EXPORT_NONE;
}

/* @layer: its row of the plan; NULL: a dense layer. */
static void row_write(struct mt_jsonw *json, const struct mt_plan *plan, const uint32_t *layer)
{
	mt_jsonw_array_begin(json);
	for (uint32_t i = 0; i < plan->n_replicas; i++)
		mt_jsonw_uint64(json, layer ? layer[i] : i % plan->n_experts);
	mt_jsonw_array_end(json);
}

static int64_t layer_count(const struct mt_plan *plan)
{
	const int64_t n = plan->figures[plan->n_layers - 1].layer + 1;

	return n > plan->n_model_layers ? n : plan->n_model_layers;
}

static int sglang_print(const struct mt_plan *plan)
{
	const int64_t n_layers = layer_count(plan);
	struct mt_jsonw json;
	uint32_t next = 0;

	if (plan->n_model_layers == 0)
		mt_note("how many layers the model has is not known: the map ends with the last "
			"layer that has experts");
	mt_jsonw_init(&json, stdout);
	mt_jsonw_object_begin(&json);
	mt_jsonw_key(&json, "physical_to_logical_map");
	mt_jsonw_array_begin(&json);
	for (int64_t i = 0; i < n_layers; i++) {
		const bool is_dense = next == plan->n_layers || plan->figures[next].layer != i;

		row_write(&json, plan,
			  is_dense ? NULL : plan->experts + (size_t)next * plan->n_replicas);
		next += !is_dense;
	}
	mt_jsonw_array_end(&json);
	mt_jsonw_object_end(&json);
	return mt_jsonw_end_line(&json) == MOETRACE_OK ? MT_EXIT_OK : MT_EXIT_FAILED;
}

static int vllm_print(const struct mt_plan *plan)
{
	struct mt_jsonw json;

	mt_jsonw_init(&json, stdout);
	mt_jsonw_array_begin(&json);
	for (uint32_t i = 0; i < plan->n_layers; i++)
		row_write(&json, plan, plan->experts + (size_t)i * plan->n_replicas);
	mt_jsonw_array_end(&json);
	return mt_jsonw_end_line(&json) == MOETRACE_OK ? MT_EXIT_OK : MT_EXIT_FAILED;
}

static int trtllm_print(const struct mt_plan *plan)
{
	printf("initial_global_assignments:\n");
	for (uint32_t i = 0; i < plan->n_layers; i++) {
		const uint32_t *layer = plan->experts + (size_t)i * plan->n_replicas;

		printf("  %" PRId64 ": [", plan->figures[i].layer);
		for (uint32_t j = 0; j < plan->n_replicas; j++)
			printf("%s%" PRIu32, j ? ", " : "", layer[j]);
		printf("]\n");
	}
	printf("layer_updates_per_iter: 0\nnum_slots: %" PRIu32 "\n", plan->n_replicas);
	return MT_EXIT_OK;
}

int mt_plan_export(const struct mt_plan *plan, enum mt_export export)
{
	if (plan->n_layers == 0) {
		mt_error("there is no layer to place");
		return MT_EXIT_FAILED;
	}
	if (export == MT_EXPORT_SGLANG)
		return sglang_print(plan);
	return export == MT_EXPORT_VLLM ? vllm_print(plan) : trtllm_print(plan);
}
