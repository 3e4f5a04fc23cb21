/* SPDX-License-Identifier: MIT */
/*
 * Sockets by their paths, as a stranger would use them: nothing of the library is used here.
 */
#include "tests/control/support/line_peer.h"

#include <check.h>
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "tests/unit/support/suite.h"

const char *line_peer_folder(void)
{
	const char *folder = suite_path("sockets");

	ck_assert_int_eq(mkdir(folder, 0700), 0);
	ck_assert_int_eq(setenv("MOETRACE_SOCKET_DIR", folder, 1), 0);
	return folder;
}

int line_peer_sockets(const char *folder, char *ret_path)
{
	DIR *stream = opendir(folder);
	struct dirent *entry;
	int n = 0;

	ck_assert_ptr_nonnull(stream);
	while ((entry = readdir(stream))) {
		if (entry->d_name[0] == '.')
			continue;
		if (n++ == 0 && ret_path)
			snprintf(ret_path, 4096, "%s/%s", folder, entry->d_name);
	}
	closedir(stream);
	return n;
}

int line_peer_try(const char *path)
{
	const struct timeval limit = {100, 0};
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM, 0);

	ck_assert_int_ge(fd, 0);
	ck_assert_uint_lt(strlen(path), sizeof(address.sun_path));
	memcpy(address.sun_path, path, strlen(path) + 1);
	(void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
	if (connect(fd, (struct sockaddr *)&address, sizeof(address)) < 0) {
		int error = errno;

		close(fd);
		return -error;
	}
	return fd;
}

int line_peer_connect(const char *folder)
{
	char path[4096];
	int fd;

	ck_assert_int_eq(line_peer_sockets(folder, path), 1);
	fd = line_peer_try(path);
	ck_assert_msg(fd >= 0, "connect: %s", strerror(-fd));
	return fd;
}

void line_peer_send(int fd, const char *bytes, size_t n_bytes)
{
	while (n_bytes > 0) {
		ssize_t n = send(fd, bytes, n_bytes, MSG_NOSIGNAL);

		if (n <= 0)
			return; /* it was sent away, which the answer shows */
		bytes += n;
		n_bytes -= (size_t)n;
	}
}

/* Whether the last line of @text ends an answer. */
static int is_whole(const char *text, size_t n_bytes)
{
	size_t start = n_bytes - 1;

	if (n_bytes == 0 || text[n_bytes - 1] != '\n')
		return 0;
	while (start > 0 && text[start - 1] != '\n')
		start--;
	return strncmp(text + start, "ok\n", 3) == 0 || strncmp(text + start, "error ", 6) == 0;
}

const char *line_peer_read(int fd)
{
	static char text[1 << 20];
	size_t n_bytes = 0;
	ssize_t n = 1;

	while (n > 0 && n_bytes + 1 < sizeof(text) && !is_whole(text, n_bytes)) {
		do /* a process that was stopped and goes on, too */
			n = recv(fd, text + n_bytes, sizeof(text) - 1 - n_bytes, 0);
		while (n < 0 && errno == EINTR);
		ck_assert_msg(n >= 0 || errno == ECONNRESET || errno == EPIPE, "no answer: %s",
			      strerror(errno));
		n_bytes += n > 0 ? (size_t)n : 0;
	}
	text[n_bytes] = '\0';
	return text;
}

const char *line_peer_say(int fd, const char *line)
{
	line_peer_send(fd, line, strlen(line));
	line_peer_send(fd, "\n", 1);
	return line_peer_read(fd);
}
