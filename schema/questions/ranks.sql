-- SPDX-License-Identifier: MIT
--
-- Expert parallelism: what ranks sent to each other as far as the runtime told, what they would have
-- by the experts that their rows chose, and how even :ranks ranks of a :model were, or would have been, in
-- a :recording: with the experts in order, placed as recorded (:placement 'recorded'), or placed by their
-- own load ('eplb', with :redundant experts on top). Of other processes it is all that they recorded.

-- @section sent
WITH g AS (SELECT o.recording_id, q.ep_rank, q.process_id FROM recording AS o
	JOIN process AS q ON q.process_id = o.process_id
	WHERE :recording IS NULL OR o.recording_id = :recording OR o.process_id <> (SELECT process_id
		FROM recording WHERE recording_id = :recording))
SELECT ep_rank, process_id, to_rank, sum(tokens) AS tokens, sum(bytes) AS bytes, count(*) AS n_batches
FROM (SELECT g.ep_rank, g.process_id, r.value AS to_rank,
		(SELECT sum(b.value << (8 * i.value)) FROM byte AS i CROSS JOIN byte AS b
			ON b.byte = substr(d.rank_tokens, 1 + 4 * r.value + i.value, 1) WHERE i.value < 4) AS tokens,
		(SELECT sum(b.value << (8 * i.value)) FROM byte AS i CROSS JOIN byte AS b
			ON b.byte = substr(d.rank_bytes, 1 + 8 * r.value + i.value, 1) WHERE i.value < 6) AS bytes
	FROM g JOIN pass AS p ON p.recording_id = g.recording_id
	JOIN dispatch AS d ON d.pass_id = p.pass_id JOIN byte AS r ON r.value < d.n_ranks
	WHERE d.rank_tokens IS NOT NULL OR d.rank_bytes IS NOT NULL)
GROUP BY process_id, to_rank ORDER BY ep_rank, process_id, to_rank
-- @section chosen
-- A row that chooses two experts of a rank counts twice here; replicas share what chose their expert.
WITH g AS (SELECT o.recording_id, q.ep_rank, q.process_id FROM recording AS o
	JOIN process AS q ON q.process_id = o.process_id
	WHERE :recording IS NULL OR o.recording_id = :recording OR o.process_id <> (SELECT process_id
		FROM recording WHERE recording_id = :recording)),
slot AS MATERIALIZED (
	SELECT m.layer_id, b0.value + 256 * b1.value AS expert,
		(hi.value * 256 + lo.value) * m.n_ranks / m.n_slots AS rank
	FROM expert_map AS m CROSS JOIN byte AS hi ON hi.value <= (m.n_slots - 1) / 256
	CROSS JOIN byte AS lo ON lo.value < m.n_slots - hi.value * 256
	CROSS JOIN byte AS b0 ON b0.byte = substr(m.slot_experts, 1 + 4 * (hi.value * 256 + lo.value), 1)
	CROSS JOIN byte AS b1 ON b1.byte = substr(m.slot_experts, 2 + 4 * (hi.value * 256 + lo.value), 1)
	WHERE :placement = 'recorded' AND m.n_ranks > 0
		AND m.epoch = (SELECT max(epoch) FROM expert_map AS o WHERE o.layer_id = m.layer_id)),
placed AS MATERIALIZED (
	SELECT layer_id, expert, rank, 1.0 / count(*) OVER (PARTITION BY layer_id, expert) AS part FROM slot),
load AS (SELECT recording_id, layer_id, expert, sum(prefill_tokens + decode_tokens + verify_tokens
		+ other_tokens) AS tokens FROM expert_load_window
	WHERE recording_id IN (SELECT recording_id FROM g) GROUP BY recording_id, layer_id, expert)
SELECT g.ep_rank, g.process_id, coalesce(s.rank, w.expert * coalesce(:ranks, 2) / l.n_experts) AS to_rank,
	CAST(round(sum(w.tokens * coalesce(s.part, 1))) AS INTEGER) AS selections
FROM load AS w JOIN g ON g.recording_id = w.recording_id
JOIN layer AS l ON l.layer_id = w.layer_id AND w.expert < l.n_experts
LEFT JOIN placed AS s ON s.layer_id = w.layer_id AND s.expert = w.expert
WHERE :model IS NULL OR l.model_id = :model
GROUP BY g.process_id, to_rank ORDER BY g.ep_rank, g.process_id, to_rank
-- @section balance
SELECT b.layer, b.ranks, b.n_passes, b.left_out, b.tokens, b.mean_rank_tokens, b.mean_max_rank_tokens,
	b.mean_balancedness, b.total_balancedness, b.mean_max_over_mean, b.p50_max_over_mean,
	b.p95_max_over_mean, b.max_over_mean, b.mean_gini, b.mean_entropy
FROM moe_balance(coalesce(:ranks, 2), CASE :placement WHEN 'recorded' THEN 'recorded' WHEN 'eplb' THEN
	(SELECT json_group_array(json(experts)) FROM (SELECT json_group_array(expert) AS experts
		FROM (SELECT layer_id, slot, expert FROM moe_eplb(coalesce(:ranks, 2), CASE WHEN :redundant > 0
			THEN :redundant + (SELECT max(n_experts) FROM layer WHERE model_id = :model) END,
			NULL, NULL, NULL, :model, :recording) ORDER BY layer_id, slot) GROUP BY layer_id
		ORDER BY layer_id)) END,
	NULL, :phase, :model, :recording) AS b
ORDER BY b.layer
