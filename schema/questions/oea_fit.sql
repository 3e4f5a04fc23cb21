-- SPDX-License-Identifier: MIT
--
-- Recorded layer times as a line, time = a + b * active + c * rows, and what was recorded under it.

-- @section fit
SELECT * FROM moe_fit(0)
-- @section points
-- Of batches that look alike the median: some hundred points say it all.
WITH times AS (SELECT t.model_id, t.active_experts, t.n_rows, t.duration_ns, row_number() OVER same AS n,
		count(*) OVER (PARTITION BY t.model_id, t.active_experts, t.n_rows) AS n_same
	FROM moe_layer_time AS t
	WHERE t.phase = 'decode' AND (:recording IS NULL OR t.recording_id = :recording)
		AND t.active_experts > 0 AND t.duration_ns > 0
	WINDOW same AS (PARTITION BY t.model_id, t.active_experts, t.n_rows ORDER BY t.duration_ns))
SELECT model_id, active_experts, n_rows, duration_ns, n_same AS n_batches
FROM times WHERE n = (n_same + 1) / 2 ORDER BY model_id, n_rows, active_experts
