-- SPDX-License-Identifier: MIT
--
-- How many rows each expert got in each layer of each pass, padding excluded; experts without a row are
-- left out. From the stored ids, or from layer_load where counts alone were kept; layers of which
-- neither is known have no row. A condition on pass_id reads only what it names; the whole of a large
-- file is for the functions.
CREATE VIEW pass_expert AS
WITH load AS (
	SELECT pl.pass_id, pl.layer_id, CASE t.id_bytes
		WHEN 1 THEN (SELECT b.value FROM byte AS b WHERE b.byte =
			substr(t.topk_ids, 1 + (pl.topk_row + hi.value * 65536 + mid.value * 256 + lo.value) * t.k
			+ r.value, 1))
		ELSE (SELECT b0.value + 256 * b1.value FROM (SELECT substr(t.topk_ids, 1 + 2 * ((pl.topk_row
			+ hi.value * 65536 + mid.value * 256 + lo.value) * t.k + r.value), 2) AS u16) AS e
			CROSS JOIN byte AS b0 ON b0.byte = substr(e.u16, 1, 1)
			CROSS JOIN byte AS b1 ON b1.byte = substr(e.u16, 2, 1))
		END AS expert, 1 AS n
	FROM pass_layer AS pl
	CROSS JOIN topk AS t ON t.topk_id = pl.topk_id
	CROSS JOIN byte AS hi ON hi.value <= (pl.n_rows - 1) / 65536
	CROSS JOIN byte AS mid ON mid.value <= (pl.n_rows - 1 - hi.value * 65536) / 256
	CROSS JOIN byte AS lo ON lo.value < pl.n_rows - hi.value * 65536 - mid.value * 256
	CROSS JOIN byte AS r ON r.value < CASE WHEN t.n_valid IS NULL THEN t.k
		ELSE (SELECT b.value FROM byte AS b WHERE b.byte = substr(t.n_valid, 1 + pl.topk_row
			+ hi.value * 65536 + mid.value * 256 + lo.value, 1)) END
	WHERE pl.state = 0
	UNION ALL
	SELECT pl.pass_id, pl.layer_id, hi.value * 256 + lo.value,
		(SELECT b.value FROM byte AS b WHERE b.byte = substr(d.counts, 1 + (hi.value * 256 + lo.value)
			* d.count_bytes, 1))
		+ CASE WHEN d.count_bytes < 2 THEN 0 ELSE (SELECT b.value FROM byte AS b
			WHERE b.byte = substr(d.counts, 2 + (hi.value * 256 + lo.value) * d.count_bytes, 1)) END * 256
		+ CASE WHEN d.count_bytes < 4 THEN 0 ELSE (SELECT b0.value + b1.value * 256 FROM (SELECT
			substr(d.counts, 3 + (hi.value * 256 + lo.value) * 4, 2) AS u16) AS e
			CROSS JOIN byte AS b0 ON b0.byte = substr(e.u16, 1, 1)
			CROSS JOIN byte AS b1 ON b1.byte = substr(e.u16, 2, 1)) END * 65536
	FROM pass_layer AS pl
	CROSS JOIN layer AS l ON l.layer_id = pl.layer_id
	CROSS JOIN layer_load AS d ON d.pass_id = pl.pass_id AND d.layer_id = pl.layer_id
	CROSS JOIN byte AS hi ON hi.value <= (l.n_experts - 1) / 256
	CROSS JOIN byte AS lo ON lo.value < l.n_experts - hi.value * 256
	WHERE pl.state = 3
)
SELECT
	p.recording_id AS recording_id, -- INTEGER recording
	p.model_id AS model_id,         -- INTEGER model
	e.pass_id AS pass_id,           -- INTEGER pass
	e.layer_id AS layer_id,         -- INTEGER layer's key
	l.layer AS layer,               -- INTEGER number of the layer in the model
	p.phase AS phase,               -- TEXT phase of the pass
	e.expert AS expert,             -- INTEGER logical expert id
	CASE WHEN e.expert < l.n_experts THEN 'routed'
		WHEN e.expert < l.n_experts + l.n_zero_experts THEN 'zero'
		ELSE 'shared' END AS kind, -- TEXT 'routed', 'zero' or 'shared'
	sum(e.n) AS rows                -- INTEGER rows that selected it
FROM load AS e
JOIN layer AS l ON l.layer_id = e.layer_id
JOIN pass AS p ON p.pass_id = e.pass_id
WHERE e.n > 0
GROUP BY e.pass_id, e.layer_id, e.expert;
