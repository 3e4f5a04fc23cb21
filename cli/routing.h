/* SPDX-License-Identifier: MIT */
/*
 * check --routing: the ways in which routing goes wrong. One scan of the stored rows
 * (routing_scan.c) counts for each layer of each recording what contradicts the layer's own
 * description: ids, groups and weights (routing_rows.c), the order under a bias (routing_bias.c),
 * recorded scores (routing_scores.c). What follows is judged a layer at a time (routing_judge.c,
 * and of its weights routing_judge_weights.c); what tables alone say is SQL (routing_tables.c), and a
 * preset is compared in routing_preset.c.
 * A finding is proved, if no router that is as described can have made what is stored; or it is
 * statistical, and then says how much evidence it stands on. Memory is bounded by recordings,
 * layers and experts, never by rows.
 */
#ifndef MT_CLI_ROUTING_H
#define MT_CLI_ROUTING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cli/cli.h"
#include "kernels/presets/presets.h"
#include "schema/functions/trace_reader.h"

/* X(identifier, name, what is looked for, what it takes to look). The order is the output's. */
#define ROUTING_LOOKS(X)                                                                           \
	X(ID_SPACE, "id_space", "physical ids where logical ones belong",                          \
	  "an expert map; and two epochs of it, dispatches, biases, groups or candidates")         \
	X(FOREIGN_IDS, "foreign_ids", "ids that the layer does not have", "stored rows")           \
	X(DUPLICATE_IDS, "duplicate_ids", "an expert twice in a row", "stored rows")               \
	X(PADDING, "padding_routed", "padding rows that reached an expert", "passes with padding") \
	X(ROUTER_OUTPUT, "router_output", "layers that nobody writes, or that no map can reach",   \
	  "passes with rows")                                                                      \
	X(LAYER_SHIFT, "layer_shift", "layer numbers shifted by dense layers",                     \
	  "the model's number of layers, or --preset")                                             \
	X(GROUPS, "groups", "experts of groups that were not kept",                                \
	  "n_groups and topk_groups; for the rule, candidates of all experts")                     \
	X(CHOICE, "choice", "rows that their scores or biases do not give",                        \
	  "weights, and bias_values where there is a bias; or candidates")                         \
	X(TIE_RULE, "tie_rule", "equal scores with the higher id first",                           \
	  "weights in the order of selection, without a bias between them")                        \
	X(BIASED_WEIGHTS, "biased_weights", "scores with their bias used as weights",              \
	  "a correction bias and weights")                                                         \
	X(SCORING, "scoring", "weights that the score function cannot give",                       \
	  "scoring, weights and weight_kind")                                                      \
	X(RENORMALIZE, "renormalize", "weights that do not add up as they are said to",            \
	  "weights and weight_kind")                                                               \
	X(NORM_SHARED, "norm_shared", "sums taken over shared columns, too",                       \
	  "weights of fused shared slots")                                                         \
	X(SCALING, "scaling", "the scaling factor applied twice, or never",                        \
	  "weights, weight_kind and routed_scaling_factor")                                        \
	X(SHARED_SCALING, "shared_scaling", "shared slots scaled with the routed ones",            \
	  "weights of fused shared slots and routed_scaling_factor")                               \
	X(NO_WEIGHTS, "no_weights", "rows without a positive finite weight", "weights")            \
	X(EQUAL_WEIGHTS, "equal_weights", "rows whose weights are all the same", "weights")        \
	X(RANK_MULTIPLIED, "rank_multiplied", "counts that are a multiple of what rows give",      \
	  "counts that the runtime told")                                                          \
	X(BLOCK_ROWS, "block_rows", "the KV cache's page taken for the block of the GEMM",         \
	  "gemm_block_rows; and received tokens or prefix hits")                                   \
	X(PRESET, "preset", "a layer that is not the published router's", "--preset")

enum routing_look {
#define ROUTING_LOOK_ENUM(identifier, name, says, needs) ROUTING_##identifier,
	ROUTING_LOOKS(ROUTING_LOOK_ENUM)
#undef ROUTING_LOOK_ENUM
		ROUTING_N_LOOKS
};

enum routing_scoring {
	ROUTING_SCORING_UNKNOWN,
	ROUTING_SOFTMAX,
	ROUTING_SIGMOID,
	ROUTING_SQRTSOFTPLUS,
	ROUTING_SOFTMAX_SELECTED,
	ROUTING_SPARSEMIXER,
};

/* layer.weight_kind; 0: not told. */
enum { ROUTING_RAW = 1, ROUTING_RENORMALIZED = 2, ROUTING_SCALED = 4 };

enum {
	ROUTING_MAX_GROUPS = 64,
	ROUTING_N_EPOCHS = 4,	/* maps of a recording that loads are kept for */
	ROUTING_N_TIES = 256,	/* pairs of experts that ties are counted for */
	ROUTING_N_EXAMPLES = 3, /* rows of a layer's fault, and rows of a finding */
};

/* What the table layer says, as far as it is sound; numbers that are not told are 0. */
struct routing_layer {
	int64_t layer_id;
	int64_t model_id;
	int64_t layer;
	int64_t moe_ordinal;
	bool is_hash;
	uint32_t n_experts;
	uint32_t n_zero;
	uint32_t n_shared;
	uint32_t n_columns; /* routed and zero experts */
	uint32_t n_ids;
	uint32_t top_k;
	uint32_t k_routed; /* without the shared slots */
	enum routing_scoring scoring;
	uint32_t n_groups;
	uint32_t topk_groups;
	uint32_t group_top_n;
	uint8_t *group_of; /* [n_experts]; NULL: not grouped, or not to be told apart */
	int renormalize;   /* -1: not told */
	int has_bias;	   /* -1: not told */
	float *bias;	   /* [n_columns]; NULL: not told */
	int weight_kind;
	bool is_target;
	double factor; /* routed_scaling_factor; 1: none */
	bool is_scaled_on_output;
	double expected; /* what weights that are said to be renormalized add up to */
	/* The map of the current epoch. */
	int64_t map_epoch; /* 0: none was read */
	uint32_t n_slots;
	int32_t *slot_experts; /* NULL: none, or it moves no expert */
};

struct routing_recording {
	int64_t recording_id;
	bool is_routed; /* the model's routers chose, as far as it is told */
	bool is_replay; /* of ids that were given, so that weights are in any order */
	struct routing_count **counts; /* [n_layers]; NULL: nothing of the layer was seen */
};

/* A row that a finding points at. */
struct routing_example {
	int64_t pass_id;
	int64_t row;
	char *text; /* what is stored in it */
};

struct routing_fault {
	uint64_t n_seen; /* rows, or what else was looked at */
	uint64_t n_bad;
	struct routing_example examples[ROUTING_N_EXAMPLES];
};

/* Sums of the routed weights of a row, and single weights. */
struct routing_sums {
	uint64_t n_rows;
	uint64_t n_ok;	   /* the sum is the expected one */
	uint64_t n_never;  /* it is 1, though said to be scaled */
	uint64_t n_twice;  /* it is the square of the factor, though said to be scaled */
	uint64_t n_scaled; /* it is the factor, though not said to be scaled */
	uint64_t n_shared; /* with the shared slots it is the expected one */
	uint64_t n_over;   /* above what the score function gives */
	uint64_t n_under;  /* below what it gives to the best top_k */
	uint64_t n_negative;
	double min_sum, max_sum, max_weight;
	double total; /* of the sums */
};

/* Pairs of experts that stood side by side with equal scores. */
struct routing_tie {
	uint16_t low, high; /* equal: an empty entry */
	uint32_t n_right;   /* the lower id came first */
	uint32_t n_wrong;
};

/* Of rows that contradict the description: how many another one explains. */
enum routing_cause {
	ROUTING_AS_SLOTS, /* the ids are physical */
	ROUTING_BY_MAX,	  /* groups by their largest score */
	ROUTING_BY_TOP2,  /* groups by the sum of their two largest */
	ROUTING_WITHOUT_GROUPS,
	ROUTING_WITHOUT_BIAS,	/* the bias did not act on the choice */
	ROUTING_BY_BF16,	/* what was compared was rounded to bf16 */
	ROUTING_BIAS_IN_WEIGHT, /* weights are scores with their bias */
	ROUTING_N_CAUSES
};

struct routing_causes {
	uint64_t n_seen;
	uint64_t n_bad;
	uint64_t n_explained[ROUTING_N_CAUSES];
};

struct routing_epoch {
	int64_t epoch;
	uint64_t n_assignments;
	uint64_t *load; /* [n_ids] */
};

/* What the scan counts of a layer in a recording. */
struct routing_count {
	struct routing_layer *layer;
	struct routing_recording *recording;
	struct routing_fault faults[ROUTING_N_LOOKS];
	uint64_t n_passes[4]; /* with rows, by enum mt_layer_state */
	struct routing_sums sums;
	uint64_t n_equal_seen, n_equal;
	uint64_t n_weightless; /* rows without weights that no router can have made */
	double min_shared, max_shared;
	uint64_t n_shared_seen;
	struct routing_causes groups, bias, scores;
	uint64_t n_scores, n_not_scores, n_bias_scores; /* rows of weights held against scores */
	struct routing_sums ratios; /* the same rows: what scores were multiplied by */
	uint64_t n_sum_scores,
		n_sum_one; /* rows with the scores of all experts, and those of sum 1 */
	struct routing_tie ties[ROUTING_N_TIES];
	size_t n_ties;
	struct routing_epoch epochs[ROUTING_N_EPOCHS];
	size_t n_epochs;
	uint64_t n_told, n_multiple; /* passes of which counts were told, and those of a multiple */
	uint64_t multiple;
	/* Dispatches: those that were compared, those that ids do not give, and of them slots do.
	 */
	uint64_t n_dispatches, n_other_dispatches, n_dispatched_slots;
};

struct routing_finding {
	enum routing_look look;
	bool is_proved;
	const char *rule;     /* a constant: equal rules of a model's layers are one finding */
	int64_t recording_id; /* 0: of the definitions */
	int64_t model_id;
	int64_t *layers;
	size_t n_layers;
	uint64_t n_bad;
	uint64_t n_seen;
	char *evidence; /* of its first layer */
	struct routing_example examples[ROUTING_N_EXAMPLES];
	int64_t example_layers[ROUTING_N_EXAMPLES];
};

struct routing {
	struct mt_trace *trace;
	const struct mtk_preset *preset; /* NULL: none */
	int64_t model_id;		 /* 0: all */
	struct routing_layer *layers;	 /* by ascending layer_id */
	size_t n_layers, max_layers;
	struct routing_recording *recordings;
	size_t n_recordings, max_recordings;
	struct routing_finding *findings;
	size_t n_findings, max_findings;
	uint64_t n_seen[ROUTING_N_LOOKS];
	struct mt_reader reader;
	bool is_reader_open;
	float *widen[2];     /* [65536] of fp16 and of bf16 */
	uint32_t *row_of_id; /* [65536] serial number of the last row with it */
	uint32_t serial;
	sqlite3_stmt *map_stmt;
	sqlite3_stmt *counts_stmt;
	sqlite3_stmt *dispatch_stmt; /* goes along with the scan */
	bool has_dispatch;	     /* it stands on a row */
	bool is_at_dispatch;	     /* of the current layer */
	double *scores; /* [n_columns] of the row whose candidates are looked at, and its errors */
	double *errors;
	size_t max_columns;
};

/* A stored row that is looked at. */
struct routing_row {
	const struct mt_run *run;
	struct routing_layer *layer;
	struct routing_count *count;
	const uint8_t *ids;	/* its first entry */
	const uint8_t *weights; /* its first entry; NULL: none */
	size_t stored;		/* its number in the run */
	size_t i;		/* its number in the layer */
	size_t n;		/* entries in use */
	bool is_bf16;
	double sum;	 /* of its routed weights, where is_weighed */
	bool is_weighed; /* all entries are in use, the weights are finite and not all 0 */
	bool is_own;	 /* the router's own choice */
	bool is_ordered; /* and in the order of the choice */
};

static inline uint32_t routing_id(const struct routing_row *row, size_t j)
{
	return row->run->id_bytes == 1
		       ? row->ids[j]
		       : (uint32_t)row->ids[2 * j] | (uint32_t)row->ids[2 * j + 1] << 8;
}

static inline uint32_t routing_bits(const struct routing_row *row, size_t j)
{
	return (uint32_t)row->weights[2 * j] | (uint32_t)row->weights[2 * j + 1] << 8;
}

static inline double routing_weight(const struct routing *routing, const struct routing_row *row,
				    size_t j)
{
	return (double)routing->widen[row->is_bf16][routing_bits(row, j)];
}

/* The logical expert that lies in a slot; -1: none does. Where there is no map, the id itself. */
static inline int64_t routing_through_map(const struct routing_layer *layer, uint32_t id)
{
	if (!layer->slot_experts)
		return id;
	return id < layer->n_slots ? layer->slot_experts[id] : -1;
}

/*
 * The steps, in this order. Each returns MT_EXIT_OK, or MT_EXIT_FAILED after an error line: the
 * file could not be read or memory ran out. Findings are no failure.
 */
int routing_definitions_load(struct routing *routing);
int routing_scan_run(struct routing *routing);
int routing_judge(struct routing *routing);
int routing_tables_run(struct routing *routing);
int routing_preset_compare(struct routing *routing);
int routing_print(const struct routing *routing, enum mt_format format);

/* What the layer does not say, as the preset has it; the factor still is 0 where it has none. */
void routing_preset_fill(const struct mtk_preset *preset, struct routing_layer *layer);

void routing_free(struct routing *routing);

/* The map of @layer at @epoch into the layer's own place. */
int routing_map_load(struct routing *routing, struct routing_layer *layer, int64_t epoch);

/* A new serial number for row_of_id. */
void routing_serial_next(struct routing *routing);

/* Count a row against @look, and keep the first ones in words. */
void routing_row_bad(struct routing *routing, const struct routing_row *row,
		     enum routing_look look);

/* Look at one stored row. False: it has an id that the layer does not have; nothing was counted. */
bool routing_row_take(struct routing *routing, struct routing_row *row);
/* Of a row with weights: the order of the choice under the layer's bias. */
void routing_bias_take(struct routing *routing, const struct routing_row *row);
/* Of a row with candidates: the choice and the weights against their scores. */
void routing_scores_take(struct routing *routing, const struct routing_row *row);
/* The dispatch of the current layer, if there is one: routing->is_at_dispatch. */
int routing_dispatch_seek(struct routing *routing, int64_t layer_id);
/* Hold it against the layer's rows. */
void routing_dispatch_take(struct routing *routing, struct routing_count *count);
/* Two neighbours of equal score in the order of the choice. */
void routing_tie_take(struct routing_count *count, uint32_t before, uint32_t after);

/**
 * Add a finding, or a layer to one of the same rule.
 *
 * @fault     n_bad, n_seen and the rows to point at.
 * @evidence  Numbers of this layer; kept of the first one.
 *
 * Returns MT_EXIT_OK, or MT_EXIT_FAILED after an error line.
 */
int routing_find(struct routing *routing, enum routing_look look, bool is_proved, const char *rule,
		 int64_t recording_id, const struct routing_layer *layer,
		 const struct routing_fault *fault, const char *evidence, ...)
	__attribute__((format(printf, 8, 9)));

/* Grow @array for one more element. Returns the array, or NULL after an error line. */
void *routing_grow(const struct routing *routing, void *array, size_t n, size_t *max,
		   size_t element_bytes);

const char *routing_look_name(enum routing_look look);
const char *routing_look_says(enum routing_look look);

#endif
