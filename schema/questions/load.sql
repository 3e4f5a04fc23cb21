-- SPDX-License-Identifier: MIT
--
-- Expert load by window of time, of a :recording and :model: the whole table, since it has no more
-- than half a million rows a recording. Windows are numbered in their order, load_windows has
-- their times; phases are those of expert_load.
-- @arrays 4000000
SELECT dense_rank() OVER (ORDER BY w.start_ns) - 1 AS "window:u16", w.layer_id AS "layer_id:u16",
	w.expert AS "expert:u16", w.prefill_tokens AS "prefill:u32", w.decode_tokens AS "decode:u32",
	w.verify_tokens AS "verify:u32", w.other_tokens AS "other:u32", w.padding_tokens AS "padding:u32"
FROM expert_load_window AS w
WHERE w.recording_id = :recording
	AND w.layer_id IN (SELECT layer_id FROM layer WHERE model_id = :model)
ORDER BY w.start_ns, w.layer_id, w.expert
