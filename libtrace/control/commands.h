/* SPDX-License-Identifier: MIT */
/*
 * What the lines of the control socket do. Used by the server's thread alone.
 */
#ifndef MT_CONTROL_COMMANDS_H
#define MT_CONTROL_COMMANDS_H

#include "libtrace/control/line.h"
#include "libtrace/control/peer.h"
#include "libtrace/session.h"

struct mt_control {
	struct moetrace_session *session;
	const struct mt_peer *speaker; /* whose line is being carried out */
	const struct mt_peer *owner;   /* peer that measures, until it goes; NULL: none */
};

void mt_control_open(struct mt_control *control, struct moetrace_session *session);
void mt_control_close(struct mt_control *control);

/* Carry a line out and answer it. */
void mt_control_execute(struct mt_control *control, struct mt_peer *peer,
			const struct mt_control_line *line, struct mt_reply *reply);

/* A peer has gone: what it held is given back. */
void mt_control_gone(struct mt_control *control, const struct mt_peer *peer);
int mt_control_is_owner(const struct mt_control *control, const struct mt_peer *peer);

#endif
