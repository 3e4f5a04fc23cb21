-- SPDX-License-Identifier: MIT
--
-- A sound trace with everything that a trace can hold, small enough to be read: slices of every
-- phase, a layer that sees fewer rows and uses fewer entries, ids of one and of two bytes, verify
-- rows that were accepted, rejected and never resolved, a retract, rows of no request, a draft
-- model, two recordings. Applied after the schema. What follows from the ids is computed here
-- from the views.

INSERT INTO meta VALUES ('format', 'moetrace'), ('moetrace_version', '0.1.0'),
	('session_name', 'sound'), ('session_uuid', '1'), ('engine_name', 'by hand'),
	('engine_version', '1'), ('opt.weight_format', 'fp16');
INSERT INTO process (process_id, pid, boot_id) VALUES (1, 1, 'no-boot');
INSERT INTO device (device_id, process_id, kind, n_processors) VALUES (1, 1, 'host', 2);
INSERT INTO model (model_id, name, kind, n_layers) VALUES (1, 'tiny', 'target', 2),
	(2, 'tiny-draft', 'draft', 1);
INSERT INTO layer (layer_id, model_id, layer, moe_ordinal, kind, n_experts, n_zero_experts,
	n_shared_slots, top_k, weight_kind, router_impl) VALUES
	(1, 1, 0, 0, 'routed', 4, 0, 0, 2, 'renormalized,scaled', 'by hand'),
	(2, 1, 1, 1, 'routed', 300, 2, 1, 3, NULL, 'by hand'),
	(3, 2, 0, 0, 'routed', 4, 0, 0, 1, 'raw', 'by hand');
INSERT INTO recording VALUES (1, 1, 0, 9000, 'stopped', 'per_token', 'model', NULL),
	(2, 1, 10000, 20000, 'closed', 'per_token', 'model', NULL);
INSERT INTO clock_snapshot (clock_snapshot_id, process_id, session_ns, monotonic_ns, realtime_ns,
	uncertainty_ns) VALUES (1, 1, 0, 5000, 1700000000000000000, 10);

INSERT INTO request VALUES
	(1, 1, 1, 'alpha', 2, 6, 1, 0, 0, 100, 8000, 'finished', 'complete', NULL),
	(2, 1, 2, 'beta', 1, 2, 2, 0, 0, 200, 8100, 'aborted', 'complete', NULL),
	(3, 1, 3, 'gamma', 1, NULL, 1, 0, 0, 300, NULL, NULL, 'unfinished', NULL),
	(4, 2, 3, 'gamma', 1, 1, 1, 0, 0, 300, 19000, 'finished', 'complete', NULL),
	(5, 2, 4, 'delta', 1, 1, 1, 1, 50, 12000, 13000, 'finished', 'complete', NULL);
INSERT INTO request_reuse VALUES (5, 0, 0, 1, 4, 0);
INSERT INTO request_attribute VALUES (1, 'domain', 'c'), (1, 'user', 'a,"b"'), (2, 'domain', 'py'),
	(4, 'domain', 'py');
INSERT INTO request_token VALUES (1, 0, 104), (1, 1, 10), (1, 2, 255);

INSERT INTO pass VALUES
	(1, 1, 1, 'prefill', 1000, 1100, 3, 1, 11, NULL, NULL, 'complete', NULL, 0, NULL),
	(2, 1, 1, 'mixed', 2000, 2100, 3, 0, 12, NULL, NULL, 'complete', NULL, 0, NULL),
	(3, 1, 1, 'verify', 3000, 3100, 3, 0, 13, NULL, NULL, 'complete', NULL, 0, NULL),
	(4, 1, 1, 'verify', 4000, 4100, 2, 0, 14, NULL, NULL, 'complete', NULL, 0, NULL),
	(5, 1, 1, 'decode', 5000, 5100, 1, 0, 15, NULL, NULL, 'complete', NULL, 0, 2),
	(6, 1, 2, 'draft', 6000, 6100, 2, 0, NULL, NULL, NULL, 'complete', NULL, 0, NULL),
	(7, 1, 1, 'dummy', 7000, 7100, 1, 0, NULL, NULL, NULL, 'complete', NULL, 0, NULL),
	(8, 2, 1, 'prefill', 11000, 11100, 1, 0, 16, 9, 0, 'complete', NULL, 0, NULL),
	(9, 2, 1, 'prefill', 10900, 11200, 0, 0, 17, NULL, NULL, 'complete', NULL, 0, NULL);
INSERT INTO pass_request VALUES
	(1, 0, 1, 0, 0, NULL, 0, 2, 'prefill', NULL),
	(1, 1, 2, 0, 0, NULL, 2, 1, 'prefill', NULL),
	(2, 0, 1, 0, 2, NULL, 0, 1, 'decode', NULL),
	(2, 1, 2, 1, 0, NULL, 1, 2, 'prefill', NULL),
	(3, 0, 1, 0, 3, NULL, 0, 3, 'verify', x'010100'),
	(4, 0, 1, 0, 5, x'0500000006000000', 0, 2, 'verify', NULL),
	(5, 0, 1, 0, 5, NULL, 0, 1, 'decode', NULL),
	(6, 0, 1, 0, 3, NULL, 0, 2, 'draft', NULL),
	(7, 0, NULL, NULL, NULL, NULL, 0, 1, 'dummy', NULL),
	(8, 0, 4, 0, 0, NULL, 0, 1, 'prefill', NULL);

-- Layer 1 has every row; layer 2 sees rows 0 and 2 of pass 1 and uses fewer than three entries
-- in some rows (ids are two bytes: 300 is a zero expert, 302 the shared slot); layer 3 is the
-- draft model's.
INSERT INTO topk (topk_id, n_rows, k, id_bytes, weight_format, topk_ids, topk_weights, row_map,
	n_valid) VALUES
	(1, 14, 2, 1, 'fp16',
	 x'0001' || x'0102' || x'0203' || x'0001' || x'0003' || x'0300' || x'0201' || x'0102'
	 || x'0003' || x'0001' || x'0102' || x'0203' || x'0001' || x'0300',
	 x'003c0038' || x'003c0038' || x'003c0038' || x'003c0038' || x'003c0038' || x'003c0038'
	 || x'003c0038' || x'003c0038' || x'003c0038' || x'003c0038' || x'003c0038' || x'003c0038'
	 || x'003c0038' || x'003c0038', NULL, NULL),
	(2, 13, 3, 2, 'none',
	 x'00002b012e01' || x'010002000000' || x'2b012c010000' || x'050006000700'
	 || x'2a012b012e01' || x'000000000000' || x'0100ff002e01' || x'030004000000'
	 || x'2b0100000100' || x'0a000b000c00' || x'0d000e000f00' || x'000001000200'
	 || x'100011001200', NULL,
	 x'00000000' || x'02000000' || x'00000000' || x'01000000' || x'02000000' || x'00000000'
	 || x'01000000' || x'02000000' || x'00000000' || x'01000000' || x'00000000' || x'00000000'
	 || x'00000000',
	 x'03020203030003020303030303'),
	(3, 2, 1, 1, 'bf16', x'0103', x'803f003f', NULL, NULL);
-- '||' makes text of blobs; and the entries past n_valid are 0.
UPDATE topk SET topk_ids = CAST(topk_ids AS BLOB), topk_weights = CAST(topk_weights AS BLOB),
	row_map = CAST(row_map AS BLOB), n_valid = CAST(n_valid AS BLOB);

INSERT INTO pass_layer (pass_id, layer_id, active_experts, padding_active_experts, max_load, selected_ns,
	state, map_epoch, selection_order, n_rows, topk_id, topk_row) VALUES
	(1, 1, 0, 0, 0, 1010, 0, NULL, 0, 3, 1, 0), (1, 2, 0, 2, 0, 1050, 0, NULL, 0, 2, 2, 0),
	(2, 1, 0, 0, 0, 2010, 0, NULL, 0, 3, 1, 3), (2, 2, 0, 0, 0, 2050, 0, NULL, 0, 3, 2, 2),
	(3, 1, 0, 0, 0, 3010, 0, NULL, 0, 3, 1, 6), (3, 2, 0, 0, 0, 3050, 0, NULL, 0, 3, 2, 5),
	(4, 1, 0, 0, 0, 4010, 0, NULL, 0, 2, 1, 9), (4, 2, 0, 0, 0, 4050, 0, NULL, 0, 2, 2, 8),
	(5, 1, 0, 0, 0, 5010, 0, NULL, 0, 1, 1, 11), (5, 2, 0, 0, 0, 5050, 0, NULL, 0, 1, 2, 10),
	(6, 3, 0, 0, 0, 6010, 0, NULL, 0, 2, 3, 0),
	(7, 1, 0, 0, 0, 7010, 0, NULL, 0, 1, 1, 12), (7, 2, 0, 0, 0, 7050, 0, NULL, 0, 1, 2, 11),
	(8, 1, 0, 0, 0, 11010, 0, NULL, 0, 1, 1, 13), (8, 2, 0, 0, 0, 11050, 0, NULL, 0, 1, 2, 12);

-- The four experts of layer 1 lie in six slots of two ranks, one of them twice, one slot is empty.
INSERT INTO expert_map VALUES (1, 1, 50, 6, 2, x'0000000001000000020000000300000000000000ffffffff');
INSERT INTO dispatch VALUES (1, 1, 2, x'0200000001000000', x'00100000000000000008000000000000', 3, 0,
	x'020000000100000001000000', 1, 2, x'0200000001000000');

-- Each expert served from the first slot that holds it; the order of pass 1 was restored by the
-- weights; the draft model's router scored another expert high.
UPDATE topk SET physical_id_bytes = 1, physical_ids = topk_ids WHERE topk_id = 1;
UPDATE pass_layer SET map_epoch = 1 WHERE layer_id = 1;
UPDATE layer SET has_correction_bias = 0 WHERE layer_id = 1;
UPDATE pass_layer SET selection_order = 1, tied_rows = 0 WHERE pass_id = 1 AND layer_id = 1;
UPDATE topk SET n_candidates = 1, candidate_ids = x'0200', score_format = 'bf16',
	candidate_scores = x'003f003e' WHERE topk_id = 3;
-- Its rows: one that ties, one of which nothing was left out.
UPDATE topk SET margins = x'000000000000807f', row_flags = x'0201' WHERE topk_id = 3;

-- Times of what ran on the host and on a GPU, power, and what the sources of it say.
INSERT INTO device (device_id, process_id, kind, uuid, power_limit_mw) VALUES
	(2, 1, 'cuda', 'GPU-1', 700000);
INSERT INTO string VALUES (1, 'experts', 'experts', 0), (2, 'dispatch_kernel', 'dispatch', 1),
	(3, 'step', NULL, NULL);
INSERT INTO launch_shape VALUES (1, 8, 1, 1, 128, 1, 1, 32, 1024, NULL);
INSERT INTO kernel VALUES
	(1, 1, 1, NULL, 1, 5005, 5030, 5, 1, 0, 0, NULL, NULL),
	(2, 1, 2, 7, 2, 5040, 5120, 5, 2, 1, 0, 1, 33),
	(3, 1, 2, 7, 1, NULL, NULL, NULL, NULL, NULL, 1, NULL, NULL);
INSERT INTO graph_node VALUES (1, 0, 2, 1, 2, 1, 900, 0), (1, 1, 1, 2, 3, NULL, 901, 0);
INSERT INTO graph_launch VALUES
	(1, 1, 2, 7, 1, 7010, 7090, 7, 1, 0, 2, 0, x'000000001e0000002800000028000000', 34),
	(2, 2, 2, 7, NULL, 11010, 11090, NULL, NULL, 0, NULL, NULL, NULL, 35),
	(3, 1, 2, 7, 1, NULL, NULL, 7, 1, 1, 2, 2, x'ffffffffffffffffffffffffffffffff', 36);
INSERT INTO collector_overhead VALUES (1, 1, 'buffer_flush', 7000, 7020, NULL),
	(2, 1, 'instrumentation', 7000, 7000, 34);
INSERT INTO range VALUES (1, 1, 3, 1, 4990, 5110), (2, 1, 3, 1, 6990, 7110);
INSERT INTO collective VALUES (1, 1, 5, 2, 'dispatch', 5035, 5090, 4096, 2, 3, NULL, NULL, NULL),
	(2, 1, 5, NULL, 'all_reduce', 4990, 5000, NULL, NULL, NULL, NULL, NULL, NULL);
INSERT INTO power_sample VALUES
	(1, 1, 2, 'gpu', 'poll', 1000, 300000, 250000, 5000, 700000, 4, 1980, 2619, 45, 20),
	(2, 1, 2, 'gpu', 'poll', 2000, 310000, 260000, 5310, 700000, 4, 1980, 2619, 45, 20),
	(3, 1, 2, 'gpu', 'buffer', 1500, 305000, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL),
	(4, 1, 1, 'package-0', 'poll', 1000, NULL, NULL, 70, NULL, NULL, NULL, NULL, NULL, 5);
INSERT INTO device_link VALUES (1, 1, 2, 1000, 5, 16, 18, 18);
INSERT INTO host_sample VALUES (1, 1, 1000, 500, 50, 3, 1048576), (2, 1, 2000, 900, 60, 3, 1048576);
INSERT INTO device_clock VALUES (1, 1, 2, 'gpu_timer', 0, 777000, 40), (2, 1, NULL, 'cupti', 0,
	1700000000000000000, 30);
INSERT INTO collector VALUES
	(1, 'host', 'on', NULL, NULL, NULL, 2, 0, 0, 2, 100, 60, 1000000000),
	(1, 'rapl', 'on', NULL, NULL, NULL, 1, 0, 0, 1, 5, 5, 100000000),
	(1, 'nvml', 'on', NULL, '580.1', NULL, 4, 0, 0, 3, 60, 20, 100000000),
	(1, 'cupti', 'on', 'kernel:every=2', '13.0', NULL, 6, 0, 2, 4, 40, 15, 200000000),
	(1, 'nvtx', 'absent', NULL, NULL, 'no tool takes ranges', 0, NULL, 0, 0, 0, 0, NULL),
	(2, 'cupti', 'on', 'graph', '13.0', NULL, 1, 0, 0, 1, 10, 10, 100000000);
