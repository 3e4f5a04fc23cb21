/* SPDX-License-Identifier: MIT */
/*
 * Reads a trace pass by pass and layer by layer, for the table-valued functions. Everything
 * that comes out was checked: blobs have the size that their row says, rows lie in their run,
 * and slices and row maps lie in their pass. What is wrong is an error that names the table
 * and the key. Nothing is allocated a row; buffers grow to the largest pass.
 * What a reader returns is valid until its next call.
 */
#ifndef MT_SCHEMA_FUNCTIONS_TRACE_READER_H
#define MT_SCHEMA_FUNCTIONS_TRACE_READER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sqlite3.h>

/* Equality with a value, or a bound, that a reader applies. */
enum mt_term {
	MT_TERM_RECORDING_ID,
	MT_TERM_MODEL_ID,
	MT_TERM_PASS_ID,
	MT_TERM_FROM_NS,  /* the pass begins then or later */
	MT_TERM_UNTIL_NS, /* the pass begins before then */
	MT_TERM_REQUEST_ID,
	MT_TERM_ATTEMPT,
	MT_TERM_POSITION, /* picks slices; their rows still have to be looked at */
	MT_TERM_LAYER_ID,
	MT_TERM_LAYER,
	MT_TERM_FIRST_PASS, /* pass_id is that or above */
	MT_TERM_LAST_PASS,  /* pass_id is that or below */
	MT_N_TERMS
};

/*
 * The values are SQL values of the caller, or numbers: those of recording, model, first and last
 * pass. Neither: the term is not applied.
 */
struct mt_filter {
	sqlite3_value *values[MT_N_TERMS];
	const sqlite3_int64 *numbers[MT_N_TERMS];
	const char *schema; /* name of the database that is read, as long as the reader; NULL: main */
};

enum mt_weight_format { MT_WEIGHT_NONE, MT_WEIGHT_FP16, MT_WEIGHT_BF16 };

struct mt_run {
	sqlite3_stmt *stmt; /* stands on the run's row, which holds the blobs */
	uint64_t last_use;
	sqlite3_int64 topk_id;
	size_t n_rows, k, id_bytes;
	enum mt_weight_format weight_format;
	const uint8_t *ids, *weights, *row_map, *n_valid; /* absent: NULL */
	const uint8_t *margins, *row_flags;
	/* With MT_READ_EXTRAS alone; absent: 0 and NULL. */
	bool has_rule;
	sqlite3_int64 rule_id;
	size_t base_k, n_candidates, physical_id_bytes;
	enum mt_weight_format score_format;
	const uint8_t *base_ids, *candidate_ids, *candidate_scores, *physical_ids;
};

struct mt_slice {
	bool has_request;
	sqlite3_int64 request_id, attempt, first_position;
	size_t row_offset, n_rows;
	const char *phase;	    /* a constant: equal texts are equal pointers */
	size_t positions, accepted; /* offset in the reader's blobs, plus 1; 0: NULL */
};

enum { MT_N_RUNS = 4 };

/* What a reader reads; the others are left out. */
enum mt_read {
	MT_READ_ROWS = 0,   /* slices with positions, attempts and acceptance */
	MT_READ_COUNTS = 1, /* slices without these; many in a pass may come as one */
	MT_READ_EXTRAS = 2, /* with either: base ids, rules and candidates; acceptance */
};

/* What the table `layer` says of a layer; unknown numbers are 0. */
struct mt_layer_facts {
	sqlite3_int64 layer_id, layer, model_id, moe_ordinal;
	uint32_t n_experts, n_zero_experts, n_shared_slots, gemm_block_rows;
};

/* pass_layer.state */
enum mt_layer_state { MT_LAYER_STORED, MT_LAYER_UNWRITTEN, MT_LAYER_DROPPED, MT_LAYER_COUNTED };

struct mt_reader {
	sqlite3 *db;
	const char *name;    /* the function, for messages */
	const char *schema;  /* NULL: main */
	char *error;	     /* sqlite3_malloc'ed; NULL: none */
	bool counts_only;    /* slices without positions and attempts */
	bool extras;	     /* MT_READ_EXTRAS */
	bool passes_only;    /* no slices; layers of every state */
	bool scans;	     /* layer_stmt goes over the layers of all passes */
	bool by_slice;	     /* only some slices of a pass are read */
	bool slices_pending; /* the statement stands on a row of the next pass */
	bool ended;
	sqlite3_stmt *pass_stmt; /* NULL: slice_stmt goes over all passes */
	sqlite3_stmt *other_stmt, *slice_stmt, *layer_stmt;
	sqlite3_stmt *odd_stmt;	   /* NULL: not all passes are read */
	sqlite3_int64 odd_pass_id; /* where it stands */
	bool odds_ended;
	uint64_t clock;
	struct mt_run runs[MT_N_RUNS];
	uint8_t *blobs;
	size_t blobs_used, blobs_size;

	sqlite3_int64 pass_id, recording_id, model_id;
	size_t n_rows;
	struct mt_slice *slices;
	size_t n_slices, slices_size;

	sqlite3_int64 layer_id, layer, layer_model_id;
	int selection_order; /* of pass_layer; -1: NULL; with MT_READ_ROWS or MT_READ_EXTRAS */
	int padding_active_experts; /* likewise */
	size_t n_layer_rows, first_row;
	const struct mt_run *run;

	/* Where the layers are scanned: what is known of each, and where the scan is. */
	struct mt_layer_facts *facts;
	size_t n_facts, facts_size, facts_hint;
	const struct mt_layer_facts *layer_facts;
	sqlite3_int64 scanned_pass_id; /* of the row that waits, or of the pass asked for last */
	bool layer_waits, layers_ended;

	const char *phase; /* of the pass, a constant; only where slices are not read */

	/* With passes_only. */
	enum mt_layer_state state; /* run, n_layer_rows and first_row are of MT_LAYER_STORED alone */
	sqlite3_int64 begin_ns;
	sqlite3_int64 map_epoch; /* 0: none; with MT_READ_EXTRAS, too */
};

/*
 * @what is of enum mt_read.
 *
 * All return SQLite result codes; the next calls SQLITE_ROW or SQLITE_DONE. After an error,
 * reader->error is the message, or NULL where sqlite3_errmsg() has it. A reader that was
 * zeroed may be closed.
 */
int mt_reader_open(struct mt_reader *reader, sqlite3 *db, const char *name, unsigned what,
		   const struct mt_filter *filter);
/* Passes and their layers, whatever their state, without slices: for terms of passes and layers. */
int mt_reader_open_passes(struct mt_reader *reader, sqlite3 *db, const char *name,
			  const struct mt_filter *filter);
/* The same with MT_READ_EXTRAS: what the columns of layers and runs say of the choice. */
int mt_reader_open_layers(struct mt_reader *reader, sqlite3 *db, const char *name,
			  const struct mt_filter *filter);
int mt_reader_next_pass(struct mt_reader *reader);
int mt_reader_next_layer(struct mt_reader *reader);
void mt_reader_close(struct mt_reader *reader);

/* The number in the pass of row i of the current layer, which must be mapped. */
int mt_reader_map_row(struct mt_reader *reader, size_t i, size_t *ret_row);
/* The slice that holds a row of the pass; NULL: none of those read. */
const struct mt_slice *mt_reader_find_slice(const struct mt_reader *reader, size_t row);
/* Entries in use of row i of the current layer, at most k. */
int mt_reader_n_valid(struct mt_reader *reader, size_t i, size_t *ret_n_valid);

/* About how many assignments the trace holds; for the planner. */
double mt_trace_estimate(sqlite3 *db, double *ret_n_passes);

#endif
