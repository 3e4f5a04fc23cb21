/* SPDX-License-Identifier: MIT */
/*
 * Graphs whose nodes a collector told, for as long as the session, and what a collector on a
 * launching thread is told of passes. A graph's number is its place; the writer defines it in every
 * file that names it.
 */
#include "libtrace/collect_internal.h"

#include <stdlib.h>
#include <string.h>

#include "libtrace/host_ties.h"
#include "libtrace/hot.h"
#include "libtrace/session.h"

static uint32_t add_graph(void *context, const struct mt_graph_node *nodes, uint32_t n_nodes)
{
	struct mt_source *source = context;
	struct mt_collect *collect = source->collect;
	struct mt_collect_graph *graph;
	uint32_t number = 0;

	if (!n_nodes || n_nodes > MT_MAX_GRAPH_NODES)
		return 0;
	graph = malloc(sizeof(*graph) + n_nodes * sizeof(*nodes));
	if (!graph)
		return 0;
	graph->n_nodes = n_nodes;
	memcpy(graph->nodes, nodes, n_nodes * sizeof(*nodes));
	pthread_mutex_lock(&collect->lock);
	if (!source->is_cut && collect->n_graphs < MT_MAX_GRAPHS) {
		collect->graphs[collect->n_graphs++] = graph;
		number = collect->n_graphs;
	}
	pthread_mutex_unlock(&collect->lock);
	if (!number)
		free(graph);
	return number;
}

const struct mt_collect_graph *mt_collect_graph_get(struct mt_collect *collect, uint32_t number)
{
	const struct mt_collect_graph *graph = NULL;

	pthread_mutex_lock(&collect->lock);
	if (number >= 1 && number <= collect->n_graphs)
		graph = collect->graphs[number - 1];
	pthread_mutex_unlock(&collect->lock);
	return graph;
}

void mt_collect_graphs_free(struct mt_collect *collect)
{
	for (uint32_t i = 0; i < collect->n_graphs; i++)
		free(collect->graphs[i]);
}

/* There as long as the collector's thread, though the session may be closed. */
static struct mt_ties *ties_of(void *context)
{
	struct mt_source *source = context;

	return &source->collect->ties;
}

static void ask(void *context, int is_asked)
{
	atomic_store(&ties_of(context)->is_used, is_asked != 0);
}

static uint64_t pass_of(void *context, uintptr_t stream, uint64_t *ret_mark)
{
	struct mt_ties *ties = ties_of(context);
	uint64_t pass = mt_ties_pass(ties, mt_thread_number(), stream, ret_mark);

	return pass ? pass : mt_host_ties_pass(ties, mt_thread_number(), ret_mark);
}

static uint64_t mark_of(void *context)
{
	return mt_ties_mark(ties_of(context), mt_thread_number(), 0);
}

static uint32_t n_layers(void *context, uint32_t model)
{
	struct mt_source *source = context;
	uint32_t n = 0;

	pthread_mutex_lock(&source->collect->lock);
	if (!source->is_cut && model >= 1 &&
	    model <= atomic_load(&source->collect->session->n_models))
		n = source->collect->session->models[model - 1]->n_layers;
	pthread_mutex_unlock(&source->collect->lock);
	return n;
}

static void set_on(void *context, int is_on)
{
	struct mt_ties *ties = ties_of(context);

	/* Pairs with mt_tie_begin(). */
	atomic_store(&ties->on, is_on ? atomic_fetch_add(&ties->n_on, 1) + 1 : 0);
}

static void count_passes(void *context, struct mt_pass_counts *ret_counts)
{
	const struct mt_ties *ties = ties_of(context);

	/* The whole ones first: those that ended have them among them. */
	ret_counts->n_whole = atomic_load(&ties->n_whole);
	ret_counts->n_ended = atomic_load(&ties->n_ended);
	ret_counts->n_begun = atomic_load(&ties->n_passes);
}

_Static_assert(MT_MAX_GPUS == MOETRACE_CUDA_MAX_DEVICES, "each has a place");

static void gpu_passes(void *context, struct mt_gpu_passes *ret_passes)
{
	struct mt_ties *ties = ties_of(context);

	for (uint32_t i = 0; i < MT_MAX_GPUS; i++)
		ret_passes->n_begun[i] = atomic_load(&ties->ways[i].n_begun);
}

static int gpu_passes_are_through(void *context, const struct mt_gpu_passes *passes)
{
	struct mt_ties *ties = ties_of(context);

	for (uint32_t i = 0; i < MT_MAX_GPUS; i++)
		if (atomic_load(&ties->ways[i].n_arrived) < passes->n_begun[i])
			return 0;
	return 1;
}

void mt_collect_graph_fill(struct mt_collector_out *out)
{
	out->graph = add_graph;
	out->ask = ask;
	out->pass_of = pass_of;
	out->mark_of = mark_of;
	out->n_layers = n_layers;
	out->set_on = set_on;
	out->count_passes = count_passes;
	out->gpu_passes = gpu_passes;
	out->gpu_passes_are_through = gpu_passes_are_through;
}
