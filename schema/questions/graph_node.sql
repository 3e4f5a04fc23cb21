-- SPDX-License-Identifier: MIT
--
-- One :node of a launch of a graph, by its :graph_launch_id.
SELECT k.*, g.graph, l.layer, s.grid_x, s.grid_y, s.grid_z, s.block_x, s.block_y, s.block_z
FROM kernel_event AS k JOIN graph_launch AS g USING (graph_launch_id) LEFT JOIN layer AS l USING (layer_id)
LEFT JOIN launch_shape AS s USING (launch_shape_id)
WHERE k.graph_launch_id = :graph_launch_id AND k.node = :node
