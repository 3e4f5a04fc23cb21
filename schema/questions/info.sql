-- SPDX-License-Identifier: MIT
--
-- What a trace holds, for whoever chooses what to look at.

-- @section recordings
SELECT r.recording_id, r.process_id, r.start_ns, coalesce(r.end_ns, (SELECT max(coalesce(p.end_ns,
		p.begin_ns)) FROM pass AS p WHERE p.recording_id = r.recording_id), r.start_ns) AS end_ns,
	r.end_reason, r.mode, r.sampling, r.routing_source,
	(SELECT value FROM stats AS s WHERE s.recording_id = r.recording_id
		AND s.name = 'recorded_passes') AS n_passes,
	(SELECT value FROM stats AS s WHERE s.recording_id = r.recording_id
		AND s.name = 'recorded_assignments') AS n_assignments,
	(SELECT count(*) FROM request AS q WHERE q.recording_id = r.recording_id) AS n_requests
FROM recording AS r ORDER BY r.recording_id
-- @section models
SELECT m.model_id, m.name, m.kind, m.architecture, m.n_layers, m.quantization,
	(SELECT count(*) FROM layer AS l WHERE l.model_id = m.model_id) AS n_moe_layers
FROM model AS m ORDER BY m.model_id
-- @section layers
SELECT layer_id, model_id, layer, moe_ordinal, kind, n_experts, n_zero_experts, n_shared_slots,
	top_k, scoring, n_groups, topk_groups, renormalize, weight_kind, expert_weight_bytes,
	router_impl, runner_backend, impl_reason
FROM layer ORDER BY model_id, layer
-- @section processes
SELECT process_id, host, pid, tp_rank, tp_size, pp_rank, pp_size, ep_rank, ep_size, dp_rank, dp_size
FROM process ORDER BY process_id
-- @section devices
SELECT device_id, process_id, kind, name, n_processors, power_limit_mw FROM device ORDER BY device_id
-- @section rules
SELECT rule_id, name FROM rule ORDER BY rule_id
-- @section attributes
SELECT key, value, count(*) AS n_requests FROM request_attribute
GROUP BY key, value ORDER BY key, n_requests DESC, value LIMIT 1000
-- @section session
SELECT key, value FROM meta WHERE key NOT LIKE 'opt.%' ORDER BY key
-- @section holds
SELECT EXISTS (SELECT 1 FROM pass) AS passes, EXISTS (SELECT 1 FROM topk) AS ids,
	EXISTS (SELECT 1 FROM topk WHERE weight_format <> 'none') AS weights,
	EXISTS (SELECT 1 FROM kernel) OR EXISTS (SELECT 1 FROM graph_launch) AS kernels,
	EXISTS (SELECT 1 FROM range) AS ranges, EXISTS (SELECT 1 FROM power_sample) AS power,
	EXISTS (SELECT 1 FROM dispatch) AS dispatch, EXISTS (SELECT 1 FROM expert_map) AS maps,
	EXISTS (SELECT 1 FROM request_token WHERE token_id IS NOT NULL) AS tokens,
	EXISTS (SELECT 1 FROM gap) AS gaps, EXISTS (SELECT 1 FROM rule) AS rules
-- @section diagnostics
SELECT process_id, time_ns, severity, source, message, n_times FROM diagnostic
ORDER BY CASE severity WHEN 'error' THEN 0 WHEN 'warning' THEN 1 ELSE 2 END, diagnostic_id LIMIT 100
