-- SPDX-License-Identifier: MIT
--
-- Time of each layer in each pass, from the moment its experts were selected to the next
-- selection of the same pass, or to the end of the pass. It covers the layer's experts and
-- what follows until the next router (for a transformer: the next attention block).
CREATE VIEW layer_time AS
SELECT
	p.recording_id AS recording_id,   -- INTEGER recording
	pl.pass_id AS pass_id,            -- INTEGER pass
	p.model_id AS model_id,           -- INTEGER model
	pl.layer_id AS layer_id,          -- INTEGER layer's key
	l.layer AS layer,                 -- INTEGER number of the layer in the model
	p.phase AS phase,                 -- TEXT phase of the pass
	pl.n_rows AS n_rows,              -- INTEGER rows of the layer
	pl.active_experts AS active_experts, -- INTEGER distinct routed experts
	pl.selected_ns AS selected_ns,    -- INTEGER selection, session clock
	coalesce((SELECT min(later.selected_ns) FROM pass_layer AS later
		WHERE later.pass_id = pl.pass_id AND later.selected_ns > pl.selected_ns),
		p.end_ns) - pl.selected_ns AS duration_ns, -- INTEGER length; NULL: the pass's end is unknown
	'selection' AS source             -- TEXT how it was measured
FROM pass_layer AS pl
JOIN pass AS p ON p.pass_id = pl.pass_id
JOIN layer AS l ON l.layer_id = pl.layer_id
WHERE pl.selected_ns IS NOT NULL;
