-- SPDX-License-Identifier: MIT
--
-- Run on a copy of a trace beside frame.json, what `moetrace top --once --format json` said of it:
-- prints the figures that a stock sqlite3 gets otherwise, and in the end how many were compared.
CREATE TEMP TABLE frame AS SELECT json_extract(j, '$.recording[0].recording_id') AS recording_id,
	json_extract(j, '$.recording[0].model_id') AS model_id, json_extract(j, '$.throughput[0].from_ns') AS from_ns,
	json_extract(j, '$.throughput[0].until_ns') AS until_ns, json_extract(j, '$.throughput[0].is_whole') AS is_whole,
	json_extract(j, '$.throughput[0].active_from_ns') AS active_from_ns FROM (SELECT CAST(readfile('frame.json') AS TEXT) AS j);
CREATE TEMP VIEW passes AS SELECT p.* FROM main.pass AS p JOIN frame AS f ON p.recording_id = f.recording_id
	AND p.model_id = f.model_id AND p.begin_ns BETWEEN f.from_ns AND f.until_ns;
-- Decoded once.
CREATE TEMP TABLE load AS SELECT l.layer, l.layer_id, l.n_experts, e.expert, sum(e.rows) AS tokens FROM passes AS p
	JOIN main.pass_expert AS e ON e.pass_id = p.pass_id JOIN main.layer AS l ON l.layer_id = e.layer_id
	WHERE e.expert < l.n_experts AND NOT (SELECT is_whole FROM frame) GROUP BY l.layer_id, e.expert
UNION ALL SELECT e.layer, e.layer_id, (SELECT n_experts FROM main.layer AS l WHERE l.layer_id = e.layer_id), e.expert, e.tokens
	FROM main.expert_load AS e JOIN frame AS f USING (recording_id, model_id) WHERE f.is_whole AND e.kind = 'routed' AND e.tokens > 0;
CREATE TEMP TABLE judged AS SELECT layer, sum(tokens) AS tokens, 1.0 * max(tokens) * n_experts / sum(tokens) AS max_over_mean,
	1.0 * sum(tokens) * sum(tokens) / (n_experts * sum(tokens * tokens)) AS jain, n_experts - count(*) AS dead FROM load GROUP BY layer_id;
CREATE TEMP TABLE said (name TEXT PRIMARY KEY, value) WITHOUT ROWID;
INSERT INTO said SELECT t.key, t.value FROM json_each(readfile('frame.json'), '$.throughput[0]') AS t WHERE t.value IS NOT NULL;
INSERT INTO said SELECT 'balance.' || key, value FROM json_each(readfile('frame.json'), '$.balance[0]') WHERE value IS NOT NULL;
INSERT INTO said SELECT 'load.' || json_extract(value, '$.layer') || '.' || json_extract(value, '$.expert'), json_extract(value, '$.tokens')
	FROM json_each(readfile('frame.json'), '$.load') WHERE json_extract(value, '$.tokens') > 0;
INSERT INTO said SELECT 'layer.' || json_extract(value, '$.layer') || '.' || f.name, json_extract(value, '$.' || f.name)
	FROM json_each(readfile('frame.json'), '$.layers'), (SELECT 'max_over_mean' AS name UNION ALL SELECT 'jain' UNION ALL SELECT 'dead_experts') AS f
	WHERE json_extract(value, '$.tokens') > 0;
CREATE TEMP TABLE got (name TEXT PRIMARY KEY, value) WITHOUT ROWID;
INSERT INTO got SELECT 'load.' || layer || '.' || expert, tokens FROM load;
INSERT INTO got SELECT 'layer.' || layer || '.max_over_mean', max_over_mean FROM judged UNION ALL
	SELECT 'layer.' || layer || '.jain', jain FROM judged UNION ALL SELECT 'layer.' || layer || '.dead_experts', dead FROM judged;
-- A half of the layers, and nineteen of twenty, rounded up, are not above it.
INSERT INTO got SELECT 'balance.max_over_mean_p50', max_over_mean FROM (SELECT max_over_mean, row_number() OVER (ORDER BY max_over_mean) AS i,
	count(*) OVER () AS n FROM judged) WHERE i = (n + 1) / 2;
INSERT INTO got SELECT 'balance.max_over_mean_p95', max_over_mean FROM (SELECT max_over_mean, row_number() OVER (ORDER BY max_over_mean) AS i,
	count(*) OVER () AS n FROM judged) WHERE i = (19 * n + 19) / 20;
INSERT INTO got SELECT 'balance.max_over_mean_worst', max(max_over_mean) FROM judged WHERE tokens > 0 HAVING count(*) > 0;
INSERT INTO got SELECT 'balance.jain_worst', min(jain) FROM judged HAVING count(*) > 0;
-- Passes, where they are kept; phases of the whole recording are those of its load.
INSERT INTO got SELECT name, value FROM (
	SELECT 'passes' AS name, count(*) AS value FROM passes WHERE parent_pass_id IS NULL
	UNION ALL SELECT 'rows', coalesce(sum(n_rows), 0) FROM passes
	UNION ALL SELECT 'padding_rows', coalesce(sum(padding_rows), 0) FROM passes
	UNION ALL SELECT 'partial_passes', count(*) FROM passes WHERE verdict <> 'complete'
	UNION ALL SELECT 'passes_per_s', iif(EXISTS (SELECT 1 FROM main.stats AS s JOIN frame AS f USING (recording_id)
		WHERE s.name = 'sampled_passes' AND s.value > 0), NULL, count(*) * 1e9 / (SELECT until_ns - from_ns FROM frame))
		FROM passes WHERE parent_pass_id IS NULL
	UNION ALL SELECT 'mean_duration_ns', avg(end_ns - begin_ns) FROM passes WHERE parent_pass_id IS NULL
	UNION ALL SELECT 'mean_rows', 1.0 * sum(n_rows) / nullif(sum(parent_pass_id IS NULL), 0) FROM passes
	UNION ALL SELECT phase || '_rows', coalesce(n, 0) FROM (SELECT 'prefill' AS phase UNION ALL SELECT 'decode' UNION ALL SELECT 'verify')
		LEFT JOIN (SELECT s.phase, sum(s.n_rows) AS n FROM passes JOIN main.pass_request AS s USING (pass_id) GROUP BY 1) USING (phase)
	UNION ALL SELECT 'other_rows', coalesce(sum(s.n_rows), 0) FROM passes JOIN main.pass_request AS s USING (pass_id)
		WHERE s.phase NOT IN ('prefill', 'decode', 'verify'))
WHERE value IS NOT NULL AND NOT (SELECT is_whole AND name IN ('prefill_rows', 'decode_rows', 'verify_rows', 'other_rows') FROM frame)
	AND (SELECT mode <> 'stat' FROM frame JOIN main.recording USING (recording_id));
-- Where they are not, of one model the recording has sums.
INSERT INTO got SELECT substr(s.name, 10), s.value FROM main.stats AS s JOIN frame AS f USING (recording_id) JOIN main.recording AS r USING (recording_id)
	WHERE s.name IN ('recorded_passes', 'recorded_rows') AND f.is_whole AND r.mode = 'stat' AND (SELECT count(*) = 1 FROM main.model);
INSERT INTO got SELECT 'decode_rows', sum(decode_tokens) / l.top_k FROM frame AS f JOIN main.expert_load AS e USING (recording_id, model_id)
	JOIN main.layer AS l USING (layer_id) WHERE f.is_whole GROUP BY layer_id ORDER BY l.layer LIMIT 1;
INSERT INTO got SELECT name, value FROM (SELECT 'mean_active_experts' AS name, avg(y.active_experts) AS value FROM frame AS f JOIN main.pass AS p
	ON p.recording_id = f.recording_id AND p.model_id = f.model_id AND p.begin_ns BETWEEN f.active_from_ns AND f.until_ns
	JOIN main.pass_layer AS y USING (pass_id)) WHERE value IS NOT NULL;
SELECT printf('%s: said %s, by SQL %s', name, coalesce(said.value, 'nothing'), got.value) FROM got LEFT JOIN said USING (name)
	WHERE said.value IS NULL OR abs(said.value - got.value) > 1e-9 * abs(got.value)
UNION ALL SELECT name || ' is said and is not there' FROM said WHERE (name LIKE 'load.%' OR name LIKE 'layer.%') AND name NOT IN (SELECT name FROM got) LIMIT 9;
SELECT count(*) FROM got;
