-- SPDX-License-Identifier: MIT
--
-- What of a :recording lies between :from and :until, at least in part: passes by phase, operations
-- by role and by name, layers, and ranges, with the spread of their times; energy by device; losses.
-- Operations are looked for from :first_kernel to :last_kernel, and in launches of graphs from
-- :first_launch to :last_launch, which whoever knows may tell.
-- Percentiles are of the nearest rank, among those whose length is known; n_open of the layers have
-- none, as the last one of a pass that a GPU's lane recorded. Energy is told over a
-- second or more, by the counter if there is one, and basis says by what.

-- @section passes
WITH p AS (SELECT phase, n_rows, end_ns - begin_ns AS duration_ns,
		row_number() OVER (PARTITION BY phase ORDER BY end_ns IS NULL, end_ns - begin_ns) AS n,
		count(end_ns) OVER (PARTITION BY phase) AS n_all
	FROM pass WHERE recording_id = :recording AND begin_ns < :until AND coalesce(end_ns, begin_ns) >= :from)
SELECT phase, count(*) AS n, sum(n_rows) AS rows, sum(duration_ns) AS total_ns, avg(duration_ns) AS mean_ns,
	max(duration_ns) FILTER (WHERE n <= (n_all + 1) / 2) AS p50_ns,
	max(duration_ns) FILTER (WHERE n <= (n_all * 95 + 99) / 100) AS p95_ns,
	max(duration_ns) FILTER (WHERE n <= (n_all * 99 + 99) / 100) AS p99_ns
FROM p GROUP BY phase ORDER BY total_ns DESC
-- @section roles
WITH k AS (SELECT role, duration_ns, row_number() OVER (PARTITION BY role ORDER BY duration_ns) AS n,
		count(*) OVER (PARTITION BY role) AS n_all
	FROM (SELECT * FROM kernel_event WHERE kernel_id BETWEEN coalesce(:first_kernel, 0) AND
			coalesce(:last_kernel, 9223372036854775807)
		UNION ALL SELECT * FROM kernel_event WHERE node >= 0 AND graph_launch_id
			BETWEEN coalesce(:first_launch, 0) AND coalesce(:last_launch, 9223372036854775807))
	WHERE recording_id = :recording AND start_ns < :until AND start_ns + duration_ns >= :from)
SELECT role, count(*) AS n, sum(duration_ns) AS total_ns, avg(duration_ns) AS mean_ns,
	max(duration_ns) FILTER (WHERE n <= (n_all + 1) / 2) AS p50_ns,
	max(duration_ns) FILTER (WHERE n <= (n_all * 95 + 99) / 100) AS p95_ns,
	max(duration_ns) FILTER (WHERE n <= (n_all * 99 + 99) / 100) AS p99_ns
FROM k GROUP BY role ORDER BY total_ns DESC, role
-- @section kernels
WITH k AS (SELECT name, role, duration_ns, row_number() OVER (PARTITION BY name ORDER BY duration_ns) AS n,
		count(*) OVER (PARTITION BY name) AS n_all
	FROM (SELECT * FROM kernel_event WHERE kernel_id BETWEEN coalesce(:first_kernel, 0) AND
			coalesce(:last_kernel, 9223372036854775807)
		UNION ALL SELECT * FROM kernel_event WHERE node >= 0 AND graph_launch_id
			BETWEEN coalesce(:first_launch, 0) AND coalesce(:last_launch, 9223372036854775807))
	WHERE recording_id = :recording AND start_ns < :until AND start_ns + duration_ns >= :from)
SELECT name, role, count(*) AS n, sum(duration_ns) AS total_ns, avg(duration_ns) AS mean_ns,
	max(duration_ns) FILTER (WHERE n <= (n_all + 1) / 2) AS p50_ns,
	max(duration_ns) FILTER (WHERE n <= (n_all * 95 + 99) / 100) AS p95_ns,
	max(duration_ns) FILTER (WHERE n <= (n_all * 99 + 99) / 100) AS p99_ns
FROM k GROUP BY name ORDER BY total_ns DESC, name
-- @section layers
WITH lasting AS (SELECT pl.layer_id, pl.active_experts, coalesce(lead(pl.selected_ns) OVER (PARTITION BY
		pl.pass_id ORDER BY pl.selected_ns), iif(p.device_id IS NULL, p.end_ns, NULL)) - pl.selected_ns AS duration_ns, pl.selected_ns
	FROM pass AS p JOIN pass_layer AS pl USING (pass_id)
	WHERE p.recording_id = :recording AND p.begin_ns < :until AND coalesce(p.end_ns, p.begin_ns) >= :from
		AND pl.selected_ns IS NOT NULL),
l AS (SELECT layer_id, active_experts, duration_ns,
		row_number() OVER (PARTITION BY layer_id ORDER BY duration_ns IS NULL, duration_ns) AS n,
		count(duration_ns) OVER (PARTITION BY layer_id) AS n_all
	FROM lasting WHERE selected_ns < :until AND selected_ns + coalesce(duration_ns, 0) >= :from)
SELECT layer.layer, count(*) AS n, count(*) - count(duration_ns) AS n_open,
	avg(active_experts) AS mean_active_experts, sum(duration_ns) AS total_ns, avg(duration_ns) AS mean_ns,
	max(duration_ns) FILTER (WHERE n <= (n_all + 1) / 2) AS p50_ns,
	max(duration_ns) FILTER (WHERE n <= (n_all * 95 + 99) / 100) AS p95_ns,
	max(duration_ns) FILTER (WHERE n <= (n_all * 99 + 99) / 100) AS p99_ns
FROM l JOIN layer USING (layer_id) GROUP BY layer_id ORDER BY layer.layer, layer_id
-- @section ranges
WITH r AS (SELECT s.value AS name, end_ns - start_ns AS duration_ns,
		row_number() OVER (PARTITION BY name_id ORDER BY end_ns - start_ns) AS n,
		count(*) OVER (PARTITION BY name_id) AS n_all
	FROM range JOIN string AS s ON s.string_id = name_id
	WHERE recording_id = :recording AND start_ns < :until AND end_ns >= :from)
SELECT name, count(*) AS n, sum(duration_ns) AS total_ns, avg(duration_ns) AS mean_ns,
	max(duration_ns) FILTER (WHERE n <= (n_all + 1) / 2) AS p50_ns,
	max(duration_ns) FILTER (WHERE n <= (n_all * 95 + 99) / 100) AS p95_ns,
	max(duration_ns) FILTER (WHERE n <= (n_all * 99 + 99) / 100) AS p99_ns
FROM r GROUP BY name ORDER BY total_ns DESC, name
-- @section energy
WITH s AS (SELECT device_id, domain, time_ns, energy_mj, coalesce(instant_mw, average_mw) AS mw,
		iif(energy_mj IS NOT NULL, time_ns, NULL) AS counted_ns,
		iif(source = 'poll' AND instant_mw IS NOT NULL, time_ns, NULL) AS polled_ns,
		iif(source = 'poll', (instant_mw + lead(instant_mw) OVER same) / 2.0 * (lead(time_ns) OVER same - time_ns), NULL)
			AS mw_ns
	FROM power_sample WHERE recording_id = :recording AND time_ns BETWEEN :from AND :until
	WINDOW same AS (PARTITION BY device_id, domain, source ORDER BY time_ns)),
e AS (SELECT device_id, domain, count(*) AS readings, avg(mw) / 1000.0 AS mean_w, max(mw) / 1000.0 AS max_w,
		max(counted_ns) - min(counted_ns) AS counted_ns, (max(energy_mj) - min(energy_mj)) / 1000.0 AS counted_j,
		max(polled_ns) - min(polled_ns) AS polled_ns, sum(mw_ns) / 1e12 AS summed_j
	FROM s GROUP BY device_id, domain)
SELECT e.device_id, d.kind AS device, e.domain, e.readings, e.mean_w, e.max_w,
	CASE WHEN counted_ns >= 1000000000 THEN counted_j WHEN polled_ns >= 1000000000 THEN summed_j END AS energy_j,
	CASE WHEN counted_ns >= 1000000000 THEN counted_ns WHEN polled_ns >= 1000000000 THEN polled_ns END AS between_ns,
	CASE WHEN counted_ns >= 1000000000 THEN 'energy counter, between its first and last reading here'
		WHEN polled_ns >= 1000000000 THEN 'power readings times the time between them'
		ELSE 'none: the readings here lie less than a second apart' END AS basis
FROM e JOIN device AS d USING (device_id) ORDER BY e.device_id, e.domain
-- @section gaps
SELECT stream, start_ns, end_ns, n_lost, reason FROM gap
WHERE recording_id = :recording AND start_ns < :until AND end_ns >= :from ORDER BY start_ns
