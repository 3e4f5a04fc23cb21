/* SPDX-License-Identifier: MIT */
/*
 * Layers of the open pass of a ring. Invariant: the counts of a pass are those of all rows of its
 * layers that came, whatever of them is kept; they are zero again when it is closed.
 */
#include "libtrace/layer.h"

#include <stdlib.h>
#include <string.h>

#include "libtrace/count.h"

static uint32_t *layer_counts(const struct mt_assembly *assembly, const struct mt_open_pass *pass,
			      uint32_t layer, enum mt_load_class load_class)
{
	const struct mt_load_model *model = &assembly->load->models[mt_open_pass_model(pass)];

	return pass->counts + load_class * model->n_cells + model->layer_cells[layer];
}

/* Count a layer's rows by class, and from that what pass_layer says of its load. */
static void count_layer(struct mt_assembly *assembly, struct mt_open_pass *pass,
			const struct mt_record_layer *record, const struct mt_layer_parts *parts)
{
	struct mt_assembly_layer *layer = &pass->layers[record->layer];
	const struct mt_layer *info = &pass->model->layers[record->layer];
	uint32_t *counts[MT_N_LOAD];
	struct mt_count_rows rows = {
		.ids = parts->ids,
		.n_rows = record->n_rows,
		.k = record->k,
		.id_bytes = record->id_bytes,
		.n_valid = record->has_valid ? parts->n_valid : NULL,
	};
	struct mt_count_summary summary;
	uint64_t n;

	for (uint32_t i = 0; i < MT_N_LOAD; i++)
		counts[i] = layer_counts(assembly, pass, record->layer, i);
	if (pass->one_class >= 0) {
		n = mt_count_ids(&rows, counts[pass->one_class]);
		layer->classes = 1u << pass->one_class;
	} else {
		rows.row_map = record->has_row_map ? parts->row_map : NULL;
		n = mt_count_ids_by_class(&rows, pass->row_classes, counts);
		layer->classes = (1u << MT_LOAD_PADDING) - 1;
	}
	/* Of a sampled pass those count that are kept. */
	pass->so_far.assignments += pass->is_sampled ? 0 : n;
	if (record->n_padding) {
		rows.ids += (uint64_t)record->n_rows * record->k * record->id_bytes;
		rows.n_rows = record->n_padding;
		rows.n_valid = record->has_padding_valid ? parts->n_valid + record->n_rows : NULL;
		(void)mt_count_ids(&rows, counts[MT_LOAD_PADDING]);
		layer->classes |= 1u << MT_LOAD_PADDING;
	}
	mt_count_summarize(counts, layer->classes, info->n_experts, &summary);
	layer->row.active_experts = summary.active_experts;
	layer->row.max_load = summary.max_load;
	/* Padding that a pass has none of, or that was shown, is known; else it is not. */
	layer->row.padding_active_experts =
		record->n_padding || !pass->begin.padding_rows ? summary.padding_active_experts :
								  MT_NULL;
}

/* Move the marks of invalid rows from the counts of valid entries to the pass. */
static void take_marks(struct mt_open_pass *pass, const struct mt_record_layer *record,
		       const struct mt_layer_parts *parts)
{
	/* The first marks of this pass: those of an earlier one are still there. */
	if (!pass->so_far.invalid_ids)
		memset(pass->invalid_rows, 0, pass->begin.n_rows);
	for (uint32_t row = 0; row < record->n_rows; row++) {
		if (!(parts->n_valid[row] & MT_ROW_INVALID))
			continue;
		parts->n_valid[row] &= (uint8_t)~MT_ROW_INVALID;
		pass->invalid_rows[record->has_row_map ? parts->row_map[row] : row] = 1;
	}
	pass->so_far.invalid_ids += record->n_invalid;
}

/* Move row @from of an array to row @to, where the array is there. */
static void move_row(void *array, uint64_t row_bytes, uint64_t to, uint64_t from)
{
	uint8_t *at = array;

	if (array && to != from)
		memmove(at + to * row_bytes, at + from * row_bytes, row_bytes);
}

/* Room for a row map of the pass's rows. Returns MOETRACE_OK or MOETRACE_E_NOMEM. */
static int reserve_map(struct mt_assembly *assembly, uint64_t n_rows)
{
	if (n_rows <= assembly->map_capacity)
		return MOETRACE_OK;
	free(assembly->row_map);
	assembly->map_capacity = 0;
	assembly->row_map = malloc(n_rows * sizeof(*assembly->row_map));
	if (!assembly->row_map)
		return MOETRACE_E_NOMEM;
	assembly->map_capacity = n_rows;
	return MOETRACE_OK;
}

/* Take the rows of requests that are not sampled out of a layer; all are counted already. */
static int sample_rows(struct mt_assembly *assembly, const struct mt_open_pass *pass,
		       struct mt_topk_rows *rows)
{
	uint64_t ids_bytes = (uint64_t)rows->k * rows->id_bytes;
	uint64_t candidates = rows->n_candidates;
	uint32_t n = 0;

	if (reserve_map(assembly, rows->n_rows + 1ul))
		return MOETRACE_E_NOMEM;
	for (uint32_t i = 0; i < rows->n_rows; i++) {
		uint32_t pass_row = rows->row_map ? rows->row_map[i] : i;

		if (!pass->is_kept[pass_row])
			continue;
		assembly->row_map[n] = pass_row;
		move_row(rows->ids, ids_bytes, n, i);
		move_row(rows->weights, rows->k * 2ul, n, i);
		move_row(rows->n_valid, 1, n, i);
		move_row(rows->margins, sizeof(*rows->margins), n, i);
		move_row(rows->row_flags, 1, n, i);
		move_row(rows->base_k ? rows->base_ids : NULL,
			 (uint64_t)rows->base_k * rows->id_bytes, n, i);
		move_row(rows->physical_ids, (uint64_t)rows->k * rows->physical_id_bytes, n, i);
		move_row(rows->candidate_ids, candidates * rows->id_bytes, n, i);
		move_row(rows->candidate_scores, candidates * 2, n, i);
		n++;
	}
	rows->n_rows = n;
	rows->row_map = assembly->row_map;
	return MOETRACE_OK;
}

/* Whether what is told of the rows can be so. */
static int are_facts_right(const struct mt_topk_rows *rows)
{
	const unsigned known = MOETRACE_ROW_NAN | MOETRACE_ROW_TIE;

	for (uint32_t i = 0; i < rows->n_rows; i++) {
		if (rows->margins && !(rows->margins[i] >= 0))
			return 0;
		if (rows->row_flags && (rows->row_flags[i] & ~known))
			return 0;
		if (rows->margins && rows->row_flags && rows->margins[i] == 0 &&
		    !(rows->row_flags[i] & MOETRACE_ROW_TIE))
			return 0;
	}
	return 1;
}

static uint64_t count_entries(const struct mt_topk_rows *rows)
{
	uint64_t n = 0;

	if (!rows->n_valid)
		return (uint64_t)rows->n_rows * rows->k;
	for (uint32_t i = 0; i < rows->n_rows; i++)
		n += rows->n_valid[i];
	return n;
}

/* The layer's ids in memory; a pass that lacks one is not kept there. */
static void keep_in_memory(struct mt_open_pass *pass, uint32_t layer,
			   const struct mt_topk_rows *rows)
{
	const struct mt_experts_rows ids = {
		.layer = layer,
		.state = MT_LAYER_STORED,
		.n_rows = rows->n_rows,
		.k = rows->k,
		.id_bytes = rows->id_bytes,
		.ids = rows->ids,
		.n_valid = rows->n_valid,
		.row_map = rows->row_map,
	};

	if (!pass->recent || mt_recent_rows(pass->recent, &ids) == MOETRACE_OK)
		return;
	mt_recent_free(pass->recent);
	pass->recent = NULL;
}

/* A counted layer goes to the store, as far as the recording keeps rows. */
static int keep_layer(struct mt_assembly *assembly, struct mt_open_pass *pass,
		      const struct mt_record_layer *record, struct mt_topk_rows *rows,
		      const struct mt_layer_extra *extra)
{
	struct mt_layer_row *row = &pass->layers[record->layer].row;
	int status = MOETRACE_OK;

	row->selected_ns = record->untimed ? MT_NULL : (int64_t)record->record.time_ns;
	row->n_rows = record->n_rows;
	row->tied_rows = MT_NULL;
	pass->so_far.layers++;
	if (assembly->mode != MOETRACE_MODE_PER_TOKEN) {
		row->state = MT_LAYER_COUNTED;
		return MOETRACE_OK;
	}
	row->state = MT_LAYER_STORED;
	row->selection_order = extra->order;
	row->tied_rows = extra->tied_rows;
	if (pass->is_sampled)
		status = sample_rows(assembly, pass, rows);
	row->n_rows = rows->n_rows;
	pass->so_far.assignments += pass->is_sampled ? count_entries(rows) : 0;
	if (!status)
		keep_in_memory(pass, record->layer, rows);
	return status ? status :
			mt_store_topk(assembly->store, rows, &row->topk_id, &row->topk_row);
}

/* Handed over twice: the first counts. */
static int is_duplicate(struct mt_assembly *assembly, const struct mt_open_pass *pass,
			uint32_t layer)
{
	enum mt_layer_state state = pass->layers[layer].row.state;

	if (state != MT_LAYER_STORED && state != MT_LAYER_COUNTED)
		return 0;
	mt_misuse(assembly->session, MT_MISUSE_DUPLICATE);
	return 1;
}

static int take_layer(struct mt_assembly *assembly, struct mt_open_pass *pass,
		      struct mt_record_layer *record, const struct mt_layer_extra *extra)
{
	struct mt_layer_parts parts = mt_layer_parts(record);
	struct mt_topk_rows rows = {
		.n_rows = record->n_rows,
		.k = record->k,
		.id_bytes = record->id_bytes,
		.weight_format = record->weight_format,
		.ids = parts.ids,
		.weights = record->weight_format != MOETRACE_WEIGHT_FORMAT_NONE ? parts.weights :
										  NULL,
		.row_map = record->has_row_map ? parts.row_map : NULL,
		.n_valid = record->has_valid ? parts.n_valid : NULL,
		.margins = record->facts & MT_FACT_MARGINS ? parts.margins : NULL,
		.row_flags = record->facts & MT_FACT_FLAGS ? parts.row_flags : NULL,
		.base_ids = parts.base_ids,
		.base_k = record->has_base ? record->base_k : 0,
		.rule_id = record->rule,
		.physical_ids = extra->physical_ids,
		.physical_id_bytes = extra->physical_ids ? extra->physical_id_bytes : 0,
		.n_candidates = extra->n_candidates,
		.candidate_ids = extra->candidate_ids,
		.candidate_scores = extra->candidate_scores,
	};

	if (rows.n_candidates)
		rows.score_format = (uint8_t)assembly->session->opts.weight_format;
	if (!are_facts_right(&rows)) {
		rows.margins = NULL;
		rows.row_flags = NULL;
		mt_misuse(assembly->session, MT_MISUSE_FACTS);
	}
	if (record->n_invalid)
		take_marks(pass, record, &parts);
	count_layer(assembly, pass, record, &parts);
	return keep_layer(assembly, pass, record, &rows, extra);
}

int mt_layer_record(struct mt_assembly *assembly, struct mt_open_pass *pass,
		    struct mt_record_layer *record)
{
	const struct mt_layer_extra extra = {
		.order = record->order == MOETRACE_ORDER_SELECTION ? MT_ORDER_SELECTION :
								     MT_ORDER_UNKNOWN,
		.tied_rows = MT_NULL,
	};

	if (is_duplicate(assembly, pass, record->layer))
		return MOETRACE_OK;
	return take_layer(assembly, pass, record, &extra);
}

int mt_layer_wide(struct mt_assembly *assembly, struct mt_open_pass *pass,
		  struct mt_record_wide *record)
{
	const struct mt_settle_input input = {
		.wide = record,
		.layer = &pass->model->layers[record->layer],
		.info = &pass->model->layer_infos[record->layer],
		.map = record->map_epoch ? mt_expert_maps_find(&assembly->maps, mt_open_pass_model(pass),
							       record->map_epoch) :
					   NULL,
		.weight_format = assembly->mode == MOETRACE_MODE_PER_TOKEN ?
					 assembly->session->opts.weight_format :
					 MOETRACE_WEIGHT_FORMAT_NONE,
	};
	struct mt_record_layer *layer;
	struct mt_layer_extra extra;
	uint64_t misuse;
	int status;

	if (is_duplicate(assembly, pass, record->layer))
		return MOETRACE_OK;
	status = mt_settle(&assembly->settler, &input, &layer, &extra, &misuse);
	if (status == MOETRACE_E_NOT_FOUND) {
		mt_misuse(assembly->session, MT_MISUSE_MAP);
		return MOETRACE_OK;
	}
	if (status)
		return status;
	for (uint32_t i = 0; i < MT_N_MISUSE; i++)
		if (misuse >> i & 1)
			mt_misuse(assembly->session, i);
	if (record->map_epoch)
		pass->layers[record->layer].row.map_epoch = record->map_epoch;
	return take_layer(assembly, pass, layer, &extra);
}

/* ---- counts ---- */

/* Counts by slot become counts by expert. Returns 0 if they fit neither the map nor the layer. */
static int add_counts(struct mt_assembly *assembly, const struct mt_open_pass *pass,
		      const struct mt_record_counts *record, uint32_t *counts)
{
	const struct mt_layer *layer = &pass->model->layers[record->layer];
	const uint32_t *from = (const uint32_t *)(record + 1);
	const struct mt_expert_map *map = NULL;

	if (record->map_epoch) {
		map = mt_expert_maps_find(&assembly->maps, mt_open_pass_model(pass), record->map_epoch);
		if (!map || (record->n_counts != map->n_slots &&
			     record->n_counts != mt_physical_ids(map, layer)))
			return 0;
	}
	for (uint32_t i = 0; i < record->n_counts; i++) {
		int32_t id = map ? mt_logical_id(map, layer, record->layer, i) : (int32_t)i;

		if (id < 0 && from[i])
			return 0;
	}
	for (uint32_t i = 0; i < record->n_counts; i++)
		if (from[i])
			counts[map ? mt_logical_id(map, layer, record->layer, i) : (int32_t)i] +=
				from[i];
	return 1;
}

int mt_layer_counts(struct mt_assembly *assembly, struct mt_open_pass *pass,
		    const struct mt_record_counts *record)
{
	struct mt_assembly_layer *layer = &pass->layers[record->layer];
	const struct mt_layer *info = &pass->model->layers[record->layer];
	enum mt_load_class load_class = pass->one_class >= 0 ? (enum mt_load_class)pass->one_class :
							       MT_LOAD_OTHER;
	uint32_t *counts[MT_N_LOAD];
	struct mt_count_summary summary;

	if (!record->n_counts || is_duplicate(assembly, pass, record->layer))
		return MOETRACE_OK;
	for (uint32_t i = 0; i < MT_N_LOAD; i++)
		counts[i] = layer_counts(assembly, pass, record->layer, i);
	if (!add_counts(assembly, pass, record, counts[load_class])) {
		mt_misuse(assembly->session, MT_MISUSE_COUNTS);
		return MOETRACE_OK;
	}
	layer->classes = 1u << load_class;
	mt_count_summarize(counts, layer->classes, info->n_experts, &summary);
	layer->row.active_experts = summary.active_experts;
	layer->row.max_load = summary.max_load;
	layer->row.padding_active_experts = pass->begin.padding_rows ? MT_NULL : 0;
	layer->row.state = MT_LAYER_COUNTED;
	layer->row.selected_ns = record->untimed ? MT_NULL : (int64_t)record->record.time_ns;
	layer->row.n_rows = MT_NULL;
	layer->row.tied_rows = MT_NULL;
	if (record->map_epoch)
		layer->row.map_epoch = record->map_epoch;
	for (uint32_t i = 0; i < info->n_ids; i++)
		pass->so_far.assignments += counts[load_class][i];
	pass->so_far.layers++;
	return MOETRACE_OK;
}

/* ---- dispatch ---- */

int mt_layer_dispatch(struct mt_assembly *assembly, struct mt_open_pass *pass,
		      const struct mt_record_dispatch *record)
{
	uint64_t capacity = pass->dispatch_capacity ? pass->dispatch_capacity : 4096;
	uint8_t *grown;

	if (record->layer >= pass->model->n_layers)
		return MOETRACE_OK;
	if (pass->layers[record->layer].has_dispatch) {
		mt_misuse(assembly->session, MT_MISUSE_DISPATCH);
		return MOETRACE_OK;
	}
	while (capacity < pass->dispatch_bytes + record->record.n_bytes)
		capacity *= 2;
	if (capacity > pass->dispatch_capacity) {
		grown = realloc(pass->dispatches, capacity);
		if (!grown)
			return MOETRACE_E_NOMEM;
		pass->dispatches = grown;
		pass->dispatch_capacity = capacity;
	}
	pass->layers[record->layer].has_dispatch = 1;
	memcpy(pass->dispatches + pass->dispatch_bytes, (const void *)record,
	       record->record.n_bytes);
	pass->dispatch_bytes += record->record.n_bytes;
	return MOETRACE_OK;
}

/* In the order of the layers, which is that of the keys. */
static int write_dispatches(struct mt_assembly *assembly, const struct mt_open_pass *pass,
			    uint32_t layer)
{
	for (uint64_t at = 0; at < pass->dispatch_bytes;) {
		struct mt_record_dispatch *record =
			(struct mt_record_dispatch *)(void *)(pass->dispatches + at);

		if (record->layer == layer)
			return mt_store_dispatch(assembly->store, assembly->last_pass_id,
						 pass->model->layers[layer].layer_id, record);
		at += record->record.n_bytes;
	}
	return MOETRACE_OK;
}

/* ---- the end of the pass ---- */

/* The counts of a layer whose rows are not kept. */
static int write_counts(struct mt_assembly *assembly, struct mt_open_pass *pass, uint32_t layer)
{
	const struct mt_layer *info = &pass->model->layers[layer];
	uint32_t classes = pass->layers[layer].classes;
	uint32_t *sum = assembly->load_sum;
	const uint32_t *padding = classes >> MT_LOAD_PADDING & 1 ?
					  layer_counts(assembly, pass, layer, MT_LOAD_PADDING) :
					  NULL;

	memset(sum, 0, info->n_ids * sizeof(*sum));
	for (uint32_t c = 0; c < MT_LOAD_PADDING; c++) {
		const uint32_t *counts = layer_counts(assembly, pass, layer, c);

		for (uint32_t i = 0; (classes >> c & 1) && i < info->n_ids; i++)
			sum[i] += counts[i];
	}
	return mt_store_layer_load(assembly->store, assembly->last_pass_id, info->layer_id, sum,
				   padding, info->n_ids);
}

static int write_layer(struct mt_assembly *assembly, struct mt_open_pass *pass, uint32_t layer)
{
	const struct mt_layer_row *row = &pass->layers[layer].row;
	int status;

	if (assembly->mode == MOETRACE_MODE_STAT)
		return MOETRACE_OK;
	status = mt_store_pass_layer(assembly->store, assembly->last_pass_id,
				     pass->model->layers[layer].layer_id, row);
	if (!status && row->state == MT_LAYER_COUNTED)
		status = write_counts(assembly, pass, layer);
	if (!status && pass->layers[layer].has_dispatch)
		status = write_dispatches(assembly, pass, layer);
	return status;
}

int mt_layers_write(struct mt_assembly *assembly, struct mt_open_pass *pass)
{
	/* In mode STAT passes have no keys: the last one stays that of an earlier recording. */
	int64_t pass_id = assembly->last_pass_id + (assembly->mode == MOETRACE_MODE_STAT);
	int status = mt_load_pass(assembly->load, pass_id, pass->begin.record.time_ns);

	for (uint32_t i = 0; !status && i < pass->model->n_layers; i++) {
		const struct mt_assembly_layer *layer = &pass->layers[i];

		if (layer->row.state == MT_LAYER_UNWRITTEN && !pass->begin.n_rows &&
		    !layer->has_dispatch)
			continue;
		status = write_layer(assembly, pass, i);
		for (uint32_t c = 0; c < MT_N_LOAD; c++) {
			uint32_t *counts = layer_counts(assembly, pass, i, c);

			if (!(layer->classes >> c & 1))
				continue;
			mt_load_add(assembly->load, mt_open_pass_model(pass), i, c, counts);
			memset(counts, 0, pass->model->layers[i].n_ids * sizeof(*counts));
		}
	}
	return status;
}
