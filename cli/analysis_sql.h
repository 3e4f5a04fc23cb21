/* SPDX-License-Identifier: MIT */
/*
 * Statements that more than one verb uses. ?1 is the recording, NULL for all of them.
 */
#ifndef MT_CLI_ANALYSIS_SQL_H
#define MT_CLI_ANALYSIS_SQL_H

/*
 * Experts against the values of a request attribute (?2): a row for each routed expert and value,
 * over the computed rows of requests that have the attribute. ?3: only this phase, NULL: all.
 * lift = (tokens / expert_tokens) / (value_tokens / layer_tokens): the share of the value among
 * the expert's tokens over its share among all tokens of the layer.
 */
#define MT_SQL_LIFT                                                                                \
	"WITH one AS MATERIALIZED ("                                                                \
	"SELECT t.recording_id, t.model_id, t.layer_id, t.layer, t.expert, a.value, "               \
	"count(*) AS tokens FROM moe_topk AS t "                                                    \
	"JOIN request_attribute AS a ON a.request_id = t.request_id AND a.key = ?2 "                \
	"JOIN layer AS l ON l.layer_id = t.layer_id "                                               \
	"WHERE t.request_id IS NOT NULL AND t.state = 'computed' AND t.expert < l.n_experts "       \
	"AND (?1 IS NULL OR t.recording_id = ?1) AND (?3 IS NULL OR t.phase = ?3) "                 \
	"GROUP BY t.recording_id, t.layer_id, t.expert, a.value), "                                 \
	"lift AS (SELECT recording_id, model_id, layer_id, layer, expert, value, tokens, "          \
	"sum(tokens) OVER (PARTITION BY recording_id, layer_id, expert) AS expert_tokens, "         \
	"sum(tokens) OVER (PARTITION BY recording_id, layer_id, value) AS value_tokens, "           \
	"sum(tokens) OVER (PARTITION BY recording_id, layer_id) AS layer_tokens FROM one), "        \
	"scored AS (SELECT *, 1.0 * tokens / expert_tokens AS share, "                              \
	"1.0 * tokens * layer_tokens / (1.0 * expert_tokens * value_tokens) AS lift FROM lift) "

#endif
