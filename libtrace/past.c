/* SPDX-License-Identifier: MIT */
/*
 * A short list of files. Invariant: each was there under its name when it was added, and its
 * number tells it from another one that has the name now.
 */
#include "libtrace/past.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

void mt_past_add(struct mt_past *past, char *path)
{
	struct stat info;

	if (lstat(path, &info)) {
		free(path);
		return;
	}
	if (past->n_files == MT_PAST_FILES) {
		free(past->files[0].path);
		past->n_files--;
		memmove(past->files, past->files + 1, past->n_files * sizeof(past->files[0]));
	}
	past->files[past->n_files++] = (struct mt_past_file){ path, info.st_dev, info.st_ino };
}

void mt_past_free(struct mt_past *past)
{
	for (uint32_t i = 0; i < past->n_files; i++)
		free(past->files[i].path);
	past->n_files = 0;
}

struct mt_past *mt_past_copy(const struct mt_past *past)
{
	struct mt_past *copy = calloc(1, sizeof(*copy));

	for (uint32_t i = 0; copy && i < past->n_files; i++) {
		copy->files[i] = past->files[i];
		copy->files[i].path = strdup(past->files[i].path);
		if (!copy->files[i].path) {
			mt_past_free(copy);
			free(copy);
			return NULL;
		}
		copy->n_files++;
	}
	return copy;
}

int mt_past_is_there(const struct mt_past_file *file)
{
	struct stat info;

	return lstat(file->path, &info) == 0 && info.st_dev == file->device &&
	       info.st_ino == file->inode;
}
