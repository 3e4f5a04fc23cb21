-- SPDX-License-Identifier: MIT
--
-- What of a :recording lies between :from and :until: passes by phase, operations by name with the
-- spread of their times, energy by device, losses. Percentiles are of the nearest rank.

-- @section passes
WITH p AS (SELECT phase, n_rows, end_ns - begin_ns AS duration_ns, row_number() OVER w AS n,
		count(*) OVER (PARTITION BY phase) AS n_all
	FROM pass WHERE recording_id = :recording AND begin_ns < :until AND coalesce(end_ns, begin_ns) >= :from
	WINDOW w AS (PARTITION BY phase ORDER BY end_ns - begin_ns))
SELECT phase, count(*) AS n, sum(n_rows) AS rows, sum(duration_ns) AS total_ns, avg(duration_ns) AS mean_ns,
	max(duration_ns) FILTER (WHERE n <= (n_all + 1) / 2) AS p50_ns,
	max(duration_ns) FILTER (WHERE n <= (n_all * 95 + 99) / 100) AS p95_ns,
	max(duration_ns) FILTER (WHERE n <= (n_all * 99 + 99) / 100) AS p99_ns
FROM p GROUP BY phase ORDER BY total_ns DESC
-- @section kernels
WITH k AS (SELECT name, role, duration_ns, row_number() OVER w AS n,
		count(*) OVER (PARTITION BY name) AS n_all
	FROM kernel_event
	WHERE recording_id = :recording AND start_ns < :until AND start_ns + duration_ns >= :from
	WINDOW w AS (PARTITION BY name ORDER BY duration_ns))
SELECT name, role, count(*) AS n, sum(duration_ns) AS total_ns, avg(duration_ns) AS mean_ns,
	max(duration_ns) FILTER (WHERE n <= (n_all + 1) / 2) AS p50_ns,
	max(duration_ns) FILTER (WHERE n <= (n_all * 95 + 99) / 100) AS p95_ns,
	max(duration_ns) FILTER (WHERE n <= (n_all * 99 + 99) / 100) AS p99_ns
FROM k GROUP BY name ORDER BY total_ns DESC LIMIT 200
-- @section energy
SELECT s.device_id, d.kind AS device, s.domain, count(*) AS readings,
	(max(s.energy_mj) - min(s.energy_mj)) / 1000.0 AS energy_j,
	avg(coalesce(s.instant_mw, s.average_mw)) / 1000.0 AS mean_w,
	max(s.time_ns) - min(s.time_ns) AS between_ns
FROM power_sample AS s JOIN device AS d USING (device_id)
WHERE s.recording_id = :recording AND s.time_ns BETWEEN :from AND :until
GROUP BY s.device_id, s.domain ORDER BY s.device_id, s.domain
-- @section gaps
SELECT stream, start_ns, end_ns, n_lost, reason FROM gap
WHERE recording_id = :recording AND start_ns < :until AND end_ns >= :from ORDER BY start_ns LIMIT 1000
