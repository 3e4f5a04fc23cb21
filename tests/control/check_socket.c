/* SPDX-License-Identifier: MIT */
/*
 * Hostile peers and hostile folders. Whatever they do, the recording is whole, the session's
 * thread is not stuck, and an honest peer is still served.
 */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/control/support/line_peer.h"
#include "tests/unit/support/agree.h"
#include "tests/unit/support/db.h"
#include "tests/unit/support/rng.h"
#include "tests/unit/support/suite.h"
#include "tests/unit/support/toy.h"

/* A runtime that goes on while the peers misbehave. */
struct busy {
	struct toy toy;
	const char *folder;
	pthread_t thread;
	atomic_bool stop;
	atomic_uint n_passes;
};

static void *busy_main(void *argument)
{
	struct busy *busy = argument;

	while (!busy->stop) {
		busy->n_passes +=
			toy_pass(&busy->toy, MOETRACE_PHASE_DUMMY, MOETRACE_NO_REQUEST, 0, 3);
		/* The rings hold what comes in ten seconds without a writer. */
		usleep(suite_has_sanitizer("thread") ? 2000 : 1000);
	}
	return NULL;
}

static void busy_begin(struct busy *busy, const char *name)
{
	busy->folder = line_peer_folder();
	busy->stop = false;
	busy->n_passes = 0;
	busy->toy = toy_start(name, NULL, 2, 64, 4);
	ck_assert_int_eq(pthread_create(&busy->thread, NULL, busy_main, busy), 0);
}

static const char *ask_status(const struct busy *busy)
{
	int fd = line_peer_connect(busy->folder);
	const char *answer = line_peer_say(fd, "status");

	close(fd);
	return answer;
}

/* An honest peer is served, and the file holds every pass. */
static void busy_end(struct busy *busy)
{
	const char *answer;
	sqlite3 *db;

	/* The ones before may be about to be sent away. */
	WAIT_UNTIL((answer = ask_status(busy), strncmp(answer, "error E_LIMIT", 13)) != 0);
	ck_assert_msg(strstr(answer, "state recording\n") != NULL, "status: %s", answer);
	busy->stop = true;
	ck_assert_int_eq(pthread_join(busy->thread, NULL), 0);
	db = toy_close_and_open(&busy->toy);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM pass WHERE verdict = 'complete'"),
			 busy->n_passes);
	ck_assert_str_eq(db_text(db, "SELECT end_reason FROM recording"), "closed");
	db_close(db);
	ck_assert_int_eq(line_peer_sockets(busy->folder, NULL), 0);
}

START_TEST(test_mode_and_owner)
{
	struct busy busy;
	struct stat info;
	char path[4096];

	umask(0);
	busy_begin(&busy, "mode.db");
	ck_assert_int_eq(line_peer_sockets(busy.folder, path), 1);
	ck_assert_int_eq(stat(path, &info), 0);
	ck_assert(S_ISSOCK(info.st_mode));
	ck_assert_uint_eq(info.st_mode & 0777, 0600);
	busy_end(&busy);
}
END_TEST

START_TEST(test_lines_in_pieces)
{
	struct busy busy;
	const char *line = "  status\r\n";
	int fd;

	busy_begin(&busy, "pieces.db");
	fd = line_peer_connect(busy.folder);
	for (; *line; line++) {
		line_peer_send(fd, line, 1);
		suite_sleep_ms(2);
	}
	ck_assert_ptr_nonnull(strstr(line_peer_read(fd), "\nok\n"));
	/* Several at once: as many answers. */
	line_peer_send(fd, "help\nhelp\nnothing\n", 18);
	ck_assert_ptr_nonnull(strstr(line_peer_read(fd), "ok\n"));
	close(fd);
	/* Half a line is none, and must not stop anything. */
	fd = line_peer_connect(busy.folder);
	line_peer_send(fd, "stop", 4);
	close(fd);
	busy_end(&busy);
}
END_TEST

/* Garbage of every size, lines without an end, zero bytes. */
START_TEST(test_garbage)
{
	static char bytes[100000];
	struct rng rng = {.state = 7};
	struct busy busy;
	uint32_t i, j;

	busy_begin(&busy, "garbage.db");
	for (i = 0; i < 60; i++) {
		const uint32_t n = i < 3 ? sizeof(bytes) : rng_below(&rng, 20000);
		int fd = line_peer_connect(busy.folder);

		for (j = 0; j < n; j++)
			bytes[j] = i == 0 ? 'a' : i == 1 ? '\n' : (char)rng_below(&rng, 256);
		line_peer_send(fd, bytes, n);
		if (i == 0)
			ck_assert_ptr_nonnull(strstr(line_peer_read(fd), "error E_FORMAT"));
		close(fd);
	}
	busy_end(&busy);
}
END_TEST

/* Peers that ask and never listen do not fill the memory, nor keep others out. */
START_TEST(test_deaf_peers)
{
	struct busy busy;
	int fds[20];
	uint32_t i, j;

	busy_begin(&busy, "deaf.db");
	for (i = 0; i < 20; i++) {
		fds[i] = line_peer_connect(busy.folder);
		for (j = 0; j < 5000; j++)
			if (send(fds[i], "status\n", 7, MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
				break;
	}
	busy_end(&busy);
	for (i = 0; i < 20; i++)
		close(fds[i]);
}
END_TEST

START_TEST(test_thousand_connections)
{
	const struct rlimit many = {4096, 4096};
	struct busy busy;
	static int fds[1000];
	uint32_t i;

	(void)setrlimit(RLIMIT_NOFILE, &many);
	busy_begin(&busy, "thousand.db");
	for (i = 0; i < 1000; i++) {
		char path[4096];

		ck_assert_int_eq(line_peer_sockets(busy.folder, path), 1);
		fds[i] = line_peer_try(path);
	}
	busy_end(&busy);
	for (i = 0; i < 1000; i++)
		if (fds[i] >= 0)
			close(fds[i]);
}
END_TEST

/* Without descriptors nobody is served; with some again, everybody is. */
START_TEST(test_no_descriptors)
{
	struct busy busy;
	struct rlimit limit;
	int fds[1024];
	uint32_t n = 0;

	ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
	limit.rlim_cur = 200;
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
	busy_begin(&busy, "descriptors.db");
	fds[n++] = line_peer_connect(busy.folder);
	/* It is accepted now, and takes no descriptor later. */
	ck_assert_ptr_nonnull(strstr(line_peer_say(fds[0], "help"), "ok\n"));
	while (n < 1024 && (fds[n] = dup(fds[0])) >= 0)
		n++;
	/* A connection that is made already waits until somebody closes something. */
	close(fds[--n]);
	fds[n] = line_peer_connect(busy.folder);
	suite_sleep_ms(300);
	close(fds[--n]);
	ck_assert_ptr_nonnull(strstr(line_peer_say(fds[n + 1], "status"), "\nok\n"));
	close(fds[n + 1]);
	while (n > 0)
		close(fds[--n]);
	busy_end(&busy);
}
END_TEST

/* start/start and stop/stop are errors that lose nothing. */
START_TEST(test_start_and_stop)
{
	struct toy toy;
	sqlite3 *db;
	const char *folder = line_peer_folder();
	int fd, i;

	toy = toy_open("twice.db", NULL, 2, 64, 4);
	fd = line_peer_connect(folder);
	ck_assert_ptr_nonnull(strstr(line_peer_say(fd, "stop"), "error E_STATE stop: not recording"));
	for (i = 0; i < 3; i++) {
		ck_assert_ptr_nonnull(strstr(line_peer_say(fd, "start"), "state recording\n"));
		ck_assert(toy_pass(&toy, MOETRACE_PHASE_DUMMY, MOETRACE_NO_REQUEST, 0, 3));
		ck_assert_ptr_nonnull(strstr(line_peer_say(fd, "start"), "error E_STATE"));
		ck_assert(toy_pass(&toy, MOETRACE_PHASE_DUMMY, MOETRACE_NO_REQUEST, 0, 3));
		ck_assert_ptr_nonnull(
			strstr(line_peer_say(fd, "stop reason=\"lunch break\""), "state idle\n"));
		ck_assert_ptr_nonnull(strstr(line_peer_say(fd, "stop"), "error E_STATE"));
	}
	close(fd);
	db = toy_close_and_open(&toy);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM recording WHERE end_reason = 'lunch break'"),
			 3);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM pass WHERE verdict = 'complete'"), 6);
	db_close(db);
}
END_TEST

/* ---- folders ---- */

/* A socket in the folder whose process was killed is removed; what is not ours is not. */
START_TEST(test_left_over_sockets)
{
	const char *folder = line_peer_folder();
	char path[4096], other[4200];
	struct toy toy;
	int status;
	pid_t pid;
	FILE *file;

	pid = fork();
	if (pid == 0) {
		struct toy own = toy_open("killed.db", NULL, 2, 64, 4);

		ck_assert_ptr_nonnull(own.session);
		raise(SIGKILL);
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_int_eq(line_peer_sockets(folder, path), 1);
	ck_assert_int_eq(line_peer_try(path), -ECONNREFUSED);
	/* The name of a session that is gone, but no socket. */
	snprintf(other, sizeof(other), "%s.9.sock", path);
	file = fopen(other, "w");
	ck_assert_ptr_nonnull(file);
	fclose(file);
	toy = toy_open("next.db", NULL, 2, 64, 4);
	ck_assert_int_ne(access(path, F_OK), 0);
	ck_assert_int_eq(access(other, F_OK), 0);
	ck_assert_int_eq(unlink(other), 0);
	ck_assert_int_eq(line_peer_sockets(folder, path), 1);
	toy_close(&toy);
	ck_assert_int_eq(line_peer_sockets(folder, path), 0);
}
END_TEST

/* A file that somebody put in the socket's place is not removed at close. */
START_TEST(test_socket_replaced)
{
	const char *folder = line_peer_folder();
	struct toy toy = toy_open("replaced.db", NULL, 2, 64, 4);
	char path[4096];

	ck_assert_int_eq(line_peer_sockets(folder, path), 1);
	ck_assert_int_eq(unlink(path), 0);
	ck_assert_int_eq(symlink("/nowhere", path), 0);
	toy_close(&toy);
	ck_assert_int_eq(line_peer_sockets(folder, NULL), 1);
	ck_assert_int_eq(unlink(path), 0);
}
END_TEST

/* No folder, a link to one, somebody else's: no socket, a reason in the file, and a recording. */
START_TEST(test_folder_not_to_be_trusted)
{
	const char *folder = suite_path("folder");
	const char *link = suite_path("link");
	struct toy toy;
	sqlite3 *db;

	ck_assert_int_eq(mkdir(folder, 0700), 0);
	ck_assert_int_eq(symlink(folder, link), 0);
	if (_i == 2)
		ck_assert_int_eq(chmod(folder, 0777), 0);
	setenv("MOETRACE_SOCKET_DIR", _i == 0 ? "/nonexistent/folder" : _i == 1 ? link : folder, 1);
	toy = toy_start("no-socket.db", NULL, 2, 64, 4);
	ck_assert(toy_pass(&toy, MOETRACE_PHASE_DUMMY, MOETRACE_NO_REQUEST, 0, 3));
	ck_assert_int_eq(line_peer_sockets(folder, NULL), 0);
	db = toy_close_and_open(&toy);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM diagnostic WHERE source = 'session' AND "
				    "message LIKE 'no control socket: %%'"),
			 1);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM pass"), 1);
	db_close(db);
}
END_TEST

/* A folder whose path alone is longer than a socket's address. */
START_TEST(test_long_folder)
{
	char folder[1024], name[201];
	struct toy toy;
	uint32_t i;

	memset(name, 'x', 200);
	name[200] = '\0';
	snprintf(folder, sizeof(folder), "%s", suite_path("long"));
	for (i = 0; i < 3; i++) {
		ck_assert_int_eq(mkdir(folder, 0700), 0);
		snprintf(folder + strlen(folder), sizeof(folder) - strlen(folder), "/%s", name);
	}
	*strrchr(folder, '/') = '\0';
	setenv("MOETRACE_SOCKET_DIR", folder, 1);
	toy = toy_start("long.db", NULL, 2, 64, 4);
	ck_assert_int_eq(line_peer_sockets(folder, NULL), 1);
	toy_close(&toy);
	ck_assert_int_eq(line_peer_sockets(folder, NULL), 0);
}
END_TEST

/* Sessions of one process have a socket each. */
START_TEST(test_two_sessions)
{
	const char *folder = line_peer_folder();
	struct toy first = toy_start("first.db", NULL, 2, 64, 4);
	struct toy second = toy_start("second.db", NULL, 2, 64, 4);

	ck_assert_int_eq(line_peer_sockets(folder, NULL), 2);
	toy_close(&first);
	ck_assert_int_eq(line_peer_sockets(folder, NULL), 1);
	toy_close(&second);
	ck_assert_int_eq(line_peer_sockets(folder, NULL), 0);
}
END_TEST

/* ---- another user, and forked children ---- */

START_TEST(test_another_user)
{
	struct busy busy;
	char path[4096];
	int status;
	pid_t pid;

	if (geteuid() != 0)
		return;
	busy_begin(&busy, "user.db");
	ck_assert_int_eq(line_peer_sockets(busy.folder, path), 1);
	/* The rights of the file let everybody in: the question is who is there. */
	ck_assert_int_eq(chmod(path, 0777), 0);
	ck_assert_int_eq(chmod(busy.folder, 0755), 0);
	pid = fork();
	if (pid == 0) {
		int fd;

		if (setgid(65534) || setuid(65534))
			_exit(3);
		fd = line_peer_try(path);
		/* The folders above may keep it out as well. */
		if (fd == -EACCES)
			_exit(0);
		_exit(fd >= 0 && strncmp(line_peer_say(fd, "stop"), "error E_INVALID", 15) == 0 ? 0
												: 1);
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 0, "status %d", status);
	ck_assert_int_eq(chmod(busy.folder, 0700), 0);
	busy_end(&busy);
}
END_TEST

/* A child that outlives its parent's session does not keep the socket answering, or hanging. */
START_TEST(test_child_is_silent)
{
	const char *folder = line_peer_folder();
	struct toy toy = toy_start("child.db", NULL, 2, 64, 4);
	char path[4096], kept[4200];
	int pipe_fds[2];
	int fd, status;
	pid_t pid;

	ck_assert_int_eq(pipe(pipe_fds), 0);
	ck_assert_int_eq(line_peer_sockets(folder, path), 1);
	fd = line_peer_connect(folder);
	snprintf(kept, sizeof(kept), "%s.kept", path);
	ck_assert_int_eq(link(path, kept), 0);
	ck_assert_ptr_nonnull(strstr(line_peer_say(fd, "help"), "ok\n"));
	pid = fork();
	if (pid == 0) {
		char byte;

		alarm(100);
		close(pipe_fds[1]);
		/* Until the parent has looked. */
		(void)!read(pipe_fds[0], &byte, 1);
		_exit(moetrace_session_close(toy.session) == MOETRACE_OK ? 0 : 1);
	}
	close(pipe_fds[0]);
	toy_close(&toy);
	/* The connection has ended and the socket refuses, although the child lives. */
	ck_assert_str_eq(line_peer_read(fd), "");
	close(fd);
	ck_assert_int_eq(line_peer_try(kept), -ECONNREFUSED);
	ck_assert_int_eq(unlink(kept), 0);
	close(pipe_fds[1]);
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 0, "status %d", status);
	ck_assert_int_eq(line_peer_sockets(folder, NULL), 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("socket");
	TCase *peers = tcase_create("peers");
	TCase *folders = tcase_create("folders");
	TCase *others = tcase_create("others");

	tcase_add_test(peers, test_mode_and_owner);
	tcase_add_test(peers, test_lines_in_pieces);
	tcase_add_test(peers, test_garbage);
	tcase_add_test(peers, test_deaf_peers);
	tcase_add_test(peers, test_thousand_connections);
	tcase_add_test(peers, test_no_descriptors);
	tcase_add_test(peers, test_start_and_stop);
	tcase_add_test(folders, test_left_over_sockets);
	tcase_add_test(folders, test_socket_replaced);
	tcase_add_loop_test(folders, test_folder_not_to_be_trusted, 0, 3);
	tcase_add_test(folders, test_long_folder);
	tcase_add_test(folders, test_two_sessions);
	tcase_add_test(others, test_another_user);
	tcase_add_test(others, test_child_is_silent);
	suite_add_tcase(suite, peers);
	suite_add_tcase(suite, folders);
	suite_add_tcase(suite, others);
	return suite_run(suite);
}
