/* SPDX-License-Identifier: MIT */
/*
 * A collector's words about itself.
 */
#ifndef MTC_REPORT_H
#define MTC_REPORT_H

#include "libtrace/collector.h"

/* Set state and reason; the rest stays. */
void mtc_report(struct mt_collector_report *report, enum mt_collector_state state,
		const char *format, ...) __attribute__((format(printf, 3, 4)));

/* A file's first bytes as text, without the newline; -1: it cannot be read, errno says why. */
int mtc_read_text(const char *path, char *ret_text, int text_bytes);

/* The number that a file begins with; -1: it has none, errno says why. */
int mtc_read_number(const char *path, int64_t *ret_value);

#endif
