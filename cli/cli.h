/* SPDX-License-Identifier: MIT */
/*
 * What the verbs of the command share: exit codes, error lines, command lines and opened traces.
 * A verb is one file, cmd_NAME.c, with one function of type mt_verb_fn. Data goes to standard
 * output, everything else to standard error; main() flushes and looks for write errors.
 */
#ifndef MT_CLI_CLI_H
#define MT_CLI_CLI_H

#include <argp.h>
#include <stdbool.h>
#include <stdint.h>

#include <sqlite3.h>

#include "cli/table.h"

enum mt_exit {
	MT_EXIT_OK = 0,
	MT_EXIT_FAILED = 1,
	MT_EXIT_USAGE = 2,
	MT_EXIT_NOT_FOUND = 3, /* a file, table or request that is not there */
	MT_EXIT_LOSSES = 4,    /* --strict, and the trace has losses or an unfinished end */
	MT_EXIT_SCHEMA = 5,    /* the file has a newer schema */
};

/* The newest schema that this program reads (PRAGMA user_version): major * 1000 + minor. */
#define MT_SCHEMA_VERSION 1001
/* PRAGMA application_id of a trace: the bytes 'MoEt'. */
#define MT_APPLICATION_ID 1299137908

/**
 * Run a verb.
 *
 * @argv  argv[0] is "moetrace VERB", for argp's texts; the verb's own arguments follow.
 *
 * Returns an enum mt_exit.
 */
typedef int mt_verb_fn(int argc, char **argv);

mt_verb_fn mt_cmd_balance;
mt_verb_fn mt_cmd_doctor;
mt_verb_fn mt_cmd_kernels;
mt_verb_fn mt_cmd_power;
mt_verb_fn mt_cmd_plot;
mt_verb_fn mt_cmd_check;
mt_verb_fn mt_cmd_diff;
mt_verb_fn mt_cmd_dump;
mt_verb_fn mt_cmd_efficiency;
mt_verb_fn mt_cmd_eplb;
mt_verb_fn mt_cmd_eval;
mt_verb_fn mt_cmd_experts;
mt_verb_fn mt_cmd_info;
mt_verb_fn mt_cmd_list;
mt_verb_fn mt_cmd_models;
mt_verb_fn mt_cmd_oea;
mt_verb_fn mt_cmd_overhead;
mt_verb_fn mt_cmd_query;
mt_verb_fn mt_cmd_recover;
mt_verb_fn mt_cmd_report;
mt_verb_fn mt_cmd_requests;
mt_verb_fn mt_cmd_rotate;
mt_verb_fn mt_cmd_route;
mt_verb_fn mt_cmd_run;
mt_verb_fn mt_cmd_start;
mt_verb_fn mt_cmd_status;
mt_verb_fn mt_cmd_stop;
mt_verb_fn mt_cmd_top;
mt_verb_fn mt_cmd_view;

/* ---- error lines (cli.c) ---- */

/* Set once by main(): what error lines begin with, e.g. "moetrace dump". */
void mt_error_set_name(const char *name);

/* One line `moetrace VERB: TEXT` on standard error; TEXT says what, where and what to do. */
void mt_error(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* There is no memory; returns MT_EXIT_FAILED. */
int mt_error_memory(void);
/* The same with `warning: ` before TEXT. */
void mt_warn(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* The same with `note: `: something that figures leave out. */
void mt_note(const char *format, ...) __attribute__((format(printf, 1, 2)));

/*
 * Until it is called with NULL, the last of these lines goes into @buffer, without the verb's name,
 * and nothing to standard error: for a verb whose screen the line would break.
 */
void mt_error_capture(char *buffer, size_t buffer_bytes);

/* The best entry of @names (NULL-terminated) for a mistyped @word; NULL: none is close. */
const char *mt_closest(const char *word, const char *const *names);

/**
 * Parse a whole decimal number.
 *
 * Returns whether @text is one and lies in [@min, @max]; *ret_value is set only then.
 */
bool mt_parse_uint(const char *text, uint64_t min, uint64_t max, uint64_t *ret_value);

/* ---- command lines (cli_args.c) ---- */

/* Keys of long options, above those of every character. */
enum {
	MT_OPT_HELP = 0x1000,
	MT_OPT_VERSION,
	MT_OPT_FORMAT,
	MT_OPT_RECORDING,
	MT_OPT_EXPLAIN,
	MT_OPT_OWN, /* a verb's own keys start here */
};

/*
 * The options of every verb that reads a trace, as a child of the verb's own argp (its first):
 * FILE, --format, --help, --version. It also prints the one line for an unknown option.
 */
struct mt_args {
	const char *file; /* never NULL after a successful parse */
	enum mt_format format;
	bool markdown;	       /* --format markdown is allowed, csv is not; set by the verb */
	bool no_file;	       /* the verb takes no FILE; set by the verb */
	bool no_csv;	       /* the verb prints several tables; set by the verb */
	uint64_t recording_id; /* --recording; 0: all of them */
	bool explains;	       /* --explain */
	const char *when_empty; /* what may have left nothing of the only table; NULL: nothing */
	bool is_reported;      /* an error line was printed already */
};

extern const struct argp mt_args_argp;		 /* with --format; input: struct mt_args */
extern const struct argp mt_args_recording_argp; /* with --recording, too */
extern const struct argp mt_args_explain_argp;	 /* with --recording and --explain, too */
extern const struct argp mt_args_sections_argp;	 /* mt_args_argp without csv */
extern const struct argp mt_args_follow_argp;	 /* the same with --recording */
extern const struct argp mt_args_report_argp;	 /* mt_args_sections_argp, markdown in place of csv */
extern const struct argp mt_args_picture_argp;	 /* with --recording, without --format */
extern const struct argp mt_args_plain_argp;	 /* with neither */

/**
 * Parse a verb's command line. --help and --version end the process.
 *
 * @input  What the verb's parser gets as state->input; it hands @args on to child 0.
 *
 * Returns MT_EXIT_OK, or MT_EXIT_USAGE after one line on standard error.
 */
int mt_args_parse(const struct argp *argp, int argc, char **argv, struct mt_args *args,
		  void *input);

/* The parser of a verb that has no options of its own: child 0 gets what it would have. */
error_t mt_args_pass_on(int key, char *arg, struct argp_state *state);

/* Print a usage error, `moetrace VERB: TEXT; see moetrace VERB --help`; returns EINVAL. */
error_t mt_args_error(struct mt_args *args, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

/* Parse option @name's value as a number in [@min, @max]; 0, or EINVAL after an error line. */
error_t mt_args_uint(struct mt_args *args, const char *name, const char *text, uint64_t min,
		     uint64_t max, uint64_t *ret_value);

/* Take the path of a file, which must not be empty, as option @name's value. */
error_t mt_args_path(struct mt_args *args, const char *name, const char *text,
		     const char **ret_path);

/* ---- traces (cli_open.c) ---- */

struct mt_trace {
	sqlite3 *db;
	const char *path;  /* as given; not owned */
	bool is_held;	   /* another process had the file open when it was opened here */
	bool is_query;	   /* errors are those of the user's SQL; set by the verb */
	bool is_check;	   /* errors end the proofs; set by the verb */
	bool is_wal;	   /* its header asks for a journal beside it */
	bool is_immutable; /* the journal could not be read, see mt_trace_open() */
	const char *parameters; /* with which SQLite opened it */
	int64_t file_bytes;
	int64_t wal_bytes; /* 0: there is none */
};

/**
 * Open a trace for reading, with the functions of the extension registered. A journal beside it
 * (PATH-wal), of a live or of a killed writer, is read, too; where SQLite cannot do that because
 * the folder is not writable, the file alone is read and a warning says so.
 *
 * Returns  MT_EXIT_OK
 *          MT_EXIT_NOT_FOUND  there is no such file
 *          MT_EXIT_FAILED     not a regular file, not readable, not a trace
 *          MT_EXIT_SCHEMA     a newer schema than MT_SCHEMA_VERSION
 *          each but the first after one line on standard error
 * Owner    caller; release with mt_trace_close().
 */
int mt_trace_open(const char *path, struct mt_trace *ret_trace);
void mt_trace_close(struct mt_trace *trace);

/* Make another trace, or the same one again, readable as database @schema of @trace's connection. */
int mt_trace_attach(const struct mt_trace *trace, const char *path, const char *schema);

/* "file:PATH?PARAMETERS" for SQLite, whatever PATH holds; to be freed. NULL: out of memory. */
char *mt_trace_uri(const char *path, const char *parameters);

/* Print SQLite's last error on @trace as an error line; returns MT_EXIT_FAILED. */
int mt_trace_error(const struct mt_trace *trace);

/**
 * Prepare one of the program's own statements.
 *
 * Returns  the statement, to be finalized by the caller; NULL after an error line.
 */
sqlite3_stmt *mt_trace_prepare(const struct mt_trace *trace, const char *sql);

/*
 * Whether @stmt has a row: MT_EXIT_OK; MT_EXIT_NOT_FOUND, which the caller puts into words; or
 * MT_EXIT_FAILED after an error line. @stmt is finalized.
 */
int mt_trace_has_row(const struct mt_trace *trace, sqlite3_stmt *stmt);

/* Read one integer; MT_EXIT_OK, or MT_EXIT_FAILED after an error line. No row, NULL: 0. */
int mt_trace_int(const struct mt_trace *trace, const char *sql, int64_t *ret_value);

/**
 * Step @stmt to its end and print its rows as one table, named by its columns.
 *
 * Returns MT_EXIT_OK, or MT_EXIT_FAILED after an error line. @stmt is left to the caller.
 */
int mt_trace_print(const struct mt_trace *trace, struct mt_output *output, sqlite3_stmt *stmt);

/* mt_trace_prepare() and mt_trace_print() of a statement without parameters. */
int mt_trace_print_sql(const struct mt_trace *trace, struct mt_output *output, const char *sql);

/* mt_trace_prepare() with ?1, if it has one, bound to the recording; 0: NULL, all of them. */
sqlite3_stmt *mt_trace_prepare_recording(const struct mt_trace *trace, const char *sql,
					 uint64_t recording_id);

/* MT_EXIT_OK if there is such a recording or @recording_id is 0; else an error line. */
int mt_trace_recording_check(const struct mt_trace *trace, uint64_t recording_id);

/*
 * MT_EXIT_OK if one of the recordings in question (@recording_id, 0: all) keeps what @modes, words
 * between commas, keep; else an error line that says what @needs it.
 */
int mt_trace_mode_check(const struct mt_trace *trace, uint64_t recording_id, const char *modes,
			const char *needs);

/*
 * Print each row of @stmt as a note: its last column is the text, the first, where there are
 * several, the recording.
 * @stmt is finalized, and may be NULL after an error line.
 */
int mt_trace_print_notes(const struct mt_trace *trace, sqlite3_stmt *stmt);

/* Whether the trace has a recording; if not, a line on standard error says so. */
bool mt_trace_has_recording(const struct mt_trace *trace);

/* ---- verbs that read one trace (cli_verb.c) ---- */

struct mt_trace_verb {
	const struct argp *argp;
	const char *modes; /* recordings that it can read, as for mt_trace_mode_check(); NULL: all */
	const char *needs; /* with modes: what needs them */
	bool takes_empty;  /* a trace without a recording is printed, too */
	/* @input as it was given to mt_trace_verb_run(). Returns an enum mt_exit. */
	int (*print)(struct mt_trace *trace, void *input);
};

/**
 * Run a verb that reads one trace: parse, open, check the recording that was asked for, print and
 * close. Of a trace without a recording programs get an empty document, people a warning.
 *
 * @input  What the verb's parser gets as state->input; it hands @args on to child 0.
 */
int mt_trace_verb_run(const struct mt_trace_verb *verb, int argc, char **argv,
		      struct mt_args *args, void *input);

/*
 * Print the rows of @stmt as the only table of a verb; scaled: nanoseconds are shown to people as
 * milliseconds. @stmt is finalized, and may be NULL after an error line.
 */
enum mt_scale { MT_SCALE_NONE, MT_SCALE_TIMES };
int mt_trace_print_only(const struct mt_trace *trace, const struct mt_args *args,
			enum mt_scale scale, sqlite3_stmt *stmt);

/* State of a recording that has no end. */
enum mt_writer {
	MT_WRITER_GONE, /* nothing writes the file any more: the writer was killed or failed */
	MT_WRITER_LIVE,
};

/* Whether the process that recorded @recording_id still runs and somebody holds the file. */
enum mt_writer mt_trace_writer(const struct mt_trace *trace, int64_t recording_id);

/* The process of this machine that holds the file and recorded into it last; 0: there is none. */
int64_t mt_trace_writer_pid(const struct mt_trace *trace);

#endif
