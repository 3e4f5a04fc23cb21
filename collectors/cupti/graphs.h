/* SPDX-License-Identifier: MIT */
/*
 * Kernels of a graph's launch, which come one by one, put together: a launch is a list of times, in
 * the order of the nodes of its graph, which are told once. Used by the collector's thread alone.
 */
#ifndef MTC_CUPTI_GRAPHS_H
#define MTC_CUPTI_GRAPHS_H

#include <stdint.h>

#include "libtrace/collector.h"

struct mtc_cupti_graphs;
struct mtc_cupti_serial;

/* A kernel of a launch of a graph; times are the source's. */
struct mtc_cupti_node_record {
	uint64_t node_id;
	uint64_t start_ns;
	uint64_t end_ns;
	uint32_t stream;
	int is_overtaken; /* set by mtc_cupti_serial_nodes(): its times cannot be true */
	const char *name; /* valid as long as the process */
	int32_t shape[9];
};

/* The launch that they are of. */
struct mtc_cupti_launch_record {
	uint32_t correlation;
	uint32_t graph; /* the source's number */
	uint32_t device;
	uint32_t stream;
	uint8_t is_sampled;
};

struct mtc_cupti_graphs *mtc_cupti_graphs_make(const struct mt_collector_out *out,
					       struct mtc_cupti_serial *serial,
					       const char *kernel_roles);
void mtc_cupti_graphs_free(struct mtc_cupti_graphs *graphs);

/* A node ran; -1: out of memory, it is lost. */
int mtc_cupti_graphs_add(struct mtc_cupti_graphs *graphs,
			 const struct mtc_cupti_launch_record *launch,
			 const struct mtc_cupti_node_record *node);

/* No more comes for now: hand over launches that nothing was added to for a while, or with @all each. */
void mtc_cupti_graphs_settle(struct mtc_cupti_graphs *graphs, int all);

/* The number of a name in a role; with MT_MARK_NO_ROLE the one that the name says. */
uint32_t mtc_cupti_graphs_name(struct mtc_cupti_graphs *graphs, const char *name, uint32_t role);

#endif
