/* SPDX-License-Identifier: MIT */
/*
 * Packs logical rows into the tables of a trace. A run of each format stays open until its ids
 * pass run_bytes, so that runs cross layers and passes as those of a recorded trace do. The
 * windows of expert_load_window are 10 ms here, to have many of them.
 */
#include "trace_writer.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libtrace/store/schema_sql.h"

enum { WINDOW_NS = 10000000, MAX_SLOTS = 65536 };

struct tw_run {
	int topk_id;
	int k, id_bytes;
	enum tw_weights weights;
	bool mapped, has_n_valid;
	int n_rows, capacity;
	uint8_t *ids, *bits, *map, *n_valid;
};

static void fail(struct tw *tw, const char *what)
{
	fprintf(stderr, "make_trace: %s: %s\n", what,
		tw->db ? sqlite3_errmsg(tw->db) : "no database");
	exit(1);
}

static void *grow(void *old, size_t size)
{
	void *memory = realloc(old, size ? size : 1);

	if (!memory) {
		fputs("make_trace: out of memory\n", stderr);
		exit(1);
	}
	return memory;
}

void tw_exec(struct tw *tw, const char *sql)
{
	if (sqlite3_exec(tw->db, sql, NULL, NULL, NULL) != SQLITE_OK)
		fail(tw, sql);
}

static sqlite3_stmt *prepare(struct tw *tw, const char *sql)
{
	sqlite3_stmt *stmt;

	if (sqlite3_prepare_v2(tw->db, sql, -1, &stmt, NULL) != SQLITE_OK)
		fail(tw, sql);
	return stmt;
}

static void run_once(struct tw *tw, sqlite3_stmt *stmt)
{
	if (sqlite3_step(stmt) != SQLITE_DONE)
		fail(tw, sqlite3_sql(stmt));
	sqlite3_reset(stmt);
	sqlite3_clear_bindings(stmt);
}

void tw_open(struct tw *tw, const char *path, bool expect, int run_bytes)
{
	memset(tw, 0, sizeof(*tw));
	tw->expect = expect;
	tw->run_bytes = run_bytes;
	tw->next_topk_id = 1;
	tw->runs = grow(NULL, TW_MAX_RUNS * sizeof(*tw->runs));
	remove(path);
	if (sqlite3_open(path, &tw->db) != SQLITE_OK)
		fail(tw, path);
	tw_exec(tw, "PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; BEGIN");
	for (size_t i = 0; i < mt_n_schema_files; i++)
		tw_exec(tw, mt_schema_files[i].sql);
	tw_exec(tw, "CREATE TABLE expected (recording_id, model_id, request_id, attempt, position,"
		    " pass_id, row, phase, layer_id, layer, state, topk_rank, expert, weight)");
	tw->pass = prepare(tw, "INSERT INTO pass VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?1 * 10,"
			       " NULL, NULL, 'complete', NULL, 0, NULL)");
	tw->slice = prepare(tw, "INSERT INTO pass_request VALUES (?,?,?,?,?,?,?,?,?,?)");
	tw->layer = prepare(tw, "INSERT INTO pass_layer VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, NULL,"
				" iif(?7 = 0, 0, NULL), ?8, ?9, ?10, NULL)");
	tw->topk = prepare(tw, "INSERT INTO topk VALUES (?,?,?,?,?,?,?,?,?,NULL,NULL,NULL,"
			       "NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL)");
	tw->load = prepare(tw, "INSERT INTO expert_load_window VALUES"
			       " (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)"
			       " ON CONFLICT DO UPDATE SET"
			       " prefill_tokens = prefill_tokens + excluded.prefill_tokens,"
			       " decode_tokens = decode_tokens + excluded.decode_tokens,"
			       " verify_tokens = verify_tokens + excluded.verify_tokens,"
			       " other_tokens = other_tokens + excluded.other_tokens,"
			       " padding_tokens = padding_tokens + excluded.padding_tokens");
	tw->expected = prepare(tw, "INSERT INTO expected VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?)");
}

static void close_run(struct tw *tw, struct tw_run *run)
{
	static const char *const formats[] = {"none", "fp16", "bf16"};
	int n = run->n_rows;

	sqlite3_bind_int(tw->topk, 1, run->topk_id);
	sqlite3_bind_int(tw->topk, 2, n);
	sqlite3_bind_int(tw->topk, 3, run->k);
	sqlite3_bind_int(tw->topk, 4, run->id_bytes);
	sqlite3_bind_text(tw->topk, 5, formats[run->weights], -1, SQLITE_STATIC);
	sqlite3_bind_blob(tw->topk, 6, run->ids, n * run->k * run->id_bytes, SQLITE_STATIC);
	if (run->weights != TW_NONE)
		sqlite3_bind_blob(tw->topk, 7, run->bits, n * run->k * 2, SQLITE_STATIC);
	if (run->mapped)
		sqlite3_bind_blob(tw->topk, 8, run->map, n * 4, SQLITE_STATIC);
	if (run->has_n_valid)
		sqlite3_bind_blob(tw->topk, 9, run->n_valid, n, SQLITE_STATIC);
	run_once(tw, tw->topk);
	run->topk_id = 0;
	run->n_rows = 0;
}

void tw_close(struct tw *tw)
{
	for (int i = 0; i < tw->n_runs; i++) {
		if (tw->runs[i].topk_id)
			close_run(tw, &tw->runs[i]);
		free(tw->runs[i].ids);
		free(tw->runs[i].bits);
		free(tw->runs[i].map);
		free(tw->runs[i].n_valid);
	}
	free(tw->runs);
	sqlite3_finalize(tw->pass);
	sqlite3_finalize(tw->slice);
	sqlite3_finalize(tw->layer);
	sqlite3_finalize(tw->topk);
	sqlite3_finalize(tw->load);
	sqlite3_finalize(tw->expected);
	tw_exec(tw, "COMMIT");
	if (sqlite3_close(tw->db) != SQLITE_OK)
		fail(tw, "close");
}

void tw_add_layer(struct tw *tw, const struct tw_layer *l)
{
	char *sql =
		sqlite3_mprintf("INSERT INTO layer (layer_id, model_id, layer, moe_ordinal, kind,"
				" n_experts, n_zero_experts, n_shared_slots, top_k) VALUES"
				" (%d, %d, %d, %d, 'routed', %d, %d, %d, %d)",
				l->layer_id, l->model_id, l->layer, l->layer_id - 1, l->n_experts,
				l->n_zero_experts, l->n_shared_slots, l->top_k);

	tw_exec(tw, sql);
	sqlite3_free(sql);
}

static void add_slice(struct tw *tw, const struct tw_pass *pass, int index, int row_offset)
{
	const struct tw_slice *slice = &pass->slices[index];

	sqlite3_bind_int(tw->slice, 1, pass->pass_id);
	sqlite3_bind_int(tw->slice, 2, index);
	if (slice->request_id) {
		sqlite3_bind_int(tw->slice, 3, slice->request_id);
		sqlite3_bind_int(tw->slice, 4, slice->attempt);
		sqlite3_bind_int(tw->slice, 5, slice->first_position);
	}
	if (slice->positions)
		sqlite3_bind_blob(tw->slice, 6, slice->positions, slice->n_rows * 4, SQLITE_STATIC);
	sqlite3_bind_int(tw->slice, 7, row_offset);
	sqlite3_bind_int(tw->slice, 8, slice->n_rows);
	sqlite3_bind_text(tw->slice, 9, slice->phase, -1, SQLITE_STATIC);
	if (slice->accepted)
		sqlite3_bind_blob(tw->slice, 10, slice->accepted, slice->n_rows, SQLITE_STATIC);
	run_once(tw, tw->slice);
}

void tw_add_pass(struct tw *tw, const struct tw_pass *pass)
{
	const char *phase = pass->n_slices ? pass->slices[0].phase : "idle";
	int row_offset = 0;

	for (int i = 0; i < pass->n_slices; i++) {
		add_slice(tw, pass, i, row_offset);
		row_offset += pass->slices[i].n_rows;
		if (strcmp(phase, pass->slices[i].phase) != 0)
			phase = "mixed";
	}
	sqlite3_bind_int(tw->pass, 1, pass->pass_id);
	sqlite3_bind_int(tw->pass, 2, pass->recording_id);
	sqlite3_bind_int(tw->pass, 3, pass->model_id);
	sqlite3_bind_text(tw->pass, 4, phase, -1, SQLITE_STATIC);
	sqlite3_bind_int64(tw->pass, 5, pass->begin_ns);
	sqlite3_bind_int64(tw->pass, 6, pass->end_ns);
	sqlite3_bind_int(tw->pass, 7, pass->n_rows);
	sqlite3_bind_int(tw->pass, 8, pass->padding_rows);
	run_once(tw, tw->pass);
}

static struct tw_run *find_run(struct tw *tw, const struct tw_layer *layer, int id_bytes)
{
	struct tw_run *run;

	for (int i = 0; i < tw->n_runs; i++) {
		run = &tw->runs[i];
		if (run->k == layer->top_k && run->id_bytes == id_bytes &&
		    run->weights == layer->weights && run->mapped == layer->mapped &&
		    run->has_n_valid == layer->has_n_valid)
			return run;
	}
	if (tw->n_runs == TW_MAX_RUNS)
		fail(tw, "too many formats");
	run = &tw->runs[tw->n_runs++];
	memset(run, 0, sizeof(*run));
	run->k = layer->top_k;
	run->id_bytes = id_bytes;
	run->weights = layer->weights;
	run->mapped = layer->mapped;
	run->has_n_valid = layer->has_n_valid;
	return run;
}

static void reserve_rows(struct tw_run *run, int n_rows)
{
	size_t capacity;

	if (run->n_rows + n_rows <= run->capacity)
		return;
	run->capacity = (run->n_rows + n_rows) * 2;
	capacity = (size_t)run->capacity;
	run->ids = grow(run->ids, capacity * (size_t)(run->k * run->id_bytes));
	run->bits = grow(run->bits, capacity * (size_t)run->k * 2);
	run->map = grow(run->map, capacity * 4);
	run->n_valid = grow(run->n_valid, capacity);
}

static int valid_of(const struct tw_layer *layer, const struct tw_rows *rows, int i)
{
	return rows->n_valid ? rows->n_valid[i] : layer->top_k;
}

/* Appends the rows to the run and returns the first one's number there. */
static int pack_rows(struct tw_run *run, const struct tw_layer *layer, const struct tw_rows *rows)
{
	int first = run->n_rows;

	reserve_rows(run, rows->n_rows);
	for (int i = 0; i < rows->n_rows; i++) {
		uint32_t row = rows->row ? rows->row[i] : (uint32_t)i;

		for (int r = 0; r < run->k; r++) {
			size_t from = (size_t)i * (size_t)run->k + (size_t)r;
			size_t to = (size_t)(first + i) * (size_t)run->k + (size_t)r;
			bool used = r < valid_of(layer, rows, i);
			unsigned id = used ? rows->ids[from] : 0;
			unsigned bits = used && rows->bits ? rows->bits[from] : 0;

			run->ids[to * (size_t)run->id_bytes] = (uint8_t)id;
			if (run->id_bytes == 2)
				run->ids[to * 2 + 1] = (uint8_t)(id >> 8);
			run->bits[to * 2] = (uint8_t)bits;
			run->bits[to * 2 + 1] = (uint8_t)(bits >> 8);
		}
		for (int b = 0; b < 4; b++)
			run->map[(size_t)(first + i) * 4 + (size_t)b] = (uint8_t)(row >> 8 * b);
		run->n_valid[first + i] = (uint8_t)valid_of(layer, rows, i);
	}
	run->n_rows += rows->n_rows;
	return first;
}

/* The value of a weight by the definition of the formats; NAN where it has none. */
static double weight_of(enum tw_weights format, unsigned bits)
{
	int fraction_bits = format == TW_FP16 ? 10 : 7;
	int exponent_max = format == TW_FP16 ? 31 : 255;
	int bias = format == TW_FP16 ? 15 : 127;
	int exponent = (int)(bits >> fraction_bits) & exponent_max;
	int fraction = (int)(bits & ((1u << fraction_bits) - 1));
	double sign = bits & 0x8000u ? -1.0 : 1.0;

	if (format == TW_NONE || exponent == exponent_max)
		return NAN;
	if (exponent == 0)
		return sign * ldexp(fraction, 1 - bias - fraction_bits);
	return sign * ldexp(fraction + (1 << fraction_bits), exponent - bias - fraction_bits);
}

static const char *state_of(const struct tw_slice *slice, int row)
{
	if (!slice->request_id)
		return "dummy";
	if (strcmp(slice->phase, "draft") == 0)
		return "draft";
	if (strcmp(slice->phase, "verify") != 0)
		return "computed";
	if (!slice->accepted)
		return "unresolved";
	return slice->accepted[row] ? "computed" : "rejected";
}

static const struct tw_slice *slice_of(const struct tw_pass *pass, int row, int *ret_row)
{
	for (int i = 0; i < pass->n_slices; i++) {
		if (row < pass->slices[i].n_rows) {
			*ret_row = row;
			return &pass->slices[i];
		}
		row -= pass->slices[i].n_rows;
	}
	fputs("make_trace: a row lies in no slice\n", stderr);
	exit(1);
}

static void expect_row(struct tw *tw, const struct tw_pass *pass, const struct tw_layer *layer,
		       const struct tw_rows *rows, int i)
{
	sqlite3_stmt *stmt = tw->expected;
	int row = rows->row ? (int)rows->row[i] : i, within;
	const struct tw_slice *slice = slice_of(pass, row, &within);

	for (int r = 0; r < valid_of(layer, rows, i); r++) {
		size_t at = (size_t)i * (size_t)layer->top_k + (size_t)r;
		double weight = weight_of(layer->weights, rows->bits ? rows->bits[at] : 0);

		sqlite3_bind_int(stmt, 1, pass->recording_id);
		sqlite3_bind_int(stmt, 2, pass->model_id);
		if (slice->request_id) {
			sqlite3_bind_int(stmt, 3, slice->request_id);
			sqlite3_bind_int(stmt, 4, slice->attempt);
			sqlite3_bind_int64(stmt, 5,
					   slice->positions ? (int64_t)slice->positions[within]
							    : slice->first_position + within);
		}
		sqlite3_bind_int(stmt, 6, pass->pass_id);
		sqlite3_bind_int(stmt, 7, row);
		sqlite3_bind_text(stmt, 8, slice->phase, -1, SQLITE_STATIC);
		sqlite3_bind_int(stmt, 9, layer->layer_id);
		sqlite3_bind_int(stmt, 10, layer->layer);
		sqlite3_bind_text(stmt, 11, state_of(slice, within), -1, SQLITE_STATIC);
		sqlite3_bind_int(stmt, 12, r);
		sqlite3_bind_int(stmt, 13, rows->ids[at]);
		if (!isnan(weight))
			sqlite3_bind_double(stmt, 14, weight);
		run_once(tw, stmt);
	}
}

/* Columns of expert_load_window from 6 on. */
static int load_column(const struct tw_slice *slice)
{
	if (!slice->request_id)
		return 3;
	if (strcmp(slice->phase, "prefill") == 0)
		return 0;
	if (strcmp(slice->phase, "decode") == 0)
		return 1;
	return strcmp(slice->phase, "verify") == 0 ? 2 : 3;
}

static void add_window(struct tw *tw, const struct tw_pass *pass, const struct tw_layer *layer,
		       int (*counts)[5], int n_slots)
{
	for (int e = 0; e < n_slots; e++) {
		int sum = 0;

		for (int c = 0; c < 5; c++)
			sum += counts[e][c];
		if (!sum)
			continue;
		sqlite3_bind_int(tw->load, 1, pass->recording_id);
		sqlite3_bind_int64(tw->load, 2, pass->begin_ns / WINDOW_NS * WINDOW_NS);
		sqlite3_bind_int(tw->load, 3, layer->layer_id);
		sqlite3_bind_int(tw->load, 4, e);
		sqlite3_bind_int64(tw->load, 5, WINDOW_NS);
		for (int c = 0; c < 5; c++)
			sqlite3_bind_int(tw->load, 6 + c, counts[e][c]);
		run_once(tw, tw->load);
	}
}

struct load_summary {
	int active_experts, padding_active_experts, max_load;
};

static struct load_summary count_rows(struct tw *tw, const struct tw_pass *pass,
				      const struct tw_layer *layer, const struct tw_rows *rows)
{
	static int counts[MAX_SLOTS][5];
	int n_slots = layer->n_experts + layer->n_zero_experts + layer->n_shared_slots, within;
	struct load_summary summary = {0, 0, 0};

	memset(counts, 0, (size_t)n_slots * sizeof(counts[0]));
	for (int i = 0; i < rows->n_rows + rows->n_padding; i++) {
		int row = rows->row && i < rows->n_rows ? (int)rows->row[i] : i;
		int column = i < rows->n_rows ? load_column(slice_of(pass, row, &within)) : 4;

		for (int r = 0; r < valid_of(layer, rows, i); r++)
			counts[rows->ids[(size_t)i * (size_t)layer->top_k + (size_t)r]][column]++;
	}
	for (int e = 0; e < layer->n_experts; e++) {
		int load = counts[e][0] + counts[e][1] + counts[e][2] + counts[e][3];

		summary.active_experts += load > 0;
		summary.padding_active_experts += load == 0 && counts[e][4] > 0;
		if (load > summary.max_load)
			summary.max_load = load;
	}
	if (tw->expect)
		add_window(tw, pass, layer, counts, n_slots);
	return summary;
}

void tw_add_rows(struct tw *tw, const struct tw_pass *pass, const struct tw_layer *layer,
		 const struct tw_rows *rows)
{
	int largest = layer->n_experts + layer->n_zero_experts + layer->n_shared_slots - 1;
	struct tw_run *run = find_run(tw, layer, largest <= 255 ? 1 : 2);
	struct load_summary summary = count_rows(tw, pass, layer, rows);
	int64_t step_ns = (pass->end_ns - pass->begin_ns) / (TW_MAX_LAYERS + 1);
	int first;

	if (!run->topk_id)
		run->topk_id = tw->next_topk_id++;
	first = pack_rows(run, layer, rows);
	sqlite3_bind_int(tw->layer, 1, pass->pass_id);
	sqlite3_bind_int(tw->layer, 2, layer->layer_id);
	sqlite3_bind_int(tw->layer, 3, summary.active_experts);
	if (pass->padding_rows && rows->n_padding)
		sqlite3_bind_int(tw->layer, 4, summary.padding_active_experts);
	sqlite3_bind_int(tw->layer, 5, summary.max_load);
	sqlite3_bind_int64(tw->layer, 6, pass->begin_ns + step_ns * (layer->layer + 1));
	sqlite3_bind_int(tw->layer, 7, 0);
	sqlite3_bind_int(tw->layer, 8, rows->n_rows);
	sqlite3_bind_int(tw->layer, 9, run->topk_id);
	sqlite3_bind_int(tw->layer, 10, first);
	run_once(tw, tw->layer);
	for (int i = 0; tw->expect && i < rows->n_rows; i++)
		expect_row(tw, pass, layer, rows, i);
	if (run->n_rows * run->k * run->id_bytes >= tw->run_bytes)
		close_run(tw, run);
}

void tw_add_absent(struct tw *tw, const struct tw_pass *pass, const struct tw_layer *layer,
		   int state)
{
	sqlite3_bind_int(tw->layer, 1, pass->pass_id);
	sqlite3_bind_int(tw->layer, 2, layer->layer_id);
	sqlite3_bind_int(tw->layer, 7, state);
	run_once(tw, tw->layer);
}
