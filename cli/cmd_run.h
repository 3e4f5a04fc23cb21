/* SPDX-License-Identifier: MIT */
/*
 * The parts of `moetrace run`: its command line (cmd_run_args.c), its output files
 * (cmd_run_files.c), what it prints (cmd_run_print.c), and the run itself (cmd_run.c).
 */
#ifndef MT_CLI_CMD_RUN_H
#define MT_CLI_CMD_RUN_H

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include <moetrace/moetrace.h>

#include "cli/cli.h"
#include "kernels/engine/serve.h"

struct mt_run_options {
	struct mt_args args;
	const char *model;
	const char *workload;
	const char *output;	 /* NULL: nothing is recorded */
	const char *text_output; /* NULL: none */
	uint32_t n_batch;
	uint32_t n_chunk;
	uint32_t n_context;
	uint32_t n_threads;
	int32_t stop_byte; /* -1: none */
	double temperature;
	uint64_t seed;
	bool no_record;
	bool records_tokens;
	bool overwrites;
};

/**
 * Parse the command line of the verb.
 *
 * Returns MT_EXIT_OK, or MT_EXIT_USAGE after one line on standard error.
 */
int mt_run_options_parse(int argc, char **argv, struct mt_run_options *ret_options);

/**
 * Look at the output paths before anything is done: each must be new, or with -f a regular file
 * that is neither an input of the run nor in use. Nothing is changed.
 *
 * Returns MT_EXIT_OK, or MT_EXIT_FAILED after one line on standard error.
 */
int mt_run_outputs_check(const struct mt_run_options *options);

/* Remove what -f replaces at the path of the recording, with the journal files beside it. */
int mt_run_recording_clear(const struct mt_run_options *options);

/* Remove a recording that holds nothing, because the run never started. */
void mt_run_recording_discard(const char *path);

/* The text output on its way: a file under a temporary name beside the final one. */
struct mt_run_text {
	FILE *out; /* NULL: no text is wanted */
	char *temporary;
	const char *path;
	bool overwrites;
};

/**
 * Create the temporary file. Without a text output among @options nothing is opened.
 *
 * Returns MT_EXIT_OK, or MT_EXIT_FAILED after one line on standard error.
 */
int mt_run_text_open(const struct mt_run_options *options, struct mt_run_text *ret_text);

/* Write a line for each request in the order of the workload and give the file its name. */
int mt_run_text_finish(struct mt_run_text *text, const struct mtk_server *server,
		       uint32_t n_requests);

/* Remove the temporary file if mt_run_text_finish() did not give it its name. */
void mt_run_text_discard(struct mt_run_text *text);

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
};

/* Returns MT_EXIT_OK, or MT_EXIT_FAILED after one line on standard error. */
int mt_run_summary_print(const struct mt_run_result *result, enum mt_format format);

#endif
