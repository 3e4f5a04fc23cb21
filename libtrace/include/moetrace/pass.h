/* SPDX-License-Identifier: MIT */
/*
 * Passes: the hot path. A forward pass is begun with the list of its rows' owners, each
 * layer with experts hands over the router's choice, and the pass is ended:
 *
 *   struct moetrace_pass *pass = moetrace_pass_begin(session, &info);
 *   for each layer with experts:
 *           ... route ...
 *           moetrace_select_experts(pass, &selection);
 *   moetrace_pass_end(pass);
 *
 * None of these calls allocates, locks, logs, makes a system call or waits. They cannot fail
 * in a way that the caller would handle: what cannot be stored is counted, the pass's verdict
 * and its requests' verdicts say so, and a pass that is not recorded is NULL, which the other
 * calls accept. Inconsistent arguments are counted as misuse (table diagnostic) and ignored.
 *
 * A pass belongs wholly to the recording that was active when it began.
 * Threads: passes may run at the same time, as many as the session has rings. The layers of
 * one pass may be handed over from several threads at once; moetrace_pass_end() is called
 * once, after all of them have returned.
 */
#ifndef MOETRACE_PASS_H
#define MOETRACE_PASS_H
#ifndef MOETRACE_IN_UMBRELLA
#error "include <moetrace/moetrace.h>"
#endif

MOETRACE_BEGIN_DECLS

#define MOETRACE_MAX_ROWS 16777216 /* rows a pass, padding included */

struct moetrace_pass; /* opaque; memory of the session */

enum moetrace_phase {
	MOETRACE_PHASE_PREFILL = 1, /* tokens that were given: the prompt, or a chunk of it */
	MOETRACE_PHASE_DECODE = 2,  /* the token sampled last, one a request */
	MOETRACE_PHASE_MIXED = 3,   /* of a pass whose slices differ, never of a slice */
	MOETRACE_PHASE_VERIFY = 4,  /* tokens that a draft proposes: 'unresolved' until
	                               moetrace_pass_accept() says which were accepted; those are
	                               computed, the others rejected. The sampled token in front of
	                               them may be a DECODE slice, or an accepted row of this one. */
	MOETRACE_PHASE_DRAFT = 5,   /* every slice of a draft or MTP model, its prompt too */
	MOETRACE_PHASE_IDLE = 6,    /* no rows but padding: keeps ranks in step */
	MOETRACE_PHASE_DUMMY = 7,   /* warm-up, profiling run: rows of no request */
};

/*
 * Consecutive rows of a pass that belong to one request. A request may have several slices in
 * a pass; n_rows may be 0; positions may repeat in verify and draft slices only. A slice that
 * names a request which is not open keeps its rows as rows of no request (counted misuse).
 */
struct moetrace_slice {
	uint64_t request;          /* from moetrace_request_begin(), or MOETRACE_NO_REQUEST */
	const uint32_t *positions; /* [n_rows]; NULL: first_position, first_position + 1, ... */
	uint32_t first_position;   /* position of the first row; ignored where positions is set */
	uint32_t n_rows;
	uint32_t phase;            /* enum moetrace_phase; 0: the pass's (then not MIXED). With a request
	                              it is the pass's, unless that is MIXED; or DECODE of a VERIFY
	                              pass. Any other is refused with its pass (counted misuse). */
	uint32_t reserved;         /* 0 */
};

struct moetrace_pass_info {
	size_t size;                  /* set by MOETRACE_INIT() */
	uint32_t model;               /* from moetrace_model_add(), never 0 */
	uint32_t phase;               /* enum moetrace_phase, required */
	uint32_t n_rows;              /* rows (tokens) without padding */
	uint32_t padding_rows;        /* rows after them that only fill the batch up, e.g. to a captured size */
	const struct moetrace_slice *slices; /* in row order; their rows add up to n_rows.
	                                        NULL with n_slices 0: rows of no request */
	uint32_t n_slices;
	const uint64_t *runtime_pass; /* the runtime's own number of the pass; NULL: unknown */
	uint64_t parent;              /* moetrace_pass_number() of the pass that this one is a part of,
	                                 which has begun and not ended; 0: none. A parent has no rows,
	                                 slices or layers of its own, and no parent. */
	const uint32_t *microbatch;   /* number of this part among its parent's, from 0; NULL: none */
	const void *kv_slots;         /* [n_rows] the KV slot that each row's position is written to,
	                                 for moetrace_reuse.kv_slots; a negative one: none. Only of
	                                 target models. NULL: not told. */
	uint32_t kv_slot_type;        /* enum moetrace_type, an integer type of 4 or 8 bytes */
};

/**
 * Begin a pass. All of @info is copied.
 *
 * Returns the pass, or NULL when it is not recorded: session is NULL or idle, no ring is
 * free or has room (a counted drop), or the description is inconsistent (counted misuse).
 */
MOETRACE_API
struct moetrace_pass *moetrace_pass_begin(struct moetrace_session *session,
					  const struct moetrace_pass_info *info);

/**
 * The recorder's number of a running pass, for moetrace_pass_info.parent and
 * moetrace_pass_accept(): never 0, not reused within the session.
 *
 * @pass  NULL: the result is 0.
 */
MOETRACE_API
uint64_t moetrace_pass_number(const struct moetrace_pass *pass);

/* Element types, of integers (ids) or numbers (weights). */
enum moetrace_type {
	MOETRACE_TYPE_NONE = 0,
	MOETRACE_TYPE_I8 = 1,
	MOETRACE_TYPE_U8 = 2,
	MOETRACE_TYPE_I16 = 3,
	MOETRACE_TYPE_U16 = 4,
	MOETRACE_TYPE_I32 = 5,
	MOETRACE_TYPE_U32 = 6,
	MOETRACE_TYPE_I64 = 7,
	MOETRACE_TYPE_U64 = 8,
	MOETRACE_TYPE_F32 = 9,
	MOETRACE_TYPE_F16 = 10,
	MOETRACE_TYPE_BF16 = 11,
};

enum moetrace_selection_order {
	MOETRACE_ORDER_UNKNOWN = 0,   /* analyses that need the order refuse */
	MOETRACE_ORDER_SELECTION = 1, /* each row descends by the score that chose (with its bias),
	                                 equal ones by lower id; fused shared slots come last */
	MOETRACE_ORDER_UNORDERED = 2, /* entries are in no particular order: the recorder restores
	                                 that of the selection wherever it can, see below */
};

/* What the ids of a selection number. */
enum moetrace_id_space {
	MOETRACE_ID_LOGICAL = 0,  /* experts of the model; see model.h */
	MOETRACE_ID_PHYSICAL = 1, /* slots of moetrace_expert_map, then what follows the routed experts
	                             (zero experts, fused shared slots) behind the last slot. They
	                             are stored, and converted to logical ids by the map. */
};

/* What a router knows of a row. */
enum moetrace_row_flag {
	MOETRACE_ROW_NAN = 1, /* one of the row's scores was NaN */
	MOETRACE_ROW_TIE = 2, /* an expert, or a group of them, that was left out scored what the last
	                         one that was taken did */
};

/*
 * A router's choice in one layer: @k expert ids, and weights, for each row.
 *
 * With MOETRACE_ORDER_UNORDERED the order of the selection is restored (stored as 'restored',
 * with the number of rows in which equal scores were put in order by lower id)
 * - by candidate_scores, where the candidates contain all that was selected,
 * - else by the weights, where no bias acts on the choice (correction_bias NO),
 * - else by weight + bias, where the weights are raw scores (weight_kind RAW; or SCALED alone,
 *   by the layer's routed_scaling_factor) and the layer's bias is known (bias_values).
 * A bias that acts on the choice is added to candidate_scores, too, so these then need the
 * bias as well. Otherwise, and in hash layers and with sparsemixer, whose weights do not tell the
 * order, the rows are stored as they are passed, order 'unknown'.
 */
struct moetrace_selection {
	size_t size;        /* set by MOETRACE_INIT() */
	uint32_t layer_index; /* index into moetrace_model_info.layers; NOT the number of the layer
	                         in the model: dense layers are not counted here */
	uint32_t n_rows;    /* rows in the arrays: the pass's n_rows; or these plus its padding_rows,
	                       which then follow and are counted apart; or, with row_map, fewer */
	uint32_t k;         /* entries a row, at most the layer's top_k (with a rule: the layer's ids);
	                       0: the layer's top_k */
	uint32_t id_type;   /* enum moetrace_type, an integer type */
	const void *ids;    /* [n_rows][k] logical expert ids in host memory, aligned to their type. A
	                       negative id, or the type's largest value where it is unsigned, means
	                       no expert (unless the layer has that id): such entries are left out.
	                       Other ids that the layer does not have are left out, too, and
	                       counted as invalid; of padding rows, which may hold anything, they
	                       are not counted. */
	size_t ids_row_bytes;     /* from row to row; 0: rows follow each other */
	uint32_t weight_type;     /* enum moetrace_type: F32, F16, BF16, or NONE without weights */
	uint32_t order;           /* enum moetrace_selection_order */
	const void *weights;      /* [n_rows][k], in the order of ids; NULL with type NONE. Stored on
	                             the scale passed, rounded to the session's weight_format. What is
	                             negative or no finite number is stored as it is, too, for whoever
	                             looks for the fault, and is no misuse: 'moetrace check' names the
	                             rows, where the layer's weights are told to be renormalized. */
	size_t weights_row_bytes; /* from row to row; 0: rows follow each other */
	const uint32_t *row_map;  /* [n_rows] ascending rows of the pass that this layer sees; NULL:
	                             all of them. Padding is not shown with a map. */
	uint32_t rule;            /* from moetrace_rule_add(): the rule that chose ids; 0: none, they are
	                             the router's own */
	uint32_t base_k;          /* entries a row of base_ids, at most the layer's top_k; 0: top_k */
	const void *base_ids;     /* [n_rows][base_k], of id_type: what the router had chosen before the
	                             rule; every entry is an expert, except in padding rows. NULL:
	                             unknown. Needs a rule. */
	size_t base_ids_row_bytes; /* from row to row; 0: rows follow each other */
	uint32_t untimed;         /* 1: called after the fact (ids copied back from a device); the time
	                             of the call, else stored as the layer's, means nothing */
	uint32_t id_space;        /* enum moetrace_id_space of ids; base_ids and candidate_ids are
	                             logical always */
	const void *physical_ids; /* [n_rows][k], of id_type: the slots that serve the entries of
	                             ids; NULL: unknown, or ids are physical themselves. Without an
	                             expert map they are refused (counted misuse). */
	size_t physical_ids_row_bytes; /* from row to row; 0: rows follow each other */
	uint32_t map_epoch;       /* of the map that explains physical ids; 0: the one that was in
	                             force when the pass began */
	uint32_t n_candidates;    /* entries a row of candidates; 0: none */
	const void *candidate_ids; /* [n_rows][n_candidates], of id_type: further experts that the
	                             router scored high (the selected ones may be among them); every
	                             entry is an expert, except in padding rows */
	size_t candidate_ids_row_bytes; /* from row to row; 0: rows follow each other */
	const void *candidate_scores; /* [n_rows][n_candidates]: the router's scores of these, raw: after
	                             the scoring function, without bias. Stored as weights are: in a
	                             session with weight_format NONE candidates only serve to restore
	                             the order, and neither they nor their ids are stored (counted
	                             misuse, where no order is restored by them). */
	size_t candidate_scores_row_bytes; /* from row to row; 0: rows follow each other */
	uint32_t candidate_score_type; /* enum moetrace_type: F32, F16 or BF16 */
	const float *margins;     /* [n_rows]: by how much the score that chose a row's last expert (with
	                             its bias) exceeds the best one that was left out though it could
	                             have been chosen; infinity: nothing was left out. NULL: unknown.
	                             Numbers that are negative or NaN take all from the layer (counted
	                             misuse). */
	const uint8_t *row_flags; /* [n_rows], enum moetrace_row_flag each; NULL: unknown. Other bits take
	                             all from the layer (counted misuse), as does a margin of 0 without
	                             MOETRACE_ROW_TIE. */
};

/**
 * Hand over the experts that one layer selected in this pass, all rows at once: a second call
 * for the same layer and pass is counted and ignored. Ids of a row are distinct. The arrays
 * are free for reuse when the call returns.
 *
 * @pass  NULL: nothing happens.
 */
MOETRACE_API
void moetrace_select_experts(struct moetrace_pass *pass, const struct moetrace_selection *selection);

/**
 * End a pass. The pass is not valid afterwards. Layers that nobody handed over are stored
 * as unwritten and make the pass partial, unless the pass has no rows.
 *
 * @pass  NULL: nothing happens.
 */
MOETRACE_API
void moetrace_pass_end(struct moetrace_pass *pass);

/**
 * Say which rows of a verify slice were accepted. Not part of the hot path; may be called from
 * any thread, once a slice, after moetrace_pass_begin() and before or after
 * moetrace_pass_end(), as long as the slice's request is open and has not begun 256 verify
 * slices since. Rows of a slice that was never reported stay 'unresolved'; where the request
 * relies on them it is partial. So do those of a pass whose recording has ended, by stop or
 * rotate, before this call: nothing is changed in a recording that has ended, and the call is
 * in order. Nor does it do anything in mode stat, which keeps no rows.
 *
 * @pass_number  moetrace_pass_number(); 0: nothing happens.
 * @slice        Number of the slice in the pass, from 0.
 * @accepted     [n_rows] not 0: accepted. Copied.
 * @n_rows       Rows of the slice.
 *
 * Returns  MOETRACE_OK
 *          MOETRACE_E_INVALID  session is NULL, accepted is NULL, n_rows is 0 or too large
 *          MOETRACE_E_NOMEM
 *          MOETRACE_E_STATE    this is a forked child
 *          A slice that is not waiting for this is found out later and counted as misuse.
 */
MOETRACE_API
int moetrace_pass_accept(struct moetrace_session *session, uint64_t pass_number, uint32_t slice,
			 const uint8_t *accepted, uint32_t n_rows);

/**
 * Name a rule that changes routers' choices, for moetrace_selection.rule. Not part of the hot
 * path.
 *
 * @name      NAME[:key=value,...], e.g. "oea:k0=3". Copied.
 * @ret_rule  Its handle, never 0 and valid as long as the session; set to 0 on failure. The
 *            same name again gives a handle of its own.
 *
 * Returns  MOETRACE_OK
 *          MOETRACE_E_INVALID  session, ret_rule or name is NULL, or name is empty
 *          MOETRACE_E_NOMEM
 *          MOETRACE_E_STATE    this is a forked child
 */
MOETRACE_API MOETRACE_MUST_USE
int moetrace_rule_add(struct moetrace_session *session, const char *name, uint32_t *ret_rule);

MOETRACE_END_DECLS

#endif
