/* SPDX-License-Identifier: MIT */
/*
 * Live sessions: finding them by name, process id or socket, and talking to them in the line
 * protocol of docs/control.md.
 */
#ifndef MT_CLI_LIVE_H
#define MT_CLI_LIVE_H

#include <stddef.h>

#include "cli/cli.h"

struct mt_live_field {
	char *key;
	char *value;
};

/* An answer. */
struct mt_live_answer {
	struct mt_live_field *fields;
	size_t n_fields;
	bool is_ok;
	char error[512]; /* what the session says, when it is not ok */
};

struct mt_live {
	int fd;
	char *socket;		      /* path, for people */
	struct mt_live_answer status; /* when it was found */
};

struct mt_live_set {
	struct mt_live *sessions;
	size_t n_sessions;
	char silent[256]; /* a socket whose process takes no notice, such as a stopped one; "": none */
};

/* Which sessions a verb is about. */
struct mt_live_choice {
	const char *dir;	  /* --socket-dir; NULL: the environment's, else the default */
	const char *const *names; /* names, process ids or socket paths */
	size_t n_names;
	bool all; /* every session there is */
};

/**
 * Find and connect.
 *
 * Returns  MT_EXIT_OK
 *          MT_EXIT_NOT_FOUND  a name that no session has; with --all: there is none at all
 *          MT_EXIT_FAILED     a name that several sessions have, or one that is not found while
 *                             a session does not answer; a socket that cannot be used
 *          each but the first after one line on standard error
 * Owner    caller; release with mt_live_close(), on success alone.
 */
int mt_live_find(const struct mt_live_choice *choice, struct mt_live_set *ret_set);

/* Every session that answers; none is fine. Those that do not are waited for, for seconds. */
int mt_live_list(const char *dir, struct mt_live_set *ret_set);

void mt_live_close(struct mt_live_set *set);

/**
 * Say a line, without its newline, and read the answer.
 *
 * @ret_answer  To be freed by mt_live_answer_free() on success, also when it says error.
 *
 * Returns 0, or -1: the session does not answer, as an error line says.
 */
int mt_live_call(const struct mt_live *live, const char *line, struct mt_live_answer *ret_answer);
void mt_live_answer_free(struct mt_live_answer *answer);

/* A field's value; "" if there is none. */
const char *mt_live_value(const struct mt_live_answer *answer, const char *key);

/* `NAME (pid N)` into @buffer, for messages; returns it. */
const char *mt_live_label(const struct mt_live *live, char *buffer, size_t buffer_bytes);

/* KEY="VALUE" with the protocol's escapes, to be freed; NULL: out of memory. */
char *mt_live_argument(const char *key, const char *value);

#endif
