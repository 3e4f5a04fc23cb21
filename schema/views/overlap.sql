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
-- All moments at which computing begins or ends, and those between which a pass moves data: how many
-- operations compute from there on, and for how long something was computed on the device until then.
moment AS (
	SELECT recording_id, device_id, from_ns AS at_ns, 0 AS step, pass_id, -1 AS sign
	FROM piece WHERE moves_data = 1 AND end_ns > from_ns
	UNION ALL SELECT recording_id, device_id, end_ns, 0, pass_id, 1
	FROM piece WHERE moves_data = 1 AND end_ns > from_ns
	UNION ALL SELECT recording_id, device_id, start_ns, 1, NULL, 0 FROM event WHERE moves_data = 0
	UNION ALL SELECT recording_id, device_id, end_ns, -1, NULL, 0 FROM event WHERE moves_data = 0),
stretch AS (
	SELECT *, CASE WHEN sum(step) OVER same > 0 THEN lead(at_ns) OVER same - at_ns ELSE 0 END
		AS length_ns
	FROM moment WINDOW same AS (PARTITION BY recording_id, device_id ORDER BY at_ns)),
computed AS (
	SELECT pass_id, device_id, sign, coalesce(sum(length_ns) OVER (PARTITION BY recording_id,
		device_id ORDER BY at_ns GROUPS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0)
		AS until_ns
	FROM stretch),
hidden AS MATERIALIZED (
	SELECT pass_id, device_id, sum(sign * until_ns) AS length_ns FROM computed
	WHERE pass_id IS NOT NULL GROUP BY pass_id, device_id)
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
