/* SPDX-License-Identifier: MIT */
/*
 * Writes traces for the tests of the schema, and beside each trace the table of what it means:
 * a row in `expected` for every stored assignment, taken from the values themselves before they
 * are packed. The views and the extension are compared with that table, so nothing here may
 * use them. Any failure ends the program: it is a test tool.
 */
#ifndef MT_TESTS_TRACE_WRITER_H
#define MT_TESTS_TRACE_WRITER_H

#include <stdbool.h>
#include <stdint.h>
#include <sqlite3.h>

enum tw_weights { TW_NONE, TW_FP16, TW_BF16 };

enum { TW_MAX_RUNS = 16, TW_MAX_LAYERS = 64, TW_MAX_SLICES = 512 };

struct tw_layer {
	int layer_id;
	int model_id;
	int layer;
	int n_experts;
	int n_zero_experts;
	int n_shared_slots;
	int top_k;
	enum tw_weights weights;
	bool mapped; /* stored with a row map */
	bool has_n_valid;
};

struct tw_slice {
	int request_id; /* 0: rows of no request */
	int attempt;
	int first_position;
	const uint32_t *positions; /* NULL: consecutive */
	int n_rows;
	const char *phase;
	const uint8_t *accepted; /* NULL: never reported */
};

struct tw_pass {
	int pass_id;
	int recording_id;
	int model_id;
	int64_t begin_ns;
	int64_t end_ns;
	int n_rows;
	int padding_rows;
	int n_slices;
	struct tw_slice slices[TW_MAX_SLICES];
};

/* The rows of one layer of a pass, before packing. */
struct tw_rows {
	int n_rows;
	const uint32_t *row;	/* number of each row in the pass; NULL: 0, 1, ... */
	const uint16_t *ids;	/* [n_rows][top_k] */
	const uint16_t *bits;	/* [n_rows][top_k]; NULL: no weights */
	const uint8_t *n_valid; /* NULL: all top_k */
	int n_padding;		/* rows after n_rows in ids and n_valid that are padding */
};

struct tw_run;

struct tw {
	sqlite3 *db;
	bool expect;   /* fill the table `expected` */
	int run_bytes; /* ids of a run before it is closed */
	int next_topk_id;
	int n_runs;
	struct tw_run *runs;
	sqlite3_stmt *pass, *slice, *layer, *topk, *load, *expected;
};

void tw_open(struct tw *tw, const char *path, bool expect, int run_bytes);
void tw_close(struct tw *tw);
void tw_exec(struct tw *tw, const char *sql);
void tw_add_layer(struct tw *tw, const struct tw_layer *layer);
void tw_add_pass(struct tw *tw, const struct tw_pass *pass);
void tw_add_rows(struct tw *tw, const struct tw_pass *pass, const struct tw_layer *layer,
		 const struct tw_rows *rows);
/* A layer of which nothing is stored: state 1 (unwritten) or 2 (dropped). */
void tw_add_absent(struct tw *tw, const struct tw_pass *pass, const struct tw_layer *layer,
		   int state);

#endif
