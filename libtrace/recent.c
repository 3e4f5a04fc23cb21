/* SPDX-License-Identifier: MIT */
/*
 * A list of passes, the oldest given up first. Invariant: a pass that could not be kept empties
 * the list, so that what is there has no holes.
 */
#include "libtrace/recent.h"

#include <stdlib.h>
#include <string.h>

#include "libtrace/store/store.h"

static void *copy_of(const void *from, size_t n_bytes)
{
	void *copy = from ? malloc(n_bytes ? n_bytes : 1) : NULL;

	return copy ? memcpy(copy, from, n_bytes) : NULL;
}

void mt_recent_free(struct mt_recent_pass *pass)
{
	if (!pass)
		return;
	for (uint32_t i = 0; i < pass->n_layers; i++)
		free(pass->layers[i].memory);
	for (uint32_t i = 0; i < pass->n_slices; i++) {
		free((void *)(uintptr_t)pass->slices[i].positions);
		free((void *)(uintptr_t)pass->slices[i].accepted);
	}
	free(pass->layers);
	free(pass->slices);
	free(pass);
}

static void drop_oldest(struct mt_recent *recent)
{
	struct mt_recent_pass *pass = recent->oldest;

	recent->oldest = pass->newer;
	*(pass->newer ? &pass->newer->older : &recent->newest) = NULL;
	recent->n_bytes -= pass->n_bytes;
	recent->first_pass_id = pass->pass_id + 1;
	mt_recent_free(pass);
}

void mt_recent_clear(struct mt_recent *recent)
{
	while (recent->oldest)
		drop_oldest(recent);
}

struct mt_recent_pass *mt_recent_begin(const struct mt_recent *recent, uint32_t model,
				       uint32_t n_layers, uint32_t n_slices)
{
	struct mt_recent_pass *pass = recent->max_bytes ? calloc(1, sizeof(*pass)) : NULL;

	if (!pass)
		return NULL;
	pass->model = model;
	pass->layers = calloc(n_layers + 1ul, sizeof(*pass->layers));
	pass->slices = calloc(n_slices + 1ul, sizeof(*pass->slices));
	if (!pass->layers || !pass->slices) {
		mt_recent_free(pass);
		return NULL;
	}
	for (uint32_t i = 0; i < n_layers; i++) {
		pass->layers[i].rows.layer = i;
		pass->layers[i].rows.state = MT_LAYER_UNWRITTEN;
	}
	pass->n_layers = n_layers;
	pass->n_slices = n_slices;
	pass->n_bytes = sizeof(*pass) + n_layers * sizeof(*pass->layers) +
			n_slices * sizeof(*pass->slices);
	return pass;
}

int mt_recent_rows(struct mt_recent_pass *pass, const struct mt_experts_rows *rows)
{
	struct mt_recent_layer *layer = &pass->layers[rows->layer];
	size_t map_bytes = rows->row_map ? rows->n_rows * 4ul : 0;
	size_t ids_bytes = (size_t)rows->n_rows * rows->k * rows->id_bytes;
	size_t valid_bytes = rows->n_valid ? rows->n_rows : 0;
	uint8_t *memory = malloc(map_bytes + ids_bytes + valid_bytes + 1);

	if (!memory)
		return MOETRACE_E_NOMEM;
	layer->memory = memory;
	layer->rows = *rows;
	if (rows->row_map)
		layer->rows.row_map = memcpy(memory, rows->row_map, map_bytes);
	layer->rows.ids = memcpy(memory + map_bytes, rows->ids, ids_bytes);
	if (rows->n_valid)
		layer->rows.n_valid = memcpy(memory + map_bytes + ids_bytes, rows->n_valid,
					     valid_bytes);
	pass->n_bytes += map_bytes + ids_bytes + valid_bytes;
	return MOETRACE_OK;
}

int mt_recent_slice(struct mt_recent_pass *pass, uint32_t i, const struct mt_experts_slice *slice)
{
	struct mt_experts_slice *to = &pass->slices[i];

	*to = *slice;
	to->positions = copy_of(slice->positions, slice->n_rows * 4ul);
	to->accepted = copy_of(slice->accepted, slice->n_rows);
	pass->n_bytes += (to->positions ? slice->n_rows * 4ul : 0) +
			 (to->accepted ? slice->n_rows : 0);
	return (slice->positions && !to->positions) || (slice->accepted && !to->accepted) ?
		       MOETRACE_E_NOMEM :
		       MOETRACE_OK;
}

void mt_recent_end(struct mt_recent *recent, struct mt_recent_pass *pass, int64_t pass_id)
{
	if (!recent->max_bytes)
		return;
	if (!pass) {
		mt_recent_clear(recent);
		recent->first_pass_id = pass_id + 1;
		return;
	}
	pass->pass_id = pass_id;
	pass->older = recent->newest;
	*(recent->newest ? &recent->newest->newer : &recent->oldest) = pass;
	recent->newest = pass;
	recent->n_bytes += pass->n_bytes;
	while (recent->n_bytes > recent->max_bytes)
		drop_oldest(recent);
}

void mt_recent_accept(struct mt_recent *recent, int64_t pass_id, uint32_t slice,
		      const uint8_t *accepted)
{
	struct mt_recent_pass *pass = recent->newest;

	while (pass && pass->pass_id > pass_id)
		pass = pass->older;
	if (!pass || pass->pass_id != pass_id)
		return;
	pass->slices[slice].accepted = copy_of(accepted, pass->slices[slice].n_rows);
	/* Without memory the acceptance would be unknown here and known in the file. */
	if (!pass->slices[slice].accepted)
		mt_recent_clear(recent);
}

static int collect_slice(const struct mt_recent_pass *pass, const struct mt_experts_slice *slice,
			 const struct mt_experts_part *part, struct mt_experts *experts)
{
	int status = MOETRACE_OK;

	mt_experts_slice_begin(experts, part, slice);
	for (uint32_t i = 0; !status && i < pass->n_layers; i++)
		status = mt_experts_rows_add(experts, part, slice, &pass->layers[i].rows);
	mt_experts_slice_end(experts, pass->is_sampled);
	return status;
}

int mt_recent_collect(const struct mt_recent *recent, uint32_t model,
		      const struct mt_experts_part *part, struct mt_experts *experts)
{
	int status = MOETRACE_OK;

	for (const struct mt_recent_pass *pass = recent->oldest; pass; pass = pass->newer)
		for (uint32_t i = 0; !status && pass->model == model && i < pass->n_slices; i++)
			if (pass->slices[i].request_id == part->request_id &&
			    pass->slices[i].attempt == part->attempt)
				status = collect_slice(pass, &pass->slices[i], part, experts);
	return status;
}
