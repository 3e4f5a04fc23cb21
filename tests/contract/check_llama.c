/* SPDX-License-Identifier: MIT */
/*
 * The glue between llama.cpp and moetrace (examples/llama.cpp), compiled against a stand-in of that
 * interface and driven by a llama_decode() of ours. It evaluates graphs as the real one does:
 * asks about every node in order, computes up to the first wanted one, shows it, goes on; a
 * tensor's memory holds rubbish until it is computed and again when its last user is done. In
 * the last layer only rows with outputs are computed. Which experts a token gets is a
 * function of token, layer and rank, so that the file can be checked against it.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "examples/llama.cpp/moetrace_llama.h"
#include "tests/unit/support/db.h"
#include "tests/unit/support/suite.h"

enum { N_LAYERS = 3, N_EXPERTS = 6, TOP_K = 2, MAX_ROWS = 32, N_UBATCH = 4, NODES = 5 };
enum { POISON = 0x5a };

static const int layer_numbers[N_LAYERS] = {1, 2, 4};

struct ggml_backend_buffer {
	bool is_host;
};

/* What a context and its graph are here. */
struct llama_context {
	uint32_t n_ubatch;	/* rows that a graph has */
	uint32_t n_ubatch_told; /* what llama_n_ubatch() says */
	bool has_bias, has_ties, forgets;
	ggml_backend_sched_eval_callback callback;
	void *user_data;
	uint32_t n_graphs, n_wanted;
	struct ggml_backend_buffer buffer;
	struct ggml_tensor scores, sorted, topk, weights, norm;
	int32_t sorted_ids[MAX_ROWS][N_EXPERTS];
	float raw[MAX_ROWS][TOP_K], renormalized[MAX_ROWS][TOP_K];
};

static int32_t expert_of(int32_t token, int number, int rank)
{
	return (token + number + 3 * rank) % N_EXPERTS;
}

/* Memory of a device is at addresses that the host must not follow. */
static void *on_device(const struct llama_context *ctx, void *memory)
{
	return ctx->buffer.is_host ? memory : (void *)((uintptr_t)memory ^ (UINT64_C(1) << 63));
}

bool ggml_backend_buffer_is_host(ggml_backend_buffer_t buffer)
{
	return buffer->is_host;
}

void ggml_backend_tensor_get(const struct ggml_tensor *tensor, void *data, size_t offset,
			     size_t size)
{
	const char *memory = (const char *)((uintptr_t)tensor->data ^ (UINT64_C(1) << 63));

	memcpy(data, memory + offset, size);
}

uint32_t llama_n_ubatch(const struct llama_context *ctx)
{
	return ctx->n_ubatch_told;
}

static void shape(struct llama_context *ctx, struct ggml_tensor *t, const char *name, int number,
		  enum ggml_type type, int64_t n0, int64_t n1, int64_t n2, size_t row_bytes,
		  void *memory)
{
	memset(t, 0, sizeof(*t));
	snprintf(t->name, sizeof(t->name), "%s-%d", name, number);
	t->type = type;
	t->ne[0] = n0;
	t->ne[1] = n1;
	t->ne[2] = n2;
	t->ne[3] = 1;
	t->nb[0] = 4;
	t->nb[1] = n0 == 1 ? 4 : row_bytes;
	t->nb[2] = n0 == 1 ? row_bytes : row_bytes * (size_t)n1;
	t->buffer = &ctx->buffer;
	t->data = on_device(ctx, memory);
}

/* The nodes of a layer, in the order of computation; ids are rows of a longer sorted array. */
static void build_layer(struct llama_context *ctx, int number, int64_t n_rows,
			struct ggml_tensor *ret_nodes[NODES])
{
	shape(ctx, &ctx->scores, ctx->has_bias ? "ffn_moe_probs_biased" : "ffn_moe_probs", number,
	      GGML_TYPE_F32, N_EXPERTS, n_rows, 1, N_EXPERTS * 4, ctx->raw);
	ctx->scores.op = GGML_OP_SOFT_MAX;
	shape(ctx, &ctx->sorted, "sorted", number, GGML_TYPE_I32, N_EXPERTS, n_rows, 1,
	      N_EXPERTS * 4, ctx->sorted_ids);
	ctx->sorted.op = GGML_OP_ARGSORT;
	ctx->sorted.src[0] = &ctx->scores;
	shape(ctx, &ctx->topk, "ffn_moe_topk", number, GGML_TYPE_I32, TOP_K, n_rows, 1,
	      N_EXPERTS * 4, ctx->sorted_ids);
	ctx->topk.op = GGML_OP_VIEW;
	ctx->topk.src[0] = ctx->topk.view_src = &ctx->sorted;
	shape(ctx, &ctx->weights, "ffn_moe_weights", number, GGML_TYPE_F32, 1, TOP_K, n_rows,
	      TOP_K * 4, ctx->raw);
	shape(ctx, &ctx->norm, "ffn_moe_weights_norm", number, GGML_TYPE_F32, TOP_K, n_rows, 1,
	      TOP_K * 4, ctx->renormalized);
	ret_nodes[0] = &ctx->scores;
	ret_nodes[1] = &ctx->sorted;
	ret_nodes[2] = &ctx->topk;
	ret_nodes[3] = &ctx->weights;
	ret_nodes[4] = &ctx->norm;
}

static void compute(struct llama_context *ctx, const struct ggml_tensor *t, int number,
		    const int32_t *tokens)
{
	int64_t row;
	int rank;

	for (row = 0; row < ctx->topk.ne[1]; row++)
		for (rank = 0; rank < TOP_K; rank++) {
			if (t == &ctx->sorted)
				ctx->sorted_ids[row][rank] = expert_of(tokens[row], number, rank);
			else if (t == &ctx->weights)
				ctx->raw[row][rank] = rank ? 0.125f : 0.375f;
			else if (t == &ctx->norm)
				ctx->renormalized[row][rank] = ctx->has_ties ? 0.5f
							       : rank	     ? 0.25f
									     : 0.75f;
		}
}

/* Ask until a node is wanted, compute up to it, show it, and so on. */
static void evaluate_layer(struct llama_context *ctx, int number, const int32_t *tokens,
			   int64_t n_rows)
{
	struct ggml_tensor *nodes[NODES];
	int begin, end, i;

	memset(ctx->sorted_ids, POISON, sizeof(ctx->sorted_ids));
	memset(ctx->renormalized, POISON, sizeof(ctx->renormalized));
	build_layer(ctx, number, n_rows, nodes);
	for (begin = 0; begin < NODES; begin = end + 1) {
		bool is_wanted = false;

		for (end = begin; end < NODES; end++) {
			is_wanted =
				ctx->callback && ctx->callback(nodes[end], true, ctx->user_data);
			if (is_wanted)
				break;
		}
		for (i = begin; i <= end && i < NODES; i++)
			compute(ctx, nodes[i], number, tokens);
		if (!is_wanted)
			break;
		ctx->n_wanted++;
		ck_assert(ctx->callback(nodes[end], false, ctx->user_data));
	}
}

int32_t llama_decode(struct llama_context *ctx, struct llama_batch batch)
{
	int32_t first, row, n_rows, n_outputs;
	int32_t outputs[MAX_ROWS];
	int i;

	for (first = 0; first < batch.n_tokens; first += n_rows) {
		n_rows = batch.n_tokens - first;
		if (n_rows > (int32_t)ctx->n_ubatch)
			n_rows = (int32_t)ctx->n_ubatch;
		ctx->n_graphs++;
		for (row = n_outputs = 0; row < n_rows; row++)
			if (batch.logits ? batch.logits[first + row]
					 : first + row == batch.n_tokens - 1)
				outputs[n_outputs++] = batch.token[first + row];
		for (i = 0; i < N_LAYERS; i++) {
			const bool is_last = i == N_LAYERS - 1;

			if (ctx->forgets && i == 1)
				continue;
			evaluate_layer(ctx, layer_numbers[i],
				       is_last ? outputs : batch.token + first,
				       is_last ? n_outputs : n_rows);
		}
	}
	return 0;
}

/* ---- the host ---- */

struct host {
	const char *path;
	struct moetrace_session *session;
	struct moetrace_llama *recorder;
	struct llama_context ctx;
	int32_t tokens[MAX_ROWS], positions[MAX_ROWS], n_sequences[MAX_ROWS], ids[MAX_ROWS];
	int32_t *id_pointers[MAX_ROWS];
	int8_t outputs[MAX_ROWS];
	struct llama_batch batch;
};

static void add_row(struct host *host, int32_t token, int32_t sequence, int32_t position,
		    bool output)
{
	const int32_t i = host->batch.n_tokens++;

	host->tokens[i] = token;
	host->positions[i] = position;
	host->n_sequences[i] = 1;
	host->ids[i] = sequence;
	host->id_pointers[i] = &host->ids[i];
	host->outputs[i] = output;
}

static void decode(struct host *host)
{
	ck_assert_int_eq(moetrace_llama_decode(host->recorder, &host->ctx, host->batch), 0);
	host->batch.n_tokens = 0;
}

/* The warm-up has shown the model, and the recording has begun. */
static void open_host(struct host *host, const char *name, bool is_host_memory)
{
	struct moetrace_session_opts opts;

	memset(host, 0, sizeof(*host));
	host->path = suite_path(name);
	MOETRACE_INIT(&opts);
	opts.ring_bytes = 1 << 20;
	ck_assert_int_eq(moetrace_session_open(host->path, &opts, &host->session), MOETRACE_OK);
	ck_assert_int_eq(moetrace_llama_open(host->session, MAX_ROWS, &host->recorder),
			 MOETRACE_OK);
	host->ctx.n_ubatch = host->ctx.n_ubatch_told = N_UBATCH;
	host->ctx.buffer.is_host = is_host_memory;
	host->ctx.callback = moetrace_llama_callback();
	host->ctx.user_data = host->recorder;
	host->batch = (struct llama_batch){0,
					   host->tokens,
					   NULL,
					   host->positions,
					   host->n_sequences,
					   host->id_pointers,
					   host->outputs};
}

static void learn(struct host *host)
{
	ck_assert_int_eq(moetrace_llama_model_add(host->recorder, "fake"), MOETRACE_E_STATE);
	add_row(host, 1, 0, 0, true);
	decode(host);
	ck_assert_uint_eq(host->ctx.n_wanted, 0);
	ck_assert_int_eq(moetrace_llama_model_add(host->recorder, "fake"), MOETRACE_OK);
	ck_assert_int_eq(moetrace_llama_model_add(host->recorder, "fake"), MOETRACE_E_STATE);
}

static void start(struct host *host, const char *name, bool is_host_memory)
{
	open_host(host, name, is_host_memory);
	learn(host);
	ck_assert_int_eq(moetrace_start(host->session, NULL), MOETRACE_OK);
}

static sqlite3 *finish(struct host *host, struct moetrace_llama_counts *ret_counts)
{
	moetrace_llama_counts(host->recorder, ret_counts);
	moetrace_llama_close(host->recorder);
	ck_assert_int_eq(moetrace_session_close(host->session), MOETRACE_OK);
	return db_open(host->path);
}

/* A prompt of 10 tokens, token 100 + position, in one batch, then 3 tokens one by one. */
static void serve_request(struct host *host)
{
	int32_t position;

	ck_assert_int_eq(moetrace_llama_request_begin(host->recorder, 0, "r", 10), MOETRACE_OK);
	for (position = 0; position < 10; position++)
		add_row(host, 100 + position, 0, position, position == 9);
	decode(host);
	for (; position < 13; position++) {
		add_row(host, 100 + position, 0, position, true);
		decode(host);
	}
	ck_assert_uint_ne(moetrace_llama_request_end(host->recorder, 0, MOETRACE_REQUEST_FINISHED),
			  0);
}

/* Entries that are not what expert_of() says of token 100 + position. */
static const char wrong_experts[] = "SELECT count(*) FROM routed_expert"
				    " WHERE expert <> (100 + position + layer + 3 * topk_rank) %% 6"
				    " OR weight <> iif(topk_rank = 0, 0.75, 0.25)";

/* The prompt is three graphs; the last layer sees the rows with outputs alone. */
static void check_request(sqlite3 *db)
{
	ck_assert_str_eq(db_text(db,
				 "SELECT verdict || n_positions || ',' || prefill_rows || ',' ||"
				 " decode_rows || ',' || n_passes FROM request_summary"),
			 "complete13,10,3,6");
	ck_assert_str_eq(db_text(db, "SELECT group_concat(n_rows || phase) FROM pass"),
			 "4prefill,4prefill,2prefill,1decode,1decode,1decode");
	ck_assert_int_eq(db_int(db, wrong_experts), 0);
	ck_assert_str_eq(db_text(db, "SELECT group_concat(n) FROM (SELECT count(*) AS n"
				     " FROM routed_expert GROUP BY layer ORDER BY layer)"),
			 "26,26,8");
	ck_assert_str_eq(db_text(db, "SELECT group_concat(position) FROM (SELECT DISTINCT position"
				     " FROM routed_expert WHERE layer = 4 ORDER BY position)"),
			 "9,10,11,12");
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM pass WHERE verdict <> 'complete'"), 0);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM diagnostic"), 0);
}

START_TEST(test_request)
{
	const bool is_host_memory = _i == 0;
	struct moetrace_llama_counts counts;
	struct host host;
	sqlite3 *db;

	start(&host, "request.db", is_host_memory);
	serve_request(&host);
	/* One tensor a layer and graph, and no more. */
	ck_assert_uint_eq(host.ctx.n_wanted, 6 * N_LAYERS);
	db = finish(&host, &counts);
	check_request(db);
	ck_assert_uint_eq(counts.n_graphs, 6);
	ck_assert_uint_eq(counts.n_unplaced_layers, 0);
	ck_assert_int_eq(counts.n_copied_bytes == 0, is_host_memory);
	ck_assert_str_eq(db_text(db, "SELECT group_concat(DISTINCT selection_order)"
				     " FROM pass_layer WHERE state = 0"),
			 db_text(db, "SELECT min(selection_order) FROM pass_layer"));
	db_close(db);
}
END_TEST

/* What the graph of the warm-up says of the model. */
START_TEST(test_learning)
{
	struct moetrace_llama_counts counts;
	struct host host;
	sqlite3 *db;

	open_host(&host, "learn.db", true);
	host.ctx.has_bias = _i == 1;
	learn(&host);
	db = finish(&host, &counts);
	ck_assert_str_eq(db_text(db,
				 "SELECT group_concat(layer || ':' || n_experts || ':' || top_k)"
				 " FROM layer"),
			 "1:6:2,2:6:2,4:6:2");
	ck_assert_str_eq(db_text(db, "SELECT DISTINCT scoring || ',' || weight_kind || ',' ||"
				     " renormalize FROM layer"),
			 "softmax,renormalized,1");
	ck_assert_int_eq(db_int(db, "SELECT sum(has_correction_bias) FROM layer"), _i == 1 ? 3 : 0);
	db_close(db);
}
END_TEST

/* Not recording: the callback wants nothing, so that graphs stay in one piece. */
START_TEST(test_idle)
{
	struct moetrace_llama_counts counts;
	struct host host;
	sqlite3 *db;

	open_host(&host, "idle.db", true);
	learn(&host);
	serve_request(&host);
	ck_assert_uint_eq(host.ctx.n_wanted, 0);
	ck_assert_int_eq(moetrace_start(host.session, NULL), MOETRACE_OK);
	serve_request(&host);
	ck_assert_int_eq(moetrace_stop(host.session, NULL), MOETRACE_OK);
	host.ctx.n_wanted = 0;
	serve_request(&host);
	ck_assert_uint_eq(host.ctx.n_wanted, 0);
	db = finish(&host, &counts);
	check_request(db);
	db_close(db);
}
END_TEST

/* Three sequences in a batch, one of them without a request. */
START_TEST(test_sequences)
{
	struct moetrace_llama_counts counts;
	struct host host;
	sqlite3 *db;

	start(&host, "sequences.db", true);
	ck_assert_int_eq(moetrace_llama_request_begin(host.recorder, 1, "one", 2), MOETRACE_OK);
	ck_assert_int_eq(moetrace_llama_request_begin(host.recorder, 7, "seven", 1), MOETRACE_OK);
	add_row(&host, 100, 1, 0, false);
	add_row(&host, 101, 1, 1, true);
	add_row(&host, 100, 7, 0, true);
	add_row(&host, 3, 2, 0, true);
	decode(&host);
	add_row(&host, 101, 7, 1, true);
	add_row(&host, 102, 1, 2, true);
	decode(&host);
	moetrace_llama_request_end(host.recorder, 1, MOETRACE_REQUEST_FINISHED);
	moetrace_llama_request_end(host.recorder, 7, MOETRACE_REQUEST_ABORTED);
	ck_assert_uint_eq(moetrace_llama_request_end(host.recorder, 7, MOETRACE_REQUEST_ABORTED),
			  0);
	db = finish(&host, &counts);
	ck_assert_str_eq(db_text(db, "SELECT group_concat(external_id || verdict || n_positions ||"
				     " end_state) FROM request"),
			 "onecomplete3finished,sevencomplete2aborted");
	ck_assert_str_eq(db_text(db, "SELECT group_concat(phase || n_slices, ' ') FROM (SELECT"
				     " p.phase, count(*) AS n_slices FROM pass AS p"
				     " JOIN pass_request USING (pass_id) GROUP BY pass_id)"),
			 "mixed3 decode2");
	ck_assert_int_eq(db_int(db, wrong_experts), 0);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM routed_expert WHERE layer = 4"), 8);
	ck_assert_uint_eq(counts.n_unplaced_layers, 0);
	db_close(db);
}
END_TEST

/* A batch that leaves positions, sequences and outputs to llama.cpp. */
START_TEST(test_batch_without_positions)
{
	struct moetrace_llama_counts counts;
	struct host host;
	sqlite3 *db;

	start(&host, "plain.db", true);
	host.batch.pos = NULL;
	host.batch.n_seq_id = NULL;
	host.batch.seq_id = NULL;
	host.batch.logits = NULL;
	serve_request(&host);
	db = finish(&host, &counts);
	check_request(db);
	db_close(db);
}
END_TEST

/* Graphs whose rows the batch does not explain are not guessed at. */
START_TEST(test_rows_without_an_explanation)
{
	struct moetrace_llama_counts counts;
	struct host host;
	sqlite3 *db;

	start(&host, "rows.db", true);
	host.ctx.n_ubatch = 3;
	serve_request(&host);
	db = finish(&host, &counts);
	ck_assert_int_eq(db_int(db, wrong_experts), 0);
	ck_assert_str_eq(db_text(db, "SELECT verdict FROM request"), "partial");
	ck_assert_uint_ge(counts.n_unplaced_layers, 3);
	db_close(db);
}
END_TEST

/* A layer that a graph lacks is unwritten, and the next graph is not taken for its end. */
START_TEST(test_missing_layer)
{
	struct moetrace_llama_counts counts;
	struct host host;
	sqlite3 *db;

	start(&host, "missing.db", true);
	host.ctx.forgets = true;
	serve_request(&host);
	db = finish(&host, &counts);
	ck_assert_int_eq(db_int(db, wrong_experts), 0);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM pass"), 6);
	ck_assert_str_eq(db_text(db, "SELECT verdict || reasons FROM request"), "partialunwritten");
	db_close(db);
}
END_TEST

/* The order of a selection has the lower of equal experts first; an argsort need not. */
START_TEST(test_order_of_equals)
{
	struct moetrace_llama_counts counts;
	struct host host;
	sqlite3 *db;

	start(&host, "ties.db", true);
	host.ctx.has_ties = true;
	ck_assert_int_eq(moetrace_llama_request_begin(host.recorder, 0, NULL, 1), MOETRACE_OK);
	add_row(&host, 5, 0, 0, true); /* layer 1: 0 and 3; layer 2: 1 and 4; layer 4: 3 and 0 */
	decode(&host);
	db = finish(&host, &counts);
	ck_assert_int_eq(db_int(db, "SELECT count(DISTINCT selection_order) FROM pass_layer"), 2);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM pass_layer WHERE selection_order ="
				    " (SELECT max(selection_order) FROM pass_layer)"),
			 1);
	db_close(db);
}
END_TEST

/* A prompt that another sequence has computed: the host says so by the handles. */
START_TEST(test_prompt_of_another_sequence)
{
	struct moetrace_llama_counts counts;
	struct moetrace_reuse reuse;
	struct host host;
	sqlite3 *db;

	start(&host, "reuse.db", true);
	ck_assert_int_eq(moetrace_llama_request_begin(host.recorder, 1, "first", 3), MOETRACE_OK);
	ck_assert_int_eq(moetrace_llama_request_begin(host.recorder, 2, "second", 3), MOETRACE_OK);
	add_row(&host, 100, 1, 0, true);
	add_row(&host, 101, 1, 1, true);
	add_row(&host, 102, 1, 2, true);
	decode(&host);
	MOETRACE_INIT(&reuse);
	reuse.n_positions = 2;
	reuse.source_request = moetrace_llama_request(host.recorder, 1);
	reuse.source_attempt = MOETRACE_ATTEMPT_LAST;
	ck_assert_int_eq(moetrace_request_reuse(host.session,
						moetrace_llama_request(host.recorder, 2), &reuse),
			 MOETRACE_OK);
	add_row(&host, 102, 2, 2, true);
	decode(&host);
	moetrace_llama_request_end(host.recorder, 1, MOETRACE_REQUEST_FINISHED);
	moetrace_llama_request_end(host.recorder, 2, MOETRACE_REQUEST_FINISHED);
	ck_assert_uint_eq(moetrace_llama_request(host.recorder, 2), MOETRACE_NO_REQUEST);
	ck_assert_uint_eq(moetrace_llama_request(host.recorder, -1), MOETRACE_NO_REQUEST);
	db = finish(&host, &counts);
	ck_assert_str_eq(db_text(db, "SELECT group_concat(external_id || verdict || n_positions)"
				     " FROM request"),
			 "firstcomplete3,secondcomplete3");
	ck_assert_int_eq(db_int(db, wrong_experts), 0);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM token_topk WHERE request_id = 2"
				    " AND state = 'reused'"),
			 2 * N_LAYERS);
	db_close(db);
}
END_TEST

START_TEST(test_arguments)
{
	struct moetrace_llama *recorder = NULL;
	struct llama_context ctx = {.n_ubatch = 4, .n_ubatch_told = 4, .buffer = {true}};
	struct llama_batch batch = {0};
	int32_t token = 1;

	ck_assert_int_eq(moetrace_llama_open(NULL, 0, &recorder), MOETRACE_E_INVALID);
	ck_assert_int_eq(moetrace_llama_open(NULL, 4, NULL), MOETRACE_E_INVALID);
	ck_assert_int_eq(moetrace_llama_open(NULL, 4, &recorder), MOETRACE_OK);
	ck_assert_int_eq(moetrace_llama_request_begin(recorder, -1, NULL, 1), MOETRACE_E_INVALID);
	ck_assert_int_eq(moetrace_llama_request_begin(recorder, 256, NULL, 1), MOETRACE_E_INVALID);
	ck_assert_int_eq(moetrace_llama_request_begin(NULL, 0, NULL, 1), MOETRACE_E_INVALID);
	ck_assert_uint_eq(moetrace_llama_request_end(recorder, -1, MOETRACE_REQUEST_FAILED), 0);
	/* Without a recorder it is llama_decode(); without a session, too. */
	batch.n_tokens = 1;
	batch.token = &token;
	ck_assert_int_eq(moetrace_llama_decode(NULL, &ctx, batch), 0);
	ctx.callback = moetrace_llama_callback();
	ctx.user_data = recorder;
	ck_assert_int_eq(moetrace_llama_decode(recorder, &ctx, batch), 0);
	ck_assert_int_eq(moetrace_llama_model_add(recorder, "none"), MOETRACE_E_INVALID);
	ck_assert_int_eq(moetrace_llama_decode(recorder, &ctx, batch), 0);
	ck_assert_uint_eq(ctx.n_graphs, 3);
	ck_assert_uint_eq(ctx.n_wanted, 0);
	moetrace_llama_close(recorder);
	moetrace_llama_close(NULL);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("llama");
	TCase *glue = tcase_create("glue");

	tcase_add_loop_test(glue, test_request, 0, 2);
	tcase_add_loop_test(glue, test_learning, 0, 2);
	tcase_add_test(glue, test_idle);
	tcase_add_test(glue, test_sequences);
	tcase_add_test(glue, test_batch_without_positions);
	tcase_add_test(glue, test_rows_without_an_explanation);
	tcase_add_test(glue, test_missing_layer);
	tcase_add_test(glue, test_order_of_equals);
	tcase_add_test(glue, test_prompt_of_another_sequence);
	tcase_add_test(glue, test_arguments);
	suite_add_tcase(suite, glue);
	return suite_run(suite);
}
