-- SPDX-License-Identifier: MIT
--
-- What rounding up to whole blocks adds to the experts' products in each layer of each pass, where the
-- layer says its gemm_block_rows: routed experts, padding excluded. From the stored ids, or from
-- layer_load where counts alone were kept; layers of which neither is known have no row. A condition on
-- pass_id reads only what it names; the whole of a large file is for moe_rows.
CREATE VIEW align_waste AS
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
),
per_expert AS (
	SELECT pass_id, layer_id, expert, sum(n) AS n FROM load GROUP BY pass_id, layer_id, expert
)
SELECT
	p.recording_id AS recording_id,       -- INTEGER recording
	p.model_id AS model_id,               -- INTEGER model
	e.pass_id AS pass_id,                 -- INTEGER pass
	e.layer_id AS layer_id,               -- INTEGER layer's key
	l.layer AS layer,                     -- INTEGER number of the layer in the model
	p.phase AS phase,                     -- TEXT phase of the pass
	l.gemm_block_rows AS gemm_block_rows, -- INTEGER rows of a block
	sum(e.n) AS rows,                     -- INTEGER rows that experts received, a row once an expert
	count(*) AS active_experts,           -- INTEGER experts that received any
	sum((e.n + l.gemm_block_rows - 1) / l.gemm_block_rows) AS blocks, -- INTEGER blocks
	sum((e.n + l.gemm_block_rows - 1) / l.gemm_block_rows) * l.gemm_block_rows - sum(e.n)
		AS padded_rows                -- INTEGER rows that rounding up adds
FROM per_expert AS e
JOIN layer AS l ON l.layer_id = e.layer_id AND e.expert < l.n_experts
JOIN pass AS p ON p.pass_id = e.pass_id
WHERE l.gemm_block_rows > 0 AND e.n > 0
GROUP BY e.pass_id, e.layer_id;
