-- SPDX-License-Identifier: MIT
--
-- Requests of a :recording, those whose id contains :like, with a :verdict, 200 from :offset on.
-- @rows 200
SELECT s.* FROM request_summary AS s
WHERE (:recording IS NULL OR s.recording_id = :recording)
	AND (:like IS NULL OR CAST(s.request_id AS TEXT) = CAST(:like AS TEXT)
		OR instr(lower(coalesce(s.external_id, '')), lower(CAST(:like AS TEXT))) > 0)
	AND (:verdict IS NULL OR s.verdict = :verdict)
ORDER BY s.request_id LIMIT 201 OFFSET coalesce(:offset, 0)
