-- SPDX-License-Identifier: MIT
--
-- Two traces of one prompt, for instance by llama.cpp and by moetrace's own engine:
--
--   sqlite3 -box llama.db "ATTACH 'engine.db' AS other" ".read compare.sql"
--
-- compares the first request of each, position by position and layer by layer, over the prompt
-- (what is generated may part after the first other token). A row is a position and layer that
-- both files have. Rounding differs between engines, so near ties may fall the other way:
-- moved_gap is how far apart, in weight, experts were that changed places (largest);
-- first_replaced_rank is the best rank at which one file selected an expert that the other did
-- not, replaced_gap the difference of weight between that one and the one in its place.

CREATE TEMP TABLE n AS SELECT min(a.prompt_positions, b.prompt_positions) AS n
FROM main.request AS a, other.request AS b WHERE a.request_id = 1 AND b.request_id = 1;
CREATE TEMP TABLE a AS SELECT position, layer, topk_rank, expert, weight
FROM main.routed_expert, temp.n WHERE request_id = 1 AND position < n.n;
CREATE TEMP TABLE b AS SELECT position, layer, topk_rank, expert, weight
FROM other.routed_expert, temp.n WHERE request_id = 1 AND position < n.n;
CREATE INDEX temp.a_key ON a(position, layer, expert);
CREATE INDEX temp.b_key ON b(position, layer, expert);

CREATE TEMP TABLE pair AS
SELECT a.position, a.layer, a.topk_rank, a.expert, a.weight,
	b.topk_rank AS other_rank, b.weight AS other_weight
FROM temp.a AS a LEFT JOIN temp.b AS b USING (position, layer, expert)
WHERE EXISTS (SELECT 1 FROM temp.b AS c WHERE c.position = a.position AND c.layer = a.layer);

-- The experts that only the other file selected.
CREATE TEMP TABLE only_other AS
SELECT position, layer, max(weight) AS weight FROM temp.b AS b
WHERE NOT EXISTS (SELECT 1 FROM temp.a AS a
	WHERE a.position = b.position AND a.layer = b.layer AND a.expert = b.expert)
GROUP BY position, layer;

CREATE TEMP TABLE compared AS
SELECT p.position, p.layer,
	sum(p.topk_rank IS NOT p.other_rank) AS n_moved, -- of the selected, not at the same rank
	sum(p.other_rank IS NULL) AS n_replaced,         -- selected in one file alone
	min(CASE WHEN p.other_rank IS NULL THEN p.topk_rank END) AS first_replaced_rank,
	max(abs(p.weight - p.other_weight)) AS weight_change,
	max(CASE WHEN p.topk_rank IS NOT p.other_rank THEN p.weight END)
		- min(CASE WHEN p.topk_rank IS NOT p.other_rank THEN p.weight END) AS moved_gap,
	abs(max(CASE WHEN p.other_rank IS NULL THEN p.weight END) - max(o.weight)) AS replaced_gap
FROM temp.pair AS p LEFT JOIN temp.only_other AS o USING (position, layer)
GROUP BY p.position, p.layer;

CREATE TEMP VIEW summary AS
SELECT layer, count(*) AS n_rows,
	sum(n_moved = 0) AS same_order,
	sum(n_replaced = 0) AS same_set,
	sum(n_replaced) AS replaced,
	min(first_replaced_rank) AS first_replaced_rank,
	round(max(CASE WHEN n_replaced = 0 THEN moved_gap END), 5) AS moved_gap,
	round(max(replaced_gap), 5) AS replaced_gap,
	round(max(weight_change), 5) AS weight_change
FROM temp.compared GROUP BY layer;

SELECT * FROM temp.summary
UNION ALL
SELECT 'all', sum(n_rows), sum(same_order), sum(same_set), sum(replaced), min(first_replaced_rank),
	max(moved_gap), max(replaced_gap), max(weight_change)
FROM temp.summary;
