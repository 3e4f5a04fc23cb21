/* SPDX-License-Identifier: MIT */
/*
 * The writer: the one thread that owns the store. It empties the rings, does what the queue
 * asks for and commits.
 */
#ifndef MT_WRITER_H
#define MT_WRITER_H

#include "libtrace/session.h"

/*
 * Start the thread; it opens the store. Returns when the file is there, or MOETRACE_E_EXISTS,
 * MOETRACE_E_IO or MOETRACE_E_NOMEM with a line in @ret_error (MT_STORE_ERROR_BYTES).
 */
int mt_writer_start(struct moetrace_session *session, char *ret_error);

/* Post CLOSE, wait for the thread's end, free the writer; its status. */
int mt_writer_stop(struct moetrace_session *session);

#endif
