/* SPDX-License-Identifier: MIT */
/*
 * Whether the load of the experts differs between two recordings by more than chance. Tokens of a
 * request are alike, so it is requests that are drawn by chance, not tokens: were A and B the same,
 * each request might as well have its two sides exchanged. So the sides of random requests are
 * exchanged many times over, and what that gives is compared with what is there (a paired sign-flip
 * test). The shift of a layer is the total variation distance between the loads: the part of all
 * choices that went to other experts, 0 to 1. p_value is the share of exchanges with at least the
 * shift; p_adjusted is of the largest shift of any layer, each as standard deviations above its own
 * mean, so that it holds for all layers together. The random numbers are a fixed sequence.
 */
#ifndef MT_SCHEMA_FUNCTIONS_DIFF_SHIFT_H
#define MT_SCHEMA_FUNCTIONS_DIFF_SHIFT_H

#include "diff.h"

struct mt_diff_shift {
	const struct mt_diff *diff;
	uint32_t n_flips; /* the exchanges, and before them one that exchanges nothing */
	size_t *first_cell; /* a layer: its first expert among all of them; [n_layers + 1] */
	int32_t *loads;	    /* [cells][n_flips + 1]: B's tokens less A's */
	int32_t *part;	    /* [cells]: of the part at hand of a request */
	int32_t *signs;	    /* [n_flips + 1] */
	double *shifts;	    /* [n_layers + 1][n_flips + 1]; the last is of all layers */
	uint64_t *n_choices; /* [n_layers] */
	uint64_t n_requests; /* with any choice */
	bool has_rows;	     /* of the part at hand */
};

struct mt_diff_shifted {
	double shift, chance_shift;
	double p_value, p_adjusted;
};

int mt_diff_shift_begin(struct mt_diff_shift *shift, const struct mt_diff *diff);
void mt_diff_shift_end(struct mt_diff_shift *shift);
void mt_diff_shift_row(struct mt_diff_shift *shift, size_t layer, const struct mt_diff_row *a,
		       const struct mt_diff_row *b);
/* The end of a part of request @number, whose parts are exchanged together. */
void mt_diff_shift_part(struct mt_diff_shift *shift, size_t number);
/* After all of them, and n_requests is set. */
void mt_diff_shift_settle(struct mt_diff_shift *shift);
/*
 * Of a layer, or with n_layers of all. False: fewer than two requests, no choice, or more experts than
 * there is memory for the exchanges.
 */
bool mt_diff_shift_of(const struct mt_diff_shift *shift, size_t layer,
		      struct mt_diff_shifted *ret_shifted);

#endif
