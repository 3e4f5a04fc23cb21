-- SPDX-License-Identifier: MIT
--
-- Who is behind an :expert of a :layer_id in a :recording: requests and passes with most rows; of one
-- :request, of requests whose attribute :key is :value, in passes that began at :from or later and before
-- :until, of slices of a :phase, where they are given.

-- @section requests
WITH t AS (
	SELECT request_id, pass_id, phase, weight FROM moe_topk WHERE :from IS NULL
		AND recording_id = :recording AND layer_id = :layer_id AND expert = :expert
	UNION ALL
	SELECT t.request_id, t.pass_id, t.phase, t.weight
	FROM pass AS p CROSS JOIN moe_topk AS t ON t.pass_id = p.pass_id AND t.layer_id = :layer_id
	WHERE :from IS NOT NULL AND p.recording_id = :recording AND p.begin_ns >= :from
		AND p.begin_ns < :until AND t.expert = :expert)
SELECT t.request_id, q.external_id, q.verdict, count(*) AS rows,
	sum(t.phase = 'prefill') AS prefill_rows, sum(t.phase = 'decode') AS decode_rows,
	avg(t.weight) AS mean_weight
FROM t LEFT JOIN request AS q ON q.request_id = t.request_id
WHERE (:phase IS NULL OR t.phase = :phase) AND (:request IS NULL OR t.request_id = :request)
	AND (:key IS NULL OR t.request_id IN (SELECT request_id FROM request_attribute
	WHERE key = CAST(:key AS TEXT) AND value IS CAST(:value AS TEXT)))
GROUP BY t.request_id ORDER BY rows DESC, t.request_id LIMIT 50
-- @section passes
WITH t AS (
	SELECT request_id, pass_id, phase FROM moe_topk WHERE :from IS NULL
		AND recording_id = :recording AND layer_id = :layer_id AND expert = :expert
	UNION ALL
	SELECT t.request_id, t.pass_id, t.phase
	FROM pass AS p CROSS JOIN moe_topk AS t ON t.pass_id = p.pass_id AND t.layer_id = :layer_id
	WHERE :from IS NOT NULL AND p.recording_id = :recording AND p.begin_ns >= :from
		AND p.begin_ns < :until AND t.expert = :expert)
SELECT t.pass_id, p.phase, p.begin_ns, p.n_rows AS pass_rows, count(*) AS rows,
	1.0 * count(*) / p.n_rows AS share_of_rows
FROM t JOIN pass AS p ON p.pass_id = t.pass_id
WHERE (:phase IS NULL OR t.phase = :phase) AND (:request IS NULL OR t.request_id = :request)
	AND (:key IS NULL OR t.request_id IN (SELECT request_id FROM request_attribute
	WHERE key = CAST(:key AS TEXT) AND value IS CAST(:value AS TEXT)))
GROUP BY t.pass_id ORDER BY rows DESC, t.pass_id LIMIT 50
