/* SPDX-License-Identifier: MIT */
/*
 * The instruction-set levels of the CPU operations and the table of each. A level is chosen once,
 * when a model is created: the best that this processor has, or the one that the environment
 * variable MOETRACE_CPU names (plain, avx2 or avx512). The two vector levels give the same bits;
 * the plain one, which is the definition, agrees with them within rounding.
 */
#ifndef MTK_CPU_H
#define MTK_CPU_H

#include <stdbool.h>

#include "kernels/attention/attention.h"
#include "kernels/combine/combine.h"
#include "kernels/experts/experts.h"
#include "kernels/gemm/gemm.h"
#include "kernels/peaks/peaks.h"
#include "kernels/rmsnorm/rmsnorm.h"
#include "kernels/route/route.h"

enum mtk_cpu_level {
	MTK_CPU_PLAIN,
	MTK_CPU_AVX2,
	MTK_CPU_AVX512,
	MTK_CPU_N_LEVELS,
};

struct mtk_cpu_ops {
	const char *name;
	mtk_gemm_fn gemm;
	mtk_rmsnorm_fn rmsnorm;
	mtk_attention_fn attention;
	mtk_route_fn route;
	mtk_swiglu_fn swiglu;
	mtk_swiglu_clamped_fn swiglu_clamped;
	mtk_combine_fn combine;
	mtk_combine_pairs_fn combine_pairs;
	mtk_peak_fma_fn peak_fma;
	mtk_peak_read_fn peak_read;
};

extern const struct mtk_cpu_ops mtk_cpu_ops_avx2;
extern const struct mtk_cpu_ops mtk_cpu_ops_avx512;

/* The table of a level, or NULL where this processor or this build lacks it. */
const struct mtk_cpu_ops *mtk_cpu_ops_find(enum mtk_cpu_level level);

/* The table to use; NULL when MOETRACE_CPU names a level that is unknown or not available. */
const struct mtk_cpu_ops *mtk_cpu_ops_choose(void);

#endif
