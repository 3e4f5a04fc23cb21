-- SPDX-License-Identifier: MIT
--
-- A row for each stored row and layer: which request and position it computes, and its
-- top-k as blobs. token_topk adds the positions that requests reused, routed_expert has the
-- top-k decoded. A condition on request_id costs one
-- scan of pass_request and then only what that request touched; pass_id and layer_id are
-- index searches; the whole of a large file is for moe_topk.
-- hi, mid and lo count the candidate rows of a slice and layer: without a row map they are
-- the slice's own rows, with one (mapped is 1) they are all rows of the layer, of which those
-- are kept whose entry lies in the slice. CROSS JOIN is a join whose order the planner keeps.
-- The subquery s only gives names to expressions: SQLite puts them where the names are used.
-- Blobs of topk are fetched by key where they are used, because GROUP BY and window functions
-- carry every column that an expression names through their sorter, whole blobs included.
CREATE VIEW stored_topk AS
SELECT
	s.recording_id AS recording_id,   -- INTEGER recording
	s.model_id AS model_id,           -- INTEGER model
	s.request_id AS request_id,       -- INTEGER request; NULL: a row of no request
	s.attempt AS attempt,             -- INTEGER attempt; NULL: a row of no request
	CASE WHEN s.request_id IS NULL THEN NULL
		WHEN s.positions IS NULL THEN s.first_position + (s.row - s.row_offset)
		ELSE (SELECT b0.value + b1.value * 256 + b2.value * 65536 + b3.value * 16777216
			FROM (SELECT substr(s.positions, 1 + 4 * (s.row - s.row_offset), 4) AS u32) AS e
			CROSS JOIN byte AS b0 ON b0.byte = substr(e.u32, 1, 1)
			CROSS JOIN byte AS b1 ON b1.byte = substr(e.u32, 2, 1)
			CROSS JOIN byte AS b2 ON b2.byte = substr(e.u32, 3, 1)
			CROSS JOIN byte AS b3 ON b3.byte = substr(e.u32, 4, 1))
		END AS position,          -- INTEGER position in the request; NULL: a row of no request
	s.pass_id AS pass_id,             -- INTEGER pass
	s.row AS row,                     -- INTEGER row in the pass
	s.phase AS phase,                 -- TEXT the slice's own phase
	s.layer_id AS layer_id,           -- INTEGER layer's key
	s.layer AS layer,                 -- INTEGER number of the layer in the model
	CASE WHEN s.request_id IS NULL THEN 'dummy' WHEN s.phase = 'draft' THEN 'draft'
		WHEN s.phase <> 'verify' THEN 'computed'
		WHEN s.accepted IS NULL THEN 'unresolved'
		WHEN substr(s.accepted, 1 + s.row - s.row_offset, 1) = x'01' THEN 'computed'
		ELSE 'rejected' END AS state, -- TEXT 'computed', 'dummy', 'draft', 'unresolved' or 'rejected'
	s.k AS k,                         -- INTEGER entries a row
	(SELECT CASE WHEN x.n_valid IS NULL THEN x.k
		ELSE (SELECT b.value FROM byte AS b WHERE b.byte = substr(x.n_valid, 1 + s.run_row, 1))
		END FROM topk AS x WHERE x.topk_id = s.topk_id) AS n_valid, -- INTEGER entries in use
	s.id_bytes AS id_bytes,           -- INTEGER bytes an id
	(SELECT substr(x.topk_ids, 1 + s.run_row * s.k * s.id_bytes, s.k * s.id_bytes)
		FROM topk AS x WHERE x.topk_id = s.topk_id) AS topk_ids, -- BLOB expert ids, unsigned, little-endian
	s.weight_format AS weight_format, -- TEXT 'none', 'fp16' or 'bf16'
	(SELECT substr(x.topk_weights, 1 + s.run_row * s.k * 2, s.k * 2)
		FROM topk AS x WHERE x.topk_id = s.topk_id) AS topk_weights, -- BLOB weights; NULL: none
	(SELECT substr(x.margins, 1 + s.run_row * 4, 4)
		FROM topk AS x WHERE x.topk_id = s.topk_id) AS margin, -- BLOB f32: distance of the last expert's score from the best one left out; NULL: not told
	(SELECT b.value FROM topk AS x CROSS JOIN byte AS b
		ON b.byte = substr(x.row_flags, 1 + s.run_row, 1)
		WHERE x.topk_id = s.topk_id) AS row_flags -- INTEGER 1 NaN among the scores, 2 a tie at the cut; NULL: not told
FROM (
	SELECT p.recording_id, p.model_id, pr.*, pl.layer_id, l.layer, t.topk_id, t.k, t.id_bytes,
		t.weight_format,
		pl.topk_row + iif(mapped.value, 0, pr.row_offset)
			+ hi.value * 65536 + mid.value * 256 + lo.value AS run_row,
		CASE mapped.value
			WHEN 0 THEN pr.row_offset + hi.value * 65536 + mid.value * 256 + lo.value
			ELSE (SELECT b0.value + b1.value * 256 + b2.value * 65536 + b3.value * 16777216
				FROM (SELECT (SELECT substr(x.row_map, 1 + 4 * (pl.topk_row
					+ hi.value * 65536 + mid.value * 256 + lo.value), 4)
					FROM topk AS x WHERE x.topk_id = pl.topk_id) AS u32) AS e
				CROSS JOIN byte AS b0 ON b0.byte = substr(e.u32, 1, 1)
				CROSS JOIN byte AS b1 ON b1.byte = substr(e.u32, 2, 1)
				CROSS JOIN byte AS b2 ON b2.byte = substr(e.u32, 3, 1)
				CROSS JOIN byte AS b3 ON b3.byte = substr(e.u32, 4, 1))
			END AS row
	FROM pass_request AS pr
	CROSS JOIN pass AS p ON p.pass_id = pr.pass_id
	CROSS JOIN pass_layer AS pl ON pl.pass_id = pr.pass_id AND pl.state = 0
	CROSS JOIN layer AS l ON l.layer_id = pl.layer_id
	CROSS JOIN topk AS t ON t.topk_id = pl.topk_id
	CROSS JOIN byte AS mapped ON mapped.value = (t.row_map IS NOT NULL)
	CROSS JOIN byte AS hi ON hi.value <= (iif(mapped.value, pl.n_rows,
		min(pr.n_rows, pl.n_rows - pr.row_offset)) - 1) / 65536
	CROSS JOIN byte AS mid ON mid.value <= (iif(mapped.value, pl.n_rows,
		min(pr.n_rows, pl.n_rows - pr.row_offset)) - 1 - hi.value * 65536) / 256
	CROSS JOIN byte AS lo ON lo.value < iif(mapped.value, pl.n_rows,
		min(pr.n_rows, pl.n_rows - pr.row_offset)) - hi.value * 65536 - mid.value * 256
) AS s
WHERE s.row BETWEEN s.row_offset AND s.row_offset + s.n_rows - 1;
