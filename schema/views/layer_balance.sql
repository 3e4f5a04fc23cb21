-- SPDX-License-Identifier: MIT
--
-- Balance of each layer over a recording: routed experts only, padding excluded.
-- balancedness = mean load of an expert / load of the most loaded expert, of the recording's
-- totals (1: even; 1 / n_experts: one expert takes all), with mean load = tokens / n_experts.
CREATE VIEW layer_balance AS
WITH per_pass AS (
	SELECT p.recording_id, pl.layer_id, count(*) AS n_passes,
		avg(pl.active_experts) AS mean_active_experts,
		max(pl.active_experts) AS max_active_experts,
		avg(pl.max_load) AS mean_max_load, max(pl.max_load) AS max_load
	FROM pass_layer AS pl JOIN pass AS p ON p.pass_id = pl.pass_id
	WHERE pl.state IN (0, 3) AND (pl.n_rows > 0 OR pl.max_load > 0)
	GROUP BY p.recording_id, pl.layer_id
),
total AS (
	-- The most tokens and the lowest expert that has them, found in one pass as one number.
	SELECT recording_id, layer_id, sum(tokens) AS tokens,
		max(tokens * 65536 + 65535 - expert) AS hottest, sum(tokens = 0) AS dead_experts
	FROM expert_load WHERE kind = 'routed' GROUP BY recording_id, layer_id
)
SELECT
	t.recording_id AS recording_id,        -- INTEGER recording
	l.model_id AS model_id,                -- INTEGER model
	l.layer_id AS layer_id,                -- INTEGER layer's key
	l.layer AS layer,                      -- INTEGER number of the layer in the model
	l.n_experts AS n_experts,              -- INTEGER routed experts
	coalesce(pp.n_passes, 0) AS n_passes,  -- INTEGER passes in which the layer was stored or counted with rows; 0 in mode stat, which keeps none
	t.tokens AS tokens,                    -- INTEGER selections of routed experts
	pp.mean_active_experts AS mean_active_experts, -- REAL distinct experts a pass; NULL: no pass
	pp.max_active_experts AS max_active_experts,   -- INTEGER most in one pass; NULL: no pass
	pp.mean_max_load AS mean_max_load,     -- REAL rows of the most loaded expert a pass, mean; NULL: no pass
	pp.max_load AS max_load,               -- INTEGER the same, largest; NULL: no pass
	iif(t.tokens > 0, 65535 - t.hottest % 65536, NULL) AS hottest_expert, -- INTEGER expert with most tokens (lowest id of equals); NULL: no token
	1.0 * (t.hottest / 65536) * l.n_experts / nullif(t.tokens, 0) AS max_over_mean, -- REAL its tokens over the mean of all experts; NULL: no token
	1.0 * t.tokens / nullif((t.hottest / 65536) * l.n_experts, 0) AS balancedness,  -- REAL mean over max, of the totals; NULL: no token
	t.dead_experts AS dead_experts         -- INTEGER routed experts without a token
FROM total AS t
JOIN layer AS l ON l.layer_id = t.layer_id
LEFT JOIN per_pass AS pp ON pp.recording_id = t.recording_id AND pp.layer_id = t.layer_id;
