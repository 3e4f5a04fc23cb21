-- SPDX-License-Identifier: MIT
--
-- Requests of a :recording, those whose id contains :like, with a :verdict, 200 from :offset on: what
-- view request_summary says of them, from the passes of their time.
-- @rows 200
WITH some AS MATERIALIZED (
	SELECT * FROM request
	WHERE (:recording IS NULL OR recording_id = :recording)
		AND (:like IS NULL OR CAST(request_id AS TEXT) = CAST(:like AS TEXT)
			OR instr(lower(coalesce(external_id, '')), lower(CAST(:like AS TEXT))) > 0)
		AND (:verdict IS NULL OR verdict = :verdict)
	ORDER BY request_id LIMIT 201 OFFSET coalesce(:offset, 0)),
served AS (
	SELECT pr.request_id, count(DISTINCT pr.pass_id) AS n_passes, sum(pr.n_rows) AS n_rows,
		sum(iif(pr.phase = 'prefill', pr.n_rows, 0)) AS prefill_rows,
		sum(iif(pr.phase = 'decode', pr.n_rows, 0)) AS decode_rows, min(p.begin_ns) AS first_pass_ns
	FROM (SELECT min(begin_ns) AS begin_ns, max(coalesce(end_ns, 9223372036854775807)) AS end_ns FROM some) AS time
	CROSS JOIN pass AS p ON coalesce(p.end_ns, 9223372036854775807) >= time.begin_ns AND p.begin_ns <= time.end_ns
	CROSS JOIN pass_request AS pr ON pr.pass_id = p.pass_id
	WHERE pr.request_id IN (SELECT request_id FROM some) GROUP BY pr.request_id)
SELECT
	r.request_id, r.recording_id, r.external_id, r.prompt_positions, r.n_positions, r.n_attempts,
	coalesce(s.n_passes, 0) AS n_passes, coalesce(s.n_rows, 0) AS n_rows,
	coalesce(s.prefill_rows, 0) AS prefill_rows, coalesce(s.decode_rows, 0) AS decode_rows, r.begin_ns,
	iif(r.verdict <> 'complete' AND (r.reasons LIKE '%began_before%' OR EXISTS (SELECT 1 FROM stats AS o
		WHERE o.recording_id = r.recording_id AND o.value > 0
		AND o.name IN ('sampled_passes', 'disabled_passes', 'dropped_passes'))),
		NULL, s.first_pass_ns - r.begin_ns) AS queue_ns, r.end_ns - r.begin_ns AS duration_ns, r.end_state,
	r.verdict, r.reasons
FROM some AS r LEFT JOIN served AS s USING (request_id) ORDER BY r.request_id
