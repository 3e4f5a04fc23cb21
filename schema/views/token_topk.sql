-- SPDX-License-Identifier: MIT
--
-- A row for each stored row and layer (stored_topk), and one for each layer of each position
-- that a request reused, with the top-k that its source computed and pass_id NULL. A condition
-- on request_id costs two scans of pass_request and then only what that request touched.
-- The second part begins with the slices, so that they are not read once a link; LIMIT copies the
-- links, so that SQLite can index the copy and look them up.
CREATE VIEW token_topk AS
SELECT
	recording_id AS recording_id,   -- INTEGER recording
	model_id AS model_id,           -- INTEGER model
	request_id AS request_id,       -- INTEGER request; NULL: a row of no request
	attempt AS attempt,             -- INTEGER attempt; NULL: a row of no request
	position AS position,           -- INTEGER position in the request; NULL: a row of no request
	pass_id AS pass_id,             -- INTEGER pass; NULL: a reused position
	row AS row,                     -- INTEGER row in the pass; NULL: a reused position
	phase AS phase,                 -- TEXT the slice's own phase; NULL: a reused position
	layer_id AS layer_id,           -- INTEGER layer's key
	layer AS layer,                 -- INTEGER number of the layer in the model
	state AS state,                 -- TEXT 'computed', 'dummy', 'draft', 'unresolved', 'rejected' or 'reused'
	k AS k,                         -- INTEGER entries a row
	n_valid AS n_valid,             -- INTEGER entries in use
	id_bytes AS id_bytes,           -- INTEGER bytes an id
	topk_ids AS topk_ids,           -- BLOB expert ids, unsigned, little-endian
	weight_format AS weight_format, -- TEXT 'none', 'fp16' or 'bf16'
	topk_weights AS topk_weights,   -- BLOB weights; NULL: none
	margin AS margin,               -- BLOB f32: distance of the last expert's score from the best one left out; NULL: not told
	row_flags AS row_flags          -- INTEGER 1 NaN among the scores, 2 a tie at the cut; NULL: not told
FROM stored_topk
UNION ALL
SELECT s.recording_id, s.model_id, s.request_id, s.attempt,
	CASE
		WHEN s.positions IS NULL THEN s.first_position + (s.row - s.row_offset)
		ELSE (SELECT b0.value + b1.value * 256 + b2.value * 65536 + b3.value * 16777216
			FROM (SELECT substr(s.positions, 1 + 4 * (s.row - s.row_offset), 4) AS u32) AS e
			CROSS JOIN byte AS b0 ON b0.byte = substr(e.u32, 1, 1)
			CROSS JOIN byte AS b1 ON b1.byte = substr(e.u32, 2, 1)
			CROSS JOIN byte AS b2 ON b2.byte = substr(e.u32, 3, 1)
			CROSS JOIN byte AS b3 ON b3.byte = substr(e.u32, 4, 1))
		END AS source_position,
	NULL, NULL, NULL, s.layer_id, s.layer, 'reused',
	s.k,
	(SELECT CASE WHEN x.n_valid IS NULL THEN x.k
		ELSE (SELECT b.value FROM byte AS b WHERE b.byte = substr(x.n_valid, 1 + s.run_row, 1))
		END FROM topk AS x WHERE x.topk_id = s.topk_id),
	s.id_bytes,
	(SELECT substr(x.topk_ids, 1 + s.run_row * s.k * s.id_bytes, s.k * s.id_bytes)
		FROM topk AS x WHERE x.topk_id = s.topk_id),
	s.weight_format,
	(SELECT substr(x.topk_weights, 1 + s.run_row * s.k * 2, s.k * 2)
		FROM topk AS x WHERE x.topk_id = s.topk_id),
	(SELECT substr(x.margins, 1 + s.run_row * 4, 4)
		FROM topk AS x WHERE x.topk_id = s.topk_id),
	(SELECT b.value FROM topk AS x CROSS JOIN byte AS b
		ON b.byte = substr(x.row_flags, 1 + s.run_row, 1)
		WHERE x.topk_id = s.topk_id)
FROM (
	SELECT p.recording_id, p.model_id, pr.row_offset, pr.n_rows, pr.first_position, pr.positions,
		pr.phase, pr.accepted, rr.request_id, rr.attempt, rr.first_position AS reused_position,
		rr.n_positions AS n_reused, pl.layer_id, l.layer, t.topk_id, t.k, t.id_bytes,
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
	CROSS JOIN (SELECT * FROM request_reuse LIMIT -1) AS rr ON rr.source_request_id = pr.request_id
		AND rr.source_attempt = pr.attempt
	CROSS JOIN pass AS p ON p.pass_id = pr.pass_id
	CROSS JOIN model AS m ON m.model_id = p.model_id AND m.kind = 'target'
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
WHERE s.row BETWEEN s.row_offset AND s.row_offset + s.n_rows - 1
	AND s.phase <> 'draft'
	AND (s.phase <> 'verify' OR substr(s.accepted, 1 + s.row - s.row_offset, 1) = x'01')
	AND source_position BETWEEN s.reused_position AND s.reused_position + s.n_reused - 1;
