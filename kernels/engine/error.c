/* SPDX-License-Identifier: MIT */
/*
 * Formatting of engine errors. Text from files reaches a terminal only through here, so control
 * bytes are replaced in one place.
 */
#include "kernels/engine/error.h"

#include <stdio.h>

int mtk_error_set(struct mtk_error *error, int status, const char *format, ...)
{
	va_list arguments;
	char *at;

	if (!error)
		return status;
	va_start(arguments, format);
	vsnprintf(error->text, sizeof(error->text), format, arguments);
	va_end(arguments);
	for (at = error->text; *at != '\0'; at++) {
		if ((unsigned char)*at < 0x20 || *at == 0x7f)
			*at = '?';
	}
	return status;
}
