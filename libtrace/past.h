/* SPDX-License-Identifier: MIT */
/*
 * The files that rotation has left behind, for moetrace_request_routed_experts(): the last few,
 * and none that lost its name since. The list is the writer's; a copy goes to who reads.
 */
#ifndef MT_PAST_H
#define MT_PAST_H

#include <stdint.h>
#include <sys/types.h>

#define MT_PAST_FILES 64u

struct mt_past_file {
	char *path;
	dev_t device;
	ino_t inode;
};

struct mt_past {
	struct mt_past_file files[MT_PAST_FILES]; /* the oldest first */
	uint32_t n_files;
};

/* The file at @path, which is closed; the oldest is given up for it. Takes ownership. */
void mt_past_add(struct mt_past *past, char *path);
void mt_past_free(struct mt_past *past);

/* A copy, to be freed by mt_past_free() and free(); NULL: out of memory. */
struct mt_past *mt_past_copy(const struct mt_past *past);

/* Does the path still lead to that file? */
int mt_past_is_there(const struct mt_past_file *file);

#endif
