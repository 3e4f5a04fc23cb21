-- SPDX-License-Identifier: MIT
--
-- How many further experts rows of a :recording have whose score is within :margin of the least one
-- that they chose, :kmax entries a row at most; all layers together unless :by_layer is 1.
SELECT recording_id, model_id, layer, phase, rows, known_rows,
	round(1.0 * further_entries / nullif(known_rows, 0), 4) AS further_a_row,
	round(1.0 * free_entries / nullif(known_rows, 0), 4) AS free_a_row,
	round(1.0 * (further_entries - free_entries) / nullif(known_rows, 0), 4) AS loading_a_row,
	round(1.0 * full_rows / nullif(known_rows, 0), 4) AS full_share,
	round(1.0 * active_before / nullif(n_batches, 0), 3) AS active_before,
	round(1.0 * active_after / nullif(n_batches, 0), 3) AS active_after
FROM moe_expand(coalesce(:margin, 0), :kmax, coalesce(:by_layer, 0))
WHERE :recording IS NULL OR recording_id = :recording
