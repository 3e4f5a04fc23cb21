-- SPDX-License-Identifier: MIT
--
-- Rows and mean weight of each expert in a :recording and :model, from every stored row.
-- @arrays 1000000
SELECT layer_id AS "layer_id:u16", expert AS "expert:u16", CASE phase WHEN 'prefill' THEN 0
		WHEN 'decode' THEN 1 WHEN 'verify' THEN 2 ELSE 3 END AS "phase:u8",
	count(*) AS "tokens:u32", avg(weight) AS "weight:f32"
FROM moe_topk WHERE recording_id = :recording AND model_id = :model
GROUP BY 1, 2, 3
