/* SPDX-License-Identifier: MIT */
/*
 * The other process of peer.h: lines come in through one pipe (a letter and an argument), an
 * answer of one byte goes back for each, but for the closing that is not waited for.
 */
#include "tests/fault/support/peer.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <sqlite3.h>

static char serve(sqlite3 **db, char *line)
{
	const char *argument = line + 1;
	int rc = SQLITE_OK;

	switch (line[0]) {
	case 'o':
		rc = sqlite3_open_v2(argument, db, SQLITE_OPEN_READWRITE, NULL);
		sqlite3_busy_timeout(*db, 60000);
		break;
	case 'x':
		rc = sqlite3_exec(*db, argument, NULL, NULL, NULL);
		break;
	default:
		usleep(1000 * (useconds_t)atoi(argument));
		sqlite3_close(*db);
		*db = NULL;
	}
	return rc == SQLITE_OK ? '+' : '-';
}

static void peer_main(int from, int to)
{
	FILE *lines = fdopen(from, "r");
	sqlite3 *db = NULL;
	char line[1024];

	while (lines && fgets(line, sizeof(line), lines)) {
		char answer;

		line[strcspn(line, "\n")] = 0;
		answer = serve(&db, line);
		if (line[0] != 'c' && write(to, &answer, 1) != 1)
			break;
	}
	sqlite3_close(db);
	_exit(0);
}

struct peer peer_start(void)
{
	struct peer peer;
	int to[2], from[2];

	ck_assert_int_eq(pipe(to), 0);
	ck_assert_int_eq(pipe(from), 0);
	peer.pid = fork();
	ck_assert_int_ge(peer.pid, 0);
	if (peer.pid == 0) {
		close(to[1]);
		close(from[0]);
		peer_main(to[0], from[1]);
	}
	close(to[0]);
	close(from[1]);
	peer.to = to[1];
	peer.from = from[0];
	return peer;
}

static void tell(struct peer *peer, char command, const char *argument)
{
	char line[1024], answer;
	const int n = snprintf(line, sizeof(line), "%c%s\n", command, argument);

	ck_assert_int_eq(write(peer->to, line, (size_t)n), n);
	if (command == 'c')
		return;
	ck_assert_int_eq(read(peer->from, &answer, 1), 1);
	ck_assert_msg(answer == '+', "the peer failed: %s", argument);
}

void peer_open(struct peer *peer, const char *path)
{
	tell(peer, 'o', path);
}

void peer_exec(struct peer *peer, const char *sql)
{
	tell(peer, 'x', sql);
}

void peer_close_after_ms(struct peer *peer, unsigned int wait_ms)
{
	char text[16];

	snprintf(text, sizeof(text), "%u", wait_ms);
	tell(peer, 'c', text);
}

void peer_stop(struct peer *peer)
{
	int status;

	close(peer->to);
	ck_assert_int_eq(waitpid(peer->pid, &status, 0), peer->pid);
	close(peer->from);
}
