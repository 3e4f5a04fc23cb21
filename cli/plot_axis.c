/* SPDX-License-Identifier: MIT */
/*
 * Axes: labels at round values, 1, 2 or 5 times a power of ten apart.
 */
#include "cli/plot.h"

#include <math.h>

static double round_step(double range, int n_labels)
{
	const double least = range / n_labels;
	const double power = pow(10, floor(log10(least)));

	for (int i = 0; i < 3; i++) {
		const double step = power * (i == 0 ? 1 : i == 1 ? 2 : 5);

		if (step >= least)
			return step;
	}
	return 10 * power;
}

struct mt_plot_axis mt_plot_axis_make(double low, double high, int n_labels, double from_px,
				      double to_px)
{
	struct mt_plot_axis axis = {.low = low, .from_px = from_px, .to_px = to_px};

	if (!(high > low))
		high = low + 1;
	axis.step = round_step(high - low, n_labels);
	axis.high = low + axis.step * ceil((high - low) / axis.step - 1e-9);
	return axis;
}

double mt_plot_axis_at(const struct mt_plot_axis *axis, double value)
{
	return axis->from_px +
	       (value - axis->low) / (axis->high - axis->low) * (axis->to_px - axis->from_px);
}

static int n_labels_of(const struct mt_plot_axis *axis)
{
	return (int)floor((axis->high - axis->low) / axis->step + 0.5);
}

void mt_plot_axis_draw_y(const struct mt_plot_sheet *sheet, const struct mt_plot_axis *axis,
			 double left, double right, const char *name)
{
	char text[MT_SVG_NUMBER_BYTES];

	for (int i = 0; i <= n_labels_of(axis); i++) {
		const double value = axis->low + i * axis->step;
		const double y = mt_plot_axis_at(axis, value);

		mt_svg_line(&sheet->svg, left, y, right, y, MT_SVG_LINE);
		mt_svg_text(&sheet->svg, left - 6, y + 4, MT_SVG_QUIET, MT_SVG_END, "%s",
			    mt_svg_number(value, 3, text));
	}
	mt_svg_text(&sheet->svg, left, axis->to_px - 8, MT_SVG_QUIET, MT_SVG_START, "%s", name);
}

void mt_plot_axis_draw_x(const struct mt_plot_sheet *sheet, const struct mt_plot_axis *axis,
			 double bottom, const char *name)
{
	char text[MT_SVG_NUMBER_BYTES];

	for (int i = 0; i <= n_labels_of(axis); i++) {
		const double value = axis->low + i * axis->step;

		mt_svg_text(&sheet->svg, mt_plot_axis_at(axis, value), bottom + 15, MT_SVG_QUIET,
			    MT_SVG_MIDDLE, "%s", mt_svg_number(value, 3, text));
	}
	mt_svg_text(&sheet->svg, axis->from_px, bottom + 31, MT_SVG_QUIET, MT_SVG_START, "%s",
		    name);
}
