/* SPDX-License-Identifier: MIT */
/*
 * The findings of check --routing: what was found with its evidence, what that likely means and
 * what to do, the rows, and what was looked at, so that no finding is told from nothing to look at.
 */
#include "cli/routing.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <moetrace/status.h>

#include "common/bytes.h"

static const struct {
	const char *means;
	const char *todo;
} advice[ROUTING_N_LOOKS] = {
	[ROUTING_ID_SPACE] = {"ids were taken after the map from logical to physical experts",
			      "record before the map, or pass id_space PHYSICAL, so that ids are "
			      "mapped back; do not replay or count these ids"},
	[ROUTING_FOREIGN_IDS] =
		{"rows hold what no router wrote: stale or uninitialised entries, or a "
		 "sentinel that is not -1",
		 "look at who fills the buffer of ids for rows past the last one, and "
		 "at the number of experts told"},
	[ROUTING_DUPLICATE_IDS] =
		{"a row without enough finite scores (NaN, all minus infinity) took "
		 "its first expert again and again",
		 "look at the logits of these rows; choose k distinct experts whatever "
		 "the scores are"},
	[ROUTING_PADDING] =
		{"rows that fill up a batch went through the router: they cost weights of "
		 "experts and count in the load",
		 "mask them by a number on the device that replays of a graph read anew "
		 "(ids -1), and leave them out of counts"},
	[ROUTING_ROUTER_OUTPUT] =
		{"a fused kernel routes by itself, or the hook was bound to another "
		 "object: nothing of the layer is known, and no map was applied",
		 "take a back end that hands over ids, or record in its epilogue; with "
		 "replicas, do not use output format none"},
	[ROUTING_LAYER_SHIFT] = {"dense layers are counted on one side and not on the other",
				 "layer is the number in the model, layer_index counts layers with "
				 "experts alone; fix what was passed, or shift it when reading"},
	[ROUTING_GROUPS] =
		{"groups are not masked, are masked with 0 in place of minus infinity, or are "
		 "scored by another rule",
		 "score groups as the model does (largest without a bias, the two largest "
		 "with one), and mask the others with minus infinity"},
	[ROUTING_CHOICE] =
		{"the router chose by other numbers than those that are recorded: without the "
		 "bias, in low precision, or by another order",
		 "compare one row's logits with 'moetrace route'; keep logits and bias in "
		 "fp32 until the choice is made"},
	[ROUTING_TIE_RULE] =
		{"the top-k takes the higher id of equal scores, or has no rule",
		 "sort stably, or compare by (score, lower id); a comparison with another "
		 "engine is else of ties"},
	[ROUTING_BIASED_WEIGHTS] =
		{"weights were gathered from the scores that the bias was added to",
		 "gather them from the scores before the bias; never subtract it"},
	[ROUTING_SCORING] =
		{"another score function ran, or the weights are not what weight_kind says",
		 "compare scoring with the model's configuration (softmax before or after "
		 "the top-k, sigmoid)"},
	[ROUTING_RENORMALIZE] =
		{"weights are not divided by their sum where they should be, or are "
		 "where they should not",
		 "compare norm_topk_prob with what the router does, and weight_kind with "
		 "where weights are taken"},
	[ROUTING_NORM_SHARED] =
		{"the sum runs over all columns, the shared experts' too",
		 "divide by the sum of the routed columns, then append the shared ones"},
	[ROUTING_SCALING] = {"two places apply routed_scaling_factor, or none does",
			     "give it one owner: the router's weights or the output; then tell "
			     "scaling_owner and weight_kind"},
	[ROUTING_SHARED_SCALING] =
		{"the factor of the routed experts multiplies the shared ones, too",
		 "give shared slots the weight 1 after scaling: 1 / factor where the "
		 "output is scaled"},
	[ROUTING_NO_WEIGHTS] =
		{"nobody wrote these weights, they were taken before they were, or logits are "
		 "NaN or infinite",
		 "look at who fills the buffer of weights, and when it is copied; then look for "
		 "NaN in the hidden states"},
	[ROUTING_EQUAL_WEIGHTS] =
		{"routing is simulated, the router's weights were not loaded, or its "
		 "input is constant",
		 "check that the gate is loaded and is not in a dummy mode; leave such "
		 "rows out of analyses"},
	[ROUTING_RANK_MULTIPLIED] =
		{"every rank counted the same tokens, and the counts were added up",
		 "divide by the number, or let one rank of those that share tokens "
		 "count; shares of experts are right all the same"},
	[ROUTING_BLOCK_ROWS] =
		{"block_size of the KV cache was passed as the block of the GEMM",
		 "tell BLOCK_SIZE_M of the expert GEMM as gemm_block_rows; figures of "
		 "padding in blocks are wrong"},
	[ROUTING_PRESET] =
		{"another model, a changed configuration, or a router that does not follow it",
		 "compare the engine's configuration with 'moetrace models NAME'"},
};

static const struct {
	const char *name;
	const char *says;
	const char *needs;
} looks[ROUTING_N_LOOKS] = {
#define ROUTING_LOOK_ROW(identifier, name, says, needs) {name, says, needs},
	ROUTING_LOOKS(ROUTING_LOOK_ROW)
#undef ROUTING_LOOK_ROW
};

const char *routing_look_name(enum routing_look look)
{
	return looks[look].name;
}

const char *routing_look_says(enum routing_look look)
{
	return looks[look].says;
}

/* "3-60,62" */
static void layers_text(const struct routing_finding *finding, char *text, size_t size)
{
	size_t n = 0;

	text[0] = '\0';
	for (size_t i = 0; i < finding->n_layers && n < size;) {
		size_t last = i;

		while (last + 1 < finding->n_layers &&
		       finding->layers[last + 1] == finding->layers[last] + 1)
			last++;
		n += (size_t)snprintf(text + n, size - n, "%s%lld", i ? "," : "",
				      (long long)finding->layers[i]);
		if (last > i && n < size)
			n += (size_t)snprintf(text + n, size - n, "-%lld",
					      (long long)finding->layers[last]);
		i = last + 1;
	}
}

static void id_or_null(struct mt_table *table, int64_t id)
{
	if (id > 0)
		mt_table_int64(table, id);
	else
		mt_table_null(table);
}

static void finding_add(struct mt_table *table, const struct routing_finding *finding,
			size_t number)
{
	char layers[128];

	layers_text(finding, layers, sizeof(layers));
	mt_table_int64(table, (int64_t)number);
	mt_table_text(table, looks[finding->look].name);
	mt_table_text(table, finding->is_proved ? "proved" : "statistical");
	id_or_null(table, finding->recording_id);
	mt_table_int64(table, finding->model_id);
	mt_table_text(table, layers);
	mt_table_int64(table, (int64_t)finding->n_bad);
	mt_table_int64(table, (int64_t)finding->n_seen);
	mt_table_text(table, finding->rule);
	mt_table_text(table, finding->evidence);
	mt_table_text(table, advice[finding->look].means);
	mt_table_text(table, advice[finding->look].todo);
}

static int findings_print(const struct routing *routing, struct mt_output *output)
{
	static const char *const columns[] = {"number",	  "finding",  "certainty", "recording_id",
					      "model_id", "layers",   "n_bad",	   "n_seen",
					      "rule",	  "evidence", "means",	   "to_do"};
	struct mt_table table;

	if (mt_table_begin(&table, output, columns, 12) != MOETRACE_OK)
		return MOETRACE_E_NOMEM;
	for (size_t i = 0; i < routing->n_findings; i++)
		finding_add(&table, &routing->findings[i], i + 1);
	return mt_table_end(&table);
}

/* ---- rows ---- */

#define SQL_ROW                                                                              \
	"SELECT s.request_id, q.external_id, s.attempt, CASE WHEN s.positions IS NULL THEN " \
	"s.first_position + ?2 - s.row_offset END, s.positions, ?2 - s.row_offset FROM "     \
	"pass_request AS s LEFT JOIN request AS q USING (request_id) WHERE s.pass_id = ?1 "  \
	"AND s.row_offset <= ?2 AND ?2 < s.row_offset + s.n_rows"

/* The position where positions are not consecutive: a number of the slice's blob. */
static int64_t position_in(sqlite3_stmt *stmt)
{
	const uint8_t *p = sqlite3_column_blob(stmt, 4);
	const int64_t at = sqlite3_column_int64(stmt, 5);

	if (!p || at < 0 || sqlite3_column_bytes(stmt, 4) < 4 * (at + 1))
		return -1;
	return mt_u32_at(p + 4 * at);
}

/* Whose row it is, as far as it is one of a request. */
static void owner_add(struct mt_table *table, sqlite3_stmt *stmt, bool has_row)
{
	if (!has_row || sqlite3_column_type(stmt, 0) == SQLITE_NULL) {
		mt_table_null(table);
		mt_table_null(table);
		mt_table_null(table);
		return;
	}
	mt_table_int64(table, sqlite3_column_int64(stmt, 0));
	if (sqlite3_column_type(stmt, 1) == SQLITE_TEXT)
		mt_table_text(table, (const char *)sqlite3_column_text(stmt, 1));
	else
		mt_table_null(table);
	if (sqlite3_column_type(stmt, 4) == SQLITE_BLOB && position_in(stmt) >= 0)
		mt_table_int64(table, position_in(stmt));
	else if (sqlite3_column_type(stmt, 3) == SQLITE_INTEGER)
		mt_table_int64(table, sqlite3_column_int64(stmt, 3));
	else
		mt_table_null(table);
}

static int row_add(const struct routing *routing, struct mt_table *table, sqlite3_stmt *stmt,
		   size_t number, size_t i)
{
	const struct routing_finding *finding = &routing->findings[number];
	const struct routing_example *example = &finding->examples[i];
	int rc;

	sqlite3_reset(stmt);
	sqlite3_bind_int64(stmt, 1, example->pass_id);
	sqlite3_bind_int64(stmt, 2, example->row);
	rc = sqlite3_step(stmt);
	if (rc != SQLITE_ROW && rc != SQLITE_DONE)
		return MOETRACE_E_IO;
	mt_table_int64(table, (int64_t)number + 1);
	mt_table_int64(table, example->pass_id);
	mt_table_int64(table, finding->example_layers[i]);
	mt_table_int64(table, example->row);
	owner_add(table, stmt, rc == SQLITE_ROW);
	mt_table_text(table, example->text);
	return MOETRACE_OK;
}

static int rows_print(const struct routing *routing, struct mt_output *output)
{
	static const char *const columns[] = {"number",	    "pass_id",	   "layer",    "row",
					      "request_id", "external_id", "position", "stored"};
	sqlite3_stmt *stmt = mt_trace_prepare(routing->trace, SQL_ROW);
	int status = stmt ? MOETRACE_OK : MOETRACE_E_IO;
	struct mt_table table;

	if (status == MOETRACE_OK)
		status = mt_table_begin(&table, output, columns, 8);
	if (status != MOETRACE_OK) {
		sqlite3_finalize(stmt);
		return status;
	}
	for (size_t f = 0; f < routing->n_findings; f++)
		for (size_t i = 0; i < ROUTING_N_EXAMPLES && status == MOETRACE_OK; i++)
			if (routing->findings[f].examples[i].text)
				status = row_add(routing, &table, stmt, f, i);
	sqlite3_finalize(stmt);
	return mt_table_end(&table) == MOETRACE_OK ? status : MOETRACE_E_NOMEM;
}

/* ---- what was looked at ---- */

static int looks_print(const struct routing *routing, struct mt_output *output)
{
	static const char *const columns[] = {"look", "n_seen", "n_findings", "looks_for", "needs"};
	struct mt_table table;

	if (mt_table_begin(&table, output, columns, 5) != MOETRACE_OK)
		return MOETRACE_E_NOMEM;
	for (size_t look = 0; look < ROUTING_N_LOOKS; look++) {
		int64_t n = 0;

		for (size_t i = 0; i < routing->n_findings; i++)
			n += routing->findings[i].look == look;
		mt_table_text(&table, looks[look].name);
		mt_table_int64(&table, (int64_t)routing->n_seen[look]);
		mt_table_int64(&table, n);
		mt_table_text(&table, looks[look].says);
		mt_table_text(&table, looks[look].needs);
	}
	return mt_table_end(&table);
}

static void verdict_print(const struct routing *routing, struct mt_output *output)
{
	size_t n_proved = 0;

	for (size_t i = 0; i < routing->n_findings; i++)
		n_proved += routing->findings[i].is_proved;
	if (routing->n_findings == 0)
		mt_output_line(output, "%s: no routing fault was found", routing->trace->path);
	else
		mt_output_line(output, "%s: %zu routing faults: %zu proved, %zu statistical",
			       routing->trace->path, routing->n_findings, n_proved,
			       routing->n_findings - n_proved);
}

static bool has_rows(const struct routing *routing)
{
	for (size_t i = 0; i < routing->n_findings; i++)
		if (routing->findings[i].examples[0].text)
			return true;
	return false;
}

/* What was found comes first; programs get every section, empty ones, too. */
static int sections_print(const struct routing *routing, struct mt_output *output)
{
	const bool is_data = output->format == MT_FORMAT_JSON;
	int status = MOETRACE_OK;

	mt_output_sections(output);
	if (is_data || routing->n_findings > 0) {
		mt_output_section(output, "findings", "Findings");
		output->is_vertical = true;
		status = findings_print(routing, output);
		output->is_vertical = false;
	}
	if (status == MOETRACE_OK && (is_data || has_rows(routing))) {
		mt_output_section(output, "rows", "The first rows of the findings");
		status = rows_print(routing, output);
	}
	mt_output_section(output, "looks", "What was looked at");
	if (status == MOETRACE_OK)
		status = looks_print(routing, output);
	mt_output_line(output, "%s", "");
	verdict_print(routing, output);
	return status;
}

int routing_print(const struct routing *routing, enum mt_format format)
{
	struct mt_output output;
	int status;

	mt_output_begin(&output, stdout, format);
	if (format == MT_FORMAT_CSV || format == MT_FORMAT_JSONL)
		status = findings_print(routing, &output);
	else
		status = sections_print(routing, &output);
	return mt_output_end(&output) == MOETRACE_OK && status == MOETRACE_OK ? MT_EXIT_OK
									      : MT_EXIT_FAILED;
}
