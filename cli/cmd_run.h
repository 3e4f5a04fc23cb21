/* SPDX-License-Identifier: MIT */
/*
 * The parts of `moetrace run`: its command line (cmd_run_args.c, cmd_run_complete.c), its model and
 * who routes (cmd_run_shape.c, cmd_run_memory.c, cmd_run_replay.c), a rule against none
 * (cmd_run_compare.c), the paths that it writes to (cmd_run_files.c), its text output
 * (cmd_run_text.c), the signals that end it (cmd_run_signal.c), what it prints (cmd_run_print.c), and
 * the run itself (cmd_run.c).
 */
#ifndef MT_CLI_CMD_RUN_H
#define MT_CLI_CMD_RUN_H

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include <moetrace/moetrace.h>

#include "cli/cli.h"
#include "cli/device_args.h"
#include "cli/rule_args.h"
#include "kernels/engine/choice.h"
#include "kernels/engine/serve.h"
#include "kernels/engine/shape.h"

#define MT_RUN_MAX_RULES 8

struct mt_run_options {
	struct mt_args args;
	const char *model; /* a file; or else */
	const char *shape; /* the name of a preset */
	uint32_t n_layers; /* of the shape; 0: all */
	bool has_shared_slots;
	uint64_t expert_pool_bytes; /* 0: none */
	const char *routing_text;   /* as given, or model */
	enum mtk_choice_kind routing;
	double zipf_exponent;
	const char *replay_path;
	const char *workload;
	const char *output;	 /* NULL: nothing is recorded */
	const char *text_output; /* NULL: none */
	const char *collectors;	 /* NULL: the environment's, else none */
	const char *socket_dir;	 /* NULL: the environment's, else the default */
	uint32_t n_batch;
	uint32_t n_chunk;
	uint32_t n_context;
	uint32_t n_kv_positions; /* 0: enough */
	bool is_lockstep;
	uint32_t n_abort;	 /* 0: none is aborted */
	bool reuses_prefixes;
	uint32_t n_threads;
	uint32_t n_repeat;
	int32_t stop_byte; /* -1: none */
	double temperature;
	uint64_t seed;
	bool has_seed;
	struct mt_rule rule;
	struct mt_rule compare[MT_RUN_MAX_RULES]; /* each against no rule, in rounds of runs */
	uint32_t n_compare;
	uint32_t n_pairs;
	struct mt_device device;
	uint32_t mode; /* enum moetrace_mode */
	bool has_mode;
	uint32_t sample_every_n_passes;
	uint32_t sample_every_n_requests;
	uint64_t flight_bytes;	 /* 0: not given */
	uint32_t flight_seconds; /* 0: not given */
	bool no_record;
	bool is_idle;
	bool records_tokens;
	bool records_kernels;
	bool records_margins;
	bool overwrites;
};

/**
 * Parse the command line of the verb.
 *
 * Returns MT_EXIT_OK, or MT_EXIT_USAGE after one line on standard error.
 */
int mt_run_options_parse(int argc, char **argv, struct mt_run_options *ret_options);

/*
 * Complete the options by what the environment and the defaults say, or refuse them together: an
 * error of argp, after one line on standard error.
 */
error_t mt_run_options_complete(struct mt_run_options *options);

/* The mode that is called @text (enum moetrace_mode); returns whether there is one. */
bool mt_run_mode_find(const char *text, uint32_t *ret_mode);

/* ---- the model and who routes ---- */

/* Bytes of memory that this process may still take; UINT64_MAX: nothing bounds them. */
uint64_t mt_run_memory_available(void);

/**
 * Make the model that --shape names, if it and the server fit the memory.
 *
 * Returns MT_EXIT_OK, MT_EXIT_NOT_FOUND or MT_EXIT_FAILED, the latter after one line on standard
 *         error and before any of the memory was taken.
 */
int mt_run_shape_load(const struct mt_run_options *options, const struct mtk_workload *workload,
		      const struct mtk_serve_options *serve, struct mtk_model **ret_model);

/* Read what --routing replay:FILE names: MT_EXIT_OK, or another code after an error line. */
int mt_run_replay_read(const struct mt_run_options *options, const struct mtk_route_config *route,
		       uint32_t n_layers, const struct mtk_workload *workload,
		       struct mtk_replay **ret_replay);

/* Who chooses the experts; both NULL: the router. */
struct mt_run_choice {
	struct mtk_choice *choice;
	struct mtk_replay *replay;
};

/* Make what --routing asks for: MT_EXIT_OK, or another code after an error line. */
int mt_run_choice_make(const struct mt_run_options *options, const struct mtk_model *model,
		       const struct mtk_workload *workload, struct mt_run_choice *ret_choice);

void mt_run_choice_release(struct mt_run_choice *choice);

/*
 * What went wrong once the run had begun: all of it becomes one line, printed when the files are
 * closed.
 */
struct mt_run_failure {
	char text[1536];
};

/* Add a clause to what went wrong. */
void mt_run_fail(struct mt_run_failure *failure, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

/* ---- a rule against none ---- */

/* What a block of a comparison is: the workload, served once. */
struct mt_compare {
	const struct mt_run_options *options;
	const struct mtk_model *model;
	const struct mtk_workload *workload;
	const char *model_name;
	struct mtk_serve_options serve; /* without a rule */
	struct moetrace_session *session;
	struct mt_run_failure *failure;
	double *same_tokens; /* [n_compare][n_pairs]: share of generated tokens before a text's
				first change */
	struct mtk_serve_stats stats; /* of the last block */
};

/**
 * Serve the workload in n_pairs rounds: plainly and under each rule, every other round the other way
 * around. Each run is a recording of the session, whose first one has been started; before them one
 * is not recorded.
 *
 * Returns MT_EXIT_OK, or MT_EXIT_FAILED with the reason in the failure.
 */
int mt_compare_serve(struct mt_compare *compare);

/* Print the paired change, from the recordings in the closed file and the texts. */
int mt_compare_print(const struct mt_compare *compare, const char *path);

/* ---- paths ---- */

/* @path with @suffix behind it, to be freed; NULL: out of memory. */
char *mt_run_text_join(const char *path, const char *suffix);

/**
 * Look at the output paths before anything is done: each must be new, or with -f a regular file
 * that is neither an input of the run nor in use. Nothing is changed.
 *
 * Returns MT_EXIT_OK, or after one line on standard error MT_EXIT_USAGE (an input) or MT_EXIT_FAILED.
 */
int mt_run_outputs_check(const struct mt_run_options *options);

/* Whether another process has the recording at @path open; this one may not have it open. */
bool mt_run_is_in_use(const char *path);

/* A recording and the three files that SQLite may keep beside it. */
#define MT_RUN_N_FILES 4

/* What -f replaces, under another name until the new recording has begun. */
struct mt_run_aside {
	char *path; /* NULL: nothing is replaced */
	const char *original;
	bool is_moved[MT_RUN_N_FILES];
};

/**
 * Set aside what is at the path of the recording. Without -f nothing is done.
 *
 * @ret_aside  To be ended by mt_run_aside_end() after success.
 *
 * Returns MT_EXIT_OK, or MT_EXIT_FAILED after one line on standard error; then all is as before.
 */
int mt_run_aside_begin(const struct mt_run_options *options, struct mt_run_aside *ret_aside);

/* Remove what was set aside, or give it its name back. */
void mt_run_aside_end(struct mt_run_aside *aside, bool is_replaced);

/* Remove a recording that holds nothing, because the run never started. */
void mt_run_recording_discard(const char *path);

/* ---- the text output ---- */

/* The text output on its way: a file under a temporary name beside the final one. */
struct mt_run_text {
	FILE *out; /* NULL: no text is wanted */
	char *temporary;
	const char *path;
	bool overwrites;
	bool is_published;
};

/**
 * Create the temporary file. Without a text output among @options nothing is opened.
 *
 * Returns MT_EXIT_OK, or MT_EXIT_FAILED after one line on standard error.
 */
int mt_run_text_open(const struct mt_run_options *options, struct mt_run_text *ret_text);

/*
 * Write a line for each request in the order of the workload and give the file its name.
 *
 * Returns MT_EXIT_OK, or MT_EXIT_FAILED with a clause in @failure.
 */
int mt_run_text_finish(struct mt_run_text *text, const struct mtk_server *server,
		       uint32_t n_requests, struct mt_run_failure *failure);

/* Remove the temporary file if it did not get its name. No other thread may run any more. */
void mt_run_text_discard(struct mt_run_text *text);

/* ---- signals ---- */

/* From here on SIGINT, SIGTERM and SIGHUP end the run, unless they were ignored. */
void mt_run_signals_catch(void);

bool mt_run_signals_seen(void);

/* Let none of them arrive; threads made meanwhile never take one. */
void mt_run_signals_hold(sigset_t *ret_before);
void mt_run_signals_release(const sigset_t *before);

/* A second signal removes the file at @temporary, which stays valid until the next call. */
void mt_run_signals_remove(const char *temporary);

/* ---- what is printed ---- */

/* The progress line of a terminal; zero its state first. */
struct mt_run_progress {
	uint64_t last_ns;
	bool is_shown;
};

void mt_run_progress_show(struct mt_run_progress *progress, const struct mtk_serve_stats *stats);
void mt_run_progress_clear(struct mt_run_progress *progress);

/* What the run did, for its summary. */
struct mt_run_result {
	struct mtk_serve_stats served;
	struct moetrace_session_status recorded; /* all zero: nothing was recorded */
	const char *path;			 /* of the recording, or NULL */
	uint64_t file_bytes;			 /* after close */
	const char *routing;			 /* who chose the experts */
	const char *device;			 /* what computed; NULL: nobody asked */
	const struct mtk_model *model;
};

/* Returns MT_EXIT_OK, or MT_EXIT_FAILED after one line on standard error. */
int mt_run_summary_print(const struct mt_run_result *result, enum mt_format format);

#endif
