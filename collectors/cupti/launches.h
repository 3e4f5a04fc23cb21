/* SPDX-License-Identifier: MIT */
/*
 * What CUPTI tells on the threads that launch: which pass, layer and role a launch had, by its
 * correlation id; and the same of a kernel that becomes a node of a graph, by the node's id. Both are
 * tables of fixed size, written from any thread without a lock and read by the collector.
 */
#ifndef MTC_CUPTI_LAUNCHES_H
#define MTC_CUPTI_LAUNCHES_H

#include <stdint.h>

#include "collectors/cupti/api.h"
#include "libtrace/collector.h"

/* What is known of a launch; zero: nothing. */
struct mtc_cupti_tie {
	uint64_t pass; /* its number */
	uint64_t mark; /* of mt_mark() */
	uint64_t launch_ns; /* session clock */
};

/* Make the tables, once a process; -1: out of memory. */
int mtc_cupti_launches_make(const struct mtc_cupti *api);

/* From now on launches are noted; NULL: no longer, and no thread looks at the last one any more. */
void mtc_cupti_launches_use(const struct mt_collector_out *out);

/* The subscriber's callback. */
mtc_cupti_callback_fn mtc_cupti_called;

struct mtc_cupti_tie mtc_cupti_launch_tie(uint32_t correlation);
/* The mark of a node; 0: none was made. */
uint64_t mtc_cupti_node_mark(uint64_t node_id);

#endif
