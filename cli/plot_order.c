/* SPDX-License-Identifier: MIT */
/*
 * The order of a heatmap's columns. By rank the experts of a rank stand together: as the last map
 * of the layer places them (an expert with replicas stands where its first one lies), or where
 * --ranks says so, or there is no map, with the experts in order.
 */
#include "cli/plot.h"

#include <stdlib.h>
#include <string.h>

#include "common/bytes.h"

static int out_of_memory(const struct mt_trace *trace)
{
	mt_error("%s: out of memory", trace->path);
	return MT_EXIT_FAILED;
}

/* ---- where experts lie ---- */

#define SQL_RANKS                                                                         \
	"SELECT coalesce((SELECT max(m.n_ranks) FROM expert_map AS m WHERE m.layer_id = " \
	"?1), (SELECT max(ep_size) FROM process))"

#define SQL_MAP                                                                      \
	"SELECT n_slots, coalesce(n_ranks, ?2), slot_experts FROM expert_map WHERE " \
	"layer_id = ?1 AND length(slot_experts) = 4 * n_slots ORDER BY epoch DESC LIMIT 1"

static uint32_t in_order(const struct mt_plot_layer *layer, uint32_t expert, uint64_t n_ranks)
{
	return expert < layer->n_experts ? (uint32_t)(expert * n_ranks / layer->n_experts)
					 : (uint32_t)n_ranks;
}

static void map_apply(const struct mt_plot_layer *layer, sqlite3_stmt *stmt, uint32_t *ranks)
{
	const uint64_t n_slots = (uint64_t)sqlite3_column_int64(stmt, 0);
	const uint64_t n_ranks = (uint64_t)sqlite3_column_int64(stmt, 1);
	const unsigned char *bytes = sqlite3_column_blob(stmt, 2);

	if (!bytes || n_ranks == 0 || n_ranks > n_slots)
		return;
	for (uint32_t i = 0; i < layer->n_slots; i++)
		ranks[i] = (uint32_t)n_ranks;
	for (uint64_t slot = n_slots; slot-- > 0;) {
		const uint32_t expert = mt_u32_at(bytes + 4 * slot);

		if (expert < layer->n_experts)
			ranks[expert] = (uint32_t)(slot * n_ranks / n_slots);
	}
}

static int recorded_apply(const struct mt_trace *trace, const struct mt_plot_layer *layer,
			  uint64_t n_ranks, uint32_t *ranks)
{
	sqlite3_stmt *stmt = mt_trace_prepare(trace, SQL_MAP);
	int rc;

	if (!stmt)
		return MT_EXIT_FAILED;
	sqlite3_bind_int64(stmt, 1, layer->layer_id);
	sqlite3_bind_int64(stmt, 2, (int64_t)n_ranks);
	rc = sqlite3_step(stmt);
	if (rc == SQLITE_ROW)
		map_apply(layer, stmt, ranks);
	sqlite3_finalize(stmt);
	return rc == SQLITE_ROW || rc == SQLITE_DONE ? MT_EXIT_OK : mt_trace_error(trace);
}

static int n_ranks_read(const struct mt_trace *trace, const struct mt_plot_options *options,
			const struct mt_plot_load *load, uint64_t *ret_n_ranks)
{
	sqlite3_stmt *stmt;

	*ret_n_ranks = options->n_ranks;
	if (options->n_ranks)
		return MT_EXIT_OK;
	stmt = mt_trace_prepare(trace, SQL_RANKS);
	if (!stmt)
		return MT_EXIT_FAILED;
	sqlite3_bind_int64(stmt, 1, load->layers[0].layer_id);
	if (sqlite3_step(stmt) == SQLITE_ROW && sqlite3_column_int64(stmt, 0) > 0)
		*ret_n_ranks = (uint64_t)sqlite3_column_int64(stmt, 0);
	sqlite3_finalize(stmt);
	if (*ret_n_ranks && *ret_n_ranks <= 65536)
		return MT_EXIT_OK;
	mt_error("%s: does not tell of ranks; give --ranks N", trace->path);
	return MT_EXIT_NOT_FOUND;
}

static int ranks_make(const struct mt_trace *trace, const struct mt_plot_options *options,
		      struct mt_plot_load *load)
{
	uint64_t n_ranks;
	int status = n_ranks_read(trace, options, load, &n_ranks);

	if (status != MT_EXIT_OK)
		return status;
	load->ranks = calloc((size_t)load->n_layers * load->n_slots, sizeof(*load->ranks));
	if (!load->ranks)
		return out_of_memory(trace);
	for (uint32_t row = 0; row < load->n_layers && status == MT_EXIT_OK; row++) {
		uint32_t *ranks = load->ranks + (size_t)row * load->n_slots;

		for (uint32_t i = 0; i < load->n_slots; i++)
			ranks[i] = in_order(&load->layers[row], i, n_ranks);
		if (!options->n_ranks)
			status = recorded_apply(trace, &load->layers[row], n_ranks, ranks);
	}
	return status;
}

/* ---- order ---- */

struct place {
	uint32_t rank, expert;
	double tokens; /* -1: there is no such expert */
};

static int place_compare(const void *a, const void *b)
{
	const struct place *first = a, *second = b;

	if ((first->tokens < 0) != (second->tokens < 0))
		return first->tokens < 0 ? 1 : -1;
	if (first->rank != second->rank)
		return first->rank < second->rank ? -1 : 1;
	if (first->tokens > second->tokens || first->tokens < second->tokens)
		return first->tokens > second->tokens ? -1 : 1;
	return first->expert < second->expert ? -1 : 1;
}

static void row_order(struct mt_plot_load *load, uint32_t row, struct place *places)
{
	const size_t base = (size_t)row * load->n_slots;

	for (uint32_t i = 0; i < load->n_slots; i++)
		places[i] = (struct place){
			.rank = load->ranks ? load->ranks[base + i] : 0,
			.expert = i,
			.tokens = i < load->layers[row].n_slots ? load->tokens[base + i] : -1,
		};
	qsort(places, load->n_slots, sizeof(*places), place_compare);
	for (uint32_t i = 0; i < load->n_slots; i++)
		load->order[base + i] = places[i].expert;
}

int mt_plot_load_order(const struct mt_trace *trace, const struct mt_plot_options *options,
		       struct mt_plot_load *load)
{
	struct place *places;
	int status = MT_EXIT_OK;

	if (options->sort == MT_PLOT_BY_ID)
		return MT_EXIT_OK;
	if (options->sort == MT_PLOT_BY_RANK)
		status = ranks_make(trace, options, load);
	if (status != MT_EXIT_OK)
		return status;
	places = calloc(load->n_slots, sizeof(*places));
	load->order = calloc((size_t)load->n_layers * load->n_slots, sizeof(*load->order));
	if (!places || !load->order) {
		free(places);
		return out_of_memory(trace);
	}
	for (uint32_t row = 0; row < load->n_layers; row++)
		row_order(load, row, places);
	free(places);
	return MT_EXIT_OK;
}
