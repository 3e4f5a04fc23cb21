/* SPDX-License-Identifier: MIT */
/*
 * Times that a stream of the GPU cannot have: it runs launches of graphs one after the other, and of
 * each the nodes of a branch. CUPTI has been seen to give ends of nodes that are those of a later launch
 * of their graph, which was not recorded. Used by the collector's thread alone.
 */
#ifndef MTC_CUPTI_SERIAL_H
#define MTC_CUPTI_SERIAL_H

#include "collectors/cupti/graphs.h"
#include "libtrace/collector.h"

struct mtc_cupti_serial;

struct mtc_cupti_serial *mtc_cupti_serial_make(const struct mt_collector_out *out);
/* What is held is lost; settle first. */
void mtc_cupti_serial_free(struct mtc_cupti_serial *serial);

/*
 * Hand a reading over, once it is known what came after it on its stream: then it has
 * MT_TIME_OVERTAKEN or not. Its node_times go with it.
 */
void mtc_cupti_serial_add(struct mtc_cupti_serial *serial, const struct mt_kernel_reading *reading);

/* No more comes for now: hand over what nothing came after for a while, or with @all everything. */
void mtc_cupti_serial_settle(struct mtc_cupti_serial *serial, int all);

/*
 * Mark the nodes of a launch whose ends are a later launch's, and put all in order of streams and
 * begins; how many are. Where the graph may have been launched again unrecorded (@is_relaunched) also
 * those are marked that nothing proves. Else a few that run on are branches that were not told apart:
 * *ret_is_forked.
 */
uint32_t mtc_cupti_serial_nodes(struct mtc_cupti_node_record *nodes, uint32_t n_nodes,
				int is_relaunched, int *ret_is_forked);

#endif
