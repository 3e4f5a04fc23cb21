/* SPDX-License-Identifier: MIT */
/*
 * Words for status codes, and the version.
 */
#include <moetrace/moetrace.h>

const char *moetrace_status_string(int status)
{
	switch (status) {
#define STATUS_CASE(name, value, sentence)                                                    \
	case MOETRACE_##name:                                                                 \
		return sentence;
		MOETRACE_STATUS_MAP(STATUS_CASE)
#undef STATUS_CASE
	default:
		return "unknown status";
	}
}

const char *moetrace_version(void)
{
	return MOETRACE_VERSION_STRING;
}
