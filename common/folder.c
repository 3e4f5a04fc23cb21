/* SPDX-License-Identifier: MIT */
/*
 * What is removed was left by a process that is gone: a socket of our own, of this host, that
 * nobody answers at, and whose process does not exist. Both are asked, because a live session
 * does not answer yet between bind and listen, and a process of another PID namespace does not
 * exist here.
 */
#include "common/folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>

#include <moetrace/status.h>

#include "common/pattern.h"

#define HOST_BYTES 32u

/* The default folder lies in a folder that others may write to, or that is ours alone. */
static int default_path(char *ret_path)
{
	const char *runtime = secure_getenv("XDG_RUNTIME_DIR");
	struct stat info;
	int n;

	if (runtime && runtime[0] == '/' && stat(runtime, &info) == 0 && S_ISDIR(info.st_mode) &&
	    info.st_uid == geteuid())
		n = snprintf(ret_path, MT_FOLDER_PATH_BYTES, "%s/moetrace", runtime);
	else
		n = snprintf(ret_path, MT_FOLDER_PATH_BYTES, "/tmp/moetrace-%lu",
			     (unsigned long)geteuid());
	return n < (int)MT_FOLDER_PATH_BYTES ? MOETRACE_OK : MOETRACE_E_LIMIT;
}

/* A folder in which others could put something in the place of what is ours. */
static const char *distrust(const struct stat *info, int is_default)
{
	if (is_default && info->st_uid != geteuid())
		return "belongs to another user";
	if (is_default && (info->st_mode & 077))
		return "is open to other users; chmod 700 it";
	if ((info->st_mode & 022) && !(info->st_mode & S_ISVTX))
		return "may be written by other users, and has no sticky bit";
	if (info->st_uid != geteuid() && info->st_uid != 0)
		return "belongs to another user";
	return NULL;
}

int mt_folder_open(const char *dir, int may_make, char *ret_path, char *ret_error,
		   size_t error_bytes)
{
	const char *reason = "is too long a path";
	struct stat info;
	int fd = -1;

	if (dir ? snprintf(ret_path, MT_FOLDER_PATH_BYTES, "%s", dir) >= (int)MT_FOLDER_PATH_BYTES :
		  default_path(ret_path) != MOETRACE_OK)
		goto err_folder;
	if (!dir && may_make)
		(void)mkdir(ret_path, 0700);
	fd = open(ret_path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &info)) {
		reason = errno == ELOOP || errno == ENOTDIR ? "is not a folder (symbolic links are "
							      "not followed)" :
							      strerror(errno);
		goto err_folder;
	}
	reason = distrust(&info, !dir);
	if (!reason)
		return fd;

err_folder:
	if (fd >= 0)
		close(fd);
	snprintf(ret_error, error_bytes, "%.300s: %s", ret_path, reason);
	return MOETRACE_E_IO;
}

int mt_folder_address(int folder_fd, const char *name, struct sockaddr_un *ret_address,
		      socklen_t *ret_n_bytes)
{
	int n;

	memset(ret_address, 0, sizeof(*ret_address));
	ret_address->sun_family = AF_UNIX;
	n = snprintf(ret_address->sun_path, sizeof(ret_address->sun_path), "/proc/self/fd/%d/%s",
		     folder_fd, name);
	if (n >= (int)sizeof(ret_address->sun_path))
		return MOETRACE_E_LIMIT;
	*ret_n_bytes = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + (size_t)n + 1);
	return MOETRACE_OK;
}

int mt_folder_connect(int folder_fd, const char *name, uint32_t timeout_ms)
{
	const struct timeval limit = { timeout_ms / 1000, timeout_ms % 1000 * 1000 };
	struct sockaddr_un address;
	struct stat info;
	socklen_t n_bytes;
	int fd;

	if (mt_folder_address(folder_fd, name, &address, &n_bytes))
		return -ENAMETOOLONG;
	if (fstatat(folder_fd, name, &info, AT_SYMLINK_NOFOLLOW))
		return -errno;
	if (!S_ISSOCK(info.st_mode))
		return -ENOTSOCK;
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | (timeout_ms ? 0 : SOCK_NONBLOCK), 0);
	if (fd < 0)
		return -errno;
	(void)setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
	(void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
	if (connect(fd, (const struct sockaddr *)&address, n_bytes)) {
		int error = errno;

		close(fd);
		return -error;
	}
	return fd;
}

void mt_folder_name(uint32_t rank, uint32_t n, char *ret_name)
{
	char host[HOST_BYTES];

	mt_host_name(host, sizeof(host));
	snprintf(ret_name, MT_SOCKET_NAME_BYTES, "%s.%ld.%lu.%lu.sock", host, (long)getpid(),
		 (unsigned long)rank, (unsigned long)n);
}

long mt_folder_name_pid(const char *name)
{
	char host[HOST_BYTES];
	char *end;
	size_t n;
	long pid;

	mt_host_name(host, sizeof(host));
	n = strlen(host);
	if (strncmp(name, host, n) != 0 || name[n] != '.' || strlen(name) < n + 6 ||
	    strcmp(name + strlen(name) - 5, ".sock") != 0)
		return 0;
	pid = strtol(name + n + 1, &end, 10);
	return pid > 0 && *end == '.' ? pid : 0;
}

static int is_left_over(int folder_fd, const char *name)
{
	long pid = mt_folder_name_pid(name);
	struct stat info;
	int fd;

	if (!pid || fstatat(folder_fd, name, &info, AT_SYMLINK_NOFOLLOW) ||
	    !S_ISSOCK(info.st_mode) || info.st_uid != geteuid())
		return 0;
	if (pid != (long)getpid() && (kill((pid_t)pid, 0) == 0 || errno != ESRCH))
		return 0;
	fd = mt_folder_connect(folder_fd, name, 0);
	if (fd >= 0)
		close(fd);
	return fd == -ECONNREFUSED;
}

void mt_folder_clean(int folder_fd)
{
	/* Another descriptor, since closing the stream closes it. */
	int fd = openat(folder_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *stream = fd >= 0 ? fdopendir(fd) : NULL;
	struct dirent *entry;

	if (!stream) {
		if (fd >= 0)
			close(fd);
		return;
	}
	while ((entry = readdir(stream)))
		/* Sessions of this process are told apart when they bind. */
		if (mt_folder_name_pid(entry->d_name) != (long)getpid() &&
		    is_left_over(folder_fd, entry->d_name))
			(void)unlinkat(folder_fd, entry->d_name, 0);
	closedir(stream);
}
