-- SPDX-License-Identifier: MIT
--
-- The experts of an :attempt of a :request, positions :first to :last, in the order of the choice, and
-- of the positions that it reused those of whoever computed them.
-- state: 0 computed, 1 dummy, 2 draft, 3 unresolved, 4 rejected, 5 reused from request source.
-- @arrays 2000000
SELECT position AS "position:u32", layer_id AS "layer_id:u16", topk_rank AS "topk_rank:u8",
	expert AS "expert:u16", weight AS "weight:f32", pass_id AS "pass_id:u32", row AS "row:u32",
	CASE state WHEN 'computed' THEN 0 WHEN 'dummy' THEN 1 WHEN 'draft' THEN 2
		WHEN 'unresolved' THEN 3 ELSE 4 END AS "state:u8", 0 AS "source:u32"
FROM moe_topk
WHERE request_id = :request AND attempt = :attempt AND position BETWEEN :first AND :last
UNION ALL
SELECT t.position, t.layer_id, t.topk_rank, t.expert, t.weight, t.pass_id, t.row, 5, u.source_request_id
FROM request_reuse AS u CROSS JOIN moe_topk AS t ON t.request_id = u.source_request_id
	AND t.attempt = u.source_attempt
WHERE u.request_id = :request AND u.attempt = :attempt AND u.first_position <= :last
	AND u.first_position + u.n_positions > :first AND t.state = 'computed'
	AND t.position BETWEEN max(u.first_position, :first)
		AND min(u.first_position + u.n_positions - 1, :last)
ORDER BY 1, 6, 7, 2, 3
