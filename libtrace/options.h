/* SPDX-License-Identifier: MIT */
/*
 * The options in force: the environment before the options in code before the defaults.
 */
#ifndef MT_OPTIONS_H
#define MT_OPTIONS_H

#include "libtrace/session.h"

/* Whether MOETRACE_DISABLE turns the recorder off: set, and neither empty nor 0. */
int mt_is_disabled(void);

/*
 * Fill in session->opts, ->path and ->settings from the environment, @path and @opts (which
 * may be NULL). What was allocated is the session's on failure, too. A failure is said by
 * mt_open_error(); MOETRACE_OK, MOETRACE_E_INVALID, MOETRACE_E_NOMEM or MOETRACE_E_IO.
 */
int mt_options_resolve(struct moetrace_session *session, const char *path,
		       const struct moetrace_session_opts *opts);
void mt_options_free(struct moetrace_session *session);

/*
 * Tools look at the file from other folders, and the program may change its own: the path from
 * the root on, or as it is where the folder has no name. To be freed; NULL: out of memory.
 */
char *mt_absolute_path(const char *path);

/* Half of what is free where the file will be, at most 10 GiB. */
uint64_t mt_default_file_limit_bytes(const char *path);

/* The number of this process among the others, as far as it is known. */
uint32_t mt_options_rank(const struct moetrace_session_opts *opts);

#endif
