/* SPDX-License-Identifier: MIT */
/*
 * Another process with a connection to a file, which does as it is told: it opens the file,
 * holds a transaction, lets go.
 */
#ifndef TEST_PEER_H
#define TEST_PEER_H

#include <sys/types.h>

struct peer {
	pid_t pid;
	int to;
	int from;
};

/* Start the process; before any session, so that nothing of one is inherited. */
struct peer peer_start(void);

/* Open the file there, then run a statement to its end; "BEGIN" holds a transaction. */
void peer_open(struct peer *peer, const char *path);
void peer_exec(struct peer *peer, const char *sql);

/* Close the connection after this time, without waiting for it. */
void peer_close_after_ms(struct peer *peer, unsigned int wait_ms);

/* End the process. */
void peer_stop(struct peer *peer);

#endif
