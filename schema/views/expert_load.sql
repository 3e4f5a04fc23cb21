-- SPDX-License-Identifier: MIT
--
-- Expert load: how many tokens each expert of each layer received in a recording. Experts
-- that received none are listed with 0, so that dead experts are seen, in the layers of the
-- models that ran in the recording. Everything that ran counts, warm-up (other_tokens) too. From
-- expert_load_window, which lags the last commit of a live file by at most a second (loss).
CREATE VIEW expert_load AS
WITH load AS (
	SELECT recording_id, layer_id, expert,
		sum(prefill_tokens) AS prefill_tokens, sum(decode_tokens) AS decode_tokens,
		sum(verify_tokens) AS verify_tokens, sum(other_tokens) AS other_tokens,
		sum(padding_tokens) AS padding_tokens
	FROM expert_load_window GROUP BY recording_id, layer_id, expert
),
used AS (
	SELECT DISTINCT w.recording_id, l.model_id
	FROM load AS w JOIN layer AS l ON l.layer_id = w.layer_id
),
slot AS (
	SELECT l.layer_id, l.model_id, l.layer, hi.value * 256 + lo.value AS expert,
		l.n_experts, l.n_zero_experts
	FROM layer AS l
	CROSS JOIN byte AS hi
		ON hi.value <= (l.n_experts + l.n_zero_experts + l.n_shared_slots - 1) / 256
	CROSS JOIN byte AS lo
		ON lo.value < l.n_experts + l.n_zero_experts + l.n_shared_slots - hi.value * 256
)
SELECT
	u.recording_id AS recording_id,            -- INTEGER recording
	s.model_id AS model_id,                    -- INTEGER model
	s.layer_id AS layer_id,                    -- INTEGER layer's key
	s.layer AS layer,                          -- INTEGER number of the layer in the model
	s.expert AS expert,                        -- INTEGER logical expert id
	CASE WHEN s.expert < s.n_experts THEN 'routed'
		WHEN s.expert < s.n_experts + s.n_zero_experts THEN 'zero'
		ELSE 'shared' END AS kind,         -- TEXT 'routed', 'zero' or 'shared'
	coalesce(w.prefill_tokens, 0) + coalesce(w.decode_tokens, 0)
		+ coalesce(w.verify_tokens, 0)
		+ coalesce(w.other_tokens, 0) AS tokens, -- INTEGER rows that selected it, padding excluded
	coalesce(w.prefill_tokens, 0) AS prefill_tokens, -- INTEGER of them in prefill slices
	coalesce(w.decode_tokens, 0) AS decode_tokens,   -- INTEGER of them in decode slices
	coalesce(w.verify_tokens, 0) AS verify_tokens,   -- INTEGER of them in verify slices
	coalesce(w.other_tokens, 0) AS other_tokens,     -- INTEGER of them in draft slices or of no request
	coalesce(w.padding_tokens, 0) AS padding_tokens  -- INTEGER padding rows, not in tokens
FROM used AS u
JOIN slot AS s ON s.model_id = u.model_id
LEFT JOIN load AS w ON w.recording_id = u.recording_id AND w.layer_id = s.layer_id
	AND w.expert = s.expert;
