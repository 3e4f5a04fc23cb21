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
	/*
	 * Its graph may have been launched again while kernels were not recorded: then the ends of its
	 * nodes may be those of the later launch.
	 */
	int is_relaunched;
};

/* Make the tables, once a process; -1: out of memory. */
int mtc_cupti_launches_make(const struct mtc_cupti *api);

/* From now on launches are noted; NULL: no longer, and no thread looks at the last one any more. */
void mtc_cupti_launches_use(const struct mt_collector_out *out);

/*
 * Records of kernels are on, or are about to be off. Where that is not told in time launches are taken
 * for relaunched, never the other way round: off is told before it is done, on after it.
 */
void mtc_cupti_launches_record(int is_on);

/*
 * The correlation id of the last launch of which a record is to come, since forget(): of a graph, or
 * with kernels of anything that was launched while they were recorded; 0: none.
 */
uint32_t mtc_cupti_launches_last(int has_kernels);
void mtc_cupti_launches_forget(void);

/* The subscriber's callback. */
mtc_cupti_callback_fn mtc_cupti_called;

struct mtc_cupti_tie mtc_cupti_launch_tie(uint32_t correlation);
/* The mark of a node; 0: none was made. */
uint64_t mtc_cupti_node_mark(uint64_t node_id);

#endif
