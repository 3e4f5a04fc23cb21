/* SPDX-License-Identifier: MIT */
/*
 * What a test tells the CUPTI that was made for it: the records to deliver with the next flush.
 */
#ifndef TEST_FAKE_CUPTI_H
#define TEST_FAKE_CUPTI_H

#include <stdint.h>

/* A launch of a graph where @name is NULL, else a kernel. */
typedef void fake_cupti_put_fn(const char *name, uint64_t start_ns, uint64_t end_ns,
			       uint32_t correlation);

#endif
