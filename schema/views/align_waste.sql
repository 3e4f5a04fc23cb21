-- SPDX-License-Identifier: MIT
--
-- What rounding up to whole blocks adds to the experts' products in each layer of each pass, where the
-- layer says its gemm_block_rows: routed experts, padding excluded. From pass_expert, with its cost; the
-- whole of a large file is for moe_rows.
CREATE VIEW align_waste AS
SELECT
	e.recording_id AS recording_id,       -- INTEGER recording
	e.model_id AS model_id,               -- INTEGER model
	e.pass_id AS pass_id,                 -- INTEGER pass
	e.layer_id AS layer_id,               -- INTEGER layer's key
	e.layer AS layer,                     -- INTEGER number of the layer in the model
	e.phase AS phase,                     -- TEXT phase of the pass
	l.gemm_block_rows AS gemm_block_rows, -- INTEGER rows of a block
	sum(e.rows) AS rows,                  -- INTEGER rows that experts received, a row once an expert
	count(*) AS active_experts,           -- INTEGER experts that received any
	sum((e.rows + l.gemm_block_rows - 1) / l.gemm_block_rows) AS blocks, -- INTEGER blocks
	sum((e.rows + l.gemm_block_rows - 1) / l.gemm_block_rows) * l.gemm_block_rows - sum(e.rows)
		AS padded_rows                -- INTEGER rows that rounding up adds
FROM pass_expert AS e
JOIN layer AS l ON l.layer_id = e.layer_id
WHERE l.gemm_block_rows > 0 AND e.kind = 'routed'
GROUP BY e.pass_id, e.layer_id;
