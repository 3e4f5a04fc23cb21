/* SPDX-License-Identifier: MIT */
/*
 * The paths that `moetrace run` writes to. Every refusal comes before the run starts. A recording is
 * written under its own name, so that it can be read while it grows and survives a crash; one that
 * -f replaces is set aside under another name until the new one has begun.
 *
 * A process loses its own locks on a file when it closes any descriptor of it, so nothing here may
 * look at a recording that this process has open.
 */
#include "cli/cmd_run.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/out_file.h"

/* A recording, and what SQLite keeps beside it. */
static const char *const suffixes[] = {"", "-wal", "-shm", "-journal"};

#define N_SUFFIXES (sizeof(suffixes) / sizeof(suffixes[0]))

_Static_assert(N_SUFFIXES == MT_RUN_N_FILES, "struct mt_run_aside has a flag a file");

char *mt_run_text_join(const char *path, const char *suffix)
{
	size_t n_bytes = strlen(path) + strlen(suffix) + 1;
	char *joined = malloc(n_bytes);

	if (joined)
		snprintf(joined, n_bytes, "%s%s", path, suffix);
	return joined;
}

/* Whether another process holds a lock on @path, as one that has a database open does. */
static bool is_locked(const char *path)
{
	struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
	struct stat info;
	bool locked;
	int fd;

	if (lstat(path, &info) < 0 || !S_ISREG(info.st_mode))
		return false;
	fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	if (fd < 0)
		return false;
	locked = fcntl(fd, F_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
	close(fd);
	return locked;
}

bool mt_run_is_in_use(const char *path)
{
	char *shared = mt_run_text_join(path, "-shm");
	bool locked = is_locked(path) || (shared && is_locked(shared));

	free(shared);
	return locked;
}

static int in_use_report(const char *path)
{
	mt_error("%s is in use by another process; wait for it, or give another name", path);
	return MT_EXIT_FAILED;
}

static int path_check(const struct mt_run_options *options, const char *path)
{
	struct stat info;

	if (lstat(path, &info) < 0) {
		if (errno == ENOENT)
			return MT_EXIT_OK;
		mt_error("%s: %s", path, strerror(errno));
		return MT_EXIT_FAILED;
	}
	if (S_ISDIR(info.st_mode))
		mt_error("%s is a directory; give the name of a file in it", path);
	else if (!options->overwrites)
		mt_error("%s exists already; give another name, or -f to replace it", path);
	else if (!S_ISREG(info.st_mode))
		mt_error("%s is not a regular file and is not replaced", path);
	else
		return MT_EXIT_OK;
	return MT_EXIT_FAILED;
}

/* A journal without its database would be taken for that of the new one. */
static int journals_check(const struct mt_run_options *options)
{
	int exit_code = MT_EXIT_OK;
	size_t i;

	for (i = 1; i < N_SUFFIXES && exit_code == MT_EXIT_OK && !options->overwrites; i++) {
		char *journal = mt_run_text_join(options->output, suffixes[i]);
		struct stat info;

		if (!journal || lstat(journal, &info) == 0) {
			mt_error(journal ? "%s belongs to another recording; move it away, or give "
					   "-f to remove it"
					 : "%s: out of memory",
				 journal ? journal : options->output);
			exit_code = MT_EXIT_FAILED;
		}
		free(journal);
	}
	return exit_code;
}

static int recording_check(const struct mt_run_options *options)
{
	int exit_code;

	if (mt_run_is_in_use(options->output))
		return in_use_report(options->output);
	exit_code = path_check(options, options->output);
	return exit_code == MT_EXIT_OK ? journals_check(options) : exit_code;
}

/* The text may replace neither the recording nor what lies beside it. */
static int outputs_differ(const struct mt_run_options *options)
{
	int exit_code = MT_EXIT_OK;
	size_t i;

	for (i = 0; i < N_SUFFIXES && exit_code == MT_EXIT_OK; i++) {
		char *path = mt_run_text_join(options->output, suffixes[i]);

		if (!path || mt_out_file_is_same_name(path, options->text_output)) {
			mt_error(path ? "-o and --text-output name the same file %s; give each its "
					"own"
				      : "%s: out of memory",
				 path ? path : options->output);
			exit_code = MT_EXIT_FAILED;
		}
		free(path);
	}
	return exit_code;
}

/* What lies beside a recording that is replaced goes with it. */
static int inputs_check(const struct mt_run_options *options)
{
	const char *const inputs[] = {options->model, options->workload, options->replay_path};

	for (size_t i = 0; i < sizeof(inputs) / sizeof(inputs[0]); i++)
		if (inputs[i])
			mt_out_file_input(inputs[i]);
	if (options->text_output && mt_out_file_is_input(options->text_output))
		return MT_EXIT_USAGE;
	for (size_t i = 0; options->output && i < N_SUFFIXES; i++) {
		char *path = mt_run_text_join(options->output, suffixes[i]);
		const bool is_input = path && mt_out_file_is_input(path);

		free(path);
		if (is_input)
			return MT_EXIT_USAGE;
	}
	return MT_EXIT_OK;
}

int mt_run_outputs_check(const struct mt_run_options *options)
{
	int exit_code = inputs_check(options);

	if (exit_code == MT_EXIT_OK && options->output)
		exit_code = recording_check(options);
	if (exit_code == MT_EXIT_OK && options->text_output)
		exit_code = path_check(options, options->text_output);
	if (exit_code == MT_EXIT_OK && options->output && options->text_output)
		exit_code = outputs_differ(options);
	return exit_code;
}

/* Give file @i of a recording the name that it has beside @to; never over another file. */
static int file_move(const char *from, const char *to, size_t i)
{
	char *old_name = mt_run_text_join(from, suffixes[i]);
	char *new_name = mt_run_text_join(to, suffixes[i]);
	struct stat info;
	int status = -1;

	errno = ENOMEM;
	if (old_name && new_name && lstat(old_name, &info) == 0) {
		errno = EEXIST;
		if (lstat(new_name, &info) < 0)
			status = rename(old_name, new_name);
	}
	free(old_name);
	free(new_name);
	return status;
}

static void aside_put_back(struct mt_run_aside *aside)
{
	size_t i;

	for (i = 0; i < N_SUFFIXES; i++) {
		if (!aside->is_moved[i])
			continue;
		if (file_move(aside->path, aside->original, i) < 0)
			mt_warn("%s%s: what it held is now in %s%s: %s", aside->original,
				suffixes[i], aside->path, suffixes[i], strerror(errno));
		aside->is_moved[i] = false;
	}
}

int mt_run_aside_begin(const struct mt_run_options *options, struct mt_run_aside *ret_aside)
{
	struct mt_run_aside *aside = ret_aside;
	char suffix[32];
	size_t i;

	*aside = (struct mt_run_aside){.original = options->output};
	if (!options->overwrites)
		return MT_EXIT_OK;
	/* Time has passed since the paths were checked. */
	if (mt_run_is_in_use(options->output))
		return in_use_report(options->output);
	snprintf(suffix, sizeof(suffix), ".%ld.old", (long)getpid());
	aside->path = mt_run_text_join(options->output, suffix);
	if (!aside->path) {
		mt_error("%s: out of memory", options->output);
		return MT_EXIT_FAILED;
	}
	for (i = 0; i < N_SUFFIXES; i++) {
		aside->is_moved[i] = file_move(options->output, aside->path, i) == 0;
		if (aside->is_moved[i] || errno == ENOENT)
			continue;
		mt_error("%s%s cannot be replaced: %s", options->output, suffixes[i],
			 strerror(errno));
		mt_run_aside_end(aside, false);
		return MT_EXIT_FAILED;
	}
	/* Locks go with a file: this is what is replaced, whatever was there before. */
	if (mt_run_is_in_use(aside->path)) {
		mt_run_aside_end(aside, false);
		return in_use_report(options->output);
	}
	return MT_EXIT_OK;
}

void mt_run_aside_end(struct mt_run_aside *aside, bool is_replaced)
{
	size_t i;

	if (!is_replaced)
		aside_put_back(aside);
	for (i = 0; i < N_SUFFIXES && is_replaced; i++) {
		char *name = aside->is_moved[i] ? mt_run_text_join(aside->path, suffixes[i]) : NULL;

		if (name)
			(void)unlink(name);
		free(name);
	}
	free(aside->path);
	aside->path = NULL;
}

void mt_run_recording_discard(const char *path)
{
	size_t i;

	for (i = 0; i < N_SUFFIXES; i++) {
		char *name = mt_run_text_join(path, suffixes[i]);

		if (name)
			(void)unlink(name);
		free(name);
	}
}
