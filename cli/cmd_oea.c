/* SPDX-License-Identifier: MIT */
/*
 * oea: what opportunistic expert activation, or another rule, would have saved in a recording, by
 * moe_oea(); in time by moe_fit(), by constants, or by the bandwidth of the memory that holds the
 * experts. What is not in the figures is listed below them, with the reason.
 */
#include "cli/cmd_oea.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/explain.h"
#include "cli/file_read.h"
#include "cli/notes.h"
#include "schema/functions/questions.h"

/* ---- the figures ---- */

/* ?1 recording, ?2 by layer, ?3 by batch, ?4 rule, ?5 a, ?6 b, ?7 c, ?8 bandwidth, ?9 k0 list,
   ?10 ranks, ?11 placement */
static const char sql_figures[] =
	" SELECT o.recording_id, o.model_id, %s o.phase, %s o.k0, o.n_batches AS batches,"
	" round(1.0 * o.rows / o.n_batches, 2) AS rows,"
	" round(1.0 * o.active_before / o.n_batches, 3) AS active_before,"
	" round(1.0 * o.active_after / o.n_batches, 3) AS active_after,"
	" round(1.0 * o.active_after / nullif(o.active_before, 0), 4) AS ratio,"
	" round(o.ratio_low, 4) AS ratio_low, round(o.ratio_high, 4) AS ratio_high,"
	" round(o.uniform_before / o.n_batches, 3) AS uniform_before,"
	" round(o.uniform_after / o.n_batches, 3) AS uniform_after,"
	" round(o.lost_weight / nullif(o.rated_rows, 0), 6) AS lost_weight,"
	" round(o.p95_lost_weight, 4) AS p95,"
	" round(1.0 * o.swapped_entries / nullif(o.changed_rows * o.k, 0), 4) AS swapped,"
	" o.tokens_below_k AS below_k,"
	" round(1.0 * o.padding_active_experts / o.n_batches, 3) AS padding_active%s%s%s"
	" FROM moe_oea(?2, ?3, ?4, ?10, CASE WHEN ?11 = 'recorded' THEN ?11 ELSE"
	" coalesce(json_extract(?11, '$.phy2log'), json_extract(?11, '$.physical_to_logical_map'), ?11)"
	" END) AS o%s"
	" WHERE o.k0 IS NOT NULL AND (?1 IS NULL OR o.recording_id = ?1)"
	" AND (?9 IS NULL OR instr(?9, ',' || o.k0 || ','))"
	" ORDER BY o.recording_id, o.model_id, o.layer_id, o.phase, o.max_batch_rows, o.k0";

static const char sql_candidates[] =
	", round(o.retained_score / nullif(o.candidate_rows, 0), 5) AS retained,"
	" round(1.0 * o.truncated_rows / nullif(o.candidate_rows, 0), 4) AS truncated";

static const char sql_ranks[] =
	", round(1.0 * o.rank_active_before / o.n_batches, 3) AS max_rank_before,"
	" round(1.0 * o.rank_active_after / o.n_batches, 3) AS max_rank_after";

static const char sql_times[] =
	", round((t.a_ns + t.b_ns * o.active_before / o.n_batches"
	" + coalesce(t.c_ns, 0) * o.rows / o.n_batches) / 1000, 3) AS time_before_us,"
	" round((t.a_ns + t.b_ns * o.active_after / o.n_batches"
	" + coalesce(t.c_ns, 0) * o.rows / o.n_batches) / 1000, 3) AS time_after_us,"
	" round(t.b_ns * (o.active_before - o.active_after) / o.n_batches / 1000, 3) AS saved_us,"
	" round(t.b_ns * o.saved_low / 1000, 3) AS saved_low_us,"
	" round(t.b_ns * o.saved_high / 1000, 3) AS saved_high_us,"
	" CASE WHEN t.b_ns IS NULL THEN NULL WHEN NOT t.is_fit THEN 'given'"
	" WHEN t.n_ruled = 0 OR 1.0 * o.active_after / o.n_batches < t.min_active"
	" THEN 'extrapolated' ELSE 'fitted' END AS time_by";

static const char sql_model_fit[] =
	" LEFT JOIN (SELECT *, 1 AS is_fit FROM moe_fit(?2) WHERE b_ns > 0) AS t ON t.model_id = o.model_id"
	" AND t.layer_id IS o.layer_id";
static const char sql_model_given[] =
	" LEFT JOIN (SELECT ?5 * 1000 AS a_ns, ?6 * 1000 AS b_ns, ?7 * 1000 AS c_ns, 0 AS is_fit,"
	" NULL AS n_ruled, NULL AS min_active) AS t";
/* Bytes / (GB/s) are nanoseconds. */
static const char sql_model_bandwidth[] =
	" LEFT JOIN (SELECT model_id, layer_id, NULL AS a_ns, expert_weight_bytes / ?8 AS b_ns,"
	" NULL AS c_ns, 0 AS is_fit, NULL AS n_ruled, NULL AS min_active FROM layer WHERE ?2"
	" UNION ALL SELECT model_id, NULL, NULL, avg(expert_weight_bytes) / ?8, NULL, 0, NULL, NULL"
	" FROM layer WHERE NOT ?2 GROUP BY model_id) AS t ON t.model_id = o.model_id"
	" AND t.layer_id IS o.layer_id";

static void k0_list(const struct mt_oea_args *args, char *list, size_t size)
{
	size_t n = (size_t)snprintf(list, size, ",");

	for (int k0 = 1; k0 <= MT_OEA_MAX_K0; k0++)
		if (args->has_k0[k0])
			n += (size_t)snprintf(list + n, size - n, "%d,", k0);
}

static void figures_bind(sqlite3_stmt *stmt, const struct mt_oea_args *args, const char *list,
			 const char *map)
{
	if (args->common.recording_id)
		sqlite3_bind_int64(stmt, 1, (int64_t)args->common.recording_id);
	sqlite3_bind_int(stmt, 2, args->by_layer);
	sqlite3_bind_int(stmt, 3, args->by_batch);
	sqlite3_bind_text(stmt, 4, args->rule ? args->rule : "oea", -1, SQLITE_STATIC);
	sqlite3_bind_double(stmt, 5, args->a_us);
	sqlite3_bind_double(stmt, 6, args->b_us);
	sqlite3_bind_double(stmt, 7, args->c_us);
	sqlite3_bind_double(stmt, 8, args->bandwidth_gb_s);
	if (args->has_k0[0])
		sqlite3_bind_text(stmt, 9, list, -1, SQLITE_STATIC);
	if (args->n_ranks)
		sqlite3_bind_int64(stmt, 10, (int64_t)args->n_ranks);
	if (map)
		sqlite3_bind_text(stmt, 11, map, -1, SQLITE_STATIC);
}

static int has_candidates(const struct mt_trace *trace, int64_t *ret_has)
{
	return mt_trace_int(trace, "SELECT EXISTS (SELECT 1 FROM topk WHERE n_candidates > 0)",
			    ret_has);
}

/* Rows of one kind for programs that read lines; else what explains them, too. */
static bool has_sections(const struct mt_oea_args *args)
{
	return args->common.format == MT_FORMAT_TABLE || args->common.format == MT_FORMAT_JSON ||
	       args->common.explains;
}

/* One of schema/questions, with what it asks for from @args. @section is "" where it has none. */
static sqlite3_stmt *question_prepare(const struct mt_trace *trace, const struct mt_oea_args *args,
				      const char *question, const char *section)
{
	struct mt_question_part part = mt_question_section(question, section);
	char *sql = strndup(part.sql, part.n_bytes);
	sqlite3_stmt *stmt = sql ? mt_trace_prepare(trace, sql) : NULL;

	if (!sql)
		mt_error("%s: out of memory", trace->path);
	free(sql);
	if (!stmt)
		return NULL;
	if (args->common.recording_id)
		sqlite3_bind_int64(stmt, sqlite3_bind_parameter_index(stmt, ":recording"),
				   (int64_t)args->common.recording_id);
	if (args->expands)
		sqlite3_bind_double(stmt, sqlite3_bind_parameter_index(stmt, ":margin"), args->margin);
	if (args->expands && args->kmax)
		sqlite3_bind_int64(stmt, sqlite3_bind_parameter_index(stmt, ":kmax"),
				   (int64_t)args->kmax);
	if (!args->expands && args->rule)
		sqlite3_bind_text(stmt, sqlite3_bind_parameter_index(stmt, ":rule"), args->rule, -1,
				  SQLITE_STATIC);
	sqlite3_bind_int(stmt, sqlite3_bind_parameter_index(stmt, ":by_layer"), args->by_layer);
	sqlite3_bind_int(stmt, sqlite3_bind_parameter_index(stmt, ":fits"), args->fits);
	sqlite3_bind_int(stmt, sqlite3_bind_parameter_index(stmt, ":bandwidth"),
			 args->bandwidth_gb_s > 0);
	return stmt;
}

/* Prints a table: a section where there are others. */
static int table_print(const struct mt_trace *trace, struct mt_output *output,
		       struct mt_explain *explain, const struct mt_oea_args *args, const char *name,
		       sqlite3_stmt *stmt)
{
	int status;

	if (has_sections(args))
		return mt_explain_print(explain, trace, output, name, NULL, stmt);
	status = stmt ? mt_trace_print(trace, output, stmt) : MT_EXIT_FAILED;
	sqlite3_finalize(stmt);
	return status;
}

static int figures_print(const struct mt_trace *trace, struct mt_output *output,
			 struct mt_explain *explain, const struct mt_oea_args *args)
{
	const bool has_times = args->fits || args->has_b || args->bandwidth_gb_s > 0;
	const char *model = !has_times	   ? ""
			    : args->fits   ? sql_model_fit
			    : args->has_b  ? sql_model_given
					   : sql_model_bandwidth;
	char list[MT_OEA_MAX_K0 * 4], sql[8192];
	const char *map = args->map;
	void *file = NULL;
	size_t n_bytes;
	sqlite3_stmt *stmt;
	int64_t candidates;
	int status = has_candidates(trace, &candidates);

	if (status == MT_EXIT_OK && map && strcmp(map, "recorded") != 0) {
		status = mt_file_read(map, &file, &n_bytes);
		map = "";
	}
	if (status != MT_EXIT_OK)
		return status;
	snprintf(sql, sizeof(sql), sql_figures, args->by_layer ? "o.layer," : "",
		 args->by_batch ? "o.max_batch_rows," : "", candidates ? sql_candidates : "",
		 args->n_ranks > 0 || args->map ? sql_ranks : "",
		 has_times ? sql_times : "", model);
	stmt = mt_trace_prepare(trace, sql);
	if (!stmt) {
		free(file);
		return MT_EXIT_FAILED;
	}
	k0_list(args, list, sizeof(list));
	figures_bind(stmt, args, list, map);
	if (file)
		sqlite3_bind_text64(stmt, 11, file, n_bytes, SQLITE_STATIC, SQLITE_UTF8);
	status = table_print(trace, output, explain, args, "oea", stmt);
	free(file);
	return status;
}

/* ---- below the figures ---- */

static const char sql_fit[] =
	"SELECT f.model_id, f.layer, f.source, f.n_batches, f.n_outliers, f.n_ruled AS under_a_rule,"
	" round(f.a_ns / 1000, 3) AS a_us, round(f.b_ns / 1000, 5) AS b_us,"
	" round(f.b_low_ns / 1000, 5) AS b_low_us, round(f.b_high_ns / 1000, 5) AS b_high_us,"
	" round(f.c_ns / 1000, 5) AS c_us, round(f.r2, 4) AS r2,"
	" round(f.residual_ns / 1000, 3) AS residual_us, f.min_active, f.max_active,"
	" round((SELECT avg(l.expert_weight_bytes) FROM layer AS l WHERE l.model_id = f.model_id"
	" AND (f.layer_id IS NULL OR l.layer_id = f.layer_id)) / iif(f.b_ns > 0, f.b_ns, NULL), 2)"
	" AS expert_gb_per_s FROM moe_fit(?1) AS f ORDER BY f.model_id, f.layer";

static int lists_print(const struct mt_trace *trace, struct mt_output *output,
		       struct mt_explain *explain, const struct mt_oea_args *args)
{
	sqlite3_stmt *stmt;
	int status = MT_EXIT_OK;

	if (args->fits) {
		stmt = mt_trace_prepare(trace, sql_fit);
		if (stmt)
			sqlite3_bind_int(stmt, 1, args->by_layer);
		status = mt_explain_print(explain, trace, output, "fit",
					  "Fit: time = a + b * active + c * rows", stmt);
	}
	if (status != MT_EXIT_OK)
		return status;
	stmt = question_prepare(trace, args, "oea_notes", "left_out");
	return mt_explain_print(explain, trace, output, "left_out",
				"Not in these figures, or to know about them", stmt);
}

/* A list of k0 that no row of the trace can have leaves nothing. */
static int k0_check(const struct mt_trace *trace, const struct mt_oea_args *args)
{
	int64_t k;
	int least = 1, status;

	status = mt_trace_int(trace, "SELECT max(top_k - n_shared_slots) FROM layer", &k);
	while (least < MT_OEA_MAX_K0 && !args->has_k0[least])
		least++;
	if (status == MT_EXIT_OK && least > k)
		mt_note("--k0: rows choose %lld experts at most, so there is no such k0", (long long)k);
	return status;
}

static int oea_print(const struct mt_trace *trace, const struct mt_oea_args *args)
{
	struct mt_explain explain = {.is_on = args->common.explains};
	struct mt_output output;
	int status = mt_trace_mode_check(trace, args->common.recording_id, "per_token",
					 "what a rule would do");

	if (status != MT_EXIT_OK)
		return status;
	mt_output_begin(&output, stdout, args->common.format);
	if (has_sections(args))
		mt_output_sections(&output);
	status = args->expands ? table_print(trace, &output, &explain, args, "expand",
					     question_prepare(trace, args, "oea_expand", ""))
			       : figures_print(trace, &output, &explain, args);
	if (status == MT_EXIT_OK && has_sections(args))
		status = lists_print(trace, &output, &explain, args);
	status = mt_explain_end(&explain, &output, status);
	if (status == MT_EXIT_OK)
		mt_output_end(&output);
	if (status == MT_EXIT_OK && args->has_k0[0])
		status = k0_check(trace, args);
	if (status == MT_EXIT_OK)
		status = mt_notes_print(trace, args->common.recording_id, MT_NOTES_ROWS);
	return status;
}

static int print(struct mt_trace *trace, void *input)
{
	const struct mt_oea_args *args = input;

	return args->verifies ? mt_oea_verify(trace, args) : oea_print(trace, args);
}

int mt_cmd_oea(int argc, char **argv)
{
	static const struct mt_trace_verb verb = {.argp = &mt_oea_argp, .print = print};
	struct mt_oea_args args = {0};

	return mt_trace_verb_run(&verb, argc, argv, &args.common, &args);
}
