/* SPDX-License-Identifier: MIT */
/*
 * The store: the trace file. One connection, used by the writer thread alone, from open to
 * close. Rows are inserted in a transaction that mt_store_commit() ends; the first failure is
 * remembered, rolls the transaction back, and every later call returns it.
 *
 * All functions return MOETRACE_OK or MOETRACE_E_IO unless they say otherwise; why is in
 * mt_store_error(). Strings may be NULL where the schema allows NULL. MT_NULL stands for NULL
 * where a number is unknown.
 */
#ifndef MT_STORE_H
#define MT_STORE_H

#include <stdint.h>

#include <moetrace/moetrace.h>

#include "libtrace/collector.h"

#define MT_NULL INT64_MIN

struct mt_store;

struct mt_store_stats {
	uint64_t n_commits;
	uint64_t longest_commit_ns;
	uint64_t database_bytes; /* as large as the file will be once the journal is folded in */
	uint64_t journal_bytes;
	uint64_t pending_bytes;  /* inserted since the last commit, roughly */
};

/*
 * Create the file and its schema; a file that somebody moves or replaces meanwhile is noticed, and
 * nothing is written into another one. @ret_error gets a line on failure (its size:
 * MT_STORE_ERROR_BYTES); nothing is left behind then. Returns MOETRACE_E_EXISTS,
 * MOETRACE_E_IO or MOETRACE_E_NOMEM.
 */
#define MT_STORE_ERROR_BYTES 512
int mt_store_open(const char *path, struct mt_store **ret_store, char *ret_error);

/*
 * Commit, fold the journal into the file and close; waits up to @wait_ns for readers. Sets
 * *ret_folded to 0 when they kept the journal alive, which a diagnostic at @close_ns says.
 */
int mt_store_close(struct mt_store *store, int64_t close_ns, uint64_t wait_ns, int *ret_folded);

/* Close a store that is not needed, and remove its files; a stranger's in their place is left. */
void mt_store_discard(struct mt_store *store);

/* The file's name, from the root on. */
const char *mt_store_path(const struct mt_store *store);
const char *mt_store_error(const struct mt_store *store);
int mt_store_is_network(const struct mt_store *store);
void mt_store_stats_get(const struct mt_store *store, struct mt_store_stats *ret_stats);

/* What SQLite keeps in memory for the file. */
uint64_t mt_store_memory_bytes(const struct mt_store *store);

/*
 * Make sure that a transaction is open. MOETRACE_E_STATE: another program holds the write
 * lock; nothing is wrong, try again later.
 */
int mt_store_begin(struct mt_store *store);
int mt_store_in_transaction(const struct mt_store *store);
/* Fails, too, when the path does not lead to the file any more. */
int mt_store_commit(struct mt_store *store);
int mt_store_has_failed(const struct mt_store *store);
/* Fail for a reason that SQLite does not know; returns the status. */
int mt_store_refuse(struct mt_store *store, const char *reason);
struct mt_gap_row;
/*
 * After a failure: try to say in the file that the recording ended with the gap, for the
 * gap's reason, and what was lost. The store stays failed; mt_store_error() may have new words.
 */
int mt_store_last_words(struct mt_store *store, const struct mt_gap_row *gap,
			int64_t dropped_passes);
/* After a failure: begin anew. MOETRACE_OK, or the failure goes on, maybe with new words. */
int mt_store_revive(struct mt_store *store);
/* Let the two be each other: what points to @store goes on with the other's file. */
void mt_store_swap(struct mt_store *store, struct mt_store *other);
/* Copy the journal into the file without waiting for readers, if it has grown long. */
int mt_store_checkpoint(struct mt_store *store, int even_if_short);

/* Definitions. */
int mt_store_meta(struct mt_store *store, const char *key, const char *value);
struct mt_process_row {
	const char *host;
	int64_t pid;
	const char *boot_id;
	const char *executable;
	int64_t ranks[8]; /* tp, pp, ep, dp: rank and number, MT_NULL: unknown */
};
int mt_store_process(struct mt_store *store, const struct mt_process_row *row);
int mt_store_device(struct mt_store *store, const char *kind, const char *name, const char *uuid,
		    int64_t n_processors);
int mt_store_device_limit(struct mt_store *store, int64_t device_id, int64_t limit_mw);
int mt_store_model(struct mt_store *store, int64_t model_id,
		   const struct moetrace_model_info *info);
int mt_store_layer(struct mt_store *store, int64_t layer_id, int64_t model_id, int64_t moe_ordinal,
		   const struct moetrace_layer_info *info);

struct mt_map_row {
	int64_t layer_id;
	int64_t epoch;
	int64_t set_ns;
	int64_t n_slots;
	int64_t n_ranks;             /* MT_NULL: unknown */
	const int32_t *slot_experts; /* [n_slots] */
};
int mt_store_expert_map(struct mt_store *store, const struct mt_map_row *row);
int mt_store_rule(struct mt_store *store, int64_t rule_id, const char *name);
/* @role NULL: no kernel has this name. */
int mt_store_string(struct mt_store *store, int64_t string_id, const char *value, const char *role,
		    int moves_data);

/* Recordings, requests. */
int mt_store_recording(struct mt_store *store, int64_t recording_id, int64_t start_ns,
		       enum moetrace_mode mode, const char *sampling, const char *routing_source);
/* It is stored from later on than its row says. */
int mt_store_recording_start(struct mt_store *store, int64_t recording_id, int64_t start_ns);
int mt_store_recording_end(struct mt_store *store, int64_t recording_id, int64_t end_ns,
			   const char *end_reason);
struct mt_request_row {
	int64_t request_id;
	int64_t recording_id;
	int64_t handle;
	const char *external_id;
	int64_t prompt_positions;
	int64_t n_attempts;
	int64_t n_pauses;
	int64_t begin_ns;
};
int mt_store_request(struct mt_store *store, const struct mt_request_row *row);
int mt_store_request_progress(struct mt_store *store, int64_t request_id, int64_t n_attempts,
			      int64_t n_pauses, int64_t paused_ns);
int mt_store_request_end(struct mt_store *store, int64_t request_id, int64_t n_positions,
			 int64_t end_ns, const char *end_state, const char *verdict,
			 const char *reasons);
int mt_store_attribute(struct mt_store *store, int64_t request_id, const char *key,
		       const char *value);
int mt_store_token(struct mt_store *store, int64_t request_id, int64_t position, int64_t token_id);
struct mt_reuse_row {
	int64_t request_id;
	int64_t attempt;
	int64_t first_position;
	int64_t n_positions;
	int64_t source_request_id; /* MT_NULL: unknown, and the attempt, too */
	int64_t source_attempt;
};
int mt_store_reuse(struct mt_store *store, const struct mt_reuse_row *row);

/* Passes. */
struct mt_pass_row {
	int64_t pass_id;
	int64_t recording_id;
	int64_t model_id;
	const char *phase;
	int64_t begin_ns;
	int64_t end_ns;
	int64_t n_rows;
	int64_t padding_rows;
	int64_t runtime_pass;
	int64_t parent_pass_id;
	int64_t microbatch;
	const char *verdict;
	const char *reasons;
	int64_t n_dropped;
	int64_t device_id; /* MT_NULL: not told */
};
int mt_store_pass(struct mt_store *store, const struct mt_pass_row *row);
int mt_store_pass_parent(struct mt_store *store, int64_t pass_id, int64_t parent_pass_id);

struct mt_slice_row {
	int64_t pass_id;
	int64_t slice;
	int64_t request_id; /* MT_NULL: rows of no request */
	int64_t attempt;
	int64_t first_position;
	const uint32_t *positions; /* [n_rows] or NULL */
	int64_t row_offset;
	int64_t n_rows;
	const char *phase;
	const uint8_t *accepted; /* [n_rows], or NULL: not told */
};
int mt_store_slice(struct mt_store *store, const struct mt_slice_row *row);
int mt_store_slice_accepted(struct mt_store *store, int64_t pass_id, int64_t slice,
			    const uint8_t *accepted, uint32_t n_rows);

enum mt_layer_state {
	MT_LAYER_STORED = 0,
	MT_LAYER_UNWRITTEN = 1,
	MT_LAYER_DROPPED = 2,
	MT_LAYER_COUNTED = 3,
};
enum mt_layer_order { MT_ORDER_SELECTION = 0, MT_ORDER_RESTORED = 1, MT_ORDER_UNKNOWN = 2 };

struct mt_layer_row {
	int64_t active_experts;
	int64_t padding_active_experts;
	int64_t max_load;
	int64_t selected_ns;
	int64_t selection_order;
	int64_t n_rows;
	int64_t topk_id;
	int64_t topk_row;
	int64_t map_epoch; /* MT_NULL: no map was in force */
	int64_t tied_rows; /* MT_NULL: the order was not restored */
	enum mt_layer_state state;
};
int mt_store_pass_layer(struct mt_store *store, int64_t pass_id, int64_t layer_id,
			const struct mt_layer_row *row);

#define MT_HOST_DEVICE_ID 1 /* written first into every file */

struct mt_kernel_row {
	int64_t recording_id;
	int64_t device_id;
	int64_t stream;
	int64_t name_id;
	int64_t start_ns;
	int64_t end_ns;
	int64_t pass_id;
	int64_t layer_id;
	int64_t known_by; /* enum mt_known_by */
	int64_t flags;
	int64_t launch_shape_id;
	int64_t correlation;
	/* Of a launch of a graph; 0 and NULL: launches alone are recorded. */
	int64_t graph;
	uint32_t n_nodes;
	uint32_t n_untimed;
	const uint32_t *node_times; /* [n_nodes][2] */
};
int mt_store_kernel(struct mt_store *store, const struct mt_kernel_row *row);

struct mt_collective_row {
	int64_t recording_id;
	int64_t pass_id;
	int64_t layer_id;
	const char *kind;
	int64_t start_ns;
	int64_t end_ns;
	int64_t bytes;
	int64_t n_ranks;
	int64_t name_id;
	int64_t algorithm_id;
	int64_t protocol_id;
	int64_t n_channels;
};
int mt_store_collective(struct mt_store *store, const struct mt_collective_row *row);

struct mt_range_row {
	int64_t recording_id;
	int64_t name_id;
	int64_t thread;
	int64_t start_ns;
	int64_t end_ns;
};
int mt_store_range(struct mt_store *store, const struct mt_range_row *row);

int mt_store_graph_launch(struct mt_store *store, const struct mt_kernel_row *row);

struct mt_node_row {
	int64_t graph;
	int64_t node;
	int64_t name_id;
	int64_t layer_id;
	int64_t known_by;
	int64_t launch_shape_id;
	int64_t source_node;
	int64_t branch;
};
int mt_store_graph_node(struct mt_store *store, const struct mt_node_row *row);

struct mt_overhead_reading;
int mt_store_overhead(struct mt_store *store, int64_t recording_id,
		      const struct mt_overhead_reading *reading);

struct mt_shape_row {
	int64_t launch_shape_id;
	int32_t values[9]; /* grid, block, registers, static and dynamic shared memory */
};
int mt_store_launch_shape(struct mt_store *store, const struct mt_shape_row *row);

struct mt_power_reading;
struct mt_link_reading;
struct mt_host_reading;
struct mt_collect_status;
int mt_store_power(struct mt_store *store, int64_t recording_id, int64_t device_id,
		   const struct mt_power_reading *reading);
int mt_store_link(struct mt_store *store, int64_t recording_id, int64_t device_id,
		  const struct mt_link_reading *reading);
struct mt_clock_reading;
/* @device_id MT_NULL: a clock of the host. */
int mt_store_device_clock(struct mt_store *store, int64_t device_id,
			  const struct mt_clock_reading *reading);
int mt_store_host(struct mt_store *store, int64_t recording_id,
		  const struct mt_host_reading *reading);
int mt_store_collector(struct mt_store *store, int64_t recording_id,
		       const struct mt_collect_status *status, uint64_t n_rows,
		       uint64_t n_invalid); /* In the row that a recording has of it, if there is one. */
int mt_store_collector_hung(struct mt_store *store, int64_t recording_id,
			    const struct mt_collect_status *status);
/* or replace */

/* Counts of a layer of which no rows are kept: [n_ids] each; @padding may be NULL. */
int mt_store_layer_load(struct mt_store *store, int64_t pass_id, int64_t layer_id,
			const uint32_t *counts, const uint32_t *padding, uint32_t n_ids);
struct mt_record_dispatch;
int mt_store_dispatch(struct mt_store *store, int64_t pass_id, int64_t layer_id,
		      struct mt_record_dispatch *record);

/* A layer's rows, to be appended to a run of the same format. */
struct mt_topk_rows {
	uint32_t n_rows;
	uint32_t k;
	uint8_t id_bytes;
	uint8_t weight_format; /* enum moetrace_weight_format */
	uint8_t physical_id_bytes; /* 0: no physical_ids */
	uint8_t score_format;     /* enum moetrace_weight_format; of candidates, if there are any */
	uint8_t *ids;
	uint16_t *weights;        /* NULL with format NONE */
	uint32_t *row_map;        /* or NULL */
	uint8_t *n_valid;         /* or NULL */
	float *margins;           /* or NULL */
	uint8_t *row_flags;       /* or NULL */
	uint8_t *base_ids;        /* [n_rows][base_k] or NULL */
	uint8_t *physical_ids;    /* [n_rows][k] or NULL */
	uint8_t *candidate_ids;   /* [n_rows][n_candidates] of id_bytes, or NULL */
	uint16_t *candidate_scores;
	uint32_t base_k;          /* 0: no base_ids */
	uint32_t rule_id;         /* 0: none */
	uint32_t n_candidates;    /* 0: none */
};
/* Where they were put; the run is written when it is long enough, or at a commit. */
int mt_store_topk(struct mt_store *store, const struct mt_topk_rows *rows, int64_t *ret_topk_id,
		  int64_t *ret_topk_row);

/* Expert load: @tokens in prefill, decode, verify, other and padding are added. */
enum mt_load_class {
	MT_LOAD_PREFILL,
	MT_LOAD_DECODE,
	MT_LOAD_VERIFY,
	MT_LOAD_OTHER,
	MT_LOAD_PADDING,
	MT_N_LOAD,
};
struct mt_window {
	int64_t recording_id;
	int64_t start_ns;
	int64_t length_ns;
};
int mt_store_load(struct mt_store *store, const struct mt_window *window, int64_t layer_id,
		  int64_t expert, const uint64_t tokens[MT_N_LOAD]);
/* Add pairs of a recording's windows together: the new length. Counts the rows that stay. */
int mt_store_load_merge(struct mt_store *store, int64_t recording_id, int64_t origin_ns,
			int64_t length_ns, uint64_t *ret_n_rows);

/* Facts about the recording itself. */
int mt_store_stat(struct mt_store *store, int64_t recording_id, const char *name, int64_t value);
/* More of what is there already. */
int mt_store_stat_add(struct mt_store *store, int64_t recording_id, const char *name, int64_t n);
struct mt_gap_row {
	int64_t gap_id;
	int64_t recording_id;
	const char *stream;
	int64_t start_ns;
	int64_t end_ns;
	int64_t n_lost;
	int64_t bytes_lost; /* MT_NULL: unknown */
	const char *reason;
};
int mt_store_gap(struct mt_store *store, const struct mt_gap_row *row); /* insert or replace */
int mt_store_diagnostic(struct mt_store *store, int64_t diagnostic_id, int64_t time_ns,
			const char *severity, const char *source, const char *message,
			int64_t n_times); /* insert or replace */
int mt_store_clock(struct mt_store *store, int64_t session_ns, int64_t monotonic_ns,
		   int64_t realtime_ns, int64_t uncertainty_ns);

#endif
