-- SPDX-License-Identifier: MIT
--
-- How many experts carry the load of each layer: routed experts only, padding excluded. A row a
-- recording, layer and phase that has tokens, and one for all phases together ('all').
-- experts_N is the least number of experts that together received N percent of the tokens.
CREATE VIEW expert_coverage AS
WITH load AS (
	SELECT e.recording_id, e.model_id, e.layer_id, e.layer, e.expert,
		CASE b.value WHEN 0 THEN 'all' WHEN 1 THEN 'prefill' WHEN 2 THEN 'decode'
			WHEN 3 THEN 'verify' ELSE 'other' END AS phase,
		CASE b.value WHEN 0 THEN e.tokens WHEN 1 THEN e.prefill_tokens
			WHEN 2 THEN e.decode_tokens WHEN 3 THEN e.verify_tokens
			ELSE e.other_tokens END AS tokens
	FROM expert_load AS e CROSS JOIN byte AS b ON b.value < 5
	WHERE e.kind = 'routed'
),
ranked AS (
	SELECT *, sum(tokens) OVER heaviest AS reached, sum(tokens) OVER layers AS total,
		count(*) OVER layers AS n
	FROM load
	WINDOW layers AS (PARTITION BY recording_id, layer_id, phase),
		heaviest AS (PARTITION BY recording_id, layer_id, phase
			ORDER BY tokens DESC, expert ROWS UNBOUNDED PRECEDING)
)
SELECT
	recording_id AS recording_id,  -- INTEGER recording
	model_id AS model_id,          -- INTEGER model
	layer_id AS layer_id,          -- INTEGER layer's key
	layer AS layer,                -- INTEGER number of the layer in the model
	phase AS phase,                -- TEXT 'all', or the slice's own phase: 'prefill', 'decode', 'verify', 'other'
	n AS n_experts,                -- INTEGER routed experts
	total AS tokens,               -- INTEGER selections of routed experts
	sum((reached - tokens) * 2 < total) AS experts_50,  -- INTEGER experts that carry half of them; 0: no token
	sum((reached - tokens) * 10 < total * 9) AS experts_90,  -- INTEGER experts that carry 90 percent
	sum((reached - tokens) * 100 < total * 99) AS experts_99, -- INTEGER experts that carry 99 percent
	sum(tokens * n > total * 2) AS hot_experts,       -- INTEGER experts with more than twice the mean
	sum(tokens > 0 AND tokens * n * 2 < total) AS cold_experts, -- INTEGER experts with a token and less than half of the mean
	sum(tokens = 0) AS dead_experts                     -- INTEGER experts without a token
FROM ranked
GROUP BY recording_id, layer_id, phase
HAVING total > 0 OR phase = 'all';
