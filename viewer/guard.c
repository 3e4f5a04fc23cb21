/* SPDX-License-Identifier: MIT */
/*
 * Checks on a request's headers and address. The token is compared in a time that does not depend
 * on where it differs.
 */
#include "viewer/guard.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/random.h>

bool mt_token_make(char token[MT_TOKEN_BYTES])
{
	unsigned char bytes[(MT_TOKEN_BYTES - 1) / 2];

	if (getrandom(bytes, sizeof(bytes), 0) != (ssize_t)sizeof(bytes))
		return false;
	for (size_t i = 0; i < sizeof(bytes); i++)
		snprintf(token + 2 * i, 3, "%02x", bytes[i]);
	return true;
}

/* Whether @text is a name of this machine with or without a port. */
static bool is_loopback(const char *text)
{
	static const char *const names[] = {"127.0.0.1", "localhost", "[::1]"};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		const size_t n = strlen(names[i]);

		if (strncasecmp(text, names[i], n) != 0)
			continue;
		if (text[n] == '\0')
			return true;
		if (text[n] == ':' && text[n + 1] != '\0' &&
		    text[n + 1 + strspn(text + n + 1, "0123456789")] == '\0')
			return true;
	}
	return false;
}

static bool is_own_origin(const char *origin, const char *host)
{
	static const char scheme[] = "http://";

	return strncasecmp(origin, scheme, strlen(scheme)) == 0 &&
	       strcasecmp(origin + strlen(scheme), host) == 0;
}

static bool is_token(const char *text, const char token[MT_TOKEN_BYTES])
{
	unsigned char difference = 0;

	if (strlen(text) < MT_TOKEN_BYTES)
		return false;
	for (size_t i = 0; i < MT_TOKEN_BYTES - 1; i++)
		difference |= (unsigned char)(text[i] ^ token[i]);
	return difference == 0 && text[MT_TOKEN_BYTES - 1] == '/';
}

enum mt_guard mt_guard_check(const struct mt_guard_request *request,
			     const char token[MT_TOKEN_BYTES], const char **ret_path)
{
	const char *site = request->fetch_site;

	if (!request->host || !is_loopback(request->host))
		return MT_GUARD_HOST;
	if (request->origin && !is_own_origin(request->origin, request->host))
		return MT_GUARD_ORIGIN;
	if (request->url[0] != '/' || !is_token(request->url + 1, token))
		return MT_GUARD_TOKEN;
	*ret_path = request->url + 1 + MT_TOKEN_BYTES;
	/* A link from elsewhere may open the page, and ask nothing. */
	if (site && **ret_path != '\0' && strcmp(site, "same-origin") != 0 &&
	    strcmp(site, "none") != 0)
		return MT_GUARD_ORIGIN;
	return MT_GUARD_PASSES;
}

const char *mt_guard_text(enum mt_guard guard)
{
	switch (guard) {
	case MT_GUARD_HOST:
		return "refused: this server is reached as localhost or 127.0.0.1 alone\n";
	case MT_GUARD_ORIGIN:
		return "refused: another site asks\n";
	case MT_GUARD_TOKEN:
		return "refused: open the whole address that moetrace view printed\n";
	default:
		return "";
	}
}
