-- SPDX-License-Identifier: MIT
--
-- What the requests whose attribute :key is :value selected in a :recording, with the mean weight; in
-- passes that began at :from or later and before :until, where they are given.
-- @arrays 1000000
SELECT t.layer_id AS "layer_id:u16", t.expert AS "expert:u16", CASE t.phase WHEN 'prefill' THEN 0
		WHEN 'decode' THEN 1 WHEN 'verify' THEN 2 ELSE 3 END AS "phase:u8",
	count(*) AS "tokens:u32", avg(t.weight) AS "weight:f32"
FROM (SELECT layer_id, expert, phase, weight, request_id FROM moe_topk
		WHERE :from IS NULL AND recording_id = :recording AND model_id = :model
	UNION ALL
	SELECT t.layer_id, t.expert, t.phase, t.weight, t.request_id
	FROM pass AS p CROSS JOIN moe_topk AS t ON t.pass_id = p.pass_id
	WHERE :from IS NOT NULL AND p.recording_id = :recording AND p.model_id = :model
		AND p.begin_ns >= :from AND p.begin_ns < :until) AS t
WHERE t.request_id IN (SELECT request_id FROM request_attribute
	WHERE key = CAST(:key AS TEXT) AND value IS CAST(:value AS TEXT))
GROUP BY 1, 2, 3
