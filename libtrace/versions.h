/* SPDX-License-Identifier: MIT */
/*
 * Versions of what is not ours and has a say in what was measured: the driver and the vendor's
 * libraries. Used by the writer thread, and by collectors under their lock.
 */
#ifndef MT_VERSIONS_H
#define MT_VERSIONS_H

#include <stdint.h>

#define MT_MAX_VERSIONS 12u

struct mt_version {
	char what[24];    /* 'driver', 'cuda_driver', 'cuda_runtime', 'cupti', 'nvml', 'nccl' */
	char version[64];
};

struct mt_versions {
	uint32_t n;
	struct mt_version entries[MT_MAX_VERSIONS];
};

/* Set or replace one; what does not fit is left out. */
void mt_versions_set(struct mt_versions *versions, const char *what, const char *version);

/*
 * Ask the kernel's driver and the libraries that the process has loaded, which are found where
 * they are and never loaded for it.
 */
void mt_versions_look(struct mt_versions *versions);

#endif
