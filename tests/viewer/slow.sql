-- SPDX-License-Identifier: MIT
--
-- A hundred passes of 1 ms and eight rows, and some that are slow, a reason each: rows of prefill (101,
-- 102), more rows (103 to 108), more experts (110), clocks held down (111), the first of its size
-- (112), a loss (113), none (114; 109, which is slow by half alone, is not told). Applied after the schema.
INSERT INTO meta VALUES ('format', 'moetrace'), ('moetrace_version', '0.1.0'), ('session_name', 'slow');
INSERT INTO process (process_id, pid) VALUES (1, 1);
INSERT INTO device (device_id, process_id, kind, name) VALUES (1, 1, 'cuda', 'GPU');
INSERT INTO model (model_id, name, kind, n_layers) VALUES (1, 'slow', 'target', 2);
INSERT INTO layer (layer_id, model_id, layer, moe_ordinal, kind, n_experts, n_zero_experts, n_shared_slots, top_k)
	VALUES (1, 1, 0, 0, 'routed', 64, 0, 0, 4), (2, 1, 1, 1, 'routed', 64, 0, 0, 4);
INSERT INTO recording VALUES (1, 1, 0, 200000000000, 'stopped', 'per_pass', 'model', NULL);
INSERT INTO pass (pass_id, recording_id, model_id, phase, begin_ns, end_ns, n_rows, padding_rows, verdict, n_dropped)
	SELECT value, 1, 1, 'decode', value * 10000000, value * 10000000 + 1000000, 8, 0, 'complete', 0
	FROM byte WHERE value BETWEEN 1 AND 100;
INSERT INTO pass (pass_id, recording_id, model_id, phase, begin_ns, end_ns, n_rows, padding_rows, verdict, n_dropped)
	SELECT value, 1, 1, iif(value < 103, 'mixed', 'decode'), value * 1000000000, value * 1000000000
		+ CASE value WHEN 101 THEN 5000000 WHEN 103 THEN 2100000 WHEN 114 THEN 4000000 ELSE 2000000 END,
		CASE WHEN value < 103 THEN 40 WHEN value < 109 THEN 14 WHEN value = 112 THEN 9 ELSE 8 END,
		iif(value BETWEEN 103 AND 108, 2, 0), 'complete', 0
	FROM byte WHERE value BETWEEN 101 AND 114;
INSERT INTO pass_layer (pass_id, layer_id, active_experts, max_load, selected_ns, state, n_rows)
	SELECT pass_id, layer_id, CASE WHEN pass_id = 110 THEN 40 ELSE 20 END, 4, begin_ns + layer_id, 3, n_rows
	FROM pass CROSS JOIN layer;
INSERT INTO power_sample (recording_id, device_id, domain, source, time_ns, instant_mw, throttle_reasons)
	SELECT 1, 1, 'gpu', 'poll', value * 1000000000 + 500000, 300000, iif(value = 111, 4, 0)
	FROM byte WHERE value BETWEEN 1 AND 114;
INSERT INTO gap (recording_id, stream, start_ns, end_ns, n_lost, reason)
	VALUES (1, 'pass', 113000100000, 113000200000, 1, 'ring_full');
INSERT INTO stats VALUES (1, 'recorded_passes', 114), (1, 'dropped_passes', 1), (1, 'dropped_layers', 0);
