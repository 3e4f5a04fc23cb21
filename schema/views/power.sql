-- SPDX-License-Identifier: MIT
--
-- Power over time, in watts: what was read, and what the energy counter went on by since the reading
-- before it. The limit is the one of that part of the device that was in force: the newest one that
-- was read then or before; it is read once a second. A figure that the source does not tell is NULL.
CREATE VIEW power AS
WITH numbered AS (
	SELECT *, count(limit_mw) OVER (PARTITION BY recording_id, device_id, domain ORDER BY
		time_ns, power_sample_id) AS n_limits FROM power_sample),
sample AS (
	SELECT *, max(limit_mw) OVER (PARTITION BY recording_id, device_id, domain, n_limits)
		AS in_force_mw
	FROM numbered)
SELECT
	s.recording_id AS recording_id, -- INTEGER recording
	s.device_id AS device_id,       -- INTEGER what draws it
	s.domain AS domain,             -- TEXT part of the device
	s.source AS source,             -- TEXT 'poll' or 'buffer', as in power_sample
	s.time_ns AS time_ns,           -- INTEGER when, session clock
	s.instant_mw / 1000.0 AS instant_w, -- REAL power at that moment
	s.average_mw / 1000.0 AS average_w, -- REAL over the last second or so
	CASE WHEN s.time_ns > lag(s.time_ns) OVER same THEN
		(s.energy_mj - lag(s.energy_mj) OVER same) * 1e6
		/ (s.time_ns - lag(s.time_ns) OVER same) END AS counted_w, -- REAL by the energy counter, since the reading before; NULL: none of the two has it
	s.in_force_mw / 1000.0 AS limit_w, -- REAL enforced limit; NULL: not told, or not read yet
	coalesce(s.instant_mw, s.average_mw) * 1.0 / nullif(s.in_force_mw, 0) AS limit_share, -- REAL of the limit
	s.throttle_reasons AS throttle_reasons, -- INTEGER why clocks are held down, the driver's bits
	CASE WHEN s.throttle_reasons IS NULL THEN NULL WHEN s.throttle_reasons = 0 THEN 'nothing'
		ELSE substr(
		iif(s.throttle_reasons & 1, ', idle', '')
		|| iif(s.throttle_reasons & 2, ', clocks set by an application', '')
		|| iif(s.throttle_reasons & 4, ', power limit', '')
		|| iif(s.throttle_reasons & 8, ', hardware slowdown', '')
		|| iif(s.throttle_reasons & 16, ', in step with other GPUs', '')
		|| iif(s.throttle_reasons & 32, ', temperature (driver)', '')
		|| iif(s.throttle_reasons & 64, ', temperature (hardware)', '')
		|| iif(s.throttle_reasons & 128, ', power brake from outside', '')
		|| iif(s.throttle_reasons & 256, ', clocks set for the display', '')
		|| iif(s.throttle_reasons & ~511, ', other', ''), 3)
		END AS held_down_by -- TEXT the same in words; NULL: not told
FROM sample AS s
WINDOW same AS (PARTITION BY s.recording_id, s.device_id, s.domain, s.source
	ORDER BY s.power_sample_id);
