-- SPDX-License-Identifier: MIT
--
-- The experts of each stored row that belongs to a request, one row an expert, with the
-- weight decoded; state says which rows the request relies on ('computed'). Positions that a
-- request reused are not here: they are rows of the request that computed them. Conditions cost
-- what they cost in stored_topk; moe_topk reads whole files faster.
-- fp16 is sign, 5 bits of exponent (bias 15), 10 of fraction; bf16 is sign, 8 bits of
-- exponent (bias 127), 7 of fraction. Powers of two are shifts, in steps of at most 62,
-- and every step is exact.
CREATE VIEW routed_expert AS
SELECT
	t.recording_id AS recording_id, -- INTEGER recording
	t.model_id AS model_id,         -- INTEGER model
	t.request_id AS request_id,     -- INTEGER request
	t.attempt AS attempt,           -- INTEGER attempt
	t.position AS position,         -- INTEGER position in the request
	t.pass_id AS pass_id,           -- INTEGER pass
	t.row AS row,                   -- INTEGER row in the pass
	t.phase AS phase,               -- TEXT the slice's own phase
	t.layer_id AS layer_id,         -- INTEGER layer's key
	t.layer AS layer,               -- INTEGER number of the layer in the model
	t.state AS state,               -- TEXT as in stored_topk
	r.value AS topk_rank,           -- INTEGER place in the row's top-k
	CASE t.id_bytes
		WHEN 1 THEN (SELECT b.value FROM byte AS b
			WHERE b.byte = substr(t.topk_ids, 1 + r.value, 1))
		ELSE (SELECT b0.value + 256 * b1.value
			FROM (SELECT substr(t.topk_ids, 1 + 2 * r.value, 2) AS u16) AS e
			CROSS JOIN byte AS b0 ON b0.byte = substr(e.u16, 1, 1)
			CROSS JOIN byte AS b1 ON b1.byte = substr(e.u16, 2, 1))
		END AS expert,          -- INTEGER logical expert id
	(SELECT CASE t.weight_format
		WHEN 'fp16' THEN CASE WHEN (w1.value >> 2) & 31 < 31 THEN
			iif(w1.value < 128, 1, -1)
			* ((w1.value & 3) * 256 + w0.value + iif(w1.value & 124, 1024, 0))
			* (1 << max((w1.value >> 2) & 31, 1)) / 33554432.0 END
		WHEN 'bf16' THEN CASE WHEN (w1.value & 127) * 2 + (w0.value >> 7) < 255 THEN
			iif(w1.value < 128, 1.0, -1.0)
			* ((w0.value & 127) + iif(w1.value & 127 OR w0.value > 127, 128, 0))
			* (1 << min(62, max(0, (w1.value & 127) * 2 + (w0.value >> 7) - 134)))
			* (1 << max(0, (w1.value & 127) * 2 + (w0.value >> 7) - 134 - 62))
			/ (1 << min(62, max(0, 134 - max(1, (w1.value & 127) * 2 + (w0.value >> 7)))))
			/ (1 << min(62, max(0, 134 - 62 - max(1, (w1.value & 127) * 2 + (w0.value >> 7)))))
			/ (1 << max(0, 134 - 124 - max(1, (w1.value & 127) * 2 + (w0.value >> 7)))) END
		END
		FROM (SELECT substr(t.topk_weights, 1 + 2 * r.value, 2) AS u16) AS e
		CROSS JOIN byte AS w0 ON w0.byte = substr(e.u16, 1, 1)
		CROSS JOIN byte AS w1 ON w1.byte = substr(e.u16, 2, 1)
		) AS weight             -- REAL routing weight as passed; NULL: not recorded, infinite or not a number
FROM stored_topk AS t
CROSS JOIN byte AS r ON r.value < t.n_valid
WHERE t.request_id IS NOT NULL;
