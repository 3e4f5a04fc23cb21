/* SPDX-License-Identifier: MIT */
/*
 * What the analysis of a routing rule needs of a layer of a pass: its rows as one batch, each in
 * the order of the router's choice, without fused shared slots, with the rows marked that a rule of
 * decode rows leaves alone. Or the reason why there is no such batch.
 */
#ifndef MT_SCHEMA_FUNCTIONS_OEA_BATCH_H
#define MT_SCHEMA_FUNCTIONS_OEA_BATCH_H

#include "oea_sweep.h"
#include "trace_reader.h"

/* What kind of batch the rows of a pass are: the last of those that it has rows of. */
enum mt_oea_kind {
	MT_OEA_KIND_NONE, /* nothing that a rule of decode rows would change */
	MT_OEA_KIND_DECODE,
	MT_OEA_KIND_DRAFT,
	MT_OEA_KIND_VERIFY,
	MT_OEA_KIND_MIXED, /* of these and of prefill, whose rows keep their choice */
	MT_OEA_N_KINDS
};

extern const char *const mt_oea_kind_names[MT_OEA_N_KINDS];

/* Why a batch is not analysed; MT_OEA_REFUSED_NONE: it is. */
enum mt_oea_refusal {
	MT_OEA_REFUSED_NONE,
	MT_OEA_REFUSED_HASH,	/* experts were chosen by token id: nobody preferred any */
	MT_OEA_REFUSED_ORDER,	/* the order of the choice is not known */
	MT_OEA_REFUSED_EQUAL,	/* all weights of each row are equal: ranks mean nothing */
	MT_OEA_REFUSED_BASE,	/* a rule changed the choice, and the router's own was not told */
	MT_OEA_REFUSED_SAMPLED, /* rows of some requests are not stored: the batch is not whole */
	MT_OEA_REFUSED_WIDE,	/* more entries a row than MT_OEA_MAX_K */
	MT_OEA_REFUSED_SCORES,	/* p is asked for, and no share of the router's whole score is known */
	MT_OEA_N_REFUSALS
};

/* A word each; [0] is NULL. */
extern const char *const mt_oea_refusal_names[MT_OEA_N_REFUSALS];

struct mt_oea_layer {
	sqlite3_int64 layer_id, layer, model_id, moe_ordinal;
	uint32_t n_experts, n_zero_experts, n_shared_slots, n_groups, topk_groups, top_k;
	bool is_hash;
	bool is_unbiased; /* no bias acts on the choice, and it is known */
	bool is_raw;	  /* weights are the router's scores */
	bool is_softmax;  /* scores of all experts add up to 1 */
	float *bias;	  /* [n_experts + n_zero_experts], added for the choice alone; NULL: not known */
};

/* The layers seen so far, and buffers that grow to the largest batch. */
struct mt_oea_source {
	struct mt_reader reader;
	sqlite3_stmt *pass_stmt;
	enum mt_oea_kind kind; /* of the current pass */
	bool is_sampled;       /* the pass lacks rows of requests that are not sampled */
	bool is_drawn;	       /* choices are simulated or replayed: weights do not tell their order */
	bool is_plain_pass;    /* every row is changed and rated */
	struct mt_oea_layer *layers;
	size_t n_layers, size, hint;
	uint8_t *memory;
	size_t memory_bytes;
	bool any_group; /* set by the caller: groups do not bound what a row may take */
	bool by_weight; /* likewise: rows are in the order of their weights, bias or not */

	const struct mt_oea_layer *layer;
	enum mt_oea_refusal refusal;
	bool has_rule, has_weights;
	sqlite3_int64 rule_id;
	size_t n_restored_rows; /* put in order by their weights here */
	struct mt_oea_batch batch;
};

/*
 * Return SQLite result codes; next SQLITE_ROW (a layer of a pass that is of a kind) or SQLITE_DONE.
 * The message is source->reader.error. One that was zeroed may be closed.
 */
int mt_oea_source_open(struct mt_oea_source *source, sqlite3 *db, const char *name,
		       const struct mt_filter *filter);
int mt_oea_source_next(struct mt_oea_source *source);
void mt_oea_source_close(struct mt_oea_source *source);

/*
 * Call @add for each layer of a pass that is of a kind. @source is zeroed but for what its caller sets;
 * it is open while @add runs, and closed at the end. @add returns an SQLite code.
 *
 * @ret_error  What the reader says, if there is nothing in it yet.
 */
int mt_oea_source_walk(struct mt_oea_source *source, sqlite3 *db, const char *name,
		       int (*add)(void *state), void *state, char **ret_error);

#endif
