-- SPDX-License-Identifier: MIT
--
-- Of each pass with operations that move data between ranks: how much of that time something was
-- computed on the same device meanwhile, in whichever pass: with two batches that take turns the one
-- computes while the other moves data. Times that overlap count once. Which operations move data is
-- told by their name (string.moves_data).
CREATE VIEW overlap AS
WITH event AS MATERIALIZED (
	SELECT recording_id, pass_id, device_id, start_ns, start_ns + duration_ns AS end_ns,
		moves_data FROM kernel_event),
-- What each operation adds to the time that those of its kind before it take in the pass.
piece AS MATERIALIZED (
	SELECT moves_data, recording_id, pass_id, device_id, max(start_ns, coalesce(max(end_ns) OVER
		(PARTITION BY moves_data, pass_id, device_id ORDER BY start_ns, end_ns
		ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), start_ns)) AS from_ns, end_ns
	FROM event WHERE pass_id IS NOT NULL),
covered AS MATERIALIZED (
	SELECT moves_data, recording_id, pass_id, device_id, sum(max(end_ns - from_ns, 0)) AS length_ns
	FROM piece GROUP BY moves_data, recording_id, pass_id, device_id),
-- All moments at which computing begins or ends, and those that are asked for: how many operations
-- compute from there on, and for how long something was computed on the device until then.
moment AS (
	SELECT recording_id, device_id, start_ns AS at_ns, 1 AS step FROM event WHERE moves_data = 0
	UNION ALL SELECT recording_id, device_id, end_ns, -1 FROM event WHERE moves_data = 0
	UNION ALL SELECT recording_id, device_id, from_ns, 0 FROM piece WHERE moves_data = 1
	UNION ALL SELECT recording_id, device_id, end_ns, 0 FROM piece WHERE moves_data = 1),
stretch AS (
	SELECT recording_id, device_id, at_ns, CASE WHEN sum(sum(step)) OVER same > 0
		THEN lead(at_ns) OVER same - at_ns ELSE 0 END AS length_ns
	FROM moment GROUP BY recording_id, device_id, at_ns
	WINDOW same AS (PARTITION BY recording_id, device_id ORDER BY at_ns)),
computed AS MATERIALIZED (
	SELECT recording_id, device_id, at_ns, coalesce(sum(length_ns) OVER (PARTITION BY recording_id,
		device_id ORDER BY at_ns ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0) AS until_ns
	FROM stretch),
hidden AS (
	SELECT p.pass_id, p.device_id, sum(e.until_ns - b.until_ns) AS length_ns
	FROM piece AS p
	JOIN computed AS b ON b.recording_id = p.recording_id AND b.device_id = p.device_id
		AND b.at_ns = p.from_ns
	JOIN computed AS e ON e.recording_id = p.recording_id AND e.device_id = p.device_id
		AND e.at_ns = p.end_ns
	WHERE p.moves_data = 1 AND p.end_ns > p.from_ns GROUP BY p.pass_id, p.device_id)
SELECT
	c.recording_id AS recording_id, -- INTEGER recording
	c.pass_id AS pass_id,           -- INTEGER pass
	c.device_id AS device_id,       -- INTEGER device
	c.length_ns AS moving_ns,       -- INTEGER time in which data moved
	coalesce(k.length_ns, 0) AS computing_ns, -- INTEGER time in which something was computed in the pass
	coalesce(h.length_ns, 0) AS hidden_ns, -- INTEGER time in which its data moved and something was computed on the device, in any pass or none
	1.0 * coalesce(h.length_ns, 0) / nullif(c.length_ns, 0) AS hidden_share -- REAL of the time in which data moved; NULL: that was 0
FROM covered AS c
LEFT JOIN covered AS k ON k.moves_data = 0 AND k.pass_id = c.pass_id AND k.device_id = c.device_id
LEFT JOIN hidden AS h ON h.pass_id = c.pass_id AND h.device_id = c.device_id
WHERE c.moves_data = 1;
