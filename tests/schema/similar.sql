-- SPDX-License-Identifier: MIT
--
-- What moe_similarity and moe_outliers have to say of a trace of make_pairs, from its table `expected`.

CREATE TEMP TABLE loads AS SELECT e.request_id, e.layer, e.expert, count(*) AS n FROM expected AS e JOIN request AS q USING
	(request_id) JOIN layer AS l USING (layer_id) WHERE e.state = 'computed' AND e.attempt = q.n_attempts - 1
	AND expert < n_experts + n_zero_experts GROUP BY 1, 2, 3;
CREATE TEMP TABLE sums AS SELECT request_id, layer, sum(n) AS n FROM loads GROUP BY 1, 2;
CREATE TEMP TABLE own_rows AS SELECT request_id, count(*) AS n FROM (SELECT DISTINCT e.request_id, e.position, e.layer FROM
	expected AS e JOIN request AS q USING (request_id) WHERE e.state = 'computed' AND e.attempt = q.n_attempts - 1) GROUP BY 1;

-- Every pair of the first twelve requests.
CREATE TEMP TABLE cells AS SELECT a.request_id AS ra, b.request_id AS rb, c.layer, c.expert,
	coalesce((SELECT n FROM loads AS x WHERE x.request_id = a.request_id AND x.layer = c.layer AND x.expert = c.expert), 0) AS na,
	coalesce((SELECT n FROM loads AS x WHERE x.request_id = b.request_id AND x.layer = c.layer AND x.expert = c.expert), 0) AS nb
	FROM request AS a JOIN request AS b ON a.request_id < b.request_id AND b.request_id < 9
	JOIN (SELECT DISTINCT layer, expert FROM loads) AS c;
CREATE TEMP TABLE want AS SELECT ra, rb, layer, total_a, total_b, round(sum(min(1.0 * na / total_a, 1.0 * nb / total_b)), 9) AS overlap,
	round(1.0 * sum(na AND nb) / sum(na OR nb), 9) AS jaccard, round(sum(na * nb) / sqrt(1.0 * sum(na * na) * sum(nb * nb)), 9)
	AS cosine FROM cells JOIN (SELECT request_id AS ra, layer, n AS total_a FROM sums) USING (ra, layer)
	JOIN (SELECT request_id AS rb, layer, n AS total_b FROM sums) USING (rb, layer) GROUP BY ra, rb, layer;
CREATE TEMP TABLE got AS SELECT ra, rb, s.layer, choices_a, choices_b, round(overlap, 9), round(jaccard, 9), round(cosine, 9)
	FROM (SELECT DISTINCT ra, rb FROM want) CROSS JOIN moe_similarity(ra, rb) AS s WHERE s.layer IS NOT NULL;
SELECT 'similarity', (SELECT count(*) FROM want) > 50, (SELECT count(*) FROM (SELECT * FROM want EXCEPT SELECT * FROM got)),
	(SELECT count(*) FROM (SELECT * FROM got EXCEPT SELECT * FROM want));
SELECT 'its mean', abs((SELECT overlap FROM moe_similarity(1, 2) WHERE layer IS NULL) - (SELECT avg(overlap) FROM
	moe_similarity(1, 2) WHERE layer)) < 1e-12;
SELECT 'either way', (SELECT count(*) FROM (SELECT layer, overlap, round(chance_overlap, 12), jaccard FROM moe_similarity(3, 4)
	EXCEPT SELECT layer, overlap, round(chance_overlap, 12), jaccard FROM moe_similarity(4, 3)));

-- Distances from all others, and the floor of the shortest request by the binomial distribution itself.
CREATE TEMP TABLE others AS SELECT s.request_id, s.layer, c.expert, s.n AS own, coalesce(l.n, 0) AS n,
	1.0 * (c.n - coalesce(l.n, 0)) / (t.n - s.n) AS p FROM sums AS s JOIN (SELECT layer, sum(n) AS n FROM sums GROUP BY 1) AS t
	USING (layer) JOIN (SELECT layer, expert, sum(n) AS n FROM loads GROUP BY 1, 2) AS c USING (layer)
	LEFT JOIN loads AS l ON l.request_id = s.request_id AND l.layer = s.layer AND l.expert = c.expert;
CREATE TEMP TABLE distances AS SELECT request_id, sum(own * d) / sum(own) AS distance, sum(own) AS choices FROM
	(SELECT request_id, layer, own, 0.5 * sum(abs(1.0 * n / own - p)) AS d FROM others GROUP BY 1, 2) GROUP BY 1;
SELECT 'distances', count(*) > 30, sum(abs(d.distance - o.distance) > 1e-9), sum(d.choices <> o.choices), sum(o.rows <> r.n),
	sum(abs(o.excess - (o.distance - o.floor)) > 1e-12) FROM distances AS d JOIN moe_outliers AS o USING (request_id)
	JOIN own_rows AS r USING (request_id);
CREATE TEMP TABLE short AS SELECT * FROM others WHERE request_id = (SELECT request_id FROM distances ORDER BY choices LIMIT 1);
WITH RECURSIVE draw(layer, own, p, k, chance, sum) AS (SELECT layer, own, p, 0, pow(1 - p, own), pow(1 - p, own) * p FROM short
	WHERE p > 0 UNION ALL SELECT layer, own, p, k + 1, chance * (own - k) / (k + 1) * p / (1 - p), sum + chance * (own - k)
	/ (k + 1) * p / (1 - p) * abs((k + 1.0) / own - p) FROM draw WHERE k < own)
	SELECT 'the floor', abs((SELECT sum(own * m) / (SELECT choices FROM distances WHERE request_id = (SELECT request_id FROM short))
	FROM (SELECT layer, own, 0.5 * sum(sum) AS m FROM draw WHERE k = own GROUP BY layer)) - (SELECT floor FROM moe_outliers
	WHERE request_id = (SELECT request_id FROM short))) < 1e-9;
SELECT 'scores', (SELECT count(*) FROM moe_outliers WHERE score > 0) = (SELECT count(*) FROM moe_outliers WHERE score < 0),
	(SELECT count(*) FROM moe_outliers AS a JOIN moe_outliers AS b WHERE a.excess > b.excess AND a.score < b.score);
