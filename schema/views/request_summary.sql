-- SPDX-License-Identifier: MIT
--
-- Requests with the passes that served them. A request that was open in two recordings has
-- two rows.
CREATE VIEW request_summary AS
WITH served AS (
	SELECT pr.request_id, count(DISTINCT pr.pass_id) AS n_passes, sum(pr.n_rows) AS n_rows,
		sum(CASE WHEN pr.phase = 'prefill' THEN pr.n_rows ELSE 0 END) AS prefill_rows,
		sum(CASE WHEN pr.phase = 'decode' THEN pr.n_rows ELSE 0 END) AS decode_rows,
		min(p.begin_ns) AS first_pass_ns, max(p.end_ns) AS last_pass_end_ns
	FROM pass_request AS pr JOIN pass AS p ON p.pass_id = pr.pass_id
	WHERE pr.request_id IS NOT NULL GROUP BY pr.request_id
)
SELECT
	r.request_id AS request_id,             -- INTEGER request in its recording
	r.recording_id AS recording_id,         -- INTEGER recording
	r.external_id AS external_id,           -- TEXT the runtime's own id; NULL: not told
	r.prompt_positions AS prompt_positions, -- INTEGER tokens of the prompt; NULL: not told
	r.n_positions AS n_positions,           -- INTEGER positions forwarded; NULL: not ended
	r.n_attempts AS n_attempts,             -- INTEGER computations begun
	coalesce(s.n_passes, 0) AS n_passes,    -- INTEGER passes that served it
	coalesce(s.n_rows, 0) AS n_rows,        -- INTEGER rows forwarded for it
	coalesce(s.prefill_rows, 0) AS prefill_rows, -- INTEGER of them in prefill slices
	coalesce(s.decode_rows, 0) AS decode_rows,   -- INTEGER of them in decode slices
	r.begin_ns AS begin_ns,                 -- INTEGER begin, session clock
	iif(r.verdict <> 'complete' AND (r.reasons LIKE '%began_before%' OR EXISTS (SELECT 1 FROM stats AS o
		WHERE o.recording_id = r.recording_id AND o.value > 0
		AND o.name IN ('sampled_passes', 'disabled_passes', 'dropped_passes'))),
		NULL, s.first_pass_ns - r.begin_ns) AS queue_ns, -- INTEGER wait until its first pass; NULL: none, or passes before the first one here may not be in the file
	r.end_ns - r.begin_ns AS duration_ns,   -- INTEGER length; NULL: not ended
	r.end_state AS end_state,               -- TEXT 'finished', 'aborted', 'failed'; NULL: not ended
	r.verdict AS verdict,                   -- TEXT 'complete', 'partial' or 'unfinished'
	r.reasons AS reasons                    -- TEXT why partial; NULL: not partial
FROM request AS r LEFT JOIN served AS s ON s.request_id = r.request_id;
