/* SPDX-License-Identifier: MIT */
/*
 * Numbers of passes, and readings that wait for them: two arrays that are gone through in turn, made
 * when there are collectors.
 */
#include "libtrace/tied.h"

#include <stdlib.h>

#include <moetrace/status.h>

#include "libtrace/ties.h"

int mt_tied_open(struct mt_tied *tied)
{
	tied->passes = calloc(MT_TIED_PASSES, sizeof(*tied->passes));
	tied->waiting = calloc(MT_MAX_WAITING, sizeof(*tied->waiting));
	return tied->passes && tied->waiting ? MOETRACE_OK : MOETRACE_E_NOMEM;
}

void mt_tied_close(struct mt_tied *tied)
{
	while (mt_tied_first(tied)) {
		mt_reading_release(mt_tied_first(tied));
		mt_tied_take(tied);
	}
	free(tied->passes);
	free(tied->waiting);
	tied->passes = NULL;
	tied->waiting = NULL;
}

void mt_tied_note(struct mt_tied *tied, uint64_t number, int64_t pass_id,
		  const struct mt_model *model)
{
	if (tied->passes && number)
		tied->passes[mt_pass_place(number, MT_TIED_PASSES)] =
			(struct mt_tied_pass){ number, pass_id, model };
}

const struct mt_tied_pass *mt_tied_find(const struct mt_tied *tied, uint64_t number)
{
	const struct mt_tied_pass *pass =
		tied->passes ? &tied->passes[mt_pass_place(number, MT_TIED_PASSES)] : NULL;

	return pass && pass->number == number ? pass : NULL;
}

int mt_tied_wait(struct mt_tied *tied, const struct mt_reading *reading)
{
	if (!tied->waiting || tied->head - tied->tail == MT_MAX_WAITING)
		return 0;
	tied->waiting[tied->head++ % MT_MAX_WAITING] = *reading;
	return 1;
}

struct mt_reading *mt_tied_first(struct mt_tied *tied)
{
	return tied->tail < tied->head ? &tied->waiting[tied->tail % MT_MAX_WAITING] : NULL;
}

void mt_tied_take(struct mt_tied *tied)
{
	tied->tail++;
}
