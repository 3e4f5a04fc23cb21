/* SPDX-License-Identifier: MIT */
/*
 * The words for modes. A number is decimal, without a sign, and in its range.
 */
#include "collectors/cupti/mode.h"

#include <stdlib.h>
#include <string.h>

#include "libtrace/collector.h"

#define NS_PER_S UINT64_C(1000000000)
#define MAX_EVERY 1000000u
#define MAX_PER_S 100u
#define MAX_WINDOW_S 1000000u

/* The number that begins at *text, which then stands behind it; -1: none in [least, most]. */
static int64_t number(const char **text, uint32_t least, uint32_t most)
{
	uint64_t value = 0;
	const char *at = *text;

	while (*at >= '0' && *at <= '9' && value <= most)
		value = value * 10 + (uint64_t)(*at++ - '0');
	if (at == *text || value < least || value > most)
		return -1;
	*text = at;
	return (int64_t)value;
}

static int parse_sampling(const char *text, struct mtc_cupti_mode *mode)
{
	int64_t n, length_s;

	if (strncmp(text, "every=", 6) == 0) {
		text += 6;
		n = number(&text, 1, MAX_EVERY);
		mode->sampling = MTC_CUPTI_EVERY;
	} else if (strncmp(text, "per_s=", 6) == 0) {
		text += 6;
		n = number(&text, 1, MAX_PER_S);
		mode->sampling = MTC_CUPTI_PER_S;
	} else if (strncmp(text, "window=", 7) == 0) {
		text += 7;
		n = number(&text, 0, MAX_WINDOW_S);
		if (n < 0 || *text++ != '+')
			return -1;
		length_s = number(&text, 1, MAX_WINDOW_S);
		if (length_s < 0 || *text)
			return -1;
		mode->sampling = MTC_CUPTI_WINDOW;
		mode->start_ns = (uint64_t)n * NS_PER_S;
		mode->length_ns = (uint64_t)length_s * NS_PER_S;
		return 0;
	} else {
		return -1;
	}
	mode->n = (uint32_t)n;
	return n < 0 || *text ? -1 : 0;
}

int mtc_cupti_mode_parse(const char *text, struct mtc_cupti_mode *ret_mode)
{
	struct mtc_cupti_mode mode = { .sampling = MTC_CUPTI_ALWAYS };

	/* The trace keeps the words whole. */
	if (strlen(text) >= MT_MODE_BYTES)
		return -1;
	if (strcmp(text, "off") == 0)
		mode.is_off = 1;
	else if (strcmp(text, "graph") == 0)
		mode.has_graphs = 1;
	else if (strcmp(text, "eager") == 0)
		mode.has_graphs = mode.has_kernels = 1;
	else if (strcmp(text, "kernel") == 0)
		mode.has_kernels = 1;
	else if (strncmp(text, "kernel:", 7) == 0 && parse_sampling(text + 7, &mode) == 0)
		mode.has_kernels = 1;
	else
		return -1;
	*ret_mode = mode;
	return 0;
}
