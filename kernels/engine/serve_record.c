/* SPDX-License-Identifier: MIT */
/*
 * The engine's use of the recorder's public interface: everything that a runtime has to do to be
 * recorded is in this file, and in serve_record_model.c.
 */
#include "kernels/engine/serve_record.h"

#include <stdlib.h>
#include <string.h>

/* Longest run of tokens handed over at once; the recorder takes them as 32-bit integers. */
#define TOKENS_AT_ONCE 256

int mtk_serve_recorder_init(struct mtk_serve_recorder *recorder, struct moetrace_session *session,
			    bool records_tokens, const struct mtk_backend *backend,
			    const struct mtk_choice *choice, const char *model_name,
			    uint32_t model, uint32_t n_sequences, uint32_t n_batch,
			    struct mtk_error *error)
{
	int status = MOETRACE_OK;

	memset(recorder, 0, sizeof(*recorder));
	if (!session)
		return MOETRACE_OK;
	recorder->session = session;
	recorder->records_tokens = records_tokens;
	recorder->requests = calloc(n_sequences, sizeof(*recorder->requests));
	recorder->slices = calloc(n_batch, sizeof(*recorder->slices));
	if (!recorder->requests || !recorder->slices) {
		status = mtk_error_set(error, MOETRACE_E_NOMEM, "out of memory");
		goto err_recorder;
	}
	MOETRACE_INIT(&recorder->selection);
	recorder->selection.id_type = MOETRACE_TYPE_I32;
	recorder->selection.weight_type = MOETRACE_TYPE_F32;
	recorder->selection.order = MOETRACE_ORDER_SELECTION;
	recorder->model = model;
	if (model == 0)
		status = mtk_serve_record_model(session, backend, choice, model_name,
						&recorder->model, error);
	if (status < 0)
		goto err_recorder;
	return MOETRACE_OK;

err_recorder:
	mtk_serve_recorder_release(recorder);
	return status;
}

void mtk_serve_recorder_release(struct mtk_serve_recorder *recorder)
{
	free(recorder->requests);
	free(recorder->slices);
	free(recorder->kv_slots);
	free(recorder->reused_slots);
	free(recorder->times);
	memset(recorder, 0, sizeof(*recorder));
}

int mtk_serve_record_rule(struct mtk_serve_recorder *recorder, const struct mtk_oea *oea,
			  struct mtk_error *error)
{
	char name[MTK_OEA_NAME_BYTES];
	int status;

	if (!recorder->session || !oea)
		return MOETRACE_OK;
	mtk_oea_name(oea, name);
	status = moetrace_rule_add(recorder->session, name, &recorder->rule);
	if (status < 0)
		return mtk_error_set(error, status, "rule %s cannot be recorded: %s", name,
				     moetrace_status_string(status));
	return MOETRACE_OK;
}

int mtk_serve_record_slots(struct mtk_serve_recorder *recorder, uint32_t n_rows, uint32_t n_context,
			   struct mtk_error *error)
{
	if (!recorder->session)
		return MOETRACE_OK;
	recorder->kv_slots = calloc(n_rows, sizeof(*recorder->kv_slots));
	recorder->reused_slots = calloc(n_context, sizeof(*recorder->reused_slots));
	recorder->n_context = n_context;
	if (!recorder->kv_slots || !recorder->reused_slots)
		return mtk_error_set(error, MOETRACE_E_NOMEM, "out of memory");
	return MOETRACE_OK;
}

int mtk_serve_record_operations(struct mtk_serve_recorder *recorder, uint32_t n_layers,
				struct mtk_error *error)
{
	static const struct {
		const char *name;
		uint32_t role;
	} ops[MTK_N_OPS] = {
		[MTK_OP_EMBED] = {"embed", MOETRACE_ROLE_EMBED},
		[MTK_OP_INPUT_NORM] = {"input_norm", MOETRACE_ROLE_NORM},
		[MTK_OP_QKV] = {"qkv", MOETRACE_ROLE_ATTENTION},
		[MTK_OP_ATTENTION] = {"attention", MOETRACE_ROLE_ATTENTION},
		[MTK_OP_OUTPUT] = {"output", MOETRACE_ROLE_ATTENTION},
		[MTK_OP_EXPERT_NORM] = {"expert_norm", MOETRACE_ROLE_NORM},
		[MTK_OP_ROUTER] = {"router", MOETRACE_ROLE_GATE},
		[MTK_OP_ROUTE] = {"route", MOETRACE_ROLE_TOPK},
		[MTK_OP_LATENT] = {"latent", MOETRACE_ROLE_EXPERTS},
		[MTK_OP_GROUP] = {"group", MOETRACE_ROLE_ALIGN},
		[MTK_OP_EXPERTS] = {"experts", MOETRACE_ROLE_EXPERTS},
		[MTK_OP_COMBINE] = {"combine", MOETRACE_ROLE_COMBINE},
		[MTK_OP_SHARED] = {"shared", MOETRACE_ROLE_SHARED},
		[MTK_OP_HEAD] = {"head", MOETRACE_ROLE_HEAD},
	};
	int status = MOETRACE_OK;

	if (!recorder->session)
		return MOETRACE_OK;
	recorder->n_times_max = (n_layers + 1) * MTK_N_OPS;
	recorder->times = calloc(recorder->n_times_max, sizeof(*recorder->times));
	if (!recorder->times)
		return mtk_error_set(error, MOETRACE_E_NOMEM, "out of memory");
	for (uint32_t i = 0; i < MTK_N_OPS && status == MOETRACE_OK; i++)
		status = moetrace_kernel_name_add(recorder->session, ops[i].name, ops[i].role, 0,
						  &recorder->names[i]);
	if (status < 0)
		return mtk_error_set(error, status, "operations cannot be timed: %s",
				     moetrace_status_string(status));
	return MOETRACE_OK;
}

void mtk_serve_record_operation(void *ctx, enum mtk_op op, uint32_t layer)
{
	struct mtk_serve_recorder *recorder = ctx;
	struct moetrace_kernel_time *time = &recorder->times[recorder->n_times];
	uint64_t now_ns = moetrace_clock_ns();

	if (op != MTK_OP_NONE && recorder->n_times < recorder->n_times_max) {
		recorder->n_times++;
		time->start_ns = recorder->lap_ns;
		time->end_ns = now_ns;
		time->name = recorder->names[op];
		time->layer_index = layer == MTK_NO_LAYER ? MOETRACE_NO_LAYER : layer;
	}
	recorder->lap_ns = now_ns;
}

static int tokens_record(struct mtk_serve_recorder *recorder, uint32_t index,
			 uint32_t first_position, const unsigned char *tokens, uint32_t n_tokens)
{
	uint32_t wide[TOKENS_AT_ONCE];
	uint32_t done = 0, n, i;
	int status = MOETRACE_OK;

	if (!recorder->records_tokens)
		return MOETRACE_OK;
	for (; done < n_tokens && status == MOETRACE_OK; done += n) {
		n = n_tokens - done < TOKENS_AT_ONCE ? n_tokens - done : TOKENS_AT_ONCE;
		for (i = 0; i < n; i++)
			wide[i] = tokens[done + i];
		status = moetrace_request_tokens(recorder->session, recorder->requests[index],
						 first_position + done, wide, n);
	}
	return status;
}

static int failed(const struct mtk_sequence *sequence, int status, struct mtk_error *error)
{
	return mtk_error_set(error, status, "request %.100s cannot be recorded: %s",
			     sequence->request->id, moetrace_status_string(status));
}

int mtk_serve_record_begin(struct mtk_serve_recorder *recorder, uint32_t index,
			   const struct mtk_sequence *sequence, struct mtk_error *error)
{
	const struct mtk_workload_request *request = sequence->request;
	struct moetrace_request_info info;
	size_t i;
	int status;

	if (!recorder->session)
		return MOETRACE_OK;
	MOETRACE_INIT(&info);
	info.external_id = request->id;
	info.prompt_positions = sequence->n_prompt;
	status = moetrace_request_begin(recorder->session, &info, &recorder->requests[index]);
	for (i = 0; i < request->n_attributes && status == MOETRACE_OK; i++)
		status = moetrace_request_attribute_set(
			recorder->session, recorder->requests[index], request->attributes[i].key,
			request->attributes[i].value);
	if (status == MOETRACE_OK)
		status = tokens_record(recorder, index, 0, request->prompt, sequence->n_prompt);
	return status < 0 ? failed(sequence, status, error) : MOETRACE_OK;
}

int mtk_serve_record_reuse(struct mtk_serve_recorder *recorder, uint32_t index,
			   const struct mtk_sequence *sequence, const struct mtk_prefix_hit *hit,
			   struct mtk_error *error)
{
	struct moetrace_reuse reuse;
	uint32_t i;
	int status;

	if (!recorder->session)
		return MOETRACE_OK;
	MOETRACE_INIT(&reuse);
	reuse.n_positions = hit->n_positions;
	if (hit->is_where_computed) {
		for (i = 0; i < hit->n_positions; i++)
			recorder->reused_slots[i] =
				(uint64_t)sequence->slot * recorder->n_context + i;
		reuse.kv_slots = recorder->reused_slots;
	} else {
		reuse.source_request = recorder->requests[hit->source];
		reuse.source_attempt = hit->source_attempt;
	}
	status = moetrace_request_reuse(recorder->session, recorder->requests[index], &reuse);
	return status < 0 ? failed(sequence, status, error) : MOETRACE_OK;
}

int mtk_serve_record_retract(struct mtk_serve_recorder *recorder, uint32_t index,
			     const struct mtk_sequence *sequence, struct mtk_error *error)
{
	int status;

	if (!recorder->session)
		return MOETRACE_OK;
	status = moetrace_request_retract(recorder->session, recorder->requests[index]);
	return status < 0 ? failed(sequence, status, error) : MOETRACE_OK;
}

int mtk_serve_record_end(struct mtk_serve_recorder *recorder, uint32_t index,
			 const struct mtk_sequence *sequence,
			 enum moetrace_request_end_state end_state, struct mtk_error *error)
{
	int status;

	if (!recorder->session)
		return MOETRACE_OK;
	status = tokens_record(recorder, index, sequence->n_prompt, sequence->text,
			       sequence->n_generated);
	if (status == MOETRACE_OK)
		status = moetrace_request_end(recorder->session, recorder->requests[index],
					      end_state, sequence->n_computed);
	return status < 0 ? failed(sequence, status, error) : MOETRACE_OK;
}

static uint32_t pass_phase(const struct mtk_schedule_pass *pass)
{
	if (pass->n_decode_rows == pass->n_rows)
		return MOETRACE_PHASE_DECODE;
	return pass->n_decode_rows == 0 ? MOETRACE_PHASE_PREFILL : MOETRACE_PHASE_MIXED;
}

void mtk_serve_record_pass_begin(struct mtk_serve_recorder *recorder,
				 const struct mtk_schedule_pass *pass, uint32_t n_padding_rows)
{
	struct moetrace_pass_info info;
	uint32_t i;

	if (!recorder->session)
		return;
	for (i = 0; i < pass->n_slices; i++) {
		const struct mtk_slice *from = &pass->slices[i];
		struct moetrace_slice *to = &recorder->slices[i];

		to->request = recorder->requests[from->sequence];
		to->first_position = from->first_position;
		to->n_rows = from->n_rows;
		to->phase = from->is_decode ? MOETRACE_PHASE_DECODE : MOETRACE_PHASE_PREFILL;
	}
	MOETRACE_INIT(&info);
	info.model = recorder->model;
	info.phase = pass_phase(pass);
	info.n_rows = pass->n_rows;
	info.slices = recorder->slices;
	info.n_slices = pass->n_slices;
	info.runtime_pass = &recorder->n_passes;
	info.padding_rows = n_padding_rows;
	if (recorder->kv_slots) {
		for (i = 0; i < pass->n_rows; i++)
			recorder->kv_slots[i] =
				(int64_t)pass->slots[i] * recorder->n_context + pass->positions[i];
		info.kv_slots = recorder->kv_slots;
		info.kv_slot_type = MOETRACE_TYPE_I64;
	}
	if (recorder->lane)
		(void)moetrace_cuda_pass_begin(recorder->lane, &info);
	else
		recorder->pass = moetrace_pass_begin(recorder->session, &info);
	recorder->n_passes++;
}

void mtk_serve_record_launched(void *ctx)
{
	struct mtk_serve_recorder *recorder = ctx;

	(void)moetrace_cuda_pass_end(recorder->lane);
	recorder->has_ended = true;
}

void mtk_serve_record_base(void *ctx, uint32_t layer, uint32_t n_rows, uint32_t width,
			   const int32_t *ids)
{
	struct mtk_serve_recorder *recorder = ctx;

	(void)layer;
	(void)n_rows;
	recorder->selection.rule = recorder->rule;
	recorder->selection.base_k = width;
	recorder->selection.base_ids = ids;
}

_Static_assert((int)MTK_ROUTE_FLAG_NAN == (int)MOETRACE_ROW_NAN &&
		       (int)MTK_ROUTE_FLAG_TIE == (int)MOETRACE_ROW_TIE,
	       "the router's flags are recorded as they are");

void mtk_serve_record_facts(void *ctx, uint32_t layer, uint32_t n_rows, const float *margins,
			    const uint8_t *flags)
{
	struct mtk_serve_recorder *recorder = ctx;

	(void)layer;
	(void)n_rows;
	recorder->selection.margins = margins;
	recorder->selection.row_flags = flags;
}

void mtk_serve_record_layer(void *ctx, uint32_t layer, uint32_t n_rows, uint32_t width,
			    const int32_t *ids, const float *weights)
{
	struct mtk_serve_recorder *recorder = ctx;
	struct moetrace_selection *selection = &recorder->selection;

	selection->layer_index = layer;
	selection->n_rows = n_rows;
	selection->k = width;
	selection->ids = ids;
	selection->weights = weights;
	moetrace_select_experts(recorder->pass, selection);
	selection->rule = 0;
	selection->base_k = 0;
	selection->base_ids = NULL;
	selection->margins = NULL;
	selection->row_flags = NULL;
}

void mtk_serve_record_pass_end(struct mtk_serve_recorder *recorder)
{
	moetrace_pass_kernels(recorder->pass, recorder->times, recorder->n_times);
	recorder->n_times = 0;
	if (recorder->lane && !recorder->has_ended)
		(void)moetrace_cuda_pass_end(recorder->lane);
	recorder->has_ended = false;
	moetrace_pass_end(recorder->pass);
	recorder->pass = NULL;
}
