-- SPDX-License-Identifier: MIT
--
-- Where the experts of a :model are, by the last map of each layer that names ranks.
-- @arrays 1000000
SELECT m.layer_id AS "layer_id:u16", b0.value + 256 * b1.value AS "expert:u16",
	(hi.value * 256 + lo.value) * m.n_ranks / m.n_slots AS "rank:u16", m.n_ranks AS "n_ranks:u16"
FROM expert_map AS m
CROSS JOIN byte AS hi ON hi.value <= (m.n_slots - 1) / 256
CROSS JOIN byte AS lo ON lo.value < m.n_slots - hi.value * 256
CROSS JOIN byte AS b0 ON b0.byte = substr(m.slot_experts, 1 + 4 * (hi.value * 256 + lo.value), 1)
CROSS JOIN byte AS b1 ON b1.byte = substr(m.slot_experts, 2 + 4 * (hi.value * 256 + lo.value), 1)
CROSS JOIN byte AS b3 ON b3.byte = substr(m.slot_experts, 4 + 4 * (hi.value * 256 + lo.value), 1)
WHERE m.n_ranks > 0 AND b3.value < 128 AND m.layer_id IN (SELECT layer_id FROM layer WHERE model_id = :model)
	AND m.epoch = (SELECT max(epoch) FROM expert_map AS o WHERE o.layer_id = m.layer_id)
