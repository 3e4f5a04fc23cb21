-- SPDX-License-Identifier: MIT
--
-- One :request: what is known of it, and the passes that served it.

-- @section summary
SELECT * FROM request_summary WHERE request_id = :request
-- @section attributes
SELECT key, value FROM request_attribute WHERE request_id = :request ORDER BY key
-- @section reuse
SELECT attempt, first_position, n_positions, source_request_id, source_attempt
FROM request_reuse WHERE request_id = :request ORDER BY attempt, first_position
-- @section attempts
SELECT pr.attempt, count(*) AS n_slices, sum(pr.n_rows) AS n_rows, min(pr.first_position) AS
	first_position, max(pr.first_position + pr.n_rows - 1) AS last_position
FROM pass_request AS pr WHERE pr.request_id = :request GROUP BY pr.attempt ORDER BY pr.attempt
-- @section slices
SELECT pr.pass_id, pr.attempt, pr.phase, pr.first_position, pr.n_rows, p.begin_ns,
	p.end_ns - p.begin_ns AS duration_ns, p.n_rows AS pass_rows, p.verdict
FROM pass_request AS pr JOIN pass AS p USING (pass_id)
WHERE pr.request_id = :request ORDER BY pr.pass_id, pr.slice LIMIT 2000
-- @section tokens
SELECT position, token_id FROM request_token
WHERE request_id = :request AND position BETWEEN :first AND :last ORDER BY position
