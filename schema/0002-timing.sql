-- SPDX-License-Identifier: MIT
--
-- The tables of what routing cost: kernels, graphs, ranges, power, and what became of each source
-- of them. They are empty where nobody asked for such a source; what a source could not tell is
-- NULL, and why it is silent is in table collector.

-- A text that many rows name by its key.
CREATE TABLE string (
	string_id INTEGER PRIMARY KEY, -- key
	value TEXT NOT NULL,           -- the text
	role TEXT,                     -- what kernels of this name do: 'gate' (router logits), 'topk' (the choice), 'align' (grouping by expert), 'dispatch', 'experts', 'combine', 'shared', 'attention', 'norm', 'embed', 'head', 'collective', 'copy' or 'other'; NULL: no kernel has this name
	moves_data INTEGER             -- 1: they move data between ranks, 0: they compute; NULL: no kernel has this name
);

-- The shape that kernels were launched in, as far as their source tells.
CREATE TABLE launch_shape (
	launch_shape_id INTEGER PRIMARY KEY, -- key
	grid_x INTEGER NOT NULL,    -- blocks
	grid_y INTEGER NOT NULL,    -- blocks
	grid_z INTEGER NOT NULL,    -- blocks
	block_x INTEGER NOT NULL,   -- threads
	block_y INTEGER NOT NULL,   -- threads
	block_z INTEGER NOT NULL,   -- threads
	registers INTEGER,          -- registers a thread; NULL: not told
	static_shared_bytes INTEGER, -- shared memory of the kernel's own; NULL: not told
	dynamic_shared_bytes INTEGER -- shared memory asked for at the launch; NULL: not told
);

-- What a source of timings or power was in a recording: a row for each one that was asked for.
CREATE TABLE collector (
	recording_id INTEGER NOT NULL REFERENCES recording(recording_id), -- its recording
	name TEXT NOT NULL,         -- 'host', 'rapl', 'nvml', 'nvtx', 'cupti' or 'null' (what a runtime times itself needs none)
	state TEXT NOT NULL,        -- 'on', 'absent' (nothing of the kind on this machine), 'denied' (no permission), 'busy' (another tool has it), 'unsupported' (there, but it does not tell), 'failed' (it ended with an error) or 'hung' (it did not answer and was cut off, or its call had lasted for 1.5 s when the recording ended)
	mode TEXT,                  -- how 'cupti' was asked: 'off', 'graph', 'eager', 'kernel', or kernels of some passes, 'kernel:every=N', 'kernel:per_s=N' or 'kernel:window=START+LENGTH'; NULL: it has one way, or failed or hung before it could say (then there are no rows of it)
	version TEXT,               -- version of the library behind it; NULL: none, or not told
	reason TEXT,                -- why it is not on, or what it lacks, and what to do; NULL: nothing to say
	n_rows INTEGER NOT NULL,    -- rows that it brought
	n_dropped INTEGER,          -- records that were lost before they reached the file; NULL: unknown, as it is of 'hung', of who was not asked, or not to the end, and of whose call was under way when a rotation, a dump or the file limit ended the recording, and for 0.1 s more
	n_invalid INTEGER NOT NULL, -- rows with times that cannot be true: with flags, or with nodes that are untimed
	n_calls INTEGER,            -- times that it was asked; in flight mode since what was kept begins; NULL: flight mode kept more than the last 2048 calls
	calls_ns INTEGER,           -- how long that took, together; NULL: as n_calls
	longest_call_ns INTEGER,    -- the longest one; NULL: as n_calls
	interval_ns INTEGER,        -- time between two calls in the end (it backs off when calls are slow); NULL: 'nvtx', which has nothing to read
	PRIMARY KEY (recording_id, name)
) WITHOUT ROWID;

-- An operation that ran on a device: a kernel of a GPU, or an operation of a runtime that
-- computes on the host. Kernels of a launch of a whole graph are in graph_launch; view
-- kernel_event has both.
CREATE TABLE kernel (
	kernel_id INTEGER PRIMARY KEY, -- key
	recording_id INTEGER NOT NULL REFERENCES recording(recording_id), -- its recording
	device_id INTEGER NOT NULL REFERENCES device(device_id), -- where it ran
	stream INTEGER,                -- the device's stream; NULL: the device has none, or not told
	name_id INTEGER NOT NULL REFERENCES string(string_id), -- its name
	start_ns INTEGER,              -- when it began; NULL: not told, see flags
	end_ns INTEGER,                -- when it ended; NULL: not told, see flags
	pass_id INTEGER REFERENCES pass(pass_id), -- its pass; NULL: none, or not known
	layer_id INTEGER REFERENCES layer(layer_id), -- its layer; NULL: none (embedding, head), or not known
	known_by INTEGER,              -- how pass and layer are known: 0 the runtime said so, 1 a correlation id of the launch, 4 its time; NULL: they are not
	flags INTEGER NOT NULL,        -- what is wrong with the times, added up: 1 not stamped, 2 ends before it begins, 4 outside of its recording's time (what the runtime told: of its pass's), 8 begins before its launch, 16 had not ended when it was taken, 32 of a launch of a graph: nodes of it have ends that are those of a later launch, or may be, or it is said to run still when the second one after it on its stream begins, or comes behind such ones and has no second one after it; 0: nothing
	launch_shape_id INTEGER REFERENCES launch_shape(launch_shape_id), -- grid and block; NULL: not told
	correlation INTEGER            -- the source's number of the launch; NULL: none
);

-- A node of a graph of kernels that is launched as one, as it was learnt from the first launch of it that is
-- in this file, and when it was captured. Every graph has a launch.
CREATE TABLE graph_node (
	graph INTEGER NOT NULL,        -- number of the graph in this file, from 1
	node INTEGER NOT NULL,         -- its number in the graph, in the order of graph_launch.node_times, from 0
	name_id INTEGER NOT NULL REFERENCES string(string_id), -- kernel's name
	layer_id INTEGER REFERENCES layer(layer_id), -- its layer; NULL: none, or not known
	known_by INTEGER,              -- how the layer is known: 2 the runtime said so when the node was captured, 3 the order of kernels in the graph; NULL: it is not
	launch_shape_id INTEGER REFERENCES launch_shape(launch_shape_id), -- grid and block; NULL: not told
	source_node INTEGER,           -- the source's number of the node; NULL: none
	branch INTEGER,                -- its stream within the graph, from 0 without gaps: nodes with the same one run one after the other; NULL, then in all nodes of the graph: not known, or not the same in all launches
	PRIMARY KEY (graph, node)
) WITHOUT ROWID;

-- A launch of a graph.
CREATE TABLE graph_launch (
	graph_launch_id INTEGER PRIMARY KEY, -- key
	recording_id INTEGER NOT NULL REFERENCES recording(recording_id), -- its recording
	device_id INTEGER NOT NULL REFERENCES device(device_id), -- where it ran
	stream INTEGER,                -- the device's stream; NULL: not told
	graph INTEGER,                 -- the graph in graph_node; NULL: its nodes are not known
	start_ns INTEGER,              -- when it began; NULL: not told, see flags
	end_ns INTEGER,                -- when it ended; NULL: not told, see flags
	pass_id INTEGER REFERENCES pass(pass_id), -- its pass; NULL: none, or not known
	known_by INTEGER,              -- how the pass is known: 1 a correlation id of the launch, 4 its time; NULL: it is not
	flags INTEGER NOT NULL,        -- what is wrong with the times, as in kernel
	n_nodes INTEGER,               -- nodes in node_times; NULL: launches alone were recorded
	n_untimed INTEGER,             -- nodes of them whose times are not known, or cannot be true; NULL: launches alone were recorded
	node_times BLOB,               -- two u32 a node: start after start_ns and length in ns, both 4294967295 where they are not known; NULL: launches alone were recorded
	correlation INTEGER            -- the source's number of the launch; NULL: none
);

-- Time that CUPTI itself took from the program's threads while it recorded, as far as it says.
CREATE TABLE collector_overhead (
	collector_overhead_id INTEGER PRIMARY KEY, -- key
	recording_id INTEGER NOT NULL REFERENCES recording(recording_id), -- its recording
	kind TEXT NOT NULL,         -- 'buffer_flush', 'instrumentation', 'resource' (memory and tables), 'buffer_request', 'command_buffer_full' (launches waited for room on the device), 'module_loading', 'function_loading', 'compiler' or 'other'
	start_ns INTEGER NOT NULL,  -- when it began
	end_ns INTEGER NOT NULL,    -- when it ended
	correlation INTEGER         -- the launch that it held up, as in kernel; NULL: none, or not told
);

-- A collective between ranks that a pass took part in, as the runtime told of it, on this rank's clock.
-- What its kernels took on a GPU is in kernel and graph_launch, whose names say which of them move data
-- (string.moves_data); view overlap is of those. What a layer's rows sent to each rank is in dispatch.
CREATE TABLE collective (
	collective_id INTEGER PRIMARY KEY, -- key
	recording_id INTEGER NOT NULL REFERENCES recording(recording_id), -- its recording
	pass_id INTEGER NOT NULL REFERENCES pass(pass_id), -- its pass
	layer_id INTEGER REFERENCES layer(layer_id), -- its layer; NULL: none
	kind TEXT NOT NULL,           -- 'all_reduce', 'all_gather', 'reduce_scatter', 'all_to_all', 'broadcast', 'reduce', 'send', 'receive', 'barrier', 'dispatch' (rows go to the ranks of their experts), 'combine' (what the experts made of them comes back) or 'other'
	start_ns INTEGER NOT NULL,    -- when it began on this rank; that may be before its pass
	end_ns INTEGER NOT NULL,      -- when it ended there: in its pass, so neither before that begins nor after it
	bytes INTEGER,                -- that this rank handed in; NULL: not told
	n_ranks INTEGER,              -- that took part, with this one; NULL: not told
	name_id INTEGER REFERENCES string(string_id), -- what it is for, or its communicator; NULL: not told
	algorithm_id INTEGER REFERENCES string(string_id), -- e.g. of 'ring'; NULL: not told
	protocol_id INTEGER REFERENCES string(string_id), -- e.g. of 'LL128'; NULL: not told
	n_channels INTEGER            -- channels that it took; NULL: not told
);

-- A piece of time that the runtime gave a name to.
CREATE TABLE range (
	range_id INTEGER PRIMARY KEY, -- key; of one thread it ascends in the order in which they ended, of several nearly so
	recording_id INTEGER NOT NULL REFERENCES recording(recording_id), -- its recording
	name_id INTEGER NOT NULL REFERENCES string(string_id), -- its name, which no kernel has
	thread INTEGER NOT NULL,      -- number of the thread that ended it, among those of this file
	start_ns INTEGER NOT NULL,    -- when it began
	end_ns INTEGER NOT NULL       -- when it ended
);

-- A reading of power and what belongs to it.
CREATE TABLE power_sample (
	power_sample_id INTEGER PRIMARY KEY, -- key
	recording_id INTEGER NOT NULL REFERENCES recording(recording_id), -- its recording
	device_id INTEGER NOT NULL REFERENCES device(device_id), -- what draws the power
	domain TEXT NOT NULL,         -- part of it: of a GPU 'gpu', 'module' or 'memory', of the host a domain of powercap such as 'package-0', which has energy_mj and cost_ns alone
	source TEXT NOT NULL,         -- 'poll' (asked by the recorder) or 'buffer' (samples of domain 'gpu' that the driver had kept; they have instant_mw alone)
	time_ns INTEGER NOT NULL,     -- when: of a poll the middle of the call
	instant_mw INTEGER,           -- power at that moment; NULL: not told
	average_mw INTEGER,           -- power over the last second or so, as the driver defines it; NULL: not told
	energy_mj INTEGER,            -- energy counter: only differences mean something; NULL: not told
	limit_mw INTEGER,             -- enforced power limit; NULL: not told
	throttle_reasons INTEGER,     -- the driver's bits for why clocks are held down; NULL: not told, or of a part of a GPU
	processor_mhz INTEGER,        -- clock of the processors; NULL: not told, or of a part of a GPU
	memory_mhz INTEGER,           -- clock of the memory; NULL: not told, or of a part of a GPU
	temperature_c INTEGER,        -- temperature in degrees Celsius; NULL: not told, or of a part of a GPU
	cost_ns INTEGER               -- what the reading itself took; NULL: it came with another one ('module', 'memory', 'buffer')
);

-- How a device is connected: a row at the beginning of a recording and at every change.
CREATE TABLE device_link (
	device_link_id INTEGER PRIMARY KEY, -- key
	recording_id INTEGER NOT NULL REFERENCES recording(recording_id), -- its recording
	device_id INTEGER NOT NULL REFERENCES device(device_id), -- the device
	time_ns INTEGER NOT NULL,     -- when it was seen to be so
	pcie_generation INTEGER,      -- PCIe generation in force, from 1; NULL: not told, or none that there is
	pcie_width INTEGER,           -- PCIe lanes in force: 1, 2, 4, 8, 12, 16 or 32; NULL: not told, or none that there is
	nvlinks INTEGER,              -- NVLink links that it has; NULL: not told
	active_nvlinks INTEGER        -- those that are up; NULL: not told
);

-- What the process itself took, seen by the host collector.
CREATE TABLE host_sample (
	host_sample_id INTEGER PRIMARY KEY, -- key
	recording_id INTEGER NOT NULL REFERENCES recording(recording_id), -- its recording
	time_ns INTEGER NOT NULL,     -- when
	process_cpu_ns INTEGER NOT NULL, -- processor time of the process since it began
	recorder_cpu_ns INTEGER,      -- of it, that of the recorder's threads; NULL: threads are not readable
	n_threads INTEGER,            -- threads of the process; NULL: they are not readable
	resident_bytes INTEGER        -- memory of the process that is resident; NULL: not readable
);

-- Another clock against the session's, about once a second.
CREATE TABLE device_clock (
	device_clock_id INTEGER PRIMARY KEY, -- key
	process_id INTEGER NOT NULL REFERENCES process(process_id), -- process whose clock it is compared with
	device_id INTEGER REFERENCES device(device_id), -- whose clock it is; NULL: a clock of the host
	clock TEXT NOT NULL,          -- 'cupti' (of the host) or 'gpu_timer' (of a GPU)
	session_ns INTEGER NOT NULL,  -- the session's clock
	clock_ns INTEGER NOT NULL,    -- the other one
	uncertainty_ns INTEGER NOT NULL -- the readings lie within this of each other
);
