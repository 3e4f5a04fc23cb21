/* SPDX-License-Identifier: MIT */
/*
 * Kernels and launches of graphs, as a collector read them, become rows. A reading that names a pass
 * waits until that pass has closed, so that the row can name it, too: for as long as the host has not
 * ended it, or its GPU is not done with it, and then for as long as its way to the writer may take. A
 * pass that does not come, or that a full list does not let wait for, is not named, and that is counted.
 *
 * Invariant: of a sampled pass all kernels are stored or none. Those of a pass that was not seen from
 * its begin to its end are left out.
 */
#include "libtrace/writer_internal.h"

#include <stdlib.h>
#include <string.h>

#include "libtrace/clock.h"
#include "libtrace/collect.h"
#include "libtrace/host_ties.h"

/* From when a pass was first seen to be neither open nor on a device. */
#define PATIENCE_NS (2 * MT_NS_PER_S)

/* The key of a launch's shape: there are few of them. */
static int shape_id(struct mt_writer *writer, const int32_t *shape, int64_t *ret_shape_id)
{
	struct mt_shape_row row = { .launch_shape_id = 0 };
	struct mt_shape_row *grown;
	uint32_t i = writer->n_shapes;

	memcpy(row.values, shape, sizeof(row.values));
	while (i > 0 && memcmp(writer->shapes[i - 1].values, row.values, sizeof(row.values)) != 0)
		i--;
	*ret_shape_id = i;
	if (i > 0)
		return MOETRACE_OK;
	grown = realloc(writer->shapes, (writer->n_shapes + 1ul) * sizeof(*grown));
	if (!grown)
		return MOETRACE_E_NOMEM;
	writer->shapes = grown;
	row.launch_shape_id = ++writer->n_shapes;
	grown[writer->n_shapes - 1] = row;
	*ret_shape_id = row.launch_shape_id;
	return mt_store_launch_shape(writer->store, &row);
}

/* The key of the layer that a mark names; MT_NULL: it names none. */
static int64_t layer_id(const struct mt_writer *writer, uint64_t mark)
{
	struct moetrace_session *session = writer->session;
	uint32_t model = mt_mark_model(mark);
	const struct mt_model *found;

	if (!(mark & MT_MARK_SET) || model < 1 || model > atomic_load(&session->n_models))
		return MT_NULL;
	found = session->models[model - 1];
	return mt_mark_layer(mark) < found->n_layers ? found->layers[mt_mark_layer(mark)].layer_id :
						      MT_NULL;
}

static int write_node(struct mt_writer *writer, uint32_t graph, uint32_t i,
		      const struct mt_graph_node *node)
{
	struct mt_node_row row = {
		.graph = graph,
		.node = i,
		.name_id = node->name,
		.layer_id = layer_id(writer, node->mark),
		.known_by = MT_NULL,
		.source_node = (int64_t)node->source_node,
		.branch = node->branch == MT_NO_BRANCH ? MT_NULL : node->branch,
	};
	int status = shape_id(writer, node->shape, &row.launch_shape_id);

	if (row.layer_id != MT_NULL)
		row.known_by = node->known_by;
	return status ? status : mt_store_graph_node(writer->store, &row);
}

/* The file gets to know a graph before its first launch. */
static int define_graph(struct mt_writer *writer, uint32_t number, uint32_t n_nodes)
{
	const struct mt_collect_graph *graph =
		mt_collect_graph_get(writer->session->collect, number);
	int status = MOETRACE_OK;

	if (!graph || graph->n_nodes != n_nodes)
		return MOETRACE_E_NOT_FOUND;
	if (writer->has_graph[number - 1])
		return MOETRACE_OK;
	for (uint32_t i = 0; !status && i < graph->n_nodes; i++)
		status = write_node(writer, number, i, &graph->nodes[i]);
	writer->has_graph[number - 1] = 1;
	return status;
}

static int write_launch(struct mt_writer *writer, const struct mt_kernel_reading *reading,
			struct mt_kernel_row *row)
{
	int status;

	if (reading->graph) {
		status = define_graph(writer, reading->graph, reading->n_nodes);
		if (status)
			return status;
		row->graph = reading->graph;
		row->n_nodes = reading->n_nodes;
		row->n_untimed = reading->n_untimed;
		row->node_times = reading->node_times;
	}
	return mt_store_graph_launch(writer->store, row);
}

int mt_writer_write_kernel(struct mt_writer *writer, const struct mt_kernel_reading *reading,
			   int64_t device)
{
	const struct mt_tied_pass *pass =
		reading->pass ? mt_tied_find(&writer->tied, reading->pass) : NULL;
	struct mt_kernel_row row = {
		.recording_id = writer->recording_id,
		.device_id = device,
		.stream = reading->stream,
		.name_id = reading->name,
		.start_ns = reading->start_ns,
		.end_ns = reading->end_ns,
		.pass_id = pass ? pass->pass_id : MT_NULL,
		.layer_id = reading->is_graph ? MT_NULL : layer_id(writer, reading->mark),
		.known_by = MT_NULL,
		.flags = reading->flags,
		.launch_shape_id = MT_NULL,
		.correlation = reading->correlation,
	};
	int status;

	if (!reading->is_graph && !reading->name)
		return MOETRACE_E_NOT_FOUND;
	writer->n_untied += reading->pass && !pass;
	if (row.pass_id != MT_NULL || row.layer_id != MT_NULL)
		row.known_by = pass && reading->mark & MT_MARK_BY_TIME ? MT_KNOWN_TIME :
									 MT_KNOWN_CORRELATION;
	if (reading->is_graph)
		return write_launch(writer, reading, &row);
	status = shape_id(writer, reading->shape, &row.launch_shape_id);
	return status ? status : mt_store_kernel(writer->store, &row);
}

/* Readings of one pass come one after the other: it is looked for once. */
static int is_open(struct mt_writer *writer, uint64_t number)
{
	if (writer->looked_for.number != number) {
		writer->looked_for.number = number;
		writer->looked_for.is_open = mt_ties_pass_is_open(writer->session->ties, number);
	}
	return writer->looked_for.is_open;
}

int mt_writer_kernel_waits(struct mt_writer *writer, struct mt_kernel_reading *reading)
{
	uint64_t now_ns = mt_session_ns(writer->session, mt_monotonic_ns());

	/* While a recording is being ended all passes of it have closed. */
	if (!reading->pass || mt_tied_find(&writer->tied, reading->pass) ||
	    writer->end_ns != UINT64_MAX)
		return 0;
	if (is_open(writer, reading->pass) ||
	    mt_ties_pass_is_on_its_way(writer->session->ties, reading->pass, &reading->n_begun)) {
		reading->closed_ns = 0;
		return 1;
	}
	if (!reading->closed_ns)
		reading->closed_ns = now_ns;
	return now_ns < reading->closed_ns + PATIENCE_NS;
}

int mt_writer_kernel_is_left_out(struct mt_writer *writer, const struct mt_kernel_reading *reading)
{
	/* It ended before the recording began. */
	if (reading->end_ns != MT_UNKNOWN && reading->end_ns < (int64_t)writer->start_ns)
		return 1;
	return reading->is_sampled && reading->pass &&
	       !mt_ties_are_whole(writer->session->ties, reading->pass);
}
