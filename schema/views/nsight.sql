-- SPDX-License-Identifier: MIT
--
-- The texts that the views below name by number. These views have the names and columns of an
-- export of Nsight Systems to SQLite, as far as a trace knows them, so that queries written for
-- those run here. What a trace does not know is NULL. Order by start: rows come in no order.
CREATE VIEW StringIds AS
SELECT
	s.string_id AS id, -- INTEGER key
	s.value AS value   -- TEXT the text
FROM string AS s;

-- The kernels, nodes of graphs among them. deviceId counts GPUs from 0; what ran on the host has -1.
CREATE VIEW CUPTI_ACTIVITY_KIND_KERNEL AS
SELECT
	k.start_ns AS start,                 -- INTEGER ns, session clock
	k.start_ns + k.duration_ns AS "end", -- INTEGER ns, session clock
	CASE d.kind WHEN 'host' THEN -1 ELSE (SELECT count(*) FROM device AS e
		WHERE e.kind = 'cuda' AND e.device_id < d.device_id) END AS deviceId, -- INTEGER number of the GPU
	coalesce(k.stream, 0) AS streamId,   -- INTEGER stream
	coalesce(k.correlation, 0) AS correlationId, -- INTEGER launch; 0: none
	p.pid * 16777216 AS globalPid,       -- INTEGER process, as packed there
	s.string_id AS demangledName,        -- INTEGER in StringIds
	s.string_id AS shortName,            -- INTEGER in StringIds
	s.string_id AS mangledName,          -- INTEGER in StringIds
	l.grid_x AS gridX,                   -- INTEGER blocks; NULL: not told
	l.grid_y AS gridY,                   -- INTEGER blocks; NULL: not told
	l.grid_z AS gridZ,                   -- INTEGER blocks; NULL: not told
	l.block_x AS blockX,                 -- INTEGER threads; NULL: not told
	l.block_y AS blockY,                 -- INTEGER threads; NULL: not told
	l.block_z AS blockZ,                 -- INTEGER threads; NULL: not told
	l.registers AS registersPerThread,   -- INTEGER registers; NULL: not told
	l.static_shared_bytes AS staticSharedMemory,  -- INTEGER bytes; NULL: not told
	l.dynamic_shared_bytes AS dynamicSharedMemory, -- INTEGER bytes; NULL: not told
	k.node AS graphNodeId                -- INTEGER node of a graph; NULL: launched alone
FROM kernel_event AS k
JOIN device AS d ON d.device_id = k.device_id
JOIN process AS p ON p.process_id = d.process_id
JOIN string AS s ON s.value = k.name AND s.role = k.role AND s.moves_data = k.moves_data
LEFT JOIN launch_shape AS l ON l.launch_shape_id = k.launch_shape_id;

-- Graphs that were recorded as a whole, without their nodes.
CREATE VIEW CUPTI_ACTIVITY_KIND_GRAPH_TRACE AS
SELECT
	g.start_ns AS start,               -- INTEGER ns, session clock
	g.end_ns AS "end",                 -- INTEGER ns, session clock
	(SELECT count(*) FROM device AS e WHERE e.kind = 'cuda'
		AND e.device_id < g.device_id) AS deviceId, -- INTEGER number of the GPU
	coalesce(g.stream, 0) AS streamId, -- INTEGER stream
	coalesce(g.correlation, 0) AS correlationId, -- INTEGER launch; 0: none
	g.graph AS graphId                 -- INTEGER graph; NULL: not known
FROM graph_launch AS g WHERE g.flags = 0 AND g.n_nodes IS NULL;

-- What recording itself took, by CUPTI's own account.
CREATE VIEW PROFILER_OVERHEAD AS
SELECT
	o.start_ns AS start,      -- INTEGER ns, session clock
	o.end_ns AS "end",        -- INTEGER ns, session clock
	(SELECT p.pid FROM process AS p ORDER BY p.process_id LIMIT 1) * 16777216
		AS globalTid,     -- INTEGER process, as packed there; the thread is not known
	o.correlation AS correlationId, -- INTEGER launch; NULL: none, or not told
	o.kind AS name            -- TEXT what it was
FROM collector_overhead AS o;

-- The ranges that the runtime named, and the passes.
CREATE VIEW NVTX_EVENTS AS
SELECT
	r.start_ns AS start,    -- INTEGER ns, session clock
	r.end_ns AS "end",      -- INTEGER ns, session clock
	59 AS eventType,        -- INTEGER a range of push and pop
	s.value AS text,        -- TEXT its name
	r.name_id AS textId,    -- INTEGER in StringIds
	(SELECT p.pid FROM process AS p ORDER BY p.process_id LIMIT 1) * 16777216 + r.thread
		AS globalTid,   -- INTEGER process and thread, as packed there
	0 AS domainId           -- INTEGER domain
FROM range AS r JOIN string AS s ON s.string_id = r.name_id
UNION ALL
SELECT p.begin_ns, p.end_ns, 59, 'pass ' || p.phase, NULL,
	(SELECT q.pid FROM process AS q ORDER BY q.process_id LIMIT 1) * 16777216, 0
FROM pass AS p WHERE p.end_ns IS NOT NULL;

-- The GPUs.
CREATE VIEW TARGET_INFO_GPU AS
SELECT
	(SELECT count(*) FROM device AS e WHERE e.kind = 'cuda'
		AND e.device_id < d.device_id) AS id, -- INTEGER number of the GPU
	d.name AS name, -- TEXT model name; NULL: not readable
	d.uuid AS uuid  -- TEXT the vendor's unique id; NULL: not known
FROM device AS d WHERE d.kind = 'cuda';

-- The version of the export that these views look like.
CREATE VIEW META_DATA_EXPORT AS
SELECT
	column1 AS name, -- TEXT fact
	column2 AS value -- TEXT value
FROM (VALUES ('EXPORT_SCHEMA_VERSION', '3.25.0'), ('EXPORT_PRODUCT_NAME', 'moetrace'));

-- What the session's clock counts from.
CREATE VIEW TARGET_INFO_SESSION_START_TIME AS
SELECT
	c.realtime_ns - c.session_ns AS utcEpochNs, -- INTEGER ns since 1970 when the session's clock was 0
	c.monotonic_ns - c.session_ns AS systemClockNs -- INTEGER CLOCK_MONOTONIC then
FROM clock_snapshot AS c ORDER BY c.clock_snapshot_id LIMIT 1;
