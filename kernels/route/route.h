/* SPDX-License-Identifier: MIT */
/*
 * Routing: which experts a row of router logits selects, and with what weights. The semantics are
 * data, struct mtk_route_config; every model's router is one setting of it. The definition is
 * mtk_route_plain(), in double precision; the vector paths give the same ids and flags, and
 * weights within 1e-6 of it, on every row.
 *
 * Columns and ids. A row has a logit for each column: the routed experts, then the zero experts.
 * Ids are columns; shared slots follow them (see enum mtk_route_shared).
 *
 * Order. Experts are chosen by their choosing value descending, equal values by lower id; groups
 * likewise, equal scores by lower group. The choosing value is the score, or the logit where the
 * setting says so, plus the bias where one acts on the choice. Entries of a row are in that order.
 * An expert of a group that was not kept is never chosen, whatever the values are.
 *
 * NaN and infinities. An expert whose logit or bias is NaN has the lowest choosing value of all
 * and weight 0; a choosing value of minus infinity counts as the lowest, too. A logit of minus
 * infinity has score 0; one of plus infinity shares the softmax with its like, has sigmoid 1, and
 * counts as the largest float in sqrtsoftplus. The ids of a row are always distinct and in range,
 * and no finite setting makes a weight NaN. What was met is told in the row's flags.
 *
 * Margin. By how much the choosing value of a row's last entry exceeds the largest of those that
 * were left out though they could have been chosen: experts of groups that were not kept could
 * not. It is 0 where these two are equal and nowhere else, so that every row with a margin of 0 has
 * the flag of a tie. Infinity: nothing could be chosen beside (top_k takes all that there is), or
 * only what counts as minus infinity; padding and rows whose ids follow from the token id have it,
 * too. It is found in double precision and rounded once, by whatever path the row goes.
 *
 * Every row is computed by itself: results do not depend on other rows, their order, or threads.
 */
#ifndef MTK_ROUTE_ROUTE_H
#define MTK_ROUTE_ROUTE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MTK_ROUTE_MAX_TOP_K   32
#define MTK_ROUTE_MAX_COLUMNS 8192
#define MTK_ROUTE_MAX_GROUPS  256
#define MTK_ROUTE_MAX_SHARED  8
/* A score is at most 2.7e19 (sqrtsoftplus): scaled by this, it is still a finite fp32 weight. */
#define MTK_ROUTE_MIN_SCALE 1e-12
#define MTK_ROUTE_MAX_SCALE 1e12
/* Entries a row: those chosen and the shared slots. */
#define MTK_ROUTE_MAX_WIDTH	(MTK_ROUTE_MAX_TOP_K + MTK_ROUTE_MAX_SHARED)
#define MTK_ROUTE_MESSAGE_BYTES 256

enum mtk_route_scoring {
	MTK_ROUTE_SOFTMAX, /* over all columns, before the choice */
	MTK_ROUTE_SIGMOID,
	MTK_ROUTE_SQRTSOFTPLUS,	    /* sqrt(log(1 + e^x)) */
	MTK_ROUTE_SOFTMAX_SELECTED, /* the choice by logits, then softmax over the chosen */
	MTK_ROUTE_SPARSEMIXER, /* the choice by logits; each weight a softmax over what is near */
	MTK_ROUTE_N_SCORINGS,
};

/* How sqrtsoftplus takes log(1 + e^x). */
enum mtk_route_softplus {
	MTK_ROUTE_SOFTPLUS_LOG1P, /* exact for every x: very negative logits keep their order */
	/* As kernels in fp32 do: x above 20, else the logarithm of 1 + e^x rounded to fp32, so that
	   logits below about -17 score 0. */
	MTK_ROUTE_SOFTPLUS_LOG,
	MTK_ROUTE_N_SOFTPLUS,
};

enum mtk_route_choose_by {
	MTK_ROUTE_BY_SCORE,
	MTK_ROUTE_BY_LOGIT, /* scores that saturate do not tie then */
	MTK_ROUTE_N_CHOOSE_BY,
};

/*
 * Where a correction bias acts. "Softmax with a bias" is any of the last three, which differ:
 * the weight is a softmax of biased logits, or of the logits, and the choice is made by a logit
 * or by a probability. No weight is ever found by subtracting a bias.
 */
enum mtk_route_bias {
	MTK_ROUTE_BIAS_NONE,
	MTK_ROUTE_BIAS_LOGIT,	     /* in the logit: for the choice and the weight */
	MTK_ROUTE_BIAS_LOGIT_CHOICE, /* the choice by logit + bias, the weight without it */
	MTK_ROUTE_BIAS_SCORE,	     /* the choice by score + bias, the weight without it */
	MTK_ROUTE_N_BIASES,
};

/* The score of a group: the sum of the largest choosing values in it. */
enum mtk_route_groups {
	MTK_ROUTE_GROUPS_NONE,
	MTK_ROUTE_GROUPS_MAX,
	MTK_ROUTE_GROUPS_TOP2, /* a value that occurs twice counts twice */
	MTK_ROUTE_GROUPS_TOPN, /* of group_top_n */
	MTK_ROUTE_N_GROUPINGS,
};

/* The division of the chosen weights by their sum. */
enum mtk_route_renormalise {
	MTK_ROUTE_RENORMALISE_NONE,
	MTK_ROUTE_RENORMALISE_EPSILON,	   /* by sum + 1e-20 */
	MTK_ROUTE_RENORMALISE_IF_POSITIVE, /* by the sum, if it is above 0 */
	MTK_ROUTE_RENORMALISE_CLAMP,	   /* by the sum, at least renormalise_min */
	MTK_ROUTE_N_RENORMALISE,
};

/* Who multiplies by scale. */
enum mtk_route_scale_owner {
	MTK_ROUTE_SCALE_IN_ROUTER, /* the weights include it */
	MTK_ROUTE_SCALE_ON_OUTPUT, /* whoever adds up the experts' outputs */
	MTK_ROUTE_N_SCALE_OWNERS,
};

/* Ids of the shared slots, which follow the chosen entries of every row. */
enum mtk_route_shared {
	MTK_ROUTE_SHARED_GLOBAL, /* n_columns + slot */
	/*
	 * Each rank's block of n_local_experts is followed by its shared slots: a chosen id becomes
	 * id + id / n_local_experts * n_shared_slots, and slots are those of rank's block.
	 */
	MTK_ROUTE_SHARED_BLOCK,
	MTK_ROUTE_N_SHARED,
};

enum mtk_route_output {
	MTK_ROUTE_OUTPUT_STANDARD, /* ids and weights */
	MTK_ROUTE_OUTPUT_PACKED,   /* id << 16 | bits of the weight as bf16 */
	MTK_ROUTE_OUTPUT_RAGGED,   /* standard, then mtk_route_ragged() over the batch */
	MTK_ROUTE_OUTPUT_NONE,	   /* the code that runs the experts routes by itself */
	MTK_ROUTE_N_OUTPUTS,
};

struct mtk_route_config {
	uint32_t n_experts;
	uint32_t n_zero_experts;
	uint32_t top_k; /* chosen entries of a row; shared slots are in addition */
	enum mtk_route_scoring scoring;
	enum mtk_route_softplus softplus;
	enum mtk_route_choose_by choose_by;
	double soft_cap; /* logits become cap * tanh(logit / cap), before any bias; 0: none */
	double jitter;	 /* of sparsemixer */
	enum mtk_route_bias bias;
	bool bias_per_token; /* a bias for each row and column */
	enum mtk_route_groups groups;
	uint32_t n_groups; /* of equal size; 0 without groups */
	uint32_t n_keep_groups;
	uint32_t group_top_n;
	enum mtk_route_renormalise renormalise;
	double renormalise_min;
	double scale;
	enum mtk_route_scale_owner scale_owner;
	uint32_t n_shared_slots;
	double shared_weight; /* of each shared slot, as it is written */
	enum mtk_route_shared shared;
	uint32_t n_local_experts;
	uint32_t rank;
	const int32_t
		*hash_table; /* [n_hash_tokens][top_k]: the ids of each token id; NULL: none */
	uint32_t n_hash_tokens;
	enum mtk_route_output output;
	bool has_expert_map; /* logical ids are mapped to physical ones after routing */
};

/* Softmax over all experts, nothing else. */
static inline struct mtk_route_config mtk_route_config_make(uint32_t n_experts, uint32_t top_k)
{
	return (struct mtk_route_config){
		.n_experts = n_experts,
		.top_k = top_k,
		.jitter = 0.01,
		.scale = 1.0,
		.shared_weight = 1.0,
	};
}

static inline uint32_t mtk_route_columns(const struct mtk_route_config *config)
{
	return config->n_experts + config->n_zero_experts;
}

static inline uint32_t mtk_route_width(const struct mtk_route_config *config)
{
	return config->top_k + config->n_shared_slots;
}

/**
 * Check every field of a setting, once, before it is used: routing itself cannot fail.
 *
 * @message  [MTK_ROUTE_MESSAGE_BYTES]: on failure the field, its value and what is expected, in
 *           one line.
 *
 * Returns MOETRACE_OK or MOETRACE_E_INVALID.
 */
int mtk_route_config_check(const struct mtk_route_config *config, char *message);

/* The names of enum values, as the command spells them; NULL: there is no such value. */
const char *mtk_route_scoring_name(enum mtk_route_scoring scoring);
const char *mtk_route_bias_name(enum mtk_route_bias bias);
const char *mtk_route_groups_name(enum mtk_route_groups groups);
const char *mtk_route_renormalise_name(enum mtk_route_renormalise renormalise);

/* ---- routing ---- */

enum mtk_route_flag {
	MTK_ROUTE_FLAG_NAN = 1, /* a logit or bias was NaN */
	MTK_ROUTE_FLAG_TIE = 2, /* what was left out, an expert or a group, had the value of the
				   last that was taken */
	MTK_ROUTE_FLAG_FEW = 4, /* fewer than top_k experts could be chosen: some entries are NaN
				   or minus infinity, with weight 0 */
	MTK_ROUTE_FLAG_TOKEN =
		8, /* hash: the token id is not in the table; ids are -1, weights 0 */
};

struct mtk_route_batch {
	uint32_t n_rows;
	uint32_t n_valid_rows;	  /* rows from here on are padding: ids -1, weights 0, no flags */
	const float *logits;	  /* [n_rows][columns] */
	const float *bias;	  /* [columns], or with bias_per_token [n_rows][columns] */
	const int32_t *token_ids; /* [n_rows], for a hash table */
};

/* Each may be NULL: then it is not written. Rows are mtk_route_width() wide. */
struct mtk_route_result {
	int32_t *ids;
	float *weights;
	uint32_t *packed;
	uint8_t *flags;	 /* [n_rows] */
	float *margins;	 /* [n_rows]; they take the definition's steps for each row */
};

/* Scratch of one caller: this many floats for that many columns, aligned like a double. */
static inline uint32_t mtk_route_scratch_floats(uint32_t n_columns)
{
	uint32_t n_padded = (n_columns + 15) / 16 * 16;

	/* Two doubles a column for the definition; three floats and two of each 16 beside. */
	return 4 * n_padded + 3 * (n_padded + 32) + 2 * ((n_padded / 16 + 15) / 16 * 16 + 16);
}

/*
 * Route rows [begin, end) of a batch by a setting that was checked. Callers that share a batch
 * need a scratch each.
 */
typedef void (*mtk_route_fn)(const struct mtk_route_config *config,
			     const struct mtk_route_batch *batch, uint32_t begin, uint32_t end,
			     void *scratch, const struct mtk_route_result *result);

/* The definition. */
void mtk_route_plain(const struct mtk_route_config *config, const struct mtk_route_batch *batch,
		     uint32_t begin, uint32_t end, void *scratch,
		     const struct mtk_route_result *result);

/* Entry (row, slot) as packed output. The id is below 2^15, or -1. */
uint32_t mtk_route_pack(int32_t id, float weight);

/**
 * Sort the entries of routed rows by expert, in a stable order.
 *
 * @n_ids        Ids are below it; others, such as the -1 of padding, are in no list.
 * @ret_first    [n_ids + 1]: where each expert's entries begin in ret_gather.
 * @ret_gather   [n_rows * width]: the row of each sorted entry; what is left over is -1.
 * @ret_scatter  [n_rows * width]: the place of entry (row, slot) in ret_gather, or -1.
 */
void mtk_route_ragged(const int32_t *ids, uint32_t n_rows, uint32_t width, uint32_t n_ids,
		      int64_t *ret_first, int32_t *ret_gather, int64_t *ret_scatter);

/* ---- which code serves a setting ---- */

enum mtk_route_variant {
	MTK_ROUTE_VARIANT_GROUPED, /* vectors; a group fits two of them */
	MTK_ROUTE_VARIANT_GENERAL, /* vectors; any groups or none */
	MTK_ROUTE_VARIANT_PLAIN,   /* the definition */
	MTK_ROUTE_N_VARIANTS,
};

struct mtk_route_variant_info {
	const char *name;
	bool serves; /* exactly one of the variants does */
	char reason[128];
};

/* The variant that serves a checked setting where vectors are available. */
enum mtk_route_variant mtk_route_variant_choose(const struct mtk_route_config *config);

/* For each variant, whether it serves on this level of instructions, and why or why not. */
void mtk_route_variant_explain(const struct mtk_route_config *config, bool has_vectors,
			       struct mtk_route_variant_info ret_info[MTK_ROUTE_N_VARIANTS]);

/* The same in one line: "general serves: ...; grouped: ..."; at most n_bytes. */
#define MTK_ROUTE_REASON_BYTES 512
void mtk_route_variant_reason(const struct mtk_route_config *config, bool has_vectors,
			      char *ret_text, size_t n_bytes);

#endif
