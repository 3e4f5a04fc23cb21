-- SPDX-License-Identifier: MIT
--
-- When a :recording lost something.
SELECT stream, start_ns, end_ns, n_lost, reason FROM gap
WHERE recording_id = :recording ORDER BY start_ns LIMIT 10000
