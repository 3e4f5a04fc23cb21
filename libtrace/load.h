/* SPDX-License-Identifier: MIT */
/*
 * Expert load by window of time: counts of whole passes are added up in memory and written to
 * table expert_load_window as differences, at least once a second. A window's length doubles,
 * and pairs of windows are added together, before the table would hold too many rows.
 * Used by the writer thread alone.
 */
#ifndef MT_LOAD_H
#define MT_LOAD_H

#include <stdint.h>

#include "libtrace/session.h"
#include "libtrace/store/store.h"

#define MT_LOAD_MAX_ROWS 500000u

/* A model's counts: for each class, layers one after the other, ids within. */
struct mt_load_model {
	const struct mt_model *model;
	uint64_t n_cells;
	uint64_t *layer_cells; /* [n_layers] first cell of each layer */
	uint64_t *counts;      /* [MT_N_LOAD][n_cells] not yet written */
	uint8_t *layer_dirty;  /* [n_layers] has counts that are not yet written */
	uint8_t *seen;         /* [n_cells] has a row in this window */
};

struct mt_load {
	struct mt_store *store;
	struct mt_load_model models[MOETRACE_MAX_MODELS];
	uint32_t n_models;
	uint64_t n_cells; /* of all models: rows that a window can have */
	uint64_t max_rows;
	uint64_t n_rows;  /* in the table, or a few more */
	struct mt_window window;
	int64_t last_pass_id; /* last pass whose counts are in the table */
	uint64_t origin_ns; /* windows begin at multiples of their length after it */
	int is_dirty;
	/* Of the recording: added, and those that are in the table. */
	uint64_t added_passes, added_assignments;
	uint64_t n_passes, n_assignments;
};

void mt_load_open(struct mt_load *load, struct mt_store *store);
void mt_load_close(struct mt_load *load);
int mt_load_model_add(struct mt_load *load, const struct mt_model *model);

void mt_load_start(struct mt_load *load, int64_t recording_id, uint64_t start_ns,
		   uint64_t window_ns);
/* Counts that are added next belong to pass @pass_id, which began at @begin_ns. */
int mt_load_pass(struct mt_load *load, int64_t pass_id, uint64_t begin_ns);
/* @model_index: as in the session; @counts: [n_ids of the layer]. */
void mt_load_add(struct mt_load *load, uint32_t model_index, uint32_t layer,
		 enum mt_load_class load_class, const uint32_t *counts);
/* Forget counts that are not yet written. */
void mt_load_drop(struct mt_load *load);
/* Write what was added: the counts of all passes up to @last_pass_id. */
int mt_load_flush(struct mt_load *load, int64_t last_pass_id);

#endif
