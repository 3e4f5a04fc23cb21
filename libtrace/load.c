/* SPDX-License-Identifier: MIT */
/*
 * Invariant: the table plus the counts in memory are exactly the passes added so far; the
 * counts in memory all belong to the current window.
 */
#include "libtrace/load.h"

#include <stdlib.h>
#include <string.h>

void mt_load_open(struct mt_load *load, struct mt_store *store)
{
	memset(load, 0, sizeof(*load));
	load->store = store;
	load->max_rows = MT_LOAD_MAX_ROWS;
}

static void free_model(struct mt_load_model *model)
{
	free(model->layer_cells);
	free(model->counts);
	free(model->layer_dirty);
	free(model->seen);
}

void mt_load_close(struct mt_load *load)
{
	for (uint32_t i = 0; i < load->n_models; i++)
		free_model(&load->models[i]);
}

int mt_load_model_add(struct mt_load *load, const struct mt_model *model)
{
	struct mt_load_model *to = &load->models[load->n_models];

	to->model = model;
	to->n_cells = 0;
	to->layer_cells = calloc(model->n_layers + 1ul, sizeof(*to->layer_cells));
	to->layer_dirty = calloc(model->n_layers + 1ul, 1);
	for (uint32_t i = 0; to->layer_cells && i < model->n_layers; i++) {
		to->layer_cells[i] = to->n_cells;
		to->n_cells += model->layers[i].n_ids;
	}
	to->counts = calloc((to->n_cells + 1) * MT_N_LOAD, sizeof(*to->counts));
	to->seen = calloc(to->n_cells + 1, 1);
	if (!to->layer_cells || !to->counts || !to->layer_dirty || !to->seen) {
		free_model(to);
		return MOETRACE_E_NOMEM;
	}
	load->n_cells += to->n_cells;
	load->n_models++;
	return MOETRACE_OK;
}

static void forget_seen(struct mt_load *load)
{
	for (uint32_t i = 0; i < load->n_models; i++)
		memset(load->models[i].seen, 0, load->models[i].n_cells);
}

static void set_window(struct mt_load *load, uint64_t begin_ns)
{
	uint64_t length_ns = (uint64_t)load->window.length_ns;
	uint64_t since_ns = begin_ns > load->origin_ns ? begin_ns - load->origin_ns : 0;

	load->window.start_ns = (int64_t)(load->origin_ns + since_ns / length_ns * length_ns);
}

void mt_load_start(struct mt_load *load, int64_t recording_id, uint64_t start_ns,
		   uint64_t window_ns)
{
	load->origin_ns = start_ns;
	load->window.recording_id = recording_id;
	load->window.length_ns = (int64_t)window_ns;
	load->window.start_ns = (int64_t)start_ns;
	load->added_passes = load->added_assignments = 0;
	load->n_passes = load->n_assignments = 0;
	forget_seen(load);
}

void mt_load_drop(struct mt_load *load)
{
	for (uint32_t i = 0; i < load->n_models; i++) {
		struct mt_load_model *model = &load->models[i];

		memset(model->counts, 0, model->n_cells * MT_N_LOAD * sizeof(*model->counts));
		memset(model->layer_dirty, 0, model->model->n_layers);
	}
	load->is_dirty = 0;
}

/* Longer windows until another one fits; a single window cannot get smaller. */
static int make_room(struct mt_load *load)
{
	uint64_t n_before = UINT64_MAX;
	int status = MOETRACE_OK;

	while (!status && load->n_rows + load->n_cells > load->max_rows &&
	       load->n_rows < n_before) {
		n_before = load->n_rows;
		load->window.length_ns *= 2;
		status = mt_store_load_merge(load->store, load->window.recording_id,
					     (int64_t)load->origin_ns, load->window.length_ns,
					     &load->n_rows);
	}
	return status;
}

static int enter_window(struct mt_load *load, int64_t pass_id, uint64_t begin_ns)
{
	int64_t start_ns = load->window.start_ns;
	int status;

	if ((int64_t)begin_ns >= start_ns &&
	    (int64_t)begin_ns - start_ns < load->window.length_ns)
		return MOETRACE_OK;
	set_window(load, begin_ns);
	if (load->window.start_ns == start_ns)
		return MOETRACE_OK;
	load->window.start_ns = start_ns;
	status = mt_load_flush(load, pass_id - 1);
	if (!status)
		status = make_room(load);
	set_window(load, begin_ns);
	forget_seen(load);
	return status;
}

int mt_load_pass(struct mt_load *load, int64_t pass_id, uint64_t begin_ns)
{
	int status = enter_window(load, pass_id, begin_ns);

	load->added_passes++;
	return status;
}

void mt_load_add(struct mt_load *load, uint32_t model_index, uint32_t layer,
		 enum mt_load_class load_class, const uint32_t *counts)
{
	struct mt_load_model *model = &load->models[model_index];
	uint64_t *to = model->counts + (uint64_t)load_class * model->n_cells +
		       model->layer_cells[layer];
	uint32_t n_ids = model->model->layers[layer].n_ids;
	uint64_t n = 0;

	for (uint32_t i = 0; i < n_ids; i++) {
		to[i] += counts[i];
		n += counts[i];
	}
	load->added_assignments += load_class == MT_LOAD_PADDING ? 0 : n;
	model->layer_dirty[layer] = 1;
	load->is_dirty = 1;
}

static int flush_cell(struct mt_load *load, struct mt_load_model *model, uint32_t layer,
		      uint32_t id)
{
	uint64_t cell = model->layer_cells[layer] + id;
	uint64_t tokens[MT_N_LOAD];
	uint64_t any = 0;

	for (uint32_t i = 0; i < MT_N_LOAD; i++) {
		tokens[i] = model->counts[i * model->n_cells + cell];
		any |= tokens[i];
	}
	if (!any)
		return MOETRACE_OK;
	for (uint32_t i = 0; i < MT_N_LOAD; i++)
		model->counts[i * model->n_cells + cell] = 0;
	load->n_rows += !model->seen[cell];
	model->seen[cell] = 1;
	return mt_store_load(load->store, &load->window, model->model->layers[layer].layer_id, id,
			     tokens);
}

int mt_load_flush(struct mt_load *load, int64_t last_pass_id)
{
	int status = MOETRACE_OK;

	load->last_pass_id = last_pass_id;
	load->n_passes = load->added_passes;
	load->n_assignments = load->added_assignments;
	if (!load->is_dirty)
		return MOETRACE_OK;
	for (uint32_t m = 0; m < load->n_models; m++) {
		struct mt_load_model *model = &load->models[m];

		for (uint32_t layer = 0; layer < model->model->n_layers; layer++) {
			uint32_t n_ids = model->layer_dirty[layer] ?
						 model->model->layers[layer].n_ids :
						 0;

			for (uint32_t id = 0; !status && id < n_ids; id++)
				status = flush_cell(load, model, layer, id);
			model->layer_dirty[layer] = 0;
		}
	}
	load->is_dirty = 0;
	return status;
}
