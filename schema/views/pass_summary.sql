-- SPDX-License-Identifier: MIT
--
-- Passes with what their slices and layers add up to.
CREATE VIEW pass_summary AS
SELECT
	p.pass_id AS pass_id,             -- INTEGER pass
	p.recording_id AS recording_id,   -- INTEGER recording
	p.model_id AS model_id,           -- INTEGER model
	p.runtime_pass AS runtime_pass,   -- INTEGER the runtime's own number; NULL: not told
	p.parent_pass_id AS parent_pass_id, -- INTEGER pass that it is a part of; NULL: none
	p.microbatch AS microbatch,       -- INTEGER its number among the parent's parts; NULL: not told
	p.device_id AS device_id,         -- INTEGER GPU that it ran on; NULL: told from the host
	p.phase AS phase,                 -- TEXT phase
	p.begin_ns AS begin_ns,           -- INTEGER begin, session clock
	p.end_ns - p.begin_ns AS duration_ns, -- INTEGER length; NULL: end unknown
	p.n_rows AS n_rows,               -- INTEGER rows without padding
	p.padding_rows AS padding_rows,   -- INTEGER padding rows
	(SELECT count(DISTINCT pr.request_id) FROM pass_request AS pr
		WHERE pr.pass_id = p.pass_id) AS n_requests, -- INTEGER requests that it served
	(SELECT coalesce(sum(pr.n_rows), 0) FROM pass_request AS pr
		WHERE pr.pass_id = p.pass_id AND pr.phase = 'decode') AS decode_rows, -- INTEGER rows of decode slices
	(SELECT count(*) FROM pass_layer AS pl
		WHERE pl.pass_id = p.pass_id AND pl.state IN (0, 3)) AS n_layers_stored, -- INTEGER layers stored or counted
	(SELECT avg(pl.active_experts) FROM pass_layer AS pl
		WHERE pl.pass_id = p.pass_id) AS mean_active_experts, -- REAL distinct experts a layer; NULL: no layer stored
	(SELECT max(pl.max_load) FROM pass_layer AS pl
		WHERE pl.pass_id = p.pass_id) AS max_load,            -- INTEGER most loaded expert of any layer; NULL: no layer stored
	p.verdict AS verdict,             -- TEXT 'complete' or 'partial'
	p.reasons AS reasons              -- TEXT why partial; NULL: complete
FROM pass AS p;
