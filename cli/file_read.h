/* SPDX-License-Identifier: MIT */
/* Whole files. */
#ifndef MT_CLI_FILE_READ_H
#define MT_CLI_FILE_READ_H

#include <stddef.h>

/**
 * Read a file to its end; a pipe will do.
 *
 * @ret_bytes  To be freed by the caller; never NULL.
 *
 * Returns MT_EXIT_OK, or MT_EXIT_NOT_FOUND or MT_EXIT_FAILED after one line on standard error.
 */
int mt_file_read(const char *path, void **ret_bytes, size_t *ret_n_bytes);

#endif
