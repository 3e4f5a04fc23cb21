/* SPDX-License-Identifier: MIT */
/*
 * A process at the other end of a control socket, that says what it is told.
 */
#ifndef TEST_LINE_PEER_H
#define TEST_LINE_PEER_H

#include <stddef.h>

/* A folder of the test's own for sockets, set as MOETRACE_SOCKET_DIR. */
const char *line_peer_folder(void);

/* How many sockets are in the folder; the path of the first one into @ret_path (4096). */
int line_peer_sockets(const char *folder, char *ret_path);

/* Connect to the only socket of the folder; asserts. */
int line_peer_connect(const char *folder);

/* Connect to a path; a descriptor, or -errno. */
int line_peer_try(const char *path);

void line_peer_send(int fd, const char *bytes, size_t n_bytes);

/* Read until the answer's last line, or the end; text valid until the next call. */
const char *line_peer_read(int fd);

/* Say a line and read the answer. */
const char *line_peer_say(int fd, const char *line);

#endif
