/* SPDX-License-Identifier: MIT */
/* Between the two halves of making a shape: the sizes (shape.c) and the weights (shape_fill.c). */
#ifndef MTK_ENGINE_SHAPE_INTERNAL_H
#define MTK_ENGINE_SHAPE_INTERNAL_H

#include "kernels/engine/shape.h"

/*
 * Take and fill all weights of a model whose sizes are set, or count them if it is a plan:
 * MOETRACE_OK or MOETRACE_E_NOMEM.
 */
int mtk_shape_build(struct mtk_model *model, const struct mtk_shape_settings *settings,
		    struct mtk_error *error);

#endif
