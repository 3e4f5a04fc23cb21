-- SPDX-License-Identifier: MIT
--
-- Energy over windows of at least a second: counters change ten times a second, so that shorter ones
-- mean nothing, and there are none here. A window begins with a reading and ends with the first one
-- that is a second or more later, where the next one begins; tokens are rows of target models'
-- passes that began in it. Beside the counter stands what power over time adds up to: the two
-- differ, and their ratio says by how much.
-- Tokens are NULL where the recording does not know all rows of the window, and untold says why:
-- 'mode' (it is stat, which keeps no passes), 'sampling' (passes were left out), 'disabled' (so they
-- were, in regions in which the runtime had recording off), 'lost' (passes were, in the window or up to
-- a second, or the longest pass, before the loss was seen), 'let go' (flight mode let passes go that
-- were as old) or 'open' (the file ends while it goes on: passes that run then are not in it yet).
CREATE VIEW energy_window AS
WITH RECURSIVE numbered AS (
	SELECT *, count(limit_mw) OVER (PARTITION BY recording_id, device_id, domain
		ORDER BY power_sample_id) AS n_limits
	FROM power_sample WHERE source = 'poll'),
piece AS (
	SELECT power_sample_id AS id, recording_id, device_id, domain, time_ns, energy_mj,
		instant_mw IS NULL AS is_missing,
		max(limit_mw) OVER (PARTITION BY recording_id, device_id, domain, n_limits) AS limit_mw,
		(instant_mw + lead(instant_mw) OVER same) / 2.0
			* (lead(time_ns) OVER same - time_ns) / 1e9 AS mj,
		row_number() OVER same AS n,
		first_value(power_sample_id) OVER (PARTITION BY recording_id, device_id, domain
			ORDER BY time_ns RANGE BETWEEN 1000000000 FOLLOWING AND UNBOUNDED FOLLOWING)
			AS end_id
	FROM numbered
	WINDOW same AS (PARTITION BY recording_id, device_id, domain ORDER BY power_sample_id)),
reading AS MATERIALIZED (
	SELECT *, sum(mj) OVER before AS mj_before,
		sum(is_missing) OVER before AS n_missing_before
	FROM piece
	WINDOW before AS (PARTITION BY recording_id, device_id, domain ORDER BY n
		ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)),
edge AS (
	SELECT id, end_id FROM reading WHERE n = 1
	UNION ALL
	SELECT r.id, r.end_id FROM edge AS e JOIN reading AS r ON r.id = e.end_id),
whole AS MATERIALIZED (
	SELECT s.recording_id, s.device_id, s.domain, s.time_ns AS start_ns, e.time_ns AS end_ns,
		e.n - s.n AS n_readings, e.energy_mj - s.energy_mj AS energy_mj, s.limit_mw,
		CASE WHEN e.n_missing_before + e.is_missing = coalesce(s.n_missing_before, 0)
			THEN e.mj_before - coalesce(s.mj_before, 0) END AS integrated_mj
	FROM edge AS w JOIN reading AS s ON s.id = w.id JOIN reading AS e ON e.id = w.end_id),
-- Edges and passes in the order of time: a pass belongs to the last edge before it.
mark AS (
	SELECT recording_id, device_id, domain, start_ns AS at_ns, start_ns AS edge_ns, 0 AS n_rows
	FROM whole
	UNION ALL SELECT recording_id, device_id, domain, max(end_ns), max(end_ns), 0
	FROM whole GROUP BY recording_id, device_id, domain
	UNION ALL SELECT d.recording_id, d.device_id, d.domain, p.begin_ns, NULL, p.n_rows
	FROM (SELECT DISTINCT recording_id, device_id, domain FROM whole) AS d
	JOIN pass AS p ON p.recording_id = d.recording_id
	JOIN model AS m ON m.model_id = p.model_id AND m.kind = 'target'),
placed AS (
	SELECT recording_id, device_id, domain, n_rows, CAST(max(edge_ns) OVER (PARTITION BY
		recording_id, device_id, domain ORDER BY at_ns, edge_ns IS NULL
		ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS INTEGER) AS start_ns
	FROM mark),
work AS MATERIALIZED (
	SELECT recording_id, device_id, domain, start_ns, sum(n_rows) AS tokens
	FROM placed GROUP BY recording_id, device_id, domain, start_ns),
counted AS (SELECT recording_id, max(iif(name = 'disabled_passes', value, 0)) AS n_disabled,
		max(iif(name = 'sampled_passes', value, 0)) AS n_sampled,
		max(iif(name = 'flight_let_go_passes', value, 0)) AS n_let_go
	FROM stats GROUP BY recording_id),
span AS (SELECT recording_id, min(begin_ns) AS first_ns, max(begin_ns) AS last_ns,
		max(end_ns - begin_ns) AS longest_ns
	FROM pass GROUP BY recording_id),
-- Of what times a recording knows its passes; why: of none.
known AS MATERIALIZED (
	SELECT r.recording_id, CASE WHEN r.mode = 'stat' THEN 'mode'
			WHEN c.n_sampled > 0 THEN 'sampling'
			WHEN c.n_disabled > 0 THEN 'disabled' END AS why,
		iif(c.n_let_go > 0, coalesce(s.first_ns, 9223372036854775807), 0) AS from_ns,
		iif(r.end_reason IS NULL OR r.end_reason IN ('killed', 'dump'),
			coalesce(s.last_ns, 0), 9223372036854775807) AS until_ns,
		max(coalesce(s.longest_ns, 0), 1000000000) AS longest_ns
	FROM recording AS r LEFT JOIN counted AS c USING (recording_id)
	LEFT JOIN span AS s USING (recording_id)),
-- What is lost when it begins is in the gap; what is found lost later began before that.
hole AS MATERIALIZED (
	SELECT g.recording_id, g.start_ns - iif(g.reason IN ('no_ring', 'ring_full'), 0, k.longest_ns)
		AS start_ns, g.end_ns
	FROM gap AS g JOIN known AS k USING (recording_id) WHERE g.stream = 'pass'),
-- Windows and holes in the order of time: how far any hole reaches that begins before a window ends.
reached AS MATERIALIZED (
	SELECT recording_id, device_id, domain, start_ns, max(hole_end_ns) OVER (PARTITION BY recording_id
		ORDER BY at_ns, hole_end_ns IS NOT NULL ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW)
		AS lost_until_ns
	FROM (SELECT recording_id, device_id, domain, start_ns, end_ns AS at_ns, NULL AS hole_end_ns FROM whole
		UNION ALL SELECT recording_id, NULL, NULL, NULL, start_ns, end_ns FROM hole)),
told AS MATERIALIZED (
	SELECT w.*, k.tokens, CASE WHEN n.why IS NOT NULL THEN n.why
		WHEN h.lost_until_ns >= w.start_ns THEN 'lost'
		WHEN w.start_ns < n.from_ns THEN 'let go'
		WHEN w.end_ns > n.until_ns THEN 'open' END AS untold
	FROM whole AS w JOIN known AS n USING (recording_id)
	JOIN work AS k ON k.recording_id = w.recording_id AND k.device_id = w.device_id
		AND k.domain = w.domain AND k.start_ns = w.start_ns
	JOIN reached AS h ON h.recording_id = w.recording_id AND h.device_id = w.device_id
		AND h.domain = w.domain AND h.start_ns = w.start_ns)
SELECT
	w.recording_id AS recording_id, -- INTEGER recording
	w.device_id AS device_id,       -- INTEGER what drew it
	w.domain AS domain,             -- TEXT part of the device
	w.start_ns AS start_ns,         -- INTEGER first reading
	w.end_ns - w.start_ns AS length_ns, -- INTEGER until the first reading of the next window
	w.n_readings AS n_readings,     -- INTEGER readings in it
	w.energy_mj AS energy_mj,       -- INTEGER by the counter; NULL: it is not told
	w.integrated_mj AS integrated_mj,   -- REAL power readings times the time between them; NULL: not told
	w.energy_mj / nullif(w.integrated_mj, 0) AS counter_ratio, -- REAL counter / sum
	w.energy_mj * 1e6 / (w.end_ns - w.start_ns) AS mean_w, -- REAL by the counter
	w.limit_mw / 1000.0 AS limit_w, -- REAL enforced limit when it began; NULL: not told
	iif(w.untold IS NULL, w.tokens, NULL) AS tokens, -- INTEGER rows of passes that began in it; NULL: not all are known, see untold
	iif(w.untold IS NULL, w.tokens * 1e3 / nullif(w.energy_mj, 0), NULL) AS tokens_per_joule, -- REAL by the counter; NULL: it did not go on or is not told, or tokens are not
	w.untold AS untold              -- TEXT why tokens are not told; NULL: they are
FROM told AS w;
