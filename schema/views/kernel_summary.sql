-- SPDX-License-Identifier: MIT
--
-- What the operations of each name took over a recording.
CREATE VIEW kernel_summary AS
SELECT
	k.recording_id AS recording_id, -- INTEGER recording
	k.device_id AS device_id,       -- INTEGER where they ran
	k.name AS name,                 -- TEXT name
	k.role AS role,                 -- TEXT what they are for
	count(*) AS n,                  -- INTEGER how many
	sum(k.duration_ns) AS total_ns, -- INTEGER together
	avg(k.duration_ns) AS mean_ns,  -- REAL one
	min(k.duration_ns) AS min_ns,   -- INTEGER the shortest one
	max(k.duration_ns) AS max_ns,   -- INTEGER the longest one
	1.0 * sum(k.duration_ns) / sum(sum(k.duration_ns)) OVER
		(PARTITION BY k.recording_id, k.device_id) AS share -- REAL of what ran on the device
FROM kernel_event AS k
GROUP BY k.recording_id, k.device_id, k.name, k.role;
