/* SPDX-License-Identifier: MIT */
/*
 * recover: one clean file out of what a killed process left. The source, with the journal beside
 * it, is copied first, so that it stays as it is; SQLite folds the journal into the copy, and what
 * was unfinished is marked as such.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/cmd_run.h"
#include "cli/out_file.h"
#include "cli/snapshot.h"

struct recover_args {
	struct mt_args common;
	const char *output;
	bool overwrites;
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct recover_args *args = state->input;

	switch (key) {
	case ARGP_KEY_INIT:
		state->child_inputs[0] = &args->common;
		return 0;
	case 'o':
		args->output = arg;
		return 0;
	case 'f':
		args->overwrites = true;
		return 0;
	case ARGP_KEY_END:
		if (!args->output)
			return mt_args_error(&args->common, "-o NEW.db is missing: the original is "
							    "never changed");
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static const struct argp_option options[] = {
	{"output", 'o', "NEW.db", 0, "The clean file", 0},
	{"force", 'f', NULL, 0, "Replace it if it exists", 0},
	{0},
};

static const struct argp_child children[] = {{&mt_args_plain_argp, 0, NULL, 0}, {0}};

static const struct argp argp = {
	.options = options,
	.parser = parse,
	.args_doc = "FILE -o NEW.db",
	.doc = "Make one clean trace out of what a killed process left: the file and the journal "
	       "(-wal) beside it, both of which stay as they are."
	       "\v"
	       "Everything that was committed is in the new file. Recordings without an end get "
	       "the end_reason 'killed' and the time of the last thing known of them; requests "
	       "that were open are 'unfinished'. Rows that no layer points to are left out. A file "
	       "that a process still records into is refused: 'moetrace dump SESSION' copies it.",
	.children = children,
};

static int file_copy(const char *from, const char *to)
{
	static char buffer[1 << 16];
	int in = open(from, O_RDONLY | O_CLOEXEC);
	int out = in < 0 ? -1 : open(to, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	ssize_t n = 1;

	while (out >= 0 && (n = read(in, buffer, sizeof(buffer))) > 0) {
		ssize_t done = 0, m = 0;

		while (done < n && (m = write(out, buffer + done, (size_t)(n - done))) > 0)
			done += m;
		if (m <= 0)
			break;
	}
	if (out < 0 || n != 0) {
		mt_error("%s cannot be copied to %s: %s", from, to, strerror(errno));
		n = -1;
	}
	if (in >= 0)
		close(in);
	if (out >= 0 && close(out) < 0)
		n = -1;
	return n == 0 ? 0 : -1;
}

static const char *const suffixes[] = {"", "-wal", "-journal"};

#define N_SUFFIXES (sizeof(suffixes) / sizeof(suffixes[0]))

/* The file and its journals under another name. */
static int source_copy(const char *from, const char *to)
{
	int result = 0;
	size_t i;

	for (i = 0; i < N_SUFFIXES && result == 0; i++) {
		char *old_name = mt_run_text_join(from, suffixes[i]);
		char *new_name = mt_run_text_join(to, suffixes[i]);

		if (!old_name || !new_name)
			result = -1;
		else if (i == 0 || access(old_name, F_OK) == 0)
			result = file_copy(old_name, new_name);
		free(old_name);
		free(new_name);
	}
	return result;
}

/* Let SQLite fold the copy's journal in. */
static int journal_fold(const char *path, const char *original)
{
	char *uri = mt_trace_uri(path, "mode=rw");
	sqlite3 *db = NULL;
	int rc = SQLITE_NOMEM;

	if (uri)
		rc = sqlite3_open_v2(uri, &db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_URI, NULL);
	if (rc == SQLITE_OK)
		rc = sqlite3_exec(db, "PRAGMA journal_mode = DELETE; SELECT count(*) FROM "
				      "sqlite_schema",
				  NULL, NULL, NULL);
	if (rc != SQLITE_OK)
		mt_error("%s: is damaged or not a trace: %s", original,
			 db ? sqlite3_errmsg(db) : sqlite3_errstr(rc));
	sqlite3_close(db);
	free(uri);
	return rc == SQLITE_OK ? MT_EXIT_OK : MT_EXIT_FAILED;
}

#define SQL_END                                                                              \
	"UPDATE recording AS r SET end_reason = 'killed', end_ns = max(start_ns, "           \
	"(SELECT coalesce(max(coalesce(end_ns, begin_ns)), 0) FROM pass "                    \
	"WHERE recording_id = r.recording_id), "                                             \
	"(SELECT coalesce(max(coalesce(end_ns, begin_ns)), 0) FROM request "                 \
	"WHERE recording_id = r.recording_id), "                                             \
	"(SELECT coalesce(max(end_ns), 0) FROM gap WHERE recording_id = r.recording_id)) "   \
	"WHERE end_ns IS NULL"

static int source_check(const char *path)
{
	struct stat info;

	if (stat(path, &info) < 0) {
		mt_error("%s: %s; give the path of a trace", path, strerror(errno));
		return errno == ENOENT ? MT_EXIT_NOT_FOUND : MT_EXIT_FAILED;
	}
	if (!S_ISREG(info.st_mode)) {
		mt_error("%s is not a regular file", path);
		return MT_EXIT_FAILED;
	}
	if (mt_run_is_in_use(path)) {
		mt_error("%s is in use by another process; end it first, or 'moetrace dump SESSION "
			 "-o FILE' copies it while it is recorded",
			 path);
		return MT_EXIT_FAILED;
	}
	return MT_EXIT_OK;
}

static int recover(const struct recover_args *args, struct mt_snapshot *snapshot)
{
	char *copy = mt_run_text_join(snapshot->temporary, ".source");
	bool is_later;
	int status = MT_EXIT_FAILED;

	if (!copy)
		mt_error("out of memory");
	else if (source_copy(args->common.file, copy) == 0)
		status = journal_fold(copy, args->common.file);
	if (status == MT_EXIT_OK)
		status = mt_snapshot_copy(snapshot, copy, 0, -1, &is_later);
	if (status == MT_EXIT_OK)
		status = mt_snapshot_exec(snapshot, SQL_END);
	if (copy)
		mt_run_recording_discard(copy);
	free(copy);
	return status == MT_EXIT_OK ? mt_snapshot_finish(snapshot) : status;
}

int mt_cmd_recover(int argc, char **argv)
{
	struct recover_args args = {0};
	struct mt_snapshot snapshot;
	int status = mt_args_parse(&argp, argc, argv, &args.common, &args);

	if (status == MT_EXIT_OK)
		mt_out_file_input(args.common.file);
	if (status == MT_EXIT_OK)
		status = source_check(args.common.file);
	if (status == MT_EXIT_OK)
		status = mt_snapshot_begin(args.output, args.overwrites, &snapshot);
	if (status != MT_EXIT_OK)
		return status;
	status = recover(&args, &snapshot);
	mt_snapshot_discard(&snapshot);
	if (status == MT_EXIT_OK)
		printf("%s\n", args.output);
	return status;
}
