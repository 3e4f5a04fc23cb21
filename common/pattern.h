/* SPDX-License-Identifier: MIT */
/*
 * Names of files with places to fill in: %h host name, %p process id, %r rank, %t time of day
 * in UTC (20260131T235959Z), %% a per cent sign.
 */
#ifndef MT_COMMON_PATTERN_H
#define MT_COMMON_PATTERN_H

#include <stddef.h>
#include <stdint.h>

/**
 * Fill in a pattern.
 *
 * @rank      Stands for %r.
 * @ret_path  Always ended by a zero byte.
 *
 * Returns  MOETRACE_OK
 *          MOETRACE_E_INVALID  a per cent sign that none of these letters follows
 *          MOETRACE_E_LIMIT    it does not fit
 */
int mt_pattern_expand(const char *pattern, uint32_t rank, char *ret_path, size_t path_bytes);

/* The host's name up to its first dot, of letters, digits, '-' and '_' alone; never empty. */
void mt_host_name(char *ret_name, size_t name_bytes);

#endif
