-- SPDX-License-Identifier: MIT
--
-- What one :request selected, counted from its own rows, with the mean weight.
-- @arrays 1000000
SELECT layer_id AS "layer_id:u16", expert AS "expert:u16", CASE phase WHEN 'prefill' THEN 0
		WHEN 'decode' THEN 1 WHEN 'verify' THEN 2 ELSE 3 END AS "phase:u8",
	count(*) AS "tokens:u32", avg(weight) AS "weight:f32"
FROM moe_topk WHERE request_id = :request
GROUP BY 1, 2, 3
