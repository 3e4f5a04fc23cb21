/* SPDX-License-Identifier: MIT */
/*
 * The public headers as they were in the first version, without their comments, for programs
 * that were built then. Never edited: what is declared here keeps working.
 */
#ifndef MOETRACE_MOETRACE_H
#define MOETRACE_MOETRACE_H
#define MOETRACE_IN_UMBRELLA 1
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#ifdef __cplusplus
#define MOETRACE_BEGIN_DECLS extern "C" {
#define MOETRACE_END_DECLS }
#else
#define MOETRACE_BEGIN_DECLS
#define MOETRACE_END_DECLS
#endif
#if defined(__GNUC__)
#define MOETRACE_API __attribute__((visibility("default")))
#define MOETRACE_MUST_USE __attribute__((warn_unused_result))
#else
#define MOETRACE_API
#define MOETRACE_MUST_USE
#endif
#define MOETRACE_INIT(p) ((void)memset((p), 0, sizeof(*(p))), (void)((p)->size = sizeof(*(p))))
#ifndef MOETRACE_STATUS_H
#define MOETRACE_STATUS_H
#define MOETRACE_STATUS_MAP(X)                                                              \
	X(OK, 0, "success")                                                                 \
	X(E_INVALID, -1, "an argument is not allowed")                                      \
	X(E_NOMEM, -2, "out of memory")                                                     \
	X(E_IO, -3, "the operating system or SQLite refused to read or write")              \
	X(E_EXISTS, -4, "the path exists already")                                          \
	X(E_NOT_FOUND, -5, "no such file, handle or entry")                                 \
	X(E_STATE, -6, "not possible in this state: started twice, not started, or closed") \
	X(E_LIMIT, -7, "a documented limit would be exceeded")                              \
	X(E_FORMAT, -8, "the input is not in the expected format")                          \
	X(E_UNSUPPORTED, -9, "this build or machine cannot do it")                          \
	X(E_TIMEOUT, -10, "the time limit passed first")                                    \
	X(E_SCHEMA, -11, "the file has a newer schema than this program")

enum moetrace_status {
#define MOETRACE_STATUS_ENUM(name, value, sentence) MOETRACE_##name = value,
	MOETRACE_STATUS_MAP(MOETRACE_STATUS_ENUM)
#undef MOETRACE_STATUS_ENUM
};
#endif

#ifndef MOETRACE_SESSION_H
#define MOETRACE_SESSION_H
MOETRACE_BEGIN_DECLS

struct moetrace_session;

struct moetrace_rank {
	uint32_t rank;
	uint32_t n_ranks;
};

enum moetrace_weight_format {
	MOETRACE_WEIGHT_FORMAT_FP16 = 0,
	MOETRACE_WEIGHT_FORMAT_BF16 = 1,
	MOETRACE_WEIGHT_FORMAT_NONE = 2,
};

struct moetrace_session_opts {
	size_t size;
	const char *session_name;
	const char *engine_name;
	const char *engine_version;
	struct moetrace_rank tp;
	struct moetrace_rank pp;
	struct moetrace_rank ep;
	struct moetrace_rank dp;
	uint32_t weight_format;
	uint32_t n_rings;
	uint64_t ring_bytes;
	uint32_t commit_interval_ms;
	uint32_t stop_timeout_ms;
	uint64_t file_limit_bytes;
	uint64_t window_ns;
};

MOETRACE_API MOETRACE_MUST_USE
int moetrace_session_open(const char *path, const struct moetrace_session_opts *opts,
			  struct moetrace_session **ret_session);

MOETRACE_API
const char *moetrace_open_errmsg(void);

MOETRACE_API
int moetrace_session_close(struct moetrace_session *session);

struct moetrace_recording_opts {
	size_t size;
	const char *routing_source;
};

MOETRACE_API MOETRACE_MUST_USE
int moetrace_start(struct moetrace_session *session, const struct moetrace_recording_opts *opts);

MOETRACE_API
int moetrace_stop(struct moetrace_session *session, const char *reason);

MOETRACE_API
int moetrace_flush(struct moetrace_session *session);

struct moetrace_session_status {
	size_t size;
	uint32_t is_recording;
	uint32_t recording_id;
	uint64_t recorded_passes;
	uint64_t recorded_rows;
	uint64_t recorded_assignments;
	uint64_t dropped_passes;
	uint64_t dropped_layers;
	uint64_t dropped_bytes;
	uint64_t misuse;
	uint64_t file_bytes;
	uint64_t file_limit_bytes;
	uint64_t ring_bytes;
	uint64_t ring_peak_bytes;
	uint64_t writer_cpu_ns;
};

MOETRACE_API
int moetrace_status(struct moetrace_session *session, struct moetrace_session_status *ret_status);

MOETRACE_API
void moetrace_errmsg(struct moetrace_session *session, char *buffer, size_t buffer_bytes);

MOETRACE_API
const char *moetrace_status_string(int status);

MOETRACE_API
const char *moetrace_version(void);
MOETRACE_END_DECLS
#endif

#ifndef MOETRACE_MODEL_H
#define MOETRACE_MODEL_H
MOETRACE_BEGIN_DECLS
#define MOETRACE_MAX_MODELS 16
#define MOETRACE_MAX_MOE_LAYERS 1024
#define MOETRACE_MAX_EXPERTS 65536
#define MOETRACE_MAX_TOP_K 127

enum moetrace_model_kind {
	MOETRACE_MODEL_TARGET = 0,
	MOETRACE_MODEL_DRAFT = 1,
	MOETRACE_MODEL_MTP = 2,
};

enum moetrace_layer_kind {
	MOETRACE_LAYER_ROUTED = 0,
	MOETRACE_LAYER_HASH = 1,
};

enum moetrace_scoring {
	MOETRACE_SCORING_UNKNOWN = 0,
	MOETRACE_SCORING_SOFTMAX = 1,
	MOETRACE_SCORING_SIGMOID = 2,
	MOETRACE_SCORING_SQRTSOFTPLUS = 3,
	MOETRACE_SCORING_SOFTMAX_SELECTED = 4,
	MOETRACE_SCORING_SPARSEMIXER = 5,
};

enum moetrace_tristate {
	MOETRACE_UNKNOWN = 0,
	MOETRACE_NO = 1,
	MOETRACE_YES = 2,
};

enum moetrace_scaling_owner {
	MOETRACE_SCALING_UNKNOWN = 0,
	MOETRACE_SCALING_ROUTER = 1,
	MOETRACE_SCALING_OUTPUT = 2,
};

enum moetrace_weight_kind {
	MOETRACE_WEIGHT_UNKNOWN = 0,
	MOETRACE_WEIGHT_RAW = 1,
	MOETRACE_WEIGHT_RENORMALIZED = 2,
	MOETRACE_WEIGHT_SCALED = 4,
};

struct moetrace_layer_info {
	size_t size;
	uint32_t layer;
	uint32_t kind;
	uint32_t n_experts;
	uint32_t n_zero_experts;
	uint32_t n_shared_slots;
	uint32_t top_k;
	uint32_t scoring;
	uint32_t n_groups;
	uint32_t topk_groups;
	uint32_t renormalize;
	double routed_scaling_factor;
	uint32_t scaling_owner;
	double soft_cap;
	uint32_t correction_bias;
	uint32_t weight_kind;
	uint32_t gemm_block_rows;
	uint64_t expert_weight_bytes;
	const char *router_impl;
	const char *runner_backend;
	const char *impl_reason;
};

struct moetrace_model_info {
	size_t size;
	const char *name;
	uint32_t kind;
	const char *architecture;
	const char *quantization;
	uint32_t n_layers;
	const struct moetrace_layer_info *layers;
	uint32_t n_moe_layers;
	uint32_t first_moe_ordinal;
};

MOETRACE_API MOETRACE_MUST_USE
int moetrace_model_add(struct moetrace_session *session, const struct moetrace_model_info *info,
		       uint32_t *ret_model);
MOETRACE_END_DECLS
#endif

#ifndef MOETRACE_REQUEST_H
#define MOETRACE_REQUEST_H
MOETRACE_BEGIN_DECLS
#define MOETRACE_NO_REQUEST UINT64_C(0)
#define MOETRACE_POSITIONS_UNKNOWN UINT64_C(0xffffffffffffffff)

struct moetrace_request_info {
	size_t size;
	const char *external_id;
	uint32_t prompt_positions;
};

MOETRACE_API MOETRACE_MUST_USE
int moetrace_request_begin(struct moetrace_session *session,
			   const struct moetrace_request_info *info, uint64_t *ret_request);

MOETRACE_API
int moetrace_request_attribute_set(struct moetrace_session *session, uint64_t request,
				   const char *key, const char *value);

MOETRACE_API
int moetrace_request_tokens(struct moetrace_session *session, uint64_t request,
			    uint32_t first_position, const uint32_t *token_ids, uint32_t n_tokens);

enum moetrace_request_end_state {
	MOETRACE_REQUEST_FINISHED = 1,
	MOETRACE_REQUEST_ABORTED = 2,
	MOETRACE_REQUEST_FAILED = 3,
};

MOETRACE_API
int moetrace_request_end(struct moetrace_session *session, uint64_t request,
			 enum moetrace_request_end_state end_state, uint64_t n_positions);
MOETRACE_END_DECLS
#endif

#ifndef MOETRACE_PASS_H
#define MOETRACE_PASS_H
MOETRACE_BEGIN_DECLS
#define MOETRACE_MAX_ROWS 16777216

struct moetrace_pass;

enum moetrace_phase {
	MOETRACE_PHASE_PREFILL = 1,
	MOETRACE_PHASE_DECODE = 2,
	MOETRACE_PHASE_MIXED = 3,
	MOETRACE_PHASE_VERIFY = 4,
	MOETRACE_PHASE_DRAFT = 5,
	MOETRACE_PHASE_IDLE = 6,
	MOETRACE_PHASE_DUMMY = 7,
};

struct moetrace_slice {
	uint64_t request;
	const uint32_t *positions;
	uint32_t first_position;
	uint32_t n_rows;
	uint32_t phase;
	uint32_t reserved;
};

struct moetrace_pass_info {
	size_t size;
	uint32_t model;
	uint32_t phase;
	uint32_t n_rows;
	uint32_t padding_rows;
	const struct moetrace_slice *slices;
	uint32_t n_slices;
	const uint64_t *runtime_pass;
};

MOETRACE_API
struct moetrace_pass *moetrace_pass_begin(struct moetrace_session *session,
					  const struct moetrace_pass_info *info);

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
	MOETRACE_ORDER_UNKNOWN = 0,
	MOETRACE_ORDER_SELECTION = 1,
};

struct moetrace_selection {
	size_t size;
	uint32_t layer_index;
	uint32_t n_rows;
	uint32_t k;
	uint32_t id_type;
	const void *ids;
	size_t ids_row_bytes;
	uint32_t weight_type;
	uint32_t order;
	const void *weights;
	size_t weights_row_bytes;
	const uint32_t *row_map;
	uint32_t rule;
	uint32_t base_k;
	const void *base_ids;
	size_t base_ids_row_bytes;
	uint32_t untimed;
};

MOETRACE_API
void moetrace_select_experts(struct moetrace_pass *pass, const struct moetrace_selection *selection);

MOETRACE_API
void moetrace_pass_end(struct moetrace_pass *pass);

MOETRACE_API MOETRACE_MUST_USE
int moetrace_rule_add(struct moetrace_session *session, const char *name, uint32_t *ret_rule);
MOETRACE_END_DECLS
#endif

#undef MOETRACE_IN_UMBRELLA
#endif
