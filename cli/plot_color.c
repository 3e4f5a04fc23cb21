/* SPDX-License-Identifier: MIT */
/*
 * The two maps of colours, as points between which is mixed, and where a value lies on them. Points
 * and formulas are those of the page, so that a picture of either shows the same colours.
 */
#include "cli/plot_color.h"

#include <math.h>
#include <stddef.h>

/* Evenly spaced points of the cividis map (Nunez, Anderton, Renslow 2018). */
static const uint8_t amount[][3] = {
	{0, 32, 77},	 {0, 48, 111},	  {42, 64, 108},   {72, 80, 108},
	{97, 96, 110},	 {119, 113, 116}, {142, 131, 120}, {167, 149, 119},
	{193, 169, 112}, {221, 190, 97},  {255, 233, 69},
};
static const uint8_t difference[][3] = {
	{5, 80, 160},	 {60, 130, 195},  {140, 180, 215}, {205, 215, 222}, {225, 225, 225},
	{230, 212, 190}, {240, 175, 110}, {225, 125, 40},  {170, 75, 0},
};

static uint32_t mix(const uint8_t (*points)[3], size_t n_points, int index)
{
	const double at = index / (MT_PLOT_COLORS - 1.0) * (double)(n_points - 1);
	const size_t whole = (size_t)at < n_points - 2 ? (size_t)at : n_points - 2;
	uint32_t color = 0;

	for (int i = 0; i < 3; i++) {
		const double from = points[whole][i], to = points[whole + 1][i];

		color = color << 8 |
			(uint32_t)floor(from + (to - from) * (at - (double)whole) + 0.5);
	}
	return color;
}

uint32_t mt_plot_color(int index, bool is_difference)
{
	return is_difference ? mix(difference, sizeof(difference) / sizeof(difference[0]), index)
			     : mix(amount, sizeof(amount) / sizeof(amount[0]), index);
}

static double within(double value, double low, double high)
{
	return value < low ? low : value > high ? high : value;
}

static int nearest(double value)
{
	return (int)floor(value + 0.5);
}

/* The mean in the middle; half and double are as far from it. */
static int difference_index(double value, double to)
{
	const double at = value > 0 ? log2(value) / log2(fmax(2, to)) : -1;

	return nearest((within(at, -1, 1) + 1) * 127.5);
}

static int log_index(double value, const struct mt_plot_scale *scale)
{
	double range = log(scale->to / scale->from);

	if (value <= 0)
		return 0;
	if (!(range != 0)) /* NaN, too */
		range = 1;
	return nearest(within(log(value / scale->from) / range, 0, 1) * 254) + 1;
}

int mt_plot_color_index(double value, const struct mt_plot_scale *scale)
{
	if (!(value >= 0)) /* NaN, too */
		return -1;
	if (scale->is_difference)
		return difference_index(value, scale->to);
	return scale->is_log ? log_index(value, scale)
			     : nearest(within(value / scale->to, 0, 1) * 255);
}
