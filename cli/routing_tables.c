/* SPDX-License-Identifier: MIT */
/*
 * Faults that tables tell without rows: padding that was routed, ids that were left out, code that
 * takes no map, and the block of the GEMM. Each statement returns, for a recording and a layer,
 * what was seen, what of it is wrong, and its words; a second one returns the rows to point at.
 * Layers that nobody wrote and numbers of layers are told of here, too.
 */
#include "cli/routing.h"

#include <stdlib.h>
#include <string.h>

/* Passes below which a layer that nobody wrote is no more than interrupted passes. */
#define LEAST_PASSES 4
/* Dense layers that models have in front of those with experts, at most. */
#define MOST_DENSE_LAYERS 8

enum column { F_RECORDING, F_LAYER, F_SEEN, F_BAD, F_EVIDENCE };

/* ?1 is the model, 0: all. */
#define OF_MODEL "(?1 = 0 OR l.model_id = ?1)"

#define SQL_PADDING                                                                          \
	"SELECT w.recording_id, w.layer_id, sum(w.padding_tokens + w.prefill_tokens + "      \
	"w.decode_tokens + w.verify_tokens + w.other_tokens), sum(w.padding_tokens), "       \
	"printf('%d assignments are of padding rows, which touched %d experts', "            \
	"sum(w.padding_tokens), count(DISTINCT iif(w.padding_tokens > 0, w.expert, NULL))) " \
	"FROM expert_load_window AS w JOIN layer AS l USING (layer_id) WHERE " OF_MODEL      \
	" GROUP BY w.recording_id, w.layer_id"
#define SQL_PADDING_ROWS                                                                      \
	"SELECT pl.pass_id, p.n_rows, printf('%d padding rows from here on; %d experts were " \
	"selected by them alone', p.padding_rows, coalesce(pl.padding_active_experts, 0)) "   \
	"FROM pass_layer AS pl JOIN pass AS p USING (pass_id) LEFT JOIN layer_load AS c "     \
	"USING (pass_id, layer_id) WHERE pl.layer_id = ?2 AND p.recording_id = ?1 "           \
	"AND (pl.padding_active_experts > 0 OR c.padding_counts IS NOT NULL) LIMIT 3"

/* The layer that stands for the recording: ids that no expert has are counted for all of them. */
#define SQL_FOREIGN(condition, words)                                                           \
	"SELECT s.recording_id, l.layer_id, a.value + s.value, s.value, printf(" words ") "     \
	"FROM stats AS s JOIN stats AS a ON a.recording_id = s.recording_id AND a.name = "      \
	"'recorded_assignments' JOIN layer AS l ON l.layer_id = (SELECT min(o.layer_id) FROM "  \
	"layer AS o WHERE o.model_id = (SELECT p.model_id FROM pass AS p WHERE p.recording_id " \
	"= s.recording_id AND p.reasons LIKE '%invalid%' LIMIT 1)) LEFT JOIN (SELECT layer_id " \
	"AS of, max(n_slots) AS n_slots FROM expert_map GROUP BY 1) AS m ON m.of = l.layer_id " \
	"WHERE s.name = 'invalid_ids' AND s.value > 0 AND " OF_MODEL " AND " condition
#define SQL_SLOTS                                                   \
	SQL_FOREIGN("m.n_slots > l.n_experts",                      \
		    "'%d entries have ids that none of %d experts " \
		    "has and %d slots have', s.value, l.n_experts, m.n_slots")
#define SQL_OTHERS                                           \
	SQL_FOREIGN("coalesce(m.n_slots, 0) <= l.n_experts", \
		    "'%d entries have ids that none "        \
		    "of %d experts has', s.value, l.n_experts")
#define SQL_FOREIGN_ROWS                                                                    \
	"SELECT pass_id, 0, 'a pass with ids that its layers do not have' FROM pass WHERE " \
	"recording_id = ?1 AND reasons LIKE '%invalid%' AND ?2 > 0 LIMIT 3"

#define SQL_NO_MAP                                                                                \
	"SELECT p.recording_id, pl.layer_id, count(*), count(*), printf('router_output is "       \
	"none, and %d passes ran under a map, the last under %d', count(*), "                     \
	"max(pl.map_epoch)) FROM pass_layer AS pl JOIN pass AS p USING (pass_id) JOIN layer "     \
	"AS l USING (layer_id) WHERE l.router_output = 'none' AND pl.map_epoch > 0 AND " OF_MODEL \
	" GROUP BY p.recording_id, pl.layer_id"
#define SQL_NO_ROWS "SELECT 0, 0, '' WHERE ?1 + ?2 < 0"

/* Of tokens that were received, the numbers are rounded up to what a GEMM takes. */
#define SQL_BLOCKS                                                                             \
	"SELECT p.recording_id, d.layer_id, count(*), total(d.received_alignment % "           \
	"l.gemm_block_rows <> 0), printf('received tokens are rounded up to multiples of %d, " \
	"and gemm_block_rows is %d', max(d.received_alignment), l.gemm_block_rows) "           \
	"FROM dispatch AS d JOIN pass AS p USING (pass_id) JOIN layer AS l USING (layer_id) "  \
	"WHERE d.received_alignment > 1 AND l.gemm_block_rows > 1 AND " OF_MODEL               \
	" GROUP BY p.recording_id, d.layer_id"
#define SQL_BLOCKS_ROWS                                                                          \
	"SELECT d.pass_id, 0, printf('received tokens are multiples of %d', "                    \
	"d.received_alignment) FROM dispatch AS d JOIN pass AS p USING (pass_id) JOIN layer AS " \
	"l USING (layer_id) WHERE d.layer_id = ?2 AND p.recording_id = ?1 AND "                  \
	"d.received_alignment % l.gemm_block_rows <> 0 LIMIT 3"

/* Prefix hits are whole pages; a block that no GEMM has and that divides all of them is the page.
 */
#define SQL_PAGES                                                                                \
	"SELECT q.recording_id, l.layer_id, count(*), count(*) * ((l.gemm_block_rows & "         \
	"(l.gemm_block_rows - 1)) <> 0 OR l.gemm_block_rows > 256), printf('gemm_block_rows is " \
	"%d, and all of %d prefix hits are whole multiples of it', l.gemm_block_rows, "          \
	"count(*)) FROM request_reuse AS u JOIN request AS q USING (request_id) JOIN layer AS "  \
	"l ON l.gemm_block_rows > 1 AND l.model_id IN (SELECT model_id FROM model WHERE kind = " \
	"'target') AND " OF_MODEL " GROUP BY q.recording_id, l.layer_id HAVING count(*) >= 4 "   \
	"AND total((u.first_position + u.n_positions) % l.gemm_block_rows) = 0"

static const struct {
	enum routing_look look;
	bool is_proved;
	bool is_seen; /* what it sees counts as seen by the look */
	const char *rule;
	const char *faults;
	const char *rows;
} tables[] = {
	{ROUTING_PADDING, true, true, "padding rows select no expert", SQL_PADDING,
	 SQL_PADDING_ROWS},
	{ROUTING_ID_SPACE, false, true, "ids that slots have and experts do not", SQL_SLOTS,
	 SQL_FOREIGN_ROWS},
	{ROUTING_FOREIGN_IDS, true, false, "ids are those of the layer", SQL_OTHERS,
	 SQL_FOREIGN_ROWS},
	{ROUTING_ROUTER_OUTPUT, true, false, "an expert map needs a router that hands over its ids",
	 SQL_NO_MAP, SQL_NO_ROWS},
	{ROUTING_BLOCK_ROWS, true, true, "received tokens are rounded up to blocks of the GEMM",
	 SQL_BLOCKS, SQL_BLOCKS_ROWS},
	{ROUTING_BLOCK_ROWS, false, true, "a block of a GEMM is a power of two up to 256",
	 SQL_PAGES, SQL_NO_ROWS},
};

static const struct routing_layer *layer_of(const struct routing *routing, int64_t layer_id)
{
	for (size_t i = 0; i < routing->n_layers; i++)
		if (routing->layers[i].layer_id == layer_id)
			return &routing->layers[i];
	return NULL;
}

/* The rows that a fault points at. */
static int examples_read(struct routing *routing, const char *sql, int64_t recording_id,
			 int64_t layer_id, struct routing_fault *fault)
{
	sqlite3_stmt *stmt = mt_trace_prepare(routing->trace, sql);
	const char *text;
	size_t n = 0;
	int rc;

	if (!stmt)
		return MT_EXIT_FAILED;
	sqlite3_bind_int64(stmt, 1, recording_id);
	sqlite3_bind_int64(stmt, 2, layer_id);
	while ((rc = sqlite3_step(stmt)) == SQLITE_ROW && n < ROUTING_N_EXAMPLES) {
		fault->examples[n].pass_id = sqlite3_column_int64(stmt, 0);
		fault->examples[n].row = sqlite3_column_int64(stmt, 1);
		text = (const char *)sqlite3_column_text(stmt, 2);
		fault->examples[n++].text = strdup(text ? text : "");
	}
	sqlite3_finalize(stmt);
	return rc == SQLITE_ROW || rc == SQLITE_DONE ? MT_EXIT_OK : mt_trace_error(routing->trace);
}

/* Whether the look has found something in the recording and model. */
static bool is_found(const struct routing *routing, enum routing_look look, int64_t recording_id,
		     int64_t model_id)
{
	for (size_t i = 0; i < routing->n_findings; i++)
		if (routing->findings[i].look == look && routing->findings[i].is_proved &&
		    routing->findings[i].recording_id == recording_id &&
		    routing->findings[i].model_id == model_id)
			return true;
	return false;
}

/* The row of @stmt as a fault of table @t. What is proved is not told once more as likely. */
static int fault_take(struct routing *routing, size_t t, sqlite3_stmt *stmt)
{
	const struct routing_layer *layer = layer_of(routing, sqlite3_column_int64(stmt, F_LAYER));
	const int64_t recording_id = sqlite3_column_int64(stmt, F_RECORDING);
	struct routing_fault fault = {
		.n_seen = (uint64_t)sqlite3_column_int64(stmt, F_SEEN),
		.n_bad = (uint64_t)sqlite3_column_int64(stmt, F_BAD),
	};
	int status;

	if (tables[t].is_seen)
		routing->n_seen[tables[t].look] += fault.n_seen;
	if (!layer || fault.n_bad == 0 ||
	    (!tables[t].is_proved &&
	     is_found(routing, tables[t].look, recording_id, layer->model_id)))
		return MT_EXIT_OK;
	status = examples_read(routing, tables[t].rows, recording_id, layer->layer_id, &fault);
	if (status == MT_EXIT_OK)
		status = routing_find(routing, tables[t].look, tables[t].is_proved, tables[t].rule,
				      recording_id, layer, &fault, "%s",
				      (const char *)sqlite3_column_text(stmt, F_EVIDENCE));
	for (size_t i = 0; i < ROUTING_N_EXAMPLES; i++)
		free(fault.examples[i].text);
	return status;
}

static int table_run(struct routing *routing, size_t t)
{
	sqlite3_stmt *stmt = mt_trace_prepare(routing->trace, tables[t].faults);
	int status = MT_EXIT_OK;
	int rc = SQLITE_DONE;

	if (!stmt)
		return MT_EXIT_FAILED;
	sqlite3_bind_int64(stmt, 1, routing->model_id);
	while (status == MT_EXIT_OK && (rc = sqlite3_step(stmt)) == SQLITE_ROW)
		status = fault_take(routing, t, stmt);
	if (status == MT_EXIT_OK && rc != SQLITE_DONE)
		status = mt_trace_error(routing->trace);
	sqlite3_finalize(stmt);
	return status;
}

/* ---- layers that nobody wrote ---- */

static uint64_t n_written(const struct routing_count *count)
{
	return count->n_passes[MT_LAYER_STORED] + count->n_passes[MT_LAYER_COUNTED] +
	       count->n_passes[MT_LAYER_DROPPED];
}

static bool is_never_written(const struct routing_count *count)
{
	return count && n_written(count) == 0 &&
	       count->n_passes[MT_LAYER_UNWRITTEN] >= LEAST_PASSES;
}

/*
 * Whether the first layers of the model that were never written are as many as there are dense
 * layers in front: then the number of a layer was passed where its index belongs.
 */
static bool is_shifted(const struct routing *routing, const struct routing_recording *recording,
		       int64_t model_id)
{
	int64_t n_missing = 0, first = -1;
	bool is_over = false;

	for (size_t i = 0; i < routing->n_layers; i++) {
		if (routing->layers[i].model_id != model_id)
			continue;
		first = first < 0 ? routing->layers[i].layer : first;
		if (!is_never_written(recording->counts[i]))
			is_over = true;
		else if (is_over)
			return false;
		else
			n_missing++;
	}
	return is_over && n_missing > 0 && n_missing == first;
}

static int unwritten_find(struct routing *routing, const struct routing_recording *recording,
			  size_t i)
{
	const struct routing_layer *layer = &routing->layers[i];
	const uint64_t n = recording->counts[i]->n_passes[MT_LAYER_UNWRITTEN];
	const struct routing_fault fault = {.n_seen = n, .n_bad = n};

	if (is_shifted(routing, recording, layer->model_id))
		return routing_find(routing, ROUTING_LAYER_SHIFT, false,
				    "layer_index counts layers with experts alone",
				    recording->recording_id, layer, &fault,
				    "nobody wrote this layer in %llu passes: as many layers at the "
				    "front are missing as there are dense ones",
				    (unsigned long long)n);
	return routing_find(routing, ROUTING_ROUTER_OUTPUT, true, "somebody writes every layer",
			    recording->recording_id, layer, &fault,
			    "nobody wrote this layer in any of %llu passes with rows",
			    (unsigned long long)n);
}

/* ---- numbers of layers ---- */

static int shift_take(struct routing *routing, sqlite3_stmt *stmt)
{
	const int64_t model_id = sqlite3_column_int64(stmt, 0);
	const int64_t n_layers = sqlite3_column_int64(stmt, 1);
	const struct routing_fault fault = {.n_seen = 1, .n_bad = 1};
	int64_t n = 0;
	size_t at = 0;

	for (size_t i = 0; i < routing->n_layers; i++) {
		if (routing->layers[i].model_id != model_id)
			continue;
		if (routing->layers[i].layer != n || routing->layers[i].moe_ordinal != n)
			return MT_EXIT_OK;
		at = n++ == 0 ? i : at;
	}
	if (n < 2 || n_layers <= n || n_layers - n > MOST_DENSE_LAYERS || n_layers - n >= n)
		return MT_EXIT_OK;
	return routing_find(
		routing, ROUTING_LAYER_SHIFT, false,
		"dense layers come first, so that layers with experts do not begin at 0", 0,
		&routing->layers[at], &fault,
		"the model has %lld layers, of which the layers with experts are 0 to %lld, "
		"and so the last %lld would be dense",
		(long long)n_layers, (long long)n - 1, (long long)(n_layers - n));
}

/* A stage of a pipeline knows its own layers alone. */
#define SQL_MODELS                                                                        \
	"SELECT model_id, n_layers FROM model WHERE n_layers IS NOT NULL AND (?1 = 0 OR " \
	"model_id = ?1) AND NOT EXISTS (SELECT 1 FROM process WHERE coalesce(pp_size, 1) > 1)"

static int shifts_find(struct routing *routing)
{
	sqlite3_stmt *stmt;
	int status = MT_EXIT_OK;
	int rc = SQLITE_DONE;

	if (routing->preset)
		return MT_EXIT_OK; /* which knows the numbers */
	stmt = mt_trace_prepare(routing->trace, SQL_MODELS);
	if (!stmt)
		return MT_EXIT_FAILED;
	sqlite3_bind_int64(stmt, 1, routing->model_id);
	while (status == MT_EXIT_OK && (rc = sqlite3_step(stmt)) == SQLITE_ROW) {
		routing->n_seen[ROUTING_LAYER_SHIFT]++;
		status = shift_take(routing, stmt);
	}
	if (status == MT_EXIT_OK && rc != SQLITE_DONE)
		status = mt_trace_error(routing->trace);
	sqlite3_finalize(stmt);
	return status;
}

int routing_tables_run(struct routing *routing)
{
	int status = MT_EXIT_OK;

	for (size_t t = 0; t < sizeof(tables) / sizeof(tables[0]) && status == MT_EXIT_OK; t++)
		status = table_run(routing, t);
	for (size_t r = 0; r < routing->n_recordings; r++)
		for (size_t i = 0; i < routing->n_layers && status == MT_EXIT_OK; i++)
			if (is_never_written(routing->recordings[r].counts[i]))
				status = unwritten_find(routing, &routing->recordings[r], i);
	return status == MT_EXIT_OK ? shifts_find(routing) : status;
}
