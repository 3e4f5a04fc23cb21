/* SPDX-License-Identifier: MIT */
/*
 * What a session also tells a tool that listens to ranges (collectors/nvtx): itself, its recordings,
 * passes, layers as they are selected, and the runtime's own ranges. Nothing where no tool listens.
 * Begin, end and mark belong to the hot path; what the tool does in them is what its user asked for.
 */
#ifndef MT_RANGE_TOOL_H
#define MT_RANGE_TOOL_H

#include <stddef.h>
#include <stdint.h>

#include "libtrace/collector.h"

#define MT_N_TOOL_PHASES 8u

/* A range of the tool's; is_open 0: none. */
struct mt_tool_range {
	uint64_t number;
	uint32_t is_open;
};

struct mt_range_tool {
	const struct mt_range_tool_ops *ops; /* NULL: none listens */
	void *phases[MT_N_TOOL_PHASES];      /* handles of names */
	void *layer;
	void *recording_name;
	struct mt_tool_range session;
	struct mt_tool_range recording; /* under the session's control */
};

/* Look for a tool. */
void mt_range_tool_open(struct mt_range_tool *tool);
void mt_range_tool_close(struct mt_range_tool *tool);

static inline void mt_tool_begin(const struct mt_range_tool *tool, void *name, uint64_t payload,
				 struct mt_tool_range *ret_range)
{
	ret_range->is_open = tool->ops != NULL;
	if (__builtin_expect(tool->ops != NULL, 0))
		ret_range->number = tool->ops->begin(name, payload);
}

static inline void mt_tool_end(const struct mt_range_tool *tool, struct mt_tool_range *range)
{
	if (__builtin_expect(range->is_open, 0))
		tool->ops->end(range->number);
	range->is_open = 0;
}

#endif
