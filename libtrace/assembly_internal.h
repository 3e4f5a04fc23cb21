/* SPDX-License-Identifier: MIT */
/*
 * The assembly's own parts: a pass begins (assembly_begin.c) and closes (assembly_end.c), and what
 * both share (assembly.c). Each returns MOETRACE_OK, MOETRACE_E_NOMEM or the store's status.
 */
#ifndef MT_ASSEMBLY_INTERNAL_H
#define MT_ASSEMBLY_INTERNAL_H

#include "libtrace/assembly.h"

/* A pass of another recording, or one that was left out, is not open afterwards. */
int mt_assembly_begin_pass(struct mt_assembly *assembly, struct mt_open_pass *pass,
			   const struct mt_record_begin *begin);

/* Without @end the pass is closed as far as it came. */
int mt_assembly_close_pass(struct mt_assembly *assembly, struct mt_open_pass *pass,
			   const struct mt_record_end *end);

/* Requests that ended while the pass ran end now. */
int mt_assembly_release_owners(struct mt_assembly *assembly, struct mt_open_pass *pass);

/* Which rows of a slice were accepted before its pass ended; NULL: that was not said. */
const uint8_t *mt_assembly_accepted(const struct mt_open_pass *pass, uint32_t slice);

#endif
