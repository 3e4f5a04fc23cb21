-- SPDX-License-Identifier: MIT
--
-- The windows of load_merged.sql, in their order.
-- @arrays 65536
SELECT min(w.start_ns) AS "start_ns:f64", max(w.start_ns + w.length_ns) - min(w.start_ns) AS
	"length_ns:f64"
FROM (SELECT start_ns, length_ns, dense_rank() OVER (ORDER BY start_ns) - 1 AS number
	FROM expert_load_window WHERE recording_id = :recording
	AND layer_id IN (SELECT layer_id FROM layer WHERE model_id = :model)) AS w
GROUP BY w.number / :merge ORDER BY w.number / :merge
