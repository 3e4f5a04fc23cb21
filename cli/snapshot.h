/* SPDX-License-Identifier: MIT */
/*
 * Whole traces made out of other ones: one recording of a live file, or what a killed process
 * left. The result gets its name when it is complete, and the source is only read.
 */
#ifndef MT_CLI_SNAPSHOT_H
#define MT_CLI_SNAPSHOT_H

#include "cli/cli.h"

/* The result on its way: a file under a temporary name in the folder of the final one. */
struct mt_snapshot {
	const char *path;
	char *temporary;
	bool overwrites;
	sqlite3 *db;
};

/**
 * Begin: look at the final name and create the temporary file.
 *
 * Returns MT_EXIT_OK, or MT_EXIT_FAILED after one line on standard error.
 */
int mt_snapshot_begin(const char *path, bool overwrites, struct mt_snapshot *ret_snapshot);

/**
 * Copy tables and views out of @source in one read transaction. Rows of topk that no layer points
 * to are left out.
 *
 * @recording_id  Only what belongs to this recording; 0: everything.
 * @last_pass_id  Refuse if the source has later passes of it; -1: any will do.
 * @ret_is_later  Set if it was refused for that.
 *
 * Returns MT_EXIT_OK, or another after one line on standard error, unless *ret_is_later.
 */
int mt_snapshot_copy(struct mt_snapshot *snapshot, const char *source, int64_t recording_id,
		     int64_t last_pass_id, bool *ret_is_later);

/* Run a statement on the copy; MT_EXIT_OK, or MT_EXIT_FAILED after one line. */
int mt_snapshot_exec(struct mt_snapshot *snapshot, const char *sql);

/* Close it and give it its name; MT_EXIT_OK, or MT_EXIT_FAILED after one line. */
int mt_snapshot_finish(struct mt_snapshot *snapshot);

/* Remove what is not finished. Does nothing after mt_snapshot_finish(). */
void mt_snapshot_discard(struct mt_snapshot *snapshot);

#endif
