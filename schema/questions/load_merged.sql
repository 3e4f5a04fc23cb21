-- SPDX-License-Identifier: MIT
--
-- As load.sql, with every :merge windows of time put together.
-- @arrays 4000000
SELECT w.number / :merge AS "window:u16", w.layer_id AS "layer_id:u16", w.expert AS "expert:u16",
	sum(w.prefill_tokens) AS "prefill:u32", sum(w.decode_tokens) AS "decode:u32",
	sum(w.verify_tokens) AS "verify:u32", sum(w.other_tokens) AS "other:u32",
	sum(w.padding_tokens) AS "padding:u32"
FROM (SELECT *, dense_rank() OVER (ORDER BY start_ns) - 1 AS number FROM expert_load_window
	WHERE recording_id = :recording
	AND layer_id IN (SELECT layer_id FROM layer WHERE model_id = :model)) AS w
GROUP BY 1, 2, 3 ORDER BY 1, 2, 3
