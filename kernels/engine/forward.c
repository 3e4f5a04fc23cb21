/* SPDX-License-Identifier: MIT */
/*
 * The forward pass. Each layer is a sequence of parallel loops over rows, panels of outputs, heads
 * or experts; how a loop is cut depends on sizes and threads, but the value of an element never
 * does. All keys and values of the batch are stored before any row of it attends, and a row reads
 * the positions up to its own, so a prompt may be cut into chunks anywhere.
 */
#include <math.h>

#include <moetrace/status.h>

#include "kernels/embed/embed.h"
#include "kernels/engine/forward_internal.h"
#include "kernels/engine/kv_layout.h"
#include "kernels/rope/rope.h"

/*
 * Multiply-adds that are worth handing to another thread, some microseconds of them: below it a
 * loop runs on the caller alone, and no piece is made smaller.
 */
#define PIECE_COST 32768u

/* Rows of one piece of a linear operation: their inputs stay in the first-level cache. */
#define GEMM_ROWS 48u

static uint32_t min_u32(uint32_t a, uint32_t b)
{
	return a < b ? a : b;
}

uint32_t mtk_pass_grain(const struct mtk_pass *pass, uint32_t n, uint64_t item_cost)
{
	uint64_t least = PIECE_COST / (item_cost + 1) + 1;
	uint32_t share = n / (4 * mtk_threads_count(pass->threads)) + 1;

	return least < share ? share : (uint32_t)least;
}

void mtk_pass_loop(struct mtk_pass *pass, uint32_t n, uint64_t item_cost, mtk_task_fn fn, void *arg)
{
	mtk_threads_run(pass->threads, n, mtk_pass_grain(pass, n, item_cost), fn, arg);
}

/* A linear operation over a batch, cut into blocks of rows x groups of panels. */
struct linear {
	mtk_gemm_fn gemm;
	struct mtk_gemm args;
	uint32_t n_rows;
	uint32_t n_row_blocks;
};

/* Four panels, the width that the vector paths like best, of one block of rows. */
static void linear_task(void *arg, uint32_t begin, uint32_t end)
{
	const struct linear *linear = arg;
	const uint32_t n_panels = mtk_panel_count(linear->args.weights->n_out);

	for (uint32_t i = begin; i < end; i++) {
		uint32_t row = i % linear->n_row_blocks * GEMM_ROWS;
		uint32_t panel = i / linear->n_row_blocks * 4;

		linear->gemm(&linear->args, row, min_u32(row + GEMM_ROWS, linear->n_rows), panel,
			     min_u32(panel + 4, n_panels));
	}
}

void mtk_pass_linear(struct mtk_pass *pass, const struct mtk_matrix *weights, uint32_t n_rows,
		     const float *x, size_t x_stride, float *y, bool accumulate)
{
	struct linear linear = {
		.gemm = pass->model->ops->gemm,
		.args = {
			.weights = weights,
			.x = x,
			.x_stride = x_stride,
			.y = y,
			.y_stride = weights->n_out,
			.accumulate = accumulate,
		},
		.n_rows = n_rows,
		.n_row_blocks = (n_rows + GEMM_ROWS - 1) / GEMM_ROWS,
	};
	uint32_t n_groups = (mtk_panel_count(weights->n_out) + 3) / 4;
	uint64_t cost = (uint64_t)min_u32(n_rows, GEMM_ROWS) * 4 * MTK_PANEL * weights->n_in;

	mtk_pass_loop(pass, n_groups * linear.n_row_blocks, cost, linear_task, &linear);
}

struct norm {
	const struct mtk_pass *pass;
	const float *weight;
	const float *x;
	const uint32_t *x_rows;		/* the row of x that row r reads; NULL: r */
};

static void norm_task(void *arg, uint32_t begin, uint32_t end)
{
	const struct norm *norm = arg;
	const struct mtk_model *model = norm->pass->model;
	const size_t n = model->config.n_hidden;

	for (uint32_t row = begin; row < end; row++)
		model->ops->rmsnorm(norm->x + n * (norm->x_rows ? norm->x_rows[row] : row),
				    norm->weight, (uint32_t)n, model->config.rms_norm_eps,
				    norm->pass->workspace->normed + n * row);
}

void mtk_pass_norm(struct mtk_pass *pass, const float *weight, uint32_t n_rows,
		   const uint32_t *x_rows)
{
	struct norm norm = {pass, weight, pass->workspace->hidden, x_rows};

	mtk_pass_loop(pass, n_rows, pass->model->config.n_hidden, norm_task, &norm);
}

/* Norm and turn one query or key head, in place. */
static void prepare_head(const struct mtk_pass *pass, const float *norm, uint32_t position,
			 float *head)
{
	const struct mtk_model *model = pass->model;
	const uint32_t head_dim = model->config.head_dim;
	const size_t turn = (size_t)position * (head_dim / 2);

	model->ops->rmsnorm(head, norm, head_dim, model->config.rms_norm_eps, head);
	mtk_rope_plain(model->cosines + turn, model->sines + turn, head_dim, head);
}

static void store_key_value(const struct mtk_pass *pass, uint32_t slot, uint32_t position,
			    uint32_t head, const float *key, const float *value)
{
	const struct mtk_kv_cache *kv = pass->kv;
	float *keys = mtk_kv_keys(kv, pass->layer_number, slot, head);
	float *values = mtk_kv_values(kv, pass->layer_number, slot, head) +
			(size_t)position * kv->value_stride;

	keys += mtk_key_offset(kv->head_dim, position, 0);
	for (uint32_t d = 0; d < kv->head_dim; d++) {
		keys[(size_t)d * MTK_KEY_BLOCK] = key[d];
		values[d] = value[d];
	}
}

/* Prepare the heads of a row and store its keys and values. */
static void prepare_task(void *arg, uint32_t begin, uint32_t end)
{
	const struct mtk_pass *pass = arg;
	const struct mtk_model_config *config = &pass->model->config;
	const size_t head_dim = config->head_dim;

	for (uint32_t row = begin; row < end; row++) {
		float *query = pass->workspace->qkv + (size_t)row * mtk_model_qkv_width(config);
		float *key = query + config->n_heads * head_dim;
		float *value = key + config->n_kv_heads * head_dim;
		uint32_t position = (uint32_t)pass->batch->positions[row];

		for (uint32_t h = 0; h < config->n_heads; h++)
			prepare_head(pass, pass->layer->query_norm, position, query + h * head_dim);
		for (uint32_t h = 0; h < config->n_kv_heads; h++) {
			prepare_head(pass, pass->layer->key_norm, position, key + h * head_dim);
			store_key_value(pass, pass->batch->slots[row], position, h,
					key + h * head_dim, value + h * head_dim);
		}
	}
}

/* The query heads of one row that share one key/value head. */
static void attend_group(const struct mtk_pass *pass, uint32_t row, uint32_t kv_head)
{
	const struct mtk_model_config *config = &pass->model->config;
	const uint32_t n_group = config->n_heads / config->n_kv_heads;
	const uint32_t slot = pass->batch->slots[row];
	const size_t offset = (size_t)kv_head * n_group * config->head_dim;
	const struct mtk_attention attention = {
		.queries = pass->workspace->qkv +
			   (size_t)row * mtk_model_qkv_width(config) + offset,
		.n_queries = n_group,
		.keys = mtk_kv_keys(pass->kv, pass->layer_number, slot, kv_head),
		.values = mtk_kv_values(pass->kv, pass->layer_number, slot, kv_head),
		.head_dim = config->head_dim,
		.value_stride = pass->kv->value_stride,
		.n_positions = (uint32_t)pass->batch->positions[row] + 1,
		.scale = 1.0f / sqrtf((float)config->head_dim),
		.out = pass->workspace->attention +
		       (size_t)row * config->n_heads * config->head_dim + offset,
	};

	pass->model->ops->attention(&attention);
}

static void attend_task(void *arg, uint32_t begin, uint32_t end)
{
	const struct mtk_pass *pass = arg;
	const uint32_t n_kv_heads = pass->model->config.n_kv_heads;

	for (uint32_t i = begin; i < end; i++)
		attend_group(pass, i / n_kv_heads, i % n_kv_heads);
}

static uint64_t mean_positions(const struct mtk_batch *batch)
{
	uint64_t sum = 0;

	for (uint32_t row = 0; row < batch->n_rows; row++)
		sum += (uint64_t)batch->positions[row] + 1;
	return sum / batch->n_rows;
}

static void run_attention(struct mtk_pass *pass)
{
	const struct mtk_model_config *config = &pass->model->config;
	struct mtk_workspace *workspace = pass->workspace;
	const uint32_t n_rows = pass->batch->n_rows;
	const uint64_t cost = mean_positions(pass->batch) * 2 * config->head_dim *
			      (config->n_heads / config->n_kv_heads);

	mtk_pass_norm(pass, pass->layer->input_norm, n_rows, NULL);
	mtk_pass_lap(pass, MTK_OP_INPUT_NORM, pass->layer_number);
	mtk_pass_linear(pass, &pass->layer->qkv, n_rows, workspace->normed, config->n_hidden,
			workspace->qkv, false);
	mtk_pass_lap(pass, MTK_OP_QKV, pass->layer_number);
	mtk_pass_loop(pass, n_rows, 4 * (uint64_t)mtk_model_qkv_width(config), prepare_task, pass);
	mtk_pass_loop(pass, n_rows * config->n_kv_heads, cost, attend_task, pass);
	mtk_pass_lap(pass, MTK_OP_ATTENTION, pass->layer_number);
	mtk_pass_linear(pass, &pass->layer->output, n_rows, workspace->attention,
			(size_t)config->n_heads * config->head_dim, workspace->hidden, true);
	mtk_pass_lap(pass, MTK_OP_OUTPUT, pass->layer_number);
}

static void run_embedding(struct mtk_pass *pass)
{
	const struct mtk_model *model = pass->model;
	const struct mtk_batch *batch = pass->batch;

	for (size_t row = 0; row < batch->n_rows; row++)
		mtk_embed(&model->embedding, (uint32_t)batch->token_ids[row],
			  pass->workspace->hidden + row * model->config.n_hidden);
}

static void run_head(struct mtk_pass *pass, float *ret_logits)
{
	const struct mtk_model *model = pass->model;
	const struct mtk_matrix *head = model->head.data ? &model->head : &model->embedding;
	struct mtk_workspace *workspace = pass->workspace;
	uint32_t n_wanted = 0;

	for (uint32_t row = 0; pass->batch->want_logits && row < pass->batch->n_rows; row++)
		if (pass->batch->want_logits[row])
			workspace->wanted_rows[n_wanted++] = row;
	if (n_wanted == 0)
		return;
	mtk_pass_norm(pass, model->final_norm, n_wanted, workspace->wanted_rows);
	mtk_pass_linear(pass, head, n_wanted, workspace->normed, model->config.n_hidden, ret_logits,
			false);
	mtk_pass_lap(pass, MTK_OP_HEAD, MTK_NO_LAYER);
}

static bool wants_logits(const struct mtk_batch *batch)
{
	for (uint32_t row = 0; batch->want_logits && row < batch->n_rows; row++)
		if (batch->want_logits[row])
			return true;
	return false;
}

static int begin_append(const struct mtk_pass *pass, const float *ret_logits)
{
	if (pass->model->is_plan || pass->batch->n_rows > pass->workspace->n_rows_max ||
	    (!ret_logits && wants_logits(pass->batch)))
		return MOETRACE_E_INVALID;
	return mtk_kv_append_begin(pass->kv, &pass->model->config, pass->batch);
}

int mtk_model_forward(const struct mtk_model *model, struct mtk_workspace *workspace,
		      struct mtk_kv_cache *kv, struct mtk_threads *threads,
		      const struct mtk_batch *batch, const struct mtk_forward_hooks *hooks,
		      float *ret_logits)
{
	struct mtk_pass pass = {
		.model = model,
		.workspace = workspace,
		.kv = kv,
		.threads = threads,
		.batch = batch,
		.hooks = hooks,
		.has_decode = mtk_batch_has_decode(batch),
	};
	int status = begin_append(&pass, ret_logits);

	if (status || batch->n_rows == 0)
		return status;
	mtk_pass_lap(&pass, MTK_OP_NONE, MTK_NO_LAYER);
	run_embedding(&pass);
	mtk_pass_lap(&pass, MTK_OP_EMBED, MTK_NO_LAYER);
	for (uint32_t i = 0; i < model->config.n_layers; i++) {
		pass.layer_number = i;
		pass.layer = &model->layers[i];
		run_attention(&pass);
		mtk_pass_moe(&pass);
	}
	run_head(&pass, ret_logits);
	mtk_kv_append_end(kv, batch, true);
	return MOETRACE_OK;
}
