/* SPDX-License-Identifier: MIT */
/*
 * Shapes: a plan says what the model takes; the experts' part of a layer against its definition, in
 * double precision and expert by expert, for every kind of it; settings that contradict each other;
 * and what a choice that is not the router's does to a layer.
 */
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <moetrace/status.h>

#include "kernels/engine/choice.h"
#include "kernels/engine/expert_pool.h"
#include "kernels/engine/kv_cache.h"
#include "kernels/engine/model_internal.h"
#include "kernels/engine/shape.h"
#include "kernels/threads.h"
#include "tests/support/run_suite.h"

#define N_ROWS	  9
#define N_CONTEXT 16
#define N_HIDDEN  80
#define MAX_WIDTH 8

/* A small model of no family; each test changes what it is about. */
static struct mtk_preset small_preset(void)
{
	struct mtk_preset preset = {
		.name = "small",
		.has_routing = true,
		.route = mtk_route_config_make(12, 3),
		.n_layers = 2,
		.n_hidden = N_HIDDEN,
		.n_intermediate = 24,
		.n_heads = 4,
		.n_kv_heads = 2,
		.head_dim = 8,
	};

	preset.route.renormalise = MTK_ROUTE_RENORMALISE_EPSILON;
	return preset;
}

struct run {
	struct mtk_shape_settings settings;
	struct mtk_model *model;
	struct mtk_workspace *workspace;
	struct mtk_kv_cache *kv;
	struct mtk_threads *threads;
	uint32_t width;
	float before[N_ROWS][N_HIDDEN]; /* the residual stream of the layer looked at */
	float input[N_ROWS][N_HIDDEN];
	int32_t ids[N_ROWS][MAX_WIDTH];
	float weights[N_ROWS][MAX_WIDTH];
};

static struct mtk_model *made(const struct mtk_shape_settings *settings)
{
	struct mtk_model *model;
	struct mtk_error error;
	size_t planned;

	ck_assert_msg(mtk_shape_plan(settings, &error, &model) == MOETRACE_OK, "%s", error.text);
	planned = mtk_model_bytes(model);
	ck_assert_int_eq(mtk_shape_fill(model, settings, &error), MOETRACE_OK);
	ck_assert_uint_eq(mtk_model_bytes(model), planned);
	return model;
}

static void run_open(struct run *run, const struct mtk_preset *preset)
{
	const struct mtk_model_config *config;

	run->settings.preset = preset;
	run->settings.n_context = N_CONTEXT;
	run->model = made(&run->settings);
	config = mtk_model_borrow_config(run->model);
	ck_assert_int_eq(mtk_workspace_create(run->model, N_ROWS, &run->workspace), 0);
	ck_assert_uint_eq(mtk_workspace_bytes(run->workspace),
			  mtk_workspace_size(run->model, N_ROWS, NULL));
	ck_assert_int_eq(mtk_kv_cache_create(config, 1, N_CONTEXT, &run->kv), 0);
	ck_assert_uint_eq(mtk_kv_cache_reserved_bytes(run->kv),
			  mtk_kv_cache_size(config, 1, N_CONTEXT));
	ck_assert_int_eq(mtk_threads_create(2, &run->threads), 0);
}

static void run_close(struct run *run)
{
	mtk_threads_destroy(run->threads);
	mtk_kv_cache_destroy(run->kv);
	mtk_workspace_destroy(run->workspace);
	mtk_model_destroy(run->model);
}

/* The last layer is looked at: the residual stream ends with it. */
static bool is_last(const struct run *run, uint32_t layer)
{
	return layer + 1 == mtk_model_borrow_config(run->model)->n_layers;
}

static void take_input(void *ctx, uint32_t layer, uint32_t n_rows, uint32_t n_hidden,
		       const float *hidden)
{
	struct run *run = ctx;

	if (!is_last(run, layer))
		return;
	ck_assert_uint_eq(n_rows, N_ROWS);
	ck_assert_uint_eq(n_hidden, N_HIDDEN);
	memcpy(run->input, hidden, sizeof(run->input));
	memcpy(run->before, run->workspace->hidden, sizeof(run->before));
}

static void take_choice(void *ctx, uint32_t layer, uint32_t n_rows, uint32_t width,
			const int32_t *ids, const float *weights)
{
	struct run *run = ctx;

	if (!is_last(run, layer))
		return;
	ck_assert_uint_le(width, MAX_WIDTH);
	run->width = width;
	for (uint32_t r = 0; r < n_rows; r++) {
		memcpy(run->ids[r], ids + (size_t)r * width, width * sizeof(*ids));
		memcpy(run->weights[r], weights + (size_t)r * width, width * sizeof(*weights));
	}
}

static int forward(struct run *run, const struct mtk_choice *choice)
{
	static const int32_t tokens[N_ROWS] = {0, 255, 97, 98, 97, 32, 10, 200, 1};
	const struct mtk_forward_hooks hooks = {
		.ctx = run, .select_experts = take_choice, .moe_input = take_input};
	int32_t positions[N_ROWS];
	const uint32_t slots[N_ROWS] = {0};
	const struct mtk_batch batch = {
		.n_rows = N_ROWS,
		.token_ids = tokens,
		.positions = positions,
		.slots = slots,
		.choice = choice,
	};
	uint32_t slot;

	for (int32_t r = 0; r < N_ROWS; r++)
		positions[r] = r;
	ck_assert_int_eq(mtk_kv_cache_slot_acquire(run->kv, &slot), MOETRACE_OK);
	return mtk_model_forward(run->model, run->workspace, run->kv, run->threads, &batch, &hooks,
				 NULL);
}

/* ---- the definition ---- */

static void linear(const struct mtk_matrix *matrix, const double *x, const float *bias, double *y)
{
	for (uint32_t o = 0; o < matrix->n_out; o++) {
		y[o] = bias ? (double)bias[o] : 0.0;
		for (uint32_t i = 0; i < matrix->n_in; i++)
			y[o] += (double)mtk_matrix_at(matrix, o, i) * x[i];
	}
}

static double silu(double x, double alpha)
{
	return x / (1.0 + exp(-alpha * x));
}

/* n numbers of [gate | up], or of up alone. */
static void activate(const struct mtk_preset *preset, uint32_t n, double *x)
{
	const double limit = preset->swiglu_limit > 0.0 ? preset->swiglu_limit : INFINITY;
	const double alpha = preset->swiglu_alpha > 0.0 ? preset->swiglu_alpha : 1.0;

	for (uint32_t i = 0; i < n; i++) {
		if (preset->squared_relu)
			x[i] = x[i] > 0.0 ? x[i] * x[i] : 0.0;
		else
			x[i] = silu(fmin(x[i], limit), alpha) *
			       (fmax(-limit, fmin(x[n + i], limit)) + preset->swiglu_offset);
	}
}

static void define_expert(const struct run *run, const struct mtk_layer *layer, int32_t id,
			  const double *x, double weight, double *sum)
{
	const struct mtk_preset *preset = run->settings.preset;
	const struct mtk_moe *moe = &run->model->moe;
	const bool on_input = preset->weight_on_input;
	double scaled[N_HIDDEN], middle[4 * N_HIDDEN], out[N_HIDDEN];
	const float *up_bias = layer->gate_up_bias, *down_bias = layer->down_bias;

	if (id >= (int32_t)moe->n_experts) {
		for (uint32_t i = 0; i < moe->n_in; i++)
			sum[i] += weight * x[i];
		return;
	}
	for (uint32_t i = 0; i < moe->n_in; i++)
		scaled[i] = on_input ? weight * x[i] : x[i];
	linear(&layer->gate_up[id], scaled, up_bias ? up_bias + id * (int)moe->n_gate_up : NULL,
	       middle);
	activate(preset, moe->n_intermediate, middle);
	linear(&layer->down[id], middle, down_bias ? down_bias + id * (int)moe->n_in : NULL, out);
	for (uint32_t i = 0; i < moe->n_in; i++)
		sum[i] += on_input ? out[i] : weight * out[i];
}

static void define_shared(const struct run *run, const struct mtk_layer *layer, const double *x,
			  double *hidden)
{
	double middle[8 * N_HIDDEN], out[N_HIDDEN], gate = 0.0;

	if (run->model->moe.n_shared == 0)
		return;
	linear(&layer->shared_gate_up, x, NULL, middle);
	activate(run->settings.preset, run->model->moe.n_shared, middle);
	linear(&layer->shared_down, middle, NULL, out);
	if (run->settings.preset->is_shared_gated)
		linear(&layer->shared_gate, x, NULL, &gate);
	for (uint32_t i = 0; i < N_HIDDEN; i++)
		hidden[i] += run->settings.preset->is_shared_gated ? out[i] / (1.0 + exp(-gate))
								   : out[i];
}

static void define_latent(const struct mtk_model *model, const struct mtk_layer *layer,
			  const double *x, double *latent)
{
	const uint32_t n = model->moe.n_in;
	double squares = 0.0;

	linear(&layer->latent_down, x, NULL, latent);
	for (uint32_t i = 0; i < n; i++)
		squares += latent[i] * latent[i];
	for (uint32_t i = 0; layer->latent_norm && i < n; i++)
		latent[i] /= sqrt(squares / n + (double)model->config.rms_norm_eps);
}

static void define_row(const struct run *run, uint32_t row, double *hidden)
{
	const struct mtk_model *model = run->model;
	const struct mtk_layer *layer = &model->layers[model->config.n_layers - 1];
	double x[N_HIDDEN], read[N_HIDDEN], sum[N_HIDDEN] = {0}, out[N_HIDDEN];

	for (uint32_t i = 0; i < N_HIDDEN; i++) {
		x[i] = read[i] = (double)run->input[row][i];
		hidden[i] = (double)run->before[row][i];
	}
	if (model->moe.is_latent)
		define_latent(model, layer, x, read);
	for (uint32_t j = 0; j < run->width; j++)
		define_expert(run, layer, run->ids[row][j], read, (double)run->weights[row][j],
			      sum);
	if (model->moe.is_latent)
		linear(&layer->latent_up, sum, NULL, out);
	for (uint32_t i = 0; i < N_HIDDEN; i++)
		hidden[i] += model->moe.is_latent ? out[i] : sum[i];
	define_shared(run, layer, x, hidden);
}

static void check_layer(const struct mtk_preset *preset, struct mtk_shape_settings settings)
{
	struct run *run = calloc(1, sizeof(*run));
	double hidden[N_HIDDEN];

	run->settings = settings;
	run_open(run, preset);
	ck_assert_int_eq(forward(run, NULL), MOETRACE_OK);
	for (uint32_t r = 0; r < N_ROWS; r++) {
		define_row(run, r, hidden);
		for (uint32_t i = 0; i < N_HIDDEN; i++)
			ck_assert_double_eq_tol((double)run->workspace->hidden[r * N_HIDDEN + i],
						hidden[i], 1e-4 * (1.0 + fabs(hidden[i])));
	}
	run_close(run);
	free(run);
}

START_TEST(every_kind_of_layer_is_its_definition)
{
	const struct mtk_shape_settings none = {0}, slots = {.has_shared_slots = true},
					pool = {.expert_pool_bytes = MTK_EXPERT_POOL_MIN_BYTES};
	struct mtk_preset preset = small_preset();

	check_layer(&preset, none);
	check_layer(&preset, pool);
	preset.n_shared_experts = 2;
	check_layer(&preset, none);
	check_layer(&preset, slots);
	preset.is_shared_gated = true;
	check_layer(&preset, none);

	preset = small_preset();
	preset.n_latent = 40;
	check_layer(&preset, none);
	preset.is_latent_normed = true;
	preset.squared_relu = true;
	preset.n_shared_experts = 1;
	preset.n_shared_intermediate = 56;
	check_layer(&preset, none);
	check_layer(&preset, pool);

	preset = small_preset();
	preset.route.n_zero_experts = 12;
	preset.route.scale = 6.0;
	check_layer(&preset, none);
	preset.route.scale_owner = MTK_ROUTE_SCALE_IN_ROUTER;
	preset.weight_on_input = true;
	preset.route.n_zero_experts = 0;
	preset.swiglu_limit = 0.01;
	check_layer(&preset, none);

	preset = small_preset();
	preset.route.scoring = MTK_ROUTE_SOFTMAX_SELECTED;
	preset.has_gate_bias = preset.has_expert_bias = true;
	preset.swiglu_limit = 0.05;
	preset.swiglu_alpha = 1.702;
	preset.swiglu_offset = 1.0;
	check_layer(&preset, none);
	preset.n_hash_layers = 2;
	check_layer(&preset, none);
}
END_TEST

/* ---- what is refused ---- */

static void refuses(const struct mtk_preset *preset, const char *field)
{
	const struct mtk_shape_settings settings = {.preset = preset, .n_context = N_CONTEXT};
	struct mtk_model *model = NULL;
	struct mtk_error error;

	ck_assert_int_eq(mtk_shape_plan(&settings, &error, &model), MOETRACE_E_INVALID);
	ck_assert_msg(strstr(error.text, field) != NULL, "'%s' does not name %s", error.text,
		      field);
	ck_assert_ptr_null(model);
}

START_TEST(contradictions_are_refused_by_name)
{
	struct mtk_preset preset = small_preset();

	preset.route.top_k = 13;
	refuses(&preset, "num_experts_per_tok");
	preset = small_preset();
	preset.route.top_k = 0;
	refuses(&preset, "num_experts_per_tok");
	preset = small_preset();
	preset.route.scoring = MTK_ROUTE_N_SCORINGS;
	refuses(&preset, "scoring");
	preset = small_preset();
	preset.route.scale = NAN;
	refuses(&preset, "scale");
	preset = small_preset();
	preset.route.groups = MTK_ROUTE_GROUPS_MAX;
	preset.route.n_groups = 5;
	preset.route.n_keep_groups = 2;
	refuses(&preset, "n_groups");
	preset.route.n_groups = 4;
	preset.route.n_keep_groups = 5;
	refuses(&preset, "n_keep_groups");
	preset.route.n_groups = 12;
	preset.route.n_keep_groups = 2;
	refuses(&preset, "top_k");
	preset = small_preset();
	preset.route.output = MTK_ROUTE_OUTPUT_NONE;
	preset.route.has_expert_map = true;
	refuses(&preset, "has_expert_map");
	preset = small_preset();
	preset.head_dim = 7;
	refuses(&preset, "head_dim");
	preset = small_preset();
	preset.n_intermediate = 1u << 21;
	refuses(&preset, "intermediate");
	preset = small_preset();
	preset.swiglu_limit = 1.0;
	preset.swiglu_offset = NAN;
	refuses(&preset, "clamp.offset");
}
END_TEST

START_TEST(a_plan_cannot_be_run)
{
	const struct mtk_preset preset = small_preset();
	const struct mtk_shape_settings settings = {.preset = &preset, .n_context = N_CONTEXT};
	struct run *run = calloc(1, sizeof(*run));
	struct mtk_model *filled;
	struct mtk_error error;

	run_open(run, &preset);
	filled = run->model;
	ck_assert_int_eq(mtk_shape_plan(&settings, &error, &run->model), MOETRACE_OK);
	ck_assert_int_eq(forward(run, NULL), MOETRACE_E_INVALID);
	mtk_model_destroy(run->model);
	run->model = filled;
	run_close(run);
	free(run);
}
END_TEST

/* Every preset whose sizes are known can be planned, all layers of it, with numbers that ascend. */
START_TEST(every_known_preset_is_a_shape)
{
	const struct mtk_preset *presets;
	size_t n_presets, n_planned = 0;

	presets = mtk_presets(&n_presets);
	for (size_t i = 0; i < n_presets; i++) {
		const struct mtk_shape_settings settings = {.preset = &presets[i],
							    .n_context = N_CONTEXT};
		struct mtk_model *model;
		struct mtk_error error;
		int status = mtk_shape_plan(&settings, &error, &model);

		if (status == MOETRACE_E_UNSUPPORTED)
			continue;
		ck_assert_msg(status == MOETRACE_OK, "%s: %s", presets[i].name, error.text);
		for (uint32_t l = 1; l < mtk_shape_moe_layers(&presets[i]); l++)
			ck_assert_uint_gt(model->layers[l].number, model->layers[l - 1].number);
		ck_assert_uint_lt(model->layers[mtk_shape_moe_layers(&presets[i]) - 1].number,
				  presets[i].n_layers);
		ck_assert_uint_gt(mtk_model_bytes(model), 1u << 20);
		mtk_model_destroy(model);
		n_planned++;
	}
	ck_assert_uint_ge(n_planned, 42);
}
END_TEST

/* ---- a choice ---- */

/* The ids are the choice's; the weights are the router's scores of them. */
START_TEST(a_choice_is_weighed_by_the_router)
{
	const struct mtk_preset preset = small_preset();
	const struct mtk_choice_settings settings = {
		.kind = MTK_CHOICE_ROUND_ROBIN, .n_layers = 2, .n_columns = 12, .top_k = 3};
	struct run *run = calloc(1, sizeof(*run));
	struct mtk_choice *choice;
	struct mtk_error error;

	ck_assert_int_eq(mtk_choice_create(&settings, &error, &choice), MOETRACE_OK);
	run_open(run, &preset);
	ck_assert_int_eq(forward(run, choice), MOETRACE_OK);
	for (uint32_t r = 0; r < N_ROWS; r++) {
		const float *logits = run->workspace->router_logits + (size_t)r * 12;
		double sum = 0.0;

		for (uint32_t j = 0; j < 3; j++) {
			ck_assert_int_eq(run->ids[r][j], (int32_t)((r * 3 + 1 + j) % 12));
			sum += exp((double)logits[run->ids[r][j]]);
		}
		for (uint32_t j = 0; j < 3; j++)
			ck_assert_double_eq_tol((double)run->weights[r][j],
						exp((double)logits[run->ids[r][j]]) / sum, 1e-6);
	}
	run_close(run);
	free(run);
	mtk_choice_destroy(choice);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("shape");
	TCase *tcase = tcase_create("shape");

	tcase_set_timeout(tcase, 120);
	tcase_add_test(tcase, every_kind_of_layer_is_its_definition);
	tcase_add_test(tcase, contradictions_are_refused_by_name);
	tcase_add_test(tcase, a_plan_cannot_be_run);
	tcase_add_test(tcase, every_known_preset_is_a_shape);
	tcase_add_test(tcase, a_choice_is_weighed_by_the_router);
	suite_add_tcase(suite, tcase);
	return run_suite(suite);
}
