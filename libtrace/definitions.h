/* SPDX-License-Identifier: MIT */
/*
 * What is known of the process and the machine, read once.
 */
#ifndef MT_DEFINITIONS_H
#define MT_DEFINITIONS_H

#include <stddef.h>

/* The program's name without its folder; "unknown" if it cannot be read. */
void mt_program_name(char *ret_name, size_t name_bytes);

#endif
