/* SPDX-License-Identifier: MIT */
/* The text of kernels.ptx; the source is made at build time by build-aux/embed.sh. */
#ifndef MT_CUDA_KERNELS_H
#define MT_CUDA_KERNELS_H

#include <stddef.h>

struct mt_kernels_file {
	const char *name; /* path of the file */
	const char *text; /* ends with a zero byte that n_bytes does not count */
	size_t n_bytes;
};

extern const struct mt_kernels_file mt_kernels_files[];
extern const size_t mt_n_kernels_files;

#endif
