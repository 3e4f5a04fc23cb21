-- SPDX-License-Identifier: MIT
--
-- What is in no figure of the rule, with the reason, and what the rules of a recording did.

-- @section left_out
SELECT recording_id, sum(n_batches) AS batches, CASE refusal
	WHEN 'hash' THEN 'experts are chosen by token id: no row prefers one'
	WHEN 'order' THEN 'the order of the choice is not known: pass ids in the router''s order, or '
		|| 'weights that tell it'
	WHEN 'equal' THEN 'all weights of each row are equal: ranks mean nothing'
	WHEN 'base' THEN 'a rule changed the choice and the router''s own was not recorded: pass base_ids'
	WHEN 'sampled' THEN 'rows of requests that are not sampled are missing'
	ELSE 'more entries a row than are looked at' END AS left_out
FROM moe_oea(0) WHERE refusal IS NOT NULL AND (:recording IS NULL OR recording_id = :recording)
GROUP BY recording_id, refusal
UNION ALL
SELECT recording_id, NULL, 'choices are ' || routing_source || ', not a router''s: what rows prefer '
	|| 'means nothing'
FROM recording WHERE routing_source <> 'model' AND routing_source NOT LIKE 'replay%'
	AND (:recording IS NULL OR recording_id = :recording)
ORDER BY 1
-- @section rules
SELECT r.recording_id, r.model_id, (SELECT u.name FROM rule AS u WHERE u.rule_id = r.rule_id) AS rule,
	r.phase, sum(r.n_batches) AS n_batches, sum(r.one_row_batches) AS one_row_batches,
	sum(r.known_rows) AS known_rows, sum(r.changed_rows) AS changed_rows,
	sum(r.swapped_entries) AS swapped_entries, sum(r.active_before) AS active_before,
	sum(r.active_after) AS active_after, sum(r.equal_rows) AS equal_rows
FROM moe_rule AS r
WHERE r.rule_id IS NOT NULL AND (:recording IS NULL OR r.recording_id = :recording)
GROUP BY r.recording_id, r.model_id, r.rule_id, r.phase
