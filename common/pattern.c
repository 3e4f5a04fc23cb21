/* SPDX-License-Identifier: MIT */
/*
 * Filling in patterns. What is put in never holds a slash, so a pattern cannot lead out of the
 * folder that it names.
 */
#include "common/pattern.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <moetrace/status.h>

void mt_host_name(char *ret_name, size_t name_bytes)
{
	char host[256] = "";
	size_t n = 0;

	if (gethostname(host, sizeof(host) - 1) != 0)
		host[0] = '\0';
	while (host[n] && host[n] != '.' && n + 1 < name_bytes) {
		ret_name[n] = isalnum((unsigned char)host[n]) || host[n] == '_' ? host[n] : '-';
		n++;
	}
	ret_name[n] = '\0';
	if (n == 0)
		snprintf(ret_name, name_bytes, "host");
}

/* What letter @c stands for; NULL: nothing. */
static const char *place(char c, uint32_t rank, char *buffer, size_t buffer_bytes)
{
	time_t now;
	struct tm utc;

	switch (c) {
	case '%':
		return "%";
	case 'h':
		mt_host_name(buffer, buffer_bytes);
		return buffer;
	case 'p':
		snprintf(buffer, buffer_bytes, "%ld", (long)getpid());
		return buffer;
	case 'r':
		snprintf(buffer, buffer_bytes, "%lu", (unsigned long)rank);
		return buffer;
	case 't':
		now = time(NULL);
		if (!gmtime_r(&now, &utc) ||
		    !strftime(buffer, buffer_bytes, "%Y%m%dT%H%M%SZ", &utc))
			return NULL;
		return buffer;
	default:
		return NULL;
	}
}

int mt_pattern_expand(const char *pattern, uint32_t rank, char *ret_path, size_t path_bytes)
{
	char buffer[256];
	size_t n = 0;

	ret_path[0] = '\0';
	for (; *pattern; pattern++) {
		char literal[2] = { *pattern, '\0' };
		const char *text = literal;
		size_t n_text;

		if (*pattern == '%') {
			text = place(pattern[1], rank, buffer, sizeof(buffer));
			if (!text)
				return MOETRACE_E_INVALID;
			pattern++;
		}
		n_text = strlen(text);
		if (n_text >= path_bytes - n)
			return MOETRACE_E_LIMIT;
		memcpy(ret_path + n, text, n_text + 1);
		n += n_text;
	}
	return MOETRACE_OK;
}
