/* SPDX-License-Identifier: MIT */
/*
 * What an analysis leaves out, said on standard error: lines `moetrace VERB: note: TEXT`.
 */
#ifndef MT_CLI_NOTES_H
#define MT_CLI_NOTES_H

#include "cli/cli.h"

enum mt_notes {
	MT_NOTES_LOAD = 0, /* figures of what was counted: expert_load */
	MT_NOTES_ROWS = 1, /* figures of the stored rows */
};

/* Their statement, a row a note, of which the last column is the text. NULL: after an error line. */
sqlite3_stmt *mt_notes_prepare(const struct mt_trace *trace, uint64_t recording_id,
			       enum mt_notes kind);

/* The notes about the recordings in question (@recording_id, 0: all). Returns an enum mt_exit. */
int mt_notes_print(const struct mt_trace *trace, uint64_t recording_id, enum mt_notes kind);

#endif
