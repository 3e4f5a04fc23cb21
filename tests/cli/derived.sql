-- SPDX-License-Identifier: MIT
--
-- What follows from the ids, computed from the views: the columns of pass_layer, the windows and
-- the counters. Applied again after a test changed ids in a way that stays sound.

CREATE TEMP TABLE assignment AS
SELECT t.recording_id, t.pass_id, t.layer_id, t.row, t.phase, t.request_id, p.begin_ns,
	CASE t.id_bytes
	WHEN 1 THEN (SELECT value FROM main.byte WHERE byte = substr(t.topk_ids, r.value + 1, 1))
	ELSE (SELECT lo.value + 256 * hi.value FROM main.byte AS lo, main.byte AS hi
		WHERE lo.byte = substr(t.topk_ids, 2 * r.value + 1, 1)
		AND hi.byte = substr(t.topk_ids, 2 * r.value + 2, 1)) END AS expert
FROM main.token_topk AS t JOIN main.pass AS p USING (pass_id)
	JOIN main.byte AS r ON r.value < t.n_valid;

UPDATE pass_layer SET
	active_experts = (SELECT count(DISTINCT a.expert) FROM assignment AS a
		JOIN layer AS l ON l.layer_id = a.layer_id AND a.expert < l.n_experts
		WHERE a.pass_id = pass_layer.pass_id AND a.layer_id = pass_layer.layer_id),
	max_load = coalesce((SELECT count(*) AS n FROM assignment AS a
		JOIN layer AS l ON l.layer_id = a.layer_id AND a.expert < l.n_experts
		WHERE a.pass_id = pass_layer.pass_id AND a.layer_id = pass_layer.layer_id
		GROUP BY a.expert ORDER BY n DESC LIMIT 1), 0)
WHERE state = 0;

DELETE FROM expert_load_window;
INSERT INTO expert_load_window
SELECT recording_id, start_ns + (begin_ns - start_ns) / 4000 * 4000 AS window_ns, layer_id,
	expert, 4000,
	sum(request_id IS NOT NULL AND phase = 'prefill'),
	sum(request_id IS NOT NULL AND phase = 'decode'),
	sum(request_id IS NOT NULL AND phase = 'verify'),
	sum(request_id IS NULL OR phase = 'draft'), 0
FROM assignment JOIN recording USING (recording_id)
GROUP BY recording_id, window_ns, layer_id, expert;

DELETE FROM stats WHERE name IN ('recorded_passes', 'recorded_rows', 'recorded_layers',
	'recorded_assignments', 'recorded_kernels', 'recorded_ranges', 'recorded_collectives', 'last_pass_id', 'load_passes', 'load_assignments');
INSERT INTO stats SELECT recording_id, 'recorded_passes', count(*) FROM pass GROUP BY recording_id;
INSERT INTO stats SELECT recording_id, 'recorded_rows', sum(n_rows) FROM pass GROUP BY recording_id;
INSERT INTO stats SELECT recording_id, 'last_pass_id', max(pass_id) FROM pass GROUP BY recording_id;
INSERT INTO stats SELECT recording_id, 'recorded_layers', count(*) FROM pass_layer
	JOIN pass USING (pass_id) WHERE state = 0 GROUP BY recording_id;
INSERT INTO stats SELECT recording_id, 'recorded_assignments', count(*) FROM assignment
	GROUP BY recording_id;
INSERT INTO stats SELECT recording_id, 'recorded_kernels', (SELECT count(*) FROM kernel AS k
	WHERE k.recording_id = r.recording_id AND known_by = 0) FROM recording AS r;
INSERT INTO stats SELECT recording_id, 'recorded_ranges', (SELECT count(*) FROM range AS g
	WHERE g.recording_id = r.recording_id) FROM recording AS r;
INSERT INTO stats SELECT recording_id, 'recorded_collectives', (SELECT count(*) FROM collective AS g
	WHERE g.recording_id = r.recording_id) FROM recording AS r;
INSERT INTO stats SELECT recording_id, 'load_passes', count(*) FROM pass GROUP BY recording_id;
INSERT INTO stats SELECT recording_id, 'load_assignments', sum(prefill_tokens + decode_tokens
	+ verify_tokens + other_tokens) FROM expert_load_window GROUP BY recording_id;
INSERT OR IGNORE INTO stats SELECT r.recording_id, n.column1, 0 FROM recording AS r
	JOIN (VALUES ('dropped_passes'), ('dropped_layers'), ('dropped_bytes'), ('invalid_ids'),
		('misuse'), ('duplicate_layers'), ('writer_cpu_ns'), ('commits'),
		('longest_commit_ns'), ('ring_peak_bytes'), ('dropped_dispatches'), ('dropped_kernels'), ('dropped_ranges'), ('dropped_collectives'), ('untied_kernels'),
		('unwritten_layers'), ('sampled_passes'), ('disabled_passes')) AS n;
DROP TABLE assignment;
