/* SPDX-License-Identifier: MIT */
/*
 * Launches that are being put together, and the graphs that are known. A launch is complete when as
 * many nodes ran as its graph has; of a graph that is not known, or where some got lost, when nothing
 * came for a while.
 *
 * Invariant: a graph that is known has its nodes in the order in which they first began, and never
 * changes; a launch with a node that it does not have, with nodes of one branch on several streams or
 * with several branches on one stream makes another one, in the latter cases without branches.
 */
#include "collectors/cupti/graphs.h"

#include <stdlib.h>
#include <string.h>

#include <moetrace/moetrace.h>

#include "collectors/cupti/launches.h"
#include "collectors/cupti/order.h"
#include "collectors/cupti/roles.h"
#include "collectors/cupti/serial.h"
#include "collectors/cupti/times.h"

#define MAX_OPEN	256u
#define MAX_NODES	65536u
#define N_NAMES		4096u
#define MAX_BRANCHES	64u
#define SETTLED_ROUNDS	3u
#define UNKNOWN_TIME	UINT32_MAX

struct open_launch {
	struct mtc_cupti_launch_record launch;
	struct mtc_cupti_node_record *nodes; /* [n_nodes], of capacity */
	uint32_t n_nodes;
	uint32_t capacity;
	uint32_t n_rounds; /* since one was added */
	int is_mixed; /* nodes of one branch of its graph are on several streams, or it is forked */
	int is_forked; /* nodes of one stream are of several branches */
};

/* A node by its id. */
struct place {
	uint64_t node_id;
	uint32_t index;
	uint32_t branch; /* nodes with the same one are on one stream; MT_NO_BRANCH: not known */
};

struct known_graph {
	uint32_t source; /* the source's number */
	uint32_t number; /* ours; 0: there are too many, and its nodes are not stored */
	uint32_t n_nodes;
	struct place *places; /* [n_nodes], by id */
};

/* A name that was numbered: names are pointers that the source never frees. */
struct name {
	const char *name;
	uint32_t role;
	uint32_t number;
};

struct mtc_cupti_graphs {
	const struct mt_collector_out *out;
	struct mtc_cupti_serial *serial;
	const char *kernel_roles;
	struct open_launch open[MAX_OPEN];
	uint32_t n_open;
	struct known_graph *known; /* [n_known] */
	uint32_t n_known;
	struct name names[N_NAMES]; /* each at its pointer's remainder */
};

struct mtc_cupti_graphs *mtc_cupti_graphs_make(const struct mt_collector_out *out,
					       struct mtc_cupti_serial *serial,
					       const char *kernel_roles)
{
	struct mtc_cupti_graphs *graphs = calloc(1, sizeof(*graphs));

	if (!graphs)
		return NULL;
	graphs->out = out;
	graphs->serial = serial;
	graphs->kernel_roles = kernel_roles;
	return graphs;
}

void mtc_cupti_graphs_free(struct mtc_cupti_graphs *graphs)
{
	if (!graphs)
		return;
	for (uint32_t i = 0; i < MAX_OPEN; i++)
		free(graphs->open[i].nodes);
	for (uint32_t i = 0; i < graphs->n_known; i++)
		free(graphs->known[i].places);
	free(graphs->known);
	free(graphs);
}

uint32_t mtc_cupti_graphs_name(struct mtc_cupti_graphs *graphs, const char *name, uint32_t role)
{
	const char *text = name ? name : "(unknown)";
	struct name *known = &graphs->names[((uintptr_t)text / 8 + role) % N_NAMES];
	uint32_t own_role = role, moves_data;

	if (known->number && known->name == text && known->role == role)
		return known->number;
	if (role == MT_MARK_NO_ROLE)
		mtc_cupti_role(graphs->kernel_roles, text, &own_role, &moves_data);
	else
		moves_data = mtc_cupti_role_moves_data(role);
	*known = (struct name){ text, role,
				graphs->out->name(graphs->out->context, text, own_role, moves_data) };
	return known->number;
}

/* ---- graphs ---- */

static int by_id(const void *a, const void *b)
{
	const struct place *x = a, *y = b;

	return x->node_id < y->node_id ? -1 : x->node_id > y->node_id;
}

static int by_start(const void *a, const void *b)
{
	const struct mtc_cupti_node_record *x = a, *y = b;

	if (x->start_ns != y->start_ns)
		return x->start_ns < y->start_ns ? -1 : 1;
	return x->node_id < y->node_id ? -1 : x->node_id > y->node_id;
}

static const struct place *find_place(const struct known_graph *graph, uint64_t node_id)
{
	const struct place key = { .node_id = node_id };

	return bsearch(&key, graph->places, graph->n_nodes, sizeof(key), by_id);
}

/* Whether what is one branch there is one stream here. */
static int has_branches(const struct known_graph *graph, const struct open_launch *open)
{
	uint32_t streams[MAX_BRANCHES];
	uint64_t seen = 0; /* a bit a branch */

	for (uint32_t i = 0; i < open->n_nodes; i++) {
		uint32_t branch = find_place(graph, open->nodes[i].node_id)->branch;

		if (branch == MT_NO_BRANCH)
			continue;
		if (open->is_forked)
			return 0;
		if (!(seen >> branch & 1))
			streams[branch] = open->nodes[i].stream;
		else if (streams[branch] != open->nodes[i].stream)
			return 0;
		seen |= UINT64_C(1) << branch;
	}
	return 1;
}

/* The newest one of the source's number that has all nodes of the launch, and its branches. */
static const struct known_graph *find_graph(const struct mtc_cupti_graphs *graphs,
					    struct open_launch *open)
{
	for (uint32_t i = graphs->n_known; i-- > 0;) {
		const struct known_graph *graph = &graphs->known[i];
		uint32_t n = 0;

		if (graph->source != open->launch.graph)
			continue;
		while (n < open->n_nodes && find_place(graph, open->nodes[n].node_id))
			n++;
		if (n == open->n_nodes && has_branches(graph, open))
			return graph;
		open->is_mixed |= n == open->n_nodes;
	}
	return NULL;
}

/* Number the streams of its nodes; those of more than there may be are not told apart. */
static void find_branches(const struct open_launch *open, struct mt_graph_node *nodes)
{
	uint32_t streams[MAX_BRANCHES];
	uint32_t n = 0;
	int is_known = !open->is_mixed;

	for (uint32_t i = 0; is_known && i < open->n_nodes; i++) {
		uint32_t branch = 0;

		while (branch < n && streams[branch] != open->nodes[i].stream)
			branch++;
		is_known = branch < MAX_BRANCHES;
		if (is_known && branch == n)
			streams[n++] = open->nodes[i].stream;
		nodes[i].branch = branch;
	}
	for (uint32_t i = 0; !is_known && i < open->n_nodes; i++)
		nodes[i].branch = MT_NO_BRANCH;
}

/* What is known of each node; without any mark the order in which they began has to do. */
static void describe(struct mtc_cupti_graphs *graphs, const struct open_launch *open,
		     struct mt_graph_node *nodes)
{
	struct mtc_cupti_tie tie = mtc_cupti_launch_tie(open->launch.correlation);
	int is_marked = 0;

	for (uint32_t i = 0; i < open->n_nodes; i++) {
		const struct mtc_cupti_node_record *record = &open->nodes[i];
		uint64_t mark = mtc_cupti_node_mark(record->node_id);

		nodes[i] = (struct mt_graph_node){ .source_node = record->node_id,
						   .known_by = MT_KNOWN_NODE,
						   .mark = mark };
		nodes[i].name = mtc_cupti_graphs_name(graphs, record->name,
						      mark ? mt_mark_role(mark) : MT_MARK_NO_ROLE);
		memcpy(nodes[i].shape, record->shape, sizeof(record->shape));
		is_marked |= mark != 0;
	}
	if (!is_marked && tie.pass)
		mtc_cupti_order(graphs->kernel_roles, nodes, open->nodes, open->n_nodes,
				mt_mark_model(tie.mark),
				graphs->out->n_layers(graphs->out->context,
						      mt_mark_model(tie.mark)));
}

/* Learn a graph from one of its launches; NULL: out of memory. */
static const struct known_graph *learn(struct mtc_cupti_graphs *graphs, struct open_launch *open)
{
	struct mt_graph_node *nodes = calloc(open->n_nodes, sizeof(*nodes));
	struct place *places = malloc(open->n_nodes * sizeof(*places));
	struct known_graph *grown =
		realloc(graphs->known, (graphs->n_known + 1ul) * sizeof(*grown));

	if (grown)
		graphs->known = grown;
	if (!nodes || !places || !grown) {
		free(nodes);
		free(places);
		return NULL;
	}
	qsort(open->nodes, open->n_nodes, sizeof(*open->nodes), by_start);
	describe(graphs, open, nodes);
	find_branches(open, nodes);
	for (uint32_t i = 0; i < open->n_nodes; i++)
		places[i] = (struct place){ open->nodes[i].node_id, i,
					    nodes[i].branch };
	qsort(places, open->n_nodes, sizeof(*places), by_id);
	grown = &graphs->known[graphs->n_known++];
	*grown = (struct known_graph){ open->launch.graph,
				       graphs->out->graph(graphs->out->context, nodes,
							  open->n_nodes),
				       open->n_nodes, places };
	free(nodes);
	return grown;
}

/* ---- launches ---- */

static int has_times(const struct mtc_cupti_node_record *node)
{
	return node->start_ns && node->end_ns && node->end_ns >= node->start_ns &&
	       !node->is_overtaken;
}

/* The times of all nodes, from the first one's begin on; how many are not known. */
static uint32_t fill_times(const struct known_graph *graph, const struct open_launch *open,
			   uint64_t start_ns, uint32_t *times)
{
	uint32_t n_known = 0;

	memset(times, 0xff, (size_t)graph->n_nodes * 2 * sizeof(*times));
	for (uint32_t i = 0; i < open->n_nodes; i++) {
		const struct mtc_cupti_node_record *node = &open->nodes[i];
		uint32_t *to = &times[find_place(graph, node->node_id)->index * 2ul];

		if (!has_times(node) || node->end_ns - start_ns >= UNKNOWN_TIME)
			continue;
		n_known += to[0] == UNKNOWN_TIME;
		to[0] = (uint32_t)(node->start_ns - start_ns);
		to[1] = (uint32_t)(node->end_ns - node->start_ns);
	}
	return graph->n_nodes - n_known;
}

/* From the first begin to the last end; 0: no node has times. */
static void find_span(const struct open_launch *open, uint64_t *ret_start_ns, uint64_t *ret_end_ns)
{
	*ret_start_ns = *ret_end_ns = 0;
	for (uint32_t i = 0; i < open->n_nodes; i++) {
		const struct mtc_cupti_node_record *node = &open->nodes[i];

		if (!has_times(node))
			continue;
		if (!*ret_start_ns || node->start_ns < *ret_start_ns)
			*ret_start_ns = node->start_ns;
		if (node->end_ns > *ret_end_ns)
			*ret_end_ns = node->end_ns;
	}
}

/* Hand a launch over; -1: out of memory. */
static int deliver(struct mtc_cupti_graphs *graphs, struct open_launch *open)
{
	const struct mt_collector_out *out = graphs->out;
	struct mtc_cupti_tie tie = mtc_cupti_launch_tie(open->launch.correlation);
	const uint32_t n_overtaken = mtc_cupti_serial_nodes(open->nodes, open->n_nodes,
							    tie.is_relaunched, &open->is_forked);
	const struct known_graph *graph = find_graph(graphs, open);
	struct mt_kernel_reading reading = {
		.device = open->launch.device,
		.is_graph = 1,
		.is_sampled = open->launch.is_sampled,
		.time_ns = out->now_ns(out->context),
		.stream = open->launch.stream,
		.correlation = open->launch.correlation,
		.pass = tie.pass,
		.mark = tie.mark,
	};
	uint64_t start_ns, end_ns;

	open->is_mixed |= open->is_forked;
	if (!graph)
		graph = learn(graphs, open);
	if (!graph)
		return -1;
	find_span(open, &start_ns, &end_ns);
	mtc_cupti_times(out, start_ns, end_ns, tie.launch_ns, &reading);
	/* Where it began and ended is not known from those that are left. */
	if (n_overtaken)
		reading.flags |= MT_TIME_OVERTAKEN;
	if (graph->number) {
		reading.node_times = malloc((size_t)graph->n_nodes * 2 * sizeof(uint32_t));
		if (!reading.node_times)
			return -1;
		reading.graph = graph->number;
		reading.n_nodes = graph->n_nodes;
		reading.n_untimed = fill_times(graph, open, start_ns, reading.node_times);
	}
	mtc_cupti_serial_add(graphs->serial, &reading);
	return 0;
}

/* The memory of its nodes stays for the next one. */
static void close_launch(struct mtc_cupti_graphs *graphs, uint32_t i)
{
	struct open_launch closed = graphs->open[i];

	if (deliver(graphs, &closed))
		graphs->out->dropped(graphs->out->context, closed.n_nodes);
	closed.n_nodes = 0;
	graphs->n_open--;
	memmove(&graphs->open[i], &graphs->open[i + 1],
		(graphs->n_open - i) * sizeof(graphs->open[0]));
	graphs->open[graphs->n_open] = closed;
}

/* The most nodes that a launch of the graph ever had. */
static uint32_t n_expected(const struct mtc_cupti_graphs *graphs, uint32_t source)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < graphs->n_known; i++)
		if (graphs->known[i].source == source && graphs->known[i].n_nodes > n)
			n = graphs->known[i].n_nodes;
	return n ? n : UINT32_MAX;
}

static struct open_launch *find_open(struct mtc_cupti_graphs *graphs, uint32_t correlation)
{
	for (uint32_t i = graphs->n_open; i-- > 0;)
		if (graphs->open[i].launch.correlation == correlation)
			return &graphs->open[i];
	return NULL;
}

static struct open_launch *open_launch(struct mtc_cupti_graphs *graphs,
				       const struct mtc_cupti_launch_record *launch)
{
	struct open_launch *open;

	/* The oldest one has to do with what it has. */
	if (graphs->n_open == MAX_OPEN)
		close_launch(graphs, 0);
	open = &graphs->open[graphs->n_open++];
	open->launch = *launch;
	open->n_nodes = 0;
	open->is_mixed = 0;
	return open;
}

int mtc_cupti_graphs_add(struct mtc_cupti_graphs *graphs,
			 const struct mtc_cupti_launch_record *launch,
			 const struct mtc_cupti_node_record *node)
{
	struct open_launch *open = find_open(graphs, launch->correlation);
	struct mtc_cupti_node_record *grown;

	if (!open)
		open = open_launch(graphs, launch);
	if (open->n_nodes == MAX_NODES)
		return -1;
	if (open->n_nodes == open->capacity) {
		grown = realloc(open->nodes, (open->capacity + 256ul) * 2 * sizeof(*grown));
		if (!grown)
			return -1;
		open->nodes = grown;
		open->capacity = (open->capacity + 256) * 2;
	}
	open->nodes[open->n_nodes++] = *node;
	open->n_rounds = 0;
	if (open->n_nodes >= n_expected(graphs, launch->graph))
		close_launch(graphs, (uint32_t)(open - graphs->open));
	return 0;
}

void mtc_cupti_graphs_settle(struct mtc_cupti_graphs *graphs, int all)
{
	for (uint32_t i = 0; i < graphs->n_open;) {
		if (all || ++graphs->open[i].n_rounds > SETTLED_ROUNDS)
			close_launch(graphs, i);
		else
			i++;
	}
}
