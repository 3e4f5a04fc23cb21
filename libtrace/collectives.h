/* SPDX-License-Identifier: MIT */
/*
 * Collectives between ranks that the runtime told of a pass: kept while it is open, written when it
 * closes. Used by the writer thread alone.
 */
#ifndef MT_COLLECTIVES_H
#define MT_COLLECTIVES_H

#include "libtrace/assembly.h"

/* MOETRACE_OK or MOETRACE_E_NOMEM. */
int mt_collective_record(struct mt_open_pass *pass, const struct mt_record_collective *record);
int mt_collectives_write(struct mt_assembly *assembly, struct mt_open_pass *pass);

#endif
