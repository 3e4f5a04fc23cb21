-- SPDX-License-Identifier: MIT
--
-- Power over time, in watts: what was read, and what the energy counter went on by since the reading
-- before it. A figure that the source does not tell is NULL.
CREATE VIEW power AS
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
	coalesce(s.limit_mw, d.power_limit_mw) / 1000.0 AS limit_w, -- REAL enforced limit
	coalesce(s.instant_mw, s.average_mw) * 1.0
		/ coalesce(s.limit_mw, d.power_limit_mw) AS limit_share, -- REAL of the limit
	s.throttle_reasons AS throttle_reasons -- INTEGER why clocks are held down, the driver's bits
FROM power_sample AS s
JOIN device AS d ON d.device_id = s.device_id
WINDOW same AS (PARTITION BY s.recording_id, s.device_id, s.domain, s.source
	ORDER BY s.power_sample_id);
