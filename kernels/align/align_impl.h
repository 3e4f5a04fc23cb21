/* SPDX-License-Identifier: MIT */
/* What the definition of alignment and its fast path share: the meaning of an id. */
#ifndef MTK_ALIGN_ALIGN_IMPL_H
#define MTK_ALIGN_ALIGN_IMPL_H

#include "kernels/align/align.h"

/* The expert of an id, or -1. A negative id is too large as an unsigned number. */
static inline int32_t align_expert_of(const struct mtk_align_settings *settings, int32_t id)
{
	if (!settings->expert_map)
		return (uint32_t)id < settings->n_experts ? id : -1;
	return (uint32_t)id < settings->n_ids ? settings->expert_map[id] : -1;
}

#endif
