/* SPDX-License-Identifier: MIT */
/*
 * A pass is read from its first kernel to its last. The choice of experts (role topk) says that a
 * layer has come; attention, norms or a gate after it, that the next one begins.
 */
#include "collectors/cupti/order.h"

#include <moetrace/moetrace.h>

#include "collectors/cupti/roles.h"

static uint32_t role_of(const char *kernel_roles, const struct mtc_cupti_node_record *record)
{
	uint32_t role = MOETRACE_ROLE_OTHER, moves_data;

	if (record->name)
		mtc_cupti_role(kernel_roles, record->name, &role, &moves_data);
	return role;
}

/* What comes before a layer's choice. */
static int begins_layer(uint32_t role)
{
	return role == MOETRACE_ROLE_ATTENTION || role == MOETRACE_ROLE_NORM ||
	       role == MOETRACE_ROLE_GATE || role == MOETRACE_ROLE_TOPK;
}

static uint32_t count_choices(const char *kernel_roles, const struct mtc_cupti_node_record *records,
			      uint32_t n_nodes)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < n_nodes; i++)
		n += role_of(kernel_roles, &records[i]) == MOETRACE_ROLE_TOPK;
	return n;
}

void mtc_cupti_order(const char *kernel_roles, struct mt_graph_node *nodes,
		     const struct mtc_cupti_node_record *records, uint32_t n_nodes, uint32_t model,
		     uint32_t n_layers)
{
	uint32_t layer = 0;
	int has_chosen = 0, has_begun = 0;

	if (!n_layers || count_choices(kernel_roles, records, n_nodes) != n_layers)
		return;
	for (uint32_t i = 0; i < n_nodes; i++) {
		uint32_t role = role_of(kernel_roles, &records[i]);

		if (has_chosen && begins_layer(role)) {
			layer++;
			has_chosen = 0;
		}
		has_begun |= begins_layer(role);
		has_chosen |= role == MOETRACE_ROLE_TOPK;
		/* Before the first layer is the embedding, behind the last one the head. */
		if (!has_begun || layer >= n_layers)
			continue;
		nodes[i].known_by = MT_KNOWN_ORDER;
		nodes[i].mark = mt_mark(MT_MARK_SET, model, MT_MARK_NO_ROLE, layer);
	}
}
