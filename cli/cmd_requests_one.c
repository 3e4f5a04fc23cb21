/* SPDX-License-Identifier: MIT */
/*
 * One request, token by token and layer by layer. The rows of routed_expert come in the order of
 * the output; experts of one row and layer are gathered, and written when the next one begins. In
 * JSON a token stays open until a row of another token comes.
 */
#include "cli/cmd_requests.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include <moetrace/status.h>

/* Columns of SQL_ROWS. */
enum column {
	COL_POSITION,
	COL_TOKEN,
	COL_PASS,
	COL_ROW,
	COL_PHASE,
	COL_STATE,
	COL_LAYER_ID,
	COL_LAYER,
	COL_TOPK_RANK,
	COL_EXPERT,
	COL_WEIGHT,
};

/* ?1 request, ?2 attempt, ?3 layer or NULL, ?4 and ?5 positions or NULL. */
#define SQL_ROWS                                                                                   \
	"SELECT e.position, t.token_id, e.pass_id, e.row, e.phase, e.state, e.layer_id, e.layer, " \
	"e.topk_rank, e.expert, e.weight FROM routed_expert AS e "                                 \
	"LEFT JOIN request_token AS t ON t.request_id = e.request_id AND t.position = e.position " \
	"WHERE e.request_id = ?1 AND e.attempt = ?2 AND (?3 IS NULL OR e.layer = ?3) "             \
	"AND (?4 IS NULL OR e.position BETWEEN ?4 AND ?5) "                                        \
	"ORDER BY e.position, e.pass_id, e.row, e.layer_id, e.topk_rank"

#define SQL_REQUEST                                                                               \
	"SELECT s.request_id, s.recording_id, s.external_id, s.prompt_positions, s.n_positions, " \
	"s.n_attempts, s.n_passes, s.n_rows, s.prefill_rows, s.decode_rows, s.queue_ns, "         \
	"s.duration_ns, s.end_state, s.verdict, s.reasons FROM request_summary AS s "             \
	"WHERE s.request_id = ?1"

#define MAX_K 255

struct one {
	const struct mt_trace *trace;
	const struct requests_args *args;
	struct mt_output output;
	struct mt_table table; /* in the formats table and csv */
	int64_t request_id;
	int64_t attempt;
	bool are_bytes; /* all tokens of the request are: shown as text, too */
	bool in_token;

	/* Of the row and layer that are being gathered. */
	int64_t position;
	int64_t token; /* -1: not recorded */
	int64_t pass_id;
	int64_t row;
	int64_t layer_id;
	int64_t layer;
	char state[16];
	char phase[16];
	size_t n_experts;
	int64_t experts[MAX_K];
	double weights[MAX_K];
	bool has_weight[MAX_K];
};

static bool is_json(const struct one *one)
{
	return one->output.format == MT_FORMAT_JSON || one->output.format == MT_FORMAT_JSONL;
}

/* ---- a token as text ---- */

/* The character of a byte that is ASCII; NULL: it is not, or tokens are no bytes. */
static const char *token_text(const struct one *one, char text[2])
{
	if (!one->are_bytes || one->token < 0 || one->token > 0x7f)
		return NULL;
	text[0] = (char)one->token;
	text[1] = '\0';
	return text;
}

/* ---- JSON ---- */

static void json_token_begin(struct one *one)
{
	struct mt_jsonw *json = &one->output.json;
	char text[2];
	const char *character = token_text(one, text);

	mt_jsonw_object_begin(json);
	mt_jsonw_key(json, "position");
	mt_jsonw_int64(json, one->position);
	mt_jsonw_key(json, "token");
	if (one->token >= 0)
		mt_jsonw_int64(json, one->token);
	else
		mt_jsonw_null(json);
	if (one->are_bytes) {
		mt_jsonw_key(json, "text");
		if (character)
			mt_jsonw_bytes(json, character, 1);
		else
			mt_jsonw_null(json);
	}
	mt_jsonw_key(json, "pass_id");
	mt_jsonw_int64(json, one->pass_id);
	mt_jsonw_key(json, "row");
	mt_jsonw_int64(json, one->row);
	mt_jsonw_key(json, "phase");
	mt_jsonw_string(json, one->phase);
	mt_jsonw_key(json, "state");
	mt_jsonw_string(json, one->state);
	mt_jsonw_key(json, "layers");
	mt_jsonw_array_begin(json);
	one->in_token = true;
}

static void json_token_end(struct one *one)
{
	if (!one->in_token)
		return;
	mt_jsonw_array_end(&one->output.json);
	mt_jsonw_object_end(&one->output.json);
	if (one->output.format == MT_FORMAT_JSONL)
		(void)mt_jsonw_end_line(&one->output.json);
	one->in_token = false;
}

static void json_layer_write(struct one *one)
{
	struct mt_jsonw *json = &one->output.json;
	size_t i;

	mt_jsonw_object_begin(json);
	mt_jsonw_key(json, "layer");
	mt_jsonw_int64(json, one->layer);
	mt_jsonw_key(json, "experts");
	mt_jsonw_array_begin(json);
	for (i = 0; i < one->n_experts; i++)
		mt_jsonw_int64(json, one->experts[i]);
	mt_jsonw_array_end(json);
	mt_jsonw_key(json, "weights");
	mt_jsonw_array_begin(json);
	for (i = 0; i < one->n_experts; i++) {
		if (one->has_weight[i])
			mt_jsonw_double(json, one->weights[i]);
		else
			mt_jsonw_null(json);
	}
	mt_jsonw_array_end(json);
	mt_jsonw_object_end(json);
}

/* ---- table and CSV ---- */

static void token_cell(struct one *one)
{
	char text[2];
	const char *character = token_text(one, text);

	if (character && *character)
		mt_table_text(&one->table, character);
	else if (one->token >= 0)
		mt_table_int64(&one->table, one->token);
	else
		mt_table_null(&one->table);
}

static void table_layer_write(struct one *one)
{
	char experts[MAX_K * 8 + 1] = "";
	char weights[MAX_K * 16 + 1] = "";
	size_t at_expert = 0;
	size_t at_weight = 0;
	bool has_weights = false;
	size_t i;

	for (i = 0; i < one->n_experts; i++) {
		has_weights = has_weights || one->has_weight[i];
		at_expert += (size_t)sprintf(experts + at_expert, "%s%5" PRIu16, i ? " " : "",
					     (uint16_t)one->experts[i]);
		at_weight += (size_t)(one->has_weight[i]
					      ? sprintf(weights + at_weight, "%s%.4g", i ? " " : "",
							one->weights[i])
					      : sprintf(weights + at_weight, "%s-", i ? " " : ""));
	}
	mt_table_int64(&one->table, one->position);
	token_cell(one);
	mt_table_int64(&one->table, one->pass_id);
	mt_table_text(&one->table, one->state);
	mt_table_int64(&one->table, one->layer);
	mt_table_text(&one->table, experts);
	mt_table_text(&one->table, has_weights ? weights : NULL);
}

static void csv_layer_write(struct one *one)
{
	size_t i;

	for (i = 0; i < one->n_experts; i++) {
		mt_table_int64(&one->table, one->position);
		if (one->token >= 0)
			mt_table_int64(&one->table, one->token);
		else
			mt_table_null(&one->table);
		mt_table_int64(&one->table, one->pass_id);
		mt_table_text(&one->table, one->state);
		mt_table_int64(&one->table, one->layer);
		mt_table_int64(&one->table, (int64_t)i);
		mt_table_int64(&one->table, one->experts[i]);
		if (one->has_weight[i])
			mt_table_double(&one->table, one->weights[i]);
		else
			mt_table_null(&one->table);
	}
}

/* ---- gathering ---- */

static void layer_flush(struct one *one)
{
	if (one->n_experts == 0)
		return;
	if (is_json(one))
		json_layer_write(one);
	else if (one->output.format == MT_FORMAT_CSV)
		csv_layer_write(one);
	else
		table_layer_write(one);
	one->n_experts = 0;
}

static void word_copy(char *to, size_t size, const unsigned char *from)
{
	snprintf(to, size, "%s", from ? (const char *)from : "");
}

static void row_take(struct one *one, sqlite3_stmt *stmt)
{
	bool is_new_token = !one->in_token ||
			    one->position != sqlite3_column_int64(stmt, COL_POSITION) ||
			    one->pass_id != sqlite3_column_int64(stmt, COL_PASS) ||
			    one->row != sqlite3_column_int64(stmt, COL_ROW);

	if (is_new_token || one->layer_id != sqlite3_column_int64(stmt, COL_LAYER_ID))
		layer_flush(one);
	if (is_new_token) {
		if (is_json(one))
			json_token_end(one);
		one->position = sqlite3_column_int64(stmt, COL_POSITION);
		one->token = sqlite3_column_type(stmt, COL_TOKEN) == SQLITE_INTEGER
				     ? sqlite3_column_int64(stmt, COL_TOKEN)
				     : -1;
		one->pass_id = sqlite3_column_int64(stmt, COL_PASS);
		one->row = sqlite3_column_int64(stmt, COL_ROW);
		word_copy(one->phase, sizeof(one->phase), sqlite3_column_text(stmt, COL_PHASE));
		word_copy(one->state, sizeof(one->state), sqlite3_column_text(stmt, COL_STATE));
		if (is_json(one))
			json_token_begin(one);
		one->in_token = true;
	}
	one->layer_id = sqlite3_column_int64(stmt, COL_LAYER_ID);
	one->layer = sqlite3_column_int64(stmt, COL_LAYER);
	if (one->n_experts == MAX_K)
		return;
	one->experts[one->n_experts] = sqlite3_column_int64(stmt, COL_EXPERT);
	one->weights[one->n_experts] = sqlite3_column_double(stmt, COL_WEIGHT);
	one->has_weight[one->n_experts++] = sqlite3_column_type(stmt, COL_WEIGHT) != SQLITE_NULL;
}

static void rows_bind(const struct one *one, sqlite3_stmt *stmt)
{
	const struct requests_args *args = one->args;

	sqlite3_bind_int64(stmt, 1, one->request_id);
	sqlite3_bind_int64(stmt, 2, one->attempt);
	if (args->has_layer)
		sqlite3_bind_int64(stmt, 3, (int64_t)args->layer);
	if (args->has_positions) {
		sqlite3_bind_int64(stmt, 4, (int64_t)args->first_position);
		sqlite3_bind_int64(stmt, 5, (int64_t)args->last_position);
	}
}

/* Print every row; *ret_n_rows counts those of the view. */
static int rows_print(struct one *one, uint64_t *ret_n_rows)
{
	sqlite3_stmt *stmt = mt_trace_prepare(one->trace, SQL_ROWS);
	uint64_t n_rows = 0;
	int status = MT_EXIT_OK;
	int rc;

	if (!stmt)
		return MT_EXIT_FAILED;
	rows_bind(one, stmt);
	for (; (rc = sqlite3_step(stmt)) == SQLITE_ROW; n_rows++)
		row_take(one, stmt);
	layer_flush(one);
	if (is_json(one))
		json_token_end(one);
	if (rc != SQLITE_DONE)
		status = mt_trace_error(one->trace);
	sqlite3_finalize(stmt);
	*ret_n_rows = n_rows;
	return status;
}

/* ---- the request itself ---- */

static void json_value(struct mt_jsonw *json, sqlite3_stmt *stmt, int column)
{
	mt_jsonw_key(json, sqlite3_column_name(stmt, column));
	if (sqlite3_column_type(stmt, column) == SQLITE_INTEGER)
		mt_jsonw_int64(json, sqlite3_column_int64(stmt, column));
	else if (sqlite3_column_type(stmt, column) == SQLITE_NULL)
		mt_jsonw_null(json);
	else
		mt_jsonw_string(json, (const char *)sqlite3_column_text(stmt, column));
}

static int request_json(struct one *one, sqlite3_stmt *request, sqlite3_stmt *attributes)
{
	struct mt_jsonw *json = &one->output.json;
	int status;
	int i;

	mt_jsonw_key(json, "request");
	mt_jsonw_object_begin(json);
	for (i = 0; i < sqlite3_column_count(request); i++)
		json_value(json, request, i);
	mt_jsonw_key(json, "attempt");
	mt_jsonw_int64(json, one->attempt);
	mt_jsonw_key(json, "attributes");
	status = mt_requests_attributes_json(one->trace, attributes, one->request_id, json);
	mt_jsonw_object_end(json);
	return status;
}

static int request_table(struct one *one, sqlite3_stmt *request, sqlite3_stmt *attributes)
{
	char text[MT_ATTRIBUTES_BYTES];
	int status;
	int i;

	status = mt_requests_attributes_text(one->trace, attributes, one->request_id, text);
	for (i = 0; i < sqlite3_column_count(request); i++) {
		const char *name = sqlite3_column_name(request, i);
		size_t length = strlen(name);

		if (sqlite3_column_type(request, i) == SQLITE_NULL)
			continue;
		if (length > 3 && strcmp(name + length - 3, "_ns") == 0)
			mt_output_line(&one->output, "%.*s_ms: %.3f", (int)length - 3, name,
				       sqlite3_column_double(request, i) / 1e6);
		else
			mt_output_line(&one->output, "%s: %s", name,
				       (const char *)sqlite3_column_text(request, i));
	}
	if (text[0])
		mt_output_line(&one->output, "attributes: %s", text);
	mt_output_line(&one->output, "attempt: %" PRId64 "\n", one->attempt);
	return status;
}

/* Read the request and print it in the formats that have a place for it. */
static int request_print(struct one *one)
{
	sqlite3_stmt *request = mt_trace_prepare(one->trace, SQL_REQUEST);
	sqlite3_stmt *attributes = mt_requests_attributes_prepare(one->trace);
	int status = MT_EXIT_FAILED;

	if (!request || !attributes)
		goto out;
	sqlite3_bind_int64(request, 1, one->request_id);
	if (sqlite3_step(request) != SQLITE_ROW) {
		mt_trace_error(one->trace);
		goto out;
	}
	if (one->output.format == MT_FORMAT_JSON)
		status = request_json(one, request, attributes);
	else if (one->output.format == MT_FORMAT_TABLE)
		status = request_table(one, request, attributes);
	else
		status = MT_EXIT_OK;
out:
	sqlite3_finalize(request);
	sqlite3_finalize(attributes);
	return status;
}

/* The last attempt, unless one is named; and whether the tokens are bytes. */
static int facts_read(struct one *one)
{
	sqlite3_stmt *stmt;
	uint64_t recording_id;
	int64_t n_attempts;

	stmt = mt_trace_prepare(one->trace, "SELECT n_attempts, (SELECT max(token_id) < 256 AND "
					    "min(token_id) >= 0 FROM request_token), recording_id FROM "
					    "request WHERE request_id = ?1");
	if (!stmt)
		return MT_EXIT_FAILED;
	sqlite3_bind_int64(stmt, 1, one->request_id);
	if (sqlite3_step(stmt) != SQLITE_ROW) {
		mt_trace_error(one->trace);
		sqlite3_finalize(stmt);
		return MT_EXIT_FAILED;
	}
	n_attempts = sqlite3_column_int64(stmt, 0);
	recording_id = (uint64_t)sqlite3_column_int64(stmt, 2);
	one->are_bytes = sqlite3_column_int(stmt, 1) != 0;
	sqlite3_finalize(stmt);
	if (mt_trace_mode_check(one->trace, recording_id, "per_token", "one request's experts") !=
	    MT_EXIT_OK)
		return MT_EXIT_FAILED;
	one->attempt = one->args->has_attempt ? (int64_t)one->args->attempt : n_attempts - 1;
	if (one->attempt < n_attempts)
		return MT_EXIT_OK;
	mt_error("%s: request @%" PRId64 " has attempts 0 to %" PRId64 ", not %" PRId64,
		 one->trace->path, one->request_id, n_attempts - 1, one->attempt);
	return MT_EXIT_NOT_FOUND;
}

/* Read two numbers; NULL: there are none, and *ret_first is above *ret_last. */
static int range_read(const struct one *one, const char *sql, int64_t *ret_first, int64_t *ret_last,
		      bool *ret_has)
{
	sqlite3_stmt *stmt = mt_trace_prepare(one->trace, sql);
	int rc;

	if (!stmt)
		return MT_EXIT_FAILED;
	sqlite3_bind_int64(stmt, 1, one->request_id);
	sqlite3_bind_int64(stmt, 2, one->attempt);
	sqlite3_bind_int64(stmt, 3, (int64_t)one->args->layer);
	rc = sqlite3_step(stmt);
	if (rc != SQLITE_ROW) {
		sqlite3_finalize(stmt);
		return mt_trace_error(one->trace);
	}
	*ret_first = sqlite3_column_int64(stmt, 0);
	*ret_last =
		sqlite3_column_type(stmt, 1) == SQLITE_NULL ? -1 : sqlite3_column_int64(stmt, 1);
	*ret_has = sqlite3_column_int(stmt, 2) != 0;
	sqlite3_finalize(stmt);
	return MT_EXIT_OK;
}

/* ?1 request, ?2 attempt, ?3 layer. Layers of the models that computed the request. */
#define SQL_LAYER_RANGE                                                                      \
	"SELECT min(l.layer), max(l.layer), max(l.layer = ?3) FROM layer AS l WHERE EXISTS " \
	"(SELECT 1 FROM pass_request AS pr JOIN pass AS p USING (pass_id) "                  \
	"WHERE pr.request_id = ?1 AND pr.attempt = ?2 AND p.model_id = l.model_id)"

#define SQL_POSITION_RANGE                                                              \
	"SELECT min(position), max(position), 0 FROM token_topk WHERE request_id = ?1 " \
	"AND attempt = ?2"

/* A layer or positions outside of what the request has are not found. */
static int ranges_check(const struct one *one)
{
	const struct requests_args *args = one->args;
	int64_t first;
	int64_t last;
	bool has_it;
	int status = MT_EXIT_OK;

	if (args->has_layer)
		status = range_read(one, SQL_LAYER_RANGE, &first, &last, &has_it);
	if (args->has_layer && status == MT_EXIT_OK && first <= last && !has_it) {
		mt_error("%s: request @%" PRId64 " has no layer %" PRIu64
			 " with experts; they are within %" PRId64 " to %" PRId64,
			 one->trace->path, one->request_id, args->layer, first, last);
		return MT_EXIT_NOT_FOUND;
	}
	if (args->has_positions && status == MT_EXIT_OK)
		status = range_read(one, SQL_POSITION_RANGE, &first, &last, &has_it);
	if (args->has_positions && status == MT_EXIT_OK && first <= last &&
	    ((int64_t)args->first_position > last || (int64_t)args->last_position < first)) {
		mt_error("%s: request @%" PRId64 " has stored positions %" PRId64 " to %" PRId64
			 ", not %" PRIu64,
			 one->trace->path, one->request_id, first, last, args->first_position);
		return MT_EXIT_NOT_FOUND;
	}
	return status;
}

static int table_open(struct one *one)
{
	static const char *const table_columns[] = {"position", "token",   "pass_id", "state",
						    "layer",	"experts", "weights"};
	static const char *const csv_columns[] = {"position", "token",	   "pass_id", "state",
						  "layer",    "topk_rank", "expert",  "weight"};
	bool is_csv = one->output.format == MT_FORMAT_CSV;

	if (mt_table_begin(&one->table, &one->output, is_csv ? csv_columns : table_columns,
			   is_csv ? 8 : 7) == MOETRACE_OK)
		return MT_EXIT_OK;
	mt_error("%s: out of memory", one->trace->path);
	return MT_EXIT_FAILED;
}

static int flat_print(struct one *one, uint64_t *ret_n_rows)
{
	int status = table_open(one);

	if (status != MT_EXIT_OK)
		return status;
	status = rows_print(one, ret_n_rows);
	if (mt_table_end(&one->table) != MOETRACE_OK && status == MT_EXIT_OK) {
		mt_error("%s: out of memory; rows are missing", one->trace->path);
		status = MT_EXIT_FAILED;
	}
	return status;
}

static int json_print(struct one *one, uint64_t *ret_n_rows)
{
	struct mt_jsonw *json = &one->output.json;
	int status;

	if (one->output.format == MT_FORMAT_JSON) {
		mt_jsonw_key(json, "tokens");
		mt_jsonw_array_begin(json);
	}
	status = rows_print(one, ret_n_rows);
	if (one->output.format == MT_FORMAT_JSON)
		mt_jsonw_array_end(json);
	return status;
}

int mt_requests_one_print(const struct mt_trace *trace, const struct requests_args *args,
			  int64_t request_id)
{
	struct one one = {.trace = trace, .args = args, .request_id = request_id};
	uint64_t n_rows = 0;
	int status;

	mt_output_begin(&one.output, stdout, args->common.format);
	status = facts_read(&one);
	if (status == MT_EXIT_OK)
		status = ranges_check(&one);
	if (status != MT_EXIT_OK)
		return status;
	mt_output_sections(&one.output);
	status = request_print(&one);
	if (status == MT_EXIT_OK)
		status = is_json(&one) ? json_print(&one, &n_rows) : flat_print(&one, &n_rows);
	if (status == MT_EXIT_OK && n_rows == 0)
		mt_warn("%s: no stored row of request @%" PRId64
			" fits; its verdict and reasons say "
			"what is missing",
			trace->path, request_id);
	if (status == MT_EXIT_OK)
		mt_output_end(&one.output);
	return status;
}
