/* SPDX-License-Identifier: MIT */
/*
 * Reading the trace file while it is written: a second connection of the same library, which
 * shares the first one's locks. For any thread.
 */
#ifndef MT_STORE_READER_H
#define MT_STORE_READER_H

#include <stdint.h>

#include "libtrace/experts.h"
#include "libtrace/session.h"

/*
 * What the file, or the newest of those before it, holds of a request: fills ask->experts and ask->attempt. Returns MOETRACE_OK,
 * MOETRACE_E_NOT_FOUND, MOETRACE_E_NOMEM, or MOETRACE_E_IO with a line of at most
 * MT_STORE_ERROR_BYTES in @ret_error.
 */
int mt_reader_experts(struct mt_experts_ask *ask, uint64_t handle, const struct mt_model *model,
		      char *ret_error);

#endif
