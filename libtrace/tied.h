/* SPDX-License-Identifier: MIT */
/*
 * Kernels that a collector read, and the passes that they were launched in. A reading names its pass
 * by the number that it had when it began; which row of the file that is follows when the pass
 * closes, before or after the reading comes. Used by the writer thread alone.
 */
#ifndef MT_TIED_H
#define MT_TIED_H

#include <stdint.h>

#include "libtrace/collect.h"

struct mt_model;

/* Passes that are remembered, and readings that may wait for theirs. */
#define MT_TIED_PASSES 65536u
#define MT_MAX_WAITING 32768u

struct mt_tied_pass {
	uint64_t number;
	int64_t pass_id;
	const struct mt_model *model;
};

struct mt_tied {
	struct mt_tied_pass *passes; /* [MT_TIED_PASSES], each at mt_pass_place() of its number */
	struct mt_reading *waiting;  /* [MT_MAX_WAITING], the oldest first */
	uint32_t n_waiting;
};

/* MOETRACE_OK or MOETRACE_E_NOMEM. */
int mt_tied_open(struct mt_tied *tied);
void mt_tied_close(struct mt_tied *tied);

/* A pass has closed. */
void mt_tied_note(struct mt_tied *tied, uint64_t number, int64_t pass_id,
		  const struct mt_model *model);
/* NULL: it has not closed, or long ago. */
const struct mt_tied_pass *mt_tied_find(const struct mt_tied *tied, uint64_t number);

/* Let a reading wait; 0: there is no room. */
int mt_tied_wait(struct mt_tied *tied, const struct mt_reading *reading);

#endif
