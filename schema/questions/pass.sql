-- SPDX-License-Identifier: MIT
--
-- One :pass, of a :recording where one is given: what it did, whom it served, its layers. The last layer
-- of a pass that a GPU's lane recorded has no length: when the pass ended there is not known.

-- @section summary
SELECT * FROM pass_summary WHERE pass_id = :pass
	AND (:recording IS NULL OR recording_id = :recording)
-- @section slices
SELECT pr.slice, pr.request_id, q.external_id, pr.attempt, pr.phase, pr.first_position, pr.n_rows
FROM pass_request AS pr LEFT JOIN request AS q ON q.request_id = pr.request_id
WHERE pr.pass_id = :pass ORDER BY pr.slice LIMIT 1000
-- @section layers
SELECT l.layer, pl.n_rows, pl.active_experts, pl.padding_active_experts, pl.max_load,
	CASE pl.state WHEN 0 THEN 'stored' WHEN 1 THEN 'unwritten' WHEN 2 THEN 'dropped' ELSE 'counted' END
		AS state,
	coalesce(lead(pl.selected_ns) OVER (ORDER BY pl.selected_ns), (SELECT end_ns FROM pass AS p
		WHERE p.pass_id = pl.pass_id AND p.device_id IS NULL)) - pl.selected_ns AS duration_ns
FROM pass_layer AS pl JOIN layer AS l USING (layer_id) WHERE pl.pass_id = :pass ORDER BY l.layer
