-- SPDX-License-Identifier: MIT
--
-- What a :rule ('oea', 'pruned', with options, or 'budget:N') would have saved in a :recording for
-- every k0, all layers and sizes of batches together unless :by_layer or :by_batch is 1; with :ranks
-- or :placement 'recorded' also the experts of the rank that has most. The columns mean what
-- 'moetrace oea --help' says; sums are divided here as there.
SELECT o.recording_id, o.model_id, o.layer, o.phase, o.max_batch_rows, o.k, o.k0,
	o.n_batches AS batches, round(1.0 * o.rows / o.n_batches, 2) AS rows,
	round(1.0 * o.active_before / o.n_batches, 3) AS active_before,
	round(1.0 * o.active_after / o.n_batches, 3) AS active_after,
	round(1.0 * o.active_after / nullif(o.active_before, 0), 4) AS ratio,
	round(o.ratio_low, 4) AS ratio_low, round(o.ratio_high, 4) AS ratio_high,
	round(o.uniform_before / o.n_batches, 3) AS uniform_before,
	round(o.uniform_after / o.n_batches, 3) AS uniform_after,
	round(o.lost_weight / nullif(o.rated_rows, 0), 6) AS lost_weight,
	round(o.p95_lost_weight, 4) AS p95,
	round(1.0 * o.swapped_entries / nullif(o.changed_rows * o.k, 0), 4) AS swapped,
	o.tokens_below_k AS below_k,
	round(1.0 * o.padding_active_experts / o.n_batches, 3) AS padding_active,
	round(o.retained_score / nullif(o.candidate_rows, 0), 5) AS retained,
	round(1.0 * o.truncated_rows / nullif(o.candidate_rows, 0), 4) AS truncated,
	round(1.0 * o.rank_active_before / o.n_batches, 3) AS max_rank_before,
	round(1.0 * o.rank_active_after / o.n_batches, 3) AS max_rank_after
FROM moe_oea(coalesce(:by_layer, 0), coalesce(:by_batch, 0), coalesce(:rule, 'oea'), :ranks,
	:placement) AS o
WHERE o.k0 IS NOT NULL AND (:recording IS NULL OR o.recording_id = :recording)
ORDER BY o.recording_id, o.model_id, o.layer_id, o.phase, o.max_batch_rows, o.k0
