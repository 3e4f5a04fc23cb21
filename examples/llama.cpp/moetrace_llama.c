/* SPDX-License-Identifier: MIT */
/*
 * The glue between llama.cpp's evaluation callback and moetrace. llama.cpp names the tensors of
 * a layer's router "ffn_moe_topk-N" (ids), "ffn_moe_weights-N" and, where the model transforms
 * these, "ffn_moe_weights_softmax-N", "..._norm-N" and "..._scaled-N". It asks about each node of a
 * graph in order and computes up to the first wanted one. The ids live until the experts have
 * used them, so the last form of the weights is the only node that is wanted, and ids and
 * weights are read there together.
 *
 * A batch longer than n_ubatch is computed as several graphs over consecutive rows; each is a
 * pass of its own. It begins when its first layer is asked about: nothing of the graph has been
 * computed then. A layer is handed over only where its rows are the pass's, or as many as the
 * batch asks outputs for: in the last layer llama.cpp computes only these.
 */
#include "moetrace_llama.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_LAYERS = 1024, N_FORMS = 4 };

/* The forms of the weights in the order of computation, and what each adds. */
static const struct {
	const char *name;
	uint32_t weight_kind;
} forms[N_FORMS] = {
	{"ffn_moe_weights", MOETRACE_WEIGHT_RAW},
	{"ffn_moe_weights_softmax", MOETRACE_WEIGHT_RENORMALIZED},
	{"ffn_moe_weights_norm", MOETRACE_WEIGHT_RENORMALIZED},
	{"ffn_moe_weights_scaled", MOETRACE_WEIGHT_SCALED},
};

/* What the warm-up showed of a layer. */
struct layer {
	uint32_t n_experts; /* 0: no layer with experts */
	uint32_t top_k;
	uint32_t index; /* among the layers with experts */
	uint8_t forms;	/* a bit a form */
	bool has_bias;
	bool is_softmax;
};

struct sequence {
	uint64_t request;
	uint32_t n_prompt;
	uint32_t next_position; /* of batches that do not tell positions */
};

struct moetrace_llama {
	struct moetrace_session *session;
	uint32_t model; /* 0: still learning */
	uint32_t max_rows;
	uint32_t n_moe_layers;
	struct layer layers[MAX_LAYERS];
	struct sequence sequences[MOETRACE_LLAMA_MAX_SEQUENCES];
	struct moetrace_llama_counts counts;

	/* the batch that is being decoded */
	const struct llama_batch *batch; /* NULL: none of ours */
	uint32_t n_begun_rows;		 /* rows of it whose pass has begun */
	uint32_t n_ubatch;		 /* rows a graph has at most */

	/* the pass that is running */
	struct moetrace_pass *pass;
	uint32_t first_row; /* in the batch */
	uint32_t n_rows;
	int last_layer; /* asked about last; -1: none of this graph */
	const struct ggml_tensor *topk;

	struct moetrace_slice *slices; /* [max_rows] */
	uint32_t *row_map;	       /* [max_rows] */
	char *ids, *weights;	       /* copies of what lies on a device */
	size_t ids_bytes, weights_bytes;
};

int moetrace_llama_open(struct moetrace_session *session, uint32_t max_rows,
			struct moetrace_llama **ret_recorder)
{
	struct moetrace_llama *recorder;

	if (!ret_recorder || !max_rows || max_rows > MOETRACE_MAX_ROWS)
		return MOETRACE_E_INVALID;
	recorder = calloc(1, sizeof(*recorder));
	if (!recorder)
		return MOETRACE_E_NOMEM;
	recorder->session = session;
	recorder->max_rows = max_rows;
	recorder->last_layer = -1;
	recorder->slices = calloc(max_rows, sizeof(*recorder->slices));
	recorder->row_map = calloc(max_rows, sizeof(*recorder->row_map));
	if (!recorder->slices || !recorder->row_map) {
		moetrace_llama_close(recorder);
		return MOETRACE_E_NOMEM;
	}
	*ret_recorder = recorder;
	return MOETRACE_OK;
}

void moetrace_llama_close(struct moetrace_llama *recorder)
{
	llama_seq_id i;

	if (!recorder)
		return;
	for (i = 0; i < MOETRACE_LLAMA_MAX_SEQUENCES; i++)
		moetrace_llama_request_end(recorder, i, MOETRACE_REQUEST_ABORTED);
	free(recorder->slices);
	free(recorder->row_map);
	free(recorder->ids);
	free(recorder->weights);
	free(recorder);
}

/* "NAME-N" gives N where NAME is @name; -1: another tensor. */
static int layer_number(const char *tensor, const char *name)
{
	const size_t length = strlen(name);
	char *end;
	long number;

	if (strncmp(tensor, name, length) || tensor[length] != '-')
		return -1;
	number = strtol(tensor + length + 1, &end, 10);
	return *end || end == tensor + length + 1 || number < 0 || number >= MAX_LAYERS
		       ? -1
		       : (int)number;
}

/* ---- learning ---- */

/* The scores that were sorted, or that a fused operation chose from. */
static const struct ggml_tensor *scores_of(const struct ggml_tensor *topk)
{
	const struct ggml_tensor *sorted = topk->src[0];

	if (topk->op == GGML_OP_VIEW && sorted && sorted->op == GGML_OP_ARGSORT)
		return sorted->src[0];
	return sorted;
}

static void learn(struct moetrace_llama *recorder, const struct ggml_tensor *t)
{
	int number = layer_number(t->name, "ffn_moe_topk"), form;
	const struct ggml_tensor *scores;
	struct layer *layer;

	if (number >= 0 && (scores = scores_of(t)) != NULL && scores->ne[0] > 0 && t->ne[0] > 0 &&
	    scores->ne[0] <= MOETRACE_MAX_EXPERTS && t->ne[0] <= MOETRACE_MAX_TOP_K) {
		layer = &recorder->layers[number];
		layer->n_experts = (uint32_t)scores->ne[0];
		layer->top_k = (uint32_t)t->ne[0];
		layer->is_softmax = scores->op == GGML_OP_SOFT_MAX;
	}
	number = layer_number(t->name, "ffn_moe_probs_biased");
	if (number >= 0)
		recorder->layers[number].has_bias = true;
	for (form = 0; form < N_FORMS; form++) {
		number = layer_number(t->name, forms[form].name);
		if (number >= 0)
			recorder->layers[number].forms |= (uint8_t)(1u << form);
	}
}

static void describe(const struct layer *layer, uint32_t number, struct moetrace_layer_info *info)
{
	int form;

	MOETRACE_INIT(info);
	info->layer = number;
	info->n_experts = layer->n_experts;
	info->top_k = layer->top_k;
	info->scoring = layer->forms & 2    ? MOETRACE_SCORING_SOFTMAX_SELECTED
			: layer->is_softmax ? MOETRACE_SCORING_SOFTMAX
					    : MOETRACE_SCORING_UNKNOWN;
	info->renormalize = layer->forms & (2 | 4) ? MOETRACE_YES : MOETRACE_NO;
	info->correction_bias = layer->has_bias ? MOETRACE_YES : MOETRACE_NO;
	for (form = 0; form < N_FORMS; form++)
		if (layer->forms & (1u << form))
			info->weight_kind |= forms[form].weight_kind;
	if (info->weight_kind != MOETRACE_WEIGHT_RAW)
		info->weight_kind &= ~(uint32_t)MOETRACE_WEIGHT_RAW;
	if (info->weight_kind & MOETRACE_WEIGHT_SCALED)
		info->scaling_owner = MOETRACE_SCALING_ROUTER;
	info->router_impl = "llama.cpp";
}

int moetrace_llama_model_add(struct moetrace_llama *recorder, const char *name)
{
	struct moetrace_layer_info *infos;
	struct moetrace_model_info info;
	uint32_t i, n = 0;
	int status;

	if (!recorder || recorder->model)
		return recorder ? MOETRACE_E_STATE : MOETRACE_E_INVALID;
	infos = calloc(MAX_LAYERS, sizeof(*infos));
	if (!infos)
		return MOETRACE_E_NOMEM;
	for (i = 0; i < MAX_LAYERS; i++) {
		if (!recorder->layers[i].n_experts)
			continue;
		recorder->layers[i].index = n;
		describe(&recorder->layers[i], i, &infos[n++]);
	}
	MOETRACE_INIT(&info);
	info.name = name;
	info.layers = infos;
	info.n_moe_layers = n;
	status = n ? moetrace_model_add(recorder->session, &info, &recorder->model)
		   : MOETRACE_E_STATE;
	recorder->n_moe_layers = status ? 0 : n;
	free(infos);
	return status;
}

/* ---- requests ---- */

int moetrace_llama_request_begin(struct moetrace_llama *recorder, llama_seq_id sequence,
				 const char *external_id, uint32_t n_prompt)
{
	struct moetrace_request_info info;

	if (!recorder || sequence < 0 || sequence >= MOETRACE_LLAMA_MAX_SEQUENCES ||
	    recorder->sequences[sequence].request)
		return MOETRACE_E_INVALID;
	MOETRACE_INIT(&info);
	info.external_id = external_id;
	info.prompt_positions = n_prompt;
	recorder->sequences[sequence].n_prompt = n_prompt;
	recorder->sequences[sequence].next_position = 0;
	return moetrace_request_begin(recorder->session, &info,
				      &recorder->sequences[sequence].request);
}

uint64_t moetrace_llama_request(const struct moetrace_llama *recorder, llama_seq_id sequence)
{
	return recorder && sequence >= 0 && sequence < MOETRACE_LLAMA_MAX_SEQUENCES
		       ? recorder->sequences[sequence].request
		       : MOETRACE_NO_REQUEST;
}

uint64_t moetrace_llama_request_end(struct moetrace_llama *recorder, llama_seq_id sequence,
				    enum moetrace_request_end_state end_state)
{
	const uint64_t request = moetrace_llama_request(recorder, sequence);

	if (!request)
		return MOETRACE_NO_REQUEST;
	recorder->sequences[sequence].request = MOETRACE_NO_REQUEST;
	moetrace_request_end(recorder->session, request, end_state, MOETRACE_POSITIONS_UNKNOWN);
	return request;
}

/* ---- passes ---- */

/* The sequence that a row of the batch extends; NULL: none that is known here. */
static struct sequence *sequence_of(struct moetrace_llama *recorder, uint32_t row)
{
	const struct llama_batch *batch = recorder->batch;
	llama_seq_id id = 0;

	if (batch->seq_id && batch->n_seq_id)
		id = batch->n_seq_id[row] < 1 ? -1 : batch->seq_id[row][0];
	return id >= 0 && id < MOETRACE_LLAMA_MAX_SEQUENCES ? &recorder->sequences[id] : NULL;
}

/* A row as a slice of its own: whose, which position, and in which phase. */
static struct moetrace_slice slice_of(struct moetrace_llama *recorder, uint32_t row)
{
	const llama_pos *positions = recorder->batch->pos;
	struct sequence *sequence = sequence_of(recorder, row);
	struct moetrace_slice slice = {MOETRACE_NO_REQUEST, NULL, 0, 1, MOETRACE_PHASE_DUMMY, 0};

	if (!sequence || !sequence->request || (positions && positions[row] < 0))
		return slice;
	slice.request = sequence->request;
	slice.first_position = positions ? (uint32_t)positions[row] : sequence->next_position;
	slice.phase = slice.first_position < sequence->n_prompt ? MOETRACE_PHASE_PREFILL
								: MOETRACE_PHASE_DECODE;
	sequence->next_position = slice.first_position + 1;
	return slice;
}

/* Runs of rows with the same request and phase at consecutive positions. */
static uint32_t fill_slices(struct moetrace_llama *recorder, uint32_t n_rows, uint32_t *ret_phase)
{
	uint32_t n_slices = 0, row, phases = 0;

	for (row = 0; row < n_rows; row++) {
		const struct moetrace_slice next = slice_of(recorder, recorder->n_begun_rows + row);
		struct moetrace_slice *last = n_slices ? &recorder->slices[n_slices - 1] : NULL;

		phases |= 1u << next.phase;
		if (last && last->request == next.request && last->phase == next.phase &&
		    (!next.request || last->first_position + last->n_rows == next.first_position))
			last->n_rows++;
		else
			recorder->slices[n_slices++] = next;
	}
	*ret_phase = phases == 1u << MOETRACE_PHASE_PREFILL  ? MOETRACE_PHASE_PREFILL
		     : phases == 1u << MOETRACE_PHASE_DECODE ? MOETRACE_PHASE_DECODE
		     : phases == 1u << MOETRACE_PHASE_DUMMY  ? MOETRACE_PHASE_DUMMY
							     : MOETRACE_PHASE_MIXED;
	return n_slices;
}

static void end_pass(struct moetrace_llama *recorder)
{
	moetrace_pass_end(recorder->pass);
	recorder->pass = NULL;
	recorder->last_layer = -1;
	recorder->topk = NULL;
}

static void begin_pass(struct moetrace_llama *recorder, int64_t n_rows)
{
	const uint32_t n_left = (uint32_t)recorder->batch->n_tokens - recorder->n_begun_rows;
	struct moetrace_pass_info info;

	end_pass(recorder);
	if (n_rows < 1 || n_rows != (n_left < recorder->n_ubatch ? n_left : recorder->n_ubatch)) {
		recorder->counts.n_unplaced_layers++;
		return;
	}
	MOETRACE_INIT(&info);
	info.model = recorder->model;
	info.n_rows = (uint32_t)n_rows;
	info.n_slices = fill_slices(recorder, info.n_rows, &info.phase);
	info.slices = recorder->slices;
	recorder->first_row = recorder->n_begun_rows;
	recorder->n_rows = info.n_rows;
	recorder->n_begun_rows += info.n_rows;
	recorder->pass = moetrace_pass_begin(recorder->session, &info);
	recorder->counts.n_graphs += recorder->pass != NULL;
}

/* The rows whose outputs were asked for; their number. */
static uint32_t fill_row_map(struct moetrace_llama *recorder)
{
	const struct llama_batch *batch = recorder->batch;
	uint32_t row, n = 0;

	for (row = 0; row < recorder->n_rows; row++) {
		const uint32_t at = recorder->first_row + row;

		if (batch->logits ? batch->logits[at] != 0 : at + 1 == (uint32_t)batch->n_tokens)
			recorder->row_map[n++] = row;
	}
	return n;
}

/* ---- layers ---- */

/* Bytes from row to row where the tensor is [n_rows][k], or [n_rows][k][1]; 0: it is neither. */
static size_t row_bytes(const struct ggml_tensor *t, int64_t k, int64_t n_rows)
{
	if (t->nb[0] == 4 && t->ne[0] == k && t->ne[1] == n_rows && t->ne[2] == 1)
		return t->nb[1];
	return t->ne[0] == 1 && t->ne[1] == k && t->ne[2] == n_rows && t->nb[1] == 4 ? t->nb[2] : 0;
}

/* The tensor's rows in host memory; NULL: no memory. */
static const void *host_rows(struct moetrace_llama *recorder, const struct ggml_tensor *t,
			     size_t n_bytes, char **room, size_t *room_bytes)
{
	ggml_backend_buffer_t buffer = t->view_src ? t->view_src->buffer : t->buffer;

	if (!buffer || ggml_backend_buffer_is_host(buffer))
		return t->data;
	if (n_bytes > *room_bytes) {
		char *grown = realloc(*room, n_bytes);

		if (!grown)
			return NULL;
		*room = grown;
		*room_bytes = n_bytes;
	}
	ggml_backend_tensor_get(t, *room, 0, n_bytes);
	recorder->counts.n_copied_bytes += n_bytes;
	return *room;
}

/*
 * An argsort's result is in the order of the scores, but says nothing about equal ones; the order
 * of a selection has the lower id first there. With a bias the scores are not seen.
 */
static uint32_t order_of(const struct layer *layer, const struct ggml_tensor *topk,
			 const struct moetrace_selection *selection)
{
	uint32_t row, rank;

	if (topk->op != GGML_OP_VIEW || !topk->src[0] || topk->src[0]->op != GGML_OP_ARGSORT ||
	    layer->has_bias)
		return MOETRACE_ORDER_UNKNOWN;
	for (row = 0; row < selection->n_rows; row++) {
		const int32_t *ids = (const void *)((const char *)selection->ids +
						    row * selection->ids_row_bytes);
		const float *weights = (const void *)((const char *)selection->weights +
						      row * selection->weights_row_bytes);

		for (rank = 1; rank < layer->top_k; rank++)
			if (weights[rank] == weights[rank - 1] && ids[rank] < ids[rank - 1])
				return MOETRACE_ORDER_UNKNOWN;
	}
	return MOETRACE_ORDER_SELECTION;
}

/* Ids and weights of a layer are computed. */
static void hand_over(struct moetrace_llama *recorder, const struct layer *layer,
		      const struct ggml_tensor *topk, const struct ggml_tensor *weights)
{
	const int64_t n_rows = topk->ne[1];
	struct moetrace_selection selection;

	MOETRACE_INIT(&selection);
	selection.layer_index = layer->index;
	selection.n_rows = (uint32_t)n_rows;
	selection.id_type = MOETRACE_TYPE_I32;
	selection.weight_type = MOETRACE_TYPE_F32;
	selection.ids_row_bytes = row_bytes(topk, layer->top_k, n_rows);
	selection.weights_row_bytes = row_bytes(weights, layer->top_k, n_rows);
	if (topk->type != GGML_TYPE_I32 || weights->type != GGML_TYPE_F32 ||
	    !selection.ids_row_bytes || !selection.weights_row_bytes)
		goto unplaced;
	if (n_rows != recorder->n_rows) {
		if (n_rows != fill_row_map(recorder))
			goto unplaced;
		selection.row_map = recorder->row_map;
	}
	if (n_rows) {
		const size_t before_last = (size_t)n_rows - 1, last = layer->top_k * 4ul;

		selection.ids =
			host_rows(recorder, topk, before_last * selection.ids_row_bytes + last,
				  &recorder->ids, &recorder->ids_bytes);
		selection.weights = host_rows(recorder, weights,
					      before_last * selection.weights_row_bytes + last,
					      &recorder->weights, &recorder->weights_bytes);
	} else {
		selection.ids = selection.weights = recorder->row_map; /* not read */
	}
	if (!selection.ids || !selection.weights)
		goto unplaced;
	selection.order = order_of(layer, topk, &selection);
	moetrace_select_experts(recorder->pass, &selection);
	return;

unplaced:
	recorder->counts.n_unplaced_layers++;
}

/* The last form of this layer's weights is @form. */
static bool is_last_form(const struct layer *layer, int form)
{
	return layer->forms >> form == 1;
}

/* A node that will be computed: note the ids, begin a pass, and say whether it is wanted. */
static bool ask_about(struct moetrace_llama *recorder, const struct ggml_tensor *t)
{
	int number = layer_number(t->name, "ffn_moe_topk"), form;

	if (number >= 0 && recorder->layers[number].n_experts) {
		if (number < recorder->last_layer || recorder->last_layer < 0 ||
		    recorder->n_moe_layers == 1)
			begin_pass(recorder, t->ne[1]);
		if (number > recorder->last_layer)
			recorder->topk = t;
		recorder->last_layer = number;
		return false;
	}
	if (!recorder->pass || !recorder->topk)
		return false;
	for (form = 0; form < N_FORMS; form++)
		if (layer_number(t->name, forms[form].name) == recorder->last_layer)
			return is_last_form(&recorder->layers[recorder->last_layer], form);
	return false;
}

/* The callback returns bool in llama.cpp, int in its fork: whatever the header says. */
typedef __typeof__(((ggml_backend_sched_eval_callback)NULL)(NULL, false, NULL)) callback_result;

static callback_result callback(struct ggml_tensor *t, bool ask, void *user_data)
{
	struct moetrace_llama *recorder = user_data;

	if (!ask) {
		if (recorder->pass && recorder->topk)
			hand_over(recorder, &recorder->layers[recorder->last_layer], recorder->topk,
				  t);
		recorder->topk = NULL;
		return 1; /* go on */
	}
	if (strncmp(t->name, "ffn_moe_", 8))
		return 0;
	if (!recorder->model)
		learn(recorder, t);
	return recorder->model && recorder->batch && ask_about(recorder, t);
}

ggml_backend_sched_eval_callback moetrace_llama_callback(void)
{
	return callback;
}

int32_t moetrace_llama_decode(struct moetrace_llama *recorder, struct llama_context *ctx,
			      struct llama_batch batch)
{
	int32_t result;

	if (!recorder || batch.n_tokens < 1 || (uint32_t)batch.n_tokens > recorder->max_rows)
		return llama_decode(ctx, batch);
	recorder->batch = &batch;
	recorder->n_begun_rows = 0;
	recorder->n_ubatch = llama_n_ubatch(ctx);
	result = llama_decode(ctx, batch);
	end_pass(recorder);
	recorder->batch = NULL;
	return result;
}

void moetrace_llama_counts(const struct moetrace_llama *recorder,
			   struct moetrace_llama_counts *ret_counts)
{
	*ret_counts = recorder->counts;
}
