-- SPDX-License-Identifier: MIT
--
-- How alike a :request and an :other one choose, by layer, and in all layers together (layer NULL).
SELECT model_id, layer, choices_a, choices_b, overlap, chance_overlap, jaccard, cosine
FROM moe_similarity(:request, :other) ORDER BY model_id, layer IS NULL, layer
