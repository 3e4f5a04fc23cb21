/* SPDX-License-Identifier: MIT */
/*
 * The proof that times of graphs can be true: a launch has ended when the second one after it on its
 * stream begins, if it has no flags; and a node, but for the last two, when the last one of its branch
 * in the launch does, if it has times. Nodes without a branch are passed over.
 */
#include <stdlib.h>

#include "cli/check.h"

#include "common/bytes.h"

static const struct check_sql_proof serial_proofs[] = {
	{CHECK_TIMING, NULL,
	 "SELECT 'graph_launch', id, 'it runs still when the second one after it on its stream begins' "
	 "FROM (SELECT graph_launch_id AS id, end_ns, lead(start_ns, 2) OVER (PARTITION BY recording_id, "
	 "device_id, stream ORDER BY start_ns) AS second_ns FROM graph_launch WHERE flags = 0 AND stream "
	 "IS NOT NULL) WHERE end_ns > second_ns"},
};

struct node {
	int64_t branch; /* -1: not known */
	int64_t start_ns;
	int64_t end_ns;
};

/* The nodes of the graph that was looked at last. */
struct graph {
	int64_t graph; /* 0: none */
	int64_t n_nodes;
	int64_t n_capacity;
	int64_t *branches; /* [n_nodes] */
	struct node *nodes;
};

static int by_branch(const void *a, const void *b)
{
	const struct node *x = a, *y = b;

	if (x->branch != y->branch)
		return x->branch < y->branch ? -1 : 1;
	return (x->start_ns > y->start_ns) - (x->start_ns < y->start_ns);
}

static int add_branch(struct check *check, struct graph *graph, int64_t branch)
{
	if (graph->n_nodes == graph->n_capacity) {
		const int64_t n = graph->n_capacity * 2 + 256;
		int64_t *branches = realloc(graph->branches, (size_t)n * sizeof(*branches));
		struct node *nodes = realloc(graph->nodes, (size_t)n * sizeof(*nodes));

		graph->branches = branches ? branches : graph->branches;
		graph->nodes = nodes ? nodes : graph->nodes;
		if (!branches || !nodes) {
			mt_error("%s: out of memory", check->trace->path);
			return MT_EXIT_FAILED;
		}
		graph->n_capacity = n;
	}
	graph->branches[graph->n_nodes++] = branch;
	return MT_EXIT_OK;
}

static int load_graph(struct check *check, sqlite3_stmt *stmt, int64_t number, struct graph *graph)
{
	int status = MT_EXIT_OK;
	int rc = SQLITE_DONE;

	if (graph->graph == number)
		return status;
	graph->graph = number;
	graph->n_nodes = 0;
	sqlite3_bind_int64(stmt, 1, number);
	while (status == MT_EXIT_OK && (rc = sqlite3_step(stmt)) == SQLITE_ROW)
		status = add_branch(check, graph, sqlite3_column_int64(stmt, 0));
	if (status == MT_EXIT_OK && rc != SQLITE_DONE)
		status = mt_trace_error(check->trace);
	sqlite3_reset(stmt);
	return status;
}

/* The last node, in order, of the branch that @i is of. */
static int64_t end_of_branch(const struct node *nodes, int64_t n, int64_t i)
{
	while (i + 1 < n && nodes[i + 1].branch == nodes[i].branch)
		i++;
	return i;
}

/* Whether the nodes of a launch can have these times; as many as both the graph and the blob have. */
static int are_serial(const struct graph *graph, const unsigned char *times, int64_t n_nodes)
{
	struct node *nodes = graph->nodes;
	int64_t n = 0, last = 0;

	for (int64_t i = 0; i < n_nodes && i < graph->n_nodes; i++) {
		const int64_t start_ns = mt_u32_at(times + i * 8);
		const int64_t length_ns = mt_u32_at(times + i * 8 + 4);

		if (graph->branches[i] >= 0 && length_ns != UINT32_MAX)
			nodes[n++] = (struct node){ graph->branches[i], start_ns,
						    start_ns + length_ns };
	}
	if (n > 0)
		qsort(nodes, (size_t)n, sizeof(*nodes), by_branch);
	for (int64_t i = 0; i < n; i++) {
		if (i == last || nodes[i].branch != nodes[last].branch)
			last = end_of_branch(nodes, n, i);
		if (i + 2 <= last && nodes[i].end_ns > nodes[last].start_ns)
			return 0;
	}
	return 1;
}

static int check_nodes(struct check *check, sqlite3_stmt *launches, sqlite3_stmt *branches,
		       struct graph *graph)
{
	int status = MT_EXIT_OK;
	int rc = SQLITE_DONE;

	while (status == MT_EXIT_OK && (rc = sqlite3_step(launches)) == SQLITE_ROW) {
		status = load_graph(check, branches, sqlite3_column_int64(launches, 1), graph);
		if (status == MT_EXIT_OK &&
		    !are_serial(graph, sqlite3_column_blob(launches, 2),
				sqlite3_column_bytes(launches, 2) / 8))
			check_violation(check, CHECK_TIMING,
					"graph_launch %lld: one of its nodes runs still when the "
					"last one of its branch begins",
					(long long)sqlite3_column_int64(launches, 0));
	}
	if (status == MT_EXIT_OK && rc != SQLITE_DONE)
		status = mt_trace_error(check->trace);
	return status;
}

int check_serial_run(struct check *check)
{
	struct graph graph = { .graph = 0 };
	sqlite3_stmt *launches, *branches = NULL;
	int status = check_sql_proofs_run(check, serial_proofs,
					  sizeof(serial_proofs) / sizeof(serial_proofs[0]));

	if (status != MT_EXIT_OK)
		return status;
	launches = mt_trace_prepare(check->trace,
				    "SELECT graph_launch_id, graph, node_times FROM graph_launch "
				    "WHERE graph > 0 AND typeof(node_times) = 'blob'");
	if (launches)
		branches = mt_trace_prepare(check->trace,
					    "SELECT coalesce(branch, -1) FROM graph_node "
					    "WHERE graph = ?1 ORDER BY node");
	status = branches ? check_nodes(check, launches, branches, &graph) : MT_EXIT_FAILED;
	free(graph.branches);
	free(graph.nodes);
	sqlite3_finalize(branches);
	sqlite3_finalize(launches);
	return status;
}
