/* SPDX-License-Identifier: MIT */
/*
 * A collector's words about itself, small files of the kernel's, and libraries that people name.
 */
#ifndef MTC_REPORT_H
#define MTC_REPORT_H

#include "libtrace/collector.h"

/* Set state and reason; the rest stays. */
void mtc_report(struct mt_collector_report *report, enum mt_collector_state state,
		const char *format, ...) __attribute__((format(printf, 3, 4)));

/* A file's first bytes as text, without the newline; -1: it cannot be read, errno says why. */
int mtc_read_text(const char *path, char *ret_text, int text_bytes);

/*
 * Whether the loader can be asked for a library without harm: a name without a slash, or a file that is a
 * shared object and not cut short; else @ret_error says what is wrong, and nothing waits for it. A
 * path that leads nowhere is the loader's to refuse.
 */
int mtc_is_library(const char *path, char *ret_error, int error_bytes);

/* The number that a file begins with; -1: it has none, errno says why. */
int mtc_read_number(const char *path, int64_t *ret_value);

#endif
