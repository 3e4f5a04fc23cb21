/* SPDX-License-Identifier: MIT */
/* The model of a file, for the verbs that run the engine. */
#ifndef MT_CLI_MODEL_LOAD_H
#define MT_CLI_MODEL_LOAD_H

#include <stdint.h>

#include "kernels/engine/model.h"

/**
 * Load a model for sequences of up to @n_context positions.
 *
 * @ret_model  To be released with mtk_model_destroy().
 *
 * Returns MT_EXIT_OK, or MT_EXIT_NOT_FOUND (no such file) or MT_EXIT_FAILED after one line on
 * standard error.
 */
int mt_model_load(const char *path, uint32_t n_context, struct mtk_model **ret_model);

struct mtk_oea;

/* MT_EXIT_OK where the rule fits the model or is NULL; else MT_EXIT_USAGE after an error line. */
int mt_model_rule_check(const struct mtk_model *model, const struct mtk_oea *oea);

#endif
