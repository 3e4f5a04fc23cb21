/* SPDX-License-Identifier: MIT */
/*
 * All statements of the store, by name. Parameters are bound in the order of the columns.
 */
#ifndef MT_STORE_STMT_H
#define MT_STORE_STMT_H

#define MT_STMT_MAP(X)                                                                        \
	X(META, "INSERT OR REPLACE INTO meta VALUES (?, ?)")                                  \
	X(PROCESS, "INSERT INTO process VALUES (1, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)")      \
	X(DEVICE, "INSERT INTO device VALUES (NULL, 1, ?, ?, ?, ?, NULL)")                    \
	X(MODEL, "INSERT INTO model VALUES (?, ?, ?, ?, ?, ?)")                               \
	X(LAYER, "INSERT INTO layer VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, " \
		 "?, ?, ?, ?, ?, ?, ?, ?, ?, ?)")                                             \
	X(RECORDING, "INSERT INTO recording VALUES (?, 1, ?, NULL, NULL, ?, ?, ?)")            \
	X(RECORDING_START, "UPDATE recording SET start_ns = ? WHERE recording_id = ?")        \
	X(RECORDING_END, "UPDATE recording SET end_ns = ?, end_reason = ? "                   \
			 "WHERE recording_id = ?")                                            \
	X(REQUEST, "INSERT INTO request VALUES (?, ?, ?, ?, ?, NULL, ?, ?, 0, ?, NULL, NULL, " \
		   "'unfinished', NULL)")                                                     \
	X(REQUEST_PROGRESS, "UPDATE request SET n_attempts = ?, n_pauses = ?, paused_ns = ? " \
			    "WHERE request_id = ?")                                           \
	X(REUSE, "INSERT INTO request_reuse VALUES (?, ?, ?, ?, ?, ?)")                       \
	X(REQUEST_END, "UPDATE request SET n_positions = ?, end_ns = ?, end_state = ?, "      \
		       "verdict = ?, reasons = ? WHERE request_id = ?")                       \
	X(ATTRIBUTE, "INSERT OR REPLACE INTO request_attribute VALUES (?, ?, ?)")             \
	X(TOKEN, "INSERT OR REPLACE INTO request_token VALUES (?, ?, ?)")                     \
	X(PASS, "INSERT INTO pass VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)")      \
	X(PASS_PARENT, "UPDATE pass SET parent_pass_id = ? WHERE pass_id = ?")                \
	X(SLICE, "INSERT INTO pass_request VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)")            \
	X(SLICE_ACCEPTED, "UPDATE pass_request SET accepted = ? "                             \
			  "WHERE pass_id = ? AND slice = ?")                                  \
	X(PASS_LAYER, "INSERT INTO pass_layer VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)") \
	X(LAYER_LOAD, "INSERT INTO layer_load VALUES (?, ?, ?, ?, ?)")                        \
	X(DISPATCH, "INSERT INTO dispatch VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)")          \
	X(EXPERT_MAP, "INSERT INTO expert_map VALUES (?, ?, ?, ?, ?, ?)")                     \
	X(RULE, "INSERT INTO rule VALUES (?, ?)")                                             \
	X(STRING, "INSERT INTO string VALUES (?, ?, ?, ?)")                                   \
	X(RANGE, "INSERT INTO range VALUES (NULL, ?, ?, ?, ?, ?)")                            \
	X(COLLECTIVE, "INSERT INTO collective VALUES (NULL, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)")  \
	X(GRAPH_LAUNCH, "INSERT INTO graph_launch VALUES (NULL, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, " \
			"?)")                                                                  \
	X(GRAPH_NODE, "INSERT INTO graph_node VALUES (?, ?, ?, ?, ?, ?, ?, ?)")               \
	X(OVERHEAD, "INSERT INTO collector_overhead VALUES (NULL, ?, ?, ?, ?, ?)")            \
	X(LAUNCH_SHAPE, "INSERT INTO launch_shape VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)")     \
	X(DEVICE_LIMIT, "UPDATE device SET power_limit_mw = ? WHERE device_id = ?")           \
	X(POWER, "INSERT INTO power_sample VALUES (NULL, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)") \
	X(LINK, "INSERT INTO device_link VALUES (NULL, ?, ?, ?, ?, ?, ?, ?)")                 \
	X(DEVICE_CLOCK, "INSERT INTO device_clock VALUES (NULL, 1, ?, ?, ?, ?, ?)")           \
	X(HOST, "INSERT INTO host_sample VALUES (NULL, ?, ?, ?, ?, ?, ?)")                    \
	X(COLLECTOR, "INSERT OR REPLACE INTO collector VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, " \
		     "?, ?)")                                                                 \
	X(COLLECTOR_HUNG, "UPDATE collector SET state = 'hung', reason = ?3, n_dropped = NULL WHERE " \
			  "recording_id = ?1 AND name = ?2")                                  \
	X(KERNEL, "INSERT INTO kernel VALUES (NULL, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)")     \
	X(TOPK, "INSERT INTO topk VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, " \
		"?, ?, ?)")                                                                         \
	X(LOAD, "INSERT INTO expert_load_window VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?) "       \
		"ON CONFLICT (recording_id, start_ns, layer_id, expert) DO UPDATE SET "       \
		"prefill_tokens = prefill_tokens + excluded.prefill_tokens, "                 \
		"decode_tokens = decode_tokens + excluded.decode_tokens, "                    \
		"verify_tokens = verify_tokens + excluded.verify_tokens, "                    \
		"other_tokens = other_tokens + excluded.other_tokens, "                       \
		"padding_tokens = padding_tokens + excluded.padding_tokens")                  \
	X(STAT, "INSERT OR REPLACE INTO stats VALUES (?, ?, ?)")                              \
	X(STAT_ADD, "UPDATE stats SET value = value + ?3 WHERE recording_id = ?1 AND name = ?2") \
	X(GAP, "INSERT OR REPLACE INTO gap VALUES (?, ?, ?, ?, ?, ?, ?, ?)")                  \
	X(DIAGNOSTIC, "INSERT OR REPLACE INTO diagnostic VALUES (?, 1, ?, ?, ?, ?, ?)")       \
	X(CLOCK, "INSERT INTO clock_snapshot VALUES (NULL, 1, ?, ?, ?, ?)")                   \
	X(BEGIN, "BEGIN IMMEDIATE")                                                           \
	X(COMMIT, "COMMIT")                                                                   \
	X(ROLLBACK, "ROLLBACK")

/*
 * Add the windows of a recording together so that each begins at a multiple of the new length
 * after the recording's start: sqlite3_mprintf() format, of origin, length (twice, then once
 * more) and recording.
 */
#define MT_SQL_MERGE_WINDOWS                                                                  \
	"CREATE TEMP TABLE merged AS SELECT recording_id, "                                   \
	"%lld + (start_ns - %lld) / %lld * %lld AS start_ns, layer_id, expert, "              \
	"%lld AS length_ns, sum(prefill_tokens), sum(decode_tokens), sum(verify_tokens), "    \
	"sum(other_tokens), sum(padding_tokens) FROM main.expert_load_window "                \
	"WHERE recording_id = %lld GROUP BY 1, 2, 3, 4;"                                      \
	"DELETE FROM main.expert_load_window WHERE recording_id = %lld;"                      \
	"INSERT INTO main.expert_load_window SELECT * FROM temp.merged ORDER BY 1, 2, 3, 4;"  \
	"DROP TABLE temp.merged"

enum mt_stmt {
#define MT_STMT_ENUM(name, sql) MT_STMT_##name,
	MT_STMT_MAP(MT_STMT_ENUM)
#undef MT_STMT_ENUM
	MT_N_STMT,
};

#endif
