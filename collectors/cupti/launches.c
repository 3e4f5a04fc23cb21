/* SPDX-License-Identifier: MIT */
/*
 * The callbacks of a subscriber. They run in the middle of the program's own calls, so each is a few
 * loads and stores: no lock, no allocation, no call of CUPTI but for the number of a node, while
 * graphs are made.
 *
 * Invariant: an entry that is read while it is written, or was written over, is taken for nothing:
 * its key is cleared first and written last, and looked at again after the rest was read.
 */
#include "collectors/cupti/launches.h"

#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define N_LAUNCHES (1u << 16)
#define N_GRAPHS   1024u
#define N_NODES	   (1u << 17)
/* Places that a node may have; beyond them it is not noted. */
#define N_PLACES   64u

struct launch {
	_Atomic uint64_t key; /* correlation + 1; 0: none */
	_Atomic uint64_t pass;
	_Atomic uint64_t mark;
	_Atomic uint64_t launch_ns;
	_Atomic uint64_t graph; /* of graph_of() when it was launched; 0: of no graph */
};

struct node {
	_Atomic uint64_t key; /* node's id + 1; 0: none */
	_Atomic uint64_t mark;
};

static struct {
	const struct mtc_cupti *api;
	const struct mt_collector_out *_Atomic out;
	_Atomic uint32_t n_inside; /* threads that may look at what out points to */
	_Atomic uint32_t is_recorded; /* kernels are */
	_Atomic uint32_t last_graph;    /* correlation of the last launch of a graph; 0: none */
	_Atomic uint32_t last_recorded; /* and of any launch while kernels were recorded */
	/* Launches of graphs that were not, by a part of the graph's pointer. */
	_Atomic uint32_t n_unrecorded[N_GRAPHS];
	struct launch *launches;   /* [N_LAUNCHES], each at its remainder */
	struct node *nodes;	   /* [N_NODES], each at one of N_PLACES */
} all;

int mtc_cupti_launches_make(const struct mtc_cupti *api)
{
	all.api = api;
	if (all.launches)
		return 0;
	all.launches = malloc(N_LAUNCHES * sizeof(*all.launches) + N_NODES * sizeof(*all.nodes));
	if (!all.launches)
		return -1;
	all.nodes = (struct node *)(all.launches + N_LAUNCHES);
	/* Touched now, so that no launch waits for the kernel. */
	memset(all.launches, 0, N_LAUNCHES * sizeof(*all.launches) + N_NODES * sizeof(*all.nodes));
	return 0;
}

void mtc_cupti_launches_use(const struct mt_collector_out *out)
{
	/* Either order is total with the two in mtc_cupti_called(): one side sees the other. */
	atomic_store(&all.out, out);
	while (!out && atomic_load(&all.n_inside))
		sched_yield();
}

void mtc_cupti_launches_record(int is_on)
{
	atomic_store(&all.is_recorded, is_on != 0);
}

void mtc_cupti_launches_forget(void)
{
	atomic_store(&all.last_graph, 0);
	atomic_store(&all.last_recorded, 0);
}

uint32_t mtc_cupti_launches_last(int has_kernels)
{
	return atomic_load(has_kernels ? &all.last_recorded : &all.last_graph);
}

/* ---- nodes ---- */

static struct node *place(uint64_t node_id, uint32_t i)
{
	uint64_t spread = node_id * UINT64_C(0x9e3779b97f4a7c15) >> 40;

	return &all.nodes[(spread + i) % N_NODES];
}

static void note_node(uint64_t node_id, uint64_t mark)
{
	for (uint32_t i = 0; i < N_PLACES; i++) {
		struct node *node = place(node_id, i);
		uint64_t key = 0;

		if (!atomic_compare_exchange_strong_explicit(&node->key, &key, node_id + 1,
							     memory_order_acq_rel,
							     memory_order_acquire) &&
		    key != node_id + 1)
			continue;
		/* Pairs with mtc_cupti_node_mark(). */
		atomic_store_explicit(&node->mark, mark, memory_order_release);
		return;
	}
}

uint64_t mtc_cupti_node_mark(uint64_t node_id)
{
	for (uint32_t i = 0; i < N_PLACES; i++) {
		struct node *node = place(node_id, i);
		uint64_t key = atomic_load_explicit(&node->key, memory_order_acquire);

		if (key == node_id + 1)
			return atomic_load_explicit(&node->mark, memory_order_acquire);
		if (!key)
			return 0;
	}
	return 0;
}

/* A kernel was captured, or a graph with it made executable: its copy has a number of its own. */
static void node_made(const struct mt_collector_out *out, uint32_t id,
		      const struct mtc_cupti_node *made)
{
	uint64_t node_id, original_id, mark = 0;

	if (made->type != 0 || !all.api->node_id || all.api->node_id(made->node, &node_id))
		return;
	if (id == MTC_CUPTI_NODE_CREATED)
		mark = out->mark_of(out->context);
	else if (made->original_node && !all.api->node_id(made->original_node, &original_id))
		mark = mtc_cupti_node_mark(original_id);
	if (mark)
		note_node(node_id, mark);
}

/* ---- launches ---- */

static uintptr_t stream_of(uint32_t id, const void *parameters)
{
	const struct mtc_cupti_launch_ex *ex = parameters;
	const void *stream;

	switch (id) {
	case MTC_CUPTI_LAUNCH_GRAPH:
	case MTC_CUPTI_LAUNCH_GRAPH_PTSZ:
		stream = ((const struct mtc_cupti_launch_graph *)parameters)->stream;
		break;
	case MTC_CUPTI_LAUNCH_KERNEL_EX:
	case MTC_CUPTI_LAUNCH_KERNEL_EX_PTSZ:
		stream = ex->config ? ex->config->stream : NULL;
		break;
	default:
		stream = ((const struct mtc_cupti_launch_kernel *)parameters)->stream;
	}
	return (uintptr_t)stream;
}

/* The place of a graph + 1, and behind it how often it was launched unrecorded. */
static uint64_t graph_of(uint32_t id, const void *parameters)
{
	const struct mtc_cupti_launch_graph *of_graph = parameters;
	uint64_t place;

	if (id != MTC_CUPTI_LAUNCH_GRAPH && id != MTC_CUPTI_LAUNCH_GRAPH_PTSZ)
		return 0;
	place = ((uint64_t)(uintptr_t)of_graph->executable * UINT64_C(0x9e3779b97f4a7c15) >> 40) % N_GRAPHS;
	if (!atomic_load(&all.is_recorded))
		atomic_fetch_add(&all.n_unrecorded[place], 1);
	return (place + 1) << 32 | atomic_load(&all.n_unrecorded[place]);
}

static int is_relaunched(uint64_t graph)
{
	return graph &&
	       (uint32_t)graph != atomic_load(&all.n_unrecorded[(graph >> 32) - 1]);
}

/* Several threads may say so at once: any of them will do. */
static void note_last(uint32_t correlation, int is_graph)
{
	if (is_graph)
		atomic_store_explicit(&all.last_graph, correlation, memory_order_relaxed);
	if (atomic_load_explicit(&all.is_recorded, memory_order_relaxed))
		atomic_store_explicit(&all.last_recorded, correlation, memory_order_relaxed);
}

static void launched(const struct mt_collector_out *out, uint32_t id,
		     const struct mtc_cupti_call *call)
{
	struct launch *launch = &all.launches[call->correlation % N_LAUNCHES];
	uint64_t mark = 0;
	uint64_t pass;

	if (call->is_exit || !call->parameters)
		return;
	pass = out->pass_of(out->context, stream_of(id, call->parameters), &mark);
	atomic_store_explicit(&launch->key, 0, memory_order_relaxed);
	/* Pair with mtc_cupti_launch_tie(): it does not see the new rest under the old key. */
	atomic_store_explicit(&launch->pass, pass, memory_order_release);
	atomic_store_explicit(&launch->mark, mark, memory_order_release);
	atomic_store_explicit(&launch->launch_ns, out->now_ns(out->context), memory_order_release);
	atomic_store_explicit(&launch->graph, graph_of(id, call->parameters), memory_order_release);
	atomic_store_explicit(&launch->key, (uint64_t)call->correlation + 1, memory_order_release);
	note_last(call->correlation, id == MTC_CUPTI_LAUNCH_GRAPH || id == MTC_CUPTI_LAUNCH_GRAPH_PTSZ);
}

struct mtc_cupti_tie mtc_cupti_launch_tie(uint32_t correlation)
{
	struct launch *launch = &all.launches[correlation % N_LAUNCHES];
	const uint64_t key = (uint64_t)correlation + 1;
	const struct mtc_cupti_tie unknown = { .is_relaunched = 1 };
	struct mtc_cupti_tie tie;

	if (atomic_load_explicit(&launch->key, memory_order_acquire) != key)
		return unknown;
	tie.pass = atomic_load_explicit(&launch->pass, memory_order_acquire);
	tie.mark = atomic_load_explicit(&launch->mark, memory_order_acquire);
	tie.launch_ns = atomic_load_explicit(&launch->launch_ns, memory_order_acquire);
	tie.is_relaunched = is_relaunched(
		atomic_load_explicit(&launch->graph, memory_order_acquire));
	return atomic_load_explicit(&launch->key, memory_order_relaxed) == key ? tie : unknown;
}

void mtc_cupti_called(void *context, int domain, uint32_t id, const void *data)
{
	const struct mt_collector_out *out;

	(void)context;
	atomic_fetch_add(&all.n_inside, 1);
	out = atomic_load(&all.out);
	if (out && domain == MTC_CUPTI_DOMAIN_DRIVER)
		launched(out, id, data);
	else if (out && domain == MTC_CUPTI_DOMAIN_RESOURCE &&
		 (id == MTC_CUPTI_NODE_CREATED || id == MTC_CUPTI_NODE_CLONED))
		node_made(out, id, ((const struct mtc_cupti_resource *)data)->description);
	atomic_fetch_sub(&all.n_inside, 1);
}
