-- SPDX-License-Identifier: MIT
--
-- A large trace, made of numbers: 61 layers of 256 experts in 30 windows, 2000 passes, their layers,
-- and kernels on two streams until there are a million bars; power under its limit, and a loss.
-- Applied after the schema.

PRAGMA synchronous = OFF;
BEGIN;
INSERT INTO meta VALUES ('format', 'moetrace'), ('moetrace_version', '0.1.0'), ('session_name', 'big');
INSERT INTO process (process_id, pid, ep_rank, ep_size) VALUES (1, 1, 0, 8);
INSERT INTO device (device_id, process_id, kind, name, power_limit_mw) VALUES (1, 1, 'cuda', 'GPU', 700000);
INSERT INTO model (model_id, name, kind, n_layers) VALUES (1, 'big', 'target', 64);
INSERT INTO recording VALUES (1, 1, 0, 300000000000, 'stopped', 'stat', 'model', NULL);
CREATE TEMP TABLE n (x INTEGER PRIMARY KEY);
INSERT INTO n WITH RECURSIVE c(x) AS (SELECT 0 UNION ALL SELECT x + 1 FROM c LIMIT 1000000) SELECT x FROM c;
INSERT INTO layer (layer_id, model_id, layer, moe_ordinal, kind, n_experts, n_zero_experts, n_shared_slots, top_k)
	SELECT x + 1, 1, x + 3, x, 'routed', 256, 0, 0, 8 FROM n WHERE x < 61;
INSERT INTO expert_load_window SELECT 1, w.x * 10000000000, l.x + 1, e.x, 10000000000,
	(e.x * 7919 + l.x * 104729) % 50, 100 + (e.x * 104729 + l.x * 7919 + w.x * 31) % 400
		+ iif(e.x = (l.x * 37) % 256, 3000, 0), 0, 0, 0
	FROM n AS w CROSS JOIN n AS l CROSS JOIN n AS e WHERE w.x < 30 AND l.x < 61 AND e.x < 256;
INSERT INTO pass (pass_id, recording_id, model_id, phase, begin_ns, end_ns, n_rows, padding_rows, verdict, n_dropped)
	SELECT x + 1, 1, 1, iif(x % 10 = 0, 'prefill', 'decode'), x * 150000000, x * 150000000 + 140000000,
		iif(x % 10 = 0, 512, 64), 0, 'complete', 0 FROM n WHERE x < 2000;
INSERT INTO pass_layer (pass_id, layer_id, active_experts, max_load, selected_ns, state, n_rows)
	SELECT p.x + 1, l.x + 1, 100 + (p.x * 13 + l.x) % 100, 9, p.x * 150000000 + l.x * 2200000, 3,
		iif(p.x % 10 = 0, 512, 64) FROM n AS p CROSS JOIN n AS l WHERE p.x < 2000 AND l.x < 61;
INSERT INTO string VALUES (1, 'router_gemm', 'gate', 0), (2, 'topk_kernel', 'topk', 0),
	(3, 'grouped_gemm', 'experts', 0), (4, 'flash_attention', 'attention', 0), (5, 'all_to_all', 'dispatch', 1);
INSERT INTO kernel (kernel_id, recording_id, device_id, stream, name_id, start_ns, end_ns, pass_id, layer_id,
	known_by, flags)
	SELECT x + 1, 1, 1, 7 + x % 2, 1 + (x / 2) % 5, x / 876 * 300000000 + x % 876 * 160000,
		x / 876 * 300000000 + x % 876 * 160000 + 40000 + x % 7 * 30000, NULL, NULL, NULL, 0
	FROM n WHERE x < 876000;
INSERT INTO power_sample (recording_id, device_id, domain, source, time_ns, instant_mw, energy_mj, limit_mw)
	SELECT 1, 1, 'gpu', 'poll', x * 100000000, 450000 + (x * 7919) % 220000, x * 55000, 700000
	FROM n WHERE x < 3000;
INSERT INTO gap (recording_id, stream, start_ns, end_ns, n_lost, reason)
	VALUES (1, 'pass', 120000000000, 126000000000, 40, 'ring_full');
INSERT INTO stats VALUES (1, 'recorded_passes', 2000), (1, 'recorded_rows', 217600), (1, 'dropped_passes', 40),
	(1, 'dropped_layers', 0), (1, 'recorded_assignments', 106187520), (1, 'last_pass_id', 2000);
DROP TABLE n;
COMMIT;
