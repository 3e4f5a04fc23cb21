-- SPDX-License-Identifier: MIT
--
-- What the operations of a :recording took.

-- @section names
SELECT k.recording_id, d.kind AS device, k.device_id, k.name, k.role, k.n, k.total_ns, k.mean_ns,
	k.min_ns, k.max_ns, k.share
FROM kernel_summary AS k JOIN device AS d USING (device_id)
WHERE :recording IS NULL OR k.recording_id = :recording
ORDER BY k.recording_id, k.device_id, k.total_ns DESC, k.name LIMIT 500
-- @section roles
SELECT k.recording_id, d.kind AS device, k.device_id, k.role, sum(k.n) AS n,
	sum(k.total_ns) AS total_ns, sum(k.share) AS share
FROM kernel_summary AS k JOIN device AS d USING (device_id)
WHERE :recording IS NULL OR k.recording_id = :recording
GROUP BY k.recording_id, k.device_id, k.role ORDER BY k.recording_id, k.device_id, total_ns DESC, k.role
