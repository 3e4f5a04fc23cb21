/* SPDX-License-Identifier: MIT */
/*
 * Pictures of a trace. What they show comes from the statements that the page and the verbs ask, so
 * that a number is the same wherever it stands; every mark of a picture tells its own in a <title>.
 */
#ifndef MT_CLI_PLOT_H
#define MT_CLI_PLOT_H

#include "cli/cli.h"
#include "cli/plot_color.h"
#include "cli/svg.h"

enum mt_plot_value { MT_PLOT_TOKENS, MT_PLOT_SHARE, MT_PLOT_TIMES, MT_PLOT_WEIGHT };
enum mt_plot_sort { MT_PLOT_BY_ID, MT_PLOT_BY_LOAD, MT_PLOT_BY_RANK };

struct mt_plot_options {
	struct mt_args args;
	const struct mt_plot_kind *kind; /* NULL: not named yet */
	const char *output;
	bool overwrites;
	enum mt_svg_theme theme;
	const char *title; /* NULL: what it shows */
	uint64_t model_id; /* 0: the first one with load */

	enum mt_plot_value value;
	enum mt_plot_sort sort;
	const char *phase;		    /* of phases in plot_load.c, or "all" */
	const char *request;		    /* NULL: of all rows */
	const char *attribute;		    /* KEY=VALUE or KEY; NULL: of all rows */
	uint64_t first_window, last_window; /* from 1; 0: all of the time */
	uint64_t first_layer, last_layer;
	uint64_t n_ranks; /* 0: as recorded */
	bool is_log;
	bool is_scale_fixed; /* of the busiest window */
	double scale_to;     /* 0: by what is shown */
	const char *rule;
};

/* What all pictures have. */
struct mt_plot_frame {
	int64_t recording_id, model_id;
	int64_t request_id; /* 0: none was asked for */
	bool has_span; /* only passes that begin in it, from the first on and before the last */
	int64_t from_ns, until_ns;
	char *subtitle;
	char **notes; /* [n_notes] what the figures leave out */
	size_t n_notes;
};

struct mt_plot_kind {
	const char *name;
	int (*draw)(const struct mt_trace *trace, const struct mt_plot_options *options,
		    struct mt_plot_frame *frame);
};

int mt_plot_heatmap(const struct mt_trace *trace, const struct mt_plot_options *options,
		    struct mt_plot_frame *frame);
int mt_plot_balance(const struct mt_trace *trace, const struct mt_plot_options *options,
		    struct mt_plot_frame *frame);
int mt_plot_oea(const struct mt_trace *trace, const struct mt_plot_options *options,
		struct mt_plot_frame *frame);
int mt_plot_power(const struct mt_trace *trace, const struct mt_plot_options *options,
		  struct mt_plot_frame *frame);

/* ---- the frame (plot_frame.c); functions return an enum mt_exit after an error line ---- */

/* Which recording, model and request are meant, and what is to be said of them. */
int mt_plot_frame_read(const struct mt_trace *trace, const struct mt_plot_options *options,
		       struct mt_plot_frame *ret_frame);
void mt_plot_frame_free(struct mt_plot_frame *frame);

/* One more note. Without memory it is left out. */
void mt_plot_note(struct mt_plot_frame *frame, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

/*
 * One statement of schema/questions with what it asks for: recording, model, request, span, and of
 * an attribute key and value. NULL after an error line.
 */
sqlite3_stmt *mt_plot_question(const struct mt_trace *trace, const char *name,
			       const struct mt_plot_options *options,
			       const struct mt_plot_frame *frame);

/* A picture on its way: between its head and its notes @body_height is the caller's. */
struct mt_plot_sheet {
	struct mt_svg svg;
	double top; /* of the body */
	double bottom;
};

#define MT_PLOT_LEFT_PX 52

/* Draw the head; @about tells the picture to those who do not see it. */
void mt_plot_sheet_begin(struct mt_plot_sheet *sheet, FILE *out,
			 const struct mt_plot_options *options, const struct mt_plot_frame *frame,
			 double width, double body_height, const char *title, const char *about);
/* Draw the notes, and end it. */
void mt_plot_sheet_end(struct mt_plot_sheet *sheet, const struct mt_plot_frame *frame);

/* ---- what a heatmap shows (plot_load.c) ---- */

struct mt_plot_layer {
	int64_t layer_id, layer;
	bool is_hash;
	uint32_t n_experts; /* routed */
	uint32_t n_slots;   /* with zero experts and shared slots */
};

struct mt_plot_balance {
	double tokens, most;
	int64_t hottest;      /* -1: no token */
	double max_over_mean; /* NaN: no token */
	double balancedness;
	uint32_t dead;
};

struct mt_plot_load {
	struct mt_plot_layer *layers; /* [n_layers] */
	struct mt_plot_balance *balance;
	uint32_t n_layers, n_slots; /* of the widest layer */
	double *tokens;		    /* [n_layers][n_slots] */
	double *weights;	    /* mean weight, NaN: unknown; NULL: not asked for */
	double *values;		    /* what is drawn; NaN: unknown */
	uint32_t *order;	    /* of each layer, the expert in each column; NULL: by id */
	uint32_t *ranks; /* of each expert; beyond all ranks: on none. NULL: not by rank */
	struct mt_plot_scale scale;
	uint64_t n_windows;    /* 0: they were not looked at */
	double padding_tokens; /* beside what is shown */
};

/* The span of the windows that were asked for is put into @frame. */
int mt_plot_load_read(const struct mt_trace *trace, const struct mt_plot_options *options,
		      struct mt_plot_frame *frame, struct mt_plot_load *ret_load);
void mt_plot_load_free(struct mt_plot_load *load);

/* Ranks and order of the columns (plot_order.c). */
int mt_plot_load_order(const struct mt_trace *trace, const struct mt_plot_options *options,
		       struct mt_plot_load *load);

/* ---- charts with axes (plot_axis.c) ---- */

struct mt_plot_axis {
	double low, high; /* values at the ends, of which @high is rounded up */
	double step;	  /* between two labels */
	double from_px, to_px;
};

/* An axis from 0, or from @low, to @high or a little more, with about @n_labels labels. */
struct mt_plot_axis mt_plot_axis_make(double low, double high, int n_labels, double from_px,
				      double to_px);
double mt_plot_axis_at(const struct mt_plot_axis *axis, double value);
/* Lines across from @left to @right with labels left of them, and the axis' name above. */
void mt_plot_axis_draw_y(const struct mt_plot_sheet *sheet, const struct mt_plot_axis *axis,
			 double left, double right, const char *name);
/* Labels below @bottom, and the axis' name below them. */
void mt_plot_axis_draw_x(const struct mt_plot_sheet *sheet, const struct mt_plot_axis *axis,
			 double bottom, const char *name);

#endif
