/* SPDX-License-Identifier: MIT */
/*
 * Opportunistic expert activation (arXiv 2511.02237), a routing rule: the rows of a batch share
 * the experts that the batch has to load anyway. Each decode row keeps its n best experts, where n
 * is k0, or less where fewer hold p of its score; the union of these is what the batch loads. Then
 * each row goes on through its own preferences and takes every expert of the union, until it has
 * k_max or has passed rank max_rank. With p and max_rank off and k_max = top_k that is: the
 * router's choice, restricted to the union of all rows' best k0.
 *
 * What the paper leaves open is settled here:
 *   prefill   rows of a mixed batch keep the router's choice, and all of it is in the union: it is
 *             loaded anyway. A batch without a decode row is not changed.
 *   padding   rows touch nothing: they are in no union and select nothing.
 *   bias      preference is the router's order of choice, with the bias. The mass that p cuts and
 *             the weights are made of scores without it, as the router does.
 *   groups    an expert of a group that the row did not keep is never taken.
 *   mass      a score divided by the sum of the row's scores over all columns.
 *   zero experts hold no weights, so they are in every union.
 *   shared    slots follow the chosen entries as before.
 *   weights   those of the final set, renormalised and scaled as the router's setting says; one
 *             that does not renormalise keeps its scores, so that the output shrinks with the set.
 *   order     entries stand in the router's order of choice, with distinct ids. What a row lacks
 *             is -1 with weight 0, and last.
 * A row whose own choice lies in the union keeps it, to the last bit of its weights: with k0 =
 * top_k the rule changes nothing. The result does not depend on the order of rows, or threads.
 */
#ifndef MTK_OEA_OEA_H
#define MTK_OEA_OEA_H

#include <stddef.h>
#include <stdint.h>

#include "kernels/engine/error.h"
#include "kernels/route/route.h"

struct mtk_oea {
	uint32_t k0;
	uint32_t k_max;	   /* entries of a row at most; 0: top_k */
	double p;	   /* 0: 1, which cuts nothing */
	uint32_t max_rank; /* the deepest rank that may be taken, from 1; 0: every one */
};

/**
 * Read "k0=N[,kmax=N][,p=X][,maxp=N]", in any order.
 *
 * Returns MOETRACE_OK, or MOETRACE_E_INVALID with the field's name in @error.
 */
int mtk_oea_parse(const char *text, struct mtk_oea *ret_oea, struct mtk_error *error);

/* The rule as traces name it, e.g. "oea:k0=3,p=0.9"; what was not given is not in it. */
#define MTK_OEA_NAME_BYTES 96
void mtk_oea_name(const struct mtk_oea *oea, char *ret_name);

/**
 * Check a rule against the setting of a router, which was checked itself, and fill in what was not
 * given. Applying the rule cannot fail then.
 *
 * Returns  MOETRACE_OK
 *          MOETRACE_E_INVALID      a field is out of range for this router
 *          MOETRACE_E_UNSUPPORTED  the router has no preferences that could be restricted: ids come
 *                                  from a table, or a weight depends on what was taken before
 *          each but the first with the field's name in @error
 */
int mtk_oea_resolve(const struct mtk_oea *oea, const struct mtk_route_config *route,
		    struct mtk_oea *ret_oea, struct mtk_error *error);

/* Entries of a row of the result; rows that the rule does not change have top_k of them. */
static inline uint32_t mtk_oea_width(const struct mtk_oea *oea,
				     const struct mtk_route_config *route)
{
	return (oea->k_max > route->top_k ? oea->k_max : route->top_k) + route->n_shared_slots;
}

enum mtk_oea_flag {
	MTK_OEA_FLAG_BELOW_K = 1, /* fewer entries than top_k */
	MTK_OEA_FLAG_ONE_ROW = 2, /* the batch has no other row: nothing is shared, only pruned */
};

struct mtk_oea_batch {
	const struct mtk_oea *oea; /* resolved */
	const struct mtk_route_config *route;
	struct mtk_route_batch rows; /* what was routed */
	const uint8_t *is_decode;    /* [n_rows], 0: a prefill row; NULL: none is */
	const int32_t *base_ids;     /* [n_rows][mtk_route_width()]: what the router wrote */
	const float *base_weights;   /* likewise */
	uint8_t *n_base;	     /* [n_rows], written by mtk_oea_base() */
	uint8_t *is_loaded;	     /* [columns]: the union, written by mtk_oea_unite() */
};

/* Rows are mtk_oea_width() wide. */
struct mtk_oea_result {
	int32_t *ids;
	float *weights;
	uint8_t *flags; /* [n_rows]; NULL: not written */
};

/*
 * The three steps, in this order. The first and the last may be shared among callers by rows, with
 * a scratch each, of mtk_route_scratch_floats(). The result may not lie in the base.
 */
void mtk_oea_base(const struct mtk_oea_batch *batch, uint32_t begin, uint32_t end, void *scratch);
void mtk_oea_unite(const struct mtk_oea_batch *batch);
void mtk_oea_choose(const struct mtk_oea_batch *batch, uint32_t begin, uint32_t end, void *scratch,
		    const struct mtk_oea_result *result);

#endif
