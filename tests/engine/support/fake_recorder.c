/* SPDX-License-Identifier: MIT */
/*
 * The stand-in recorder. Every violation of the interface's order fails the test at the call.
 */
#include "tests/engine/support/fake_recorder.h"

#include <stdio.h>
#include <string.h>

#include <check.h>

#include <moetrace/cuda.h>

#define MAX_ROWS  4096
#define MAX_SLOTS 65536

struct moetrace_session {
	struct fake_recorder kept;
	uint64_t slot_requests[MAX_SLOTS]; /* who computed what a KV slot holds */
	uint32_t slot_positions[MAX_SLOTS];
};

struct moetrace_pass {
	uint64_t requests[MAX_ROWS]; /* of each row */
	uint32_t positions[MAX_ROWS];
	uint32_t n_rows;
	uint32_t n_layers;
	bool is_open;
};

static struct moetrace_session session;
static struct moetrace_pass pass;

struct moetrace_session *fake_recorder_reset(void)
{
	memset(&session, 0, sizeof(session));
	memset(&pass, 0, sizeof(pass));
	return &session;
}

struct fake_recorder *fake_recorder(void)
{
	return &session.kept;
}

static struct fake_request *open_request(uint64_t handle)
{
	ck_assert_uint_ge(handle, 1);
	ck_assert_uint_le(handle, session.kept.n_requests);
	ck_assert_int_eq(session.kept.requests[handle - 1].end_state, 0);
	return &session.kept.requests[handle - 1];
}

int moetrace_model_add(struct moetrace_session *to, const struct moetrace_model_info *info,
		       uint32_t *ret_model)
{
	uint32_t i;

	ck_assert_ptr_eq(to, &session);
	ck_assert_uint_eq(info->size, sizeof(*info));
	ck_assert_ptr_nonnull(info->name);
	ck_assert_uint_eq(info->n_moe_layers, info->n_layers);
	for (i = 0; i < info->n_moe_layers; i++) {
		ck_assert_uint_eq(info->layers[i].size, sizeof(info->layers[i]));
		ck_assert_uint_eq(info->layers[i].layer, i);
		ck_assert_uint_gt(info->layers[i].expert_weight_bytes, 0);
	}
	session.kept.n_layers = info->n_moe_layers;
	session.kept.top_k = info->layers[0].top_k;
	*ret_model = session.kept.model_status ? 0 : 3;
	return session.kept.model_status;
}

int moetrace_rule_add(struct moetrace_session *to, const char *name, uint32_t *ret_rule)
{
	ck_assert_ptr_eq(to, &session);
	ck_assert(!pass.is_open);
	snprintf(session.kept.rule, sizeof(session.kept.rule), "%s", name);
	*ret_rule = session.kept.rule_status ? 0 : 5 + session.kept.n_rules++;
	return session.kept.rule_status;
}

/* What a rule changed has the router's own choice beside it, and nothing else has. */
static void rule_take(const struct moetrace_selection *selection)
{
	const int32_t *base_ids = selection->base_ids;
	uint32_t i;

	if (selection->rule == 0) {
		ck_assert_ptr_null(base_ids);
		return;
	}
	ck_assert_uint_eq(selection->rule, 4 + session.kept.n_rules);
	ck_assert_uint_eq(selection->base_k, session.kept.top_k);
	for (i = 0; i < selection->n_rows * selection->base_k; i++)
		ck_assert_int_ge(base_ids[i], 0);
	session.kept.n_ruled_layers++;
}

int moetrace_request_begin(struct moetrace_session *to, const struct moetrace_request_info *info,
			   uint64_t *ret_request)
{
	struct fake_recorder *kept = &session.kept;
	struct fake_request *request = &kept->requests[kept->n_requests];

	ck_assert_ptr_eq(to, &session);
	ck_assert(!pass.is_open);
	if (kept->request_status && kept->n_requests == kept->request_status_at) {
		*ret_request = MOETRACE_NO_REQUEST;
		return kept->request_status;
	}
	ck_assert_uint_lt(kept->n_requests, FAKE_MAX_REQUESTS);
	snprintf(request->external_id, sizeof(request->external_id), "%s", info->external_id);
	request->n_prompt = info->prompt_positions;
	*ret_request = ++kept->n_requests;
	return MOETRACE_OK;
}

int moetrace_request_attribute_set(struct moetrace_session *to, uint64_t handle, const char *key,
				   const char *value)
{
	struct fake_request *request;

	ck_assert_ptr_eq(to, &session);
	request = open_request(handle);
	request->n_attributes++;
	snprintf(request->attribute, sizeof(request->attribute), "%s=%s", key, value);
	return MOETRACE_OK;
}

int moetrace_request_tokens(struct moetrace_session *to, uint64_t handle, uint32_t first_position,
			    const uint32_t *token_ids, uint32_t n_tokens)
{
	struct fake_request *request;

	ck_assert_ptr_eq(to, &session);
	request = open_request(handle);
	ck_assert_uint_eq(first_position, request->n_tokens);
	ck_assert_uint_le(first_position + n_tokens, FAKE_MAX_POSITIONS);
	memcpy(request->tokens + first_position, token_ids, n_tokens * sizeof(*token_ids));
	request->n_tokens += n_tokens;
	return MOETRACE_OK;
}

int moetrace_request_retract(struct moetrace_session *to, uint64_t handle)
{
	struct fake_request *request;

	ck_assert_ptr_eq(to, &session);
	ck_assert(!pass.is_open);
	request = open_request(handle);
	request->n_before = request->n_computed;
	request->n_computed = request->n_reused = 0;
	request->n_retracts++;
	return MOETRACE_OK;
}

/* Whose position @i of the reused ones is, by KV slot or link. */
static struct fake_request *source_of(const struct moetrace_reuse *reuse, uint32_t i)
{
	if (!reuse->kv_slots) {
		ck_assert_uint_ge(reuse->source_request, 1);
		ck_assert_uint_le(reuse->source_request, session.kept.n_requests);
		session.kept.n_reused_by_link++;
		return &session.kept.requests[reuse->source_request - 1];
	}
	ck_assert_uint_eq(reuse->source_request, MOETRACE_NO_REQUEST);
	ck_assert_uint_lt(reuse->kv_slots[i], MAX_SLOTS);
	ck_assert_uint_eq(session.slot_positions[reuse->kv_slots[i]], reuse->first_position + i);
	session.kept.n_reused_by_slot++;
	return &session.kept.requests[session.slot_requests[reuse->kv_slots[i]] - 1];
}

int moetrace_request_reuse(struct moetrace_session *to, uint64_t handle,
			   const struct moetrace_reuse *reuse)
{
	struct fake_request *request;
	uint32_t i;

	ck_assert_ptr_eq(to, &session);
	ck_assert(!pass.is_open);
	request = open_request(handle);
	ck_assert_uint_eq(request->n_computed, 0);
	ck_assert_uint_eq(reuse->first_position, 0);
	ck_assert_uint_gt(reuse->n_positions, 0);
	for (i = 0; i < reuse->n_positions; i++) {
		const struct fake_request *source = source_of(reuse, i);

		memmove(request->ids[i], source->ids[i], sizeof(source->ids[i]));
		memmove(request->weights[i], source->weights[i], sizeof(source->weights[i]));
	}
	request->n_computed = request->n_reused = reuse->n_positions;
	return MOETRACE_OK;
}

int moetrace_request_end(struct moetrace_session *to, uint64_t handle,
			 enum moetrace_request_end_state end_state, uint64_t n_positions)
{
	struct fake_request *request;

	ck_assert_ptr_eq(to, &session);
	/* A request that could not be begun has no handle; ending it is refused. */
	if (handle == MOETRACE_NO_REQUEST)
		return MOETRACE_E_INVALID;
	ck_assert(!pass.is_open);
	request = open_request(handle);
	ck_assert_uint_eq(n_positions, request->n_computed);
	request->end_state = end_state;
	request->n_positions = n_positions;
	return MOETRACE_OK;
}

static uint32_t phase_of_slices(const struct moetrace_pass_info *info)
{
	bool has_prefill = false, has_decode = false;
	uint32_t i;

	for (i = 0; i < info->n_slices; i++) {
		if (info->slices[i].phase == MOETRACE_PHASE_PREFILL)
			has_prefill = true;
		else
			has_decode = true;
	}
	if (has_prefill && has_decode)
		return MOETRACE_PHASE_MIXED;
	return has_prefill ? MOETRACE_PHASE_PREFILL : MOETRACE_PHASE_DECODE;
}

static void slice_take(const struct moetrace_slice *slice)
{
	struct fake_request *request = open_request(slice->request);
	uint32_t i;

	ck_assert_ptr_null(slice->positions);
	ck_assert_uint_eq(slice->first_position, request->n_computed);
	ck_assert_uint_le(pass.n_rows + slice->n_rows, MAX_ROWS);
	ck_assert_uint_le(slice->first_position + slice->n_rows, FAKE_MAX_POSITIONS);
	if (slice->phase == MOETRACE_PHASE_DECODE)
		ck_assert_uint_ge(slice->first_position, request->n_prompt);
	else if (request->n_retracts == 0)
		ck_assert_uint_le(slice->first_position + slice->n_rows, request->n_prompt);
	for (i = 0; i < slice->n_rows; i++) {
		pass.requests[pass.n_rows] = slice->request;
		pass.positions[pass.n_rows++] = slice->first_position + i;
	}
	request->n_computed += slice->n_rows;
}

struct moetrace_pass *moetrace_pass_begin(struct moetrace_session *to,
					  const struct moetrace_pass_info *info)
{
	uint32_t i;

	ck_assert_ptr_eq(to, &session);
	ck_assert(!pass.is_open);
	ck_assert_uint_eq(info->model, 3);
	ck_assert_uint_eq(*info->runtime_pass, session.kept.n_passes);
	ck_assert_uint_eq(info->phase, phase_of_slices(info));
	pass.n_rows = pass.n_layers = 0;
	for (i = 0; i < info->n_slices; i++)
		slice_take(&info->slices[i]);
	ck_assert_uint_eq(pass.n_rows, info->n_rows);
	for (i = 0; info->kv_slots && i < info->n_rows; i++) {
		int64_t slot = ((const int64_t *)info->kv_slots)[i];

		ck_assert_uint_eq(info->kv_slot_type, MOETRACE_TYPE_I64);
		ck_assert_int_ge(slot, 0);
		ck_assert_int_lt(slot, MAX_SLOTS);
		session.slot_requests[slot] = pass.requests[i];
		session.slot_positions[slot] = pass.positions[i];
	}
	pass.is_open = true;
	session.kept.n_passes++;
	session.kept.n_rows += info->n_rows;
	session.kept.n_passes_of_phase[info->phase]++;
	return &pass;
}

void moetrace_select_experts(struct moetrace_pass *of, const struct moetrace_selection *selection)
{
	const int32_t *ids = selection->ids;
	const float *weights = selection->weights;
	uint32_t k = selection->k, row;

	ck_assert_ptr_eq(of, &pass);
	ck_assert(pass.is_open);
	ck_assert_uint_eq(selection->layer_index, pass.n_layers++);
	ck_assert_uint_eq(selection->n_rows, pass.n_rows);
	ck_assert_uint_eq(k, session.kept.top_k);
	ck_assert_uint_eq(selection->id_type, MOETRACE_TYPE_I32);
	ck_assert_uint_eq(selection->weight_type, MOETRACE_TYPE_F32);
	ck_assert_uint_eq(selection->order, MOETRACE_ORDER_SELECTION);
	rule_take(selection);
	for (row = 0; row < pass.n_rows; row++) {
		struct fake_request *request = open_request(pass.requests[row]);
		uint32_t position = pass.positions[row], layer = selection->layer_index;

		memcpy(request->ids[position][layer], ids + (size_t)row * k, k * sizeof(*ids));
		memcpy(request->weights[position][layer], weights + (size_t)row * k,
		       k * sizeof(*weights));
	}
}

int moetrace_kernel_name_add(struct moetrace_session *to, const char *name, uint32_t role,
			     uint32_t flags, uint32_t *ret_name)
{
	ck_assert_ptr_eq(to, &session);
	ck_assert_str_ne(name, "");
	ck_assert_uint_le(role, MOETRACE_ROLE_COPY);
	ck_assert_uint_eq(flags, 0);
	*ret_name = 1;
	return MOETRACE_OK;
}

uint64_t moetrace_clock_ns(void)
{
	return 1;
}

/* No test here asks for times: run-kernels.sh does. */
void moetrace_pass_kernels(struct moetrace_pass *of, const struct moetrace_kernel_time *times,
			   uint32_t n_times)
{
	ck_assert(!of || pass.is_open);
	ck_assert_ptr_null(times);
	ck_assert_uint_eq(n_times, 0);
}

void moetrace_pass_end(struct moetrace_pass *of)
{
	if (!of)
		return;
	ck_assert(pass.is_open);
	ck_assert_uint_eq(pass.n_layers, session.kept.n_layers);
	pass.is_open = false;
}

/* The CPU's back end has no lanes: of one that pretends to, the pass alone is the session's. */
struct moetrace_cuda_lane *fake_recorder_lane(void)
{
	return (struct moetrace_cuda_lane *)(void *)&pass;
}

bool fake_recorder_lane_is_open(void)
{
	return pass.is_open;
}

int moetrace_cuda_pass_begin(struct moetrace_cuda_lane *lane, const struct moetrace_pass_info *info)
{
	ck_assert_ptr_eq(lane, fake_recorder_lane());
	(void)moetrace_pass_begin(&session, info);
	return MOETRACE_OK;
}

int moetrace_cuda_pass_end(struct moetrace_cuda_lane *lane)
{
	ck_assert_ptr_eq(lane, fake_recorder_lane());
	ck_assert(pass.is_open);
	ck_assert_uint_eq(pass.n_layers, 0);
	pass.is_open = false;
	return MOETRACE_OK;
}

const char *moetrace_status_string(int status)
{
	return status == MOETRACE_OK ? "success" : "a status";
}
