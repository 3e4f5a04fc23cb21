-- SPDX-License-Identifier: MIT
--
-- Who is behind an :expert of a :layer_id in a :recording: requests and passes with most rows.

-- @section requests
SELECT t.request_id, q.external_id, q.verdict, count(*) AS rows,
	sum(t.phase = 'prefill') AS prefill_rows, sum(t.phase = 'decode') AS decode_rows,
	avg(t.weight) AS mean_weight
FROM moe_topk AS t LEFT JOIN request AS q ON q.request_id = t.request_id
WHERE t.recording_id = :recording AND t.layer_id = :layer_id AND t.expert = :expert
GROUP BY t.request_id ORDER BY rows DESC, t.request_id LIMIT 50
-- @section passes
SELECT t.pass_id, p.phase, p.begin_ns, p.n_rows AS pass_rows, count(*) AS rows,
	1.0 * count(*) / p.n_rows AS share_of_rows
FROM moe_topk AS t JOIN pass AS p ON p.pass_id = t.pass_id
WHERE t.recording_id = :recording AND t.layer_id = :layer_id AND t.expert = :expert
GROUP BY t.pass_id ORDER BY rows DESC, t.pass_id LIMIT 50
