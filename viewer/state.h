/* SPDX-License-Identifier: MIT */
/*
 * What becomes of a trace while it is looked at: whether it is still recorded, how far it is, and
 * whether the file is still the one that was opened. Asked about once a second; it costs one look
 * at the file and one row.
 */
#ifndef MT_VIEWER_STATE_H
#define MT_VIEWER_STATE_H

#include "viewer/reply.h"
#include "viewer/source.h"

/*
 * {"state", "version", "last_pass_id", "recording_id", "n_recordings", "end_reason"}. state is
 * "still" (nobody recorded when it was opened), "recording", "idle" (the session may start again),
 * "ended", "killed" (its process is gone, and the recording has no end), "deleted" or "replaced"
 * (by another file); version is another text whenever the trace may have changed.
 */
void mt_state_answer(struct mt_source *source, struct mt_view_reply *reply);

#endif
