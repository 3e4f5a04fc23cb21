/* SPDX-License-Identifier: MIT */
/*
 * Models: what the recorder must know about a model's layers with experts before passes of
 * that model are recorded. Pass the numbers that the running code uses, not what a
 * configuration file says, so that what is stored is what ran.
 *
 * Expert ids are logical. A layer emits ids in [0, n_experts + n_zero_experts +
 * n_shared_slots): routed experts first, then zero experts, then fused shared slots.
 */
#ifndef MOETRACE_MODEL_H
#define MOETRACE_MODEL_H
#ifndef MOETRACE_IN_UMBRELLA
#error "include <moetrace/moetrace.h>"
#endif

MOETRACE_BEGIN_DECLS

#define MOETRACE_MAX_MODELS 16        /* models a session */
#define MOETRACE_MAX_MOE_LAYERS 1024  /* layers with experts a model */
#define MOETRACE_MAX_EXPERTS 65536    /* ids that a layer can emit */
#define MOETRACE_MAX_TOP_K 127        /* experts a row */
#define MOETRACE_MAX_SLOTS 65536      /* physical slots a layer */

enum moetrace_model_kind {
	MOETRACE_MODEL_TARGET = 0, /* the one that answers */
	MOETRACE_MODEL_DRAFT = 1,  /* a smaller one that proposes tokens for it */
	MOETRACE_MODEL_MTP = 2,    /* layers of the target that predict further tokens */
};

enum moetrace_layer_kind {
	MOETRACE_LAYER_ROUTED = 0, /* a router scores the experts for each row */
	MOETRACE_LAYER_HASH = 1, /* experts follow from the token id */
};

enum moetrace_scoring {
	MOETRACE_SCORING_UNKNOWN = 0,
	MOETRACE_SCORING_SOFTMAX = 1,          /* softmax over all experts, then top-k */
	MOETRACE_SCORING_SIGMOID = 2,          /* 1 / (1 + exp(-x)) of each logit */
	MOETRACE_SCORING_SQRTSOFTPLUS = 3,     /* sqrt(log(1 + exp(x))) */
	MOETRACE_SCORING_SOFTMAX_SELECTED = 4, /* top-k of the logits, then softmax over these */
	MOETRACE_SCORING_SPARSEMIXER = 5,      /* top-2 by logits, each weight a softmax over those
	                                          near its maximum alone (arXiv:2409.12136) */
};

enum moetrace_tristate {
	MOETRACE_UNKNOWN = 0,
	MOETRACE_NO = 1,
	MOETRACE_YES = 2,
};

enum moetrace_scaling_owner {
	MOETRACE_SCALING_UNKNOWN = 0,
	MOETRACE_SCALING_ROUTER = 1, /* the stored weights include routed_scaling_factor */
	MOETRACE_SCALING_OUTPUT = 2, /* it is applied to the experts' output */
};

/*
 * What the weights that the runtime passes include: flags. This says what was stored;
 * renormalize and routed_scaling_factor say what the model does, at whatever place.
 */
enum moetrace_weight_kind {
	MOETRACE_WEIGHT_UNKNOWN = 0,
	MOETRACE_WEIGHT_RAW = 1,          /* the scores of the selected experts, nothing else */
	MOETRACE_WEIGHT_RENORMALIZED = 2, /* divided by their sum */
	MOETRACE_WEIGHT_SCALED = 4,       /* multiplied by routed_scaling_factor */
};

/* In what form the router hands over its choice. */
enum moetrace_router_output {
	MOETRACE_ROUTER_OUTPUT_UNKNOWN = 0,
	MOETRACE_ROUTER_OUTPUT_STANDARD = 1, /* ids and weights */
	MOETRACE_ROUTER_OUTPUT_PACKED = 2,   /* both in one word */
	MOETRACE_ROUTER_OUTPUT_RAGGED = 3,   /* sorted by expert */
	MOETRACE_ROUTER_OUTPUT_NONE = 4,     /* not at all: the code of the experts routes by itself, so
	                                        that no hook and no expert map comes in between */
};

struct moetrace_layer_info {
	size_t size;                    /* set by MOETRACE_INIT() */
	uint32_t layer;                 /* number in the model, dense layers counted, from 0 */
	uint32_t kind;                  /* enum moetrace_layer_kind */
	uint32_t n_experts;             /* routed experts, at least 1 */
	uint32_t n_zero_experts;        /* experts that compute nothing */
	uint32_t n_shared_slots;        /* shared experts fused into the top-k */
	uint32_t top_k;                 /* entries a row, fused shared slots included (top-8 with one
	                                   fused shared slot: 9), at least 1 */
	uint32_t scoring;               /* enum moetrace_scoring */
	uint32_t n_groups;              /* 0: not grouped */
	uint32_t topk_groups;           /* groups kept; 0: not grouped */
	uint32_t renormalize;           /* enum moetrace_tristate */
	double routed_scaling_factor;   /* 0: none or unknown */
	uint32_t scaling_owner;         /* enum moetrace_scaling_owner */
	double soft_cap;                /* logits become soft_cap * tanh(logit / soft_cap) before
	                                   anything else; 0: none or unknown */
	uint32_t correction_bias;       /* enum moetrace_tristate: a bias acts on the choice */
	uint32_t weight_kind;           /* enum moetrace_weight_kind: RAW, or the others or-ed */
	uint32_t gemm_block_rows;       /* 0: unknown */
	uint64_t expert_weight_bytes;   /* of one expert, as far as this process holds it; 0: unknown */
	const char *router_impl;        /* code that selects; NULL: unknown */
	const char *runner_backend;     /* code that runs the experts; NULL: unknown */
	const char *impl_reason;        /* why these; NULL: unknown */
	const float *bias_values;       /* [n_experts + n_zero_experts] the correction bias that is
	                                   added to the scores for the choice alone (not one that is
	                                   added to the logits), none of them NaN; copied. NULL: unknown.
	                                   It lets the recorder restore the order of unordered
	                                   selections; goes with correction_bias YES. Stored, so that
	                                   'moetrace check' can prove the order. */
	uint32_t router_output;         /* enum moetrace_router_output */
	uint32_t group_top_n;           /* a group's score is the sum of so many of its largest values
	                                   (bias included): 1: its largest, 2: as in DeepSeek-V3; 0: not
	                                   grouped or unknown */
};

struct moetrace_model_info {
	size_t size;              /* set by MOETRACE_INIT() */
	const char *name;         /* required */
	uint32_t kind;            /* enum moetrace_model_kind */
	const char *architecture; /* e.g. "Qwen3MoeForCausalLM"; NULL: unknown */
	const char *quantization; /* e.g. "fp8"; NULL: unknown */
	uint32_t n_layers;        /* all layers, dense ones counted; 0: unknown */
	const struct moetrace_layer_info *layers; /* the layers with experts that this process runs,
	                                             by ascending number, all of the same size */
	uint32_t n_moe_layers;    /* length of layers; 0 is allowed: nothing to record */
	uint32_t first_moe_ordinal; /* MoE ordinal of layers[0] in the whole model: 0, unless an
	                             earlier pipeline stage has layers with experts */
};

/**
 * Add a model. Allowed at any time, also while recording; not part of the hot path.
 *
 * @info       Copied.
 * @ret_model  The handle for moetrace_pass_info.model, never 0 and valid as long as the
 *             session; set to 0 on failure.
 *
 * Returns  MOETRACE_OK
 *          MOETRACE_E_INVALID  NULL, no name, a layer without experts or top_k, top_k above
 *                              the number of ids, layer numbers that do not ascend or, where
 *                              n_layers is known, are not below it; a factor or cap that is
 *                              negative or not finite; more groups than experts, or more kept
 *                              than there are, or a group_top_n without groups or above a
 *                              group's experts; expert_weight_bytes past 2^63; a bias that is NaN
 *          MOETRACE_E_LIMIT    above one of the limits at the top of this file
 *          MOETRACE_E_NOMEM
 *          MOETRACE_E_STATE    this is a forked child
 * Threads  any.
 */
MOETRACE_API MOETRACE_MUST_USE
int moetrace_model_add(struct moetrace_session *session, const struct moetrace_model_info *info,
		       uint32_t *ret_model);

/*
 * Where a model's experts lie: a slot holds one routed expert's weights; an expert may lie in
 * several slots (replicas) and a slot may be empty. Slots are numbered over all ranks,
 * n_slots / n_ranks on each, rank 0 first.
 */
struct moetrace_expert_map {
	size_t size;              /* set by MOETRACE_INIT() */
	uint32_t n_slots;         /* of each layer, at least 1 */
	uint32_t n_ranks;         /* ranks that the slots are spread over evenly; 0: unknown */
	const int32_t *slot_experts; /* [n_moe_layers][n_slots] the logical expert in each slot; a
	                             negative number: the slot is empty */
};

/**
 * Say where experts lie from now on. Passes that have begun keep the map that was in force
 * then. Allowed at any time, also while recording; not part of the hot path.
 *
 * @map        Copied.
 * @ret_epoch  The number of the map: 1, 2, ... of this model; set to 0 on failure. May be NULL.
 *
 * Returns  MOETRACE_OK
 *          MOETRACE_E_INVALID  NULL, a model that was not added, no slots, slots that do not
 *                              spread evenly, or an expert that the layer does not have
 *          MOETRACE_E_LIMIT    n_slots above MOETRACE_MAX_SLOTS
 *          MOETRACE_E_NOMEM
 *          MOETRACE_E_STATE    this is a forked child
 * Threads  any.
 */
MOETRACE_API MOETRACE_MUST_USE
int moetrace_expert_map_set(struct moetrace_session *session, uint32_t model,
			    const struct moetrace_expert_map *map, uint32_t *ret_epoch);

MOETRACE_END_DECLS

#endif
