/* SPDX-License-Identifier: MIT */
/*
 * A connection of the control socket: bytes that came, the answer on its way. A peer that does
 * not read its answers is not listened to.
 */
#ifndef MT_CONTROL_PEER_H
#define MT_CONTROL_PEER_H

#include "libtrace/control/line.h"

struct mt_peer {
	int fd; /* -1: free */
	size_t n_in;
	size_t n_sent;
	uint64_t last_ns; /* when it last said or took something */
	struct mt_reply out;
	char in[MT_CONTROL_LINE_BYTES + 1];
};

/* Is the process at the other end of this user, or root? */
int mt_peer_is_trusted(int fd);

/* Take what has come; 0, or -1: the peer is to be let go. */
int mt_peer_receive(struct mt_peer *peer);

/* Send what is waiting; 0, or -1: the peer is to be let go. */
int mt_peer_send(struct mt_peer *peer);

static inline int mt_peer_has_output(const struct mt_peer *peer)
{
	return peer->n_sent < peer->out.n_bytes;
}

/* The next whole line, without its newline, into @ret_line; its length, or -1: there is none. */
int mt_peer_line(struct mt_peer *peer, char *ret_line);

/* More than a line's worth has come without a newline. */
static inline int mt_peer_is_overfull(const struct mt_peer *peer)
{
	return peer->n_in == sizeof(peer->in);
}

#endif
