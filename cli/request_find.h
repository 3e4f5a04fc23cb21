/* SPDX-License-Identifier: MIT */
/*
 * A request by what people call it: its id from outside, or @N, its number in the file.
 */
#ifndef MT_CLI_REQUEST_FIND_H
#define MT_CLI_REQUEST_FIND_H

#include "cli/cli.h"

/**
 * Find it.
 *
 * @recording_id  Only in this recording; 0: in any.
 *
 * Returns  MT_EXIT_OK
 *          MT_EXIT_NOT_FOUND  there is none
 *          MT_EXIT_USAGE      there are several
 *          MT_EXIT_FAILED     the trace cannot be read
 *          each but the first after one line on standard error
 */
int mt_request_find(const struct mt_trace *trace, uint64_t recording_id, const char *id,
		    int64_t *ret_request_id);

#endif
