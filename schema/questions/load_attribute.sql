-- SPDX-License-Identifier: MIT
--
-- What the requests whose attribute :key is :value selected in a :recording, with the mean weight.
-- @arrays 1000000
SELECT t.layer_id AS "layer_id:u16", t.expert AS "expert:u16", CASE t.phase WHEN 'prefill' THEN 0
		WHEN 'decode' THEN 1 WHEN 'verify' THEN 2 ELSE 3 END AS "phase:u8",
	count(*) AS "tokens:u32", avg(t.weight) AS "weight:f32"
FROM moe_topk AS t
WHERE t.recording_id = :recording AND t.model_id = :model AND t.request_id IN (
	SELECT request_id FROM request_attribute
	WHERE key = CAST(:key AS TEXT) AND value IS CAST(:value AS TEXT))
GROUP BY 1, 2, 3
