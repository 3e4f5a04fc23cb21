/* SPDX-License-Identifier: MIT */
/* Detection of instruction sets, and the choice among the tables that this build has. */
#include "kernels/cpu.h"

#include <stdlib.h>
#include <string.h>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

static const struct mtk_cpu_ops ops_plain = {
	.name = "plain",
	.gemm = mtk_gemm_plain,
	.rmsnorm = mtk_rmsnorm_plain,
	.attention = mtk_attention_plain,
	.route = mtk_route_plain,
	.swiglu = mtk_swiglu_plain,
	.swiglu_clamped = mtk_swiglu_clamped_plain,
	.combine = mtk_combine_plain,
	.combine_pairs = mtk_combine_pairs_plain,
	.peak_fma = mtk_peak_fma_plain,
	.peak_read = mtk_peak_read_plain,
};

#if defined(__x86_64__)

static bool have_f16c(void)
{
	unsigned int a, b, c, d;

	return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
}

static bool have_avx2(void)
{
	__builtin_cpu_init();
	return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && have_f16c();
}

static bool have_avx512(void)
{
	return have_avx2() && __builtin_cpu_supports("avx512f") &&
	       __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512bw") &&
	       __builtin_cpu_supports("avx512dq");
}

const struct mtk_cpu_ops *mtk_cpu_ops_find(enum mtk_cpu_level level)
{
	switch (level) {
	case MTK_CPU_PLAIN:
		return &ops_plain;
	case MTK_CPU_AVX2:
		return have_avx2() ? &mtk_cpu_ops_avx2 : NULL;
	case MTK_CPU_AVX512:
		return have_avx512() ? &mtk_cpu_ops_avx512 : NULL;
	default:
		return NULL;
	}
}

#else

const struct mtk_cpu_ops *mtk_cpu_ops_find(enum mtk_cpu_level level)
{
	return level == MTK_CPU_PLAIN ? &ops_plain : NULL;
}

#endif

const struct mtk_cpu_ops *mtk_cpu_ops_choose(void)
{
	const char *wanted = getenv("MOETRACE_CPU");

	for (int level = MTK_CPU_N_LEVELS - 1; level >= 0; level--) {
		const struct mtk_cpu_ops *ops = mtk_cpu_ops_find((enum mtk_cpu_level)level);

		if (ops && (!wanted || !*wanted || !strcmp(wanted, ops->name)))
			return ops;
	}
	return NULL;
}
