/* SPDX-License-Identifier: MIT */
/*
 * fork(): a child has the parent's memory but not its writer thread, and must not touch the
 * database connection. Each open session is on a list; in the child all of them are marked,
 * so that they record nothing and close without writing; their control sockets are closed, since
 * a peer would wait for ever at one that nobody serves.
 */
#include "libtrace/control/server.h"
#include "libtrace/session.h"

static pthread_mutex_t list_lock = PTHREAD_MUTEX_INITIALIZER;
static struct moetrace_session *list;
static pthread_once_t registered = PTHREAD_ONCE_INIT;

static void before_fork(void)
{
	pthread_mutex_lock(&list_lock);
	for (struct moetrace_session *session = list; session; session = session->next)
		mt_server_fork_begin(session->server);
}

static void after_fork_in_parent(void)
{
	for (struct moetrace_session *session = list; session; session = session->next)
		mt_server_fork_end(session->server);
	pthread_mutex_unlock(&list_lock);
}

static void after_fork_in_child(void)
{
	for (struct moetrace_session *session = list; session; session = session->next) {
		atomic_store(&session->forked, 1);
		atomic_store(&session->recording_id, 0);
		mt_server_fork_child(session->server);
	}
	pthread_mutex_unlock(&list_lock);
}

static void register_handlers(void)
{
	(void)pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
}

void mt_fork_enlist(struct moetrace_session *session)
{
	pthread_once(&registered, register_handlers);
	pthread_mutex_lock(&list_lock);
	session->next = list;
	session->link = &list;
	if (list)
		list->link = &session->next;
	list = session;
	pthread_mutex_unlock(&list_lock);
}

void mt_fork_delist(struct moetrace_session *session)
{
	pthread_mutex_lock(&list_lock);
	*session->link = session->next;
	if (session->next)
		session->next->link = session->link;
	pthread_mutex_unlock(&list_lock);
}
