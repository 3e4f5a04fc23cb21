-- SPDX-License-Identifier: MIT
--
-- Time of each layer in each pass. Where the operations of a layer were timed, from the begin of
-- its first one to the end of its last one (source 'kernel'). Elsewhere from the moment its experts
-- were selected to the next selection of the same pass, or to the end of the pass (source
-- 'selection'): that covers the layer's experts and what follows until the next router (for a
-- transformer: the next attention block). The end of a pass that a GPU's lane recorded is told when the
-- host has seen it, which may be much later: its last selection has no length.
CREATE VIEW layer_time AS
WITH timed AS MATERIALIZED (
	SELECT pass_id, layer_id, min(start_ns) AS start_ns,
		max(start_ns + duration_ns) AS end_ns, sum(duration_ns) AS busy_ns,
		sum(duration_ns) FILTER (WHERE role = 'experts') AS experts_ns
	FROM kernel_event WHERE pass_id IS NOT NULL AND layer_id IS NOT NULL
	GROUP BY pass_id, layer_id)
SELECT
	p.recording_id AS recording_id,   -- INTEGER recording
	pl.pass_id AS pass_id,            -- INTEGER pass
	p.model_id AS model_id,           -- INTEGER model
	pl.layer_id AS layer_id,          -- INTEGER layer's key
	l.layer AS layer,                 -- INTEGER number of the layer in the model
	p.phase AS phase,                 -- TEXT phase of the pass
	pl.n_rows AS n_rows,              -- INTEGER rows of the layer; NULL: the runtime told counts alone, or nothing
	pl.active_experts AS active_experts, -- INTEGER distinct routed experts; NULL: nothing stored or counted
	pl.selected_ns AS selected_ns,    -- INTEGER selection, session clock; NULL: not told
	CASE WHEN t.pass_id IS NULL THEN coalesce((SELECT min(later.selected_ns)
			FROM pass_layer AS later WHERE later.pass_id = pl.pass_id
			AND later.selected_ns > pl.selected_ns), iif(p.device_id IS NULL, p.end_ns, NULL)) - pl.selected_ns
		ELSE t.end_ns - t.start_ns END AS duration_ns, -- INTEGER length; NULL: not known, the last layer of a pass whose end is unknown or which a GPU's lane recorded
	CASE WHEN t.pass_id IS NULL THEN 'selection'
		ELSE 'kernel' END AS source, -- TEXT how it was measured
	t.busy_ns AS busy_ns,             -- INTEGER sum over the layer's operations, which may overlap; NULL: not timed
	t.experts_ns AS experts_ns        -- INTEGER of it, the experts' own products; NULL: not timed, or none
FROM pass_layer AS pl
JOIN pass AS p ON p.pass_id = pl.pass_id
JOIN layer AS l ON l.layer_id = pl.layer_id
LEFT JOIN timed AS t ON t.pass_id = pl.pass_id AND t.layer_id = pl.layer_id
WHERE t.pass_id IS NOT NULL OR pl.selected_ns IS NOT NULL;
