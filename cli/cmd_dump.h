/* SPDX-License-Identifier: MIT */
/*
 * The two things that `moetrace dump` does: tables of a file (cmd_dump.c), and a file of a live
 * session (cmd_dump_live.c).
 */
#ifndef MT_CLI_CMD_DUMP_H
#define MT_CLI_CMD_DUMP_H

#include "cli/cli.h"

struct mt_dump_live {
	const char *session; /* NULL: every one there is */
	const char *dir; /* --socket-dir, or NULL */
	const char *output;  /* the file; the folder, of every one */
	bool overwrites;
	uint64_t recording_id; /* 0: the current one, else the last */
};

/* Copy, and print the path, of every session on a line of its own; an enum mt_exit, after one line on standard error if it failed. */
int mt_dump_live(const struct mt_dump_live *dump);

#endif
