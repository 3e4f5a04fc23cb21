/* SPDX-License-Identifier: MIT */
/*
 * The thread of the control socket. Invariants: descriptors are opened and closed under the
 * lock, so that a forked child knows them all; the thread waits in poll() only, or in a call
 * that the program itself could have made; there are never more than MAX_PEERS connections,
 * and one that has been silent makes room for one that has not.
 */
#include "libtrace/control/server.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/folder.h"
#include "libtrace/clock.h"
#include "libtrace/control/commands.h"
#include "libtrace/control/peer.h"
#include "libtrace/options.h"

#define MAX_PEERS 16u
#define BACKLOG 64
/* Sockets of one process with one rank. */
#define MAX_SOCKETS 64u
/* A peer that was silent for this long may be sent away for another one. */
#define SILENT_NS (MT_NS_PER_S / 2)
/* Without a free descriptor, look again after this long. */
#define ACCEPT_PAUSE_MS 100

struct mt_server {
	struct moetrace_session *session;
	pthread_t thread;
	pthread_mutex_t lock; /* protects the descriptors against fork() */
	int folder_fd;
	int listen_fd;
	int wake_fd;
	int is_stopping; /* of the thread alone: the wake-up was read */
	int is_pausing;  /* no connection can be accepted at the moment */
	dev_t device;    /* of the socket's file, so that nobody else's is removed */
	ino_t inode;
	char name[MT_SOCKET_NAME_BYTES];
	char path[MT_FOLDER_PATH_BYTES + MT_SOCKET_NAME_BYTES + 1];
	_Atomic uint64_t cpu_ns;
	struct mt_control control;
	struct mt_peer peers[MAX_PEERS];
};

static void close_fd(struct mt_server *server, int *fd)
{
	pthread_mutex_lock(&server->lock);
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
	pthread_mutex_unlock(&server->lock);
}

static void let_go(struct mt_server *server, struct mt_peer *peer)
{
	close_fd(server, &peer->fd);
	mt_reply_free(&peer->out);
	peer->n_in = 0;
	peer->n_sent = 0;
	mt_control_gone(&server->control, peer);
}

/* A free place; one whose peer has been silent the longest is made free. */
static struct mt_peer *find_place(struct mt_server *server)
{
	uint64_t now_ns = mt_monotonic_ns();
	struct mt_peer *found = NULL;

	for (uint32_t i = 0; i < MAX_PEERS; i++) {
		struct mt_peer *peer = &server->peers[i];

		if (peer->fd < 0)
			return peer;
		if (mt_control_is_owner(&server->control, peer) ||
		    now_ns - peer->last_ns < SILENT_NS)
			continue;
		if (!found || peer->last_ns < found->last_ns)
			found = peer;
	}
	if (found)
		let_go(server, found);
	return found;
}

static void refuse(int fd, const char *text)
{
	(void)!send(fd, text, strlen(text), MSG_NOSIGNAL | MSG_DONTWAIT);
	close(fd);
}

static void accept_one(struct mt_server *server, int fd)
{
	struct mt_peer *peer;

	if (!mt_peer_is_trusted(fd)) {
		refuse(fd, "error E_INVALID this session belongs to another user\n");
		return;
	}
	peer = find_place(server);
	if (!peer) {
		refuse(fd, "error E_LIMIT too many connections; try again\n");
		return;
	}
	peer->fd = fd;
	peer->last_ns = mt_monotonic_ns();
}

static void accept_peers(struct mt_server *server)
{
	int fd;

	server->is_pausing = 0;
	for (uint32_t i = 0; i < BACKLOG; i++) {
		pthread_mutex_lock(&server->lock);
		fd = accept4(server->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
		pthread_mutex_unlock(&server->lock);
		if (fd < 0) {
			server->is_pausing = errno == EMFILE || errno == ENFILE ||
					     errno == ENOBUFS || errno == ENOMEM;
			return;
		}
		accept_one(server, fd);
	}
}

static void answer(struct mt_server *server, struct mt_peer *peer, const char *text, int n_bytes)
{
	struct mt_control_line line;
	const char *error;

	if (mt_control_line_parse(text, (size_t)n_bytes, &line, &error))
		mt_reply_end(&peer->out, MOETRACE_E_FORMAT, error);
	else if (*line.verb)
		mt_control_execute(&server->control, peer, &line, &peer->out);
	atomic_store(&server->cpu_ns, mt_clock_ns(CLOCK_THREAD_CPUTIME_ID));
}

/* Answer the lines that are there, one answer at a time. Returns -1: the peer is to go. */
static int answer_lines(struct mt_server *server, struct mt_peer *peer)
{
	char text[MT_CONTROL_LINE_BYTES + 1];
	int n_bytes;

	while (!mt_peer_has_output(peer) && (n_bytes = mt_peer_line(peer, text)) >= 0) {
		answer(server, peer, text, n_bytes);
		if (peer->out.has_failed || mt_peer_send(peer))
			return -1;
	}
	if (!mt_peer_is_overfull(peer))
		return 0;
	mt_reply_end(&peer->out, MOETRACE_E_FORMAT, "the line is too long");
	(void)mt_peer_send(peer);
	return -1;
}

static void serve_peer(struct mt_server *server, struct mt_peer *peer, short events)
{
	int has_gone = 0;

	peer->last_ns = mt_monotonic_ns();
	if (events & POLLOUT)
		has_gone = mt_peer_send(peer);
	if (!has_gone && (events & (POLLIN | POLLHUP | POLLERR)) && !mt_peer_is_overfull(peer)) {
		has_gone = mt_peer_receive(peer);
		/* Lines that came before the end are still carried out. */
	}
	if (answer_lines(server, peer) || has_gone)
		let_go(server, peer);
}

static void serve_once(struct mt_server *server)
{
	struct pollfd fds[MAX_PEERS + 2] = { { server->wake_fd, POLLIN, 0 },
					     { server->is_pausing ? -1 : server->listen_fd,
					       POLLIN, 0 } };

	for (uint32_t i = 0; i < MAX_PEERS; i++) {
		struct mt_peer *peer = &server->peers[i];

		fds[i + 2].fd = peer->fd;
		fds[i + 2].events = mt_peer_has_output(peer) ? POLLOUT : POLLIN;
	}
	if (poll(fds, MAX_PEERS + 2, server->is_pausing ? ACCEPT_PAUSE_MS : -1) < 0)
		return;
	server->is_stopping = fds[0].revents != 0;
	/* Before the accepting, which may put others in their places. */
	for (uint32_t i = 0; i < MAX_PEERS && !server->is_stopping; i++)
		if (fds[i + 2].revents && server->peers[i].fd == fds[i + 2].fd)
			serve_peer(server, &server->peers[i], fds[i + 2].revents);
	if (fds[1].revents || server->is_pausing)
		accept_peers(server);
}

static void *run(void *argument)
{
	struct mt_server *server = argument;

	while (!server->is_stopping)
		serve_once(server);
	for (uint32_t i = 0; i < MAX_PEERS; i++)
		if (server->peers[i].fd >= 0)
			let_go(server, &server->peers[i]);
	return NULL;
}

/* Bind under the first free name. The mode of the descriptor becomes that of the file. */
static int bind_socket(struct mt_server *server)
{
	uint32_t rank = mt_options_rank(&server->session->opts);
	struct sockaddr_un address;
	socklen_t n_bytes;
	struct stat info;

	server->listen_fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (server->listen_fd < 0 || fchmod(server->listen_fd, 0600))
		return -1;
	for (uint32_t i = 0; i < MAX_SOCKETS; i++) {
		mt_folder_name(rank, i, server->name);
		if (mt_folder_address(server->folder_fd, server->name, &address, &n_bytes)) {
			errno = ENAMETOOLONG;
			return -1;
		}
		if (bind(server->listen_fd, (const struct sockaddr *)&address, n_bytes) == 0)
			break;
		if (errno != EADDRINUSE || i + 1 == MAX_SOCKETS)
			return -1;
	}
	if (fstatat(server->folder_fd, server->name, &info, AT_SYMLINK_NOFOLLOW) ||
	    listen(server->listen_fd, BACKLOG)) {
		int error = errno;

		(void)unlinkat(server->folder_fd, server->name, 0);
		errno = error;
		return -1;
	}
	server->device = info.st_dev;
	server->inode = info.st_ino;
	return 0;
}

static void remove_socket(struct mt_server *server)
{
	struct stat info;

	if (fstatat(server->folder_fd, server->name, &info, AT_SYMLINK_NOFOLLOW) == 0 &&
	    info.st_dev == server->device && info.st_ino == server->inode)
		(void)unlinkat(server->folder_fd, server->name, 0);
}

static int create_thread(struct mt_server *server)
{
	sigset_t all, before;
	int result;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	result = pthread_create(&server->thread, NULL, run, server);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (!result)
		(void)pthread_setname_np(server->thread, "moetrace-ctl");
	return result;
}

void mt_server_free(struct mt_server *server)
{
	if (!server)
		return;
	mt_control_close(&server->control);
	for (uint32_t i = 0; i < MAX_PEERS; i++)
		mt_reply_free(&server->peers[i].out);
	if (server->listen_fd >= 0)
		close(server->listen_fd);
	if (server->wake_fd >= 0)
		close(server->wake_fd);
	if (server->folder_fd >= 0)
		close(server->folder_fd);
	free(server);
}

int mt_server_start(struct moetrace_session *session, char *ret_error, size_t error_bytes,
		    struct mt_server **ret_server)
{
	struct mt_server *server = calloc(1, sizeof(*server));
	char folder[MT_FOLDER_PATH_BYTES];
	int error;

	*ret_server = NULL;
	snprintf(ret_error, error_bytes, "out of memory");
	if (!server)
		return MOETRACE_E_NOMEM;
	server->session = session;
	server->listen_fd = server->wake_fd = -1;
	for (uint32_t i = 0; i < MAX_PEERS; i++)
		server->peers[i].fd = -1;
	pthread_mutex_init(&server->lock, NULL);
	mt_control_open(&server->control, session);
	server->folder_fd = mt_folder_open(session->opts.socket_dir, 1, folder, ret_error,
					   error_bytes);
	if (server->folder_fd < 0)
		goto err_server;
	mt_folder_clean(server->folder_fd);
	server->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	error = server->wake_fd < 0 ? errno : 0;
	if (!error && bind_socket(server))
		error = errno;
	if (!error) {
		snprintf(server->path, sizeof(server->path), "%s/%s", folder, server->name);
		error = create_thread(server);
		if (error)
			remove_socket(server);
	}
	if (error) {
		snprintf(ret_error, error_bytes, "%.300s: %s", folder, strerror(error));
		goto err_server;
	}
	*ret_server = server;
	return MOETRACE_OK;

err_server:
	mt_server_free(server);
	return MOETRACE_E_IO;
}

void mt_server_stop(struct mt_server *server)
{
	const uint64_t one = 1;

	if (!server)
		return;
	/* Cannot fail: the counter is far from full. */
	(void)!write(server->wake_fd, &one, sizeof(one));
	pthread_join(server->thread, NULL);
	remove_socket(server);
	close_fd(server, &server->listen_fd);
	close_fd(server, &server->wake_fd);
	close_fd(server, &server->folder_fd);
}

uint64_t mt_server_cpu_ns(const struct mt_server *server)
{
	return server ? atomic_load(&server->cpu_ns) : 0;
}

void mt_server_fork_begin(struct mt_server *server)
{
	if (server)
		pthread_mutex_lock(&server->lock);
}

void mt_server_fork_end(struct mt_server *server)
{
	if (server)
		pthread_mutex_unlock(&server->lock);
}

static void forget_fd(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

void mt_server_fork_child(struct mt_server *server)
{
	if (!server)
		return;
	forget_fd(&server->listen_fd);
	forget_fd(&server->wake_fd);
	forget_fd(&server->folder_fd);
	for (uint32_t i = 0; i < MAX_PEERS; i++)
		forget_fd(&server->peers[i].fd);
	pthread_mutex_unlock(&server->lock);
}
