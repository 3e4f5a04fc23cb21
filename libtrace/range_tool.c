/* SPDX-License-Identifier: MIT */
/*
 * Names are registered when the session opens, so that the hot path hands over numbers alone.
 */
#include "libtrace/range_tool.h"

#include <string.h>

void mt_range_tool_open(struct mt_range_tool *tool)
{
	static const char *const phases[MT_N_TOOL_PHASES] = {
		"pass", "prefill", "decode", "mixed", "verify", "draft", "idle", "dummy",
	};
	const struct mt_range_tool_ops *ops = &mtc_range_tool;

	memset(tool, 0, sizeof(*tool));
	if (!ops->open())
		return;
	for (uint32_t i = 0; i < MT_N_TOOL_PHASES; i++)
		tool->phases[i] = ops->name(phases[i]);
	tool->layer = ops->name("layer");
	tool->recording_name = ops->name("recording");
	tool->ops = ops;
	mt_tool_begin(tool, ops->name("session"), 0, &tool->session);
}

void mt_range_tool_close(struct mt_range_tool *tool)
{
	mt_tool_end(tool, &tool->recording);
	mt_tool_end(tool, &tool->session);
}
