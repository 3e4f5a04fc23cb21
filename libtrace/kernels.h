/* SPDX-License-Identifier: MIT */
/*
 * Times of operations that the runtime told of a pass: kept while it is open, written when it
 * closes. Used by the writer thread alone.
 */
#ifndef MT_KERNELS_H
#define MT_KERNELS_H

#include "libtrace/assembly.h"

/* MOETRACE_OK or MOETRACE_E_NOMEM. */
int mt_kernels_record(struct mt_open_pass *pass, const struct mt_record_kernels *record);
/* @end_ns of the pass; UINT64_MAX: it did not end. */
int mt_kernels_write(struct mt_assembly *assembly, struct mt_open_pass *pass, uint64_t end_ns);

#endif
