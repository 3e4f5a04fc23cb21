-- SPDX-License-Identifier: MIT
--
-- A large trace, made of numbers: as many passes as table `size` says, of 64 rows over 61 layers of 256
-- experts, top-8, with 16 operations a layer on two streams, ranges and power of 8 GPUs. Applied after
-- the schema and after `proto` has runs of top-k rows (bench_viewer.sh).

BEGIN;
INSERT INTO meta VALUES ('format', 'moetrace'), ('moetrace_version', '0.1.0'), ('session_name', 'large');
INSERT INTO process (process_id, pid, ep_rank, ep_size) VALUES (1, 1, 0, 8);
CREATE TEMP TABLE n (x INTEGER PRIMARY KEY);
INSERT INTO n WITH RECURSIVE c(x) AS (SELECT 0 UNION ALL SELECT x + 1 FROM c
	LIMIT (SELECT max(1000, n_passes) FROM size)) SELECT x FROM c;
INSERT INTO device (device_id, process_id, kind, name, power_limit_mw)
	SELECT x + 1, 1, 'cuda', 'GPU', 700000 FROM n WHERE x < 8;
INSERT INTO model (model_id, name, kind, n_layers) VALUES (1, 'large', 'target', 64);
INSERT INTO recording VALUES (1, 1, 0, (SELECT n_passes * 15000000 FROM size), 'stopped', 'per_token', 'model', NULL);
INSERT INTO layer (layer_id, model_id, layer, moe_ordinal, kind, n_experts, n_zero_experts, n_shared_slots, top_k,
	weight_kind) SELECT x + 1, 1, x + 3, x, 'routed', 256, 0, 0, 8, 'renormalized' FROM n WHERE x < 61;
INSERT INTO request (request_id, recording_id, handle, external_id, prompt_positions, n_positions, n_attempts, n_pauses,
	paused_ns, begin_ns, end_ns, end_state, verdict)
	SELECT g.x * 64 + r.x + 1, 1, g.x * 64 + r.x + 1, printf('request-%d', g.x * 64 + r.x), 0, 100, 1, 0, 0,
		g.x * 1500000000, (g.x + 1) * 1500000000 - 1, 'finished', 'complete'
	FROM n AS g CROSS JOIN n AS r WHERE g.x <= (SELECT (n_passes - 1) / 100 FROM size) AND r.x < 64;
INSERT INTO request_attribute SELECT request_id, 'domain', printf('domain %d', request_id % 5) FROM request;
INSERT INTO expert_load_window SELECT 1, w.x * (length / 30), l.x + 1, e.x, length / 30,
	0, 100 + (e.x * 104729 + l.x * 7919 + w.x * 31) % 400 + iif(e.x = (l.x * 37) % 256, 3000, 0), 0, 0, 0
	FROM (SELECT n_passes * 15000000 AS length FROM size) CROSS JOIN n AS w CROSS JOIN n AS l CROSS JOIN n AS e
	WHERE w.x < 30 AND l.x < 61 AND e.x < 256;
INSERT INTO pass (pass_id, recording_id, model_id, phase, begin_ns, end_ns, n_rows, padding_rows, runtime_pass, verdict,
	n_dropped) SELECT x + 1, 1, 1, 'decode', x * 15000000, x * 15000000 + 14000000 + x * 7919 % 900000, 64, 0, x, 'complete', 0
	FROM n WHERE x < (SELECT n_passes FROM size);
INSERT INTO pass_request (pass_id, slice, request_id, attempt, first_position, row_offset, n_rows, phase)
	SELECT p.x + 1, r.x, p.x / 100 * 64 + r.x + 1, 0, p.x % 100, r.x, 1, 'decode'
	FROM n AS p CROSS JOIN n AS r WHERE p.x < (SELECT n_passes FROM size) AND r.x < 64;
INSERT INTO pass_layer (pass_id, layer_id, active_experts, max_load, selected_ns, state, selection_order, n_rows, topk_id, topk_row)
	SELECT p.x + 1, l.x + 1, 100 + (p.x * 13 + l.x) % 100, 9, p.x * 15000000 + l.x * 220000, 0, 0, 64,
		(p.x * 61 + l.x) / 128 + 1, (p.x * 61 + l.x) % 128 * 64
	FROM n AS p CROSS JOIN n AS l WHERE p.x < (SELECT n_passes FROM size) AND l.x < 61;
INSERT INTO topk (topk_id, n_rows, k, id_bytes, weight_format, topk_ids, topk_weights)
	SELECT x + 1, 8192, 8, 1, 'fp16', ids, weights FROM n JOIN proto ON proto_id = x % 16
	WHERE x <= (SELECT n_passes * 61 / 128 FROM size);
INSERT INTO string VALUES (1, 'router_gemm', 'gate', 0), (2, 'topk_kernel', 'topk', 0), (3, 'align', 'align', 0),
	(4, 'all_to_all', 'dispatch', 1), (5, 'grouped_gemm', 'experts', 0), (6, 'flash_attention', 'attention', 0),
	(7, 'rms_norm', 'norm', 0), (8, 'gather', 'combine', 1), (9, 'step', NULL, NULL);
INSERT INTO kernel (kernel_id, recording_id, device_id, stream, name_id, start_ns, end_ns, pass_id, layer_id, known_by, flags)
	SELECT (p.x * 61 + l.x) * 16 + k.x + 1, 1, 1, 7 + (k.x % 4 = 3), 1 + k.x % 8,
		p.x * 15000000 + l.x * 220000 + k.x * 13000, p.x * 15000000 + l.x * 220000 + k.x * 13000 + 2000
			+ (p.x * 31 + k.x * 7919) % 11000 + iif(k.x % 8 = 4, 3 * ((p.x * 13 + l.x) % 100), 0),
		p.x + 1, l.x + 1, 1, 0
	FROM n AS p CROSS JOIN n AS l CROSS JOIN n AS k
	WHERE p.x < (SELECT n_passes FROM size) AND l.x < 61 AND k.x < 16;
INSERT INTO range (recording_id, name_id, thread, start_ns, end_ns)
	SELECT 1, 9, r.x % 2, p.x * 15000000 + r.x * 3500000, p.x * 15000000 + r.x * 3500000 + 3000000
	FROM n AS p CROSS JOIN n AS r WHERE p.x < (SELECT n_passes FROM size) AND r.x < 4;
INSERT INTO power_sample (recording_id, device_id, domain, source, time_ns, instant_mw, energy_mj, limit_mw)
	SELECT 1, d.x + 1, 'gpu', 'poll', s.x * 100000000 + d.x, 450000 + (s.x * 7919 + d.x * 104729) % 220000, s.x * 55000, 700000
	FROM n AS s CROSS JOIN n AS d WHERE s.x < (SELECT n_passes * 15 / 100 FROM size) AND d.x < 8;
INSERT INTO gap (recording_id, stream, start_ns, end_ns, n_lost, reason)
	SELECT 1, 'pass', n_passes * 6000000, n_passes * 6300000, 40, 'ring_full' FROM size;
INSERT INTO stats SELECT 1, name, value FROM size CROSS JOIN (SELECT 'recorded_passes' AS name, n_passes AS value FROM size
	UNION ALL SELECT 'recorded_rows', n_passes * 64 FROM size UNION ALL SELECT 'dropped_passes', 40
	UNION ALL SELECT 'dropped_layers', 0 UNION ALL SELECT 'recorded_assignments', n_passes * 64 * 61 * 8 FROM size
	UNION ALL SELECT 'last_pass_id', n_passes FROM size);
DROP TABLE proto;
DROP TABLE size;
COMMIT;
