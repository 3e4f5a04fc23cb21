/* SPDX-License-Identifier: MIT */
/* Reading of whole files, whose size need not be known. */
#include "cli/file_read.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/out_file.h"

static int failed(const char *path, FILE *file, char *bytes)
{
	int status = errno == ENOENT ? MT_EXIT_NOT_FOUND : MT_EXIT_FAILED;

	mt_error("%s: %s", path, strerror(errno));
	free(bytes);
	if (file)
		fclose(file);
	return status;
}

int mt_file_read(const char *path, void **ret_bytes, size_t *ret_n_bytes)
{
	size_t n_bytes = 0, n_room = 1 << 16, n = 0;
	char *bytes = NULL, *more;
	FILE *file = fopen(path, "rb");

	mt_out_file_input(path);
	if (!file)
		return failed(path, NULL, NULL);
	do {
		n_bytes += n;
		if (!bytes || n_bytes == n_room) {
			n_room = bytes ? 2 * n_room : n_room;
			more = realloc(bytes, n_room);
			if (!more) {
				free(bytes);
				fclose(file);
				mt_error("%s: out of memory after %zu bytes", path, n_bytes);
				return MT_EXIT_FAILED;
			}
			bytes = more;
		}
		n = fread(bytes + n_bytes, 1, n_room - n_bytes, file);
	} while (n > 0);
	if (ferror(file))
		return failed(path, file, bytes);
	fclose(file);
	*ret_bytes = bytes;
	*ret_n_bytes = n_bytes;
	return MT_EXIT_OK;
}
