-- SPDX-License-Identifier: MIT
--
-- Balance of every layer of a :recording.
SELECT b.*, l.top_k FROM layer_balance AS b JOIN layer AS l USING (layer_id)
WHERE b.recording_id = :recording ORDER BY b.model_id, b.layer
