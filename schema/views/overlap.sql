-- SPDX-License-Identifier: MIT
--
-- Of each pass with operations that move data between ranks: how much of that time something else
-- was computed on the same device. Times that overlap count once.
CREATE VIEW overlap AS
WITH event AS (
	SELECT recording_id, pass_id, device_id, start_ns, start_ns + duration_ns AS end_ns,
		moves_data FROM kernel_event WHERE pass_id IS NOT NULL),
part AS (
	SELECT moves_data AS part, e.* FROM event AS e UNION ALL SELECT 2, e.* FROM event AS e),
ordered AS (
	SELECT part, recording_id, pass_id, device_id, start_ns, end_ns, max(end_ns) OVER
		(PARTITION BY part, pass_id, device_id ORDER BY start_ns, end_ns
		ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before_ns
	FROM part),
covered AS (
	SELECT part, recording_id, pass_id, device_id, sum(CASE WHEN before_ns IS NULL
		OR before_ns <= start_ns THEN end_ns - start_ns
		WHEN end_ns > before_ns THEN end_ns - before_ns ELSE 0 END) AS length_ns
	FROM ordered GROUP BY part, recording_id, pass_id, device_id)
SELECT
	c.recording_id AS recording_id, -- INTEGER recording
	c.pass_id AS pass_id,           -- INTEGER pass
	c.device_id AS device_id,       -- INTEGER device
	c.length_ns AS moving_ns,       -- INTEGER time in which data moved
	coalesce(k.length_ns, 0) AS computing_ns, -- INTEGER time in which something was computed
	c.length_ns + coalesce(k.length_ns, 0) - b.length_ns AS hidden_ns, -- INTEGER time of both
	1.0 * (c.length_ns + coalesce(k.length_ns, 0) - b.length_ns) / nullif(c.length_ns, 0)
		AS hidden_share         -- REAL of the time in which data moved; NULL: that was 0
FROM covered AS c
JOIN covered AS b ON b.part = 2 AND b.pass_id = c.pass_id AND b.device_id = c.device_id
LEFT JOIN covered AS k ON k.part = 0 AND k.pass_id = c.pass_id AND k.device_id = c.device_id
WHERE c.part = 1;
