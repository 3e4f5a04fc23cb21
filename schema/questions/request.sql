-- SPDX-License-Identifier: MIT
--
-- One :request: what is known of it, and the passes that served it; of positions :first to :last the
-- tokens, with some on either side since a character may be of four, and layers of which no row is stored.

-- @section summary
-- As view request_summary, from the passes of its time.
WITH some AS MATERIALIZED (SELECT * FROM request WHERE request_id = :request),
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
FROM some AS r LEFT JOIN served AS s USING (request_id)
-- @section attributes
SELECT key, value FROM request_attribute WHERE request_id = :request ORDER BY key
-- @section reuse
SELECT attempt, first_position, n_positions, source_request_id, source_attempt
FROM request_reuse WHERE request_id = :request ORDER BY attempt, first_position
-- @section attempts
SELECT pr.attempt, count(*) AS n_slices, sum(pr.n_rows) AS n_rows, min(pr.first_position) AS
	first_position, max(pr.first_position + pr.n_rows - 1) AS last_position
FROM request AS r
CROSS JOIN pass AS p ON coalesce(p.end_ns, 9223372036854775807) >= r.begin_ns
	AND p.begin_ns <= coalesce(r.end_ns, 9223372036854775807)
CROSS JOIN pass_request AS pr ON pr.pass_id = p.pass_id AND pr.request_id = r.request_id
WHERE r.request_id = :request GROUP BY pr.attempt ORDER BY pr.attempt
-- @section slices
SELECT p.pass_id, pr.attempt, pr.phase, pr.first_position, pr.n_rows, p.begin_ns,
	p.end_ns - p.begin_ns AS duration_ns, p.n_rows AS pass_rows, p.verdict
FROM request AS r
CROSS JOIN pass AS p ON coalesce(p.end_ns, 9223372036854775807) >= r.begin_ns
	AND p.begin_ns <= coalesce(r.end_ns, 9223372036854775807)
CROSS JOIN pass_request AS pr ON pr.pass_id = p.pass_id AND pr.request_id = r.request_id
WHERE r.request_id = :request ORDER BY p.pass_id, pr.slice LIMIT 2000
-- @section tokens
SELECT position, token_id FROM request_token
WHERE request_id = :request AND position BETWEEN :first - 3 AND :last + 3 ORDER BY position
-- @section text
-- Tokens below 256 are bytes where all of a request, or nearly so, are.
SELECT count(*) AS n_tokens, coalesce(sum(token_id BETWEEN 0 AND 255), 0) AS n_bytes
FROM request_token WHERE request_id = :request
-- @section holes
SELECT pr.pass_id, pr.attempt, pl.layer_id, CASE pl.state WHEN 1 THEN 'unwritten' WHEN 2 THEN 'lost'
	ELSE 'counted' END AS state
FROM pass_request AS pr JOIN pass_layer AS pl USING (pass_id)
WHERE pr.request_id = :request AND pl.state <> 0 AND ((pr.first_position <= :last
	AND pr.first_position + pr.n_rows > :first) OR (pr.positions IS NOT NULL AND :first IS NOT NULL))
ORDER BY pr.pass_id, pl.layer_id LIMIT 5000
