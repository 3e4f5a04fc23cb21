-- SPDX-License-Identifier: MIT
--
-- Every operation with its times: those that were recorded one by one, and the nodes of graph
-- launches. What has no time that can be true is left out (tables kernel and graph_launch have it,
-- with flags).
CREATE VIEW kernel_event AS
SELECT
	k.recording_id AS recording_id, -- INTEGER recording
	k.device_id AS device_id,       -- INTEGER where it ran
	k.stream AS stream,             -- INTEGER the device's stream; NULL: none, or not told
	k.start_ns AS start_ns,         -- INTEGER when it began, session clock
	k.end_ns - k.start_ns AS duration_ns, -- INTEGER length
	s.value AS name,                -- TEXT name
	s.role AS role,                 -- TEXT what it is for
	s.moves_data AS moves_data,     -- INTEGER 1: it moves data between ranks, 0: it computes
	k.pass_id AS pass_id,           -- INTEGER pass; NULL: none, or not known
	k.layer_id AS layer_id,         -- INTEGER layer's key; NULL: none, or not known
	k.known_by AS known_by,         -- INTEGER how these are known, as in kernel; NULL: they are not
	k.kernel_id AS kernel_id,       -- INTEGER row of table kernel; NULL: node of a graph
	NULL AS graph_launch_id,        -- INTEGER row of table graph_launch; NULL: of table kernel
	NULL AS node,                   -- INTEGER node of the graph; NULL: of table kernel
	k.launch_shape_id AS launch_shape_id, -- INTEGER grid and block; NULL: not told
	k.correlation AS correlation    -- INTEGER the source's number of the launch; NULL: none
FROM kernel AS k
JOIN string AS s ON s.string_id = k.name_id
WHERE k.flags = 0
UNION ALL
SELECT g.recording_id, g.device_id, g.stream,
	g.start_ns + b1.value + (b2.value << 8) + (b3.value << 16) + (b4.value << 24),
	b5.value + (b6.value << 8) + (b7.value << 16) + (b8.value << 24),
	s.value, s.role, s.moves_data, g.pass_id, n.layer_id,
	CASE WHEN g.pass_id IS NULL AND n.layer_id IS NULL THEN NULL
		WHEN g.known_by = 4 THEN 4
		ELSE coalesce(n.known_by, g.known_by) END,
	NULL, g.graph_launch_id, n.node, n.launch_shape_id, g.correlation
FROM graph_launch AS g
JOIN graph_node AS n ON n.graph = g.graph AND n.node < g.n_nodes
JOIN string AS s ON s.string_id = n.name_id
JOIN byte AS b1 ON b1.byte = substr(g.node_times, 8 * n.node + 1, 1)
JOIN byte AS b2 ON b2.byte = substr(g.node_times, 8 * n.node + 2, 1)
JOIN byte AS b3 ON b3.byte = substr(g.node_times, 8 * n.node + 3, 1)
JOIN byte AS b4 ON b4.byte = substr(g.node_times, 8 * n.node + 4, 1)
JOIN byte AS b5 ON b5.byte = substr(g.node_times, 8 * n.node + 5, 1)
JOIN byte AS b6 ON b6.byte = substr(g.node_times, 8 * n.node + 6, 1)
JOIN byte AS b7 ON b7.byte = substr(g.node_times, 8 * n.node + 7, 1)
JOIN byte AS b8 ON b8.byte = substr(g.node_times, 8 * n.node + 8, 1)
WHERE g.flags = 0 AND substr(g.node_times, 8 * n.node + 1, 8) <> x'ffffffffffffffff';
