/* SPDX-License-Identifier: MIT */
/*
 * The control socket: a thread of its own that answers lines (see line.h) from processes of the
 * same user. It uses the session through the same functions as the program; nothing of the hot
 * path knows that it exists.
 */
#ifndef MT_CONTROL_SERVER_H
#define MT_CONTROL_SERVER_H

#include <stddef.h>
#include <stdint.h>

struct moetrace_session;
struct mt_server;

/* MOETRACE_OK, or a negative status with a line in @ret_error; *ret_server is NULL then. */
int mt_server_start(struct moetrace_session *session, char *ret_error, size_t error_bytes,
		    struct mt_server **ret_server);

/* End the thread, remove the socket; the memory stays. NULL is fine in all of these. */
void mt_server_stop(struct mt_server *server);

/* CPU time of the thread, as of the last line that it answered. */
uint64_t mt_server_cpu_ns(const struct mt_server *server);

/*
 * fork(): no descriptor is opened or closed between the first two. The child closes its copies,
 * so that nobody waits for an answer from a socket that only a child holds; it frees with the
 * last one.
 */
void mt_server_fork_begin(struct mt_server *server);
void mt_server_fork_end(struct mt_server *server);
void mt_server_fork_child(struct mt_server *server);
void mt_server_free(struct mt_server *server);

#endif
