/* SPDX-License-Identifier: MIT */
/*
 * The instruction-set levels that this processor can test: a level needs all those below it, so
 * they are the first few.
 */
#ifndef MTK_TESTS_LEVELS_H
#define MTK_TESTS_LEVELS_H

#include "kernels/cpu.h"

static inline int levels_available(void)
{
	int n = 0;

	while (n < MTK_CPU_N_LEVELS && mtk_cpu_ops_find((enum mtk_cpu_level)n))
		n++;
	return n;
}

static inline const char *level_name(int level)
{
	return mtk_cpu_ops_find((enum mtk_cpu_level)level)->name;
}

#endif
