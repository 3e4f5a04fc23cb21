-- SPDX-License-Identifier: MIT
--
-- What moe_diff, moe_diff_request and moe_attempts have to say of two traces of make_pairs (main and
-- b), from the table `expected` of each, by joins alone.

CREATE TEMP TABLE ids AS SELECT a.request_id AS ra, b.request_id AS rb, 'id' AS joined_by FROM
	(SELECT *, row_number() OVER (PARTITION BY external_id ORDER BY request_id) AS n FROM main.request
		WHERE external_id IS NOT NULL) AS a
	JOIN (SELECT *, row_number() OVER (PARTITION BY external_id ORDER BY request_id) AS n FROM b.request
		WHERE external_id IS NOT NULL) AS b USING (external_id, n);
CREATE TEMP TABLE prompt_a AS SELECT request_id, (SELECT group_concat(token_id) FROM (SELECT token_id FROM
	main.request_token AS t WHERE t.request_id = q.request_id AND position < 4 ORDER BY position)) AS prompt
	FROM main.request AS q WHERE request_id NOT IN (SELECT ra FROM ids);
CREATE TEMP TABLE prompt_b AS SELECT request_id, (SELECT group_concat(token_id) FROM (SELECT token_id FROM
	b.request_token AS t WHERE t.request_id = q.request_id AND position < 4 ORDER BY position)) AS prompt
	FROM b.request AS q WHERE request_id NOT IN (SELECT rb FROM ids);
CREATE TEMP TABLE pairs AS SELECT * FROM ids UNION ALL
	SELECT a.request_id, b.request_id, 'tokens' FROM prompt_a AS a JOIN prompt_b AS b USING (prompt);
CREATE TEMP TABLE ends AS SELECT ra, rb, joined_by, qa.n_attempts - 1 AS attempt_a, qb.n_attempts - 1 AS attempt_b,
	(SELECT min(position) FROM main.request_token AS ta JOIN b.request_token AS tb USING (position)
		WHERE ta.request_id = ra AND tb.request_id = rb AND ta.token_id <> tb.token_id) AS token_position,
	coalesce(qa.n_positions, (SELECT max(first_position + n_rows) FROM main.pass_request AS s
		WHERE s.request_id = ra)) AS end_a,
	coalesce(qb.n_positions, (SELECT max(first_position + n_rows) FROM b.pass_request AS s
		WHERE s.request_id = rb)) AS end_b
	FROM pairs JOIN main.request AS qa ON qa.request_id = ra JOIN b.request AS qb ON qb.request_id = rb;

-- The rows that each side has of each pair, reused ones from where they were computed.
CREATE TEMP TABLE side_a AS SELECT ra, rb, e.position, e.layer, e.layer_id, expert, topk_rank, weight,
	reused, p.selection_order <= 1 AS ordered FROM
	(SELECT ra, rb, ra AS request_id, attempt_a AS attempt, 0 AS first, end_a AS last, 0 AS reused FROM ends
	UNION ALL SELECT ra, rb, source_request_id, source_attempt, first_position, first_position + n_positions, 1
		FROM ends JOIN main.request_reuse AS u ON u.request_id = ra AND u.attempt = attempt_a) AS w
	JOIN main.expected AS e ON e.request_id = w.request_id AND e.attempt = w.attempt AND e.state = 'computed'
		AND e.position >= w.first AND e.position < w.last
	JOIN main.layer AS l USING (layer_id) JOIN main.pass_layer AS p ON p.pass_id = e.pass_id
		AND p.layer_id = e.layer_id JOIN ends USING (ra, rb)
	WHERE expert < n_experts + n_zero_experts
		AND e.position < min(end_a, end_b, coalesce(token_position, 1000));
CREATE TEMP TABLE side_b AS SELECT ra, rb, e.position, e.layer, e.layer_id, expert, topk_rank, weight,
	reused, p.selection_order <= 1 AS ordered FROM
	(SELECT ra, rb, rb AS request_id, attempt_b AS attempt, 0 AS first, end_b AS last, 0 AS reused FROM ends
	UNION ALL SELECT ra, rb, source_request_id, source_attempt, first_position, first_position + n_positions, 1
		FROM ends JOIN b.request_reuse AS u ON u.request_id = rb AND u.attempt = attempt_b) AS w
	JOIN b.expected AS e ON e.request_id = w.request_id AND e.attempt = w.attempt AND e.state = 'computed'
		AND e.position >= w.first AND e.position < w.last
	JOIN b.layer AS l USING (layer_id) JOIN b.pass_layer AS p ON p.pass_id = e.pass_id
		AND p.layer_id = e.layer_id JOIN ends USING (ra, rb)
	WHERE expert < n_experts + n_zero_experts
		AND e.position < min(end_a, end_b, coalesce(token_position, 1000));

CREATE TEMP TABLE rows_a AS SELECT ra, rb, position, layer, count(*) AS n, max(reused) AS reused,
	min(ordered) AS ordered, sum(weight) AS total FROM side_a GROUP BY 1, 2, 3, 4;
CREATE TEMP TABLE rows_b AS SELECT ra, rb, position, layer, count(*) AS n, max(reused) AS reused,
	min(ordered) AS ordered, sum(weight) AS total FROM side_b GROUP BY 1, 2, 3, 4;
CREATE INDEX temp.by_row_a ON side_a (ra, rb, position, layer, expert);
CREATE INDEX temp.by_row_b ON side_b (ra, rb, position, layer, expert);

-- Each pair of rows that both have.
CREATE TEMP TABLE both AS SELECT a.ra, a.rb, a.position, a.layer, a.reused OR b.reused AS reused,
	max(a.n, b.n) AS choices, max(a.n, b.n) - common AS differing,
	a.ordered AND b.ordered AND common = max(a.n, b.n) AS is_ordered,
	iif(a.ordered AND b.ordered AND common = max(a.n, b.n), moved, 0) AS moved,
	a.total > 0 AND b.total > 0 AS is_weighted,
	0.5 * (coalesce(near, 0) + (SELECT coalesce(sum(weight), 0) FROM side_a AS s WHERE s.ra = a.ra AND s.rb = a.rb
		AND s.position = a.position AND s.layer = a.layer AND s.expert NOT IN (SELECT expert FROM side_b AS t
		WHERE t.ra = a.ra AND t.rb = a.rb AND t.position = a.position AND t.layer = a.layer)) / a.total
	+ (SELECT coalesce(sum(weight), 0) FROM side_b AS s WHERE s.ra = a.ra AND s.rb = a.rb
		AND s.position = a.position AND s.layer = a.layer AND s.expert NOT IN (SELECT expert FROM side_a AS t
		WHERE t.ra = a.ra AND t.rb = a.rb AND t.position = a.position AND t.layer = a.layer)) / b.total)
		AS distance,
	iif(a.total > 0 AND b.total > 0, common, 0) AS weights, difference, most
	FROM rows_a AS a JOIN rows_b AS b USING (ra, rb, position, layer) JOIN
	(SELECT ra, rb, position, layer, count(y.expert) AS common, sum(x.topk_rank <> y.topk_rank) AS moved,
		sum(abs(x.weight / p.total - y.weight / q.total)) AS near, sum(abs(x.weight - y.weight)) AS difference,
		max(abs(x.weight - y.weight)) AS most FROM side_a AS x
		JOIN rows_a AS p USING (ra, rb, position, layer) JOIN rows_b AS q USING (ra, rb, position, layer)
		LEFT JOIN side_b AS y USING (ra, rb, position, layer, expert) GROUP BY 1, 2, 3, 4)
	USING (ra, rb, position, layer);

-- By layer and position: rows that neither reused.
CREATE TEMP TABLE want AS SELECT layer, bucket, count(*) AS rows, sum(differing > 0) AS differing_rows,
	sum(choices) AS choices, sum(differing) AS differing_choices, sum(is_ordered) AS ordered_rows,
	sum(is_ordered AND moved > 0) AS reordered_rows, sum(moved) AS moved_choices,
	coalesce(sum(is_weighted), 0) AS weighted_rows, round(sum(distance), 6) AS weight_distance, sum(weights) AS weights,
	round(sum(difference), 6) AS difference, max(most) AS most FROM
	(SELECT *, (SELECT max(value) FROM byte WHERE value < 31 AND 1 << value <= position) AS bucket FROM both
		WHERE NOT reused) GROUP BY layer, bucket;
CREATE TEMP TABLE got AS SELECT layer, CASE position_from WHEN 0 THEN NULL ELSE (SELECT value FROM byte WHERE value < 31 AND
	1 << value = position_from) END AS bucket, rows, differing_rows, choices, differing_choices, ordered_rows,
	reordered_rows, moved_choices, weighted_rows, round(weight_distance, 6), compared_weights,
	round(weight_difference, 6), max_weight_difference FROM moe_diff(NULL, NULL, 'b')
	WHERE position_from IS NOT NULL;
SELECT 'by layer and position', (SELECT count(*) FROM want) > 15, (SELECT count(*) FROM
	(SELECT * FROM want EXCEPT SELECT * FROM got)), (SELECT count(*) FROM (SELECT * FROM got EXCEPT SELECT * FROM want));
SELECT 'positions are what bits say', count(*) FROM moe_diff(NULL, NULL, 'b') WHERE position_from IS NOT NULL
	AND position_to <> max(0, 2 * position_from - 1);
SELECT 'layers are their positions', (SELECT count(*) FROM (SELECT layer, sum(rows), sum(differing_rows),
	sum(choices), sum(differing_choices), sum(moved_choices) FROM moe_diff(NULL, NULL, 'b') WHERE position_from IS
	NOT NULL GROUP BY layer EXCEPT SELECT layer, rows, differing_rows, choices, differing_choices, moved_choices
	FROM moe_diff(NULL, NULL, 'b') WHERE position_from IS NULL));
SELECT 'the first row is all layers', (SELECT rows || ' ' || differing_choices FROM moe_diff(NULL, NULL, 'b')
	WHERE layer IS NULL) = (SELECT sum(rows) || ' ' || sum(differing_choices) FROM want);

-- The interval, from its definition.
CREATE TEMP TABLE by_request AS SELECT layer, ra, sum(choices) AS c, sum(differing) AS d FROM both
	WHERE NOT reused GROUP BY layer, ra;
CREATE TEMP TABLE spread AS SELECT layer, n, share, sqrt(1.0 * n / (n - 1) * sum((d - share * c) * (d - share * c)))
	/ sum(c) AS error FROM by_request JOIN (SELECT layer, count(*) AS n, 1.0 * sum(d) / sum(c) AS share FROM
	by_request GROUP BY layer) USING (layer) GROUP BY layer;
SELECT 'intervals', count(*), sum(abs(share + 2.0345153 * error - share_high) > 2e-3), sum(n <> n_requests),
	sum(abs(max(0, share - 2.0345153 * error) - share_low) > 2e-3)
	FROM spread JOIN moe_diff(NULL, NULL, 'b') USING (layer) WHERE position_from IS NULL;

-- The load's shift, and what it is of.
CREATE TEMP TABLE loads AS SELECT layer, expert, sum(a) AS a, sum(b) AS b FROM
	(SELECT layer, expert, 1 AS a, 0 AS b FROM side_a JOIN both USING (ra, rb, position, layer) WHERE NOT both.reused
	UNION ALL SELECT layer, expert, 0, 1 FROM side_b JOIN both USING (ra, rb, position, layer) WHERE NOT both.reused)
	GROUP BY 1, 2;
SELECT 'load shifts', count(*), sum(abs(load_shift - shift) > 1e-12), sum(p_value <= 0 OR p_value > 1 OR
	p_adjusted < p_value OR chance_shift <= 0) FROM (SELECT layer, 0.5 * sum(abs(a - b)) / (SELECT sum(choices) FROM both
	WHERE NOT reused AND both.layer = loads.layer) AS shift FROM loads GROUP BY layer)
	JOIN moe_diff(NULL, NULL, 'b') USING (layer) WHERE position_from IS NULL;

-- By request.
CREATE TEMP TABLE sides AS SELECT ra, rb, position, layer, 1 AS a, 0 AS b FROM rows_a UNION ALL
	SELECT ra, rb, position, layer, 0, 1 FROM rows_b;
CREATE TEMP TABLE want_request AS SELECT ra, rb, joined_by, attempt_a, attempt_b,
	min(end_a, end_b, coalesce(token_position, 1000)) AS n_positions,
	(SELECT count(DISTINCT position) FROM both AS x WHERE x.ra = e.ra AND x.rb = e.rb) AS compared_positions, token_position,
	(SELECT count(*) FROM both AS x WHERE x.ra = e.ra AND x.rb = e.rb AND NOT reused) AS rows,
	(SELECT coalesce(sum(differing), 0) FROM both AS x WHERE x.ra = e.ra AND x.rb = e.rb AND NOT reused) AS differing,
	(SELECT count(*) FROM both AS x WHERE x.ra = e.ra AND x.rb = e.rb AND reused) AS reused_rows,
	(SELECT coalesce(sum(differing > 0), 0) FROM both AS x WHERE x.ra = e.ra AND x.rb = e.rb AND reused) AS reused_differing,
	(SELECT count(*) FROM (SELECT max(a) AS a FROM sides AS x WHERE x.ra = e.ra AND x.rb = e.rb
		GROUP BY position, layer) WHERE a = 0) AS missing_a,
	(SELECT count(*) FROM (SELECT max(b) AS b FROM sides AS x WHERE x.ra = e.ra AND x.rb = e.rb
		GROUP BY position, layer) WHERE b = 0) AS missing_b,
	3 * min(end_a, end_b, coalesce(token_position, 1000)) - (SELECT count(*) FROM (SELECT DISTINCT position, layer
		FROM sides AS x WHERE x.ra = e.ra AND x.rb = e.rb)) AS missing_both,
	(SELECT position FROM both AS x WHERE x.ra = e.ra AND x.rb = e.rb AND differing > 0 ORDER BY position, layer
		LIMIT 1) AS first_position,
	(SELECT layer FROM both AS x WHERE x.ra = e.ra AND x.rb = e.rb AND differing > 0 ORDER BY position, layer LIMIT 1)
		AS first_layer
	FROM ends AS e;
CREATE TEMP TABLE got_request AS SELECT request_a, request_b, joined_by, attempt_a, attempt_b, n_positions,
	compared_positions, token_position,
	rows, differing_choices, reused_rows, reused_differing_rows, missing_a, missing_b, missing_both,
	first_position, first_layer FROM moe_diff_request(NULL, NULL, 'b');
SELECT 'by request', (SELECT count(*) FROM want_request) > 25, (SELECT count(*) FROM (SELECT * FROM want_request EXCEPT
	SELECT * FROM got_request)), (SELECT count(*) FROM (SELECT * FROM got_request WHERE request_a AND request_b
	EXCEPT SELECT * FROM want_request));
SELECT 'requests that nothing is joined to', (SELECT count(*) FROM got_request WHERE request_b IS NULL) > 0,
	(SELECT count(*) FROM got_request WHERE request_b IS NULL) = (SELECT count(*) FROM main.request WHERE
	request_id NOT IN (SELECT ra FROM pairs)), (SELECT count(*) FROM got_request WHERE request_a IS NULL)
	= (SELECT count(*) FROM b.request WHERE request_id NOT IN (SELECT rb FROM pairs));
SELECT 'what there is to find', (SELECT sum(joined_by = 'tokens') > 3 AND sum(token_position IS NOT NULL) > 5
	AND sum(reused_rows) > 20 AND sum(missing_a) > 5 AND sum(missing_b) > 5 AND sum(missing_both) > 0
	AND sum(attempt_a) > 2 FROM got_request);

-- In however little memory.
SELECT 'piece by piece', (SELECT count(*) FROM (SELECT layer, position_from, rows, differing_choices, moved_choices,
	round(weight_distance, 6), round(share_high, 6), load_shift, p_value, p_adjusted FROM moe_diff(NULL, NULL, 'b', NULL, 3000)
	EXCEPT SELECT layer, position_from, rows, differing_choices, moved_choices, round(weight_distance, 6),
	round(share_high, 6), load_shift, p_value, p_adjusted FROM moe_diff(NULL, NULL, 'b'))), (SELECT count(*) FROM (SELECT * FROM moe_diff_request(NULL, NULL, 'b', NULL, 1)
	EXCEPT SELECT * FROM moe_diff_request(NULL, NULL, 'b')));

-- Attempts, of one trace.
CREATE TEMP TABLE attempt_rows AS SELECT e.request_id, e.attempt, e.position, e.layer, e.expert FROM main.expected AS e
	JOIN main.layer USING (layer_id) WHERE state = 'computed' AND expert < n_experts + n_zero_experts
	UNION SELECT u.request_id, u.attempt, e.position, e.layer, e.expert FROM main.request_reuse AS u JOIN main.expected AS e
	ON e.request_id = source_request_id AND e.attempt = source_attempt AND e.state = 'computed' AND
	e.position >= first_position AND e.position < first_position + n_positions JOIN main.layer USING (layer_id)
	WHERE expert < n_experts + n_zero_experts;
CREATE TEMP TABLE attempt_sizes AS SELECT request_id, attempt, position, layer, count(*) AS n FROM attempt_rows
	GROUP BY 1, 2, 3, 4;
CREATE INDEX temp.by_attempt ON attempt_rows (request_id, attempt, position, layer, expert);
CREATE TEMP TABLE want_attempts AS SELECT request_id, a.attempt, q.n_attempts - 1 AS last_attempt, a.layer,
	count(*) AS both_rows, sum(max(a.n, z.n)) AS choices, sum(max(a.n, z.n) - (SELECT count(*) FROM attempt_rows AS x
		JOIN attempt_rows AS y USING (request_id, position, layer, expert) WHERE x.request_id = q.request_id
		AND x.attempt = a.attempt AND y.attempt = z.attempt AND x.position = a.position AND x.layer = a.layer)) AS differing
	FROM main.request AS q JOIN attempt_sizes AS a USING (request_id) JOIN attempt_sizes AS z
	USING (request_id, position, layer) WHERE z.attempt = q.n_attempts - 1 AND a.attempt < z.attempt
	AND NOT EXISTS (SELECT 1 FROM main.request_reuse AS u WHERE u.request_id = q.request_id
		AND u.attempt IN (a.attempt, z.attempt) AND a.position < u.first_position + u.n_positions
		AND a.position >= u.first_position)
	GROUP BY 1, 2, 4;
CREATE TEMP TABLE got_attempts AS SELECT request_id, attempt, last_attempt, layer, rows, choices, differing_choices
	FROM moe_attempts WHERE layer IS NOT NULL AND rows > 0;
SELECT 'attempts', (SELECT count(*) FROM want_attempts) > 8, (SELECT sum(differing) > 0 FROM want_attempts), (SELECT count(*)
	FROM (SELECT * FROM want_attempts EXCEPT SELECT * FROM got_attempts)), (SELECT count(*) FROM (SELECT * FROM got_attempts
	EXCEPT SELECT * FROM want_attempts));
SELECT 'attempts of all layers', (SELECT sum(rows) FROM moe_attempts WHERE layer IS NULL) = (SELECT sum(both_rows) FROM want_attempts);
