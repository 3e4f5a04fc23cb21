-- SPDX-License-Identifier: MIT
--
-- Expert parallelism: what ranks sent to each other as far as the runtime told, and how even :ranks
-- ranks of a :model were, or would have been, in a :recording: with the experts in order, placed as
-- recorded (:placement 'recorded'), or placed by their own load ('eplb').

-- @section sent
SELECT q.ep_rank, q.process_id, r.value AS to_rank, sum(b0.value + b1.value * 256 + b2.value * 65536
	+ b3.value * 16777216) AS tokens, count(*) AS n_batches
FROM dispatch AS d
JOIN pass AS p ON p.pass_id = d.pass_id
JOIN recording AS g ON g.recording_id = p.recording_id
JOIN process AS q ON q.process_id = g.process_id
CROSS JOIN byte AS r ON r.value < d.n_ranks
CROSS JOIN byte AS b0 ON b0.byte = substr(d.rank_tokens, 1 + 4 * r.value, 1)
CROSS JOIN byte AS b1 ON b1.byte = substr(d.rank_tokens, 2 + 4 * r.value, 1)
CROSS JOIN byte AS b2 ON b2.byte = substr(d.rank_tokens, 3 + 4 * r.value, 1)
CROSS JOIN byte AS b3 ON b3.byte = substr(d.rank_tokens, 4 + 4 * r.value, 1)
WHERE d.rank_tokens IS NOT NULL
GROUP BY q.process_id, r.value ORDER BY q.ep_rank, q.process_id, r.value
-- @section balance
SELECT b.layer, b.ranks, b.n_passes, b.left_out, b.tokens, b.mean_rank_tokens, b.mean_max_rank_tokens,
	b.mean_balancedness, b.total_balancedness, b.mean_max_over_mean, b.p50_max_over_mean,
	b.p95_max_over_mean, b.max_over_mean, b.mean_gini, b.mean_entropy
FROM moe_balance(coalesce(:ranks, 2), CASE :placement WHEN 'recorded' THEN 'recorded' WHEN 'eplb' THEN
	(SELECT json_group_array(json(experts)) FROM (SELECT json_group_array(expert) AS experts
		FROM (SELECT layer_id, slot, expert FROM moe_eplb(coalesce(:ranks, 2), NULL, NULL, NULL, NULL,
			:model, :recording) ORDER BY layer_id, slot) GROUP BY layer_id ORDER BY layer_id)) END,
	NULL, :phase, :model, :recording) AS b
ORDER BY b.layer
