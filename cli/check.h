/* SPDX-License-Identifier: MIT */
/*
 * The proofs of `moetrace check`. First the shape of the file and the types of its values
 * (check_schema.c); what SQL can say is said in SQL (check_sql.c). The rest is one scan of the
 * passes in order with their slices and layers (check_scan.c), which decodes every stored id
 * (check_layer.c) and adds up two sums (check_load.c), one of them by windows (check_window.c),
 * and the spans of positions that requests had computed (check_span.c). The file is hostile: a
 * number is trusted only after the proof that covers it held for its row.
 */
#ifndef MT_CLI_CHECK_H
#define MT_CLI_CHECK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cli/cli.h"

/* X(identifier, name, what it says). The order is that of the output. */
#define CHECK_PROOFS(X)                                                                         \
	X(INTEGRITY, "integrity", "SQLite's own structures are sound")                          \
	X(SCHEMA, "schema", "tables and views are those of the schema")                         \
	X(TYPES, "types", "values are of their column's type, none is below 0")                 \
	X(FOREIGN_KEYS, "foreign_keys", "every reference points to a row")                      \
	X(VALUES, "values", "words and flags are ones that the schema names")                   \
	X(TIMES, "times", "nothing ends before it begins")                                      \
	X(TOPK_BLOBS, "topk_blobs", "blobs of ids and weights have the size of their rows")     \
	X(SLICE_BLOBS, "slice_blobs", "positions and accepted have the size of their slice")    \
	X(SLICES, "slices", "slices are in row order and add up to their pass")                 \
	X(LAYERS, "layers", "a pass has each layer of its model once")                          \
	X(LAYER_ROWS, "layer_rows", "rows of a layer lie inside their run and their pass")      \
	X(RUN_OVERLAP, "run_overlap", "no row of a run belongs to two layers")                  \
	X(IDS, "ids", "ids are in range, distinct in a row, unused ones 0")                     \
	X(WEIGHTS, "weights", "renormalized weights are numbers from 0, unused ones 0")         \
	X(LAYER_LOAD, "layer_load", "counts of a layer have its size and agree with its columns") \
	X(DISPATCH, "dispatch", "counts of a dispatch have their sizes and what rows can give") \
	X(EXPERT_MAP, "expert_map", "slots hold experts of their layer, layers name a map")     \
	X(PHYSICAL_IDS, "physical_ids", "slots hold the experts that rows selected")            \
	X(CANDIDATES, "candidates", "candidates are in range and distinct in a row")            \
	X(ROW_FACTS, "row_facts", "margins are not below 0, and 0 where rows tie alone")         \
	X(ORDERS, "orders", "orders descend by the scores that are told, shared slots last")    \
	X(ACTIVE_EXPERTS, "active_experts", "active_experts and max_load agree with the ids")   \
	X(WINDOWS, "windows", "windows of expert load are aligned and apart")                   \
	X(SUM_LOAD, "sum_load", "sum over all slices = expert_load_window, by window")          \
	X(SUM_REQUESTS, "sum_requests", "sum over computed rows = sum over the requests")       \
	X(COMPUTED_ONCE, "computed_once", "a position of an attempt is computed once at most")  \
	X(REUSE, "reuse", "reused positions are computed by their source, once an attempt")     \
	X(PARENTS, "parents", "a pass that others are parts of has nothing of its own")         \
	X(PASS_VERDICTS, "pass_verdicts", "a pass has the verdict that its layers give")        \
	X(REQUEST_VERDICTS, "request_verdicts", "a request has the verdict that its rows give") \
	X(TIMING, "timing", "operations, graphs and ranges belong to what they name")           \
	X(POWER, "power", "readings are what their source can tell, counters do not fall")      \
	X(COLLECTORS, "collectors", "a source brought the rows that it says")                   \
	X(RECORDINGS, "recordings", "a recording is closed with a reason, or open")             \
	X(STATS, "stats", "the counters agree with the rows")

enum check_proof {
#define CHECK_PROOF_ENUM(identifier, name, says) CHECK_##identifier,
	CHECK_PROOFS(CHECK_PROOF_ENUM)
#undef CHECK_PROOF_ENUM
		CHECK_N_PROOFS
};

/* Violations of one proof that are kept in words. */
#define CHECK_MAX_EXAMPLES 3

struct check_result {
	uint64_t n_checked;
	uint64_t n_violations;
	char *examples[CHECK_MAX_EXAMPLES]; /* "TABLE KEY: what is wrong" */
};

/* What is checked at most; more is an implausible number, not data. */
#define CHECK_MAX_PASS_ROWS   (1u << 26)
#define CHECK_MAX_IDS	      65536u
#define CHECK_MAX_COUNT_BYTES (UINT64_C(4) << 30)

/* Columns of expert_load_window that a row counts in. */
enum check_column {
	CHECK_PREFILL,
	CHECK_DECODE,
	CHECK_VERIFY,
	CHECK_OTHER,
	CHECK_N_CLASSES,
	/* In which of them is not known: of a pass of several, only counts are stored. */
	CHECK_ANY = CHECK_N_CLASSES,
	CHECK_N_COLUMNS
};

struct check_layer {
	int64_t layer_id;
	int64_t model_id;
	uint32_t n_experts;
	uint32_t n_ids; /* routed, zero and shared */
	uint32_t n_shared;
	uint32_t top_k;
	bool is_unbiased; /* no bias acts on the choice */
	float *bias; /* that acts on it [n_ids - n_shared]; NULL: none, or not told */
	bool has_ordered_weights; /* of two experts, the one of higher score has the higher weight */
	double weight_scale; /* its weights are scores times this; 0: or not, or by a factor unknown */
	int64_t map_epoch; /* of slot_experts */
	int64_t n_slots;
	uint8_t *slot_experts; /* i32 [n_slots]; NULL: no map */
	bool is_renormalized; /* its weights are finite and not negative */
};

struct check_model {
	int64_t model_id;
	bool is_target;
	size_t n_layers;
};

struct check_recording {
	int64_t recording_id;
	int64_t last_pass_id;
	int64_t start_ns;
	bool is_per_token;
	bool is_routed; /* by the model's routers, as far as it is told */
	bool is_stat;
	int64_t n_requests; /* rows of every nth request are kept; 0 or 1: of all */
	size_t window; /* that the loads in counts are of; CHECK_NO_WINDOW: none holds them */
	uint64_t n_passes;
	uint64_t n_rows;
	uint64_t n_layers;
	uint64_t n_assignments;
	struct check_count **counts; /* [n_layers of the trace], NULL: nothing counted */
};

/* Selections of each id of a layer in a recording. */
struct check_count {
	uint64_t (*load)[CHECK_N_COLUMNS]; /* [n_ids]: rows of the window that is being counted */
	uint64_t *computed;		   /* [n_ids]: computed rows of requests */
	uint64_t *in_view;		   /* [n_ids]: the same as moe_topk gives them */
};

#define CHECK_NO_WINDOW SIZE_MAX

/* A window of expert load, with what the passes that begin in it say of padding. */
struct check_window {
	int64_t recording_id;
	int64_t start_ns;
	int64_t length_ns;
	uint64_t padding_rows;
};

/* What the slices give for a row of expert_load_window. */
struct check_load {
	size_t window;
	uint32_t layer; /* index in check.layers */
	uint32_t id;
	uint64_t tokens[CHECK_N_COLUMNS];
};

/* Consecutive positions of a request that one slice computed. */
struct check_span {
	int64_t request_id;
	int64_t model_id;
	int64_t attempt;
	int64_t first;
	int64_t n;
	int64_t pass_id;
	int64_t first_row; /* of its slice in the pass */
	int64_t n_rows;	   /* of its slice */
	bool is_whole;	   /* its rows are stored in every layer */
	bool may_be_whole; /* they are, or ids that no expert has were taken out of them */
};

/* Positions that an attempt reused: a row of request_reuse. */
struct check_link {
	int64_t request_id;
	int64_t attempt;
	int64_t first;
	int64_t n;
	int64_t source_id; /* -1: unknown */
	int64_t source_attempt;
	bool may_be_left_out; /* passes of the recording were, with what they computed */
	bool is_whole;	   /* the source's rows are stored in every layer */
	bool may_be_whole; /* as in check_span */
};

/* Rows [first, first + n) of a run, taken by a layer of a pass. */
struct check_range {
	int64_t topk_id;
	int64_t first;
	int64_t n;
	int64_t pass_id;
	int64_t layer_id;
};

struct check_run {
	int64_t topk_id; /* 0: none */
	int64_t n_rows;
	int64_t k;
	int64_t id_bytes;
	int64_t base_k; /* 0: no base_ids */
	int64_t physical_id_bytes;
	int64_t n_candidates; /* 0: none */
	bool is_bf16;
	bool has_rule; /* a rule chose them, and may have given more than the layer's top_k */
	uint8_t *ids;
	uint8_t *weights;  /* NULL: none */
	uint8_t *base_ids; /* NULL: none */
	uint8_t *physical_ids;	/* NULL: none */
	uint8_t *candidate_ids; /* NULL: none */
	uint8_t *candidate_scores; /* NULL: none */
	bool is_score_bf16;
	uint8_t *margins;  /* NULL: none */
	uint8_t *row_flags; /* NULL: none */
	uint8_t *row_map;  /* NULL: none */
	uint8_t *n_valid;  /* NULL: none */
	bool is_sound;	   /* the sizes of its blobs are right */
};

#define CHECK_N_RUNS 16

/* pass_layer.selection_order. */
#define CHECK_ORDER_SELECTION 0
#define CHECK_ORDER_RESTORED  1

/* What the scan knows of the pass that it is in. */
struct check_pass {
	int64_t pass_id;
	int64_t model_id;
	int64_t n_rows;
	int64_t n_dropped;
	int64_t padding_rows;
	size_t window;			   /* of expert load that it begins in */
	struct check_recording *recording; /* NULL: the reference is broken */
	const struct check_model *model;   /* NULL: the reference is broken */
	const char *verdict;		   /* valid until the next step of the pass statement */
	const char *reasons;
	const char *phase;
	uint8_t *is_short;    /* [n_rows] has fewer entries than its run in some layer */
	uint8_t *columns;     /* [n_rows] enum check_column */
	uint8_t *is_computed; /* [n_rows] of a request */
	uint8_t *is_kept;     /* [n_rows] its rows are stored, as far as requests are sampled */
	bool is_sampled;      /* not all are */
	uint32_t *seen;	      /* [n_rows] serial number of the layer that saw it */
	size_t max_rows;
	size_t first_span; /* of its spans in check.spans */
	size_t n_stored;  /* or counted */
	size_t n_counted; /* of them, those whose rows are not kept */
	size_t n_unwritten;
	size_t n_lost;
};

struct check {
	struct mt_trace *trace;
	struct check_result results[CHECK_N_PROOFS];
	struct check_layer *layers; /* by ascending layer_id */
	size_t n_layers;
	size_t max_layers;
	struct check_model *models;
	size_t n_models;
	struct check_recording *recordings;
	size_t n_recordings;
	bool lacks_tables; /* or columns of them: only the first proofs can be made */
	bool lacks_views;
	bool is_cut;		      /* reading ended at an error, so proofs are missing */
	struct check_window *windows; /* by ascending recording and start */
	size_t n_windows;
	size_t max_windows;
	struct check_load *loads;
	size_t n_loads;
	size_t max_loads;
	struct check_pass pass;
	struct check_run runs[CHECK_N_RUNS];
	size_t next_run;
	sqlite3_stmt *run_stmt;
	sqlite3_stmt *handle_stmt;
	sqlite3_stmt *counts_stmt;
	sqlite3_stmt *map_stmt;
	int64_t order; /* of the current layer: pass_layer.selection_order */
	struct check_span *spans;
	size_t n_spans;
	size_t max_spans;
	struct check_link *links; /* by ascending key */
	size_t n_links;
	size_t max_links;
	struct check_range *ranges;
	size_t n_ranges;
	size_t max_ranges;
	uint32_t *load;	     /* [CHECK_MAX_IDS] of the current layer */
	uint32_t *row_of_id; /* [CHECK_MAX_IDS] serial number of the last row with it */
	uint32_t row_serial;
	uint32_t layer_serial;
	uint64_t count_bytes;
};

/* Count a violation of @proof and keep the first ones in words. */
void check_violation(struct check *check, enum check_proof proof, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

/*
 * The steps, in this order. Each returns MT_EXIT_OK, or MT_EXIT_FAILED after an error line: the
 * file could not be read or memory ran out. Violations are no failure.
 */
int check_integrity_run(struct check *check);
int check_schema_run(struct check *check);
/* These need all tables of the schema. */
int check_definitions_load(struct check *check);
int check_sql_run(struct check *check);
int check_timing_run(struct check *check);
int check_serial_run(struct check *check);
int check_source_run(struct check *check);
int check_windows_load(struct check *check);
int check_scan_run(struct check *check);
int check_windows_compare(struct check *check);
int check_load_compare(struct check *check);
int check_spans_sort(struct check *check);
int check_links_load(struct check *check); /* needs sorted spans */
int check_spans_compare(struct check *check);
int check_ranges_compare(struct check *check);
int check_stats_compare(struct check *check);

void check_free(struct check *check);

/* A line for each object of the file that is not of the schema. */
int check_foreign_print(const struct check *check, struct mt_output *output);

/* A statement that returns a row (table, key, what is wrong) for every violation of its proof. */
struct check_sql_proof {
	enum check_proof proof;
	const char *count; /* NULL: counted with another statement of the same proof */
	const char *violations;
};

/* Count with @count (NULL: do not) and take each row of @violations. */
int check_sql_proof_run(struct check *check, enum check_proof proof, const char *count,
			const char *violations);
int check_sql_proofs_run(struct check *check, const struct check_sql_proof *proofs,
			 size_t n_proofs);

/* Parts of the scan. */
struct check_recording *check_recording_find(struct check *check, int64_t recording_id);
const struct check_layer *check_layer_find(const struct check *check, int64_t layer_id);
/* The blobs of a run; it is none after that. */
void check_run_free(struct check_run *run);
/* Check one stored layer of the current pass; the statement's columns are check_scan.c's. */
int check_layer_rows(struct check *check, const struct check_layer *layer, sqlite3_stmt *stmt);
/* A new serial number for row_of_id. */
void check_row_serial_next(struct check *check);
/* check_extra.c: before the rows of a stored layer, and for each of them. */
int check_extra_begin(struct check *check, const struct check_layer *layer, sqlite3_stmt *stmt);
void check_extra_row(struct check *check, const struct check_layer *layer,
		     const struct check_run *run, int64_t stored, int64_t n_valid, int64_t row);
/* What is wrong with the order of a stored row; NULL: nothing that the file tells. */
const char *check_order_fault(const struct check_layer *layer, const struct check_run *run,
			      int64_t stored, int64_t n_valid, bool is_restored, bool is_routed);
/* Check one layer of the current pass of which only counts are known; check_counts.c. */
int check_layer_counts(struct check *check, const struct check_layer *layer, sqlite3_stmt *stmt);
/* The counts of @layer in the current recording; NULL after an error line: no memory. */
struct check_count *check_count_get(struct check *check, const struct check_layer *layer);
int check_span_add(struct check *check, const struct check_span *span);
/* The first of the sorted spans of @request_id; check.n_spans if there is none. */
size_t check_span_find(const struct check *check, int64_t request_id);
bool check_model_is_target(const struct check *check, int64_t model_id);
/* The first link of @request_id and @attempt or of a later key. */
size_t check_link_find(const struct check *check, int64_t request_id, int64_t attempt);
/* Whether an attempt of the request reused a position that a target model computed in it. */
bool check_links_overlap(const struct check *check, int64_t request_id);
/* The window that a pass of @recording begins in. */
size_t check_window_find(const struct check *check, const struct check_recording *recording,
			 int64_t begin_ns);
/* Count for @window from now on: what was counted for another one is put aside. */
int check_window_enter(struct check *check, struct check_recording *recording, size_t window);

/* Whether @reasons, words with commas between them, has @reason; NULL has none. */
bool check_has_reason(const char *reasons, const char *reason);
/* Whether every word of @reasons is one of @names (NULL-terminated). */
bool check_reasons_are_known(const char *reasons, const char *const *names);

/* Grow @array for one more element. Returns the array, or NULL after an error line. */
void *check_array_grow(const struct check *check, void *array, size_t n, size_t *max,
		       size_t element_bytes);

#endif
