-- SPDX-License-Identifier: MIT
--
-- One :request: what is known of it, and the passes that served it; of positions :first to :last the
-- tokens, with some on either side since a character may be of four, and layers of which no row is stored.

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
