-- SPDX-License-Identifier: MIT
--
-- The tables of a trace: what was recorded, and nothing that can be recomputed.
--
-- Rules that hold for every table: columns are INTEGER, REAL, TEXT or BLOB; NULL means
-- unknown or not applicable, as the column says, and never stands for zero. Points in time
-- (_ns) are nanoseconds of the session's clock: CLOCK_MONOTONIC minus its value when the
-- session was opened; the calendar's time of t is realtime_ns + (t - session_ns) of a
-- clock_snapshot near it. Durations are named so. Blobs are little-endian and
-- unpadded. layer, expert, position, attempt, row and topk_rank count from 0. Keys named
-- after their table (pass_id in pass) count from 1 and belong to this file alone.
-- The views in schema/views are the comfortable way to read these tables.

PRAGMA application_id = 1299137908; -- the bytes 'MoEt'
PRAGMA user_version = 1001;         -- major * 1000 + minor of this schema

-- One fact about the file as a whole. Keys: format, moetrace_version, session_name,
-- session_uuid, part (files of the session before this one), engine_name, engine_version,
-- opt.NAME (the resolved options), version.NAME (of 'driver', 'cuda_driver', 'cuda_runtime',
-- 'cupti', 'nvml', 'nccl'; absent: not found in the process), source.NAME (what was found of a
-- source: 'cuda', and 'cuda.1' and so on of further GPUs; absent: nobody asked for it).
CREATE TABLE meta (
	key TEXT PRIMARY KEY NOT NULL, -- name of the fact
	value TEXT                     -- its value; NULL: the session was not told
) WITHOUT ROWID;

-- A process that recorded into this file: one for now, one a rank after a merge.
CREATE TABLE process (
	process_id INTEGER PRIMARY KEY, -- key
	host TEXT,                      -- host name; NULL: redacted
	pid INTEGER NOT NULL,           -- process id on that host
	boot_id TEXT,                   -- the kernel's boot id; NULL: not readable
	executable TEXT,                -- path of the program; NULL: not readable or redacted
	tp_rank INTEGER,                -- tensor-parallel rank; NULL: the runtime did not say
	tp_size INTEGER,                -- tensor-parallel ranks; NULL: the runtime did not say
	pp_rank INTEGER,                -- pipeline-parallel rank; NULL: the runtime did not say
	pp_size INTEGER,                -- pipeline-parallel ranks; NULL: the runtime did not say
	ep_rank INTEGER,                -- expert-parallel rank; NULL: the runtime did not say
	ep_size INTEGER,                -- expert-parallel ranks; NULL: the runtime did not say
	dp_rank INTEGER,                -- data-parallel rank; NULL: the runtime did not say
	dp_size INTEGER                 -- data-parallel ranks; NULL: the runtime did not say
);

-- Something that computes: the host's processors, and GPUs, those whose passes are recorded and those that collectors read.
CREATE TABLE device (
	device_id INTEGER PRIMARY KEY, -- key
	process_id INTEGER NOT NULL REFERENCES process(process_id), -- process that uses it
	kind TEXT NOT NULL,            -- 'host' or 'cuda'
	name TEXT,                     -- model name; NULL: not readable
	uuid TEXT,                     -- the vendor's unique id, or where the driver does not tell it CUDA's number of it, as 'cuda:0'; NULL for the host
	n_processors INTEGER,          -- processors that the process may run on; NULL for a GPU
	power_limit_mw INTEGER         -- enforced power limit in milliwatts; NULL: unknown, and for the host
);

-- A model whose passes are recorded. Draft and MTP models are rows of their own.
CREATE TABLE model (
	model_id INTEGER PRIMARY KEY, -- key
	name TEXT NOT NULL,           -- the runtime's name for it
	kind TEXT NOT NULL,           -- 'target', 'draft' or 'mtp'
	architecture TEXT,            -- e.g. 'Qwen3MoeForCausalLM'; NULL: not told
	n_layers INTEGER,             -- layers including dense ones; NULL: not told
	quantization TEXT             -- e.g. 'fp8'; NULL: not told
);

-- A layer with experts. Expert ids are logical and numbered: routed experts first
-- [0, n_experts), then zero experts, then fused shared slots.
CREATE TABLE layer (
	layer_id INTEGER PRIMARY KEY,   -- key
	model_id INTEGER NOT NULL REFERENCES model(model_id), -- its model
	layer INTEGER NOT NULL,         -- number of the layer in the model, dense layers counted
	moe_ordinal INTEGER NOT NULL,   -- number among the model's layers with experts
	kind TEXT NOT NULL,             -- 'routed' or 'hash' (experts chosen by token id)
	n_experts INTEGER NOT NULL,     -- routed experts
	n_zero_experts INTEGER NOT NULL, -- experts that compute nothing
	n_shared_slots INTEGER NOT NULL, -- shared experts fused into the top-k
	top_k INTEGER NOT NULL,         -- experts a row selects, fused shared slots included
	scoring TEXT,                   -- 'softmax', 'sigmoid', 'sqrtsoftplus', 'softmax_selected', 'sparsemixer'; NULL: not told
	n_groups INTEGER,               -- expert groups; NULL: not grouped or not told
	topk_groups INTEGER,            -- groups kept; NULL: not grouped or not told
	renormalize INTEGER,            -- 1: weights are divided by their sum; NULL: not told
	routed_scaling_factor REAL,     -- factor on the routed weights; NULL: none or not told
	scaling_owner TEXT,             -- who applies it: 'router' or 'output'; NULL: none or not told
	soft_cap REAL,                  -- tanh soft cap on the router logits; NULL: none or not told
	has_correction_bias INTEGER,    -- 1: a bias acts on the choice; NULL: not told
	weight_kind TEXT,               -- what stored weights include: 'raw', 'renormalized', 'scaled' or 'renormalized,scaled'; NULL: not told
	gemm_block_rows INTEGER,        -- row block of the expert GEMM; NULL: not told
	expert_weight_bytes INTEGER,    -- bytes of one expert's weights; NULL: not told
	router_impl TEXT,               -- the routing code that serves the layer; NULL: not told
	runner_backend TEXT,            -- the expert code that serves the layer; NULL: not told
	impl_reason TEXT,               -- why these were chosen; NULL: not told
	bias_values BLOB,               -- the bias that is added to the scores for the choice alone, of each routed, then each zero expert, fp32; NULL: none or not told
	router_output TEXT,             -- the form in which the router hands over its choice: 'standard', 'packed', 'ragged' or 'none' (the code of the experts routes by itself); NULL: not told
	group_top_n INTEGER             -- a group's score is the sum of so many of its largest values, bias included; NULL: not grouped or not told
);

-- From start to stop. A pass belongs wholly to the recording that was active when it began.
CREATE TABLE recording (
	recording_id INTEGER PRIMARY KEY, -- key
	process_id INTEGER NOT NULL REFERENCES process(process_id), -- process that recorded
	start_ns INTEGER NOT NULL,    -- when it started; in flight mode, once written: when the oldest pass that was kept began, or the oldest range ended
	end_ns INTEGER,               -- when it ended; NULL: it was still open at the last commit
	end_reason TEXT,              -- 'stopped', 'closed', 'rotated' (it goes on in another file), 'dump' (cut at a snapshot, or what flight mode kept), 'interrupted', 'file_limit', 'io_error', 'killed' (found so by recover) or the runtime's own word; NULL: still open at the last commit (killed, if nothing writes the file any more)
	mode TEXT NOT NULL,           -- what it keeps: 'per_token' (the experts of every row), 'per_pass' (counts by pass and layer: layer_load) or 'stat' (expert_load_window alone: no passes, no requests)
	routing_source TEXT,          -- where the choices come from: 'model', 'uniform', ...; NULL: not told
	sampling TEXT                 -- what it leaves out, comma-separated: passes=N (all but every Nth of a model), phases=A+B (passes of other phases), requests=N (rows of all but every Nth request, counted by handle from 1); NULL: nothing
);

-- A request, in a recording that it was open in.
-- complete: in the last attempt every position below n_positions is computed in every layer
-- (layers that by their nature skip a row are no loss), or reused from rows of this recording
-- that are. partial: see reasons. unfinished: still open when the recording ended, or at the
-- last commit. In a recording of mode per_pass computed means: counted in a pass whose layers
-- were all counted. A recording of mode stat has no requests.
CREATE TABLE request (
	request_id INTEGER PRIMARY KEY, -- key; one a request and recording
	recording_id INTEGER NOT NULL REFERENCES recording(recording_id), -- its recording
	handle INTEGER NOT NULL,   -- the session's number of the request: equal in all recordings it was open in
	external_id TEXT,          -- the runtime's own id, not necessarily unique; NULL: not told, or redacted
	prompt_positions INTEGER,  -- tokens of the prompt; NULL: not told
	n_positions INTEGER,       -- length of the sequence that went through the model; the last sampled token normally did not; NULL: not ended
	n_attempts INTEGER NOT NULL, -- computations begun: 1 plus the retracts
	n_pauses INTEGER NOT NULL, -- times it was set aside in this recording
	paused_ns INTEGER NOT NULL, -- duration of the pauses that have ended
	begin_ns INTEGER NOT NULL, -- when it began
	end_ns INTEGER,            -- when it ended; NULL: not ended
	end_state TEXT,            -- 'finished', 'aborted' or 'failed'; NULL: not ended
	verdict TEXT NOT NULL,     -- 'complete', 'partial' or 'unfinished'; independent of end_state
	reasons TEXT               -- why partial, comma-separated without spaces: lost (the recorder dropped something), began_before (positions from before the recording), unwritten (nobody wrote a layer), unresolved (verify rows whose acceptance was never reported), missing (positions that no pass carried), invalid (ids that no expert has), repeated (positions computed or reused twice in one attempt), reuse_unknown (positions reused from an unknown source), disabled (positions of a region in which the runtime had recording off), sampled (positions that sampling left out), counted (only counts of a layer were told); NULL: not partial
);

-- A property of a request, such as domain, route or user class.
CREATE TABLE request_attribute (
	request_id INTEGER NOT NULL REFERENCES request(request_id), -- its request
	key TEXT NOT NULL,  -- name
	value TEXT,         -- value; NULL: the key alone
	PRIMARY KEY (request_id, key)
) WITHOUT ROWID;

-- A token of a request, recorded only where the runtime asked for it.
CREATE TABLE request_token (
	request_id INTEGER NOT NULL REFERENCES request(request_id), -- its request
	position INTEGER NOT NULL, -- position in the sequence, prompt first
	token_id INTEGER NOT NULL, -- the tokenizer's id
	PRIMARY KEY (request_id, position)
) WITHOUT ROWID;

-- Positions that an attempt of a request did not compute because their KV cache was there: a
-- prefix hit. The source is the attempt that computed them, in the same recording; where it
-- changes, another link begins. Links of an attempt do not overlap.
CREATE TABLE request_reuse (
	request_id INTEGER NOT NULL REFERENCES request(request_id), -- request that reused them
	attempt INTEGER NOT NULL,        -- its attempt
	first_position INTEGER NOT NULL, -- first position
	n_positions INTEGER NOT NULL,    -- positions, at least 1
	source_request_id INTEGER REFERENCES request(request_id), -- request that computed them, maybe the same; NULL: unknown
	source_attempt INTEGER,          -- its attempt; NULL: unknown
	PRIMARY KEY (request_id, attempt, first_position)
) WITHOUT ROWID;

-- One forward pass of one model over n_rows rows (tokens). A pass that others are parts of
-- (microbatches that overlap) has no rows, slices or layers of its own.
CREATE TABLE pass (
	pass_id INTEGER PRIMARY KEY,   -- key; ascends in the order in which passes ended, as far as several at once can tell
	recording_id INTEGER NOT NULL REFERENCES recording(recording_id), -- its recording
	model_id INTEGER NOT NULL REFERENCES model(model_id), -- its model
	phase TEXT NOT NULL,           -- 'prefill', 'decode', 'mixed', 'verify', 'draft', 'idle' or 'dummy'
	begin_ns INTEGER NOT NULL,     -- when the runtime began it
	end_ns INTEGER,                -- when the runtime ended it; NULL: unknown
	n_rows INTEGER NOT NULL,       -- rows without padding
	padding_rows INTEGER NOT NULL, -- padding rows after them, in no slice and not stored
	runtime_pass INTEGER,          -- the runtime's own number of the pass; NULL: not told
	parent_pass_id INTEGER REFERENCES pass(pass_id), -- pass that it is a part of; NULL: none, or not yet ended
	microbatch INTEGER,            -- its number among the parent's parts, from 0; NULL: not told
	verdict TEXT NOT NULL,         -- 'complete' or 'partial'
	reasons TEXT,                  -- why partial, comma-separated: lost (the recorder dropped a layer), unwritten (nobody wrote a layer), invalid (ids that no expert has), unended (still running when the recording ended: stored as far as it came), sampled (rows of requests that are not sampled are not stored), counted (only counts of a layer were told, in mode per_token); NULL: complete
	n_dropped INTEGER NOT NULL,    -- layers of this pass that the recorder dropped (state 2 in pass_layer)
	device_id INTEGER REFERENCES device(device_id) -- GPU that it ran on, whose lane recorded it; NULL: told from the host, which does not say where
);

-- A slice of a pass: consecutive rows that belong to one request.
CREATE TABLE pass_request (
	pass_id INTEGER NOT NULL REFERENCES pass(pass_id), -- its pass
	slice INTEGER NOT NULL,      -- number of the slice in row order
	request_id INTEGER REFERENCES request(request_id), -- its request; NULL: rows of no request (warm-up, dummy)
	attempt INTEGER,             -- which computation of the request's positions; NULL: rows of no request
	first_position INTEGER,      -- position of the slice's first row; NULL: rows of no request
	positions BLOB,              -- u32 a row, where positions are not consecutive; NULL: they are
	row_offset INTEGER NOT NULL, -- its first row in the pass
	n_rows INTEGER NOT NULL,     -- rows
	phase TEXT NOT NULL,         -- the slice's own phase, as in pass (never 'mixed')
	accepted BLOB,               -- a byte a row, 1: accepted; only for phase 'verify'; NULL: acceptance was never reported
	PRIMARY KEY (pass_id, slice)
) WITHOUT ROWID;

-- A rule that changes a router's choice before the experts run, such as Opportunistic Expert
-- Activation.
CREATE TABLE rule (
	rule_id INTEGER PRIMARY KEY, -- key
	name TEXT NOT NULL           -- NAME[:key=value,...], e.g. 'oea:k0=3'
);

-- Runs of top-k rows of equal format, over layers and passes. A row of a pass and layer is
-- found through pass_layer. Row i of a run has its ids at byte i * k * id_bytes of topk_ids
-- and its weights at byte i * k * 2 of topk_weights.
CREATE TABLE topk (
	topk_id INTEGER PRIMARY KEY, -- key
	n_rows INTEGER NOT NULL,     -- rows in the run
	k INTEGER NOT NULL,          -- entries a row
	id_bytes INTEGER NOT NULL,   -- bytes an id: 1 (largest id of the layer at most 255) or 2
	weight_format TEXT NOT NULL, -- 'none', 'fp16' or 'bf16'
	topk_ids BLOB NOT NULL,      -- logical expert ids [n_rows][k], unsigned
	topk_weights BLOB,           -- weights [n_rows][k] on the scale that the runtime passed; NULL: weight_format is 'none'
	row_map BLOB,                -- u32 a row: the row's number in its pass; NULL: rows 0, 1, ... of the pass
	n_valid BLOB,                -- u8 a row: entries in use, those past it are 0; NULL: all k
	base_k INTEGER,              -- entries a row of base_ids; NULL: no base_ids
	base_ids BLOB,               -- the router's own choice before the rule changed it [n_rows][base_k], like topk_ids; NULL: not told
	rule_id INTEGER REFERENCES rule(rule_id), -- rule that chose topk_ids; NULL: the router's own choice
	physical_id_bytes INTEGER,   -- bytes an entry of physical_ids: 1 or 2; NULL: no physical_ids
	physical_ids BLOB,           -- the slots that served topk_ids [n_rows][k], unsigned; explained by expert_map at pass_layer.map_epoch, numbers behind its slots are zero experts, then shared slots; NULL: not told
	n_candidates INTEGER,        -- entries a row of candidate_ids; NULL: none
	candidate_ids BLOB,          -- further experts that the router scored high [n_rows][n_candidates], of id_bytes; NULL: none
	score_format TEXT,           -- 'fp16' or 'bf16'; NULL: no candidates
	candidate_scores BLOB,       -- their scores without bias [n_rows][n_candidates]; NULL: none
	margins BLOB,                -- f32 a row: by how much the score that chose its last expert (with its bias) exceeds the best one that was left out though it could have been chosen, infinity: nothing was left out; NULL: not told
	row_flags BLOB               -- u8 a row: 1 one of its scores was NaN, 2 what was left out, an expert or a group, scored what the last one taken did; NULL: not told
);

-- A layer of a pass.
CREATE TABLE pass_layer (
	pass_id INTEGER NOT NULL REFERENCES pass(pass_id),    -- its pass
	layer_id INTEGER NOT NULL REFERENCES layer(layer_id), -- its layer
	active_experts INTEGER,   -- distinct routed experts that rows selected, padding excluded; of all rows, stored or not; NULL: nothing stored or counted
	padding_active_experts INTEGER, -- routed experts that padding rows selected and no other row; NULL: padding was not shown
	max_load INTEGER,         -- rows of the most loaded routed expert, of all rows; NULL: nothing stored or counted
	selected_ns INTEGER,      -- when the selection was handed over; NULL: nothing stored or counted, or the runtime said that the time means nothing
	state INTEGER NOT NULL,   -- 0 stored, 1 unwritten (nobody wrote the layer), 2 dropped (written, lost by the recorder), 3 counted (layer_load has how many rows each expert got, no row's experts are known)
	map_epoch INTEGER,        -- expert map in force; NULL: none (experts were not mapped)
	selection_order INTEGER,  -- 0 selection (descending biased score, then lower id; as drawn or replayed where routing_source is not model), 1 restored, 2 unknown; NULL: nothing stored
	n_rows INTEGER,           -- rows stored for this layer, or that were counted; NULL: nothing stored, or the runtime told counts alone
	topk_id INTEGER REFERENCES topk(topk_id), -- run that holds them; NULL: nothing stored
	topk_row INTEGER,         -- their first row in the run; NULL: nothing stored
	tied_rows INTEGER,        -- rows in which equal scores were put in order by lower id; NULL: the order was not restored
	PRIMARY KEY (pass_id, layer_id)
) WITHOUT ROWID;

-- How many rows each expert of a layer got in a pass: in mode per_pass, and where the runtime
-- told counts alone (state 3 in pass_layer).
CREATE TABLE layer_load (
	pass_id INTEGER NOT NULL REFERENCES pass(pass_id),    -- its pass
	layer_id INTEGER NOT NULL REFERENCES layer(layer_id), -- its layer
	count_bytes INTEGER NOT NULL, -- bytes a count: 1, 2 or 4
	counts BLOB NOT NULL,         -- rows by logical id, padding excluded, unsigned; ids as in layer: routed, zero, shared
	padding_counts BLOB,          -- the same of padding rows; NULL: padding was not shown, or there was none
	PRIMARY KEY (pass_id, layer_id)
) WITHOUT ROWID;

-- What the dispatch of a layer moved in a pass, as far as the runtime told: what this process sent,
-- and what its own experts received.
CREATE TABLE dispatch (
	pass_id INTEGER NOT NULL REFERENCES pass(pass_id),    -- its pass
	layer_id INTEGER NOT NULL REFERENCES layer(layer_id), -- its layer
	n_ranks INTEGER,          -- ranks in rank_tokens and rank_bytes; NULL: neither is known
	rank_tokens BLOB,         -- u32 a rank: tokens sent to it; NULL: not told
	rank_bytes BLOB,          -- u64 a rank: bytes sent to it; NULL: not told
	n_local_experts INTEGER,  -- experts in received_tokens; NULL: not told
	first_local_slot INTEGER, -- slot of the first of them in the expert map (without a map: its logical id); NULL: not told
	received_tokens BLOB,     -- u32 a local expert: tokens that it received; NULL: not told
	received_alignment INTEGER, -- received_tokens are rounded up to multiples of it; 1: exact; NULL: not told
	n_rdma_ranks INTEGER,     -- ranks in rdma_rank_tokens; NULL: not told
	rdma_rank_tokens BLOB,    -- u32 an RDMA rank: tokens sent to it; NULL: not told
	PRIMARY KEY (pass_id, layer_id)
) WITHOUT ROWID;

-- Where the experts of a layer lie from an epoch on. A pass has the epoch that was in force when
-- it began (pass_layer.map_epoch).
CREATE TABLE expert_map (
	layer_id INTEGER NOT NULL REFERENCES layer(layer_id), -- its layer
	epoch INTEGER NOT NULL,     -- number of the map among those of its model, from 1
	set_ns INTEGER NOT NULL,    -- when it was set
	n_slots INTEGER NOT NULL,   -- physical slots over all ranks
	n_ranks INTEGER,            -- ranks that the slots are spread over evenly, rank 0 first; NULL: not told
	slot_experts BLOB NOT NULL, -- i32 a slot: the routed expert in it; -1: the slot is empty
	PRIMARY KEY (layer_id, epoch)
) WITHOUT ROWID;

-- Tokens that an expert received in a window of time; no entry where all would be 0.
-- A pass counts where it begins; the column follows the slice's own phase.
CREATE TABLE expert_load_window (
	recording_id INTEGER NOT NULL REFERENCES recording(recording_id), -- its recording
	start_ns INTEGER NOT NULL,  -- start of the window
	layer_id INTEGER NOT NULL REFERENCES layer(layer_id), -- the layer
	expert INTEGER NOT NULL,    -- logical expert id
	length_ns INTEGER NOT NULL, -- length of the window
	prefill_tokens INTEGER NOT NULL, -- rows of prefill slices that selected the expert
	decode_tokens INTEGER NOT NULL,  -- rows of decode slices
	verify_tokens INTEGER NOT NULL,  -- rows of verify slices
	other_tokens INTEGER NOT NULL,   -- rows of draft slices and of no request; and rows of mixed passes of which counts alone were told
	padding_tokens INTEGER NOT NULL, -- padding rows, not in the others
	PRIMARY KEY (recording_id, start_ns, layer_id, expert)
) WITHOUT ROWID;

-- The session's clock against the calendar, about once a second.
CREATE TABLE clock_snapshot (
	clock_snapshot_id INTEGER PRIMARY KEY, -- key
	process_id INTEGER NOT NULL REFERENCES process(process_id), -- process whose clock it is
	session_ns INTEGER NOT NULL,     -- the session's clock
	monotonic_ns INTEGER NOT NULL,   -- CLOCK_MONOTONIC
	realtime_ns INTEGER NOT NULL,    -- CLOCK_REALTIME: nanoseconds since 1970-01-01 UTC
	uncertainty_ns INTEGER NOT NULL  -- the readings lie within this of each other
);

-- A counter of a recording, brought up to date with every commit. Names: recorded_passes,
-- recorded_rows, recorded_layers, recorded_assignments (stored, or counted where rows are not
-- kept), recorded_kernels (told by the runtime), recorded_ranges, recorded_collectives,
-- untied_kernels (of a GPU, and launches of graphs, that were launched in a pass which is not
-- there: it was lost, or the recorder did not wait for it for want of room), dropped_passes,
-- dropped_layers, dropped_dispatches, dropped_kernels, dropped_ranges, dropped_collectives,
-- dropped_bytes, invalid_ids, misuse, duplicate_layers, unwritten_layers (layers of recorded
-- passes that nobody wrote), sampled_passes and disabled_passes (left out), load_passes and
-- load_assignments (what expert_load_window is of, padding excluded), last_pass_id (the last pass
-- of the recording in expert_load_window; 0: none, or mode stat), writer_cpu_ns, commits,
-- longest_commit_ns, ring_peak_bytes. Of a recording in flight mode alone: flight_let_go_passes
-- (let go from memory on purpose, before the oldest one that was kept; not in dropped_passes).
CREATE TABLE stats (
	recording_id INTEGER NOT NULL REFERENCES recording(recording_id), -- its recording
	name TEXT NOT NULL,     -- name of the counter
	value INTEGER NOT NULL, -- its value at the last commit
	PRIMARY KEY (recording_id, name)
) WITHOUT ROWID;

-- An interval in which the recorder lost something.
CREATE TABLE gap (
	gap_id INTEGER PRIMARY KEY,  -- key
	recording_id INTEGER NOT NULL REFERENCES recording(recording_id), -- its recording; of what a thread tells after the end of one whose file is closed, the one that runs then
	stream TEXT NOT NULL,        -- 'pass' (whole passes), 'layer' (layers of recorded passes), 'dispatch' (what a layer's dispatch moved) 'kernel' (times of operations), 'range' or 'collective'
	start_ns INTEGER NOT NULL,   -- not after the first loss
	end_ns INTEGER NOT NULL,     -- not before the last loss
	n_lost INTEGER NOT NULL,     -- records lost
	bytes_lost INTEGER,          -- their size; NULL: unknown
	reason TEXT NOT NULL         -- 'no_ring' (more passes at once than rings), 'ring_full' (the writer fell behind), 'device_ring_full' (passes came faster from a GPU than they were taken, or one was larger than its ring), 'device' (a GPU's passes that its driver refused or lost, or that were still running when stop gave up), 'stop_timeout' (a pass that was still running when stop gave up, or a range that its thread told after the end; one that sampling would have left out may be among the passes), 'file_limit' or 'io_error' (not stored any more)
);

-- Something a person should know: a refused call, a failing disk, a source that is off.
CREATE TABLE diagnostic (
	diagnostic_id INTEGER PRIMARY KEY, -- key
	process_id INTEGER NOT NULL REFERENCES process(process_id), -- process that reports
	time_ns INTEGER NOT NULL,  -- when
	severity TEXT NOT NULL,    -- 'info', 'warning' or 'error'
	source TEXT NOT NULL,      -- part that reports: 'session', 'pass', 'request', 'writer', 'store', 'cuda' ('cuda.1' and so on of further GPUs), 'collector' or the name of a collector
	message TEXT NOT NULL,     -- what happened and what to do
	n_times INTEGER NOT NULL   -- how often it happened until the last commit
);

-- The decoder of the plain-SQL views: all bytes, as blob and as number; also a source of
-- the numbers 0 to 255.
CREATE TABLE byte (
	value INTEGER PRIMARY KEY,  -- 0 to 255
	byte BLOB NOT NULL UNIQUE   -- the one-byte blob with that value
);
INSERT INTO byte (value, byte) VALUES
	(0, x'00'), (1, x'01'), (2, x'02'), (3, x'03'), (4, x'04'), (5, x'05'), (6, x'06'), (7, x'07'),
	(8, x'08'), (9, x'09'), (10, x'0a'), (11, x'0b'), (12, x'0c'), (13, x'0d'), (14, x'0e'), (15, x'0f'),
	(16, x'10'), (17, x'11'), (18, x'12'), (19, x'13'), (20, x'14'), (21, x'15'), (22, x'16'), (23, x'17'),
	(24, x'18'), (25, x'19'), (26, x'1a'), (27, x'1b'), (28, x'1c'), (29, x'1d'), (30, x'1e'), (31, x'1f'),
	(32, x'20'), (33, x'21'), (34, x'22'), (35, x'23'), (36, x'24'), (37, x'25'), (38, x'26'), (39, x'27'),
	(40, x'28'), (41, x'29'), (42, x'2a'), (43, x'2b'), (44, x'2c'), (45, x'2d'), (46, x'2e'), (47, x'2f'),
	(48, x'30'), (49, x'31'), (50, x'32'), (51, x'33'), (52, x'34'), (53, x'35'), (54, x'36'), (55, x'37'),
	(56, x'38'), (57, x'39'), (58, x'3a'), (59, x'3b'), (60, x'3c'), (61, x'3d'), (62, x'3e'), (63, x'3f'),
	(64, x'40'), (65, x'41'), (66, x'42'), (67, x'43'), (68, x'44'), (69, x'45'), (70, x'46'), (71, x'47'),
	(72, x'48'), (73, x'49'), (74, x'4a'), (75, x'4b'), (76, x'4c'), (77, x'4d'), (78, x'4e'), (79, x'4f'),
	(80, x'50'), (81, x'51'), (82, x'52'), (83, x'53'), (84, x'54'), (85, x'55'), (86, x'56'), (87, x'57'),
	(88, x'58'), (89, x'59'), (90, x'5a'), (91, x'5b'), (92, x'5c'), (93, x'5d'), (94, x'5e'), (95, x'5f'),
	(96, x'60'), (97, x'61'), (98, x'62'), (99, x'63'), (100, x'64'), (101, x'65'), (102, x'66'), (103, x'67'),
	(104, x'68'), (105, x'69'), (106, x'6a'), (107, x'6b'), (108, x'6c'), (109, x'6d'), (110, x'6e'), (111, x'6f'),
	(112, x'70'), (113, x'71'), (114, x'72'), (115, x'73'), (116, x'74'), (117, x'75'), (118, x'76'), (119, x'77'),
	(120, x'78'), (121, x'79'), (122, x'7a'), (123, x'7b'), (124, x'7c'), (125, x'7d'), (126, x'7e'), (127, x'7f'),
	(128, x'80'), (129, x'81'), (130, x'82'), (131, x'83'), (132, x'84'), (133, x'85'), (134, x'86'), (135, x'87'),
	(136, x'88'), (137, x'89'), (138, x'8a'), (139, x'8b'), (140, x'8c'), (141, x'8d'), (142, x'8e'), (143, x'8f'),
	(144, x'90'), (145, x'91'), (146, x'92'), (147, x'93'), (148, x'94'), (149, x'95'), (150, x'96'), (151, x'97'),
	(152, x'98'), (153, x'99'), (154, x'9a'), (155, x'9b'), (156, x'9c'), (157, x'9d'), (158, x'9e'), (159, x'9f'),
	(160, x'a0'), (161, x'a1'), (162, x'a2'), (163, x'a3'), (164, x'a4'), (165, x'a5'), (166, x'a6'), (167, x'a7'),
	(168, x'a8'), (169, x'a9'), (170, x'aa'), (171, x'ab'), (172, x'ac'), (173, x'ad'), (174, x'ae'), (175, x'af'),
	(176, x'b0'), (177, x'b1'), (178, x'b2'), (179, x'b3'), (180, x'b4'), (181, x'b5'), (182, x'b6'), (183, x'b7'),
	(184, x'b8'), (185, x'b9'), (186, x'ba'), (187, x'bb'), (188, x'bc'), (189, x'bd'), (190, x'be'), (191, x'bf'),
	(192, x'c0'), (193, x'c1'), (194, x'c2'), (195, x'c3'), (196, x'c4'), (197, x'c5'), (198, x'c6'), (199, x'c7'),
	(200, x'c8'), (201, x'c9'), (202, x'ca'), (203, x'cb'), (204, x'cc'), (205, x'cd'), (206, x'ce'), (207, x'cf'),
	(208, x'd0'), (209, x'd1'), (210, x'd2'), (211, x'd3'), (212, x'd4'), (213, x'd5'), (214, x'd6'), (215, x'd7'),
	(216, x'd8'), (217, x'd9'), (218, x'da'), (219, x'db'), (220, x'dc'), (221, x'dd'), (222, x'de'), (223, x'df'),
	(224, x'e0'), (225, x'e1'), (226, x'e2'), (227, x'e3'), (228, x'e4'), (229, x'e5'), (230, x'e6'), (231, x'e7'),
	(232, x'e8'), (233, x'e9'), (234, x'ea'), (235, x'eb'), (236, x'ec'), (237, x'ed'), (238, x'ee'), (239, x'ef'),
	(240, x'f0'), (241, x'f1'), (242, x'f2'), (243, x'f3'), (244, x'f4'), (245, x'f5'), (246, x'f6'), (247, x'f7'),
	(248, x'f8'), (249, x'f9'), (250, x'fa'), (251, x'fb'), (252, x'fc'), (253, x'fd'), (254, x'fe'), (255, x'ff');
