/* SPDX-License-Identifier: MIT */
/*
 * The ring of ranges: they belong to no pass, so any thread writes them into one of their own. It is
 * made when the first range gets a name.
 */
#ifndef MT_RANGES_H
#define MT_RANGES_H

struct moetrace_session;

/* MOETRACE_OK or MOETRACE_E_NOMEM. */
int mt_ranges_make(struct moetrace_session *session);
void mt_ranges_free(struct moetrace_session *session);

#endif
