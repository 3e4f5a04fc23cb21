/* SPDX-License-Identifier: MIT */
/*
 * What the collectors share: their reports, small files of the kernel's, and patience with looks that
 * fail.
 */
#include "collectors/report.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void mtc_report(struct mt_collector_report *report, enum mt_collector_state state,
		const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	report->state = state;
	vsnprintf(report->reason, sizeof(report->reason), format, arguments);
	va_end(arguments);
}

int mtc_read_text(const char *path, char *ret_text, int text_bytes)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n;
	int error;

	if (fd < 0)
		return -1;
	n = read(fd, ret_text, (size_t)text_bytes - 1);
	error = errno;
	close(fd);
	errno = error;
	if (n < 0)
		return -1;
	ret_text[n] = '\0';
	ret_text[strcspn(ret_text, "\n")] = '\0';
	return 0;
}

int mtc_read_number(const char *path, int64_t *ret_value)
{
	char text[32];
	char *end;
	long long value;

	if (mtc_read_text(path, text, sizeof(text)))
		return -1;
	errno = 0;
	value = strtoll(text, &end, 10);
	/* A text that fills the room may go on. */
	if (end == text || *end || errno || strlen(text) == sizeof(text) - 1) {
		errno = EINVAL;
		return -1;
	}
	*ret_value = value;
	return 0;
}

int mtc_retry_is_due(struct mtc_retry *retry)
{
	if (!retry->n_to_skip)
		return 1;
	retry->n_to_skip--;
	return 0;
}

void mtc_retry_worked(struct mtc_retry *retry)
{
	*retry = (struct mtc_retry){ .n_failed = 0 };
}

int mtc_retry_failed(struct mtc_retry *retry)
{
	retry->n_to_skip = UINT32_C(1) << (retry->n_failed < 8 ? retry->n_failed : 8);
	retry->n_failed++;
	return retry->n_failed >= MTC_MAX_FAILED;
}
