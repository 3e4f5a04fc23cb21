/* SPDX-License-Identifier: MIT */
/*
 * The experts of one request, on the three ways that they travel. All print [positions][layers][k]
 * as JSON, null where nothing is known of a position and layer.
 *
 *   request_experts FILE REQUEST          out of a trace, by SQL: SQLite alone is enough for it
 *   request_experts --answer FILE         what an engine does that returns experts with its answer,
 *                                         as SGLang does with return_routed_experts: it records a
 *                                         request, asks the session for its experts, prints them on
 *                                         standard error, and the answer on standard output
 *   request_experts --response LAYERS K   out of such an answer on standard input: what its client
 *                                         does
 *
 * REQUEST is the runtime's own id (moetrace_request_info.external_id), or a request_id. Positions
 * that the request computed and those that it took from a prefix cache are printed alike; of a
 * request that was computed more than once, the last attempt.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <sqlite3.h>

#include <moetrace/moetrace.h>

/* ---- out of a trace ---- */

/* In a file with several recordings, or ids that are used again: the latest of that name. */
static const char find_request[] =
	"SELECT request_id, n_attempts - 1, n_positions FROM request"
	" WHERE external_id = ?1 OR CAST(request_id AS TEXT) = ?1"
	" ORDER BY external_id IS NULL OR external_id <> ?1, request_id DESC LIMIT 1";

/* Draft models have rows of the request, too: what counts is the model it is answered by. */
static const char find_layers[] = "SELECT layer_id FROM layer WHERE model_id ="
				  " (SELECT min(model_id) FROM token_topk WHERE request_id = ?1"
				  "  AND state IN ('computed', 'reused')) ORDER BY layer";

static const char find_experts[] =
	"SELECT position, layer_id, n_valid, id_bytes, topk_ids FROM token_topk"
	" WHERE request_id = ?1 AND attempt = ?2 AND state IN ('computed', 'reused')"
	" ORDER BY position, layer_id";

struct request {
	sqlite3_int64 id;
	sqlite3_int64 attempt;
	sqlite3_int64 n_positions;
	sqlite3_int64 *layer_ids;
	int n_layers;
};

static int fail(sqlite3 *db, const char *what)
{
	fprintf(stderr, "request_experts: %s: %s\n", what, sqlite3_errmsg(db));
	return -1;
}

static int load_request(sqlite3 *db, const char *name, struct request *ret_request)
{
	sqlite3_stmt *stmt;
	int rc;

	if (sqlite3_prepare_v2(db, find_request, -1, &stmt, NULL) != SQLITE_OK)
		return fail(db, "this is not a trace");
	sqlite3_bind_text(stmt, 1, name, -1, SQLITE_STATIC);
	rc = sqlite3_step(stmt);
	if (rc == SQLITE_ROW) {
		ret_request->id = sqlite3_column_int64(stmt, 0);
		ret_request->attempt = sqlite3_column_int64(stmt, 1);
		ret_request->n_positions = sqlite3_column_int64(stmt, 2);
	}
	sqlite3_finalize(stmt);
	if (rc == SQLITE_DONE)
		fprintf(stderr, "request_experts: there is no request '%s' in this trace\n", name);
	return rc == SQLITE_ROW ? 0 : -1;
}

static int load_layers(sqlite3 *db, struct request *request)
{
	sqlite3_int64 *grown;
	sqlite3_stmt *stmt;
	int rc;

	if (sqlite3_prepare_v2(db, find_layers, -1, &stmt, NULL) != SQLITE_OK)
		return fail(db, "layers");
	sqlite3_bind_int64(stmt, 1, request->id);
	while ((rc = sqlite3_step(stmt)) == SQLITE_ROW) {
		grown = realloc(request->layer_ids,
				(size_t)(request->n_layers + 1) * sizeof(*grown));
		if (!grown)
			break;
		request->layer_ids = grown;
		request->layer_ids[request->n_layers++] = sqlite3_column_int64(stmt, 0);
	}
	sqlite3_finalize(stmt);
	return rc == SQLITE_DONE ? 0 : fail(db, "layers");
}

/* Ids are unsigned, little-endian, of one or two bytes; entries past n_valid are no experts. */
static void print_row(sqlite3_stmt *stmt)
{
	const unsigned char *ids = sqlite3_column_blob(stmt, 4);
	const int id_bytes = sqlite3_column_int(stmt, 3);
	const int n_stored =
		id_bytes == 1 || id_bytes == 2 ? sqlite3_column_bytes(stmt, 4) / id_bytes : 0;
	int n_valid = sqlite3_column_int(stmt, 2), i;

	if (n_valid > n_stored)
		n_valid = n_stored;
	putchar('[');
	for (i = 0; i < n_valid; i++)
		printf("%s%d", i ? "," : "",
		       id_bytes == 1 ? ids[i] : ids[2 * i] + 256 * ids[2 * i + 1]);
	putchar(']');
}

/* Whether the statement's current row is of this position and layer. */
static int is_at(sqlite3_stmt *stmt, int rc, sqlite3_int64 position, sqlite3_int64 layer_id)
{
	return rc == SQLITE_ROW && sqlite3_column_int64(stmt, 0) == position &&
	       sqlite3_column_int64(stmt, 1) == layer_id;
}

/* Both the rows and the loops ascend by position and layer, so that one walk is enough. */
static int print_experts(sqlite3 *db, const struct request *request)
{
	sqlite3_int64 position;
	sqlite3_stmt *stmt;
	int rc, i;

	if (sqlite3_prepare_v2(db, find_experts, -1, &stmt, NULL) != SQLITE_OK)
		return fail(db, "experts");
	sqlite3_bind_int64(stmt, 1, request->id);
	sqlite3_bind_int64(stmt, 2, request->attempt);
	rc = sqlite3_step(stmt);
	putchar('[');
	for (position = 0; position < request->n_positions; position++) {
		printf("%s[", position ? ",\n " : "");
		for (i = 0; i < request->n_layers; i++) {
			fputs(i ? "," : "", stdout);
			if (!is_at(stmt, rc, position, request->layer_ids[i])) {
				fputs("null", stdout);
				continue;
			}
			print_row(stmt);
			rc = sqlite3_step(stmt);
		}
		putchar(']');
	}
	puts("]");
	sqlite3_finalize(stmt);
	return rc == SQLITE_DONE || rc == SQLITE_ROW ? 0 : fail(db, "experts");
}

static int print_traced(const char *path, const char *name)
{
	struct request request = {0, 0, 0, NULL, 0};
	int result = -1;
	sqlite3 *db = NULL;

	if (sqlite3_open_v2(path, &db, SQLITE_OPEN_READONLY, NULL) != SQLITE_OK)
		fail(db, path);
	else if (!load_request(db, name, &request) && !load_layers(db, &request))
		result = print_experts(db, &request);
	free(request.layer_ids);
	sqlite3_close(db);
	return result;
}

/* ---- the engine ---- */

enum { N_LAYERS = 4, FIRST_MOE_LAYER = 1, N_EXPERTS = 8, TOP_K = 2, N_PROMPT = 5, N_ANSWER = 4 };

static uint32_t add_model(struct moetrace_session *session)
{
	struct moetrace_layer_info layers[N_LAYERS - FIRST_MOE_LAYER];
	struct moetrace_model_info info;
	uint32_t model = 0, i;

	for (i = 0; i < N_LAYERS - FIRST_MOE_LAYER; i++) {
		MOETRACE_INIT(&layers[i]);
		layers[i].layer = FIRST_MOE_LAYER + i;
		layers[i].n_experts = N_EXPERTS;
		layers[i].top_k = TOP_K;
	}
	MOETRACE_INIT(&info);
	info.name = "first-layer-dense";
	info.n_layers = N_LAYERS;
	info.layers = layers;
	info.n_moe_layers = N_LAYERS - FIRST_MOE_LAYER;
	return moetrace_model_add(session, &info, &model) == MOETRACE_OK ? model : 0;
}

/* A forward pass; a router that looks at nothing but the position takes the place of the model. */
static void forward(struct moetrace_session *session, uint32_t model, uint64_t request,
		    uint32_t first_position, uint32_t n_rows)
{
	int32_t ids[N_PROMPT][TOP_K];
	struct moetrace_selection selection;
	struct moetrace_pass_info info;
	struct moetrace_slice slice;
	struct moetrace_pass *pass;
	uint32_t row;

	memset(&slice, 0, sizeof(slice));
	slice.request = request;
	slice.first_position = first_position;
	slice.n_rows = n_rows;
	slice.phase = first_position == 0 ? MOETRACE_PHASE_PREFILL : MOETRACE_PHASE_DECODE;
	MOETRACE_INIT(&info);
	info.model = model;
	info.phase = slice.phase;
	info.n_rows = n_rows;
	info.slices = &slice;
	info.n_slices = 1;
	pass = moetrace_pass_begin(session, &info);
	MOETRACE_INIT(&selection);
	selection.n_rows = n_rows;
	selection.id_type = MOETRACE_TYPE_I32;
	selection.ids = ids;
	for (; selection.layer_index < N_LAYERS - FIRST_MOE_LAYER; selection.layer_index++) {
		for (row = 0; row < n_rows; row++) {
			uint32_t position = first_position + row;

			ids[row][0] = (int32_t)((position * 5 + selection.layer_index * 3) %
						N_EXPERTS);
			ids[row][1] = (int32_t)((uint32_t)ids[row][0] + 1 + position % 7) %
				      N_EXPERTS;
		}
		moetrace_select_experts(pass, &selection);
	}
	moetrace_pass_end(pass);
}

/* Each position and layer has a state: only of some does it have experts. */
static void print_known(const struct moetrace_routed_experts *experts)
{
	const int32_t *ids = (const int32_t *)experts->ids;
	const uint32_t n = experts->n_positions * experts->n_layers;
	uint32_t i, j;

	for (i = 0; i < n; i++) {
		fputs(i == 0 ? "[[" : i % experts->n_layers ? "," : "],\n [", stderr);
		if (experts->states[i] > MOETRACE_ROW_REUSED) {
			fputs("null", stderr);
			continue;
		}
		for (j = 0; j < experts->k; j++)
			fprintf(stderr, "%s%d", j ? "," : "[", ids[i * experts->k + j]);
		fputc(']', stderr);
	}
	fputs(n ? "]]\n" : "[]\n", stderr);
}

/* SGLang's form: all layers of the model, int32, base64; dense layers are zeros. */
static int answer(struct moetrace_session *session, uint64_t request)
{
	struct moetrace_routed_experts_opts opts;
	struct moetrace_routed_experts *experts;
	int status;

	status = moetrace_request_routed_experts(session, request, NULL, &experts);
	if (status == MOETRACE_OK)
		print_known(experts);
	moetrace_routed_experts_free(experts);
	if (status != MOETRACE_OK)
		return status;
	MOETRACE_INIT(&opts);
	opts.layers = MOETRACE_EXPERTS_ALL_LAYERS;
	opts.base64 = 1;
	status = moetrace_request_routed_experts(session, request, &opts, &experts);
	if (status == MOETRACE_OK)
		printf("{\"text\":\"...\",\"meta_info\":{\"id\":\"answer\","
		       "\"routed_experts\":\"%s\"}}\n", experts->base64);
	moetrace_routed_experts_free(experts);
	return status;
}

static int serve(const char *path)
{
	struct moetrace_request_info info;
	struct moetrace_session *session;
	uint32_t model, position;
	uint64_t request;
	int status = moetrace_session_open(path, NULL, &session);

	if (status != MOETRACE_OK) {
		fprintf(stderr, "request_experts: %s\n", moetrace_open_errmsg());
		return -1;
	}
	model = add_model(session);
	status = moetrace_start(session, NULL);
	MOETRACE_INIT(&info);
	info.external_id = "answer";
	info.prompt_positions = N_PROMPT;
	if (status == MOETRACE_OK)
		status = moetrace_request_begin(session, &info, &request);
	if (status == MOETRACE_OK) {
		forward(session, model, request, 0, N_PROMPT);
		for (position = N_PROMPT; position < N_PROMPT + N_ANSWER - 1; position++)
			forward(session, model, request, position, 1);
		status = answer(session, request);
		moetrace_request_end(session, request, MOETRACE_REQUEST_FINISHED, position);
	}
	if (status != MOETRACE_OK)
		fprintf(stderr, "request_experts: %s\n", moetrace_status_string(status));
	return moetrace_session_close(session) == MOETRACE_OK && status == MOETRACE_OK ? 0 : -1;
}

/* ---- the engine's client ---- */

/* The value of a base64 digit; -1: none. */
static int digit(int c)
{
	static const char digits[] =
		"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
	const char *at = c ? strchr(digits, c) : NULL;

	return at ? (int)(at - digits) : -1;
}

/* Decode in place up to the quote behind it; the number of bytes. */
static size_t decode(char *text)
{
	uint32_t bits = 0;
	size_t n = 0, i;
	int n_bits = 0;

	for (i = 0; digit(text[i]) >= 0; i++) {
		bits = bits << 6 | (uint32_t)digit(text[i]);
		n_bits += 6;
		if (n_bits >= 8) {
			n_bits -= 8;
			text[n++] = (char)(bits >> n_bits & 255);
		}
	}
	return n;
}

/* An answer says neither layers nor k nor positions: a client must know the first two. */
static int print_response(uint32_t n_layers, uint32_t k)
{
	static const char key[] = "\"routed_experts\":\"";
	static char line[1 << 20];
	size_t n, i;
	char *at;

	at = fgets(line, sizeof(line), stdin) ? strstr(line, key) : NULL;
	if (!at) {
		fputs("request_experts: no answer with routed_experts\n", stderr);
		return -1;
	}
	at += sizeof(key) - 1;
	n = decode(at) / 4;
	if (n_layers == 0 || k == 0 || n % ((size_t)n_layers * k) != 0) {
		fprintf(stderr, "request_experts: %lu ids are no rows of %u layers x %u\n",
			(unsigned long)n, n_layers, k);
		return -1;
	}
	for (i = 0; i < n; i++) {
		const unsigned char *id = (const unsigned char *)at + 4 * i;

		fputs(i == 0 ? "[[[" : i % ((size_t)n_layers * k) == 0 ? "]],\n [["
				     : i % k == 0 ? "],[" : ",", stdout);
		printf("%d", (int)((uint32_t)id[0] | (uint32_t)id[1] << 8 |
				   (uint32_t)id[2] << 16 | (uint32_t)id[3] << 24));
	}
	puts(n ? "]]]" : "[]");
	return 0;
}

static int usage(void)
{
	fputs("usage: request_experts FILE REQUEST\n"
	      "       request_experts --answer FILE\n"
	      "       request_experts --response LAYERS K <ANSWER\n",
	      stderr);
	return 2;
}

int main(int argc, char **argv)
{
	int result = 0;

	if (argc == 4 && strcmp(argv[1], "--response") == 0)
		result = print_response((uint32_t)strtoul(argv[2], NULL, 10),
					(uint32_t)strtoul(argv[3], NULL, 10));
	else if (argc == 3 && strcmp(argv[1], "--answer") == 0)
		result = serve(argv[2]);
	else if (argc == 3)
		result = print_traced(argv[1], argv[2]);
	else
		result = usage();
	if (result > 0)
		return result;
	return result == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
