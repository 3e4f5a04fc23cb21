/* SPDX-License-Identifier: MIT */
/*
 * Putting a request's experts together. A position may have several rows (rejected, then
 * computed): the best one counts, of equals the last. Ids are gathered as 16 bits and become
 * what the caller asked for at the end.
 */
#include "libtrace/experts.h"

#include <stdlib.h>
#include <string.h>

#include "common/base64.h"
#include "libtrace/abi.h"
#include "libtrace/clock.h"
#include "libtrace/cuda/wait.h"
#include "libtrace/past.h"
#include "libtrace/session.h"
#include "libtrace/store/reader.h"
#include "libtrace/store/store.h"

uint32_t mt_model_top_k(const struct mt_model *model)
{
	uint32_t top_k = 1;

	for (uint32_t i = 0; i < model->n_layers; i++)
		top_k = model->layers[i].top_k > top_k ? model->layers[i].top_k : top_k;
	return top_k;
}

/* ---- gathering ---- */

static uint32_t u32_at(const void *numbers, uint32_t i)
{
	uint32_t number;

	memcpy(&number, (const uint8_t *)numbers + 4 * (size_t)i, sizeof(number));
	return number;
}

/* Room for @k entries; what is there stays. */
static int widen(struct mt_experts *experts, uint32_t k)
{
	size_t n = (size_t)experts->n_positions * experts->n_layers;
	uint16_t *ids = calloc(n * k + 1, sizeof(*ids));

	if (!ids)
		return MOETRACE_E_NOMEM;
	for (size_t i = 0; experts->ids && i < n; i++)
		memcpy(ids + i * k, experts->ids + i * experts->k, experts->k * sizeof(*ids));
	free(experts->ids);
	experts->ids = ids;
	experts->k = k;
	return MOETRACE_OK;
}

int mt_experts_open(struct mt_experts *experts, uint64_t first_position, uint64_t n_positions,
		    uint32_t n_layers, uint32_t k)
{
	size_t n = (size_t)n_positions * n_layers;

	memset(experts, 0, sizeof(*experts));
	if (n_positions > MT_EXPERTS_MAX_IDS / (n_layers + 1ul) / k)
		return MOETRACE_E_LIMIT;
	experts->first_position = first_position;
	experts->n_positions = n_positions;
	experts->n_layers = n_layers;
	experts->n_valid = calloc(n + 1, 1);
	experts->states = malloc(n + 1);
	experts->ranks = calloc(n_positions + 1, 1);
	experts->rows = calloc(n_positions + 1, sizeof(*experts->rows));
	experts->slices = calloc(n_positions + 1, sizeof(*experts->slices));
	if (!experts->n_valid || !experts->states || !experts->ranks || !experts->rows ||
	    !experts->slices || widen(experts, k)) {
		mt_experts_close(experts);
		return MOETRACE_E_NOMEM;
	}
	memset(experts->states, MOETRACE_ROW_UNRECORDED, n);
	return MOETRACE_OK;
}

void mt_experts_close(struct mt_experts *experts)
{
	free(experts->ids);
	free(experts->n_valid);
	free(experts->states);
	free(experts->ranks);
	free(experts->rows);
	free(experts->slices);
	memset(experts, 0, sizeof(*experts));
}

/* What a row of a slice is, were it stored in every layer. */
static uint32_t state_of(const struct mt_experts_slice *slice, uint32_t i)
{
	if (slice->phase == MOETRACE_PHASE_DRAFT)
		return MOETRACE_ROW_DRAFT;
	if (slice->phase != MOETRACE_PHASE_VERIFY)
		return MOETRACE_ROW_COMPUTED;
	if (!slice->accepted)
		return MOETRACE_ROW_UNRESOLVED;
	return slice->accepted[i] ? MOETRACE_ROW_COMPUTED : MOETRACE_ROW_REJECTED;
}

static uint8_t rank_of(uint32_t state)
{
	static const uint8_t ranks[] = {
		[MOETRACE_ROW_COMPUTED] = 4,   [MOETRACE_ROW_REUSED] = 4,
		[MOETRACE_ROW_UNRESOLVED] = 3, [MOETRACE_ROW_REJECTED] = 1,
		[MOETRACE_ROW_DRAFT] = 2,
	};

	return ranks[state];
}

/* Where row @i of the slice goes; -1: it is not asked for, or a better one is there. */
static int64_t place_of(const struct mt_experts *experts, const struct mt_experts_part *part,
			const struct mt_experts_slice *slice, uint32_t i)
{
	uint64_t position = slice->positions ? u32_at(slice->positions, i) : slice->first_position + i;
	uint64_t place = position - experts->first_position;
	uint32_t state = state_of(slice, i);

	if (position < part->first || position - part->first >= part->n ||
	    position < experts->first_position || place >= experts->n_positions ||
	    rank_of(state) < experts->ranks[place] ||
	    (part->is_reused && state != MOETRACE_ROW_COMPUTED))
		return -1;
	return (int64_t)place;
}

void mt_experts_slice_begin(struct mt_experts *experts, const struct mt_experts_part *part,
			    const struct mt_experts_slice *slice)
{
	experts->n_slices++;
	experts->n_taken = 0;
	for (uint32_t i = 0; i < slice->n_rows; i++) {
		int64_t place = place_of(experts, part, slice, i);

		if (place < 0)
			continue;
		experts->ranks[place] = rank_of(state_of(slice, i));
		experts->rows[place] = i;
		experts->slices[place] = experts->n_slices;
	}
}

/* The stored row of a row of the pass; n_rows: the layer does not see it. */
static uint32_t stored_row(const struct mt_experts_rows *rows, uint32_t row)
{
	uint32_t low = 0;
	uint32_t high = rows->n_rows;

	if (!rows->row_map)
		return row < rows->n_rows ? row : rows->n_rows;
	while (low < high) {
		uint32_t middle = low + (high - low) / 2;

		if (u32_at(rows->row_map, middle) < row)
			low = middle + 1;
		else
			high = middle;
	}
	return low < rows->n_rows && u32_at(rows->row_map, low) == row ? low : rows->n_rows;
}

static void take_row(struct mt_experts *experts, size_t at, const struct mt_experts_rows *rows,
		     uint32_t stored, uint32_t state)
{
	const uint8_t *from = rows->ids + (size_t)stored * rows->k * rows->id_bytes;
	uint32_t n_valid = rows->n_valid ? rows->n_valid[stored] : rows->k;

	experts->n_taken++;
	experts->states[at] = (uint8_t)state;
	experts->n_valid[at] = (uint8_t)n_valid;
	for (uint32_t e = 0; e < n_valid; e++)
		experts->ids[at * experts->k + e] =
			rows->id_bytes == 1 ? from[e] :
					      (uint16_t)(from[2 * e] | from[2 * e + 1] << 8);
}

/* Of a layer that has counts only, no row is known. */
static uint8_t state_without_rows(uint32_t layer_state)
{
	return layer_state == MT_LAYER_DROPPED   ? MOETRACE_ROW_DROPPED :
	       layer_state == MT_LAYER_UNWRITTEN ? MOETRACE_ROW_UNWRITTEN :
						   MOETRACE_ROW_UNRECORDED;
}

void mt_experts_slice_end(struct mt_experts *experts, int is_sampled)
{
	if (!is_sampled || experts->n_taken)
		return;
	for (uint64_t place = 0; place < experts->n_positions; place++) {
		if (experts->slices[place] != experts->n_slices)
			continue;
		experts->ranks[place] = 0;
		memset(experts->states + place * experts->n_layers, MOETRACE_ROW_UNRECORDED,
		       experts->n_layers);
	}
}

int mt_experts_rows_add(struct mt_experts *experts, const struct mt_experts_part *part,
			const struct mt_experts_slice *slice, const struct mt_experts_rows *rows)
{
	if (rows->state == MT_LAYER_STORED && rows->k > experts->k && widen(experts, rows->k))
		return MOETRACE_E_NOMEM;
	for (uint32_t i = 0; i < slice->n_rows; i++) {
		int64_t place = place_of(experts, part, slice, i);
		uint32_t state = part->is_reused ? MOETRACE_ROW_REUSED : state_of(slice, i);
		uint32_t stored;
		size_t at;

		if (place < 0 || experts->rows[place] != i ||
		    experts->slices[place] != experts->n_slices)
			continue;
		at = (size_t)place * experts->n_layers + rows->layer;
		stored = rows->state == MT_LAYER_STORED ? stored_row(rows, slice->row_offset + i) : 0;
		experts->n_valid[at] = 0;
		if (rows->state != MT_LAYER_STORED)
			experts->states[at] = state_without_rows(rows->state);
		else if (stored == rows->n_rows)
			experts->states[at] = MOETRACE_ROW_ABSENT;
		else
			take_row(experts, at, rows, stored, state);
	}
	return MOETRACE_OK;
}

/* ---- the answer ---- */

static char *base64_of(const uint8_t *bytes, size_t n_bytes)
{
	char *text = malloc((n_bytes + 2) / 3 * 4 + 1);
	char *to = text;

	for (size_t i = 0; text && i < n_bytes; i += 3, to += 4)
		mt_base64_group(bytes + i, n_bytes - i, to);
	if (text)
		*to = '\0';
	return text;
}

/* An answer whose arrays are its own. */
struct answer {
	struct moetrace_routed_experts experts;
	uint8_t *ids;
	uint8_t *states;
	char *base64;
};

static void put_id(uint8_t *to, uint32_t type, size_t at, uint32_t id)
{
	if (type == MOETRACE_TYPE_U8)
		to[at] = (uint8_t)id;
	else if (type == MOETRACE_TYPE_U16)
		((uint16_t *)(void *)to)[at] = (uint16_t)id;
	else
		((uint32_t *)(void *)to)[at] = id;
}

/* The experts of a position and MoE layer, at place @to of the answer. */
static void put_layer(struct answer *answer, const struct mt_experts *experts, size_t from,
		      size_t to)
{
	uint32_t k = answer->experts.k;

	answer->states[to] = experts->states[from];
	for (uint32_t e = 0; e < k; e++)
		put_id(answer->ids, answer->experts.type, to * k + e,
		       e < experts->n_valid[from] ? experts->ids[from * k + e] : UINT32_MAX);
}

static void fill_answer(struct answer *answer, const struct mt_experts *experts,
			const struct mt_model *model, int all_layers)
{
	for (size_t p = 0; p < experts->n_positions; p++)
		for (uint32_t i = 0; i < experts->n_layers; i++) {
			uint32_t to = all_layers ? model->layer_infos[i].layer : i;

			put_layer(answer, experts, p * experts->n_layers + i,
				  p * answer->experts.n_layers + to);
		}
}

static int make_answer(const struct mt_experts *experts, const struct mt_model *model,
		       const struct moetrace_routed_experts_opts *opts,
		       const struct mt_experts_ask *ask, struct answer **ret_answer)
{
	struct answer *answer = calloc(1, sizeof(*answer));
	struct moetrace_routed_experts *to = &answer->experts;
	int all_layers = opts->layers == MOETRACE_EXPERTS_ALL_LAYERS;
	uint32_t type = opts->type ? opts->type : MOETRACE_TYPE_I32;
	size_t n;

	if (!answer)
		return MOETRACE_E_NOMEM;
	to->size = sizeof(*to);
	to->attempt = ask->attempt;
	to->first_position = (uint32_t)experts->first_position;
	to->n_positions = (uint32_t)experts->n_positions;
	to->n_layers = all_layers ? model->info.n_layers : experts->n_layers;
	to->k = experts->k;
	to->type = type;
	to->from_memory = (uint32_t)ask->is_done;
	n = (size_t)to->n_positions * to->n_layers;
	to->ids_bytes = n * to->k * mt_type_bytes(type);
	/* Dense layers keep their zeros. */
	answer->ids = calloc(to->ids_bytes + 1, 1);
	answer->states = malloc(n + 1);
	if (!answer->ids || !answer->states)
		goto err_answer;
	memset(answer->states, MOETRACE_ROW_ABSENT, n);
	fill_answer(answer, experts, model, all_layers);
	if (opts->base64) {
		answer->base64 = base64_of(answer->ids, to->ids_bytes);
		if (!answer->base64)
			goto err_answer;
	}
	to->ids = answer->ids;
	to->states = answer->states;
	to->base64 = answer->base64;
	*ret_answer = answer;
	return MOETRACE_OK;

err_answer:
	moetrace_routed_experts_free(to);
	return MOETRACE_E_NOMEM;
}

void moetrace_routed_experts_free(struct moetrace_routed_experts *experts)
{
	struct answer *answer = (struct answer *)(void *)experts;

	if (!answer)
		return;
	free(answer->ids);
	free(answer->states);
	free(answer->base64);
	free(answer);
}

/* ---- the call ---- */

static uint32_t first_target(const struct moetrace_session *session, uint32_t n_models)
{
	for (uint32_t i = 0; i < n_models; i++)
		if (session->models[i]->kind == MOETRACE_MODEL_TARGET)
			return i + 1;
	return 0;
}

/* Can the answer have the form that is asked for? */
static int check_form(struct moetrace_session *session, const struct mt_model *model,
		      const struct moetrace_routed_experts_opts *opts)
{
	uint32_t n_ids = 0;

	if (opts->type && opts->type != MOETRACE_TYPE_U8 && opts->type != MOETRACE_TYPE_U16 &&
	    opts->type != MOETRACE_TYPE_I32)
		return mt_session_error(session, MOETRACE_E_INVALID,
					"routed experts: type %u is not U8, U16 or I32", opts->type);
	if (opts->layers > MOETRACE_EXPERTS_ALL_LAYERS)
		return mt_session_error(session, MOETRACE_E_INVALID,
					"routed experts: layers %u is no choice", opts->layers);
	for (uint32_t i = 0; i < model->n_layers; i++) {
		n_ids = model->layers[i].n_ids > n_ids ? model->layers[i].n_ids : n_ids;
		if (opts->layers == MOETRACE_EXPERTS_ALL_LAYERS &&
		    model->layer_infos[i].layer >= model->info.n_layers)
			return mt_session_error(session, MOETRACE_E_INVALID,
						"routed experts: the model's n_layers is not told");
	}
	if (opts->type == MOETRACE_TYPE_U8 && n_ids > 256)
		return mt_session_error(session, MOETRACE_E_LIMIT,
					"routed experts: %u ids do not fit in U8; ask for U16",
					n_ids);
	return MOETRACE_OK;
}

/* Ask the writer; what memory does not hold is read from the file. */
static int gather_experts(struct moetrace_session *session, uint64_t request,
			  struct mt_experts_ask *ask)
{
	const struct mt_model *model = session->models[ask->model - 1];
	struct mt_message *message;
	struct mt_cuda_mark mark;
	char error[MT_STORE_ERROR_BYTES];

	if (session->settings.is_disabled)
		return mt_session_error(session, MOETRACE_E_NOT_FOUND,
					"routed experts: MOETRACE_DISABLE is set, nothing is recorded");
	message = mt_message_new(MT_MESSAGE_EXPERTS, NULL, NULL);
	if (!message)
		return mt_session_error(session, MOETRACE_E_NOMEM, "out of memory");
	message->request = request;
	message->ask = ask;
	ask->status = MOETRACE_E_IO;
	/* Passes that a GPU has computed belong to it, too. */
	mt_cuda_mark(session, &mark);
	(void)mt_cuda_wait(session, 0, &mark, session->opts.stop_timeout_ms * MT_NS_PER_MS);
	(void)mt_session_post_and_wait(session, message);
	if (ask->status || ask->is_done)
		return ask->status;
	error[0] = '\0';
	ask->status = mt_reader_experts(ask, request, model, error);
	if (ask->status == MOETRACE_E_IO)
		return mt_session_error(session, MOETRACE_E_IO, "%s", error);
	return ask->status;
}

int moetrace_request_routed_experts(struct moetrace_session *session, uint64_t request,
				    const struct moetrace_routed_experts_opts *opts,
				    struct moetrace_routed_experts **ret_experts)
{
	struct moetrace_routed_experts_opts room = { .size = sizeof(room) };
	struct mt_experts_ask ask = { .attempt = MOETRACE_ATTEMPT_LAST };
	struct answer *answer = NULL;
	uint32_t n_models;
	int status;

	if (ret_experts)
		*ret_experts = NULL;
	if (!session || !ret_experts || (opts && !mt_abi_knows(opts->size, MT_FIRST_EXPERTS_OPTS)))
		return MOETRACE_E_INVALID;
	if (atomic_load(&session->forked))
		return MOETRACE_E_STATE;
	opts = opts ? MT_ABI_WIDEN(opts, &room) : &room;
	n_models = atomic_load_explicit(&session->n_models, memory_order_acquire);
	ask.model = opts->model ? opts->model : first_target(session, n_models);
	if (ask.model == 0 || ask.model > n_models || request == MOETRACE_NO_REQUEST ||
	    request > atomic_load(&session->n_requests))
		return mt_session_error(session, MOETRACE_E_INVALID,
					"routed experts: no such request or model");
	status = check_form(session, session->models[ask.model - 1], opts);
	if (status)
		return status;
	if (opts->attempt)
		ask.attempt = *opts->attempt;
	ask.first_position = opts->first_position;
	ask.n_positions = opts->n_positions;
	status = gather_experts(session, request, &ask);
	if (!status)
		status = make_answer(&ask.experts, session->models[ask.model - 1], opts, &ask,
				     &answer);
	mt_experts_close(&ask.experts);
	free(ask.path);
	if (ask.past)
		mt_past_free(ask.past);
	free(ask.past);
	if (!status)
		*ret_experts = &answer->experts;
	return status;
}
