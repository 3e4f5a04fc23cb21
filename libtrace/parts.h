/* SPDX-License-Identifier: MIT */
/*
 * Passes in parts, as microbatches that overlap: which pass is whose part. Parts of the
 * assembly; used by the writer thread alone.
 */
#ifndef MT_PARTS_H
#define MT_PARTS_H

#include "libtrace/assembly.h"

/* The key of the parent of a pass that closes; MT_NULL: it has none, or waits for it. */
int64_t mt_parts_parent(struct mt_assembly *assembly, const struct mt_open_pass *pass);

/* The pass has closed: the parts that waited for it. */
int mt_parts_adopt(struct mt_assembly *assembly, const struct mt_open_pass *pass);

/* The recording ends. */
void mt_parts_forget(struct mt_assembly *assembly);

#endif
