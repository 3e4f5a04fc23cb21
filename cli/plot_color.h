/* SPDX-License-Identifier: MIT */
/*
 * Colours of values, those of the page (viewer/page/src/color.ts): cividis for amounts, and a scale
 * of blue, grey and orange for differences.
 */
#ifndef MT_CLI_PLOT_COLOR_H
#define MT_CLI_PLOT_COLOR_H

#include <stdbool.h>
#include <stdint.h>

#define MT_PLOT_COLORS 256

struct mt_plot_scale {
	double from, to; /* of a difference: by how many times its ends are from the mean */
	bool is_log, is_difference;
};

/* 0xrrggbb of one of MT_PLOT_COLORS colours. */
uint32_t mt_plot_color(int index, bool is_difference);

/* Which of the colours a value has; -1: none, it is not known. */
int mt_plot_color_index(double value, const struct mt_plot_scale *scale);

#endif
