/* SPDX-License-Identifier: MIT */
/*
 * The experts of a layer on a GPU: the router's logits, the choice, a rule, the alignment by expert,
 * the expert MLP, the combination, and the shared experts beside. What they give is added to the
 * residual stream by the next norm.
 */
#include <math.h>

#include <moetrace/status.h>

#include "kernels/align/align_cuda.h"
#include "kernels/combine/combine_cuda.h"
#include "kernels/engine/cuda_internal.h"
#include "kernels/experts/experts_cuda.h"
#include "kernels/experts/experts_f32_cuda.h"
#include "kernels/oea/oea_cuda.h"
#include "kernels/permute/permute_cuda.h"
#include "kernels/route/route_cuda.h"

/* What a layer chose, of all layers' arrays. */
struct chosen {
	int32_t *ids;
	float *weights;
	float *margins; /* NULL: not wanted, or not of this choice; as row_flags */
	uint8_t *row_flags;
};

static struct chosen final_of(const struct mtk_cuda_pass *pass)
{
	const struct mtk_cuda_context *c = pass->context;
	const size_t first_row = (size_t)pass->layer * c->n_rows_max;
	const size_t first = first_row * c->n_width_max;
	struct chosen chosen = {.ids = c->ids + first, .weights = c->weights + first};

	if (pass->has_facts && mtk_cuda_pass_has_facts(pass, pass->layer)) {
		chosen.margins = c->margins + first_row;
		chosen.row_flags = c->row_flags + first_row;
	}
	return chosen;
}

static struct chosen base_of(const struct mtk_cuda_pass *pass)
{
	const struct mtk_cuda_context *c = pass->context;
	const size_t first = (size_t)pass->layer * c->n_rows_max * c->model->moe.width;

	return (struct chosen){.ids = c->base_ids + first, .weights = c->base_weights + first};
}

static const struct mtk_oea *rule_of(const struct mtk_cuda_pass *pass, uint32_t layer)
{
	const struct mtk_oea *rules = pass->context->rules;

	return pass->has_rule && rules[layer].k0 != 0 ? &rules[layer] : NULL;
}

bool mtk_cuda_pass_has_facts(const struct mtk_cuda_pass *pass, uint32_t layer)
{
	const struct mtk_cuda_context *c = pass->context;

	return !c->choice && !rule_of(pass, layer) && !c->model->layers[layer].route.hash_table;
}

uint32_t mtk_cuda_pass_width(const struct mtk_cuda_pass *pass, uint32_t layer)
{
	const struct mtk_route_config *route = &pass->context->model->layers[layer].route;
	const struct mtk_oea *rule = rule_of(pass, layer);

	return rule ? mtk_oea_width(rule, route) : mtk_route_width(route);
}

/* The setting as the CPU's moe.c changes it for a choice that is not the router's. */
static struct mtk_route_config config_of(const struct mtk_cuda_pass *pass)
{
	const struct mtk_cuda_context *c = pass->context;
	struct mtk_route_config config = c->model->layers[pass->layer].route;

	if (!c->choice)
		return config;
	config.hash_table = c->given_ids;
	config.n_hash_tokens = c->n_rows_max;
	if (config.scoring == MTK_ROUTE_SPARSEMIXER)
		config.scoring = MTK_ROUTE_SOFTMAX_SELECTED;
	return config;
}

/* Whether the lane gets the layer's margins. */
static bool records_margins(const struct mtk_cuda_pass *pass)
{
	return pass->context->lane_has_margins && mtk_cuda_pass_has_facts(pass, pass->layer);
}

/* Whether the router's own kernel records the layer: with margins every one does. */
static bool is_fused(const struct mtk_cuda_pass *pass, const struct mtk_route_config *config)
{
	const struct mtk_cuda_context *c = pass->context;

	return c->lane && c->state->settings.recording == MTK_CUDA_RECORD_FUSED &&
	       (records_margins(pass) || mtk_route_cuda_records(config));
}

static int run_route(struct mtk_cuda_pass *pass, const struct chosen *to)
{
	struct mtk_cuda_context *c = pass->context;
	const struct mtk_cuda_layer *layer = &c->state->weights.layers[pass->layer];
	const struct mtk_route_config config = config_of(pass);
	const struct mtk_route_result result = {.ids = to->ids,
						.weights = to->weights,
						.flags = to->row_flags,
						.margins = to->margins};
	struct moetrace_cuda_target target;
	struct mtk_route_cuda_batch batch = {
		.n_rows = pass->n_rows,
		.n_valid_rows = pass->inputs.n_valid_rows,
		.logits = c->router_logits,
		.bias = layer->correction_bias,
		.token_ids = pass->inputs.token_ids,
		.hash_table = layer->hash_table,
		/* The kernel that stores margins is the one that can write them, too. */
		.with_margins = records_margins(pass) || to->margins,
	};

	if (c->choice) {
		batch.token_ids = c->row_numbers;
		batch.hash_table =
			c->given_ids + (size_t)pass->layer * c->n_rows_max * config.top_k;
	}
	/* One that is too large for the ring stores nothing; the pass counts it. */
	if (is_fused(pass, &config)) {
		(void)moetrace_cuda_target_get(c->lane, pass->layer, pass->n_rows, &target);
		batch.target = &target;
	}
	return mtk_route_cuda(&config, &batch, &result, c->state->stream, pass->error);
}

static int run_rule(struct mtk_cuda_pass *pass, const struct mtk_oea *rule,
		    const struct chosen *base, const struct chosen *to)
{
	struct mtk_cuda_context *c = pass->context;
	const struct mtk_oea_cuda oea = {
		.oea = *rule,
		.route = c->model->layers[pass->layer].route,
		.n_rows = pass->n_rows,
		.n_valid_rows = pass->inputs.n_valid_rows,
		.logits = c->router_logits,
		.bias = c->state->weights.layers[pass->layer].correction_bias,
		.is_decode = pass->inputs.is_decode,
		.base_ids = base->ids,
		.base_weights = base->weights,
		.n_base = c->n_base,
		.is_loaded = c->is_loaded,
		.ids = to->ids,
		.weights = to->weights,
	};

	return mtk_oea_cuda(&oea, c->state->stream, pass->error);
}

/* Layers into the lane's ring, if a pass is being recorded when this runs. */
static int store(struct mtk_cuda_pass *pass, void *stream, uint32_t first_layer, uint32_t n_layers,
		 const uint64_t *ids, const uint64_t *weights)
{
	struct mtk_cuda_context *c = pass->context;
	struct moetrace_cuda_layers layers;
	int status;

	MOETRACE_INIT(&layers);
	layers.first_layer = first_layer;
	layers.n_layers = n_layers;
	layers.n_rows = pass->n_rows;
	layers.id_type = MOETRACE_TYPE_I32;
	layers.ids = ids;
	layers.weight_type = MOETRACE_TYPE_F32;
	layers.weights = weights;
	status = moetrace_cuda_store(c->lane, stream, &layers);
	/* Too large for the ring: that is counted, and the pass goes on. */
	if (status == MOETRACE_OK || status == MOETRACE_E_LIMIT)
		return MOETRACE_OK;
	return mtk_error_set(pass->error, status, "cuda: a layer cannot be recorded: %s",
			     moetrace_status_string(status));
}

/*
 * On a branch of the graph, which begins behind the router: nothing else of the layer waits for the
 * store. What it reads stays as it is until the next pass, before which the branch is joined.
 */
static int store_beside(struct mtk_cuda_pass *pass, const uint64_t *ids, const uint64_t *weights)
{
	struct mtk_cuda_context *c = pass->context;
	int status = mtk_cuda_event_record(c->forked, c->state->stream, pass->error);

	if (!status)
		status = mtk_cuda_stream_follow(c->side, c->forked, pass->error);
	if (status)
		return status;
	c->has_branch = true;
	return store(pass, c->side, pass->layer, 1, ids, weights);
}

int mtk_cuda_pass_join(struct mtk_cuda_pass *pass)
{
	struct mtk_cuda_context *c = pass->context;
	int status;

	if (!c->has_branch)
		return MOETRACE_OK;
	c->has_branch = false;
	status = mtk_cuda_event_record(c->joined, c->side, pass->error);
	return status ? status : mtk_cuda_stream_follow(c->state->stream, c->joined, pass->error);
}

/* A layer whose router does not record it itself. A lane has no rule. */
static int run_record(struct mtk_cuda_pass *pass, const struct chosen *chosen)
{
	const struct mtk_cuda_context *c = pass->context;
	const uint64_t ids = (uintptr_t)chosen->ids, weights = (uintptr_t)chosen->weights;
	const struct mtk_route_config config = config_of(pass);

	if (!c->lane || is_fused(pass, &config) ||
	    c->state->settings.recording == MTK_CUDA_RECORD_GATHER ||
	    c->state->settings.recording == MTK_CUDA_RECORD_ADOPT)
		return MOETRACE_OK;
	/* Launched one by one, layers may go to the host in groups meanwhile. */
	return pass->is_graph ? store_beside(pass, &ids, &weights)
			      : store(pass, c->state->stream, pass->layer, 1, &ids, &weights);
}

int mtk_cuda_pass_gather(struct mtk_cuda_pass *pass)
{
	const struct mtk_cuda_context *c = pass->context;
	const size_t n = (size_t)c->n_rows_max * c->n_width_max;
	uint64_t ids[MTK_CUDA_GATHER_LAYERS], weights[MTK_CUDA_GATHER_LAYERS];
	int status = MOETRACE_OK;

	if (!c->lane || c->state->settings.recording != MTK_CUDA_RECORD_GATHER)
		return status;
	for (uint32_t first = 0; !status && first < c->model->config.n_layers;
	     first += MTK_CUDA_GATHER_LAYERS) {
		uint32_t i = 0;

		for (; i < MTK_CUDA_GATHER_LAYERS && first + i < c->model->config.n_layers; i++) {
			ids[i] = (uintptr_t)(c->ids + (first + i) * n);
			weights[i] = (uintptr_t)(c->weights + (first + i) * n);
		}
		status = store(pass, c->state->stream, first, i, ids, weights);
	}
	return status;
}

static int run_choice(struct mtk_cuda_pass *pass)
{
	const struct mtk_oea *rule = rule_of(pass, pass->layer);
	const struct chosen chosen = final_of(pass);
	int status;

	if (rule) {
		const struct chosen base = base_of(pass);

		status = run_route(pass, &base);
		if (!status)
			status = run_rule(pass, rule, &base, &chosen);
	} else {
		status = run_route(pass, &chosen);
	}
	return status ? status : run_record(pass, &chosen);
}

/* The batch of pairs, sorted. */
struct aligned {
	uint32_t width;
	uint32_t block_rows;
	struct mtk_align_sizes sizes;
};

static int run_align(struct mtk_cuda_pass *pass, struct aligned *ret_aligned)
{
	struct mtk_cuda_context *c = pass->context;
	const uint32_t width = mtk_cuda_pass_width(pass, pass->layer);
	const struct mtk_align_settings settings =
		mtk_cuda_align_settings(c, pass->n_rows, width);
	int status;

	ret_aligned->width = width;
	ret_aligned->block_rows = settings.block_rows;
	status = mtk_align_sizes(&settings, pass->n_rows, pass->error, &ret_aligned->sizes);
	if (status)
		return status;
	return mtk_align_cuda(&settings, &ret_aligned->sizes, c->state->weights.expert_map,
			      final_of(pass).ids, c->align_scratch, &c->align, c->state->stream,
			      pass->error);
}

static struct mtk_activation_cuda activation_of(const struct mtk_moe *moe)
{
	static const struct mtk_swiglu_clamp plain = {INFINITY, 1.0f, 0.0f};

	return (struct mtk_activation_cuda){
		.squared_relu = moe->squared_relu,
		.clamp = moe->is_clamped ? moe->clamp : plain,
	};
}

static int run_experts_f32(struct mtk_cuda_pass *pass, const struct aligned *aligned)
{
	struct mtk_cuda_context *c = pass->context;
	const struct mtk_moe *moe = &c->model->moe;
	const struct mtk_cuda_layer *layer = &c->state->weights.layers[pass->layer];
	const struct mtk_experts_f32_cuda experts = {
		.dtype = layer->gate_up.dtype,
		.n_hidden = moe->n_in,
		.n_intermediate = moe->n_intermediate,
		.top_k = aligned->width,
		.activation = activation_of(moe),
		.gate_up = layer->gate_up.data,
		.down = layer->down.data,
		.gate_up_bias = layer->gate_up_bias,
		.down_bias = layer->down_bias,
		.weighting = moe->weighting,
		.n_pairs = aligned->sizes.n_pairs,
		.n_blocks = aligned->sizes.n_blocks,
		.sorted_pairs = c->align.sorted_pairs,
		.expert_ids = c->align.expert_ids,
		.x = c->normed,
		.weights = final_of(pass).weights,
		.middle = c->middle,
		.out = c->expert_out,
	};

	return mtk_experts_f32_cuda(&experts, c->state->stream, pass->error);
}

static int run_experts_16bit(struct mtk_cuda_pass *pass, const struct aligned *aligned)
{
	struct mtk_cuda_context *c = pass->context;
	const struct mtk_moe *moe = &c->model->moe;
	const struct mtk_cuda_layer *layer = &c->state->weights.layers[pass->layer];
	const struct mtk_experts_cuda experts = {
		.dtype = layer->gate_up.dtype,
		.n_hidden = moe->n_in,
		.n_intermediate = moe->n_intermediate,
		.top_k = aligned->width,
		.gate_up = layer->gate_up.data,
		.down = layer->down.data,
		.gate_up_bias = layer->gate_up_bias,
		.down_bias = layer->down_bias,
		.clamp = activation_of(moe).clamp,
		.weighting = moe->weighting,
		.block_rows = aligned->block_rows,
		.n_pairs = aligned->sizes.n_pairs,
		.n_blocks = aligned->sizes.n_blocks,
		.sorted_pairs = c->align.sorted_pairs,
		.expert_ids = c->align.expert_ids,
		.x = c->normed,
		.weights = final_of(pass).weights,
		.middle = c->middle,
		.out = c->expert_out,
	};

	return mtk_experts_cuda(&experts, c->state->stream, pass->error);
}

/*
 * By the library, an expert after another: it must know their rows, so that the host waits for the
 * alignment, which is not for passes that are captured. What biases and weights before the
 * combination do, it does not.
 */
static bool uses_cublas(const struct mtk_cuda_pass *pass, const struct aligned *aligned)
{
	const struct mtk_cuda_context *c = pass->context;
	const struct mtk_cuda_layer *layer = &c->state->weights.layers[pass->layer];
	const int64_t mean = aligned->sizes.n_pairs / c->state->weights.n_experts;

	return c->state->cublas && !pass->is_graph && pass->n_rows > MTK_CUDA_GRAPH_ROWS &&
	       mean >= c->state->cublas_expert_rows && !layer->gate_up_bias && !layer->down_bias &&
	       c->model->moe.weighting == MTK_WEIGHT_IN_COMBINE;
}

static int gather_inputs(struct mtk_cuda_pass *pass, const struct aligned *aligned)
{
	struct mtk_cuda_context *c = pass->context;
	const struct mtk_permute permute = {
		.sorted_pairs = c->align.sorted_pairs,
		.n_pairs = aligned->sizes.n_pairs,
		.top_k = aligned->width,
		.row_bytes = c->model->moe.n_in * mtk_dtype_bytes(c->state->activations),
		.rows = c->normed,
		.permuted = c->gathered,
	};
	int status = mtk_cuda_download(c->host_first_slots, c->align.first_slots,
				       (c->state->weights.n_experts + (size_t)1) * sizeof(int64_t),
				       c->state->stream, pass->error);

	if (!status)
		status = mtk_permute_cuda(&permute, aligned->sizes.capacity, c->state->stream,
					  pass->error);
	return status ? status : mtk_cuda_stream_wait(c->state->stream, pass->error);
}

/* One matrix of each expert, over its slots. */
static int multiply_slots(struct mtk_cuda_pass *pass, const struct mtk_cuda_matrix *matrix,
			  const char *x, float *y)
{
	struct mtk_cuda_context *c = pass->context;
	const size_t element = mtk_dtype_bytes(matrix->dtype);
	const size_t n_weights = (size_t)matrix->n_out * matrix->n_in;
	int status = MOETRACE_OK;

	for (uint32_t e = 0; !status && e < c->state->weights.n_experts; e++) {
		const size_t first = (size_t)c->host_first_slots[e];
		const struct mtk_cublas_product product = {
			.dtype = matrix->dtype,
			.n_rows = (uint32_t)((size_t)c->host_first_slots[e + 1] - first),
			.n_in = matrix->n_in,
			.n_out = matrix->n_out,
			.x = x + first * matrix->n_in * element,
			.w = (const char *)matrix->data + e * n_weights * element,
			.y = y + first * matrix->n_out,
		};

		status = mtk_cublas_multiply(c->state->cublas, &product, pass->error);
	}
	return status;
}

static int run_experts_cublas(struct mtk_cuda_pass *pass, const struct aligned *aligned)
{
	struct mtk_cuda_context *c = pass->context;
	const struct mtk_moe *moe = &c->model->moe;
	const struct mtk_cuda_layer *layer = &c->state->weights.layers[pass->layer];
	struct mtk_activate_cuda activate = {
		.activation = activation_of(moe),
		.n = moe->n_intermediate,
		.gate_up = c->gate_up_out,
		.dtype = c->state->activations,
		.out = c->middle,
	};
	int status = gather_inputs(pass, aligned);

	if (!status)
		status = multiply_slots(pass, &layer->gate_up, c->gathered, c->gate_up_out);
	activate.n_rows = (uint32_t)c->host_first_slots[c->state->weights.n_experts];
	if (!status)
		status = mtk_activate_cuda(&activate, c->state->stream, pass->error);
	return status ? status : multiply_slots(pass, &layer->down, c->middle, c->expert_out);
}

static int run_mlp(struct mtk_cuda_pass *pass, const struct aligned *aligned)
{
	if (pass->context->state->settings.precision == MTK_CUDA_FP32)
		return run_experts_f32(pass, aligned);
	if (uses_cublas(pass, aligned))
		return run_experts_cublas(pass, aligned);
	return run_experts_16bit(pass, aligned);
}

static int run_combine(struct mtk_cuda_pass *pass, const struct aligned *aligned)
{
	struct mtk_cuda_context *c = pass->context;
	const struct mtk_moe *moe = &c->model->moe;
	const struct mtk_route_config *route = &c->model->layers[pass->layer].route;
	const bool on_output = route->scale_owner == MTK_ROUTE_SCALE_ON_OUTPUT;
	const struct mtk_combine combine = {
		.n = moe->n_in,
		.top_k = aligned->width,
		.output_stride = moe->n_in,
		.scale = on_output ? (float)route->scale : 1.0f,
	};
	const struct mtk_combine_cuda_rows rows = {
		.n_rows = pass->n_rows,
		.outputs = c->expert_out,
		.slots = c->align.pair_slots,
		.weights = moe->weighting == MTK_WEIGHT_IN_COMBINE ? final_of(pass).weights : NULL,
		.sums = c->moe_out,
	};

	return mtk_combine_cuda(&combine, &rows, c->state->stream, pass->error);
}

static int run_shared(struct mtk_cuda_pass *pass)
{
	struct mtk_cuda_context *c = pass->context;
	const struct mtk_moe *moe = &c->model->moe;
	const struct mtk_cuda_layer *layer = &c->state->weights.layers[pass->layer];
	const struct mtk_activate_cuda activate = {
		.activation = activation_of(moe),
		.n_rows = pass->n_rows,
		.n = moe->n_shared,
		.gate_up = c->shared_gate_up,
		.row_gates = layer->shared_gate.data ? c->shared_gates : NULL,
		.dtype = c->state->activations,
		.out = c->shared_middle,
	};
	int status = MOETRACE_OK;

	if (moe->n_shared == 0)
		return status;
	status = mtk_cuda_pass_linear(pass, &layer->shared_gate_up, pass->n_rows, c->normed, NULL,
				      c->shared_gate_up);
	if (!status && layer->shared_gate.data)
		status = mtk_cuda_pass_linear(pass, &layer->shared_gate, pass->n_rows, c->normed,
					      NULL, c->shared_gates);
	if (!status)
		status = mtk_activate_cuda(&activate, c->state->stream, pass->error);
	return status ? status
		      : mtk_cuda_pass_linear(pass, &layer->shared_down, pass->n_rows,
					     c->shared_middle, NULL, c->shared_out);
}

int mtk_cuda_pass_moe(struct mtk_cuda_pass *pass)
{
	struct mtk_cuda_context *c = pass->context;
	const struct mtk_cuda_layer *layer = &c->state->weights.layers[pass->layer];
	struct aligned aligned;
	int status;

	mtk_cuda_pass_mark(pass, MOETRACE_ROLE_GATE);
	status = mtk_cuda_pass_linear(pass, &layer->router, pass->n_rows, c->normed,
				      layer->router_bias, c->router_logits);
	mtk_cuda_pass_mark(pass, MOETRACE_ROLE_TOPK);
	if (!status)
		status = run_choice(pass);
	mtk_cuda_pass_mark(pass, MOETRACE_ROLE_ALIGN);
	if (!status)
		status = run_align(pass, &aligned);
	mtk_cuda_pass_mark(pass, MOETRACE_ROLE_EXPERTS);
	if (!status)
		status = run_mlp(pass, &aligned);
	mtk_cuda_pass_mark(pass, MOETRACE_ROLE_COMBINE);
	if (!status)
		status = run_combine(pass, &aligned);
	mtk_cuda_pass_mark(pass, MOETRACE_ROLE_SHARED);
	return status ? status : run_shared(pass);
}
