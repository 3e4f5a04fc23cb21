-- SPDX-License-Identifier: MIT
--
-- What each recording lost, and how far the file reaches: look here first. A recording that
-- is whole has end_reason set and 0 in every other column. NULL in a counter: the process died
-- before its first commit.
CREATE VIEW loss AS
SELECT
	r.recording_id AS recording_id,       -- INTEGER recording
	r.end_reason AS end_reason,           -- TEXT why it ended; NULL: open at the last commit
	(SELECT value FROM stats AS s WHERE s.recording_id = r.recording_id
		AND s.name = 'dropped_passes') AS dropped_passes,     -- INTEGER passes lost whole
	(SELECT value FROM stats AS s WHERE s.recording_id = r.recording_id
		AND s.name = 'dropped_layers') AS dropped_layers,     -- INTEGER layers lost of recorded passes
	(SELECT value FROM stats AS s WHERE s.recording_id = r.recording_id
		AND s.name = 'unwritten_layers') AS unwritten_layers, -- INTEGER layers of recorded passes that nobody wrote
	(SELECT value FROM stats AS s WHERE s.recording_id = r.recording_id
		AND s.name = 'sampled_passes') AS sampled_passes,     -- INTEGER passes that sampling left out
	(SELECT value FROM stats AS s WHERE s.recording_id = r.recording_id
		AND s.name = 'disabled_passes') AS disabled_passes,   -- INTEGER passes left out in disabled regions
	(SELECT value FROM stats AS s WHERE s.recording_id = r.recording_id
		AND s.name = 'dropped_bytes') AS dropped_bytes,       -- INTEGER bytes lost
	(SELECT value FROM stats AS s WHERE s.recording_id = r.recording_id
		AND s.name = 'invalid_ids') AS invalid_ids,           -- INTEGER ids that no expert has
	(SELECT value FROM stats AS s WHERE s.recording_id = r.recording_id
		AND s.name = 'misuse') AS misuse,                     -- INTEGER calls refused as inconsistent (diagnostic says which)
	(SELECT count(*) FROM gap AS g WHERE g.recording_id = r.recording_id)
		AS n_gaps,                                            -- INTEGER intervals with losses
	(SELECT count(*) FROM pass AS p WHERE p.recording_id = r.recording_id
		AND p.verdict <> 'complete') AS partial_passes,       -- INTEGER passes not complete
	(SELECT count(*) FROM request AS q WHERE q.recording_id = r.recording_id
		AND q.verdict = 'partial') AS partial_requests,       -- INTEGER requests with missing rows
	(SELECT count(*) FROM request AS q WHERE q.recording_id = r.recording_id
		AND q.verdict = 'unfinished') AS unfinished_requests, -- INTEGER requests still open at the end
	coalesce((SELECT s.value - l.value FROM stats AS s JOIN stats AS l
		ON l.recording_id = s.recording_id AND l.name = 'load_passes'
		WHERE s.recording_id = r.recording_id AND s.name = 'recorded_passes'),
		(SELECT count(*) FROM pass AS p WHERE p.recording_id = r.recording_id
			AND p.pass_id > coalesce((SELECT value FROM stats AS s
			WHERE s.recording_id = r.recording_id AND s.name = 'last_pass_id'), 0)))
		AS lag_passes                                         -- INTEGER passes not yet in expert_load
FROM recording AS r;
