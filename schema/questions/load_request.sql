-- SPDX-License-Identifier: MIT
--
-- What one :request selected, in a :recording and of a :model where they are given, counted from its own rows, with the mean weight; in passes that began at
-- :from or later and before :until, where they are given.
-- @arrays 1000000
SELECT t.layer_id AS "layer_id:u16", t.expert AS "expert:u16", CASE t.phase WHEN 'prefill' THEN 0
		WHEN 'decode' THEN 1 WHEN 'verify' THEN 2 ELSE 3 END AS "phase:u8",
	count(*) AS "tokens:u32", avg(t.weight) AS "weight:f32"
FROM moe_topk AS t CROSS JOIN pass AS p ON p.pass_id = t.pass_id
WHERE t.request_id = :request AND (:recording IS NULL OR t.recording_id = :recording)
	AND (:model IS NULL OR t.model_id = :model) AND (:from IS NULL OR (p.begin_ns >= :from AND p.begin_ns < :until))
GROUP BY 1, 2, 3
