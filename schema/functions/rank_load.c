/* SPDX-License-Identifier: MIT */
/*
 * Ranks: maps are made once a layer, and once an epoch where those of the trace are in force.
 */
#include <sqlite3ext.h>
SQLITE_EXTENSION_INIT3

#include "array.h"
#include "rank_load.h"
#include "placement.h"
#include "trace_reader_internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/compare.h"

struct mt_known_map {
	sqlite3_int64 layer_id, epoch;
	struct mt_rank_map map;
};

/* ---- arguments ---- */

static int shared_read(struct mt_rank_load *load, sqlite3_value *value)
{
	const char *text = value ? (const char *)sqlite3_value_text(value) : NULL;

	load->shared = MT_SHARED_NONE;
	if (value && text && strcmp(text, "even") == 0)
		load->shared = MT_SHARED_EVEN;
	else if (value && text && strcmp(text, "waterfill") == 0)
		load->shared = MT_SHARED_WATERFILL;
	else if (value)
		return mt_tvf_fail(load->rows, "%s: shared: give 'even' or 'waterfill'",
				   load->name);
	return SQLITE_OK;
}

static int phase_read(struct mt_rank_load *load, sqlite3_value *value, const char **ret_phase)
{
	*ret_phase = NULL;
	if (!value)
		return SQLITE_OK;
	*ret_phase = mt_reader_phase((const char *)sqlite3_value_text(value), NULL);
	if (!*ret_phase)
		return mt_tvf_fail(load->rows,
				   "%s: phase: give 'prefill', 'decode', 'mixed', 'verify' or"
				   " 'draft'",
				   load->name);
	return SQLITE_OK;
}

static int arguments_read(struct mt_rank_load *load, const struct mt_tvf *tvf,
			  sqlite3_value *const *arguments, const char **ret_phase)
{
	sqlite3_value *placement = arguments[MT_RANK_ARG_PLACEMENT];
	int rc;

	load->placement = placement;
	load->is_recorded = placement && sqlite3_value_type(placement) == SQLITE_TEXT &&
			    strcmp((const char *)sqlite3_value_text(placement), "recorded") == 0;
	if (!arguments[MT_RANK_ARG_RANKS] && !load->is_recorded)
		return mt_tvf_fail(load->rows, "%s: n_ranks: give how many ranks there are",
				   load->name);
	rc = mt_tvf_uint(load->rows, tvf, arguments, MT_RANK_ARG_RANKS, "n_ranks", 1,
			 MT_PLACEMENT_MAX, 0, &load->n_ranks);
	if (rc == SQLITE_OK)
		rc = shared_read(load, arguments[MT_RANK_ARG_SHARED]);
	if (rc == SQLITE_OK)
		rc = phase_read(load, arguments[MT_RANK_ARG_PHASE], ret_phase);
	return rc;
}

int mt_rank_load_open(struct mt_rank_load *load, sqlite3 *db, const struct mt_tvf *tvf,
		      sqlite3_value *const *arguments, struct mt_tvf_rows *rows)
{
	struct mt_filter filter = {.schema = NULL};
	const char *phase;
	int rc;

	filter.values[MT_TERM_MODEL_ID] = arguments[MT_RANK_ARG_MODEL];
	filter.values[MT_TERM_RECORDING_ID] = arguments[MT_RANK_ARG_RECORDING];
	memset(load, 0, sizeof(*load));
	load->rows = rows;
	load->name = tvf->name;
	load->db = db;
	rc = arguments_read(load, tvf, arguments, &phase);
	if (rc != SQLITE_OK)
		return rc;
	load->ranks = sqlite3_malloc64(MT_PLACEMENT_MAX * sizeof(double));
	load->sorted = sqlite3_malloc64(MT_PLACEMENT_MAX * sizeof(double));
	return load->ranks && load->sorted
		       ? mt_pass_load_open(&load->load, db, tvf->name, &filter, phase)
		       : SQLITE_NOMEM;
}

void mt_rank_load_close(struct mt_rank_load *load)
{
	for (size_t i = 0; i < load->n_maps; i++)
		mt_rank_map_free(&load->maps[i].map);
	sqlite3_free(load->maps);
	sqlite3_free(load->ranks);
	sqlite3_free(load->sorted);
	mt_pass_load_close(&load->load);
	memset(load, 0, sizeof(*load));
}

/* ---- maps ---- */

static int map_make(struct mt_rank_load *load, sqlite3_int64 epoch, struct mt_rank_map *ret_map)
{
	const struct mt_layer_facts *layer = &load->load.layer;

	if (load->is_recorded)
		return mt_rank_map_recorded(load->rows, load->name, load->db, layer, epoch,
					    load->n_ranks, ret_map);
	if (load->placement)
		return mt_rank_map_from_json(load->rows, load->name, load->db, layer,
					     load->placement, load->n_ranks, ret_map);
	return mt_rank_map_in_order(load->rows, load->name, layer, load->n_ranks, ret_map);
}

static int map_add(struct mt_rank_load *load, sqlite3_int64 epoch)
{
	struct mt_known_map *known;
	int rc;

	if (mt_array_reserve(&load->maps, &load->maps_size, load->n_maps + 1,
			     sizeof(*load->maps)) != SQLITE_OK)
		return SQLITE_NOMEM;
	known = &load->maps[load->n_maps];
	*known = (struct mt_known_map){.layer_id = load->load.layer.layer_id, .epoch = epoch};
	rc = map_make(load, epoch, &known->map);
	load->n_maps++;
	load->map = &known->map;
	return rc;
}

/* Passes repeat their layers: the map after the last one found is nearly always it. */
static int map_find(struct mt_rank_load *load)
{
	const sqlite3_int64 epoch = load->is_recorded ? load->load.reader.map_epoch : 0;

	for (size_t i = 0; i < load->n_maps; i++) {
		const size_t at = (load->hint + i) % load->n_maps;

		if (load->maps[at].layer_id == load->load.layer.layer_id &&
		    load->maps[at].epoch == epoch) {
			load->hint = at + 1;
			load->map = &load->maps[at].map;
			return SQLITE_OK;
		}
	}
	return map_add(load, epoch);
}

/* ---- loads ---- */

/* Raise the lowest of @n ranks to one level, until @amount is used up. */
static void waterfill(double *ranks, double *sorted, uint32_t n, double amount)
{
	double below = 0, level = 0;

	memcpy(sorted, ranks, n * sizeof(*ranks));
	qsort(sorted, n, sizeof(*sorted), mt_compare_doubles);
	for (uint32_t i = 0; i < n; i++) {
		below += sorted[i];
		level = (below + amount) / (i + 1);
		if (i + 1 < n && level <= sorted[i + 1])
			break;
	}
	for (uint32_t i = 0; i < n; i++)
		if (ranks[i] < level)
			ranks[i] = level;
}

static void shared_add(struct mt_rank_load *load)
{
	const uint32_t n_ranks = load->map->n_ranks;
	const uint32_t n_shared = load->load.layer.n_shared_slots;
	const double amount = (double)load->load.n_rows * (n_shared ? n_shared : 1);

	if (load->shared == MT_SHARED_NONE)
		return;
	load->tokens += amount;
	if (load->shared == MT_SHARED_WATERFILL) {
		waterfill(load->ranks, load->sorted, n_ranks, amount);
		return;
	}
	for (uint32_t i = 0; i < n_ranks; i++)
		load->ranks[i] += amount / n_ranks;
}

static void ranks_fill(struct mt_rank_load *load)
{
	const struct mt_rank_map *map = load->map;
	const uint32_t per_rank = map->n_slots / map->n_ranks;
	const uint32_t *counts = load->load.counts;

	for (uint32_t r = 0, slot = 0; r < map->n_ranks; r++) {
		double sum = 0;

		for (uint32_t i = 0; i < per_rank; i++, slot++) {
			const uint32_t expert = map->expert_of[slot];

			if (expert != MT_SLOT_EMPTY && counts[expert] != 0)
				sum += (double)counts[expert] / map->replicas[expert];
		}
		load->ranks[r] = sum;
	}
	load->tokens = (double)load->load.n_routed;
	if (load->tokens > 0)
		shared_add(load);
}

int mt_rank_load_next(struct mt_rank_load *load)
{
	int rc = mt_pass_load_next(&load->load);

	if (rc != SQLITE_ROW && rc != SQLITE_DONE && !load->rows->error) {
		load->rows->error = load->load.reader.error;
		load->load.reader.error = NULL;
	}
	if (rc != SQLITE_ROW)
		return rc;
	load->is_known =
		load->load.is_known && (!load->is_recorded || load->load.reader.map_epoch != 0);
	if (!load->is_known)
		return SQLITE_ROW;
	rc = map_find(load);
	if (rc != SQLITE_OK)
		return rc;
	ranks_fill(load);
	return SQLITE_ROW;
}

void mt_rank_load_balance(struct mt_rank_load *load, struct mt_balance *ret_balance)
{
	const uint32_t n = load->map->n_ranks;
	const double mean = load->tokens / n;
	double squares = 0, ranked = 0, entropy = 0;
	struct mt_balance b = {.mean = mean};

	for (uint32_t i = 0; i < n; i++) {
		const double share = load->ranks[i] / load->tokens;

		if (load->ranks[i] > b.max) {
			b.max = load->ranks[i];
			b.hottest_rank = i;
		}
		squares += (load->ranks[i] - mean) * (load->ranks[i] - mean);
		if (share > 0)
			entropy -= share * log(share);
	}
	memcpy(load->sorted, load->ranks, n * sizeof(*load->sorted));
	qsort(load->sorted, n, sizeof(*load->sorted), mt_compare_doubles);
	for (uint32_t i = 0; i < n; i++)
		ranked += (2.0 * (i + 1) - n - 1) * load->sorted[i];
	b.max_over_mean = b.max / mean;
	b.balancedness = (mean + 1e-5) / (b.max + 1e-5);
	b.cv = sqrt(squares / n) / mean;
	b.gini = ranked / (n * load->tokens);
	b.entropy = n > 1 ? entropy / log(n) : 1;
	*ret_balance = b;
}
