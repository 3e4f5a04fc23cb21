/* SPDX-License-Identifier: MIT */
/*
 * The sign-flip test of diff_shift.h. Every exchange has its own sums of all experts; a part of a
 * request touches those of the experts that its two sides chose differently often, which are few.
 */
#include <sqlite3ext.h>
SQLITE_EXTENSION_INIT3

#include "diff_shift.h"

#include <math.h>
#include <string.h>

/* Fewer make no test. */
enum { MIN_FLIPS = 49, MAX_FLIPS = 499 };
static const size_t max_loads_bytes = (size_t)32 << 20;

static size_t n_cells(const struct mt_diff_shift *shift)
{
	return shift->first_cell[shift->diff->n_layers];
}

int mt_diff_shift_begin(struct mt_diff_shift *shift, const struct mt_diff *diff)
{
	const size_t n_layers = diff->n_layers;
	size_t n_flips;

	memset(shift, 0, sizeof(*shift));
	shift->diff = diff;
	shift->first_cell = mt_diff_zeroed(n_layers + 1, sizeof(*shift->first_cell));
	if (!shift->first_cell)
		return SQLITE_NOMEM;
	for (size_t i = 0; i < n_layers; i++)
		shift->first_cell[i + 1] = shift->first_cell[i] + diff->layers[i].n_choices;
	n_flips = max_loads_bytes / ((n_cells(shift) + 1) * sizeof(*shift->loads));
	shift->n_flips = n_flips < MIN_FLIPS   ? 0
			 : n_flips > MAX_FLIPS ? MAX_FLIPS
					       : (uint32_t)n_flips;
	shift->loads = mt_diff_zeroed(n_cells(shift) * (shift->n_flips + 1), sizeof(*shift->loads));
	shift->part = mt_diff_zeroed(n_cells(shift), sizeof(*shift->part));
	shift->signs = mt_diff_zeroed(shift->n_flips + 1, sizeof(*shift->signs));
	shift->shifts = mt_diff_zeroed((n_layers + 1) * (shift->n_flips + 1),
				       sizeof(*shift->shifts));
	shift->n_choices = mt_diff_zeroed(n_layers, sizeof(*shift->n_choices));
	return shift->loads && shift->part && shift->signs && shift->shifts && shift->n_choices
		       ? SQLITE_OK
		       : SQLITE_NOMEM;
}

void mt_diff_shift_end(struct mt_diff_shift *shift)
{
	sqlite3_free(shift->first_cell);
	sqlite3_free(shift->loads);
	sqlite3_free(shift->part);
	sqlite3_free(shift->signs);
	sqlite3_free(shift->shifts);
	sqlite3_free(shift->n_choices);
	memset(shift, 0, sizeof(*shift));
}

void mt_diff_shift_row(struct mt_diff_shift *shift, size_t layer, const struct mt_diff_row *a,
		       const struct mt_diff_row *b)
{
	int32_t *part = shift->part + shift->first_cell[layer];

	for (uint32_t i = 0; i < a->n; i++)
		part[mt_diff_row_ids(a)[i]]--;
	for (uint32_t i = 0; i < b->n; i++)
		part[mt_diff_row_ids(b)[i]]++;
	shift->n_choices[layer] += a->n > b->n ? a->n : b->n;
	shift->has_rows = true;
}

/* splitmix64: of consecutive numbers it makes random ones. */
static uint64_t scramble(uint64_t number)
{
	number = (number + 1) * 0x9e3779b97f4a7c15u;
	number = (number ^ number >> 30) * 0xbf58476d1ce4e5b9u;
	number = (number ^ number >> 27) * 0x94d049bb133111ebu;
	return number ^ number >> 31;
}

void mt_diff_shift_part(struct mt_diff_shift *shift, size_t number)
{
	const size_t n_sums = shift->n_flips + 1;

	if (!shift->has_rows)
		return;
	shift->has_rows = false;
	shift->signs[0] = 1;
	for (uint32_t i = 1; i <= shift->n_flips; i++)
		shift->signs[i] = scramble((uint64_t)number * MAX_FLIPS + i) & 1 ? 1 : -1;
	for (size_t cell = 0; cell < n_cells(shift); cell++) {
		const int32_t tokens = shift->part[cell];
		int32_t *loads = shift->loads + cell * n_sums;

		if (tokens == 0)
			continue;
		for (size_t i = 0; i < n_sums; i++)
			loads[i] += shift->signs[i] * tokens;
		shift->part[cell] = 0;
	}
}

void mt_diff_shift_settle(struct mt_diff_shift *shift)
{
	const size_t n_sums = shift->n_flips + 1, n_layers = shift->diff->n_layers;
	double *all = shift->shifts + n_layers * n_sums;
	uint64_t n_all = 0;

	for (size_t layer = 0; layer < n_layers; layer++) {
		double *shifts = shift->shifts + layer * n_sums;

		n_all += shift->n_choices[layer];
		for (size_t cell = shift->first_cell[layer]; cell < shift->first_cell[layer + 1];
		     cell++)
			for (size_t i = 0; i < n_sums; i++)
				shifts[i] += 0.5 * fabs((double)shift->loads[cell * n_sums + i]);
		for (size_t i = 0; i < n_sums; i++) {
			all[i] += shifts[i];
			if (shift->n_choices[layer] > 0)
				shifts[i] /= (double)shift->n_choices[layer];
		}
	}
	for (size_t i = 0; i < n_sums && n_all > 0; i++)
		all[i] /= (double)n_all;
}

/* Sums that differ by rounding alone are equal. */
static bool is_as_large(double value, double than)
{
	return value >= than - 1e-12 * fabs(than);
}

static void moments(const struct mt_diff_shift *shift, size_t layer, double *ret_mean,
		    double *ret_deviation)
{
	const double *shifts = shift->shifts + layer * (shift->n_flips + 1);
	double sum = 0, squares = 0;

	for (uint32_t i = 1; i <= shift->n_flips; i++)
		sum += shifts[i];
	*ret_mean = sum / shift->n_flips;
	for (uint32_t i = 1; i <= shift->n_flips; i++)
		squares += (shifts[i] - *ret_mean) * (shifts[i] - *ret_mean);
	*ret_deviation = sqrt(squares / (shift->n_flips - 1));
}

/* Exchanges in which some layer is as far above its mean as this one is. */
static uint32_t n_anywhere_as_far(const struct mt_diff_shift *shift, double distance)
{
	const size_t n_sums = shift->n_flips + 1, n_layers = shift->diff->n_layers;
	/* The sum of the request at hand is not needed any more. */
	int32_t *is_far = shift->signs;
	uint32_t n = 0;

	memset(is_far, 0, n_sums * sizeof(*is_far));
	for (size_t layer = 0; layer < n_layers; layer++) {
		double mean, deviation;

		moments(shift, layer, &mean, &deviation);
		for (size_t i = 1; i < n_sums && deviation > 0; i++)
			is_far[i] |= is_as_large((shift->shifts[layer * n_sums + i] - mean) /
							 deviation,
						 distance);
	}
	for (size_t i = 1; i < n_sums; i++)
		n += is_far[i] != 0;
	return n;
}

bool mt_diff_shift_of(const struct mt_diff_shift *shift, size_t layer,
		      struct mt_diff_shifted *ret_shifted)
{
	const double *shifts = shift->shifts + layer * (shift->n_flips + 1);
	const bool is_all = layer == shift->diff->n_layers;
	double deviation;
	uint32_t n = 0;

	if (shift->n_requests < 2 || shift->n_flips == 0 || (!is_all && shift->n_choices[layer] == 0))
		return false;
	*ret_shifted = (struct mt_diff_shifted){.shift = shifts[0]};
	moments(shift, layer, &ret_shifted->chance_shift, &deviation);
	for (uint32_t i = 1; i <= shift->n_flips; i++)
		n += is_as_large(shifts[i], shifts[0]);
	ret_shifted->p_value = (n + 1.0) / (shift->n_flips + 1.0);
	ret_shifted->p_adjusted = ret_shifted->p_value;
	if (!is_all && deviation > 0)
		n = n_anywhere_as_far(shift,
				      (shifts[0] - ret_shifted->chance_shift) / deviation);
	if (!is_all && deviation > 0)
		ret_shifted->p_adjusted = (n + 1.0) / (shift->n_flips + 1.0);
	return true;
}
