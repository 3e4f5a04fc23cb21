-- SPDX-License-Identifier: MIT
--
-- What the rules of a recording did, from the router's own choice recorded beside theirs: by rule,
-- layer and phase of the pass. A batch is a layer of a pass. Rows without that choice are in no
-- figure but n_batches. For whole files moe_rule says the same faster.
CREATE VIEW rule_effect AS
WITH batch AS (
	SELECT p.recording_id, p.model_id, p.phase, pl.pass_id, pl.layer_id, l.layer, l.n_experts,
		pl.n_rows, pl.topk_row, pl.active_experts, t.topk_id, t.rule_id, t.k, t.base_k, t.id_bytes
	FROM pass AS p JOIN pass_layer AS pl ON pl.pass_id = p.pass_id AND pl.state = 0
	JOIN layer AS l ON l.layer_id = pl.layer_id
	JOIN topk AS t ON t.topk_id = pl.topk_id AND t.rule_id IS NOT NULL
	WHERE pl.n_rows > 0
),
choice AS (
	SELECT b.*, substr(t.topk_ids, 1 + (b.topk_row + hi.value * 256 + lo.value) * b.k * b.id_bytes, b.k * b.id_bytes) AS ids,
		substr(t.base_ids, 1 + (b.topk_row + hi.value * 256 + lo.value) * b.base_k * b.id_bytes,
			b.base_k * b.id_bytes) AS base,
		CASE WHEN t.n_valid IS NULL THEN b.k ELSE (SELECT v.value FROM byte AS v
			WHERE v.byte = substr(t.n_valid, 1 + b.topk_row + hi.value * 256 + lo.value, 1)) END AS n_valid
	FROM batch AS b JOIN topk AS t ON t.topk_id = b.topk_id
	JOIN byte AS hi ON hi.value <= (b.n_rows - 1) / 256
	JOIN byte AS lo ON lo.value < b.n_rows - hi.value * 256
	WHERE b.base_k IS NOT NULL
),
compared AS (
	SELECT c.pass_id, c.layer_id, c.n_valid, c.base_k, (SELECT count(*) FROM byte AS j WHERE j.value < c.n_valid
		AND NOT EXISTS (SELECT 1 FROM byte AS i WHERE i.value < c.base_k
			AND substr(c.base, 1 + i.value * c.id_bytes, c.id_bytes)
				= substr(c.ids, 1 + j.value * c.id_bytes, c.id_bytes))) AS n_new
	FROM choice AS c
),
per_batch AS (
	SELECT pass_id, layer_id, count(*) AS n_rows, sum(n_new > 0 OR n_valid <> base_k) AS changed_rows,
		sum(n_new) AS swapped_entries
	FROM compared GROUP BY pass_id, layer_id
),
before AS (
	SELECT pass_id, layer_id, count(DISTINCT expert) AS active_experts
	FROM (
		SELECT c.pass_id, c.layer_id, c.n_experts, (SELECT b0.value + CASE c.id_bytes WHEN 1 THEN 0
			ELSE 256 * (SELECT b1.value FROM byte AS b1 WHERE b1.byte = substr(c.base, 2 + j.value * 2, 1)) END
			FROM byte AS b0 WHERE b0.byte = substr(c.base, 1 + j.value * c.id_bytes, 1)) AS expert
		FROM choice AS c JOIN byte AS j ON j.value < c.base_k
	) WHERE expert < n_experts GROUP BY pass_id, layer_id
)
SELECT
	b.recording_id AS recording_id, -- INTEGER recording
	b.model_id AS model_id,         -- INTEGER model
	b.layer_id AS layer_id,         -- INTEGER layer's key
	b.layer AS layer,               -- INTEGER number of the layer in the model
	b.phase AS phase,               -- TEXT phase of the passes
	b.rule_id AS rule_id,           -- INTEGER rule
	(SELECT r.name FROM rule AS r WHERE r.rule_id = b.rule_id) AS rule, -- TEXT its name
	count(*) AS n_batches,          -- INTEGER batches that ran under it
	coalesce(sum(w.n_rows), 0) AS n_rows, -- INTEGER rows whose own choice was recorded
	sum(w.changed_rows) AS changed_rows,  -- INTEGER of them, those with another set of experts; NULL: no own choice was recorded
	sum(w.swapped_entries) AS swapped_entries, -- INTEGER experts that the router had not chosen; NULL: as before
	sum(x.active_experts) AS active_before, -- INTEGER distinct routed experts of the router's choices, summed over batches; NULL: as before
	sum(iif(w.n_rows > 0, b.active_experts, NULL)) AS active_after -- INTEGER of the rule's; NULL: as before
FROM batch AS b
LEFT JOIN per_batch AS w ON w.pass_id = b.pass_id AND w.layer_id = b.layer_id
LEFT JOIN before AS x ON x.pass_id = b.pass_id AND x.layer_id = b.layer_id
GROUP BY b.recording_id, b.model_id, b.layer_id, b.phase, b.rule_id;
