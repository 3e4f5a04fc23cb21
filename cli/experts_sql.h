/* SPDX-License-Identifier: MIT */
/*
 * The statements of `moetrace experts`. Parameters: ?1 recording, ?2 phase, ?3 layer, ?4 rows of
 * each layer, ?5 and ?6 the time from and until which passes begin, ?7 request: NULL is all of
 * them.
 */
#ifndef MT_CLI_EXPERTS_SQL_H
#define MT_CLI_EXPERTS_SQL_H

#include "cli/lift.h"

/* What of a layer and recording is asked for; rows are of a view with these two columns. */
#define MT_SQL_ASKED "(?1 IS NULL OR recording_id = ?1) AND (?3 IS NULL OR layer = ?3)"

#define MT_SQL_PHASE_TOKENS                                                            \
	"CASE WHEN ?2 IS NULL THEN tokens WHEN ?2 = 'prefill' THEN prefill_tokens "    \
	"WHEN ?2 = 'decode' THEN decode_tokens WHEN ?2 = 'verify' THEN verify_tokens " \
	"ELSE other_tokens END"

/* From a table `load` to the rows that are printed, with the columns of a table `margin`. */
#define MT_SQL_RANKED                                                                           \
	", ranked AS (SELECT *, 1.0 * tokens / nullif(sum(tokens) OVER kinds, 0) AS share, "    \
	"1.0 * tokens / nullif(avg(tokens) OVER kinds, 0) AS load_over_mean, "                  \
	"row_number() OVER (PARTITION BY recording_id, layer_id ORDER BY tokens DESC, expert) " \
	"AS place FROM load WINDOW kinds AS (PARTITION BY recording_id, layer_id, kind)) "      \
	"SELECT recording_id, model_id, layer, expert, kind, tokens, share, share_margin, "     \
	"load_over_mean, CASE WHEN share IS NULL THEN NULL WHEN tokens = 0 THEN 'dead' WHEN load_over_mean < 0.5 THEN "      \
	"'cold' WHEN load_over_mean > 2 THEN 'hot' ELSE 'normal' END AS state FROM ranked "     \
	"LEFT JOIN margin USING (recording_id, layer_id, expert) WHERE ?4 IS NULL OR place "    \
	"<= ?4 ORDER BY recording_id, model_id, layer, place"

#define MT_SQL_LOAD                                                              \
	"WITH load AS (SELECT recording_id, model_id, layer_id, layer, expert, " \
	"kind, " MT_SQL_PHASE_TOKENS " AS tokens FROM expert_load WHERE " MT_SQL_ASKED "), "

/* No pass was sampled: shares are exact. */
#define MT_SQL_NO_MARGIN                                                             \
	"margin AS (SELECT NULL AS recording_id, NULL AS layer_id, NULL AS expert, " \
	"NULL AS share_margin WHERE 0)"
#define MT_SQL_MARGIN                                                                             \
	"part AS (SELECT recording_id, 1.0 * s.value / (s.value + r.value) AS f FROM stats AS s " \
	"JOIN stats AS r USING (recording_id) WHERE s.name = 'sampled_passes' AND r.name = "      \
	"'recorded_passes' AND s.value > 0), "                                                    \
	"margin AS (SELECT recording_id, layer_id, expert, 1.96 * sqrt(f) * share_error AS "      \
	"share_margin FROM moe_share(?2) JOIN part USING (recording_id))"

/* Of the requests that have the value of an attribute. ?8 value. */
#define MT_SQL_LOAD_OF_VALUE                                                                   \
	"WITH counted AS (SELECT recording_id, layer_id, expert, sum(tokens) AS tokens FROM "  \
	"temp.lift_count WHERE value = ?8 GROUP BY 1, 2, 3), "                                 \
	"load AS (SELECT e.recording_id, e.model_id, e.layer_id, e.layer, e.expert, e.kind, "  \
	"coalesce(c.tokens, 0) AS tokens FROM expert_load AS e LEFT JOIN counted AS c USING "  \
	"(recording_id, layer_id, expert) WHERE e.kind = 'routed' AND " MT_SQL_ASKED           \
	" AND recording_id IN (SELECT recording_id FROM counted)), " MT_SQL_NO_MARGIN

/* Of a time, of a request: counted from the rows. */
#define MT_SQL_LOAD_ROWS                                                                       \
	"WITH counted AS (SELECT recording_id, layer_id, expert, sum(tokens) AS tokens FROM "  \
	"moe_load(?5, ?6, ?7) WHERE (?2 IS NULL OR phase = ?2 OR (?2 = 'other' AND phase NOT " \
	"IN ('prefill', 'decode', 'verify'))) GROUP BY 1, 2, 3), "                             \
	"load AS (SELECT e.recording_id, e.model_id, e.layer_id, e.layer, e.expert, e.kind, "  \
	"coalesce(c.tokens, 0) AS tokens FROM expert_load AS e LEFT JOIN counted AS c USING "  \
	"(recording_id, layer_id, expert) WHERE " MT_SQL_ASKED                                 \
	" AND recording_id IN (SELECT recording_id FROM counted)), " MT_SQL_NO_MARGIN

#define MT_SQL_COVERAGE                                                                \
	"SELECT recording_id, model_id, layer, phase, n_experts, tokens, experts_50, " \
	"experts_90, experts_99, hot_experts, cold_experts, dead_experts "             \
	"FROM expert_coverage WHERE " MT_SQL_ASKED                                     \
	" AND (?2 IS NULL OR phase = ?2) ORDER BY recording_id, model_id, layer, phase"

#define MT_SQL_PAIRS                                                                           \
	"SELECT recording_id, model_id, layer, expert_a, expert_b, together, rows_a, rows_b, " \
	"rows, lift FROM (SELECT *, row_number() OVER (PARTITION BY recording_id, layer_id "   \
	"ORDER BY together DESC, lift DESC, expert_a, expert_b) AS place FROM moe_pairs) "     \
	"WHERE " MT_SQL_ASKED " AND place <= coalesce(?4, 10) "                                \
	"ORDER BY recording_id, model_id, layer, place"

#define MT_SQL_STEPS                                                                           \
	"SELECT recording_id, model_id, layer, phase, rows, pairs, kept_share, chance_share, " \
	"pass_pairs, active_kept_share FROM moe_steps WHERE " MT_SQL_ASKED                     \
	" AND (?2 IS NULL OR phase = ?2) ORDER BY recording_id, model_id, layer, phase"

#define MT_SQL_WINDOWS                                                                         \
	"SELECT recording_id, start_ns, length_ns, model_id, layer, expert, tokens, share, "   \
	"load_over_mean FROM (SELECT *, 1.0 * tokens / sum(tokens) OVER windows AS share, "    \
	"1.0 * tokens * n_experts / sum(tokens) OVER windows AS load_over_mean, row_number() " \
	"OVER (windows ORDER BY tokens DESC, expert) AS place FROM (SELECT w.recording_id, "   \
	"w.start_ns, w.length_ns, l.model_id, l.layer_id, l.layer, w.expert, l.n_experts, "    \
	"CASE WHEN ?2 IS NULL THEN prefill_tokens + decode_tokens + verify_tokens + "          \
	"other_tokens WHEN ?2 = 'prefill' THEN prefill_tokens WHEN ?2 = 'decode' THEN "        \
	"decode_tokens WHEN ?2 = 'verify' THEN verify_tokens ELSE other_tokens END AS "        \
	"tokens FROM expert_load_window AS w JOIN layer AS l USING (layer_id) WHERE "          \
	"w.expert < l.n_experts AND " MT_SQL_ASKED ") WHERE tokens > 0 WINDOW windows AS "     \
	"(PARTITION BY recording_id, start_ns, layer_id)) WHERE ?4 IS NULL OR place <= ?4 "    \
	"ORDER BY recording_id, start_ns, model_id, layer, place"

#define MT_SQL_BY_REQUEST                                                                         \
	"SELECT recording_id, request_id, external_id, model_id, layer, expert, tokens, share "   \
	"FROM (SELECT q.recording_id, q.request_id, q.external_id, m.model_id, m.layer_id, "      \
	"m.layer, m.expert, sum(m.tokens) AS tokens, 1.0 * sum(m.tokens) / sum(sum(m.tokens)) "   \
	"OVER (PARTITION BY q.request_id, m.layer_id) AS share, row_number() OVER (PARTITION "    \
	"BY q.request_id, m.layer_id ORDER BY sum(m.tokens) DESC, m.expert) AS place FROM "       \
	"request AS q CROSS JOIN moe_load(NULL, NULL, q.request_id) AS m WHERE (?2 IS NULL OR "   \
	"m.phase = ?2) AND (?1 IS NULL OR q.recording_id = ?1) AND (?3 IS NULL OR m.layer = ?3) " \
	"GROUP BY q.request_id, m.layer_id, m.expert) WHERE place <= coalesce(?4, 5) "            \
	"ORDER BY recording_id, request_id, model_id, layer, place"

/* ?1 layer, ?2 rows of each layer, ?3 tokens that an expert must have. */
#define MT_SQL_BY_ATTRIBUTE                                                               \
	MT_SQL_LIFT                                                                       \
	", ranked AS (SELECT *, row_number() OVER (PARTITION BY recording_id, layer_id "  \
	"ORDER BY lift DESC, expert, value) AS place FROM scored WHERE expert_tokens >= " \
	"?3 "                                                                             \
	"AND (?1 IS NULL OR layer = ?1)) "                                                \
	"SELECT recording_id, model_id, layer, expert, value, tokens, expert_tokens, "    \
	"share, lift "                                                                    \
	"FROM ranked WHERE ?2 IS NULL OR place <= ?2 "                                    \
	"ORDER BY recording_id, model_id, layer, place"

#endif
