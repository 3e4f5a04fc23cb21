/* SPDX-License-Identifier: MIT */
/*
 * The parts of JSON reading that need no parser: comparing and converting the text of an event.
 */
#include "common/json.h"

#include <locale.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <moetrace/status.h>

bool mt_json_text_is(const struct mt_json_event *event, const char *name)
{
	return event->text && event->n_bytes == strlen(name) &&
	       memcmp(event->text, name, event->n_bytes) == 0;
}

/* strtod() would read "0.5" as 0 where the locale writes a comma. */
static int double_from_text(const char *text, double *ret_value)
{
	locale_t plain = newlocale(LC_ALL_MASK, "C", (locale_t)0);
	locale_t of_thread;
	double value;
	char *end;

	if (plain == (locale_t)0)
		return MOETRACE_E_NOMEM;
	of_thread = uselocale(plain);
	value = strtod(text, &end);
	uselocale(of_thread);
	freelocale(plain);
	if (end == text || *end != '\0' || !isfinite(value))
		return MOETRACE_E_FORMAT;
	*ret_value = value;
	return MOETRACE_OK;
}

int mt_json_double(const struct mt_json_event *event, double *ret_value)
{
	char *text;
	int status;

	if (event->kind != MT_JSON_NUMBER)
		return MOETRACE_E_FORMAT;
	text = malloc(event->n_bytes + 1);
	if (!text)
		return MOETRACE_E_NOMEM;
	memcpy(text, event->text, event->n_bytes);
	text[event->n_bytes] = '\0';
	status = double_from_text(text, ret_value);
	free(text);
	return status;
}
