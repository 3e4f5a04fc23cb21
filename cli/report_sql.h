/* SPDX-License-Identifier: MIT */
/*
 * Statements of `moetrace report` that are longer than a few lines. Parameter ?1: recording or NULL.
 */
#ifndef MT_CLI_REPORT_SQL_H
#define MT_CLI_REPORT_SQL_H

/*
 * In plain words, the worst first. A layer is uneven where its hottest expert gets more than three
 * times the mean; dead experts are worth a word where they are a tenth of a layer's and it handed out
 * 20 tokens an expert.
 */
#define MT_SQL_ATTENTION                                                                         \
	"WITH l AS (SELECT * FROM loss WHERE ?1 IS NULL OR recording_id = ?1), "                 \
	"b AS (SELECT recording_id, model_id, layer, count(*) AS n_experts, sum(tokens) AS "     \
	"tokens, max(tokens) AS most, expert AS hottest_expert, 1.0 * max(tokens) * count(*) / " \
	"sum(tokens) AS max_over_mean, sum(tokens = 0) AS dead_experts FROM expert_load WHERE "  \
	"kind = 'routed' AND (?1 IS NULL OR recording_id = ?1) GROUP BY recording_id, layer_id " \
	"HAVING sum(tokens) > 0), said AS ("                                                     \
	"SELECT recording_id, 1 AS place, printf('%d passes and %d layers of other passes were " \
	"lost: figures are of the rest', dropped_passes, dropped_layers) AS says FROM l WHERE "  \
	"dropped_passes > 0 OR dropped_layers > 0 UNION ALL "                                    \
	"SELECT recording_id, 2, 'the recording has no end: figures are as of its last commit' " \
	"FROM l WHERE end_reason IS NULL UNION ALL "                                             \
	"SELECT recording_id, 3, 'the recording was cut off: ' || end_reason FROM l WHERE "      \
	"end_reason IN ('file_limit', 'io_error', 'killed') UNION ALL "                          \
	"SELECT recording_id, 4, printf('%d calls were refused, %d ids fit no expert: see "      \
	"table diagnostic', misuse, invalid_ids) FROM l WHERE misuse > 0 OR invalid_ids > 0 "    \
	"UNION ALL "                                                                             \
	"SELECT recording_id, 5, printf('%d layers of passes were written by nobody', "          \
	"unwritten_layers) FROM l WHERE unwritten_layers > 0 UNION ALL "                         \
	"SELECT recording_id, 6, printf('requests %s: %d (%s)', verdict, count(*), "             \
	"coalesce(reasons, 'still open at the end')) FROM request WHERE verdict <> 'complete' "  \
	"AND (?1 IS NULL OR recording_id = ?1) GROUP BY recording_id, verdict, reasons UNION "   \
	"ALL "                                                                                   \
	"SELECT recording_id, 7, printf('%d passes were left out by sampling, %d because "       \
	"recording was off', sampled_passes, disabled_passes) FROM l WHERE sampled_passes > 0 "  \
	"OR disabled_passes > 0 UNION ALL "                                                      \
	"SELECT recording_id, 8, printf('layer %d of model %d is uneven: expert %d gets %.1f "   \
	"times the mean', layer, model_id, hottest_expert, max_over_mean) FROM (SELECT *, "      \
	"row_number() OVER (PARTITION BY recording_id, model_id ORDER BY max_over_mean DESC) "   \
	"AS n FROM b WHERE max_over_mean > 3) WHERE n = 1 UNION ALL "                            \
	"SELECT recording_id, 9, printf('%d of %d experts of layer %d of model %d got no "       \
	"token', dead_experts, n_experts, layer, model_id) FROM (SELECT *, row_number() OVER "   \
	"(PARTITION BY recording_id, model_id ORDER BY dead_experts DESC) AS n FROM b WHERE "    \
	"dead_experts * 10 >= n_experts AND tokens >= 20 * n_experts) WHERE n = 1) "             \
	"SELECT recording_id, says FROM (SELECT * FROM said UNION ALL SELECT NULL, 0, "          \
	"'nothing: no loss, every request is complete, no layer is very uneven' WHERE NOT "      \
	"EXISTS (SELECT 1 FROM said)) ORDER BY place, recording_id"

/* Rows are of the parts of a pass, the time is that of the whole. */
#define MT_SQL_THROUGHPUT                                                                         \
	"SELECT recording_id, phase, sum(NOT is_parent) AS passes, sum(n_rows) AS rows, "         \
	"sum(decode_rows) AS decode_rows, avg(n_rows) FILTER (WHERE NOT is_parent) AS mean_rows, " \
	"avg(mean_active_experts) AS mean_active_experts, avg(duration_ns) FILTER (WHERE NOT "    \
	"is_parent) AS mean_duration_ns, sum(n_rows) * 1e9 / nullif(sum(duration_ns) FILTER "     \
	"(WHERE parent_pass_id IS NULL), 0) AS tokens_per_s FROM (SELECT *, pass_id IN (SELECT "  \
	"parent_pass_id FROM pass WHERE parent_pass_id IS NOT NULL) AS is_parent FROM "           \
	"pass_summary) WHERE ?1 IS NULL OR recording_id = ?1 "                                    \
	"GROUP BY recording_id, phase ORDER BY recording_id, rows DESC"

/* layer_time looks at each layer of a pass beside each other one: some passes say it all. */
#define MT_SQL_LAYER_TIMES                                                                        \
	"SELECT recording_id, model_id, layer, count(*) AS passes, "                              \
	"avg(duration_ns) AS mean_duration_ns, max(duration_ns) AS max_duration_ns, "             \
	"1.0 * sum(duration_ns) / nullif(sum(sum(duration_ns)) OVER (PARTITION BY recording_id, " \
	"model_id), 0) AS share FROM layer_time WHERE pass_id IN (SELECT pass_id FROM (SELECT "   \
	"pass_id, row_number() OVER (PARTITION BY recording_id ORDER BY pass_id DESC) AS n FROM " \
	"pass WHERE ?1 IS NULL OR recording_id = ?1) WHERE n <= 1000) GROUP BY recording_id, "    \
	"model_id, layer ORDER BY share DESC, layer LIMIT 6"

#endif
