-- SPDX-License-Identifier: MIT
--
-- Expert parallelism: what ranks sent to each other as far as the runtime told, and how even :ranks
-- ranks would have been with the experts in order.

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
WHERE d.rank_tokens IS NOT NULL AND (:layer_id IS NULL OR d.layer_id = :layer_id)
GROUP BY q.process_id, r.value ORDER BY q.ep_rank, q.process_id, r.value
-- @section balance
SELECT * FROM moe_balance(coalesce(:ranks, 2)) WHERE :recording IS NULL OR recording_id = :recording
ORDER BY recording_id, model_id, layer
