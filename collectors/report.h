/* SPDX-License-Identifier: MIT */
/*
 * A collector's words about itself, and small files of the kernel's.
 */
#ifndef MTC_REPORT_H
#define MTC_REPORT_H

#include "libtrace/collector.h"

/* Set state and reason; the rest stays. */
void mtc_report(struct mt_collector_report *report, enum mt_collector_state state,
		const char *format, ...) __attribute__((format(printf, 3, 4)));

/* A file's first bytes as text, without the newline; -1: it cannot be read, errno says why. */
int mtc_read_text(const char *path, char *ret_text, int text_bytes);

/* The number that a file's first line is; -1: none, errno says why (EINVAL: it is no number). */
int mtc_read_number(const char *path, int64_t *ret_value);

/*
 * Looks that fail: one is no reason to end. After a failure looks are left out, twice as many each
 * time; after MTC_MAX_FAILED in a row nobody should go on.
 */
#define MTC_MAX_FAILED 5u

struct mtc_retry {
	uint32_t n_failed; /* in a row */
	uint32_t n_to_skip;
};

/* Whether this look is to be made, or is left out. */
int mtc_retry_is_due(struct mtc_retry *retry);
void mtc_retry_worked(struct mtc_retry *retry);
/* Returns whether that was the last one. */
int mtc_retry_failed(struct mtc_retry *retry);

#endif
