/* SPDX-License-Identifier: MIT */
/* What can be asked of a model, and its end. */
#include <stdlib.h>

#include "kernels/engine/expert_pool.h"
#include "kernels/engine/model_internal.h"

void mtk_model_destroy(struct mtk_model *model)
{
	if (!model)
		return;
	mtk_model_release_memory(model);
	mtk_expert_pool_destroy(model->pool);
	free(model);
}

struct mtk_moe mtk_moe_make(const struct mtk_route_config *route, uint32_t n_hidden,
			    uint32_t n_intermediate)
{
	return (struct mtk_moe){
		.n_columns = mtk_route_columns(route),
		.width = mtk_route_width(route),
		.n_experts = route->n_experts + route->n_shared_slots,
		.n_in = n_hidden,
		.n_intermediate = n_intermediate,
		.n_gate_up = 2 * n_intermediate,
	};
}

const struct mtk_model_config *mtk_model_borrow_config(const struct mtk_model *model)
{
	return &model->config;
}

const struct mtk_preset *mtk_model_preset(const struct mtk_model *model)
{
	return model->preset;
}

const char *mtk_model_cpu_name(const struct mtk_model *model)
{
	return model->ops->name;
}

size_t mtk_model_weight_bytes(const struct mtk_model *model)
{
	return model->weight_bytes;
}

size_t mtk_model_bytes(const struct mtk_model *model)
{
	return model->n_bytes + model->pool_bytes;
}

size_t mtk_model_expert_pool_bytes(const struct mtk_model *model)
{
	return model->pool_bytes;
}

size_t mtk_model_expert_weight_bytes(const struct mtk_model *model)
{
	const struct mtk_moe *moe = &model->moe;
	const struct mtk_matrix *gate_up = model->layers[0].gate_up;
	/* A plan has no experts; a shape's weights are of this type. */
	const enum mtk_dtype dtype = gate_up ? gate_up->dtype : MTK_DTYPE_BF16;

	return mtk_matrix_bytes(dtype, moe->n_gate_up, moe->n_in) +
	       mtk_matrix_bytes(dtype, moe->n_in, moe->n_intermediate);
}

void mtk_model_layer(const struct mtk_model *model, uint32_t index, struct mtk_layer_info *ret_info)
{
	const struct mtk_layer *layer = &model->layers[index];

	*ret_info = (struct mtk_layer_info){
		.number = layer->number,
		.is_hash = layer->is_hash,
		.route = &layer->route,
		.has_vectors = model->ops != mtk_cpu_ops_find(MTK_CPU_PLAIN),
		.correction_bias = layer->correction_bias,
	};
}
