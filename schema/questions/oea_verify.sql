-- SPDX-License-Identifier: MIT
--
-- Whether each rule that a :recording ran under did anything, in one line, and if not, why: the first
-- reason that explains it. effect: acted, nothing or unknown. :rule is the name of a rule, of which
-- alone it is said, also where the trace has none of that name. Batches are those of passes that
-- decode, mixed ones included, but for "prefill"; n_lost is NULL where it is not known.
WITH r AS MATERIALIZED (SELECT * FROM moe_rule
	WHERE :recording IS NULL OR recording_id = :recording),
d AS MATERIALIZED (SELECT * FROM r WHERE phase NOT IN ('prefill', 'idle', 'dummy')),
named AS (
	SELECT rule_id, name FROM rule WHERE :rule IS NULL OR name = :rule
	UNION ALL
	SELECT 0, coalesce(:rule, '-') WHERE NOT EXISTS (SELECT 1 FROM rule
		WHERE :rule IS NULL OR name = :rule)),
-- Of a trace without a rule nobody asks; not to read it then saves half of the time.
lost AS MATERIALIZED (SELECT k0, sum(lost_entries) AS n_lost
	FROM (SELECT 1 FROM rule LIMIT 1) CROSS JOIN moe_oea(0)
	WHERE :recording IS NULL OR recording_id = :recording GROUP BY k0),
source AS (SELECT routing_source FROM recording
	WHERE (:recording IS NULL OR recording_id = :recording)
	AND routing_source <> 'model' AND routing_source NOT LIKE 'replay%' LIMIT 1),
keyed AS (SELECT *, iif(instr(name, 'k0=') > 0,
	CAST(substr(name, instr(name, 'k0=') + 3) AS INTEGER), 0) AS k0 FROM named),
facts AS (
	SELECT n.rule_id, n.name, n.k0,
		(SELECT total(n_batches) FROM r WHERE rule_id = n.rule_id AND phase = 'prefill')
			AS n_prefill,
		(SELECT total(n_batches) FROM r WHERE rule_id IS NOT n.rule_id AND phase = 'prefill')
			AS n_other_prefill,
		total(m.n_batches) AS n_batches, total(m.one_row_batches) AS n_one_row,
		total(m.rows) AS n_rows, total(m.known_rows) AS n_known,
		total(m.changed_rows) AS n_changed, total(m.equal_rows) AS n_equal,
		total(m.swapped_entries) AS n_swapped, total(m.active_before) AS n_active_before,
		total(m.active_after) AS n_active_after, count(DISTINCT m.layer_id) AS n_layers,
		(SELECT count(*) FROM layer WHERE model_id IN (SELECT model_id FROM r)) AS n_model_layers,
		count(DISTINCT iif((SELECT kind FROM layer AS l WHERE l.layer_id = m.layer_id) = 'hash',
			m.layer_id, NULL)) AS n_hash,
		min(m.layer) AS first_layer,
		(SELECT total(n_batches) FROM d WHERE rule_id IS NOT n.rule_id) AS n_untouched,
		(SELECT max(top_k - n_shared_slots) FROM layer WHERE layer_id IN (SELECT layer_id FROM d
			WHERE d.rule_id = n.rule_id)) AS k,
		(SELECT max(n_experts) FROM layer WHERE layer_id IN (SELECT layer_id FROM d
			WHERE d.rule_id = n.rule_id)) AS n_experts,
		(SELECT n_lost FROM lost WHERE lost.k0 = n.k0) AS n_lost,
		(SELECT max(pl.n_rows) FROM pass_layer AS pl JOIN topk AS t USING (topk_id)
			WHERE t.rule_id = n.rule_id) AS max_rows,
		(SELECT routing_source FROM source) AS source
	FROM keyed AS n LEFT JOIN d AS m ON m.rule_id = n.rule_id GROUP BY n.rule_id, n.name),
said AS (
	SELECT *, CASE
		WHEN n_batches = 0 AND n_prefill = 0 AND n_untouched = 0 AND n_other_prefill > 0 THEN
			printf('prefill only: no pass that decodes was recorded, and a rule leaves the %d '
				|| 'batches of prefill alone', n_other_prefill)
		WHEN n_batches = 0 AND n_prefill = 0 THEN
			'never called: no layer of any pass was recorded under it'
		WHEN n_batches = 0 THEN printf('prefill only: %d batches of prefill ran under it, and none '
			|| 'that decodes', n_prefill)
		WHEN n_layers > 0 AND n_layers = n_hash THEN printf('wrong layers: %d layer(s) ran under it, '
			|| 'and all choose by token id', n_layers)
		WHEN n_changed = 0 AND n_known > 0 AND n_layers < n_model_layers THEN
			printf('wrong layers: %d of %d layers ran under it (the first is layer %d), without a '
				|| 'change', n_layers, n_model_layers, first_layer)
		WHEN source IS NOT NULL THEN printf('simulated routing: choices are %s, and no row prefers '
			|| 'one expert to another', source)
		WHEN n_equal = n_rows AND n_rows > 0 THEN printf('equal weights: all weights of each of %d '
			|| 'rows are the same, as of simulated routing', n_rows)
		WHEN n_one_row = n_batches THEN printf('batch of one: each of %d batches had one row, so that '
			|| 'rows share nothing and are only cut to k0', n_batches)
		WHEN n_changed > 0 OR n_known = 0 THEN NULL
		WHEN k0 >= k AND k > 0 THEN printf('k0 is %d and rows choose %d experts: nothing is cut',
			k0, k)
		WHEN k0 > 0 AND n_lost = 0 THEN printf('union saturated: up to %d rows x k0 = %d cover what '
			|| 'all rows chose of %d experts: nothing is left out', max_rows, k0, n_experts)
		ELSE printf('graph captured before it was on: the batches are marked with the rule and hold '
			|| 'the router''s own choice, where it would have left out %d entries',
			coalesce(n_lost, 0)) END AS why_nothing,
		(SELECT group_concat(size, ', ') FROM (SELECT p.n_rows + p.padding_rows AS size
			FROM pass AS p JOIN pass_layer AS pl USING (pass_id) JOIN topk AS t USING (topk_id)
			WHERE p.phase = 'decode' AND (:recording IS NULL OR p.recording_id = :recording)
			GROUP BY size HAVING max(t.rule_id IS facts.rule_id) = 0 ORDER BY size LIMIT 8)) AS sizes
	FROM facts)
SELECT name AS rule,
	CASE WHEN why_nothing IS NOT NULL THEN 'nothing' WHEN n_known > 0 THEN 'acted' ELSE 'unknown' END
		AS effect,
	coalesce(why_nothing, iif(n_known = 0,
		'unknown: the router''s own choice was not recorded beside it (pass base_ids)',
		printf('changed %.1f %% of %d rows in %d of %d layers: active experts %.1f -> %.1f, %.2f '
			|| 'experts a row swapped', 100.0 * n_changed / n_known, n_known, n_layers, n_model_layers,
			n_active_before / n_batches, n_active_after / n_batches, n_swapped / n_known))
		|| coalesce('; batches of ' || sizes || ' row(s) never ran under it: graphs of these sizes were '
			|| 'captured before it was on, or the runtime leaves them out', '')) AS why
FROM said ORDER BY rule_id
