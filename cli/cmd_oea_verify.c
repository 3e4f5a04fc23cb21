/* SPDX-License-Identifier: MIT */
/*
 * oea --verify: one line a rule. The facts are those of moe_rule(), what the rule did, and of
 * moe_oea(), what it could have done; the first reason that explains why nothing came of it is
 * said. A rule that is named on the command line and not in the trace was never called.
 */
#include "cli/cmd_oea.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What decides. Batches are those of passes that decode, mixed ones included, but for prefill. */
struct facts {
	const char *name;
	int64_t rule_id;	  /* 0: not in the trace */
	int64_t k0;		  /* 0: its name does not say */
	int64_t n_prefill;	  /* batches of prefill alone under the rule */
	int64_t n_other_prefill;  /* batches of prefill alone without the rule */
	int64_t n_batches;	  /* under the rule */
	int64_t n_one_row;	  /* of them, those of one row */
	int64_t n_rows, n_known, n_changed, n_equal;
	int64_t n_swapped, n_active_before, n_active_after;
	int64_t n_layers;	  /* under the rule */
	int64_t n_model_layers;	  /* layers of the models that ran */
	int64_t n_hash;		  /* of the layers under the rule, those that choose by token id */
	int64_t first_layer;	  /* the number of the first one under the rule */
	int64_t n_untouched;	  /* batches of decode passes without the rule */
	int64_t k, n_experts;	  /* the largest of the layers */
	int64_t n_lost;		  /* entries that the rule at k0 would have left out; -1: unknown */
	int64_t max_rows;	  /* of a batch under the rule */
	char source[64];	  /* who chose; "": the model's router */
	char sizes[128];	  /* padded batch sizes that never ran under the rule; "": none */
};

static const char sql_rule[] =
	"WITH r AS (SELECT * FROM moe_rule WHERE ?2 IS NULL OR recording_id = ?2),"
	" d AS (SELECT * FROM r WHERE phase NOT IN ('prefill', 'idle', 'dummy')),"
	" m AS (SELECT * FROM d WHERE rule_id = ?1)"
	" SELECT (SELECT total(n_batches) FROM r WHERE rule_id = ?1 AND phase = 'prefill'),"
	" total(n_batches), total(one_row_batches), total(rows), total(known_rows),"
	" total(changed_rows), total(equal_rows), total(swapped_entries), total(active_before),"
	" total(active_after), count(DISTINCT layer_id),"
	" (SELECT count(*) FROM layer WHERE model_id IN (SELECT model_id FROM r)),"
	" count(DISTINCT iif((SELECT kind FROM layer AS l WHERE l.layer_id = m.layer_id) = 'hash',"
	" layer_id, NULL)), min(layer),"
	" (SELECT total(n_batches) FROM d WHERE rule_id IS NOT ?1),"
	" (SELECT max(top_k - n_shared_slots) FROM layer WHERE layer_id IN (SELECT layer_id FROM m)),"
	" (SELECT max(n_experts) FROM layer WHERE layer_id IN (SELECT layer_id FROM m)),"
	" (SELECT max(pl.n_rows) FROM pass_layer AS pl JOIN topk AS t USING (topk_id)"
	" WHERE t.rule_id = ?1),"
	" (SELECT total(n_batches) FROM r WHERE rule_id IS NOT ?1 AND phase = 'prefill')"
	" FROM m";

/* What is known of passes without the rule does not count: they are in other rows of moe_oea. */
static const char sql_lost[] =
	"SELECT sum(lost_entries) FROM moe_oea(0) WHERE k0 = ?1 AND (?2 IS NULL OR recording_id = ?2)";

static const char sql_source[] =
	"SELECT routing_source FROM recording WHERE (?1 IS NULL OR recording_id = ?1)"
	" AND routing_source <> 'model' AND routing_source NOT LIKE 'replay%' LIMIT 1";

/* A graph is captured for a padded size: sizes of which every batch ran without the rule. */
static const char sql_sizes[] =
	"SELECT group_concat(size, ', ') FROM (SELECT p.n_rows + p.padding_rows AS size"
	" FROM pass AS p JOIN pass_layer AS pl USING (pass_id) JOIN topk AS t USING (topk_id)"
	" WHERE p.phase = 'decode' AND (?2 IS NULL OR p.recording_id = ?2)"
	" GROUP BY size HAVING max(t.rule_id IS ?1) = 0 ORDER BY size LIMIT 8)";

static void recording_bind(sqlite3_stmt *stmt, int at, const struct mt_oea_args *args)
{
	if (args->common.recording_id)
		sqlite3_bind_int64(stmt, at, (int64_t)args->common.recording_id);
}

/* ---- facts ---- */

static int rule_read(const struct mt_trace *trace, const struct mt_oea_args *args,
		     struct facts *facts)
{
	sqlite3_stmt *stmt = mt_trace_prepare(trace, sql_rule);
	int64_t *const numbers[] = {
		&facts->n_prefill,	 &facts->n_batches,	 &facts->n_one_row,
		&facts->n_rows,		 &facts->n_known,	 &facts->n_changed,
		&facts->n_equal,	 &facts->n_swapped,	 &facts->n_active_before,
		&facts->n_active_after,	 &facts->n_layers,	 &facts->n_model_layers,
		&facts->n_hash,		 &facts->first_layer,	 &facts->n_untouched,
		&facts->k,		 &facts->n_experts,	 &facts->max_rows,
		&facts->n_other_prefill,
	};
	int status = MT_EXIT_OK;

	if (!stmt)
		return MT_EXIT_FAILED;
	sqlite3_bind_int64(stmt, 1, facts->rule_id);
	recording_bind(stmt, 2, args);
	if (sqlite3_step(stmt) != SQLITE_ROW)
		status = mt_trace_error(trace);
	for (size_t i = 0; status == MT_EXIT_OK && i < sizeof(numbers) / sizeof(numbers[0]); i++)
		*numbers[i] = sqlite3_column_int64(stmt, (int)i);
	sqlite3_finalize(stmt);
	return status;
}

/* One row and column, as text into @text or as a number. */
static int value_read(const struct mt_trace *trace, sqlite3_stmt *stmt, char *text, size_t size,
		      int64_t *number)
{
	int rc, status = MT_EXIT_OK;

	if (!stmt)
		return MT_EXIT_FAILED;
	rc = sqlite3_step(stmt);
	if (rc != SQLITE_ROW && rc != SQLITE_DONE) {
		status = mt_trace_error(trace);
	} else if (rc == SQLITE_ROW && sqlite3_column_type(stmt, 0) != SQLITE_NULL) {
		if (text)
			snprintf(text, size, "%s", (const char *)sqlite3_column_text(stmt, 0));
		else
			*number = sqlite3_column_int64(stmt, 0);
	}
	sqlite3_finalize(stmt);
	return status;
}

static int rest_read(const struct mt_trace *trace, const struct mt_oea_args *args,
		     struct facts *facts)
{
	const char *k0 = strstr(facts->name, "k0=");
	sqlite3_stmt *stmt;
	int status;

	facts->k0 = k0 ? strtol(k0 + 3, NULL, 10) : 0;
	facts->n_lost = -1;
	stmt = mt_trace_prepare(trace, sql_lost);
	if (stmt) {
		sqlite3_bind_int64(stmt, 1, facts->k0);
		recording_bind(stmt, 2, args);
	}
	status = value_read(trace, stmt, NULL, 0, &facts->n_lost);
	if (status != MT_EXIT_OK)
		return status;
	stmt = mt_trace_prepare(trace, sql_source);
	if (stmt)
		recording_bind(stmt, 1, args);
	status = value_read(trace, stmt, facts->source, sizeof(facts->source), NULL);
	if (status != MT_EXIT_OK)
		return status;
	stmt = mt_trace_prepare(trace, sql_sizes);
	if (stmt) {
		sqlite3_bind_int64(stmt, 1, facts->rule_id);
		recording_bind(stmt, 2, args);
	}
	return value_read(trace, stmt, facts->sizes, sizeof(facts->sizes), NULL);
}

/* ---- what follows ---- */

static void say(char *line, size_t size, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

static void say(char *line, size_t size, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(line, size, format, arguments);
	va_end(arguments);
}

/* A rule that was not where it should have been. Returns whether that is so. */
static bool is_misplaced(const struct facts *f, char *line, size_t size)
{
	if (f->n_batches == 0 && f->n_prefill == 0 && f->n_untouched == 0 && f->n_other_prefill > 0)
		say(line, size, "prefill only: no pass that decodes was recorded, and a rule leaves the "
		    "%" PRId64 " batches of prefill alone", f->n_other_prefill);
	else if (f->n_batches == 0 && f->n_prefill == 0)
		say(line, size, "never called: no layer of any pass was recorded under it");
	else if (f->n_batches == 0)
		say(line, size, "prefill only: %" PRId64 " batches of prefill ran under it, and "
		    "none that decodes", f->n_prefill);
	else if (f->n_layers > 0 && f->n_layers == f->n_hash)
		say(line, size, "wrong layers: %" PRId64 " layer(s) ran under it, and all choose by "
		    "token id", f->n_layers);
	else if (f->n_changed == 0 && f->n_known > 0 && f->n_layers < f->n_model_layers)
		say(line, size, "wrong layers: %" PRId64 " of %" PRId64 " layers ran under it (the "
		    "first is layer %" PRId64 "), without a change",
		    f->n_layers, f->n_model_layers, f->first_layer);
	else
		return false;
	return true;
}

/* A rule that had nothing to do. */
static bool is_idle(const struct facts *f, char *line, size_t size)
{
	if (f->source[0] != '\0')
		say(line, size, "simulated routing: choices are %s, and no row prefers one expert "
		    "to another", f->source);
	else if (f->n_equal == f->n_rows && f->n_rows > 0)
		say(line, size, "equal weights: all weights of each of %" PRId64 " rows are the "
		    "same, as of simulated routing", f->n_rows);
	else if (f->n_one_row == f->n_batches)
		say(line, size, "batch of one: each of %" PRId64 " batches had one row, so that "
		    "rows share nothing and are only cut to k0", f->n_batches);
	else if (f->n_changed > 0 || f->n_known == 0)
		return false;
	else if (f->k0 >= f->k && f->k > 0)
		say(line, size, "k0 is %" PRId64 " and rows choose %" PRId64 " experts: nothing is "
		    "cut", f->k0, f->k);
	else if (f->k0 > 0 && f->n_lost == 0)
		say(line, size, "union saturated: up to %" PRId64 " rows x k0 = %" PRId64
		    " cover what all rows chose of %" PRId64 " experts: nothing is left out",
		    f->max_rows, f->k0, f->n_experts);
	else
		say(line, size, "graph captured before it was on: the batches are marked with the "
		    "rule and hold the router's own choice, where it would have left out %" PRId64
		    " entries", f->n_lost > 0 ? f->n_lost : 0);
	return true;
}

static void effect_say(const struct facts *f, char *line, size_t size)
{
	const double n = (double)f->n_batches;

	if (f->n_known == 0) {
		say(line, size, "unknown: the router's own choice was not recorded beside it (pass "
		    "base_ids)");
		return;
	}
	say(line, size, "changed %.1f %% of %" PRId64 " rows in %" PRId64 " of %" PRId64
	    " layers: active experts %.1f -> %.1f, %.2f experts a row swapped",
	    100.0 * (double)f->n_changed / (double)f->n_known, f->n_known, f->n_layers,
	    f->n_model_layers, (double)f->n_active_before / n, (double)f->n_active_after / n,
	    (double)f->n_swapped / (double)f->n_known);
}

/* Prints the line; returns whether the rule did something. */
static int rule_verify(const struct mt_trace *trace, const struct mt_oea_args *args,
		       struct facts *facts, struct mt_table *table, bool *did)
{
	char line[512];
	bool is_idle_here;
	size_t n;
	int status = rule_read(trace, args, facts);

	if (status == MT_EXIT_OK)
		status = rest_read(trace, args, facts);
	if (status != MT_EXIT_OK)
		return status;
	is_idle_here = is_misplaced(facts, line, sizeof(line)) ||
		       is_idle(facts, line, sizeof(line));
	if (!is_idle_here) {
		effect_say(facts, line, sizeof(line));
		n = strlen(line);
		if (facts->sizes[0] != '\0')
			say(line + n, sizeof(line) - n,
			    "; batches of %s row(s) never ran under it: graphs of these sizes were "
			    "captured before it was on, or the runtime leaves them out",
			    facts->sizes);
	}
	mt_table_text(table, facts->name);
	mt_table_text(table, is_idle_here ? "nothing" : facts->n_known ? "acted" : "unknown");
	mt_table_text(table, line);
	*did &= !is_idle_here;
	return MT_EXIT_OK;
}

/* ---- rules ---- */

static int rules_verify(const struct mt_trace *trace, const struct mt_oea_args *args,
			sqlite3_stmt *stmt, struct mt_table *table, bool *did)
{
	int status = MT_EXIT_OK, rc = SQLITE_ROW;
	uint32_t n = 0;

	while (status == MT_EXIT_OK && (rc = sqlite3_step(stmt)) == SQLITE_ROW) {
		struct facts facts = {.rule_id = sqlite3_column_int64(stmt, 0),
				      .name = (const char *)sqlite3_column_text(stmt, 1)};

		n++;
		status = rule_verify(trace, args, &facts, table, did);
	}
	if (status == MT_EXIT_OK && rc != SQLITE_DONE)
		return mt_trace_error(trace);
	if (status == MT_EXIT_OK && n == 0) {
		struct facts facts = {.name = args->rule ? args->rule : "-"};

		status = rule_verify(trace, args, &facts, table, did);
	}
	return status;
}

int mt_oea_verify(const struct mt_trace *trace, const struct mt_oea_args *args)
{
	static const char *const columns[] = {"rule", "effect", "why"};
	sqlite3_stmt *stmt = mt_trace_prepare(
		trace, "SELECT rule_id, name FROM rule WHERE ?1 IS NULL OR name = ?1 ORDER BY 1");
	struct mt_output output;
	struct mt_table table;
	bool did = true;
	int status;

	if (!stmt)
		return MT_EXIT_FAILED;
	if (args->rule)
		sqlite3_bind_text(stmt, 1, args->rule, -1, SQLITE_STATIC);
	mt_output_begin(&output, stdout, args->common.format);
	status = mt_table_begin(&table, &output, columns, 3) < 0 ? MT_EXIT_FAILED : MT_EXIT_OK;
	if (status == MT_EXIT_OK) {
		status = rules_verify(trace, args, stmt, &table, &did);
		if (mt_table_end(&table) < 0)
			status = MT_EXIT_FAILED;
	}
	sqlite3_finalize(stmt);
	mt_output_end(&output);
	return status == MT_EXIT_OK && !did ? MT_EXIT_FAILED : status;
}
