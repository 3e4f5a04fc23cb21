/* SPDX-License-Identifier: MIT */
/*
 * The memory of a model: a list of blocks, released together. A model that is only planned counts
 * what it would take and takes nothing, by the same code, so that a plan and the model agree.
 */
#include <stdlib.h>
#include <string.h>

#include <moetrace/status.h>

#include "kernels/engine/model_internal.h"

struct mtk_block {
	struct mtk_block *next;
	void *memory;
};

int mtk_model_take(struct mtk_model *model, size_t bytes, void **ret_memory)
{
	const size_t rounded = mtk_block_bytes(bytes);
	struct mtk_block *block;

	*ret_memory = NULL;
	if (rounded < bytes || __builtin_add_overflow(model->n_bytes, rounded, &model->n_bytes))
		return MOETRACE_E_NOMEM;
	if (model->is_plan || bytes == 0)
		return MOETRACE_OK;
	block = malloc(sizeof(*block));
	if (!block)
		return MOETRACE_E_NOMEM;
	block->memory = aligned_alloc(64, rounded);
	if (!block->memory) {
		free(block);
		return MOETRACE_E_NOMEM;
	}
	/* Panels are padded with zeros. */
	memset(block->memory, 0, rounded);
	block->next = model->blocks;
	model->blocks = block;
	*ret_memory = block->memory;
	return MOETRACE_OK;
}

void mtk_model_release_memory(struct mtk_model *model)
{
	while (model->blocks) {
		struct mtk_block *block = model->blocks;

		model->blocks = block->next;
		free(block->memory);
		free(block);
	}
}
