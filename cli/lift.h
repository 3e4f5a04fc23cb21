/* SPDX-License-Identifier: MIT */
/*
 * Experts against the values of a request attribute: which experts prefer which value. The counts
 * come from one pass over moe_topk; the rest is SQL on a temporary table of the connection.
 */
#ifndef MT_CLI_LIFT_H
#define MT_CLI_LIFT_H

#include <stdint.h>

#include "cli/cli.h"

/* Values of an attribute that are told apart at most. */
#define MT_LIFT_MAX_VALUES 4096

/**
 * Fill the temporary table lift_count (recording_id, layer_id, expert, value, tokens): computed
 * rows that selected a routed expert, of requests with the attribute @key.
 *
 * @recording_id  0: all of them.
 * @phase         NULL: all of them.
 *
 * Returns MT_EXIT_OK, or MT_EXIT_FAILED after an error line.
 */
int mt_lift_count(const struct mt_trace *trace, const char *key, uint64_t recording_id,
		  const char *phase);

/* What mt_lift_count() counts, as a query of its own; to be sqlite3_free()d. NULL: out of memory. */
char *mt_lift_query(const char *key, uint64_t recording_id, const char *phase);

/*
 * The beginning of statements on that table. `scored` has a row for each expert and value with
 * lift = (tokens / expert_tokens) / (value_tokens / layer_tokens): the share of the value among
 * the expert's tokens over its share among all tokens of the layer.
 */
#define MT_SQL_LIFT                                                                               \
	"WITH lift AS (SELECT c.recording_id, l.model_id, c.layer_id, l.layer, c.expert, "        \
	"c.value, "                                                                               \
	"c.tokens, sum(c.tokens) OVER (PARTITION BY c.recording_id, c.layer_id, c.expert) "       \
	"AS expert_tokens, "                                                                      \
	"sum(c.tokens) OVER (PARTITION BY c.recording_id, c.layer_id, c.value) AS value_tokens, " \
	"sum(c.tokens) OVER (PARTITION BY c.recording_id, c.layer_id) AS layer_tokens "           \
	"FROM temp.lift_count AS c JOIN layer AS l ON l.layer_id = c.layer_id), "                 \
	"scored AS (SELECT *, 1.0 * tokens / expert_tokens AS share, "                            \
	"1.0 * tokens * layer_tokens / (1.0 * expert_tokens * value_tokens) AS lift FROM lift) "

#endif
