/* SPDX-License-Identifier: MIT */
/*
 * A random runtime and what must be in the file after it: several threads serve requests of
 * several models through passes of every form that the API allows, and note for each pass
 * and request the expected rows, computed in the plainest way. world_compare() then reads
 * the file with SQL and compares everything. Everything follows from the seed, except how
 * the threads interleave.
 */
#ifndef TEST_WORLD_H
#define TEST_WORLD_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <moetrace/moetrace.h>
#include <sqlite3.h>

#include "tests/unit/support/half.h"
#include "tests/unit/support/rng.h"

enum {
	WORLD_MAX_MODELS = 8,
	WORLD_MAX_LAYERS = 6,
	WORLD_MAX_THREADS = 8,
	WORLD_MAX_SLICES = 8,
	WORLD_MAX_OPEN = 8,
	WORLD_MAX_RECORDINGS = 8,
	WORLD_N_KEYS = 4,
	WORLD_N_RULES = 2,
	WORLD_N_SLOTS = 600, /* KV slots a thread */
	WORLD_MAX_LINKS = 100, /* from a reused position to whoever computed it */
};

struct world_layer {
	uint32_t layer;
	uint32_t n_experts;
	uint32_t n_zero_experts;
	uint32_t n_shared_slots;
	uint32_t n_ids;
	uint32_t top_k;
};

struct world_model {
	char name[32];
	enum moetrace_model_kind kind;
	uint32_t handle;
	uint32_t n_layers;
	struct world_layer layers[WORLD_MAX_LAYERS];
	/* Where the experts lie now; threads are at rest when that changes. */
	uint32_t map_epoch; /* 0: not told */
	uint32_t n_slots;
	int32_t *slot_experts; /* [n_layers][n_slots] */
};

/* An attribute as it was set, or tokens of positions from first on: the latest epoch wins. */
struct want_attribute {
	struct want_attribute *next; /* the one set before */
	uint32_t epoch;
	uint32_t key; /* of "key%u" */
	char value[24];
};

struct want_tokens {
	struct want_tokens *next; /* those given before */
	uint32_t epoch;
	uint32_t first_position;
	uint32_t n_tokens;
	uint32_t add; /* the token of a position is position * 3 + add */
};

/* Positions that an attempt reused; the source's attempt counts where there is a source. */
struct want_reuse {
	struct want_reuse *next; /* the one said before */
	uint32_t epoch;
	uint32_t attempt;
	uint32_t position;
	uint64_t source; /* handle; MOETRACE_NO_REQUEST: unknown */
	uint32_t source_attempt;
	uint64_t said_clock; /* of its thread */
};

/* Who computes what a KV slot holds. */
struct want_slot {
	uint64_t request; /* handle; MOETRACE_NO_REQUEST: nobody */
	uint32_t attempt;
	uint32_t position;
	uint32_t epoch;
};

/* Acceptance that is told later. */
struct want_late {
	struct want_late *next;
	uint64_t number;
	uint32_t slice;
	struct want_slice *of;
};

struct want_request {
	struct want_request *next;
	uint64_t handle;
	char external_id[40];
	uint32_t prompt_positions;
	struct world_model *model;
	uint32_t begin_epoch; /* of world.epoch */
	uint32_t end_epoch;   /* UINT32_MAX: open */
	uint32_t end_state;
	uint64_t declared; /* MOETRACE_POSITIONS_UNKNOWN: left to the recorder */
	uint32_t next_position;
	uint32_t attempt;
	uint32_t attempt_epoch;	 /* when the last one began */
	uint32_t n_retracts[2 * WORLD_MAX_RECORDINGS + 2]; /* by epoch */
	uint32_t n_pauses[2 * WORLD_MAX_RECORDINGS + 2];   /* by epoch */
	bool is_paused;
	uint64_t end_clock; /* of its thread: the last pass that named it has ended */
	struct want_reuse *reuses; /* a position each */
	struct want_late *late;
	struct want_attribute *attributes;
	struct want_tokens *tokens;
};

struct want_slice {
	struct want_request *request; /* NULL: rows of no request */
	uint32_t phase;
	uint32_t phase_passed; /* 0: the pass's */
	uint32_t n_rows;
	uint32_t row_offset;
	uint32_t *positions; /* [n_rows] */
	bool positions_passed;
	uint32_t attempt;
	uint8_t *accepted; /* [n_rows]; NULL: never told */
	uint32_t told;	   /* 0: before the pass ends, 1: after it, 2: later */
	uint64_t told_clock; /* of its thread */
};

/* What the dispatch of a layer moved, as it was told. */
struct want_dispatch {
	uint32_t n_ranks;
	uint32_t rank_tokens[8];
	uint32_t n_local_experts; /* 0: not told */
	uint32_t first_local_slot;
	uint32_t received_tokens[8];
};

struct want_layer {
	bool is_written;
	uint32_t *counts; /* [n_ids]: counts were told in place of ids; NULL: they were not */
	struct want_dispatch *dispatch; /* NULL: not told */
	bool is_untimed;
	bool has_weights;
	bool padding_shown;
	uint32_t order;
	uint32_t n_rows;
	uint32_t k;
	uint64_t n_invalid;
	uint16_t *ids;	      /* [n_rows][k], left-aligned, 0 past n_valid */
	uint16_t *weights;    /* the same; NULL: none */
	uint16_t *slots;      /* the same: where ids were told as slots; NULL: they were not */
	uint8_t *n_valid;     /* [n_rows] */
	uint8_t *has_invalid; /* [n_rows] */
	uint32_t rule;	      /* of world.rules; WORLD_N_RULES: none */
	uint32_t base_k;
	uint16_t *base_ids;	/* [n_rows][base_k]; NULL: not told */
	uint32_t *row_map;	/* [n_rows]; NULL: all rows */
	uint32_t *padding_load; /* [n_ids]; NULL: padding was not shown */
};

struct want_pass {
	struct want_pass *next;
	uint64_t number;
	struct world_model *model;
	uint32_t phase;
	uint32_t n_rows;
	uint32_t padding_rows;
	uint32_t epoch;
	uint64_t end_clock;	   /* of its thread */
	bool is_skipped; /* sampling left it out */
	uint32_t map_epoch;
	bool has_microbatch;
	uint32_t microbatch;
	const struct want_pass *parent; /* NULL: none */
	uint32_t n_slices;
	struct want_slice slices[WORLD_MAX_SLICES];
	struct want_layer layers[WORLD_MAX_LAYERS];
};

/* What a recording keeps; 0: everything. */
struct world_kept {
	uint32_t mode; /* enum moetrace_mode */
	uint32_t every_n_passes;
	uint32_t every_n_requests;
};

struct world_thread {
	struct world *world;
	uint32_t index;
	struct rng rng;
	uint32_t n_steps;
	uint64_t n_passes;
	uint32_t n_open;
	struct want_request *open[WORLD_MAX_OPEN];
	struct want_request *requests; /* all, newest first */
	struct want_pass *passes;      /* the recorded ones, newest first */
	uint64_t clock;		       /* counts what the recorder hears of */
	struct want_slot slots[WORLD_N_SLOTS];
};

struct world {
	struct moetrace_session *session;
	const char *path;
	enum moetrace_weight_format weight_format;
	struct rng rng;
	uint32_t n_models;
	struct world_model models[WORLD_MAX_MODELS];
	uint32_t rules[WORLD_N_RULES]; /* handles; their names are "rule-%u" */
	uint32_t n_threads;
	struct world_thread threads[WORLD_MAX_THREADS];
	uint32_t max_rows; /* of a slice */
	/* 2 r - 1: recording r; 2 r: idle after it. Threads are at rest when it changes, or it
	   says nothing (is_free_running). */
	atomic_uint epoch;
	bool is_free_running;
	bool has_counters; /* layers may come as counts, and dispatch is told */
	struct world_kept kept[WORLD_MAX_RECORDINGS];
	atomic_uint_fast64_t misuse[WORLD_MAX_RECORDINGS];
	atomic_uint_fast64_t duplicates[WORLD_MAX_RECORDINGS];
};

/* Open a session at @path and add the first models. */
struct world *world_open(const char *path, uint64_t seed, uint32_t n_threads,
			 enum moetrace_weight_format weight_format);

void world_model_add(struct world *world);
/* Let the experts of every model lie elsewhere, some in several places. */
void world_maps_set(struct world *world);
void world_start(struct world *world);
void world_start_keeping(struct world *world, const struct world_kept *kept);
void world_stop(struct world *world);

/* Every thread makes @n_steps steps; returns when all have ended. */
void world_run(struct world *world, uint32_t n_steps);

/* End half of the requests that are open. */
void world_end_some(struct world *world);

/* Close the session; compare the file with what was noted; free everything. */
void world_close(struct world *world);
void world_compare(struct world *world);
void world_free(struct world *world);

/* ---- between the parts of the world ---- */

/* Zeroed memory, of one element more than asked for; ends the program where there is none. */
void *world_allocate(size_t n, size_t bytes);
uint32_t world_recording(uint32_t epoch); /* 0: idle */
struct world_model *world_model_pick(struct world_thread *thread);
void world_request_end(struct world_thread *thread, uint32_t index); /* of the open ones */
void world_pass(struct world_thread *thread);
void world_pass_free(struct want_pass *pass);
void world_misuse(struct world_thread *thread, struct moetrace_pass *pass,
		  const struct want_pass *want);
void world_select(struct world_thread *thread, struct moetrace_pass *pass,
		  const struct want_pass *want_pass, uint32_t layer, struct want_layer *want);
void world_compare_requests(struct world *world, sqlite3 *db);

/* A slot of an expert, or the number behind the last slot of what is not routed. */
uint32_t world_slot_of(struct world_thread *thread, const struct world_model *model, uint32_t layer,
		       uint32_t id);

/* Counts in place of ids, and what is moved. */
void world_count(struct world_thread *thread, struct moetrace_pass *pass,
		 const struct want_pass *want_pass, uint32_t layer, struct want_layer *want);
void world_dispatch(struct world_thread *thread, struct moetrace_pass *pass,
		    const struct want_pass *want_pass, uint32_t layer, struct want_layer *want);

/* The classes of load, in the order of the columns of expert_load_window. */
enum world_class {
	WORLD_PREFILL,
	WORLD_DECODE,
	WORLD_VERIFY,
	WORLD_OTHER,
	WORLD_PADDING,
	WORLD_N_CLASSES,
};
/* Add the rows by expert of a layer, [WORLD_N_CLASSES][n_ids]. */
void world_load_add(const struct want_pass *pass, uint32_t layer, uint64_t *load);
/* Windows of every recording, and what is kept of dispatch. */
void world_compare_loads(const struct world *world, sqlite3 *db);

/* What the recording of the pass keeps. */
const struct world_kept *world_kept_of(const struct world *world, const struct want_pass *pass);
/* Are the rows of a request (NULL: of none) kept? */
bool world_keeps(const struct world_kept *kept, const struct want_request *request);
/* The slice of a row of the pass. */
const struct want_slice *world_slice_of(const struct want_pass *pass, uint32_t row);
/* Passes that sampling leaves out are seen by requests; of their verify rows nobody hears. */
bool world_is_unseen(const struct want_pass *pass, const struct want_slice *slice);

/* What is said of requests beside their passes, at random. */
void world_retract(struct world_thread *thread, struct want_request *request);
void world_pause_or_resume(struct world_thread *thread, struct want_request *request);
void world_reuse(struct world_thread *thread, struct want_request *request);
/* Fill in the slots of a pass's rows, and note who has them. */
void world_slots(struct world_thread *thread, const struct want_pass *pass, int64_t *ret_slots);
/* Tell what is late of a request. */
void world_tell_late(struct world_thread *thread, struct want_request *request);

/* Whose rows a reused position has, by the definition. */
struct want_source {
	const struct want_request *request; /* NULL: unknown */
	uint32_t attempt;
	const struct want_pass *pass; /* that computed it */
	const struct want_slice *slice;
	uint32_t row;
};
/* NULL where the attempt did not reuse the position in this recording. */
const struct want_reuse *world_reuse_find(const struct want_request *request, uint32_t attempt,
					  uint32_t position, uint32_t epoch);
struct want_source world_source(const struct world_thread *thread, const struct want_reuse *reuse,
				const struct want_request *of);
void world_compare_reuse(sqlite3 *db, const struct world_thread *thread,
			 const struct want_request *request, uint32_t epoch);
void want_layer_free(struct want_layer *layer);

#endif
