-- SPDX-License-Identifier: MIT
--
-- Whether the attempts of a retracted :request of a :recording chose the same experts: each with the
-- last one, by layer, and in all layers together (layer NULL).
SELECT t.model_id, t.attempt, t.last_attempt, t.layer, t.rows,
	1.0 - 1.0 * t.differing_rows / nullif(t.rows, 0) AS same_rows,
	1.0 - 1.0 * t.differing_choices / nullif(t.choices, 0) AS same_choices,
	1.0 * t.reordered_rows / nullif(t.rows, 0) AS reordered_rows
FROM moe_attempts(:recording) AS t WHERE t.request_id = :request
ORDER BY t.model_id, t.attempt, t.layer IS NOT NULL, t.layer
