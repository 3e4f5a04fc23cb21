/* SPDX-License-Identifier: MIT */
/*
 * The output files of `moetrace run`. Every refusal comes before the run starts. A recording is
 * written under its own name, so that it can be read while it grows and survives a crash; the text
 * output appears under its name only when it is complete.
 */
#include "cli/cmd_run.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/jsonw.h"
#include "common/utf8.h"

/* What SQLite keeps beside a database. */
static const char *const journal_suffixes[] = {"-wal", "-shm", "-journal"};

#define N_JOURNALS (sizeof(journal_suffixes) / sizeof(journal_suffixes[0]))

static char *text_join(const char *path, const char *suffix)
{
	size_t n_bytes = strlen(path) + strlen(suffix) + 1;
	char *joined = malloc(n_bytes);

	if (joined)
		snprintf(joined, n_bytes, "%s%s", path, suffix);
	return joined;
}

static bool is_same_file(const struct stat *info, const char *path)
{
	struct stat other;

	return path && stat(path, &other) == 0 && other.st_dev == info->st_dev &&
	       other.st_ino == info->st_ino;
}

/* Whether another process holds a lock on @path, as one that records into a database does. */
static bool is_locked(const char *path)
{
	struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
	int fd = open(path, O_RDWR | O_CLOEXEC);
	bool locked;

	if (fd < 0)
		return false;
	locked = fcntl(fd, F_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
	close(fd);
	return locked;
}

static bool is_recorded_into(const char *path)
{
	char *shared = text_join(path, "-shm");
	bool locked = is_locked(path) || (shared && is_locked(shared));

	free(shared);
	return locked;
}

static int path_check(const struct mt_run_options *options, const char *path)
{
	struct stat info;

	if (lstat(path, &info) < 0) {
		if (errno == ENOENT && *path != '\0')
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
	else if (is_same_file(&info, options->model) || is_same_file(&info, options->workload))
		mt_error("%s is an input of this run and is not replaced", path);
	else
		return MT_EXIT_OK;
	return MT_EXIT_FAILED;
}

/* A journal without its database would be taken for that of the new one. */
static int journals_check(const struct mt_run_options *options)
{
	size_t i;

	for (i = 0; i < N_JOURNALS; i++) {
		char *journal = text_join(options->output, journal_suffixes[i]);
		struct stat info;
		bool exists = journal && lstat(journal, &info) == 0;

		if (exists && !options->overwrites)
			mt_error("%s is left of an earlier file; remove it, or give -f", journal);
		free(journal);
		if (exists && !options->overwrites)
			return MT_EXIT_FAILED;
	}
	return MT_EXIT_OK;
}

int mt_run_outputs_check(const struct mt_run_options *options)
{
	int exit_code = MT_EXIT_OK;

	if (options->output)
		exit_code = path_check(options, options->output);
	if (exit_code == MT_EXIT_OK && options->output && is_recorded_into(options->output)) {
		mt_error("%s is in use by another process and is not replaced", options->output);
		exit_code = MT_EXIT_FAILED;
	}
	if (exit_code == MT_EXIT_OK && options->output)
		exit_code = journals_check(options);
	if (exit_code == MT_EXIT_OK && options->text_output)
		exit_code = path_check(options, options->text_output);
	if (exit_code == MT_EXIT_OK && options->output && options->text_output &&
	    strcmp(options->output, options->text_output) == 0) {
		mt_error("-o and --text-output name the same file %s", options->output);
		exit_code = MT_EXIT_FAILED;
	}
	return exit_code;
}

static int file_remove(const char *path)
{
	if (unlink(path) == 0 || errno == ENOENT)
		return MT_EXIT_OK;
	mt_error("%s cannot be replaced: %s", path, strerror(errno));
	return MT_EXIT_FAILED;
}

int mt_run_recording_clear(const struct mt_run_options *options)
{
	int exit_code = file_remove(options->output);
	size_t i;

	for (i = 0; i < N_JOURNALS && exit_code == MT_EXIT_OK; i++) {
		char *journal = text_join(options->output, journal_suffixes[i]);

		if (!journal) {
			mt_error("out of memory");
			return MT_EXIT_FAILED;
		}
		exit_code = file_remove(journal);
		free(journal);
	}
	return exit_code;
}

void mt_run_recording_discard(const char *path)
{
	size_t i;

	(void)unlink(path);
	for (i = 0; i < N_JOURNALS; i++) {
		char *journal = text_join(path, journal_suffixes[i]);

		if (journal)
			(void)unlink(journal);
		free(journal);
	}
}

int mt_run_text_open(const struct mt_run_options *options, struct mt_run_text *ret_text)
{
	struct mt_run_text text = {.path = options->text_output, .overwrites = options->overwrites};
	char suffix[32];
	int fd;

	*ret_text = text;
	if (!text.path)
		return MT_EXIT_OK;
	snprintf(suffix, sizeof(suffix), ".%ld.tmp", (long)getpid());
	text.temporary = text_join(text.path, suffix);
	if (!text.temporary) {
		mt_error("out of memory");
		return MT_EXIT_FAILED;
	}
	fd = open(text.temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
	text.out = fd < 0 ? NULL : fdopen(fd, "w");
	if (!text.out) {
		mt_error("%s cannot be written: %s", text.path, strerror(errno));
		if (fd >= 0) {
			close(fd);
			(void)unlink(text.temporary);
		}
		free(text.temporary);
		return MT_EXIT_FAILED;
	}
	*ret_text = text;
	return MT_EXIT_OK;
}

static void id_write(struct mt_jsonw *json, const struct mtk_workload_request *request)
{
	mt_jsonw_key(json, "id");
	if (request->id_is_integer)
		mt_jsonw_int64(json, strtoll(request->id, NULL, 10));
	else
		mt_jsonw_string(json, request->id);
}

static const char *finish_name(enum mtk_finish finish)
{
	return finish == MTK_FINISH_STOP ? "stop" : "length";
}

static void sequence_write(struct mt_jsonw *json, const struct mtk_sequence *sequence)
{
	const struct mtk_workload_request *request = sequence->request;

	mt_jsonw_object_begin(json);
	id_write(json, request);
	mt_jsonw_key(json, "prompt");
	mt_jsonw_bytes(json, request->prompt, request->n_prompt_bytes);
	mt_jsonw_key(json, "text");
	mt_jsonw_bytes(json, sequence->text, sequence->n_generated);
	if (!mt_utf8_is_valid(sequence->text, sequence->n_generated)) {
		mt_jsonw_key(json, "text_hex");
		mt_jsonw_hex(json, sequence->text, sequence->n_generated);
	}
	mt_jsonw_key(json, "finish_reason");
	mt_jsonw_string(json, finish_name(sequence->finish));
	mt_jsonw_object_end(json);
}

/* Replacing needs -f also where the file appeared while the run was on its way. */
static int text_publish(struct mt_run_text *text)
{
	struct stat info;

	if (!text->overwrites && lstat(text->path, &info) == 0) {
		mt_error("%s appeared during the run; it is kept, and the text is lost",
			 text->path);
		return MT_EXIT_FAILED;
	}
	if (rename(text->temporary, text->path) < 0) {
		mt_error("%s cannot be written: %s", text->path, strerror(errno));
		return MT_EXIT_FAILED;
	}
	free(text->temporary);
	text->temporary = NULL;
	return MT_EXIT_OK;
}

int mt_run_text_finish(struct mt_run_text *text, const struct mtk_server *server,
		       uint32_t n_requests)
{
	struct mt_jsonw json;
	int status = MOETRACE_OK;
	FILE *out = text->out;
	uint32_t i;

	if (!out)
		return MT_EXIT_OK;
	mt_jsonw_init(&json, out);
	for (i = 0; i < n_requests && status == MOETRACE_OK; i++) {
		sequence_write(&json, mtk_server_sequence(server, i));
		status = mt_jsonw_end_line(&json);
	}
	text->out = NULL;
	if (fclose(out) != 0 || status < 0) {
		mt_error("%s cannot be written: %s", text->path, strerror(errno));
		return MT_EXIT_FAILED;
	}
	return text_publish(text);
}

void mt_run_text_discard(struct mt_run_text *text)
{
	if (text->out)
		fclose(text->out);
	if (text->temporary)
		(void)unlink(text->temporary);
	free(text->temporary);
	text->out = NULL;
	text->temporary = NULL;
}
