/* SPDX-License-Identifier: MIT */
/*
 * The operations on AVX2, FMA and F16C: each operation's vector path, instantiated for this level.
 * Functions carry their target themselves, so that the file needs no compiler flag; on another
 * architecture it is empty.
 */
#include "kernels/cpu.h"

#if defined(__x86_64__)

#include "kernels/vec_avx2.h"

#include "kernels/attention/attention_vec.h"
#include "kernels/combine/combine_vec.h"
#include "kernels/experts/experts_vec.h"
#include "kernels/gemm/gemm_vec.h"
#include "kernels/peaks/peaks_vec.h"
#include "kernels/rmsnorm/rmsnorm_vec.h"
#include "kernels/route/route_vec.h"

const struct mtk_cpu_ops mtk_cpu_ops_avx2 = {
	.name = "avx2",
	.gemm = gemm_vec,
	.rmsnorm = rmsnorm_vec,
	.attention = attention_vec,
	.route = route_vec,
	.swiglu = swiglu_vec,
	.swiglu_clamped = swiglu_clamped_vec,
	.combine = combine_vec,
	.combine_pairs = combine_pairs_vec,
	.peak_fma = peak_fma_vec,
	.peak_read = peak_read_vec,
};

#endif
