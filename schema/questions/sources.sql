-- SPDX-License-Identifier: MIT
--
-- What became of the sources of times and power that were asked for in a :recording.
SELECT name, state, mode, version, reason, n_rows, n_dropped, n_invalid FROM collector
WHERE recording_id = :recording ORDER BY name
