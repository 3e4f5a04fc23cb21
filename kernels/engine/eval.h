/* SPDX-License-Identifier: MIT */
/*
 * Evaluation of a model on texts, as if they were being decoded: the texts of a batch advance in
 * lockstep, one position a pass, and every row is a decode row. A text of n bytes gives n - 1
 * predictions, each by the bytes before it. The first n_batch texts make the first batch, the next
 * ones the next; a text that has ended leaves its batch, and nothing takes its place.
 *
 * Under a rule every position runs twice: plainly and under the rule, each with a cache of its own.
 * So the two distributions that the divergence compares come from runs that are plain or ruled
 * from the first position on, as two servers would have given them.
 *
 * Results do not depend on threads, nor, within a batch, on the order of the texts: sums are kept a
 * text and added up by size.
 */
#ifndef MTK_ENGINE_EVAL_H
#define MTK_ENGINE_EVAL_H

#include <stddef.h>
#include <stdint.h>

#include "kernels/engine/error.h"
#include "kernels/engine/model.h"

struct mtk_oea;

struct mtk_eval_text {
	const unsigned char *bytes;
	size_t n_bytes; /* one byte gives no prediction */
};

struct mtk_backend;

struct mtk_eval_options {
	struct mtk_backend *backend; /* of the model; NULL: the CPU */
	uint32_t n_batch;
	uint32_t n_threads;
	const struct mtk_oea *oea; /* fits the model; NULL: no rule */
};

struct mtk_eval_layer {
	uint64_t n_active;	 /* experts, summed over passes */
	uint64_t tokens_below_k; /* rows with fewer experts than the router chooses */
};

struct mtk_eval_result {
	double ce_nats; /* mean over predictions of -ln of the next byte's probability */
	double kl_nats; /* mean of KL(plain || rule); 0 without a rule */
	uint64_t n_predictions;
	uint64_t n_passes;
	uint64_t n_one_row_passes; /* there a rule can only prune */
};

/* The positions that a model needs for the texts, at least 1; 0: a text is too long for any. */
uint32_t mtk_eval_n_context(const struct mtk_eval_text *texts, size_t n_texts);

/**
 * Run all texts.
 *
 * @model       Made for at least mtk_eval_n_context() positions.
 * @ret_layers  [the model's layers]
 *
 * Returns  MOETRACE_OK
 *          MOETRACE_E_UNSUPPORTED  the vocabulary does not have 256 entries
 *          MOETRACE_E_INVALID      nothing can be predicted, or a size is out of range
 *          MOETRACE_E_LIMIT        no thread can be made
 *          MOETRACE_E_NOMEM
 */
int mtk_eval_run(const struct mtk_model *model, const struct mtk_eval_text *texts, size_t n_texts,
		 const struct mtk_eval_options *options, struct mtk_eval_result *ret_result,
		 struct mtk_eval_layer *ret_layers, struct mtk_error *error);

#endif
