/* SPDX-License-Identifier: MIT */
/*
 * What the parts of `moetrace top` share. A trace is opened for each look, read in one short
 * transaction and closed again, so that a recorder that wants to checkpoint or to end never waits
 * for longer than a look. A look reads what is new since the one before it: passes, operations and
 * readings of power by their keys. They are added up in buckets of time, and a window is
 * MT_TOP_BUCKETS of them. From these a frame is computed, and a frame is all that is shown.
 * Texts of a trace are kept as they are and made harmless when they are shown.
 */
#ifndef MT_CLI_TOP_H
#define MT_CLI_TOP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "cli/cli.h"
#include "cli/top_canvas.h"

enum {
	MT_TOP_BUCKETS = 20,
	MT_TOP_ROLES = 14,
	MT_TOP_PHASES = 4,
	MT_TOP_TEXT_BYTES = 256,
	MT_TOP_MAX_METERS = 64,
	MT_TOP_MAX_SOURCES = 8,
	MT_TOP_MAX_LOSSES = 32,
	MT_TOP_MAX_GAPS = 8,
	MT_TOP_MAX_NOTES = 3,
	MT_TOP_MAX_NAMES = 65536,
	MT_TOP_HOTTEST = 8,
};

/* Phases of rows; what is neither of the first three is other. */
enum mt_top_phase { MT_TOP_PREFILL, MT_TOP_DECODE, MT_TOP_VERIFY, MT_TOP_OTHER };

extern const char *const mt_top_phases[MT_TOP_PHASES];
extern const char *const mt_top_roles[MT_TOP_ROLES];

struct mt_top_layer {
	int64_t layer_id;
	int64_t layer;
	uint32_t n_experts; /* routed ones; others are in no cell */
	uint32_t n_slots;   /* experts of every kind */
	uint32_t top_k;
	size_t first_cell;
};

/* What was recorded in a piece of time. */
struct mt_top_bucket {
	int64_t index; /* begin of the piece / its length; -1: nothing */
	uint64_t n_passes, n_partial, n_rows, padding_rows;
	uint64_t rows[MT_TOP_PHASES];
	uint64_t n_timed, timed_ns;
	uint64_t n_active, sum_active, max_active; /* over layers of passes */
	uint64_t n_operations[MT_TOP_ROLES], operations_ns[MT_TOP_ROLES];
	uint32_t *tokens; /* [n_cells] */
};

/* Something that draws power. What is not told is negative. */
struct mt_top_meter {
	int64_t device_id;
	char name[MT_TOP_TEXT_BYTES];
	char domain[64]; /* "": nothing was read of it */
	bool is_gpu;
	double last_w, limit_w, temperature_c;
	int64_t last_ns, counter_ns, counter_mj;
	uint64_t held_down_by; /* the driver's bits */
	int64_t index[MT_TOP_BUCKETS];
	double sum_w[MT_TOP_BUCKETS];
	uint32_t n_readings[MT_TOP_BUCKETS];
};

struct mt_top_source_state {
	char name[64];
	char state[64];
	char reason[MT_TOP_TEXT_BYTES * 2];
	int64_t n_dropped; /* negative: unknown */
};

struct mt_top_count {
	char name[64];
	int64_t value;
};

struct mt_top_gap {
	char stream[64];
	char reason[64];
	int64_t n_lost;
};

enum mt_top_end {
	MT_TOP_NONE,	/* the file has no recording */
	MT_TOP_LIVE,
	MT_TOP_ENDED,
	MT_TOP_NO_END,	/* nothing writes the file any more, and the recording has no end */
};

/* What a look found out about the recording; texts as they are in the file. */
struct mt_top_facts {
	enum mt_top_end end;
	int64_t recording_id, process_id, n_recordings;
	char session[MT_TOP_TEXT_BYTES];
	char mode[32];
	char source[64];
	char end_reason[64];
	char model[MT_TOP_TEXT_BYTES];
	char model_kind[32];
	int64_t start_ns, end_ns, now_ns; /* session clock */
	int64_t last_pass_id, last_pass_ns;
	int64_t recorded_passes, recorded_rows, sampled_passes;
	int64_t n_models, model_number;
	struct mt_top_count losses[MT_TOP_MAX_LOSSES]; /* those above 0 */
	size_t n_losses;
	struct mt_top_count left_out[2]; /* by sampling, in disabled regions */
	size_t n_left_out;
	struct mt_top_gap gaps[MT_TOP_MAX_GAPS];
	size_t n_gaps;
	struct mt_top_source_state sources[MT_TOP_MAX_SOURCES];
	size_t n_sources;
	char notes[MT_TOP_MAX_NOTES][MT_TOP_TEXT_BYTES];
	size_t n_notes;
};

/* The roles of a graph's nodes. */
struct mt_top_graph {
	int64_t graph;
	size_t n_nodes;
	uint8_t *roles;
};

/* Sums over the recording, from expert_load_window. */
struct mt_top_totals {
	uint64_t *closed; /* [n_cells], of windows before open_ns */
	uint64_t *all;	  /* [n_cells] */
	uint64_t *before; /* [n_cells], of the look before, where no pass is kept; or NULL */
	uint64_t closed_rows[MT_TOP_PHASES], rows[MT_TOP_PHASES], rows_before[MT_TOP_PHASES];
	int64_t passes_before;
	int64_t open_ns, length_ns;
	struct mt_top_bucket passes; /* of the model, up to pass_cursor; where passes are kept */
	int64_t pass_cursor;
};

struct mt_top {
	/* What is asked for. */
	int64_t window_ns; /* 0: the whole recording */
	int64_t recording_wanted, model_wanted; /* 0: the last one, the first target */
	int64_t budget_ns; /* reading stops then and goes on at the next look; 0: never */

	struct mt_top_facts facts;
	int64_t model_id, n_layers_known;
	struct mt_top_layer *layers;
	size_t n_layers, n_cells;
	int16_t *ranks; /* [n_cells], of the expert map in force; -1: unknown; or NULL: none */
	int64_t map_epoch;

	int64_t bucket_ns;
	struct mt_top_bucket buckets[MT_TOP_BUCKETS];
	int64_t first_seen_ns; /* where no pass is kept: since then changes are seen; -1: not yet */
	int64_t pass_cursor, kernel_cursor, launch_cursor, power_cursor; /* -1: not yet placed */
	bool is_behind; /* the budget was used up before everything was read */
	bool is_torn;   /* the look before was cut off: buckets may have parts of passes */
	struct mt_top_totals totals;
	uint8_t *roles; /* [MT_TOP_MAX_NAMES], by string_id */
	int64_t last_name;
	struct mt_top_graph *graphs;
	size_t n_graphs;
	struct mt_top_meter *meters; /* [MT_TOP_MAX_METERS] */
	size_t n_meters, n_more_meters;
};

/* ---- state (top_state.c) ---- */

/* MT_EXIT_OK, or MT_EXIT_FAILED after an error line. */
int mt_top_init(struct mt_top *top);
void mt_top_free(struct mt_top *top);
/* Forget everything that was read. */
void mt_top_reset(struct mt_top *top);
/* Another window: what lies in buckets is read again. */
void mt_top_window_set(struct mt_top *top, int64_t window_ns);
/* What lies in buckets is read again. */
void mt_top_buckets_reset(struct mt_top *top);
/* The next model of the file. */
void mt_top_model_next(struct mt_top *top);
/* The bucket of a time; NULL: it is older than the oldest that is kept. */
struct mt_top_bucket *mt_top_bucket_at(struct mt_top *top, int64_t time_ns);
/* Where the window of the buckets ends, and where the oldest of them begins. */
int64_t mt_top_until_ns(const struct mt_top *top);
int64_t mt_top_from_ns(const struct mt_top *top);
/* The layer's number in top->layers; n_layers: it is none of the model's. */
size_t mt_top_layer_find(const struct mt_top *top, int64_t layer_id);
/* A column's text, cut at the buffer's end; "" of NULL. */
void mt_top_column_copy(sqlite3_stmt *stmt, int column, char *to, size_t to_bytes);
int64_t mt_top_clock_ns(void);

/* ---- reading; MT_EXIT_OK, or another after an error line ---- */

/* One look at a trace that is open, in one transaction (top_read.c). */
int mt_top_look(struct mt_top *top, const struct mt_trace *trace);
int mt_top_facts_read(struct mt_top *top, const struct mt_trace *trace);	 /* top_facts.c */
int mt_top_definitions_read(struct mt_top *top, const struct mt_trace *trace); /* top_layers.c */
int mt_top_passes_read(struct mt_top *top, const struct mt_trace *trace); /* top_read.c */
int mt_top_whole_read(struct mt_top *top, const struct mt_trace *trace); /* top_read.c */
int mt_top_totals_read(struct mt_top *top, const struct mt_trace *trace); /* top_totals.c */
int mt_top_operations_read(struct mt_top *top, const struct mt_trace *trace); /* top_kernels.c */
int mt_top_power_read(struct mt_top *top, const struct mt_trace *trace);      /* top_power.c */
/*
 * The first key of @table, whose rows ascend about in time, at which @time (SQL) is @from_ns or
 * later, less @slack keys. (top_read.c)
 */
int mt_top_key_find(const struct mt_trace *trace, const char *table, const char *key,
		    const char *time, int64_t from_ns, int64_t slack, int64_t *ret_key);

/* ---- what is looked at (top_source.c) ---- */

struct mt_top_source {
	const char *target; /* as given */
	const char *dir;    /* of sockets; NULL: the usual one */
	bool is_session;
	char *path;
	bool has_seen;	/* the file was open before */
	bool is_gone;	/* it was not there at the last look */
	bool had_error; /* the last look failed */
	bool is_held;	/* somebody else had it open at the last look */
	dev_t device;
	ino_t inode;
	bool is_silent; /* the session did not answer when it was asked last */
	int64_t ask_again_ns;
	int64_t notice_until_ns;
	int64_t rest_ns; /* before the next look at the earliest, see mt_top_source_look() */
	char notice[512]; /* what happened to the file; "": nothing */
};

/* Find the file; MT_EXIT_OK or another after an error line. */
int mt_top_source_find(struct mt_top_source *source, const char *target, const char *dir);
void mt_top_source_free(struct mt_top_source *source);
/*
 * Open, look, close. Where @keeps, errors become the notice, and what was read stays. The file shall
 * be closed for most of the time, for a recorder that has to wait for a moment without readers: that
 * is what rest_ns is for.
 */
int mt_top_source_look(struct mt_top_source *source, struct mt_top *top, bool keeps);

/* ---- frames (top_frame.c) ---- */

struct mt_top_balance {
	uint64_t tokens;
	uint32_t hottest;
	uint64_t most;
	uint32_t n_dead;
	double max_over_mean; /* negative: no token */
	double jain;	      /* likewise */
};

struct mt_top_hot {
	size_t layer; /* in top->layers */
	uint32_t expert;
	uint64_t tokens;
	double over_mean;
};

struct mt_top_frame {
	bool is_whole;	     /* tokens, balance and rates are of the whole recording */
	bool has_passes;     /* the mode keeps passes */
	int64_t from_ns, until_ns;
	int64_t recent_from_ns; /* of what is of the last seconds in any case */
	double span_s, recent_span_s;
	int64_t n_passes, n_partial, n_rows, padding_rows; /* negative: unknown */
	uint64_t rows[MT_TOP_PHASES];
	double passes_per_s, tokens_per_s, phase_per_s[MT_TOP_PHASES];
	double mean_rows, mean_ns, mean_active; /* negative: unknown */
	uint64_t max_active;
	uint64_t *tokens; /* [n_cells] */
	size_t n_cells;
	struct mt_top_balance *layers; /* [n_layers] */
	size_t n_layers;
	double ratio_p50, ratio_p95, ratio_worst, jain_p50, jain_worst; /* negative: no token */
	size_t worst_layer;
	struct mt_top_hot hottest[MT_TOP_HOTTEST];
	size_t n_hottest;
	uint64_t n_operations[MT_TOP_ROLES], operations_ns[MT_TOP_ROLES], all_operations_ns;
	double active_by_bucket[MT_TOP_BUCKETS]; /* negative: no pass */
	double rows_by_bucket[MT_TOP_BUCKETS];
};

/* Compute; the arrays of a frame that was zeroed grow as needed. */
int mt_top_frame_make(const struct mt_top *top, struct mt_top_frame *frame);
void mt_top_frame_free(struct mt_top_frame *frame);
/* A meter's mean over the window, and by bucket, oldest first; negative: nothing was read. */
double mt_top_meter_mean(const struct mt_top *top, const struct mt_top_meter *meter,
			 const struct mt_top_frame *frame, double ret_w[MT_TOP_BUCKETS]);

/* ---- showing ---- */

/* A number in at most 6 characters: 999, 12.3, 12.4k, 1.23M; "n/a" of a negative one. */
const char *mt_top_number(double value, char buffer[16]);
const char *mt_top_duration(int64_t length_ns, char buffer[32]);
/* "live", "ended (stopped)", ...: for people. */
void mt_top_state_text(const struct mt_top_facts *facts, char *buffer, size_t buffer_bytes);
/* Losses in one line; "": none. */
void mt_top_loss_text(const struct mt_top_facts *facts, char *buffer, size_t buffer_bytes);
/* What sources lack, in one line; "": nothing. */
void mt_top_sources_text(const struct mt_top_facts *facts, char *buffer, size_t buffer_bytes);
void mt_top_window_text(const struct mt_top_frame *frame, char *buffer, size_t buffer_bytes);

/* Lines without drawing (top_plain.c). */
void mt_top_plain_print(const struct mt_top *top, const struct mt_top_frame *frame,
			const char *label, const char *notice, bool is_utf8);
/* For programs (top_data.c). */
int mt_top_data_print(const struct mt_top *top, const struct mt_top_frame *frame,
		      enum mt_format format);

enum mt_top_order { MT_TOP_BY_ID, MT_TOP_BY_LOAD, MT_TOP_BY_RANK, MT_TOP_N_ORDERS };
enum mt_top_pool { MT_TOP_MEAN, MT_TOP_MAX, MT_TOP_P95, MT_TOP_N_POOLS };
enum mt_top_panel {
	MT_TOP_MAP,
	MT_TOP_LAYERS,
	MT_TOP_POWER,
	MT_TOP_KERNELS,
	MT_TOP_SOURCES,
	MT_TOP_N_PANELS
};

/* What a person chose to see. */
struct mt_top_view {
	enum mt_top_panel panel;
	enum mt_top_order order;
	enum mt_top_pool pool;
	bool is_log, is_paused, has_help, has_keys;
	size_t cursor_layer, cursor_column; /* column: of those that are drawn */
	size_t n_columns;		    /* drawn last */
	size_t scroll;
	const struct mt_top_source *source;
};

/* Draw everything (top_draw.c). */
void mt_top_draw(const struct mt_top *top, const struct mt_top_frame *frame,
		 struct mt_top_view *view, struct mt_canvas *canvas);
/* The heatmap into rows [@row, @row + @n_rows) (top_map.c); returns the rows that it took. */
int mt_top_map_draw(const struct mt_top *top, const struct mt_top_frame *frame,
		    struct mt_top_view *view, struct mt_canvas *canvas, int row, int n_rows);

/* ---- the terminal (top_screen.c, or top_no_screen.c) ---- */

struct mt_top_session {
	struct mt_top *top;
	struct mt_top_source *source;
	struct mt_top_frame *frame;
	struct mt_top_view *view;
	int64_t interval_ns;
	bool is_ascii;
};

/* NULL: a screen can be drawn; else why not and what to do. */
const char *mt_top_screen_absent(void);
/* Until a key or a signal ends it. */
int mt_top_screen_run(struct mt_top_session *session);

#endif
