/* SPDX-License-Identifier: MIT */
/*
 * Statements of `moetrace diff`. ?1 and ?2: the recordings of A (main) and B (database b), ?3: rows to
 * print. temp.diff_layer and temp.diff_request hold moe_diff() and moe_diff_request() of them.
 */
#ifndef MT_CLI_DIFF_SQL_H
#define MT_CLI_DIFF_SQL_H

/* A column of x and of y; and what those hold that do not hold the same. */
#define MT_SQL_BOTH(column) "'" #column "', json_array(x." #column ", y." #column ")"
#define MT_SQL_DIFFER(place, what, columns, from)                                             \
	" UNION ALL SELECT " place ", '" what ": ' || key, "                                  \
	"nullif(group_concat(DISTINCT coalesce(json_extract(j.value, '$[0]'), '-')), '-'), "  \
	"nullif(group_concat(DISTINCT coalesce(json_extract(j.value, '$[1]'), '-')), '-') "   \
	"FROM " from                                                                          \
	" CROSS JOIN json_each(json_object(" columns ")) AS j WHERE "                         \
	"json_extract(j.value, '$[0]') IS NOT json_extract(j.value, '$[1]') GROUP BY key"

#define MT_SQL_LAYER_PAIR                                                              \
	"pair JOIN main.layer AS x ON x.model_id = model_a JOIN b.layer AS y ON "     \
	"y.model_id = model_b AND y.layer = x.layer"
#define MT_SQL_LAYER_COLUMNS                                                                    \
	MT_SQL_BOTH(kind) ", " MT_SQL_BOTH(n_shared_slots) ", " MT_SQL_BOTH(top_k) ", "         \
	MT_SQL_BOTH(scoring) ", " MT_SQL_BOTH(n_groups) ", " MT_SQL_BOTH(topk_groups) ", "      \
	MT_SQL_BOTH(renormalize) ", " MT_SQL_BOTH(routed_scaling_factor) ", "                   \
	MT_SQL_BOTH(scaling_owner) ", " MT_SQL_BOTH(soft_cap) ", "                              \
	MT_SQL_BOTH(has_correction_bias) ", " MT_SQL_BOTH(weight_kind) ", "                     \
	MT_SQL_BOTH(gemm_block_rows) ", " MT_SQL_BOTH(expert_weight_bytes) ", "                 \
	MT_SQL_BOTH(router_impl) ", " MT_SQL_BOTH(runner_backend) ", " MT_SQL_BOTH(impl_reason)

#define MT_SQL_MODEL_PAIR                                                                  \
	"pair JOIN main.model AS x ON x.model_id = model_a JOIN b.model AS y ON y.model_id " \
	"= model_b"
#define MT_SQL_MODEL_COLUMNS                                                              \
	MT_SQL_BOTH(name) ", " MT_SQL_BOTH(architecture) ", " MT_SQL_BOTH(n_layers) ", " \
	MT_SQL_BOTH(quantization)

#define MT_SQL_RECORDING_PAIR                                                              \
	"(SELECT * FROM main.recording WHERE recording_id = ?1) AS x CROSS JOIN (SELECT * " \
	"FROM b.recording WHERE recording_id = ?2) AS y"
#define MT_SQL_RECORDING_COLUMNS \
	MT_SQL_BOTH(routing_source) ", " MT_SQL_BOTH(sampling) ", " MT_SQL_BOTH(end_reason)

#define MT_SQL_PROCESS_PAIR                                                                 \
	"(SELECT p.* FROM main.process AS p JOIN main.recording USING (process_id) WHERE "  \
	"recording_id = ?1) AS x CROSS JOIN (SELECT p.* FROM b.process AS p JOIN "          \
	"b.recording USING (process_id) WHERE recording_id = ?2) AS y"
#define MT_SQL_PROCESS_COLUMNS                                                            \
	MT_SQL_BOTH(host) ", " MT_SQL_BOTH(executable) ", " MT_SQL_BOTH(tp_size) ", "    \
	MT_SQL_BOTH(pp_size) ", " MT_SQL_BOTH(ep_size) ", " MT_SQL_BOTH(dp_size)

/* Rules and devices are compared as lists. */
#define MT_SQL_LISTS_DIFFER(what, list_a, list_b)                                      \
	" UNION ALL SELECT 6, '" what "', a, b FROM (SELECT (" list_a ") AS a, (" list_b \
	") AS b) WHERE a IS NOT b"

#define MT_SQL_DEVICES(schema, parameter)                                                       \
	"SELECT group_concat(x, ', ') FROM (SELECT count(*) || ' ' || d.kind || coalesce(' ' "  \
	"|| d.name, '') AS x FROM " schema ".device AS d JOIN " schema ".recording AS r USING " \
	"(process_id) WHERE r.recording_id = " parameter " GROUP BY d.kind, d.name)"

#define MT_SQL_RULES(schema, parameter)                                                         \
	"SELECT group_concat(name, ', ') FROM (SELECT DISTINCT u.name FROM " schema ".rule AS " \
	"u WHERE u.rule_id IN (SELECT t.rule_id FROM " schema ".topk AS t WHERE t.topk_id IN "  \
	"(SELECT pl.topk_id FROM " schema ".pass_layer AS pl JOIN " schema ".pass AS p USING "  \
	"(pass_id) WHERE p.recording_id = " parameter ")) ORDER BY 1)"

#define MT_SQL_DIFFERENCES                                                                       \
	"WITH pair AS (SELECT DISTINCT model_a, model_b FROM temp.diff_layer), fact AS (SELECT " \
	"1 AS place, k.key AS what, x.value AS a, y.value AS b FROM (SELECT key FROM main.meta " \
	"UNION SELECT key FROM b.meta) AS k LEFT JOIN main.meta AS x ON x.key = k.key LEFT JOIN " \
	"b.meta AS y ON y.key = k.key WHERE x.value IS NOT y.value AND k.key NOT IN "            \
	"('session_name', 'session_uuid', 'part')"                                               \
	MT_SQL_DIFFER("2", "model", MT_SQL_MODEL_COLUMNS, MT_SQL_MODEL_PAIR)                     \
	MT_SQL_DIFFER("3", "layers", MT_SQL_LAYER_COLUMNS, MT_SQL_LAYER_PAIR)                    \
	" UNION ALL SELECT 3, 'layers: bias_values', printf('other values in %d layers', "       \
	"count(*)), NULL FROM " MT_SQL_LAYER_PAIR " WHERE x.bias_values IS NOT y.bias_values "   \
	"HAVING count(*) > 0"                                                                    \
	MT_SQL_DIFFER("4", "recording", MT_SQL_RECORDING_COLUMNS, MT_SQL_RECORDING_PAIR)         \
	MT_SQL_DIFFER("5", "process", MT_SQL_PROCESS_COLUMNS, MT_SQL_PROCESS_PAIR)               \
	MT_SQL_LISTS_DIFFER("devices", MT_SQL_DEVICES("main", "?1"), MT_SQL_DEVICES("b", "?2"))  \
	MT_SQL_LISTS_DIFFER("rules", MT_SQL_RULES("main", "?1"), MT_SQL_RULES("b", "?2"))        \
	") SELECT what, a, b FROM fact ORDER BY place, what"

#define MT_SQL_SHARES                                                                            \
	"rows, 1.0 * differing_rows / nullif(rows, 0) AS differing_rows, 1.0 * "                 \
	"differing_choices / nullif(choices, 0) AS differing_choices, "

#define MT_SQL_REST                                                                              \
	"1.0 * reordered_rows / nullif(ordered_rows, 0) AS reordered_rows, weight_distance / "   \
	"nullif(weighted_rows, 0) AS weight_distance, weight_difference / "                      \
	"nullif(compared_weights, 0) AS weight_difference, max_weight_difference"

#define MT_SQL_SUMMARY                                                                           \
	"SELECT d.model_a, d.model_b, q.requests, q.by_id, q.by_tokens, q.same_texts, "          \
	"q.same_while_compared, q.positions, q.compared_positions, "                             \
	MT_SQL_SHARES "share_low, share_high, " MT_SQL_REST ", load_shift, "                     \
	"chance_shift, p_value FROM temp.diff_layer AS d JOIN (SELECT model_a, "                 \
	"sum(joined_by IS NOT NULL) AS requests, sum(joined_by IS 'id') AS by_id, "              \
	"sum(joined_by IS 'tokens') AS by_tokens, sum(has_tokens IS 1 AND token_position IS NULL) " \
	"AS same_texts, sum(rows > 0 AND first_position IS NULL) AS same_while_compared, "       \
	"sum(coalesce(n_positions, 0)) AS positions, sum(coalesce(compared_positions, 0)) AS "   \
	"compared_positions FROM temp.diff_request "                                             \
	"GROUP BY model_a) AS q USING (model_a) WHERE d.layer IS NULL ORDER BY d.model_a"

#define MT_SQL_LAYERS                                                                           \
	"SELECT model_a, layer, " MT_SQL_SHARES "share_low, share_high, " MT_SQL_REST           \
	", load_shift, chance_shift, p_value, p_adjusted FROM temp.diff_layer WHERE layer IS "  \
	"NOT NULL AND position_from IS NULL ORDER BY model_a, layer"

#define MT_SQL_POSITIONS                                                                         \
	"SELECT model_a, position_from, position_to, " MT_SQL_SHARES MT_SQL_REST " FROM "        \
	"(SELECT model_a, position_from, position_to, sum(rows) AS rows, sum(differing_rows) AS " \
	"differing_rows, sum(choices) AS choices, sum(differing_choices) AS differing_choices, " \
	"sum(reordered_rows) AS reordered_rows, sum(ordered_rows) AS ordered_rows, "             \
	"sum(weight_distance) AS weight_distance, sum(weighted_rows) AS weighted_rows, "         \
	"sum(weight_difference) AS weight_difference, sum(compared_weights) AS "                 \
	"compared_weights, max(max_weight_difference) AS max_weight_difference FROM "            \
	"temp.diff_layer WHERE position_from IS NOT NULL GROUP BY model_a, position_from, "      \
	"position_to) ORDER BY model_a, position_from"

#define MT_SQL_REQUESTS                                                                          \
	"SELECT model_a, request_a, request_b, a.external_id, joined_by, d.n_positions, "        \
	"d.compared_positions, "                                                                 \
	"token_position, " MT_SQL_SHARES "reused_rows, reused_differing_rows, missing_a, "       \
	"missing_b, first_position, first_layer FROM temp.diff_request AS d JOIN main.request "  \
	"AS a ON a.request_id = request_a WHERE joined_by IS NOT NULL ORDER BY 1.0 * "           \
	"differing_choices / nullif(choices, 0) DESC, model_a, request_a, request_b LIMIT ?3"

#define MT_SQL_LEFT_OUT_LOSS(schema, parameter, side)                                            \
	" UNION ALL SELECT 20, dropped_passes, '" side ": passes that were lost' FROM " schema   \
	".loss WHERE recording_id = " parameter " AND dropped_passes > 0 UNION ALL SELECT 21, "  \
	"dropped_layers, '" side ": layers of passes that were lost' FROM " schema ".loss WHERE " \
	"recording_id = " parameter " AND dropped_layers > 0 UNION ALL SELECT 22, "              \
	"unwritten_layers, '" side ": layers of passes that nobody wrote' FROM " schema ".loss " \
	"WHERE recording_id = " parameter " AND unwritten_layers > 0 UNION ALL SELECT 23, "      \
	"sampled_passes, '" side ": passes that sampling left out' FROM " schema ".loss WHERE "  \
	"recording_id = " parameter " AND sampled_passes > 0 UNION ALL SELECT 24, "              \
	"disabled_passes, '" side ": passes while recording was off in the runtime' FROM "       \
	schema ".loss WHERE recording_id = " parameter " AND disabled_passes > 0 UNION ALL "     \
	"SELECT 25, count(*), '" side ": requests that are not finished: compared as far as they " \
	"came' FROM " schema ".request WHERE recording_id = " parameter " AND verdict = "        \
	"'unfinished' HAVING count(*) > 0 UNION ALL SELECT 26, count(*), '" side ": requests of " \
	"several attempts: the last one is compared' FROM " schema ".request WHERE "             \
	"recording_id = " parameter " AND n_attempts > 1 HAVING count(*) > 0 UNION ALL SELECT "  \
	"27, sum(n), '" side ": requests that share their id with another one: joined in their " \
	"order' FROM (SELECT count(*) AS n FROM " schema ".request WHERE recording_id = "        \
	parameter " AND external_id IS NOT NULL GROUP BY external_id HAVING count(*) > 1) "      \
	"HAVING count(*) > 0 UNION ALL SELECT 28, NULL, '" side ": model ' || name || ' has no " \
	"counterpart' FROM " schema ".model AS m WHERE kind = 'target' AND EXISTS (SELECT 1 "    \
	"FROM " schema ".pass AS p WHERE p.recording_id = " parameter " AND p.model_id = "       \
	"m.model_id) AND m.model_id NOT IN (SELECT model_" side " FROM temp.diff_layer)"

#define MT_SQL_N_TEXTLESS "SELECT count(*) FROM temp.diff_request WHERE has_tokens = 0"

#define MT_SQL_LEFT_OUT                                                                          \
	"WITH said AS (SELECT 1 AS place, count(*) AS n, 'requests of a that nothing is joined " \
	"to: no request of b has the id, or the tokens of the prompt' AS what FROM "             \
	"temp.diff_request WHERE request_b IS NULL UNION ALL SELECT 2, count(*), 'requests of b " \
	"that nothing is joined to' FROM temp.diff_request WHERE request_a IS NULL UNION ALL "   \
	"SELECT 3, count(*), 'requests that end at the first token that differs' FROM "          \
	"temp.diff_request WHERE token_position IS NOT NULL UNION ALL SELECT 4, count(*), "      \
	"'requests without tokens on both sides: their texts may differ' FROM "                  \
	"temp.diff_request WHERE has_tokens = 0 UNION ALL SELECT 5, count(*), 'requests without " \
	"a row in common' FROM temp.diff_request WHERE joined_by IS NOT NULL AND rows + "        \
	"reused_rows = 0 UNION ALL SELECT 6, sum(missing_a), 'rows that a lacks' FROM "          \
	"temp.diff_request UNION ALL SELECT 7, sum(missing_b), 'rows that b lacks' FROM "        \
	"temp.diff_request UNION ALL SELECT 8, sum(missing_both), 'rows that both lack' FROM "   \
	"temp.diff_request UNION ALL SELECT 9, sum(reused_rows), 'rows that were reused: in the " \
	"figures of requests alone' FROM temp.diff_request" MT_SQL_LEFT_OUT_LOSS("main", "?1",   \
										 "a")            \
		MT_SQL_LEFT_OUT_LOSS("b", "?2", "b") ") SELECT n, what FROM said WHERE n > 0 OR " \
						     "n IS NULL AND place = 28 ORDER BY place, what"

#endif
