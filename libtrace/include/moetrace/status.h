/* SPDX-License-Identifier: MIT */
/*
 * Status codes: what calls return. MOETRACE_OK is 0, errors are negative, nothing is positive.
 * May be included alone.
 */
#ifndef MOETRACE_STATUS_H
#define MOETRACE_STATUS_H

/* X(name, value, sentence). Values are never reused. */
#define MOETRACE_STATUS_MAP(X)                                                              \
	X(OK, 0, "success")                                                                 \
	X(E_INVALID, -1, "an argument is not allowed")                                      \
	X(E_NOMEM, -2, "out of memory")                                                     \
	X(E_IO, -3, "the operating system or SQLite refused to read or write")              \
	X(E_EXISTS, -4, "the path exists already")                                          \
	X(E_NOT_FOUND, -5, "no such file, handle or entry")                                 \
	X(E_STATE, -6, "not possible in this state: started twice, not started, or closed") \
	X(E_LIMIT, -7, "a documented limit would be exceeded")                              \
	X(E_FORMAT, -8, "the input is not in the expected format")                          \
	X(E_UNSUPPORTED, -9, "this build or machine cannot do it")                          \
	X(E_TIMEOUT, -10, "the time limit passed first")                                    \
	X(E_SCHEMA, -11, "the file has a newer schema than this program")

enum moetrace_status {
#define MOETRACE_STATUS_ENUM(name, value, sentence) MOETRACE_##name = value,
	MOETRACE_STATUS_MAP(MOETRACE_STATUS_ENUM)
#undef MOETRACE_STATUS_ENUM
};

#endif
