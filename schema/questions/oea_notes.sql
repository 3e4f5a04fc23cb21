-- SPDX-License-Identifier: MIT
--
-- What is in no figure of a :rule (NULL: oea), and what to know about those that are: of a :recording;
-- with :fits what the fit of times, by layer where :by_layer is 1, cannot tell; with :bandwidth what a
-- bandwidth cannot; with :margin what 'expand' cannot.

-- @section left_out
WITH r AS (SELECT * FROM recording WHERE :recording IS NULL OR recording_id = :recording),
p AS (SELECT * FROM pass WHERE recording_id IN (SELECT recording_id FROM r)),
o AS MATERIALIZED (SELECT recording_id, n_batches, refusal, k0, k, rows, active_before
	FROM moe_oea(0, 0, coalesce(:rule, 'oea')) WHERE :recording IS NULL OR recording_id = :recording)
SELECT recording_id, sum(n_batches) AS batches, CASE refusal
	WHEN 'hash' THEN 'experts chosen by token id: no row prefers one'
	WHEN 'order' THEN 'the order of the choice is not known: pass ids in the router''s order, or '
		|| 'weights that tell it'
	WHEN 'equal' THEN 'all weights of each row are equal: ranks mean nothing'
	WHEN 'base' THEN 'a rule changed the choice and the router''s own was not recorded: pass base_ids'
	WHEN 'scores' THEN 'p is a share of the router''s whole score, and weights or candidates of a '
		|| 'softmax over all experts, which tell it, are not there'
	WHEN 'sampled' THEN 'rows of requests that are not sampled are missing'
	ELSE 'more entries a row than are looked at' END AS left_out
FROM o WHERE refusal IS NOT NULL GROUP BY recording_id, refusal
UNION ALL
SELECT recording_id, count(*), 'batches of ' || phase || ' passes: the rule leaves them alone'
FROM p JOIN pass_layer AS pl USING (pass_id)
WHERE phase IN ('prefill', 'idle', 'dummy') AND pl.state = 0 GROUP BY recording_id, phase
UNION ALL
SELECT recording_id, count(*), CASE state
	WHEN 1 THEN 'layers that nobody wrote' || coalesce(': ' || (SELECT message FROM diagnostic
		WHERE severity <> 'info' AND message LIKE '%physical%' LIMIT 1), '')
	WHEN 2 THEN 'layers that the recorder lost' ELSE 'layers of which counts alone were told' END
FROM p JOIN pass_layer AS pl USING (pass_id)
WHERE pl.state > 0 AND phase NOT IN ('prefill', 'idle', 'dummy') GROUP BY recording_id, state
UNION ALL
SELECT recording_id, NULL, 'note: choices are ' || routing_source || ', not a router''s: what rows '
	|| 'prefer means nothing'
FROM r WHERE routing_source NOT IN ('model') AND routing_source NOT LIKE 'replay%'
UNION ALL
SELECT r.recording_id, NULL, 'note: one of ' || dp_size || ' data-parallel ranks: a layer that '
	|| 'gathers their rows touches more experts'
FROM r JOIN process USING (process_id) WHERE dp_size > 1
UNION ALL
SELECT NULL, NULL, printf('note: layer times of model %d%s do not grow with active experts%s',
	model_id, coalesce(', layer ' || layer, ''), iif(b_ns > 0, printf(' for sure: what is predicted '
	|| 'may be chance: b is %.3g us, from %.3g to %.3g', b_ns / 1e3, b_low_ns / 1e3, b_high_ns / 1e3),
	printf(': b is %.3g us, so that nothing is predicted', b_ns / 1e3)))
FROM moe_fit(coalesce(:by_layer, 0)) WHERE :fits AND (b_ns <= 0 OR b_low_ns <= 0)
UNION ALL
SELECT NULL, NULL, printf('note: no time of layers was recorded that tells a line of model %d%s, so '
	|| 'that nothing is predicted', model_id, iif(:by_layer, ', layer ' || layer, ''))
FROM (SELECT DISTINCT l.model_id, iif(:by_layer, l.layer_id, NULL) AS layer_id,
		iif(:by_layer, l.layer, NULL) AS layer
	FROM layer AS l WHERE model_id IN (SELECT model_id FROM p)) AS l
WHERE :fits AND NOT EXISTS (SELECT 1 FROM moe_fit(coalesce(:by_layer, 0)) AS f
	WHERE b_ns IS NOT NULL AND f.model_id = l.model_id AND f.layer_id IS l.layer_id)
UNION ALL
SELECT NULL, NULL, 'note: expert_weight_bytes is not known, so a bandwidth tells no time'
WHERE :bandwidth AND NOT EXISTS (SELECT 1 FROM layer WHERE expert_weight_bytes > 0)
UNION ALL
SELECT recording_id, NULL, printf('note: of %d rows the further candidates, or the scores that they '
	|| 'are compared by, are not known', sum(rows - known_rows))
FROM moe_expand(coalesce(:margin, 0))
WHERE :margin IS NOT NULL AND (:recording IS NULL OR recording_id = :recording)
GROUP BY recording_id HAVING sum(rows) > sum(known_rows)
UNION ALL
SELECT recording_id, NULL, printf('note: %d rows of prefill in mixed batches keep their experts, and '
	|| 'are not in rows', sum(kept_rows))
FROM moe_expand(coalesce(:margin, 0))
WHERE :margin IS NOT NULL AND (:recording IS NULL OR recording_id = :recording)
GROUP BY recording_id HAVING sum(kept_rows) > 0
UNION ALL
SELECT recording_id, NULL, printf('note: an active expert has %.0f rows in the mean: far above a '
	|| 'hundred a layer is not bound by memory, and its time no line in active experts',
	1.0 * sum(rows * k) / sum(active_before))
FROM o WHERE k0 = 1 GROUP BY recording_id HAVING sum(rows * k) > 100 * sum(active_before)
UNION ALL
SELECT r.recording_id, NULL, iif(:rule GLOB '*groups=any*', 'note: rows take experts outside of the '
	|| 'groups that they had kept, which the model was never trained on', 'note: experts are grouped, '
	|| 'and rows take what is of the groups that they had kept: from recorded candidates alone '
	|| '(retained), else it is not known')
FROM r JOIN process USING (process_id)
WHERE EXISTS (SELECT 1 FROM layer WHERE n_groups > 1 AND model_id IN (SELECT model_id FROM p))
UNION ALL
SELECT r.recording_id, NULL, 'note: a bias acts on the choice: the order is '
	|| iif(:rule GLOB '*order=weight*', 'that of the weights', 'that of the choice, weights and shares '
	|| 'are without it')
FROM r WHERE EXISTS (SELECT 1 FROM layer WHERE has_correction_bias
	AND model_id IN (SELECT model_id FROM p))
ORDER BY 1
-- @section rules
SELECT r.recording_id, r.model_id, (SELECT u.name FROM rule AS u WHERE u.rule_id = r.rule_id) AS rule,
	r.phase, sum(r.n_batches) AS n_batches, sum(r.one_row_batches) AS one_row_batches,
	sum(r.known_rows) AS known_rows, sum(r.changed_rows) AS changed_rows,
	sum(r.swapped_entries) AS swapped_entries, sum(r.active_before) AS active_before,
	sum(r.active_after) AS active_after, sum(r.equal_rows) AS equal_rows
FROM (SELECT 1 FROM rule LIMIT 1) CROSS JOIN moe_rule AS r -- without a rule nothing is read
WHERE r.rule_id IS NOT NULL AND (:recording IS NULL OR r.recording_id = :recording)
GROUP BY r.recording_id, r.model_id, r.rule_id, r.phase
