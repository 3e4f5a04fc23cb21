/* SPDX-License-Identifier: MIT */
/*
 * The records of a pass's layers: counted at once, and as far as the recording's mode keeps
 * rows appended to the store. Parts of the assembly; used by the writer thread alone.
 */
#ifndef MT_LAYER_H
#define MT_LAYER_H

#include "libtrace/assembly.h"

/* Each returns MOETRACE_OK, MOETRACE_E_NOMEM or the store's status. */
int mt_layer_record(struct mt_assembly *assembly, struct mt_open_pass *pass,
		    struct mt_record_layer *record);
int mt_layer_wide(struct mt_assembly *assembly, struct mt_open_pass *pass,
		  struct mt_record_wide *record);
int mt_layer_counts(struct mt_assembly *assembly, struct mt_open_pass *pass,
		    const struct mt_record_counts *record);
int mt_layer_dispatch(struct mt_assembly *assembly, struct mt_open_pass *pass,
		      const struct mt_record_dispatch *record);

/* The pass closes: write its layers and dispatches, add its counts to expert load, clear them. */
int mt_layers_write(struct mt_assembly *assembly, struct mt_open_pass *pass);

#endif
