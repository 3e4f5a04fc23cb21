-- SPDX-License-Identifier: MIT
--
-- A row for each stored row and layer: which request and position it computes, and its
-- top-k as blobs (routed_expert has them decoded). Ask for one request at a time
-- (WHERE request_id = ...): the whole of a large file is for moe_topk.
-- A layer without a row map holds the pass's rows 0, 1, ...: the first branch finds the
-- rows of a slice directly; the second looks through the row map.
CREATE VIEW token_topk AS
WITH number AS (
	SELECT hi.value * 65536 + mid.value * 256 + lo.value AS n, hi.value AS hi,
		mid.value AS mid FROM byte AS hi, byte AS mid, byte AS lo
)
SELECT
	p.recording_id AS recording_id,   -- INTEGER recording
	p.model_id AS model_id,           -- INTEGER model
	pr.request_id AS request_id,      -- INTEGER request; NULL: a row of no request
	pr.attempt AS attempt,            -- INTEGER attempt; NULL: a row of no request
	CASE WHEN pr.request_id IS NULL THEN NULL
		WHEN pr.positions IS NULL THEN pr.first_position + row.n
		ELSE (SELECT b0.value + b1.value * 256 + b2.value * 65536 + b3.value * 16777216
			FROM byte AS b0, byte AS b1, byte AS b2, byte AS b3
			WHERE b0.byte = substr(pr.positions, row.n * 4 + 1, 1)
			AND b1.byte = substr(pr.positions, row.n * 4 + 2, 1)
			AND b2.byte = substr(pr.positions, row.n * 4 + 3, 1)
			AND b3.byte = substr(pr.positions, row.n * 4 + 4, 1))
		END AS position,          -- INTEGER position in the request; NULL: a row of no request
	p.pass_id AS pass_id,             -- INTEGER pass
	pr.row_offset + row.n AS row,     -- INTEGER row in the pass
	pr.phase AS phase,                -- TEXT the slice's own phase
	l.layer_id AS layer_id,           -- INTEGER layer's key
	l.layer AS layer,                 -- INTEGER number of the layer in the model
	CASE WHEN pr.request_id IS NULL THEN 'dummy' WHEN pr.phase = 'draft' THEN 'draft'
		WHEN pr.phase <> 'verify' THEN 'computed'
		WHEN pr.accepted IS NULL THEN 'unresolved'
		WHEN substr(pr.accepted, row.n + 1, 1) = x'00' THEN 'rejected'
		ELSE 'computed' END AS state, -- TEXT 'computed', 'dummy', 'draft', 'unresolved' or 'rejected'
	t.k AS k,                         -- INTEGER entries a row
	CASE WHEN t.n_valid IS NULL THEN t.k ELSE (SELECT value FROM byte
		WHERE byte = substr(t.n_valid, pl.topk_row + pr.row_offset + row.n + 1, 1))
		END AS n_valid,           -- INTEGER entries in use
	t.id_bytes AS id_bytes,           -- INTEGER bytes an id
	substr(t.topk_ids, (pl.topk_row + pr.row_offset + row.n) * t.k * t.id_bytes + 1,
		t.k * t.id_bytes) AS topk_ids, -- BLOB expert ids, unsigned, little-endian
	t.weight_format AS weight_format, -- TEXT 'none', 'fp16' or 'bf16'
	substr(t.topk_weights, (pl.topk_row + pr.row_offset + row.n) * t.k * 2 + 1,
		t.k * 2) AS topk_weights  -- BLOB weights; NULL: none
FROM pass_request AS pr
JOIN pass AS p ON p.pass_id = pr.pass_id
JOIN pass_layer AS pl ON pl.pass_id = pr.pass_id
JOIN layer AS l ON l.layer_id = pl.layer_id
JOIN topk AS t ON t.topk_id = pl.topk_id
JOIN number AS row ON row.n < pr.n_rows AND row.hi <= (pr.n_rows - 1) / 65536
	AND row.mid <= (pr.n_rows - 1) / 256
WHERE pl.state = 0 AND t.row_map IS NULL
UNION ALL
SELECT
	p.recording_id, p.model_id, pr.request_id, pr.attempt,
	CASE WHEN pr.request_id IS NULL THEN NULL
		WHEN pr.positions IS NULL THEN pr.first_position + (pl.row - pr.row_offset)
		ELSE (SELECT b0.value + b1.value * 256 + b2.value * 65536 + b3.value * 16777216
			FROM byte AS b0, byte AS b1, byte AS b2, byte AS b3
			WHERE b0.byte = substr(pr.positions, (pl.row - pr.row_offset) * 4 + 1, 1)
			AND b1.byte = substr(pr.positions, (pl.row - pr.row_offset) * 4 + 2, 1)
			AND b2.byte = substr(pr.positions, (pl.row - pr.row_offset) * 4 + 3, 1)
			AND b3.byte = substr(pr.positions, (pl.row - pr.row_offset) * 4 + 4, 1))
		END,
	p.pass_id, pl.row, pr.phase, l.layer_id, l.layer,
	CASE WHEN pr.request_id IS NULL THEN 'dummy' WHEN pr.phase = 'draft' THEN 'draft'
		WHEN pr.phase <> 'verify' THEN 'computed'
		WHEN pr.accepted IS NULL THEN 'unresolved'
		WHEN substr(pr.accepted, pl.row - pr.row_offset + 1, 1) = x'00' THEN 'rejected'
		ELSE 'computed' END,
	pl.k,
	CASE WHEN pl.n_valid IS NULL THEN pl.k ELSE (SELECT value FROM byte
		WHERE byte = substr(pl.n_valid, pl.stored_row + 1, 1)) END,
	pl.id_bytes,
	substr(pl.topk_ids, pl.stored_row * pl.k * pl.id_bytes + 1, pl.k * pl.id_bytes),
	pl.weight_format,
	substr(pl.topk_weights, pl.stored_row * pl.k * 2 + 1, pl.k * 2)
FROM (
	SELECT l.pass_id, l.layer_id, t.k, t.id_bytes, t.weight_format, t.topk_ids,
		t.topk_weights, t.n_valid, l.topk_row + j.n AS stored_row,
		(SELECT b0.value + b1.value * 256 + b2.value * 65536 + b3.value * 16777216
			FROM byte AS b0, byte AS b1, byte AS b2, byte AS b3
			WHERE b0.byte = substr(t.row_map, (l.topk_row + j.n) * 4 + 1, 1)
			AND b1.byte = substr(t.row_map, (l.topk_row + j.n) * 4 + 2, 1)
			AND b2.byte = substr(t.row_map, (l.topk_row + j.n) * 4 + 3, 1)
			AND b3.byte = substr(t.row_map, (l.topk_row + j.n) * 4 + 4, 1)) AS row
	FROM pass_layer AS l
	JOIN topk AS t ON t.topk_id = l.topk_id
	JOIN number AS j ON j.n < l.n_rows AND j.hi <= (l.n_rows - 1) / 65536
		AND j.mid <= (l.n_rows - 1) / 256
	WHERE l.state = 0 AND t.row_map IS NOT NULL
) AS pl
JOIN pass AS p ON p.pass_id = pl.pass_id
JOIN layer AS l ON l.layer_id = pl.layer_id
JOIN pass_request AS pr ON pr.pass_id = pl.pass_id
	AND pl.row >= pr.row_offset AND pl.row < pr.row_offset + pr.n_rows;
