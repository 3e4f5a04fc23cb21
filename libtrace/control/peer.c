/* SPDX-License-Identifier: MIT */
/*
 * Reading and writing of connections; nothing here waits.
 */
#include "libtrace/control/peer.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

int mt_peer_is_trusted(int fd)
{
	struct ucred peer;
	socklen_t n_bytes = sizeof(peer);

	return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &n_bytes) == 0 &&
	       (peer.uid == geteuid() || peer.uid == 0);
}

int mt_peer_receive(struct mt_peer *peer)
{
	ssize_t n = recv(peer->fd, peer->in + peer->n_in, sizeof(peer->in) - peer->n_in,
			 MSG_DONTWAIT);

	if (n > 0)
		peer->n_in += (size_t)n;
	/* What was said before the end of the stream is a line only if it was ended as one. */
	return n > 0 || (n < 0 && (errno == EAGAIN || errno == EINTR)) ? 0 : -1;
}

int mt_peer_send(struct mt_peer *peer)
{
	while (mt_peer_has_output(peer)) {
		ssize_t n = send(peer->fd, peer->out.text + peer->n_sent,
				 peer->out.n_bytes - peer->n_sent, MSG_NOSIGNAL | MSG_DONTWAIT);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return errno == EAGAIN ? 0 : -1;
		peer->n_sent += (size_t)n;
	}
	peer->out.n_bytes = 0;
	peer->n_sent = 0;
	return 0;
}

int mt_peer_line(struct mt_peer *peer, char *ret_line)
{
	char *newline = memchr(peer->in, '\n', peer->n_in);
	size_t n_bytes;

	if (!newline)
		return -1;
	n_bytes = (size_t)(newline - peer->in);
	memcpy(ret_line, peer->in, n_bytes);
	peer->n_in -= n_bytes + 1;
	memmove(peer->in, newline + 1, peer->n_in);
	return (int)n_bytes;
}
