/* SPDX-License-Identifier: MIT */
/*
 * How CUPTI is asked, by a word: off, graph, eager, kernel, kernel:every=N, kernel:per_s=N or
 * kernel:window=START+LENGTH, in seconds of the recording.
 */
#ifndef MTC_CUPTI_MODE_H
#define MTC_CUPTI_MODE_H

#include <stdint.h>

enum mtc_cupti_sampling {
	MTC_CUPTI_ALWAYS,
	MTC_CUPTI_EVERY, /* one pass of so many */
	MTC_CUPTI_PER_S, /* so many passes a second */
	MTC_CUPTI_WINDOW,
};

struct mtc_cupti_mode {
	int is_off;
	int has_graphs;  /* a record a launch of a graph */
	int has_kernels; /* a record a kernel; of kernels in graphs only without has_graphs */
	enum mtc_cupti_sampling sampling; /* of kernels */
	uint32_t n;        /* of EVERY and PER_S */
	uint64_t start_ns; /* of WINDOW, after the recording's start */
	uint64_t length_ns;
};

/* 0, or -1: it is no such word. */
int mtc_cupti_mode_parse(const char *text, struct mtc_cupti_mode *ret_mode);

#endif
