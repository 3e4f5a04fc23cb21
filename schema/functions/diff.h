/* SPDX-License-Identifier: MIT */
/*
 * Two recordings side by side, of one database or of two, for moe_diff() and moe_diff_request(); and
 * two attempts of one request, for moe_attempts(). What is compared is a pair of requests: their
 * positions, up to the first token that differs, in every layer of one model. Which pairs there are
 * is found first (diff_side.c, diff_join.c). Then A is gone through in the order of its passes, as far
 * at a time as the rows fit into a fixed memory; B's rows of the same positions are read beside them
 * (diff_part.c, diff_rows.c). So files of any size are read in memory that does not grow with them.
 *
 * A choice is the set of routed and zero experts of a row; fused shared slots are no choice. Of two
 * rows that chose n and m experts, max(n, m) choices are compared, and those differ that are not in
 * both.
 */
#ifndef MT_SCHEMA_FUNCTIONS_DIFF_H
#define MT_SCHEMA_FUNCTIONS_DIFF_H

#include <sqlite3.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tvf.h"

enum {
	MT_DIFF_MAX_K = 64,
	MT_DIFF_MEMORY_BYTES = 40 << 20,
	MT_DIFF_MAX_POSITIONS = 1 << 24, /* of a request: more is damage, and is not gone through */
	MT_DIFF_MAX_EXPERTS = 1 << 22,	 /* of all layers */
};

/* Sides are A and B. */
enum { MT_N_SIDES = 2 };

enum mt_diff_join {
	MT_JOIN_ANY = 0, /* by external id, and the others by the tokens of their prompts */
	MT_JOIN_ID,
	MT_JOIN_TOKENS,
};

/* A request of one side, as far as the comparison needs it. */
struct mt_diff_request {
	sqlite3_int64 request_id;
	sqlite3_int64 attempt;		     /* the last one */
	sqlite3_int64 first_pass, last_pass; /* hold rows of any attempt; first above last: none */
	uint32_t end;  /* its positions are below */
	uint32_t seen; /* and those of its rows, and of what it reused, are below this */
};

struct mt_diff_side {
	const char *schema; /* NULL: main */
	sqlite3_int64 recording_id, model_id;
	struct mt_diff_request *requests; /* by request_id */
	size_t n_requests;
};

struct mt_diff_pair {
	sqlite3_int64 request_id[MT_N_SIDES]; /* 0: nothing is joined to the other one */
	sqlite3_int64 attempt[MT_N_SIDES];
	sqlite3_int64 token_position; /* of the first token that differs; -1: none does */
	const char *joined_by;	      /* a constant; NULL: nothing is joined */
	bool has_tokens;	      /* some token of both is known */
	uint32_t end;		      /* positions below it are compared */
	uint32_t n_unseen;	      /* and those behind it, of which neither has a row */
	/* While they are read. */
	uint32_t next_position;
	bool is_done;
	size_t part;			  /* of the part at hand, plus 1; 0: it has none */
	sqlite3_int64 reached[MT_N_SIDES]; /* pass of the last row that was found; 0: none */
	uint64_t n_both_missing;	  /* rows that neither has */
	void *state;			  /* the sink's own; NULL until it sets it */
};

struct mt_diff_layer {
	sqlite3_int64 layer, layer_id[MT_N_SIDES];
	uint32_t n_choices;  /* routed and zero experts: ids below are choices */
	bool is_same_weight; /* weights of both include the same, so that they can be subtracted */
};

/* A row of a layer: entries that are no choice are left out. */
struct mt_diff_row {
	uint16_t n;
	uint16_t flags; /* enum mt_diff_flag */
};

enum mt_diff_flag {
	MT_DIFF_PRESENT = 1,
	MT_DIFF_ORDERED = 2,
	MT_DIFF_FP16 = 4, /* weights */
	MT_DIFF_BF16 = 8,
	MT_DIFF_REUSED = 16, /* computed by another request or attempt */
};

struct mt_diff {
	sqlite3 *db;
	const char *name; /* the function, for messages */
	struct mt_tvf_rows *rows;
	struct mt_diff_side sides[MT_N_SIDES];
	struct mt_diff_pair *pairs;
	size_t n_pairs, pairs_size;
	/* Of the models that are compared now. */
	struct mt_diff_layer *layers;
	size_t n_layers;
	size_t max_k;	       /* entries of a row that there is room for */
	uint32_t memory_bytes; /* for the rows of one side */
	bool is_single;	       /* side A alone is read; rows are handed over as both */
	/* The rows of the pairs at hand: [position][layer] for each side, see diff_rows.c. */
	uint16_t *entries[MT_N_SIDES];
};

/* Two rows and what they have in common. */
struct mt_diff_compared {
	uint32_t n_choices, n_differing;
	bool is_ordered;	   /* the order of both is known, and their sets are equal */
	bool is_reordered;	   /* with is_ordered: they are not in the same order */
	uint32_t n_moved;	   /* with is_ordered: entries whose place differs */
	bool is_weighted;	   /* both have weights that sum to more than 0 */
	double weight_distance;	   /* total variation of the weights, each divided by their sum */
	uint32_t n_common_weights; /* with is_weighted: experts in both */
	double weight_difference;  /* of these: sum of |a - b| */
	double max_weight_difference;
};

/*
 * What compares the rows that were read. Each returns an SQLite code. A pair comes in parts, its
 * positions in order, with parts of others between them.
 */
struct mt_diff_sink {
	void *state;
	/* A position of a pair in a layer; rows may lack MT_DIFF_PRESENT, but not both. */
	int (*row)(void *state, struct mt_diff_pair *pair, uint32_t position, size_t layer,
		   const struct mt_diff_row *a, const struct mt_diff_row *b);
	/* The end of a part. */
	int (*part)(void *state, struct mt_diff_pair *pair);
	/* The end of the pair; pair->state is freed after it. */
	int (*pair)(void *state, struct mt_diff_pair *pair);
};

/* Ids and weights of a row that came from mt_diff_sink. */
const uint16_t *mt_diff_row_ids(const struct mt_diff_row *row);
float mt_diff_row_weight(const struct mt_diff *diff, const struct mt_diff_row *row, uint32_t i);

/* Fill the recordings in; @recording: NULL takes the only one. @schema_b: NULL is main. */
int mt_diff_open(struct mt_diff *diff, sqlite3 *db, const char *name, struct mt_tvf_rows *rows,
		 sqlite3_value *recording_a, sqlite3_value *recording_b, const char *schema_b);
void mt_diff_close(struct mt_diff *diff);

/* The arguments recording_a, recording_b, b, join_by and memory_bytes; mt_diff_open() is part of it. */
int mt_diff_arguments(struct mt_diff *diff, sqlite3 *db, const struct mt_tvf *tvf,
		      sqlite3_value *const *arguments, struct mt_tvf_rows *rows,
		      enum mt_diff_join *ret_join);

/* Model pair @index of the recordings. SQLITE_DONE: there are no more. */
int mt_diff_models(struct mt_diff *diff, size_t index);
/* The layers and requests of the models that were chosen. */
int mt_diff_load(struct mt_diff *diff);

/* Find the pairs, in the order of A's requests; then those of B that nothing is joined to. */
int mt_diff_join(struct mt_diff *diff, enum mt_diff_join how);
/* Instead: each attempt but the last of each request of side A, with the last one. */
int mt_diff_join_attempts(struct mt_diff *diff);

/* Instead: each request of A by itself, or @request_id alone; with is_single. */
int mt_diff_join_single(struct mt_diff *diff, sqlite3_int64 request_id);

/* Read the rows of all pairs and hand them over. */
int mt_diff_read(struct mt_diff *diff, const struct mt_diff_sink *sink);

void mt_diff_compare(const struct mt_diff *diff, size_t layer, const struct mt_diff_row *a,
		     const struct mt_diff_row *b, struct mt_diff_compared *ret_compared);

/* The end of a slice's positions: its columns first_position, n_rows, positions from @column on. */
uint32_t mt_diff_slice_end(sqlite3_stmt *stmt, int column);

const struct mt_diff_request *mt_diff_request_find(const struct mt_diff_side *side,
						   sqlite3_int64 request_id);

/* Prepare a statement that names tables as main.TABLE for a side. */
int mt_diff_prepare(struct mt_diff *diff, size_t side, const char *sql, sqlite3_stmt **ret_stmt);
/* The code of a statement's end: OK, or what went wrong with its message. Finalizes it. */
int mt_diff_finish(struct mt_diff *diff, sqlite3_stmt *stmt, int rc);
/* @n zeroed elements, also of none; NULL: out of memory. */
void *mt_diff_zeroed(size_t n, size_t element_bytes);

#endif
