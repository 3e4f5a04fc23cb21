/* SPDX-License-Identifier: MIT */
/*
 * Numbers of passes, and readings that wait for them: two arrays, made when there are
 * collectors.
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
	for (uint32_t i = 0; i < tied->n_waiting; i++)
		mt_reading_release(&tied->waiting[i]);
	tied->n_waiting = 0;
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
	if (!tied->waiting || tied->n_waiting == MT_MAX_WAITING)
		return 0;
	tied->waiting[tied->n_waiting++] = *reading;
	return 1;
}
