-- SPDX-License-Identifier: MIT
--
-- When clocks were held down in a :recording, and by what: readings of a device that say the same, one
-- after the other, each of them until the next one. What merely sets clocks, or idles, is left out.
WITH reading AS (
	SELECT device_id, time_ns, throttle_reasons, held_down_by, lag(held_down_by) OVER same AS said_before,
		lead(time_ns) OVER same AS next_ns
	FROM power WHERE recording_id = :recording AND throttle_reasons IS NOT NULL
	WINDOW same AS (PARTITION BY device_id ORDER BY time_ns)),
stretch AS (
	SELECT *, sum(held_down_by IS NOT said_before) OVER (PARTITION BY device_id ORDER BY time_ns
		ROWS UNBOUNDED PRECEDING) AS n FROM reading)
SELECT d.kind || ' ' || s.device_id AS device, s.held_down_by AS reason, min(s.time_ns) AS start_ns,
	max(coalesce(s.next_ns, s.time_ns)) AS end_ns, count(*) AS n_readings
FROM stretch AS s JOIN device AS d ON d.device_id = s.device_id
WHERE s.throttle_reasons & 236
GROUP BY s.device_id, s.n ORDER BY start_ns, device LIMIT 10000
