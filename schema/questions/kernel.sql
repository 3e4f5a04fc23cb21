-- SPDX-License-Identifier: MIT
--
-- One operation of table kernel, by its :kernel_id.
SELECT k.*, l.layer, s.grid_x, s.grid_y, s.grid_z, s.block_x, s.block_y, s.block_z
FROM kernel_event AS k LEFT JOIN layer AS l USING (layer_id)
LEFT JOIN launch_shape AS s USING (launch_shape_id)
WHERE k.kernel_id = :kernel_id
