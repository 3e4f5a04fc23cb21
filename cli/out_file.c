/* SPDX-License-Identifier: MIT */
/*
 * Files under a temporary name. While one exists, signals that end the command remove it first;
 * they are held while its name is taken or given away, so that the handler never sees half of it.
 */
#include "cli/out_file.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/cli.h"

/* ---- interrupts ---- */

static const int ends[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};

#define N_ENDS (sizeof(ends) / sizeof(ends[0]))

/* Changed while the signals are held, alone. */
static const char *volatile to_remove;
static struct sigaction before[N_ENDS];

static void end(int number)
{
	if (to_remove)
		(void)unlink(to_remove);
	signal(number, SIG_DFL);
	raise(number);
}

static void signals_hold(sigset_t *ret_old)
{
	sigset_t set;

	sigemptyset(&set);
	for (size_t i = 0; i < N_ENDS; i++)
		sigaddset(&set, ends[i]);
	sigprocmask(SIG_BLOCK, &set, ret_old);
}

/* What is ignored, as under nohup, stays so. */
static void signals_watch(const char *path)
{
	struct sigaction action = {.sa_handler = end};

	to_remove = path;
	sigemptyset(&action.sa_mask);
	for (size_t i = 0; i < N_ENDS; i++) {
		sigaction(ends[i], NULL, &before[i]);
		if (before[i].sa_handler != SIG_IGN)
			sigaction(ends[i], &action, NULL);
	}
}

static void signals_leave(void)
{
	to_remove = NULL;
	for (size_t i = 0; i < N_ENDS; i++)
		sigaction(ends[i], &before[i], NULL);
}

/* ---- names ---- */

int mt_out_file_may_be(const char *path, bool overwrites)
{
	struct stat info;

	if (mt_out_file_is_input(path))
		return MT_EXIT_USAGE;
	if (lstat(path, &info) < 0)
		return MT_EXIT_OK;
	if (!S_ISREG(info.st_mode))
		mt_error("%s is not a regular file and is not replaced", path);
	else if (!overwrites)
		mt_error("%s exists already; give another name, or -f to replace it", path);
	else
		return MT_EXIT_OK;
	return MT_EXIT_FAILED;
}

char *mt_out_file_temporary(const char *path)
{
	const char *slash = strrchr(path, '/');
	int n_folder = slash ? (int)(slash - path) + 1 : 0;
	char *name;

	if (asprintf(&name, "%.*s.%s.%ld.tmp", n_folder, path, path + n_folder, (long)getpid()) < 0)
		return NULL;
	return name;
}

/* Not every file system can rename with a condition. */
int mt_out_file_name(const char *temporary, const char *path, bool overwrites)
{
	struct stat info;

	if (overwrites)
		return rename(temporary, path);
	if (renameat2(AT_FDCWD, temporary, AT_FDCWD, path, RENAME_NOREPLACE) == 0)
		return 0;
	if (errno != EINVAL && errno != ENOSYS)
		return -1;
	if (lstat(path, &info) == 0) {
		errno = EEXIST;
		return -1;
	}
	return rename(temporary, path);
}

/* ---- the file ---- */

static FILE *temporary_make(const char *name)
{
	int fd = open(name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
	FILE *out = fd < 0 ? NULL : fdopen(fd, "w");
	int error = errno;

	if (out) {
		signals_watch(name);
	} else if (fd >= 0) {
		close(fd);
		(void)unlink(name);
		errno = error;
	}
	return out;
}

int mt_out_file_begin(const char *path, bool overwrites, struct mt_out_file *ret_file)
{
	struct mt_out_file file = {.path = path, .overwrites = overwrites, .out = stdout};
	sigset_t old;
	int error, status;

	*ret_file = file;
	if (strcmp(path, "-") == 0)
		return MT_EXIT_OK;
	status = mt_out_file_may_be(path, overwrites);
	if (status != MT_EXIT_OK)
		return status;
	errno = ENOMEM;
	file.out = NULL;
	file.temporary = mt_out_file_temporary(path);
	if (file.temporary) {
		signals_hold(&old);
		file.out = temporary_make(file.temporary);
		error = errno;
		sigprocmask(SIG_SETMASK, &old, NULL);
		errno = error;
	}
	if (!file.out) {
		mt_error("%s cannot be written: %s; name another file", path, strerror(errno));
		free(file.temporary);
		return MT_EXIT_FAILED;
	}
	*ret_file = file;
	return MT_EXIT_OK;
}

/* Returns 0, or -1 with errno after the file is gone. */
static int complete(struct mt_out_file *file)
{
	int result = fflush(file->out) == 0 && !ferror(file->out) ? fsync(fileno(file->out)) : -1;
	int error = errno;
	sigset_t old;

	if (fclose(file->out) != 0 && result == 0) {
		result = -1;
		error = errno;
	}
	signals_hold(&old);
	if (result == 0) {
		result = mt_out_file_name(file->temporary, file->path, file->overwrites);
		error = errno;
	}
	if (result < 0)
		(void)unlink(file->temporary);
	signals_leave();
	sigprocmask(SIG_SETMASK, &old, NULL);
	errno = error;
	return result;
}

int mt_out_file_finish(struct mt_out_file *file)
{
	int result = 0;

	/* Of standard output main() says what was lost. */
	if (file->temporary)
		result = complete(file);
	if (result < 0 && errno == EEXIST)
		mt_error(
			"%s appeared meanwhile and is kept; give another name, or -f to replace it",
			file->path);
	else if (result < 0)
		mt_error("%s cannot be written: %s; nothing of it is left", file->path,
			 strerror(errno));
	free(file->temporary);
	file->temporary = NULL;
	return result < 0 ? MT_EXIT_FAILED : MT_EXIT_OK;
}

void mt_out_file_discard(struct mt_out_file *file)
{
	sigset_t old;

	if (!file->temporary)
		return;
	fclose(file->out);
	signals_hold(&old);
	(void)unlink(file->temporary);
	signals_leave();
	sigprocmask(SIG_SETMASK, &old, NULL);
	free(file->temporary);
	file->temporary = NULL;
}
