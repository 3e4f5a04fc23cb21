-- SPDX-License-Identifier: MIT
--
-- A small trace with all that a timeline can show, made of numbers: a prefill and five decode passes
-- of eight layers on two GPUs, their operations on streams of their own, one pass as the launch of a
-- graph whose nodes are timed, what moves data between ranks, ranges within ranges, power, clocks and
-- temperatures, a loss, and sources of which some are off. Applied after the schema.

PRAGMA synchronous = OFF;
BEGIN;
INSERT INTO meta VALUES ('format', 'moetrace'), ('moetrace_version', '0.1.0'), ('session_name', 'timeline');
INSERT INTO process (process_id, pid, ep_rank, ep_size) VALUES (1, 1, 0, 2);
INSERT INTO device (device_id, process_id, kind, name, power_limit_mw) VALUES
	(1, 1, 'cuda', 'GPU', 700000), (2, 1, 'cuda', 'GPU', 700000);
INSERT INTO model (model_id, name, kind, n_layers) VALUES (1, 'eight', 'target', 8);
INSERT INTO recording VALUES (1, 1, 0, 500000000, 'stopped', 'per_pass', 'model', NULL);
INSERT INTO layer (layer_id, model_id, layer, moe_ordinal, kind, n_experts, n_zero_experts, n_shared_slots, top_k)
	SELECT byte.value + 1, 1, byte.value, byte.value, 'routed', 64, 0, 0, 8 FROM byte WHERE byte.value < 8;

-- Decode passes of 32 ms follow a prefill of 200 ms; between them 8 ms nothing runs.
INSERT INTO pass (pass_id, recording_id, model_id, phase, begin_ns, end_ns, n_rows, padding_rows, verdict, n_dropped)
	SELECT value + 1, 1, 1, iif(value = 0, 'prefill', 'decode'), iif(value = 0, 20000000, 190000000 + value * 40000000),
		iif(value = 0, 220000000, 222000000 + value * 40000000), iif(value = 0, 512, 16 + value), 0, 'complete', 0
	FROM byte WHERE value < 6;
INSERT INTO pass_layer (pass_id, layer_id, active_experts, max_load, selected_ns, state, n_rows)
	SELECT p.pass_id, l.layer_id, iif(p.phase = 'prefill', 64, 30 + (p.pass_id * 7 + l.layer * 5) % 23), 9,
		p.begin_ns + (p.end_ns - p.begin_ns) / 8 * l.layer + (p.end_ns - p.begin_ns) / 32, 3, p.n_rows
	FROM pass AS p CROSS JOIN layer AS l;

INSERT INTO string VALUES
	(1, 'void flash::attention_kernel<__half, 128, 64>(float const*, int)', 'attention', 0),
	(2, 'router_gemm_64', 'gate', 0), (3, '_ZN6router12topk_softmaxILi64EEEvPKf', 'topk', 0), (4, 'moe_align_block', 'align', 0),
	(5, 'void cutlass::grouped_gemm<cutlass::bfloat16_t>(Params)', 'experts', 0), (6, 'shared_expert_mlp', 'shared', 0),
	(7, 'ep_all_to_all_dispatch', 'dispatch', 1), (8, 'ep_all_to_all_combine', 'combine', 1),
	(9, '<img src=x onerror=alert(1)>', 'norm', 0),
	(20, 'step', NULL, NULL), (21, 'forward', NULL, NULL), (22, 'sample', NULL, NULL), (23, 'attention of layer 0', NULL, NULL);
-- In eighths of a layer's time: what, when, how long, on which stream.
CREATE TEMP TABLE part (name_id INTEGER, at INTEGER, length INTEGER, stream INTEGER);
INSERT INTO part VALUES (1, 0, 18, 7), (9, 18, 3, 7), (2, 22, 5, 7), (3, 27, 3, 7), (4, 30, 4, 7), (7, 34, 10, 13),
	(5, 44, 38, 7), (6, 30, 24, 9), (8, 84, 12, 13);
INSERT INTO kernel (recording_id, device_id, stream, name_id, start_ns, end_ns, pass_id, layer_id, known_by, flags)
	SELECT 1, d.device_id, part.stream, part.name_id, p.begin_ns + layer_ns * l.layer + layer_ns / 100 * part.at + d.device_id * 1000,
		p.begin_ns + layer_ns * l.layer + layer_ns / 100 * (part.at + part.length) + d.device_id * 1000 - p.pass_id * 100,
		p.pass_id, l.layer_id, 1, 0
	FROM (SELECT *, (end_ns - begin_ns) / 8 AS layer_ns FROM pass) AS p CROSS JOIN layer AS l CROSS JOIN part
	CROSS JOIN device AS d WHERE p.pass_id <> 5 OR d.device_id = 2 ORDER BY 5;
DROP TABLE part;
-- Pass 5 on the first GPU: four nodes of 7 ms, the third of them not timed.
INSERT INTO graph_node (graph, node, name_id, layer_id, known_by) VALUES (1, 0, 1, 1, 2), (1, 1, 2, 1, 2), (1, 2, 3, 1, 2), (1, 3, 5, 1, 2);
INSERT INTO graph_launch (graph_launch_id, recording_id, device_id, stream, graph, start_ns, end_ns, pass_id, known_by, flags, n_nodes, n_untimed, node_times)
	VALUES (1, 1, 1, 7, 1, 350000000, 381000000, 5, 1, 0, 4, 1,
		x'00000000c0cf6a0000127a00c0cf6a00ffffffffffffffff00366e01c0cf6a00');
-- A pass that was held up, with nothing in it.
INSERT INTO pass (pass_id, recording_id, model_id, phase, begin_ns, end_ns, n_rows, padding_rows, verdict, n_dropped)
	VALUES (7, 1, 1, 'decode', 228000000, 490000000, 1, 0, 'complete', 0);
INSERT INTO range (range_id, recording_id, name_id, thread, start_ns, end_ns)
	SELECT 4 * pass_id, 1, 23, 1, begin_ns + 500000, begin_ns + (end_ns - begin_ns) / 8 FROM pass WHERE pass_id < 7 UNION ALL
	SELECT 4 * pass_id + 1, 1, 21, 1, begin_ns, end_ns FROM pass WHERE pass_id < 7 UNION ALL
	SELECT 4 * pass_id + 2, 1, 22, 1, end_ns, end_ns + 4000000 FROM pass WHERE pass_id < 7 UNION ALL
	SELECT 4 * pass_id + 3, 1, 20, 1, begin_ns - 2000000, end_ns + 5000000 FROM pass WHERE pass_id < 7;
INSERT INTO power_sample (recording_id, device_id, domain, source, time_ns, instant_mw, energy_mj, limit_mw, processor_mhz,
		memory_mhz, temperature_c, throttle_reasons)
	SELECT 1, d.device_id, 'gpu', 'poll', b.value * 20000000, 420000 + (b.value * 7919 + d.device_id * 31337) % 260000,
		b.value * 11000, iif(b.value % 10 = 0, 700000, NULL), iif(b.value % 10 = 0, 1980 - b.value, NULL),
		iif(b.value % 10 = 0, 2619, NULL), iif(b.value % 10 = 0, 51 + b.value / 5, NULL),
		iif(d.device_id = 1, CASE WHEN b.value BETWEEN 5 AND 9 THEN 4 WHEN b.value = 10 THEN 68 ELSE b.value % 2 END, NULL)
	FROM byte AS b CROSS JOIN device AS d WHERE b.value <= 25 ORDER BY 5, 2;
INSERT INTO gap (recording_id, stream, start_ns, end_ns, n_lost, reason)
	VALUES (1, 'kernel', 283000000, 289000000, 37, 'ring_full');
INSERT INTO collector (recording_id, name, state, mode, version, reason, n_rows, n_dropped, n_invalid, n_calls, calls_ns, longest_call_ns, interval_ns)
	VALUES (1, 'cupti', 'on', 'kernel', '13.0', NULL, 793, 37, 1, 6, 60000, 20000, 100000000),
		(1, 'nvml', 'on', NULL, '580', NULL, 52, 0, 0, 26, 26000000, 2000000, 20000000),
		(1, 'rapl', 'denied', NULL, NULL, '/sys/class/powercap is for root alone: chmod it', 0, 0, 0, 1, 1000, 1000, NULL);
INSERT INTO stats VALUES (1, 'recorded_passes', 7), (1, 'recorded_rows', 608), (1, 'dropped_passes', 0),
	(1, 'dropped_layers', 0), (1, 'recorded_assignments', 38848), (1, 'last_pass_id', 6);
COMMIT;
