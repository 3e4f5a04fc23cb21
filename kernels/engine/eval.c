/* SPDX-License-Identifier: MIT */
/*
 * Evaluation in lockstep. Row r of a pass is the r-th text of the batch that has not ended; slots
 * of the caches are acquired text by text, so both caches give a text the same one.
 */
#include "kernels/engine/eval.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <moetrace/moetrace.h>

#include "kernels/engine/backend.h"
#include "kernels/engine/kv_cache.h"
#include "kernels/oea/oea.h"

#define N_VOCAB 256

/* One way to run the batch: plainly, or under the rule. */
struct lane {
	void *context;
	struct mtk_kv_cache *kv; /* the context's */
	uint32_t *slots; /* [n_batch] by text of the batch */
	float *logits;	 /* [n_batch][N_VOCAB] */
};

struct sums {
	double ce;
	double kl;
};

struct eval {
	const struct mtk_model *model;
	const struct mtk_eval_text *texts;
	const struct mtk_eval_options *options;
	uint32_t n_batch;
	struct mtk_backend *backend;
	struct lane lanes[2]; /* the one that is measured; with a rule, then the plain one */
	uint32_t n_lanes;
	struct sums *sums;   /* [n_texts] */
	uint32_t *row_texts; /* [n_batch] the text of each row, within the batch */
	int32_t *token_ids;  /* [n_batch], as all that follow */
	int32_t *positions;
	uint32_t *row_slots;
	uint8_t *ones;	    /* every row decodes and wants its logits */
	uint8_t *is_active; /* [n_experts] */
	struct mtk_eval_result result;
	struct mtk_eval_layer *layers;
};

uint32_t mtk_eval_n_context(const struct mtk_eval_text *texts, size_t n_texts)
{
	size_t longest = 2;

	for (size_t i = 0; i < n_texts; i++)
		longest = texts[i].n_bytes > longest ? texts[i].n_bytes : longest;
	return longest - 1 > INT32_MAX ? 0 : (uint32_t)(longest - 1);
}

/* ---- what a pass gave ---- */

/* ln of the probabilities, in double precision. */
static void log_softmax(const float *logits, double *ret_logs)
{
	double max = logits[0], sum = 0.0;

	for (uint32_t i = 1; i < N_VOCAB; i++)
		max = logits[i] > max ? logits[i] : max;
	for (uint32_t i = 0; i < N_VOCAB; i++)
		sum += exp(logits[i] - max);
	for (uint32_t i = 0; i < N_VOCAB; i++)
		ret_logs[i] = logits[i] - max - log(sum);
}

static void row_measure(struct eval *eval, uint32_t row, unsigned char next, struct sums *sums)
{
	double logs[N_VOCAB], plain[N_VOCAB];

	log_softmax(eval->lanes[0].logits + (size_t)row * N_VOCAB, logs);
	sums->ce -= logs[next];
	if (eval->n_lanes < 2)
		return;
	log_softmax(eval->lanes[1].logits + (size_t)row * N_VOCAB, plain);
	for (uint32_t i = 0; i < N_VOCAB; i++)
		sums->kl += exp(plain[i]) * (plain[i] - logs[i]);
}

static void count_choice(void *ctx, uint32_t layer, uint32_t n_rows, uint32_t width,
			 const int32_t *ids, const float *weights)
{
	struct eval *eval = ctx;
	const struct mtk_model_config *config = mtk_model_borrow_config(eval->model);
	struct mtk_eval_layer *to = &eval->layers[layer];

	(void)weights;
	memset(eval->is_active, 0, config->n_experts);
	for (uint32_t row = 0; row < n_rows; row++) {
		uint32_t n = 0;

		for (uint32_t j = 0; j < width; j++) {
			int32_t id = ids[(size_t)row * width + j];

			n += id >= 0;
			if (id < 0 || (uint32_t)id >= config->n_experts || eval->is_active[id])
				continue;
			eval->is_active[id] = 1;
			to->n_active++;
		}
		to->tokens_below_k += n < config->top_k;
	}
}

/* ---- running ---- */

static int lane_run(struct eval *eval, uint32_t which, uint32_t n_rows, struct mtk_error *error)
{
	struct lane *lane = &eval->lanes[which];
	const struct mtk_forward_hooks hooks = {.ctx = eval, .select_experts = count_choice};
	const struct mtk_batch batch = {.n_rows = n_rows,
					.token_ids = eval->token_ids,
					.positions = eval->positions,
					.slots = eval->row_slots,
					.want_logits = eval->ones,
					.is_decode = eval->ones};
	const struct mtk_forward_result result = {.logits = lane->logits};

	for (uint32_t row = 0; row < n_rows; row++)
		eval->row_slots[row] = lane->slots[eval->row_texts[row]];
	return eval->backend->ops->forward(lane->context, &batch, which == 0 ? &hooks : NULL,
					   &result, error);
}

/* Gather the rows of the texts that still predict something at this position. */
static uint32_t rows_gather(struct eval *eval, size_t first, uint32_t n_texts, uint32_t position)
{
	uint32_t n_rows = 0;

	for (uint32_t i = 0; i < n_texts; i++) {
		const struct mtk_eval_text *text = &eval->texts[first + i];

		if (text->n_bytes < 2 || position >= text->n_bytes - 1)
			continue;
		eval->row_texts[n_rows] = i;
		eval->token_ids[n_rows] = text->bytes[position];
		eval->positions[n_rows] = (int32_t)position;
		n_rows++;
	}
	return n_rows;
}

static int slots_acquire(struct eval *eval, uint32_t n_texts, struct mtk_error *error)
{
	for (uint32_t l = 0; l < eval->n_lanes; l++)
		for (uint32_t i = 0; i < n_texts; i++) {
			struct lane *lane = &eval->lanes[l];
			int status = mtk_kv_cache_slot_acquire(lane->kv, &lane->slots[i]);

			if (status)
				return mtk_error_set(error, status,
						     "no free sequence in the cache");
		}
	return MOETRACE_OK;
}

static void slots_release(struct eval *eval, uint32_t n_texts)
{
	for (uint32_t l = 0; l < eval->n_lanes; l++)
		for (uint32_t i = 0; i < n_texts; i++)
			mtk_kv_cache_slot_release(eval->lanes[l].kv, eval->lanes[l].slots[i]);
}

static int position_run(struct eval *eval, size_t first, uint32_t n_rows, uint32_t position,
			struct mtk_error *error)
{
	for (uint32_t l = 0; l < eval->n_lanes; l++) {
		int status = lane_run(eval, l, n_rows, error);

		if (status)
			return status;
	}
	for (uint32_t row = 0; row < n_rows; row++) {
		size_t text = first + eval->row_texts[row];

		row_measure(eval, row, eval->texts[text].bytes[position + 1], &eval->sums[text]);
	}
	eval->result.n_predictions += n_rows;
	eval->result.n_passes++;
	eval->result.n_one_row_passes += n_rows == 1;
	return MOETRACE_OK;
}

/* The texts [first, first + n_texts) from their first bytes to their ends. */
static int batch_run(struct eval *eval, size_t first, uint32_t n_texts, struct mtk_error *error)
{
	int status = slots_acquire(eval, n_texts, error);
	uint32_t n_rows;

	for (uint32_t position = 0; status == MOETRACE_OK; position++) {
		n_rows = rows_gather(eval, first, n_texts, position);
		if (n_rows == 0)
			break;
		status = position_run(eval, first, n_rows, position, error);
	}
	if (status == MOETRACE_OK)
		slots_release(eval, n_texts);
	return status;
}

/* ---- memory ---- */

static int lane_allocate(struct eval *eval, struct lane *lane, const struct mtk_oea *oea,
			 uint32_t n_context, struct mtk_error *error)
{
	const uint32_t n_batch = eval->n_batch;
	const struct mtk_context_settings settings = {
		.n_slots = n_batch,
		.n_context = n_context,
		.n_rows_max = n_batch,
		.n_threads = eval->options->n_threads,
		.oea = oea,
	};
	int status = eval->backend->ops->context_create(eval->backend, &settings, &lane->context,
							error);

	if (status)
		return status;
	lane->kv = eval->backend->ops->cache(lane->context);
	lane->slots = calloc(n_batch, sizeof(*lane->slots));
	lane->logits = calloc(n_batch, N_VOCAB * sizeof(*lane->logits));
	if (!lane->slots || !lane->logits)
		return mtk_error_set(error, MOETRACE_E_NOMEM, "out of memory");
	return MOETRACE_OK;
}

static int eval_allocate(struct eval *eval, size_t n_texts, struct mtk_error *error)
{
	const uint32_t n_context = mtk_eval_n_context(eval->texts, n_texts);
	const uint32_t n_batch = eval->n_batch;
	int status;

	eval->sums = calloc(n_texts, sizeof(*eval->sums));
	eval->row_texts = calloc(n_batch, sizeof(*eval->row_texts));
	eval->token_ids = calloc(n_batch, sizeof(*eval->token_ids));
	eval->positions = calloc(n_batch, sizeof(*eval->positions));
	eval->row_slots = calloc(n_batch, sizeof(*eval->row_slots));
	eval->ones = malloc(n_batch);
	eval->is_active = calloc(mtk_model_borrow_config(eval->model)->n_experts, 1);
	if (!eval->sums || !eval->row_texts || !eval->token_ids || !eval->positions ||
	    !eval->row_slots || !eval->ones || !eval->is_active)
		return mtk_error_set(error, MOETRACE_E_NOMEM, "out of memory");
	memset(eval->ones, 1, n_batch);
	status = lane_allocate(eval, &eval->lanes[0], eval->options->oea, n_context, error);
	if (status == MOETRACE_OK && eval->n_lanes == 2)
		status = lane_allocate(eval, &eval->lanes[1], NULL, n_context, error);
	return status;
}

static void eval_release(struct eval *eval)
{
	for (uint32_t l = 0; l < 2; l++) {
		if (eval->lanes[l].context)
			eval->backend->ops->context_destroy(eval->lanes[l].context);
		free(eval->lanes[l].slots);
		free(eval->lanes[l].logits);
	}
	free(eval->sums);
	free(eval->row_texts);
	free(eval->token_ids);
	free(eval->positions);
	free(eval->row_slots);
	free(eval->ones);
	free(eval->is_active);
}

static int ce_order(const void *left, const void *right)
{
	const struct sums *a = left, *b = right;

	return (a->ce > b->ce) - (a->ce < b->ce);
}

static int kl_order(const void *left, const void *right)
{
	const struct sums *a = left, *b = right;

	return (a->kl > b->kl) - (a->kl < b->kl);
}

/* The means; sums are added in an order that is theirs, not the texts'. */
static void result_finish(struct eval *eval, size_t n_texts)
{
	double ce = 0.0, kl = 0.0;

	qsort(eval->sums, n_texts, sizeof(*eval->sums), ce_order);
	for (size_t i = 0; i < n_texts; i++)
		ce += eval->sums[i].ce;
	qsort(eval->sums, n_texts, sizeof(*eval->sums), kl_order);
	for (size_t i = 0; i < n_texts; i++)
		kl += eval->sums[i].kl;
	eval->result.ce_nats = ce / (double)eval->result.n_predictions;
	eval->result.kl_nats = kl / (double)eval->result.n_predictions;
}

int mtk_eval_run(const struct mtk_model *model, const struct mtk_eval_text *texts, size_t n_texts,
		 const struct mtk_eval_options *options, struct mtk_eval_result *ret_result,
		 struct mtk_eval_layer *ret_layers, struct mtk_error *error)
{
	const struct mtk_model_config *config = mtk_model_borrow_config(model);
	struct mtk_backend cpu = mtk_backend_cpu(model);
	struct eval eval = {
		.model = model,
		.backend = options->backend ? options->backend : &cpu,
		.texts = texts,
		.options = options,
		.n_batch = options->n_batch < n_texts ? options->n_batch : (uint32_t)n_texts,
		.n_lanes = options->oea ? 2 : 1,
		.layers = ret_layers,
	};
	int status;

	if (config->n_vocab != N_VOCAB)
		return mtk_error_set(error, MOETRACE_E_UNSUPPORTED,
				     "the model has a vocabulary of %u, texts are read as bytes; "
				     "give a model with a vocabulary of 256",
				     config->n_vocab);
	if (eval.n_batch == 0)
		return mtk_error_set(error, MOETRACE_E_INVALID, "there is no text to run");
	memset(ret_layers, 0, config->n_layers * sizeof(*ret_layers));
	status = eval_allocate(&eval, n_texts, error);
	for (size_t first = 0; status == MOETRACE_OK && first < n_texts; first += eval.n_batch) {
		size_t left = n_texts - first;

		status = batch_run(&eval, first,
				   left < eval.n_batch ? (uint32_t)left : eval.n_batch, error);
	}
	if (status == MOETRACE_OK && eval.result.n_predictions == 0)
		status = mtk_error_set(error, MOETRACE_E_INVALID,
				       "no text has two bytes: there is nothing to predict");
	if (status == MOETRACE_OK) {
		result_finish(&eval, n_texts);
		*ret_result = eval.result;
	}
	eval_release(&eval);
	return status;
}
