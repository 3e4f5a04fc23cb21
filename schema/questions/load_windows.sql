-- SPDX-License-Identifier: MIT
--
-- The windows of load.sql, in their order.
-- @arrays 65536
SELECT w.start_ns AS "start_ns:f64", max(w.length_ns) AS "length_ns:f64"
FROM expert_load_window AS w
WHERE w.recording_id = :recording
	AND w.layer_id IN (SELECT layer_id FROM layer WHERE model_id = :model)
GROUP BY w.start_ns ORDER BY w.start_ns
