/* SPDX-License-Identifier: MIT */
/*
 * The proofs that are SQL: each statement returns a row (table, key, what is wrong) for every
 * violation, and another one counts what was looked at.
 */
#include "cli/check.h"

#include <stdio.h>
#include <string.h>

static const struct check_sql_proof sql_proofs[] = {
	{CHECK_VALUES, "SELECT count(*) FROM meta",
	 "SELECT 'meta', column1, 'is missing, or names another format' FROM (VALUES ('format'), "
	 "('moetrace_version'), ('session_name'), ('session_uuid'), ('engine_name'), "
	 "('engine_version')) WHERE EXISTS (SELECT 1 FROM recording) AND NOT EXISTS (SELECT 1 "
	 "FROM meta WHERE key = column1 AND (key <> 'format' OR value = 'moetrace'))"},
	{CHECK_VALUES, "SELECT count(*) FROM device",
	 "SELECT 'device', device_id, 'kind' FROM device WHERE kind NOT IN ('host', 'cuda')"},
	{CHECK_VALUES, "SELECT count(*) FROM diagnostic",
	 "SELECT 'diagnostic', diagnostic_id, 'severity or source' FROM diagnostic "
	 "WHERE severity NOT IN ('info', 'warning', 'error') "
	 "OR (source NOT IN ('session', 'pass', 'request', 'writer', 'store', 'cuda', "
	 "'collector', 'cupti', 'nvml', 'rapl', 'host', 'nvtx', 'null') "
	 "AND source NOT GLOB 'cuda.[1-9]' AND source NOT GLOB 'cuda.1[0-5]')"},
	{CHECK_VALUES, "SELECT count(*) FROM rule",
	 "SELECT 'rule', rule_id, 'has no name' FROM rule WHERE name = ''"},
	{CHECK_VALUES, "SELECT count(*) FROM pass_layer",
	 "SELECT 'pass_layer', pass_id || ',' || layer_id, 'state or selection_order' "
	 "FROM pass_layer WHERE state NOT IN (0, 1, 2, 3) OR selection_order NOT IN (0, 1, 2)"},
	{CHECK_VALUES, "SELECT count(*) FROM model",
	 "SELECT 'model', model_id, 'kind' FROM model "
	 "WHERE kind NOT IN ('target', 'draft', 'mtp')"},
	{CHECK_VALUES, "SELECT count(*) FROM layer",
	 "SELECT 'layer', layer_id, 'kind or sizes' FROM layer "
	 "WHERE kind NOT IN ('routed', 'hash') OR typeof(n_experts) <> 'integer' "
	 "OR typeof(n_zero_experts) <> 'integer' OR typeof(n_shared_slots) <> 'integer' "
	 "OR typeof(top_k) <> 'integer' OR n_experts < 1 OR n_zero_experts < 0 "
	 "OR n_shared_slots < 0 OR n_experts > 65536 OR n_zero_experts > 65536 "
	 "OR n_shared_slots > 65536 OR n_experts + n_zero_experts + n_shared_slots > 65536 "
	 "OR top_k < 1 OR top_k > 255 OR top_k > n_experts + n_zero_experts + n_shared_slots"},
	{CHECK_VALUES, NULL,
	 "SELECT 'layer', layer_id, 'scoring, weight_kind, scaling_owner or a flag' FROM layer "
	 "WHERE scoring NOT IN ('softmax', 'sigmoid', 'sqrtsoftplus', 'softmax_selected', "
	 "'sparsemixer') OR weight_kind NOT IN ('raw', 'renormalized', 'scaled', "
	 "'renormalized,scaled') OR scaling_owner NOT IN ('router', 'output') "
	 "OR renormalize NOT IN (0, 1) OR has_correction_bias NOT IN (0, 1) "
	 "OR router_output NOT IN ('standard', 'packed', 'ragged', 'none')"},
	{CHECK_VALUES, NULL,
	 "SELECT 'layer', layer_id, 'group_top_n without groups, or above a group''s experts' "
	 "FROM layer WHERE group_top_n < 1 OR (group_top_n IS NOT NULL AND n_groups IS NULL) "
	 "OR group_top_n > n_experts / n_groups"},
	{CHECK_VALUES, NULL,
	 "SELECT 'layer', layer_id, 'bias_values of another size, or without a bias' FROM layer "
	 "WHERE bias_values IS NOT NULL AND (typeof(bias_values) <> 'blob' "
	 "OR length(bias_values) <> 4 * (n_experts + n_zero_experts) "
	 "OR has_correction_bias IS NOT 1)"},
	{CHECK_VALUES, NULL,
	 "SELECT 'layer', max(layer_id), 'another layer of its model has the same number' "
	 "FROM layer GROUP BY model_id, layer HAVING count(*) > 1 UNION ALL "
	 "SELECT 'layer', max(layer_id), 'another layer of its model has the same moe_ordinal' "
	 "FROM layer GROUP BY model_id, moe_ordinal HAVING count(*) > 1"},
	{CHECK_VALUES, NULL,
	 "SELECT 'layer', l.layer_id, 'is numbered beyond the layers of its model' "
	 "FROM layer AS l JOIN model AS m USING (model_id) WHERE l.layer >= m.n_layers"},
	{CHECK_VALUES, "SELECT count(*) FROM recording",
	 "SELECT 'recording', recording_id, 'mode' FROM recording "
	 "WHERE mode NOT IN ('per_token', 'per_pass', 'stat')"},
	{CHECK_VALUES, NULL,
	 "SELECT 'recording', recording_id, 'is of mode stat, yet has passes or requests' "
	 "FROM recording AS r WHERE mode = 'stat' AND (EXISTS (SELECT 1 FROM pass AS p "
	 "WHERE p.recording_id = r.recording_id) OR EXISTS (SELECT 1 FROM request AS q "
	 "WHERE q.recording_id = r.recording_id))"},
	{CHECK_VALUES, NULL,
	 "SELECT 'pass_layer', l.pass_id || ',' || l.layer_id, 'has rows in a recording of mode "
	 "per_pass' FROM pass_layer AS l JOIN pass AS p USING (pass_id) JOIN recording AS r "
	 "USING (recording_id) WHERE r.mode = 'per_pass' AND l.state = 0"},
	{CHECK_VALUES, NULL,
	 "SELECT 'recording', recording_id, 'sampling, or requests are sampled where no rows are "
	 "kept' FROM recording WHERE sampling = '' OR sampling GLOB '*[^a-z0-9=,+]*' "
	 "OR (mode <> 'per_token' AND sampling GLOB '*requests=*')"},
	{CHECK_VALUES, "SELECT count(*) FROM request",
	 "SELECT 'request', request_id, 'verdict, end_state or counts' FROM request "
	 "WHERE verdict NOT IN ('complete', 'partial', 'unfinished') "
	 "OR end_state NOT IN ('finished', 'aborted', 'failed') "
	 "OR typeof(n_attempts) <> 'integer' OR n_attempts < 1 "
	 "OR typeof(n_positions) NOT IN ('integer', 'null') OR n_positions < 0"},
	{CHECK_VALUES, NULL,
	 "SELECT 'request', max(request_id), 'another request of its recording has the same "
	 "handle' FROM request GROUP BY recording_id, handle HAVING count(*) > 1"},
	{CHECK_VALUES, "SELECT count(*) FROM pass",
	 "SELECT 'pass', pass_id, 'phase, verdict or counts' FROM pass "
	 "WHERE phase NOT IN ('prefill', 'decode', 'mixed', 'verify', 'draft', 'idle', 'dummy') "
	 "OR verdict NOT IN ('complete', 'partial') OR typeof(n_rows) <> 'integer' OR n_rows < 0 "
	 "OR n_rows > 67108864 OR typeof(padding_rows) <> 'integer' OR padding_rows < 0 "
	 "OR typeof(n_dropped) <> 'integer' OR n_dropped < 0"},
	{CHECK_VALUES, NULL,
	 "SELECT 'pass', pass_id, 'device_id: not a GPU of the process that recorded' FROM pass "
	 "JOIN recording AS r USING (recording_id) JOIN device AS d USING (device_id) "
	 "WHERE d.kind <> 'cuda' OR d.process_id <> r.process_id"},
	{CHECK_VALUES, "SELECT count(*) FROM pass_request",
	 "SELECT 'pass_request', pass_id || ',' || slice, 'phase, request or attempt' "
	 "FROM pass_request "
	 "WHERE phase NOT IN ('prefill', 'decode', 'verify', 'draft', 'idle', 'dummy') "
	 "OR (request_id IS NULL) <> (attempt IS NULL) "
	 "OR (request_id IS NULL) <> (first_position IS NULL) "
	 "OR typeof(attempt) NOT IN ('integer', 'null') OR attempt < 0 "
	 "OR typeof(first_position) NOT IN ('integer', 'null') OR first_position < 0 "
	 "OR (attempt IS NOT NULL AND attempt >= (SELECT n_attempts FROM request AS r "
	 "WHERE r.request_id = pass_request.request_id))"},
	{CHECK_VALUES, NULL,
	 "SELECT 'pass_request', pr.pass_id || ',' || pr.slice, "
	 "'its request is of another recording' FROM pass_request AS pr "
	 "JOIN pass AS p USING (pass_id) JOIN request AS r USING (request_id) "
	 "WHERE r.recording_id <> p.recording_id"},
	{CHECK_VALUES, "SELECT count(*) FROM topk",
	 "SELECT 'topk', topk_id, 'weight_format or id_bytes' FROM topk "
	 "WHERE weight_format NOT IN ('none', 'fp16', 'bf16') OR id_bytes NOT IN (1, 2)"},
	{CHECK_VALUES, "SELECT count(*) FROM gap",
	 "SELECT 'gap', gap_id, 'stream, reason or n_lost' FROM gap "
	 "WHERE stream NOT IN ('pass', 'layer', 'dispatch', 'kernel', 'range', 'collective', 'sample') OR n_lost < 1 "
	 "OR reason NOT IN ('no_ring', 'ring_full', 'device_ring_full', 'device', "
	 "'stop_timeout', 'file_limit', 'io_error')"},
	{CHECK_VALUES, "SELECT count(*) FROM byte",
	 "SELECT 'byte', n, 'is missing or wrong' FROM (WITH RECURSIVE c(n) AS "
	 "(SELECT 0 UNION ALL SELECT n + 1 FROM c WHERE n < 255) SELECT n FROM c) "
	 "WHERE NOT EXISTS (SELECT 1 FROM byte WHERE value = n "
	 "AND typeof(byte) = 'blob' AND hex(byte) = printf('%02X', n))"},

	{CHECK_TIMES, "SELECT count(*) FROM recording",
	 "SELECT 'recording', recording_id, 'end_ns before start_ns' FROM recording "
	 "WHERE end_ns < start_ns"},
	{CHECK_TIMES, "SELECT count(*) FROM request",
	 "SELECT 'request', request_id, 'end_ns before begin_ns' FROM request "
	 "WHERE end_ns < begin_ns"},
	{CHECK_TIMES, "SELECT count(*) FROM pass",
	 "SELECT 'pass', pass_id, 'end_ns before begin_ns' FROM pass WHERE end_ns < begin_ns"},
	{CHECK_TIMES, "SELECT count(*) FROM pass_layer",
	 "SELECT 'pass_layer', pl.pass_id || ',' || pl.layer_id, 'selected_ns outside its pass' "
	 "FROM pass_layer AS pl JOIN pass AS p USING (pass_id) "
	 "WHERE pl.selected_ns < p.begin_ns OR pl.selected_ns > p.end_ns"},
	{CHECK_TIMES, NULL,
	 "SELECT 'pass_request', pr.pass_id || ',' || pr.slice, 'its request begins after the "
	 "pass, "
	 "or ended before it' FROM pass_request AS pr JOIN pass AS p USING (pass_id) "
	 "JOIN request AS r USING (request_id) "
	 "WHERE r.begin_ns > p.begin_ns OR r.end_ns < p.begin_ns"},
	{CHECK_TIMES, "SELECT count(*) FROM gap",
	 "SELECT 'gap', gap_id, 'end_ns before start_ns' FROM gap WHERE end_ns < start_ns"},

	{CHECK_TOPK_BLOBS, "SELECT count(*) FROM topk",
	 "SELECT 'topk', topk_id, 'n_rows ' || n_rows || ', k ' || k || ', id_bytes ' || id_bytes "
	 "|| ', but topk_ids has ' || coalesce(length(topk_ids), 'no') || ' bytes, topk_weights ' "
	 "|| coalesce(length(topk_weights), 'none') || ' (' || weight_format || '), row_map ' "
	 "|| coalesce(length(row_map), 'none') || ', n_valid ' || coalesce(length(n_valid), "
	 "'none') || ', base_ids ' || coalesce(length(base_ids), 'none') "
	 "FROM topk WHERE typeof(n_rows) <> 'integer' OR typeof(k) <> 'integer' OR n_rows < 0 "
	 "OR k < 1 OR k > 255 OR typeof(topk_ids) <> 'blob' "
	 "OR length(topk_ids) <> n_rows * k * id_bytes "
	 "OR (topk_weights IS NULL) <> (weight_format = 'none') "
	 "OR typeof(topk_weights) NOT IN ('blob', 'null') OR length(topk_weights) <> n_rows * k * "
	 "2 "
	 "OR typeof(row_map) NOT IN ('blob', 'null') OR length(row_map) <> n_rows * 4 "
	 "OR typeof(n_valid) NOT IN ('blob', 'null') OR length(n_valid) <> n_rows "
	 "OR (base_ids IS NULL) <> (base_k IS NULL) OR (base_ids IS NOT NULL AND rule_id IS NULL) "
	 "OR typeof(base_ids) NOT IN ('blob', 'null') "
	 "OR length(base_ids) <> n_rows * base_k * id_bytes"},
	{CHECK_TOPK_BLOBS, NULL,
	 "SELECT 'topk', topk_id, 'physical_ids or candidates are not of the size of its rows' "
	 "FROM topk WHERE (physical_ids IS NULL) <> (physical_id_bytes IS NULL) "
	 "OR physical_id_bytes NOT IN (1, 2) OR typeof(physical_ids) NOT IN ('blob', 'null') "
	 "OR length(physical_ids) <> n_rows * k * physical_id_bytes "
	 "OR (n_candidates IS NULL) <> (candidate_ids IS NULL) "
	 "OR (n_candidates IS NULL) <> (candidate_scores IS NULL) "
	 "OR (n_candidates IS NULL) <> (score_format IS NULL) "
	 "OR n_candidates < 1 OR n_candidates > 65536 OR score_format NOT IN ('fp16', 'bf16') "
	 "OR typeof(candidate_ids) NOT IN ('blob', 'null') "
	 "OR typeof(candidate_scores) NOT IN ('blob', 'null') "
	 "OR length(candidate_ids) <> n_rows * n_candidates * id_bytes "
	 "OR length(candidate_scores) <> n_rows * n_candidates * 2"},
	{CHECK_TOPK_BLOBS, NULL,
	 "SELECT 'topk', topk_id, 'margins or row_flags are not of the size of its rows' "
	 "FROM topk WHERE typeof(margins) NOT IN ('blob', 'null') OR length(margins) <> n_rows * 4 "
	 "OR typeof(row_flags) NOT IN ('blob', 'null') OR length(row_flags) <> n_rows"},

	{CHECK_LAYER_LOAD, NULL,
	 "SELECT 'layer_load', c.pass_id || ',' || c.layer_id, 'its layer is not counted' "
	 "FROM layer_load AS c LEFT JOIN pass_layer AS l USING (pass_id, layer_id) "
	 "WHERE l.state IS NOT 3"},

	{CHECK_DISPATCH, "SELECT count(*) FROM dispatch",
	 "SELECT 'dispatch', pass_id || ',' || layer_id, 'an array is not of the size of its number' "
	 "FROM dispatch WHERE (n_ranks IS NULL) <> (rank_tokens IS NULL AND rank_bytes IS NULL) "
	 "OR (n_local_experts IS NULL) <> (received_tokens IS NULL) "
	 "OR (n_local_experts IS NULL) <> (first_local_slot IS NULL) "
	 "OR (n_local_experts IS NULL) <> (received_alignment IS NULL) "
	 "OR (n_rdma_ranks IS NULL) <> (rdma_rank_tokens IS NULL) "
	 "OR n_ranks > 65536 OR n_local_experts > 65536 OR n_rdma_ranks > 65536 "
	 "OR received_alignment < 1 "
	 "OR typeof(rank_tokens) NOT IN ('blob', 'null') OR length(rank_tokens) <> n_ranks * 4 "
	 "OR typeof(rank_bytes) NOT IN ('blob', 'null') OR length(rank_bytes) <> n_ranks * 8 "
	 "OR typeof(received_tokens) NOT IN ('blob', 'null') "
	 "OR length(received_tokens) <> n_local_experts * 4 "
	 "OR typeof(rdma_rank_tokens) NOT IN ('blob', 'null') "
	 "OR length(rdma_rank_tokens) <> n_rdma_ranks * 4"},
	{CHECK_DISPATCH, NULL,
	 "SELECT 'dispatch', d.pass_id || ',' || d.layer_id, 'its layer is not in the pass' "
	 "FROM dispatch AS d LEFT JOIN pass_layer AS l USING (pass_id, layer_id) "
	 "WHERE l.pass_id IS NULL"},

	{CHECK_EXPERT_MAP, "SELECT count(*) FROM expert_map",
	 "SELECT 'expert_map', layer_id || ',' || epoch, 'its slots, ranks or epoch are impossible' "
	 "FROM expert_map WHERE epoch < 1 OR n_slots < 1 OR n_slots > 65536 OR n_ranks < 1 "
	 "OR n_slots % n_ranks <> 0 OR typeof(slot_experts) <> 'blob' "
	 "OR length(slot_experts) <> n_slots * 4"},
	{CHECK_EXPERT_MAP, NULL,
	 "SELECT 'pass_layer', l.pass_id || ',' || l.layer_id, 'its map_epoch is not in expert_map' "
	 "FROM pass_layer AS l LEFT JOIN expert_map AS m ON m.layer_id = l.layer_id "
	 "AND m.epoch = l.map_epoch WHERE l.map_epoch IS NOT NULL AND m.epoch IS NULL"},

	{CHECK_SLICE_BLOBS, "SELECT count(*) FROM pass_request",
	 "SELECT 'pass_request', pass_id || ',' || slice, 'n_rows ' || n_rows || ' in phase ' "
	 "|| phase || ', but positions has ' || coalesce(length(positions), 'no') "
	 "|| ' bytes, accepted ' || coalesce(length(accepted), 'none') "
	 "FROM pass_request WHERE typeof(positions) NOT IN ('blob', 'null') "
	 "OR length(positions) <> n_rows * 4 OR (positions IS NOT NULL AND request_id IS NULL) "
	 "OR typeof(accepted) NOT IN ('blob', 'null') OR length(accepted) <> n_rows "
	 "OR (accepted IS NOT NULL AND phase <> 'verify') "
	 "OR replace(replace(hex(accepted), '00', ''), '01', '') <> ''"},

	{CHECK_PARENTS, "SELECT count(*) FROM pass WHERE parent_pass_id IS NOT NULL",
	 "SELECT 'pass', p.pass_id, CASE WHEN q.recording_id <> p.recording_id "
	 "THEN 'its parent is of another recording' WHEN q.parent_pass_id IS NOT NULL "
	 "THEN 'its parent has a parent' WHEN q.begin_ns > p.begin_ns "
	 "THEN 'it begins before its parent' ELSE 'its parent has rows or layers of its own' END "
	 "FROM pass AS p JOIN pass AS q ON q.pass_id = p.parent_pass_id "
	 "WHERE q.recording_id <> p.recording_id OR q.parent_pass_id IS NOT NULL "
	 "OR q.begin_ns > p.begin_ns OR q.n_rows > 0 "
	 "OR EXISTS (SELECT 1 FROM pass_request AS s WHERE s.pass_id = q.pass_id) "
	 "OR EXISTS (SELECT 1 FROM pass_layer AS l WHERE l.pass_id = q.pass_id AND l.state = 0)"},

	{CHECK_RECORDINGS, "SELECT count(*) FROM recording",
	 "SELECT 'recording', recording_id, 'end_ns and end_reason are not both there' "
	 "FROM recording WHERE (end_ns IS NULL) <> (end_reason IS NULL)"},
	{CHECK_RECORDINGS, NULL,
	 "SELECT 'recording', recording_id, 'has no end, but a later recording of its process "
	 "begins' FROM recording AS r WHERE end_ns IS NULL AND EXISTS (SELECT 1 FROM recording "
	 "AS l WHERE l.process_id = r.process_id AND l.recording_id > r.recording_id)"},
	{CHECK_RECORDINGS, NULL,
	 "SELECT 'recording', r.recording_id, 'is closed, but expert_load_window ends before its "
	 "last pass' FROM recording AS r WHERE r.end_reason NOT IN ('io_error', 'killed') AND (SELECT max(pass_id) "
	 "FROM pass AS p WHERE p.recording_id = r.recording_id) > coalesce((SELECT value FROM "
	 "stats "
	 "AS s WHERE s.recording_id = r.recording_id AND s.name = 'last_pass_id'), 0)"},

	/*
	 * In flight mode the recording begins with the oldest pass that was kept, or where the oldest
	 * range ended. A dump that was cut off may have its oldest entry in what was not written.
	 */
	{CHECK_RECORDINGS, NULL,
	 "SELECT 'recording', r.recording_id, 'is of flight mode, but does not begin with its first "
	 "pass or range' FROM recording AS r JOIN (SELECT recording_id, min(at_ns) AS at_ns FROM "
	 "(SELECT recording_id, min(begin_ns) AS at_ns FROM pass GROUP BY recording_id UNION ALL "
	 "SELECT recording_id, min(end_ns) FROM range GROUP BY recording_id) GROUP BY recording_id) "
	 "AS k USING (recording_id) WHERE k.at_ns <> r.start_ns AND r.mode <> 'stat' "
	 "AND (k.at_ns < r.start_ns OR r.end_reason NOT IN ('file_limit', 'io_error', 'killed')) "
	 "AND EXISTS (SELECT 1 FROM stats AS s WHERE s.recording_id = r.recording_id "
	 "AND s.name = 'flight_let_go_passes')"},
	{CHECK_STATS, NULL,
	 "SELECT 'stats', recording_id || ',' || name, 'is ' || value FROM stats "
	 "WHERE name = 'flight_let_go_passes' AND value < 0"},

	{CHECK_STATS, "SELECT count(*) FROM stats",
	 "SELECT 'stats', r.recording_id || ',' || column1, 'is missing' FROM recording AS r, "
	 "(VALUES ('recorded_passes'), ('recorded_rows'), ('recorded_layers'), "
	 "('recorded_assignments'), ('dropped_passes'), ('dropped_layers'), ('dropped_bytes'), "
	 "('invalid_ids'), ('misuse'), ('duplicate_layers'), ('last_pass_id'), "
	 "('dropped_dispatches'), ('dropped_kernels'), ('recorded_kernels'), "
	 "('dropped_ranges'), ('recorded_ranges'), ('dropped_collectives'), "
	 "('recorded_collectives'), ('untied_kernels'), ('unwritten_layers'), ('sampled_passes'), ('disabled_passes'), "
	 "('load_passes'), ('load_assignments'), "
	 "('writer_cpu_ns'), ('commits'), ('longest_commit_ns'), ('ring_peak_bytes')) "
	 "WHERE NOT EXISTS (SELECT 1 FROM stats AS s WHERE s.recording_id = r.recording_id "
	 "AND s.name = column1)"},
	/* What stop gave up waiting for is stored as far as it came, so it is not dropped. */
	{CHECK_STATS, NULL,
	 "SELECT 'stats', recording_id || ',' || name, 'is ' || value || ', the gaps give ' || n "
	 "FROM (SELECT s.recording_id, s.name, s.value, (SELECT coalesce(sum(CASE s.name "
	 "WHEN 'dropped_bytes' THEN g.bytes_lost ELSE g.n_lost END), 0) FROM gap AS g "
	 "WHERE g.recording_id = s.recording_id AND g.reason <> 'stop_timeout' "
	 "AND (s.name = 'dropped_bytes' OR g.stream = substr(s.name, 9, length(g.stream)))) AS n "
	 "FROM stats AS s WHERE s.name IN ('dropped_passes', 'dropped_layers', 'dropped_dispatches', "
	 "'dropped_kernels', 'dropped_ranges', 'dropped_collectives', 'dropped_bytes')) "
	 "WHERE value <> n"},
	/* What expert load says that it is of. */
	{CHECK_STATS, NULL,
	 "SELECT 'stats', recording_id || ',load_assignments', 'is ' || value || ', "
	 "expert_load_window has ' || n FROM (SELECT s.recording_id, s.value, (SELECT "
	 "coalesce(sum(prefill_tokens + decode_tokens + verify_tokens + other_tokens), 0) FROM "
	 "expert_load_window AS w WHERE w.recording_id = s.recording_id) AS n FROM stats AS s "
	 "WHERE s.name = 'load_assignments') WHERE value <> n"},
	{CHECK_STATS, NULL,
	 "SELECT 'stats', recording_id || ',load_passes', 'is ' || value || ', up to last_pass_id "
	 "there are ' || n FROM (SELECT s.recording_id, s.value, (SELECT count(*) FROM pass AS p "
	 "WHERE p.recording_id = s.recording_id AND p.pass_id <= (SELECT value FROM stats AS l "
	 "WHERE l.recording_id = s.recording_id AND l.name = 'last_pass_id')) AS n FROM stats AS s "
	 "JOIN recording AS r USING (recording_id) WHERE s.name = 'load_passes' "
	 "AND r.mode <> 'stat') WHERE value <> n"},
	/* Without passes the counters prove each other: what was counted is in the windows. */
	{CHECK_STATS, NULL,
	 "SELECT 'stats', s.recording_id || ',' || s.name, 'is ' || s.value || ', of mode stat "
	 "expert load has ' || l.value FROM recording AS r JOIN stats AS s USING (recording_id) "
	 "JOIN stats AS l USING (recording_id) WHERE r.mode = 'stat' AND l.name = 'load_' || "
	 "substr(s.name, 10) AND s.name IN ('recorded_passes', 'recorded_assignments') "
	 "AND (s.value < l.value OR (s.value <> l.value "
	 "AND coalesce(r.end_reason, 'io_error') <> 'io_error'))"},
	{CHECK_STATS, NULL,
	 "SELECT 'stats', s.recording_id || ',' || s.name, 'says that passes were left out, which "
	 "no reason of a request or sampling allows' FROM stats AS s JOIN recording AS r "
	 "USING (recording_id) WHERE s.name = 'sampled_passes' AND s.value > 0 AND (r.sampling IS "
	 "NULL OR r.sampling NOT GLOB '*passes=*' AND r.sampling NOT GLOB '*phases=*')"},
	/* A layer can be dropped from a pass that is not in the file, or not whole. */
	{CHECK_STATS, NULL,
	 "SELECT 'stats', recording_id || ',dropped_layers', 'is ' || value || ', its passes say ' "
	 "|| n FROM (SELECT s.recording_id, s.value, (SELECT sum(p.n_dropped) FROM pass AS p "
	 "WHERE p.recording_id = s.recording_id) AS n FROM stats AS s "
	 "WHERE s.name = 'dropped_layers') WHERE value < n"},
	{CHECK_STATS, NULL,
	 "SELECT 'stats', s.recording_id || ',invalid_ids', 'is ' || s.value || ', which is not "
	 "what the reasons of the passes say' FROM stats AS s JOIN recording AS r USING "
	 "(recording_id) WHERE s.name = 'invalid_ids' AND r.mode <> 'stat' AND (s.value > 0) <> "
	 "EXISTS (SELECT 1 FROM pass AS p WHERE p.recording_id = s.recording_id AND (',' || p.reasons || ',') LIKE '%,invalid,%')"},
	{CHECK_STATS, NULL,
	 "SELECT 'stats', s.recording_id || ',last_pass_id', 'is above the last pass' "
	 "FROM stats AS s WHERE s.name = 'last_pass_id' AND s.value > coalesce((SELECT "
	 "max(pass_id) FROM pass AS p WHERE p.recording_id <= s.recording_id), 0)"},
};

static void violations_take(struct check *check, enum check_proof proof, sqlite3_stmt *stmt)
{
	const char *table = (const char *)sqlite3_column_text(stmt, 0);
	const char *key = (const char *)sqlite3_column_text(stmt, 1);
	const char *what = (const char *)sqlite3_column_text(stmt, 2);

	check_violation(check, proof, "%s %s: %s", table ? table : "?", key ? key : "NULL",
			what ? what : "a value is NULL");
}

int check_sql_proof_run(struct check *check, enum check_proof proof, const char *count,
			const char *violations)
{
	sqlite3_stmt *stmt;
	int64_t n = 0;
	int status = MT_EXIT_OK;
	int rc;

	if (count)
		status = mt_trace_int(check->trace, count, &n);
	check->results[proof].n_checked += (uint64_t)n;
	if (status != MT_EXIT_OK)
		return status;
	stmt = mt_trace_prepare(check->trace, violations);
	if (!stmt)
		return MT_EXIT_FAILED;
	while ((rc = sqlite3_step(stmt)) == SQLITE_ROW)
		violations_take(check, proof, stmt);
	if (rc != SQLITE_DONE)
		status = mt_trace_error(check->trace);
	sqlite3_finalize(stmt);
	return status;
}

int check_sql_proofs_run(struct check *check, const struct check_sql_proof *proofs, size_t n_proofs)
{
	int status = MT_EXIT_OK;

	for (size_t i = 0; i < n_proofs && status == MT_EXIT_OK; i++)
		status = check_sql_proof_run(check, proofs[i].proof, proofs[i].count,
					     proofs[i].violations);
	return status;
}

/* PRAGMA integrity_check answers one row 'ok', or a row for each fault. */
int check_integrity_run(struct check *check)
{
	sqlite3_stmt *stmt = mt_trace_prepare(check->trace, "PRAGMA integrity_check(100)");
	int rc;

	if (!stmt)
		return MT_EXIT_FAILED;
	check->results[CHECK_INTEGRITY].n_checked = 1;
	while ((rc = sqlite3_step(stmt)) == SQLITE_ROW) {
		const char *text = (const char *)sqlite3_column_text(stmt, 0);

		if (!text || strcmp(text, "ok") != 0)
			check_violation(check, CHECK_INTEGRITY, "file: %s", text ? text : "?");
	}
	if (rc != SQLITE_DONE)
		check_violation(check, CHECK_INTEGRITY, "file: %s",
				sqlite3_errmsg(check->trace->db));
	sqlite3_finalize(stmt);
	return MT_EXIT_OK;
}

static int foreign_keys_run(struct check *check)
{
	sqlite3_stmt *stmt;
	int64_t n = 0;
	int status;
	int rc;

	status = mt_trace_int(check->trace,
			      "SELECT count(*) FROM sqlite_schema AS s, "
			      "pragma_foreign_key_list(s.name) WHERE s.type = 'table'",
			      &n);
	if (status != MT_EXIT_OK)
		return status;
	check->results[CHECK_FOREIGN_KEYS].n_checked = (uint64_t)n;
	stmt = mt_trace_prepare(check->trace, "PRAGMA foreign_key_check");
	if (!stmt)
		return MT_EXIT_FAILED;
	while ((rc = sqlite3_step(stmt)) == SQLITE_ROW)
		check_violation(check, CHECK_FOREIGN_KEYS, "%s rowid %s: refers to no row of %s",
				(const char *)sqlite3_column_text(stmt, 0),
				sqlite3_column_type(stmt, 1) == SQLITE_NULL
					? "unknown"
					: (const char *)sqlite3_column_text(stmt, 1),
				(const char *)sqlite3_column_text(stmt, 2));
	if (rc != SQLITE_DONE)
		status = mt_trace_error(check->trace);
	sqlite3_finalize(stmt);
	return status;
}

int check_sql_run(struct check *check)
{
	int status = foreign_keys_run(check);

	return status == MT_EXIT_OK ? check_sql_proofs_run(check, sql_proofs,
							   sizeof(sql_proofs) / sizeof(sql_proofs[0]))
				    : status;
}
