/* SPDX-License-Identifier: MIT */
/*
 * The general form of opportunistic expert activation. A row's base is its best k0 experts, or fewer
 * where these hold a share p of the router's whole score; the union of all bases is loaded; then each
 * row takes experts of the union in the order of its preference, down to place maxp of all experts,
 * until it has kmax. The simple form has p = 1, kmax = k and no maxp; with maxp = 0 nothing is taken,
 * which is pruning.
 */
#ifndef MT_SCHEMA_FUNCTIONS_OEA_GENERAL_H
#define MT_SCHEMA_FUNCTIONS_OEA_GENERAL_H

#include "oea_batch.h"

struct mt_oea_form {
	double p;	 /* above 0; 1 and more: bases are k0 experts */
	uint32_t kmax;	 /* entries of a full row; 0: k */
	uint32_t maxp;	 /* the last place, from 1 on, that is taken from; UINT32_MAX: none is last */
	bool any_group;	 /* rows may take experts outside of the groups that they had kept */
	bool by_weight;	 /* the order of preference is that of the weights, without the bias */
};

/*
 * Read "NAME" or "NAME:OPTION[,OPTION]" with the options kmax=N, p=X, maxp=N, groups=any and
 * order=weight; of pruned, p and order alone.
 *
 * Returns whether @text is one; *ret_form is set only then.
 */
bool mt_oea_form_parse(const char *text, struct mt_oea_form *ret_form);

/* Whether mt_oea_sweep() does it: the simple form. */
bool mt_oea_form_is_simple(const struct mt_oea_form *form);

/* How many entries a full row has, where rows choose @k. */
uint32_t mt_oea_form_fill(const struct mt_oea_form *form, size_t k);

/*
 * The bases that a share p of the router's score allows.
 *
 * @ret_limits  [batch.n_rows]: at most so many of a row's entries are its base.
 *
 * Returns SQLITE_ROW, SQLITE_DONE where a row's scores are not known as shares of the whole, or an
 * error.
 */
int mt_oea_limits(const struct mt_oea_source *source, double p, uint8_t *ret_limits);

/* What changed rows end with; index k0 - 1. */
struct mt_oea_fill {
	uint64_t n_below[MT_OEA_MAX_K]; /* rows with fewer than k entries */
	uint64_t n_taken[MT_OEA_MAX_K]; /* entries that are not of their own choice */
};

/**
 * Sweep a batch in a general form.
 *
 * @limits      As of mt_oea_limits(); NULL: p is 1.
 * @bins        As in mt_oea_sweep(), and of k0 = k, too.
 * @ret_fill    Rows that may take from any place are as full as the union allows.
 *
 * In @scratch the experts of no base have place MT_OEA_PLACE_NONE.
 */
#define MT_OEA_PLACE_NONE 254
void mt_oea_sweep_form(const struct mt_oea_batch *batch, const struct mt_oea_form *form,
		       const uint8_t *limits, uint32_t n_zero_experts,
		       struct mt_oea_scratch *scratch, uint32_t *bins,
		       struct mt_oea_result *ret_result, struct mt_oea_fill *ret_fill);

#endif
