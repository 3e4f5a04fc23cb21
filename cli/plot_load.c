/* SPDX-License-Identifier: MIT */
/*
 * Expert load as a matrix of layers and experts, summed over phases and windows of time, from the
 * questions that the page's heatmap asks; and what of it is drawn. The formulas are those of
 * viewer/page/src/load.ts and heat.ts.
 */
#include "cli/plot.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Cells that a picture may have; each is an element of its own. */
#define MAX_CELLS 300000

static const char *const phases[] = {"prefill", "decode", "verify", "other", "padding"};

enum { N_PHASES = 4 }; /* of rows; padding is beside them */

static bool is_wanted(const struct mt_plot_options *options, int phase)
{
	if (strcmp(options->phase, "all") == 0)
		return phase < N_PHASES;
	return strcmp(options->phase, phases[phase]) == 0;
}

/* ---- layers ---- */

#define SQL_LAYERS                                                                        \
	"SELECT layer_id, layer, kind = 'hash', n_experts, n_experts + n_zero_experts + " \
	"n_shared_slots FROM layer WHERE model_id = ?1 AND layer BETWEEN ?2 AND ?3 AND "  \
	"n_experts BETWEEN 1 AND 65536 AND n_experts + n_zero_experts + n_shared_slots "  \
	"BETWEEN n_experts AND 65536 ORDER BY layer"

static bool layer_add(struct mt_plot_load *load, sqlite3_stmt *stmt)
{
	struct mt_plot_layer *grown =
		realloc(load->layers, ((size_t)load->n_layers + 1) * sizeof(*grown));

	if (!grown)
		return false;
	load->layers = grown;
	grown[load->n_layers++] = (struct mt_plot_layer){
		.layer_id = sqlite3_column_int64(stmt, 0),
		.layer = sqlite3_column_int64(stmt, 1),
		.is_hash = sqlite3_column_int(stmt, 2),
		.n_experts = (uint32_t)sqlite3_column_int(stmt, 3),
		.n_slots = (uint32_t)sqlite3_column_int(stmt, 4),
	};
	if (grown[load->n_layers - 1].n_slots > load->n_slots)
		load->n_slots = grown[load->n_layers - 1].n_slots;
	return true;
}

static int layers_read(const struct mt_trace *trace, const struct mt_plot_options *options,
		       const struct mt_plot_frame *frame, struct mt_plot_load *load)
{
	sqlite3_stmt *stmt = mt_trace_prepare(trace, SQL_LAYERS);
	bool has_memory = true;
	int rc = SQLITE_DONE;

	if (!stmt)
		return MT_EXIT_FAILED;
	sqlite3_bind_int64(stmt, 1, frame->model_id);
	sqlite3_bind_int64(stmt, 2, (int64_t)options->first_layer);
	sqlite3_bind_int64(stmt, 3, (int64_t)options->last_layer);
	while (has_memory && load->n_layers <= MAX_CELLS && (rc = sqlite3_step(stmt)) == SQLITE_ROW)
		has_memory = layer_add(load, stmt);
	sqlite3_finalize(stmt);
	if (!has_memory)
		mt_error("%s: out of memory", trace->path);
	else if (rc != SQLITE_DONE && rc != SQLITE_ROW)
		return mt_trace_error(trace);
	else if (load->n_layers == 0)
		mt_error("%s: model %" PRId64 " has no such layer; 'moetrace info %s' lists them",
			 trace->path, frame->model_id, trace->path);
	else if ((uint64_t)load->n_layers * load->n_slots > MAX_CELLS)
		mt_error("%s: %" PRIu32 " layers of %" PRIu32
			 " experts are more than the %d cells that a "
			 "picture may have; choose some with --layers",
			 trace->path, load->n_layers, load->n_slots, MAX_CELLS);
	else
		return MT_EXIT_OK;
	return has_memory && load->n_layers == 0 ? MT_EXIT_NOT_FOUND : MT_EXIT_FAILED;
}

/* The row of a layer; -1: it is not shown. */
static int64_t row_of(const struct mt_plot_load *load, int64_t layer_id)
{
	for (uint32_t i = 0; i < load->n_layers; i++)
		if (load->layers[i].layer_id == layer_id)
			return i;
	return -1;
}

/* The cell of a layer and expert; -1: it is not shown, or there is none. */
static int64_t cell_of(const struct mt_plot_load *load, sqlite3_stmt *stmt, int column)
{
	const int64_t row = row_of(load, sqlite3_column_int64(stmt, column));
	const int64_t expert = sqlite3_column_int64(stmt, column + 1);

	return row >= 0 && expert >= 0 && expert < load->n_slots ? row * load->n_slots + expert
								 : -1;
}

/* ---- what is drawn of counts ---- */

static double sum_of(const struct mt_plot_load *load, const double *tokens, uint32_t row)
{
	double sum = 0;

	for (uint32_t i = 0; i < load->layers[row].n_experts; i++)
		sum += tokens[(size_t)row * load->n_slots + i];
	return sum;
}

static double value_of(const struct mt_plot_load *load, enum mt_plot_value value,
		       const double *tokens, double sum, uint32_t row, size_t cell)
{
	switch (value) {
	case MT_PLOT_WEIGHT:
		return load->weights[cell];
	case MT_PLOT_SHARE:
		return sum > 0 ? tokens[cell] / sum : NAN;
	case MT_PLOT_TIMES:
		return sum > 0 ? tokens[cell] * load->layers[row].n_experts / sum : NAN;
	default:
		return tokens[cell];
	}
}

static void values_make(struct mt_plot_load *load, enum mt_plot_value value, const double *tokens)
{
	for (uint32_t row = 0; row < load->n_layers; row++) {
		const double sum = sum_of(load, tokens, row);

		for (uint32_t i = 0; i < load->n_slots; i++) {
			const size_t cell = (size_t)row * load->n_slots + i;

			load->values[cell] = i < load->layers[row].n_slots
						     ? value_of(load, value, tokens, sum, row, cell)
						     : NAN;
		}
	}
}

static struct mt_plot_scale scale_make(const struct mt_plot_load *load,
				       const struct mt_plot_options *options)
{
	double to = 0, least = INFINITY;

	for (size_t i = 0; i < (size_t)load->n_layers * load->n_slots; i++) {
		if (load->values[i] > to)
			to = load->values[i];
		if (load->values[i] > 0 && load->values[i] < least)
			least = load->values[i];
	}
	if (options->value == MT_PLOT_TIMES)
		return (struct mt_plot_scale){
			.to = fmax(2, to), .is_log = true, .is_difference = true};
	return (struct mt_plot_scale){.from = options->is_log ? fmin(least, to) : 0,
				      .to = to > 0 ? to : 1,
				      .is_log = options->is_log};
}

static void scale_widen(struct mt_plot_load *load, const struct mt_plot_options *options,
			const double *tokens, bool is_first)
{
	struct mt_plot_scale one;

	values_make(load, options->value, tokens);
	one = scale_make(load, options);
	if (!is_first) {
		one.from = fmin(one.from, load->scale.from);
		one.to = fmax(one.to, load->scale.to);
	}
	load->scale = one;
}

/* ---- rows by window ---- */

static int windows_read(const struct mt_trace *trace, const struct mt_plot_options *options,
			struct mt_plot_frame *frame, struct mt_plot_load *load)
{
	sqlite3_stmt *stmt = mt_plot_question(trace, "load_windows", options, frame);
	int rc;

	if (!stmt)
		return MT_EXIT_FAILED;
	while ((rc = sqlite3_step(stmt)) == SQLITE_ROW) {
		const int64_t start_ns = sqlite3_column_int64(stmt, 0);

		load->n_windows++;
		if (load->n_windows == options->first_window)
			frame->from_ns = start_ns;
		if (load->n_windows <= options->last_window)
			frame->until_ns = start_ns + sqlite3_column_int64(stmt, 1);
	}
	sqlite3_finalize(stmt);
	if (rc != SQLITE_DONE)
		return mt_trace_error(trace);
	frame->has_span = options->last_window <= load->n_windows;
	if (frame->has_span)
		return MT_EXIT_OK;
	mt_error("%s: has %" PRIu64 " windows of time, no window %" PRIu64
		 "; give --window 1-%" PRIu64,
		 trace->path, load->n_windows, options->last_window, load->n_windows);
	return MT_EXIT_NOT_FOUND;
}

/* A row of question load: window, layer_id, expert, then the phases. */
static void load_row(struct mt_plot_load *load, const struct mt_plot_options *options,
		     sqlite3_stmt *stmt, double *window_tokens)
{
	const uint64_t window = (uint64_t)sqlite3_column_int64(stmt, 0) + 1;
	const bool is_in = !options->first_window ||
			   (window >= options->first_window && window <= options->last_window);
	const int64_t cell = cell_of(load, stmt, 1);
	double tokens = 0;

	if (cell < 0)
		return;
	for (int i = 0; i <= N_PHASES; i++)
		if (is_wanted(options, i))
			tokens += sqlite3_column_double(stmt, 3 + i);
	if (is_in) {
		load->tokens[cell] += tokens;
		load->padding_tokens += sqlite3_column_double(stmt, 3 + N_PHASES);
	}
	if (window_tokens)
		window_tokens[cell] += tokens;
}

static int load_read(const struct mt_trace *trace, const struct mt_plot_options *options,
		     const struct mt_plot_frame *frame, struct mt_plot_load *load)
{
	const size_t n_cells = (size_t)load->n_layers * load->n_slots;
	double *tokens = options->is_scale_fixed ? calloc(n_cells, sizeof(*tokens)) : NULL;
	sqlite3_stmt *stmt = mt_plot_question(trace, "load", options, frame);
	int64_t window = -1;
	bool is_first = true;
	int rc = SQLITE_NOMEM;

	while (stmt && (tokens || !options->is_scale_fixed) &&
	       (rc = sqlite3_step(stmt)) == SQLITE_ROW) {
		if (tokens && window >= 0 && sqlite3_column_int64(stmt, 0) != window) {
			scale_widen(load, options, tokens, is_first);
			memset(tokens, 0, n_cells * sizeof(*tokens));
			is_first = false;
		}
		window = sqlite3_column_int64(stmt, 0);
		load_row(load, options, stmt, tokens);
	}
	if (tokens && window >= 0)
		scale_widen(load, options, tokens, is_first);
	free(tokens);
	sqlite3_finalize(stmt);
	if (!stmt)
		return MT_EXIT_FAILED;
	return rc == SQLITE_DONE ? MT_EXIT_OK : mt_trace_error(trace);
}

/* ---- rows that are counted for a filter ---- */

/* layer_id, expert, phase, tokens, mean weight */
static void filtered_row(struct mt_plot_load *load, const struct mt_plot_options *options,
			 sqlite3_stmt *stmt)
{
	const int64_t cell = cell_of(load, stmt, 0);
	const int phase = sqlite3_column_int(stmt, 2);
	const double tokens = sqlite3_column_double(stmt, 3);

	if (cell < 0 || phase < 0 || phase >= N_PHASES || !is_wanted(options, phase))
		return;
	load->tokens[cell] += tokens;
	load->weights[cell] += sqlite3_column_type(stmt, 4) == SQLITE_NULL
				       ? NAN
				       : sqlite3_column_double(stmt, 4) * tokens;
}

static int filtered_read(const struct mt_trace *trace, const struct mt_plot_options *options,
			 const struct mt_plot_frame *frame, struct mt_plot_load *load)
{
	const char *question = options->request	    ? "load_request"
			       : options->attribute ? "load_attribute"
						    : "load_weight";
	sqlite3_stmt *stmt = mt_plot_question(trace, question, options, frame);
	int rc;

	if (!stmt)
		return MT_EXIT_FAILED;
	while ((rc = sqlite3_step(stmt)) == SQLITE_ROW)
		filtered_row(load, options, stmt);
	sqlite3_finalize(stmt);
	if (rc != SQLITE_DONE)
		return mt_trace_error(trace);
	for (size_t i = 0; i < (size_t)load->n_layers * load->n_slots; i++)
		load->weights[i] = load->tokens[i] > 0 ? load->weights[i] / load->tokens[i] : NAN;
	return MT_EXIT_OK;
}

/* ---- how even it is ---- */

static struct mt_plot_balance balance_of(const struct mt_plot_load *load, uint32_t row)
{
	const double *tokens = load->tokens + (size_t)row * load->n_slots;
	const uint32_t n = load->layers[row].n_experts;
	struct mt_plot_balance balance = {.hottest = -1};

	for (uint32_t i = 0; i < n; i++) {
		balance.tokens += tokens[i];
		balance.dead += tokens[i] <= 0;
		if (tokens[i] > balance.most) {
			balance.most = tokens[i];
			balance.hottest = i;
		}
	}
	balance.max_over_mean = balance.tokens > 0 ? balance.most * n / balance.tokens : NAN;
	balance.balancedness = balance.tokens > 0 ? balance.tokens / (balance.most * n) : NAN;
	return balance;
}

/* ---- all of it ---- */

static int arrays_make(const struct mt_trace *trace, const struct mt_plot_options *options,
		       struct mt_plot_load *load)
{
	const size_t n_cells = (size_t)load->n_layers * load->n_slots;
	const bool has_weights =
		options->request || options->attribute || options->value == MT_PLOT_WEIGHT;

	load->tokens = calloc(n_cells, sizeof(*load->tokens));
	load->values = calloc(n_cells, sizeof(*load->values));
	load->balance = calloc(load->n_layers, sizeof(*load->balance));
	load->weights = has_weights ? calloc(n_cells, sizeof(*load->weights)) : NULL;
	if (load->tokens && load->values && load->balance && (load->weights || !has_weights))
		return MT_EXIT_OK;
	mt_error("%s: out of memory", trace->path);
	return MT_EXIT_FAILED;
}

static int counts_read(const struct mt_trace *trace, const struct mt_plot_options *options,
		       struct mt_plot_frame *frame, struct mt_plot_load *load)
{
	int status = options->first_window ? windows_read(trace, options, frame, load) : MT_EXIT_OK;

	if (status != MT_EXIT_OK)
		return status;
	return load->weights ? filtered_read(trace, options, frame, load)
			     : load_read(trace, options, frame, load);
}

int mt_plot_load_read(const struct mt_trace *trace, const struct mt_plot_options *options,
		      struct mt_plot_frame *frame, struct mt_plot_load *ret_load)
{
	struct mt_plot_load load = {.n_layers = 0};
	int status = layers_read(trace, options, frame, &load);

	if (status == MT_EXIT_OK)
		status = arrays_make(trace, options, &load);
	if (status == MT_EXIT_OK)
		status = counts_read(trace, options, frame, &load);
	if (status == MT_EXIT_OK)
		status = mt_plot_load_order(trace, options, &load);
	if (status != MT_EXIT_OK) {
		mt_plot_load_free(&load);
		return status;
	}
	values_make(&load, options->value, load.tokens);
	if (!options->is_scale_fixed)
		load.scale = scale_make(&load, options);
	if (options->scale_to > 0) {
		load.scale.to =
			load.scale.is_difference ? fmax(2, options->scale_to) : options->scale_to;
		load.scale.from = fmin(load.scale.from, load.scale.to);
	}
	for (uint32_t i = 0; i < load.n_layers; i++)
		load.balance[i] = balance_of(&load, i);
	*ret_load = load;
	return MT_EXIT_OK;
}

void mt_plot_load_free(struct mt_plot_load *load)
{
	free(load->layers);
	free(load->balance);
	free(load->tokens);
	free(load->weights);
	free(load->values);
	free(load->order);
	free(load->ranks);
}
