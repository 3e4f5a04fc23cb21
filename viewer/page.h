/* SPDX-License-Identifier: MIT */
/*
 * The files of the page, viewer/dist, embedded at build time: index.html, app.js, app.css, and of
 * app.js its hash; and the cookbook.
 */
#ifndef MT_VIEWER_PAGE_H
#define MT_VIEWER_PAGE_H

#include <stddef.h>

struct mt_page_file {
	const char *name; /* relative to the top of the tree */
	const char *bytes; /* ended by a zero byte that n_bytes does not count */
	size_t n_bytes;
};

extern const struct mt_page_file mt_page_files[];
extern const size_t mt_n_page_files;

#endif
