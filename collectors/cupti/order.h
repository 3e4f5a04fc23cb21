/* SPDX-License-Identifier: MIT */
/*
 * Layers of a graph's nodes by the order in which they ran, for a program that does not say them.
 */
#ifndef MTC_CUPTI_ORDER_H
#define MTC_CUPTI_ORDER_H

#include "collectors/cupti/graphs.h"

/*
 * Mark nodes, in the order in which they began: each layer with experts has one choice of experts,
 * and what follows its experts is the next one's. Nothing is marked where there are not exactly
 * @n_layers choices.
 */
void mtc_cupti_order(const char *kernel_roles, struct mt_graph_node *nodes,
		     const struct mtc_cupti_node_record *records, uint32_t n_nodes, uint32_t model,
		     uint32_t n_layers);

#endif
