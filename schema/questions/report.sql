-- SPDX-License-Identifier: MIT
--
-- What `moetrace report` and the first view of the page say. :recording NULL: all of them.

-- @section attention
-- In plain words, the worst first. A layer is uneven where its hottest expert gets more than three
-- times the mean; dead experts are worth a word where they are a tenth of a layer's and it handed
-- out 20 tokens an expert.
WITH l AS (SELECT * FROM loss WHERE :recording IS NULL OR recording_id = :recording),
b AS (
	SELECT recording_id, model_id, layer, count(*) AS n_experts, sum(tokens) AS tokens,
		max(tokens) AS most, expert AS hottest_expert,
		1.0 * max(tokens) * count(*) / sum(tokens) AS max_over_mean,
		sum(tokens = 0) AS dead_experts
	FROM expert_load
	WHERE kind = 'routed' AND (:recording IS NULL OR recording_id = :recording)
	GROUP BY recording_id, layer_id HAVING sum(tokens) > 0
),
said AS (
	SELECT recording_id, 1 AS place, printf('%d passes and %d layers of other passes were lost: '
		|| 'figures are of the rest', dropped_passes, dropped_layers) AS says
	FROM l WHERE dropped_passes > 0 OR dropped_layers > 0
	UNION ALL
	SELECT recording_id, 2, 'the recording has no end: figures are as of its last commit'
	FROM l WHERE end_reason IS NULL
	UNION ALL
	SELECT recording_id, 3, 'the recording was cut off: ' || end_reason
	FROM l WHERE end_reason IN ('file_limit', 'io_error', 'killed')
	UNION ALL
	SELECT recording_id, 4, printf('%d calls were refused, %d ids fit no expert: see table '
		|| 'diagnostic', misuse, invalid_ids)
	FROM l WHERE misuse > 0 OR invalid_ids > 0
	UNION ALL
	SELECT recording_id, 5, printf('%d layers of passes were written by nobody', unwritten_layers)
	FROM l WHERE unwritten_layers > 0
	UNION ALL
	SELECT recording_id, 6, printf('requests %s: %d (%s)', verdict, count(*),
		coalesce(reasons, 'still open at the end'))
	FROM request
	WHERE verdict <> 'complete' AND (:recording IS NULL OR recording_id = :recording)
	GROUP BY recording_id, verdict, reasons
	UNION ALL
	SELECT recording_id, 7, printf('%d passes were left out by sampling, %d because recording '
		|| 'was off', sampled_passes, disabled_passes)
	FROM l WHERE sampled_passes > 0 OR disabled_passes > 0
	UNION ALL
	SELECT recording_id, 4, printf('%d passes end before they begin and are left out of times: '
		|| 'see moetrace check', count(*))
	FROM pass WHERE end_ns < begin_ns AND (:recording IS NULL OR recording_id = :recording)
	GROUP BY recording_id
	UNION ALL
	SELECT recording_id, 8, printf('layer %d of model %d is uneven: expert %d gets %.1f times the '
		|| 'mean', layer, model_id, hottest_expert, max_over_mean)
	FROM (SELECT *, row_number() OVER (PARTITION BY recording_id, model_id
		ORDER BY max_over_mean DESC) AS n FROM b WHERE max_over_mean > 3)
	WHERE n = 1
	UNION ALL
	SELECT recording_id, 9, printf('%d of %d experts of layer %d of model %d got no token',
		dead_experts, n_experts, layer, model_id)
	FROM (SELECT *, row_number() OVER (PARTITION BY recording_id, model_id
		ORDER BY dead_experts DESC) AS n FROM b
		WHERE dead_experts * 10 >= n_experts AND tokens >= 20 * n_experts)
	WHERE n = 1
)
SELECT recording_id, says
FROM (
	SELECT * FROM said
	UNION ALL
	SELECT NULL, 0, 'nothing: no loss, ' || CASE WHEN EXISTS (SELECT 1 FROM request
		WHERE :recording IS NULL OR recording_id = :recording) THEN 'every request is complete'
		ELSE 'there are no requests' END || ', no layer is very uneven'
	WHERE NOT EXISTS (SELECT 1 FROM said)
)
ORDER BY place, recording_id
-- @section recordings
SELECT r.recording_id, r.mode, coalesce(r.sampling, 'none') AS sampling,
	coalesce(r.routing_source, '-') AS routing_source,
	(SELECT group_concat(m.name, ', ') FROM model AS m
		WHERE EXISTS (SELECT 1 FROM pass AS p
			WHERE p.recording_id = r.recording_id AND p.model_id = m.model_id)
		OR EXISTS (SELECT 1 FROM expert_load_window AS w JOIN layer AS y USING (layer_id)
			WHERE w.recording_id = r.recording_id AND y.model_id = m.model_id)) AS models,
	coalesce(r.end_ns, (SELECT max(end_ns) FROM pass AS p
		WHERE p.recording_id = r.recording_id)) - r.start_ns AS duration_ns,
	(SELECT count(*) FROM request AS q WHERE q.recording_id = r.recording_id) AS requests,
	(SELECT value FROM stats AS s WHERE s.recording_id = r.recording_id
		AND s.name = 'recorded_passes') AS passes,
	(SELECT value FROM stats AS s WHERE s.recording_id = r.recording_id
		AND s.name = 'recorded_rows') AS rows,
	(SELECT value FROM stats AS s WHERE s.recording_id = r.recording_id
		AND s.name = 'recorded_assignments') AS assignments,
	coalesce(r.end_reason, 'missing') AS end
FROM recording AS r WHERE :recording IS NULL OR r.recording_id = :recording
ORDER BY r.recording_id
-- @section verdicts
SELECT l.recording_id, (SELECT count(*) FROM request AS q
		WHERE q.recording_id = l.recording_id AND q.verdict = 'complete') AS complete_requests,
	l.partial_requests, l.unfinished_requests, l.partial_passes, l.dropped_passes,
	l.dropped_layers, l.unwritten_layers, l.sampled_passes, l.disabled_passes,
	l.dropped_bytes, l.invalid_ids, l.misuse, l.n_gaps
FROM loss AS l WHERE :recording IS NULL OR l.recording_id = :recording
ORDER BY l.recording_id
-- @section throughput
-- Rows are of the parts of a pass, the time is that of the whole. Passes that end before they begin,
-- or that are part of such a one, are in no time.
SELECT recording_id, phase, sum(NOT is_parent) AS passes, sum(n_rows) AS rows,
	sum(decode_rows) AS decode_rows, avg(n_rows) FILTER (WHERE NOT is_parent) AS mean_rows,
	avg(mean_active_experts) AS mean_active_experts,
	avg(duration_ns) FILTER (WHERE NOT is_parent AND NOT is_reversed) AS mean_duration_ns,
	sum(n_rows) FILTER (WHERE NOT is_reversed) * 1e9
		/ nullif(sum(duration_ns) FILTER (WHERE parent_pass_id IS NULL AND NOT is_reversed), 0)
		AS tokens_per_s
FROM (SELECT *, pass_id IN (SELECT parent_pass_id FROM pass
	WHERE parent_pass_id IS NOT NULL) AS is_parent, coalesce(duration_ns < 0, 0)
	OR coalesce(parent_pass_id, 0) IN (SELECT pass_id FROM pass WHERE end_ns < begin_ns)
	AS is_reversed FROM pass_summary)
WHERE :recording IS NULL OR recording_id = :recording
GROUP BY recording_id, phase ORDER BY recording_id, rows DESC
-- @section balance
SELECT recording_id, model_id, layer, n_experts, tokens, mean_active_experts, max_load,
	hottest_expert, max_over_mean, balancedness, dead_experts
FROM layer_balance WHERE (:recording IS NULL OR recording_id = :recording) AND tokens > 0
ORDER BY balancedness, recording_id, model_id, layer LIMIT 6
-- @section hottest
SELECT recording_id, model_id, layer, expert, tokens, share, load_over_mean
FROM (
	SELECT *, 1.0 * tokens / nullif(sum(tokens) OVER layers, 0) AS share,
		1.0 * tokens / nullif(avg(tokens) OVER layers, 0) AS load_over_mean
	FROM expert_load
	WHERE kind = 'routed' AND (:recording IS NULL OR recording_id = :recording)
	WINDOW layers AS (PARTITION BY recording_id, layer_id)
)
WHERE tokens > 0
ORDER BY load_over_mean DESC, recording_id, model_id, layer, expert LIMIT 6
-- @section layer_times
-- Where the file is large, of some passes all over it.
SELECT recording_id, model_id, layer, count(*) AS passes, avg(duration_ns) AS mean_duration_ns,
	max(duration_ns) AS max_duration_ns,
	1.0 * sum(duration_ns) / nullif(sum(sum(duration_ns))
		OVER (PARTITION BY recording_id, model_id), 0) AS share
FROM moe_layer_time
WHERE coalesce(duration_ns, 0) >= 0 AND (:recording IS NULL OR recording_id = :recording)
GROUP BY recording_id, model_id, layer ORDER BY share DESC, layer LIMIT 6
-- @section slow
-- Passes that decode and took more than 1.5 times the median of their model in the recording, with the
-- first reason that the file shows; without one where they took 3 times as long. What is usual is
-- told by some 4000 passes; of slow ones the 1000 slowest are looked at.
WITH timed AS (SELECT pass_id, recording_id, model_id, phase, n_rows + padding_rows AS size, begin_ns,
		end_ns, end_ns - begin_ns AS duration_ns
	FROM pass WHERE phase IN ('decode', 'mixed', 'verify') AND n_rows > 0 AND end_ns >= begin_ns
		AND (:recording IS NULL OR recording_id = :recording)),
sampled AS MATERIALIZED (SELECT * FROM timed
	WHERE pass_id % (1 + (SELECT count(*) FROM timed) / 4000) = 0),
usual AS MATERIALIZED (
	SELECT recording_id, model_id, max(duration_ns) FILTER (WHERE n <= (n_all + 1) / 2) AS usual_ns,
		max(size) FILTER (WHERE n_size <= (n_all + 1) / 2) AS usual_size
	FROM (SELECT *, row_number() OVER (PARTITION BY recording_id, model_id ORDER BY duration_ns) AS n,
			row_number() OVER (PARTITION BY recording_id, model_id ORDER BY size) AS n_size,
			count(*) OVER (PARTITION BY recording_id, model_id) AS n_all
		FROM sampled WHERE phase <> 'mixed')
	WHERE n_all >= 20 GROUP BY recording_id, model_id),
alike AS MATERIALIZED (
	SELECT recording_id, model_id, phase, size, avg(duration_ns) AS alike_ns, avg((SELECT
			avg(active_experts) FROM pass_layer AS pl WHERE pl.pass_id = s.pass_id)) AS alike_active
	FROM sampled AS s GROUP BY recording_id, model_id, phase, size HAVING count(*) >= 5),
slowest AS MATERIALIZED (
	SELECT t.*, u.usual_ns, u.usual_size FROM timed AS t JOIN usual AS u USING (recording_id, model_id)
	WHERE t.duration_ns > 1.5 * u.usual_ns ORDER BY t.duration_ns DESC LIMIT 1000),
first AS MATERIALIZED (SELECT min(pass_id) AS pass_id FROM timed GROUP BY recording_id, model_id, size),
held AS MATERIALIZED (SELECT DISTINCT recording_id, time_ns / 200000000 AS slot FROM power_sample
	WHERE throttle_reasons & 236 AND (:recording IS NULL OR recording_id = :recording)),
is_usual AS (SELECT avg((recording_id, begin_ns / 200000000) IN (SELECT recording_id, slot FROM held))
	> 0.5 AS held FROM sampled),
judged AS (
	SELECT s.*, a.alike_ns, a.alike_active, (SELECT avg(active_experts) FROM pass_layer AS pl
			WHERE pl.pass_id = s.pass_id) AS active,
		EXISTS (SELECT 1 FROM gap AS g WHERE g.recording_id = s.recording_id
			AND g.start_ns <= s.end_ns AND g.end_ns >= s.begin_ns) AS is_lossy,
		s.pass_id IN (SELECT pass_id FROM first) AS is_first
	FROM slowest AS s LEFT JOIN alike AS a USING (recording_id, model_id, phase, size)),
reasoned AS (
	SELECT *, CASE WHEN phase = 'mixed' THEN 1
		WHEN size > usual_size AND 1.5 * alike_ns >= duration_ns THEN 2
		WHEN active > 1.15 * alike_active THEN 3
		WHEN NOT (SELECT held FROM is_usual) AND ((recording_id, begin_ns / 200000000) IN
			(SELECT recording_id, slot FROM held) OR (recording_id, end_ns / 200000000) IN
			(SELECT recording_id, slot FROM held)) THEN 4
		WHEN is_first THEN 5 WHEN is_lossy THEN 6
		WHEN duration_ns > 3 * usual_ns THEN 7 END AS reason
	FROM judged)
SELECT recording_id, model_id, count(*) AS passes, CASE reason
	WHEN 1 THEN 'they hold rows of prefill, too'
	WHEN 2 THEN printf('they are larger: %.1f rows with padding, where %d are usual', avg(size),
		max(usual_size))
	WHEN 3 THEN printf('they touch more experts than others of their size: %.1f a layer, where %.1f '
		|| 'are usual', avg(active), avg(alike_active))
	WHEN 4 THEN 'clocks were held down then (see view power)'
	WHEN 5 THEN 'they are the first of their size'
	WHEN 6 THEN 'the recorder lost something then'
	ELSE 'nothing recorded tells why' END AS why,
	usual_ns, avg(duration_ns) AS mean_duration_ns, pass_id AS slowest_pass_id,
	max(duration_ns) AS max_duration_ns
FROM reasoned WHERE reason IS NOT NULL
GROUP BY recording_id, model_id, reason ORDER BY recording_id, model_id, passes DESC, reason
-- @section padding
-- Routed experts that padding rows made active and no other row did, in the last 1000 padded passes.
WITH padded AS (SELECT pass_id, recording_id, model_id FROM (SELECT *, row_number() OVER
		(PARTITION BY recording_id ORDER BY pass_id DESC) AS n FROM pass
		WHERE padding_rows > 0 AND (:recording IS NULL OR recording_id = :recording)) WHERE n <= 1000)
SELECT p.recording_id, p.model_id, l.layer, count(*) AS passes,
	avg(pl.padding_active_experts) AS padding_active_experts, avg(pl.active_experts) AS active_experts
FROM padded AS p JOIN pass_layer AS pl USING (pass_id) JOIN layer AS l USING (layer_id)
WHERE pl.padding_active_experts IS NOT NULL
GROUP BY p.recording_id, pl.layer_id HAVING sum(pl.padding_active_experts) > 0
ORDER BY padding_active_experts DESC, p.recording_id, p.model_id, l.layer LIMIT 6
