/* SPDX-License-Identifier: MIT */
/*
 * `run --shape`: plan the model, compare what the whole run will take with what there is, and only
 * then take it. And who chooses the experts of a run, whatever its model.
 */
#include "cli/cmd_run.h"

#include <inttypes.h>

#include "cli/model_load.h"
#include "kernels/presets/presets.h"

/* The recorder, the workload and what the C library keeps beside. */
#define OTHER_BYTES (32u << 20)

static int memory_check(const struct mt_run_options *options, const struct mtk_model *model,
			const struct mtk_workload *workload, const struct mtk_serve_options *serve)
{
	const uint64_t available = mt_run_memory_available();
	const uint64_t server_bytes = mtk_server_size(model, workload, serve);
	const uint32_t n_layers = mtk_model_borrow_config(model)->n_layers;
	uint64_t needed = mtk_model_bytes(model) + (uint64_t)OTHER_BYTES;

	if (server_bytes == 0 || __builtin_add_overflow(needed, server_bytes, &needed)) {
		mt_error("%s: a batch of %u with chunks of %u rows and a context of %u is too "
			 "large; "
			 "lower --batch, --chunk or --context",
			 options->shape, options->n_batch, options->n_chunk, options->n_context);
		return MT_EXIT_FAILED;
	}
	if (needed <= available)
		return MT_EXIT_OK;
	mt_error(
		"%s with %u layers needs %" PRIu64 " bytes of memory, %" PRIu64
		" are available; lower --layers or --batch, or %s --expert-pool BYTES, a pool that "
		"its weights alias",
		options->shape, n_layers, needed, available,
		options->expert_pool_bytes > 0 ? "lower" : "give");
	return MT_EXIT_FAILED;
}

int mt_run_shape_load(const struct mt_run_options *options, const struct mtk_workload *workload,
		      const struct mtk_serve_options *serve, struct mtk_model **ret_model)
{
	const struct mtk_shape_settings settings = {
		.preset = mtk_preset_find(options->shape),
		.n_layers = options->n_layers,
		.n_context = options->n_context,
		.has_shared_slots = options->has_shared_slots,
		.expert_pool_bytes = options->expert_pool_bytes,
		.seed = options->seed,
	};
	struct mtk_model *model = NULL;
	struct mtk_error error;
	int exit_code = MT_EXIT_FAILED;

	if (!settings.preset) {
		mt_error("no model is called '%s'; 'moetrace models' lists them", options->shape);
		return MT_EXIT_NOT_FOUND;
	}
	if (mtk_shape_plan(&settings, &error, &model) < 0) {
		mt_error("%s", error.text);
		return MT_EXIT_FAILED;
	}
	exit_code = mt_model_rule_check(model, serve->oea);
	if (exit_code == MT_EXIT_OK)
		exit_code = memory_check(options, model, workload, serve);
	if (exit_code == MT_EXIT_OK && mtk_shape_fill(model, &settings, &error) < 0) {
		mt_error("%s", error.text);
		exit_code = MT_EXIT_FAILED;
	}
	if (exit_code != MT_EXIT_OK) {
		mtk_model_destroy(model);
		return exit_code;
	}
	*ret_model = model;
	return MT_EXIT_OK;
}

int mt_run_choice_make(const struct mt_run_options *options, const struct mtk_model *model,
		       const struct mtk_workload *workload, struct mt_run_choice *ret_choice)
{
	struct mtk_choice_settings settings = {
		.kind = options->routing,
		.exponent = options->zipf_exponent,
		.seed = options->seed,
		.n_layers = mtk_model_borrow_config(model)->n_layers,
	};
	struct mtk_layer_info layer;
	struct mtk_error error;

	mtk_model_layer(model, 0, &layer);
	settings.n_columns = mtk_route_columns(layer.route);
	settings.top_k = layer.route->top_k;
	if (options->routing == MTK_CHOICE_REPLAY) {
		int exit_code = mt_run_replay_read(options, layer.route, settings.n_layers,
						   workload, &ret_choice->replay);

		if (exit_code != MT_EXIT_OK)
			return exit_code;
	}
	settings.replay = ret_choice->replay;
	if (mtk_choice_create(&settings, &error, &ret_choice->choice) < 0) {
		mt_error("--routing %s: %s", options->routing_text, error.text);
		return MT_EXIT_FAILED;
	}
	return MT_EXIT_OK;
}

void mt_run_choice_release(struct mt_run_choice *choice)
{
	mtk_choice_destroy(choice->choice);
	mtk_replay_destroy(choice->replay);
}
