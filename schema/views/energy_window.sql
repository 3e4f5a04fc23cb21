-- SPDX-License-Identifier: MIT
--
-- Energy over windows of a second and more: counters change ten times a second, so that shorter
-- ones mean nothing. A window begins with a reading and ends with the first one that is a second
-- later; tokens are rows of target models' passes that began in it. Beside the counter stands what
-- power over time adds up to: the two differ, and their ratio says by how much.
CREATE VIEW energy_window AS
WITH reading AS (
	SELECT s.recording_id, s.device_id, s.domain, s.time_ns, s.energy_mj, s.instant_mw,
		(s.time_ns - r.start_ns) / 1000000000 AS second,
		lead(s.time_ns) OVER same AS next_ns, lead(s.instant_mw) OVER same AS next_mw
	FROM power_sample AS s JOIN recording AS r ON r.recording_id = s.recording_id
	WHERE s.source = 'poll'
	WINDOW same AS (PARTITION BY s.recording_id, s.device_id, s.domain
		ORDER BY s.power_sample_id)),
bound AS (
	SELECT recording_id, device_id, domain, second, min(time_ns) AS start_ns,
		min(energy_mj) AS start_mj,
		CASE WHEN count(*) = count(instant_mw) AND count(next_ns) = count(next_mw)
			THEN sum((instant_mw + next_mw) / 2.0 * (next_ns - time_ns) / 1e9)
			END AS integrated_mj,
		count(*) AS n_readings
	FROM reading GROUP BY recording_id, device_id, domain, second),
whole AS (
	SELECT b.*, lead(start_ns) OVER later AS end_ns, lead(start_mj) OVER later AS end_mj
	FROM bound AS b
	WINDOW later AS (PARTITION BY recording_id, device_id, domain ORDER BY second))
SELECT
	w.recording_id AS recording_id, -- INTEGER recording
	w.device_id AS device_id,       -- INTEGER what drew it
	w.domain AS domain,             -- TEXT part of the device
	w.start_ns AS start_ns,         -- INTEGER first reading
	w.end_ns - w.start_ns AS length_ns, -- INTEGER until the first reading of the next window
	w.n_readings AS n_readings,     -- INTEGER readings in it
	w.end_mj - w.start_mj AS energy_mj, -- INTEGER by the counter; NULL: it is not told
	w.integrated_mj AS integrated_mj,   -- REAL power readings times the time between them; NULL: not told
	(w.end_mj - w.start_mj) / w.integrated_mj AS counter_ratio, -- REAL counter / sum
	(w.end_mj - w.start_mj) * 1e6 / (w.end_ns - w.start_ns) AS mean_w, -- REAL by the counter
	(SELECT coalesce(sum(p.n_rows), 0) FROM pass AS p JOIN model AS m ON m.model_id = p.model_id
		WHERE p.recording_id = w.recording_id AND m.kind = 'target'
		AND p.begin_ns >= w.start_ns AND p.begin_ns < w.end_ns) AS tokens -- INTEGER rows of passes that began in it
FROM whole AS w
WHERE w.end_ns - w.start_ns >= 900000000;
