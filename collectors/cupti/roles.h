/* SPDX-License-Identifier: MIT */
/*
 * What kernels are for, by their names.
 */
#ifndef MTC_CUPTI_ROLES_H
#define MTC_CUPTI_ROLES_H

#include <stddef.h>
#include <stdint.h>

/*
 * The role of a name (enum moetrace_kernel_role) and whether its kernels move data between ranks. The
 * person's own table, PATTERN=ROLE with commas between them, comes before the built-in one.
 */
void mtc_cupti_role(const char *own_table, const char *name, uint32_t *ret_role,
		    uint32_t *ret_moves_data);

/* Whether such a table can be followed; -1: no, and its first wrong entry. */
int mtc_cupti_roles_check(const char *own_table, char *ret_wrong, size_t wrong_bytes);

/* Whether kernels of a role move data between ranks. */
uint32_t mtc_cupti_role_moves_data(uint32_t role);

#endif
