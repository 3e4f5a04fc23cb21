/* SPDX-License-Identifier: MIT */
/*
 * Who is heard: whoever knows the token, through a name of this machine, from the page itself. The
 * name keeps out pages that rebind their own name to 127.0.0.1, the origin those of other sites,
 * the token everybody else. The port in the name is free, since a tunnel may have another one.
 */
#ifndef MT_VIEWER_GUARD_H
#define MT_VIEWER_GUARD_H

#include <stdbool.h>

/* 128 bits in hexadecimal, with a zero byte. */
#define MT_TOKEN_BYTES 33

/* Returns whether there were random numbers. */
bool mt_token_make(char token[MT_TOKEN_BYTES]);

enum mt_guard {
	MT_GUARD_PASSES,
	MT_GUARD_HOST,
	MT_GUARD_ORIGIN,
	MT_GUARD_TOKEN,
};

/* Headers are NULL where the request has none. */
struct mt_guard_request {
	const char *url, *host, *origin, *fetch_site;
};

/* *ret_path is what follows "/TOKEN/" in the url. */
enum mt_guard mt_guard_check(const struct mt_guard_request *request,
			     const char token[MT_TOKEN_BYTES], const char **ret_path);

/* A line for whoever is refused. */
const char *mt_guard_text(enum mt_guard guard);

#endif
