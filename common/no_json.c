/* SPDX-License-Identifier: MIT */
/*
 * JSON reading in a program that was built without yajl: every parse fails and says how to get one
 * that does not.
 */
#include "common/json.h"

#include <stdio.h>

#include <moetrace/status.h>

int mt_json_parse(const char *text, size_t n_bytes, const struct mt_json_limits *limits,
		  mt_json_event_fn *receive, void *context, struct mt_json_error *ret_error)
{
	(void)text;
	(void)n_bytes;
	(void)limits;
	(void)receive;
	(void)context;
	ret_error->byte = 0;
	ret_error->line = 1;
	ret_error->column = 1;
	snprintf(ret_error->text, sizeof(ret_error->text),
		 "this moetrace was built without a JSON parser: install libyajl-dev, then run "
		 "configure and make again");
	return MOETRACE_E_UNSUPPORTED;
}
