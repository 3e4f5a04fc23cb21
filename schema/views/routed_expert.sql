-- SPDX-License-Identifier: MIT
--
-- The experts of each stored row that belongs to a request, one row an expert, with the
-- weight decoded. Like token_topk it is meant for one request at a time; moe_topk reads
-- whole files.
-- fp16 is sign, 5 bits of exponent (bias 15), 10 of fraction; bf16 is sign, 8 bits of
-- exponent (bias 127), 7 of fraction; powers of two are shifts, in steps of at most 62.
CREATE VIEW routed_expert AS
WITH decoded AS (
	SELECT t.recording_id, t.model_id, t.request_id, t.attempt, t.position, t.pass_id, t.row,
		t.phase, t.layer_id, t.layer, t.state, r.value AS topk_rank,
		CASE t.id_bytes
		WHEN 1 THEN (SELECT value FROM byte WHERE byte = substr(t.topk_ids, r.value + 1, 1))
		ELSE (SELECT lo.value + 256 * hi.value FROM byte AS lo, byte AS hi
			WHERE lo.byte = substr(t.topk_ids, 2 * r.value + 1, 1)
			AND hi.byte = substr(t.topk_ids, 2 * r.value + 2, 1)) END AS expert,
		t.weight_format,
		(SELECT lo.value + 256 * hi.value FROM byte AS lo, byte AS hi
			WHERE lo.byte = substr(t.topk_weights, 2 * r.value + 1, 1)
			AND hi.byte = substr(t.topk_weights, 2 * r.value + 2, 1)) AS bits
	FROM token_topk AS t JOIN byte AS r ON r.value < t.n_valid
	WHERE t.request_id IS NOT NULL
)
SELECT
	d.recording_id AS recording_id, -- INTEGER recording
	d.model_id AS model_id,         -- INTEGER model
	d.request_id AS request_id,     -- INTEGER request
	d.attempt AS attempt,           -- INTEGER attempt
	d.position AS position,         -- INTEGER position in the request
	d.pass_id AS pass_id,           -- INTEGER pass
	d.row AS row,                   -- INTEGER row in the pass
	d.phase AS phase,               -- TEXT the slice's own phase
	d.layer_id AS layer_id,         -- INTEGER layer's key
	d.layer AS layer,               -- INTEGER number of the layer in the model
	d.state AS state,               -- TEXT as in token_topk
	d.topk_rank AS topk_rank,       -- INTEGER place in the row's top-k
	d.expert AS expert,             -- INTEGER logical expert id
	CASE d.weight_format
	WHEN 'fp16' THEN
		CASE WHEN (d.bits >> 10) & 31 = 31 THEN NULL ELSE
		(1 - 2 * (d.bits >> 15))
		* ((d.bits & 1023) + CASE WHEN (d.bits >> 10) & 31 = 0 THEN 0 ELSE 1024 END)
		* (1 << max((d.bits >> 10) & 31, 1)) / 33554432.0 END
	WHEN 'bf16' THEN
		CASE WHEN (d.bits >> 7) & 255 = 255 THEN NULL ELSE
		1.0 * (1 - 2 * (d.bits >> 15))
		* ((d.bits & 127) + CASE WHEN (d.bits >> 7) & 255 = 0 THEN 0 ELSE 128 END)
		* (1 << min(62, max(((d.bits >> 7) & 255) - 134, 0)))
		* (1 << max(((d.bits >> 7) & 255) - 134 - 62, 0))
		/ (1 << min(62, max(134 - max((d.bits >> 7) & 255, 1), 0)))
		/ (1 << min(62, max(134 - max((d.bits >> 7) & 255, 1) - 62, 0)))
		/ (1 << max(134 - max((d.bits >> 7) & 255, 1) - 124, 0)) END
	END AS weight                   -- REAL routing weight as passed; NULL: not recorded, infinite or not a number
FROM decoded AS d;
