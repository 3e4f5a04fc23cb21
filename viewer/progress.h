/* SPDX-License-Identifier: MIT */
/*
 * How far the questions are that a trace is being asked: which of a question's statements runs, and
 * where among the passes it reads. It is written beside the work, costs it nothing that could be
 * measured, and is told without a connection to the file.
 */
#ifndef MT_VIEWER_PROGRESS_H
#define MT_VIEWER_PROGRESS_H

#include "viewer/answer.h"

/* From here on @run answers @question, which has @n_parts statements. Reads where its passes lie. */
void mt_progress_begin(struct mt_source_run *run, const struct mt_question *question, int n_parts);
/* Its next statement begins. */
void mt_progress_next(struct mt_source_run *run);
/* Now and then, by the thread that answers. */
void mt_progress_look(struct mt_source_run *run);
void mt_progress_end(struct mt_source_run *run);

/* {"running": [{"question", "ms", "part", "n_parts", "share"}]}; share is of a statement, null: not known. */
void mt_progress_answer(struct mt_source *source, struct mt_view_reply *reply);

#endif
