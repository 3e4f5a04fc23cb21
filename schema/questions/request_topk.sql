-- SPDX-License-Identifier: MIT
--
-- The experts of an :attempt of a :request, positions :first to :last, in the order of the choice.
-- state: 0 computed, 1 dummy, 2 draft, 3 unresolved, 4 rejected.
-- @arrays 2000000
SELECT position AS "position:u32", layer_id AS "layer_id:u16", topk_rank AS "topk_rank:u8",
	expert AS "expert:u16", weight AS "weight:f32", pass_id AS "pass_id:u32", row AS "row:u32",
	CASE state WHEN 'computed' THEN 0 WHEN 'dummy' THEN 1 WHEN 'draft' THEN 2
		WHEN 'unresolved' THEN 3 ELSE 4 END AS "state:u8"
FROM moe_topk
WHERE request_id = :request AND attempt = :attempt AND position BETWEEN :first AND :last
ORDER BY position, pass_id, row, layer_id, topk_rank
