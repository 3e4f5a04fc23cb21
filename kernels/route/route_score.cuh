/* SPDX-License-Identifier: MIT */
/*
 * The numbers of routing's fast path: a lane's columns, their scores in fp32 with a stated error
 * and again in double precision, and when two values are far enough apart to say their order.
 */
#ifndef MTK_ROUTE_ROUTE_SCORE_CUH
#define MTK_ROUTE_ROUTE_SCORE_CUH

#include "kernels/route/route_args.cuh"
#include "kernels/route/route_define.cuh"

#define ROUTE_LARGEST 1e29f
/* The key of a number above ROUTE_LARGEST, of infinity or NaN. */
#define ROUTE_KEY_TOO_LARGE 0xefa18f08u
/* Rounding of a sum, relative to it. */
#define ROUTE_ROUNDING 1.2e-7f

/* Errors of fp32 scores, relative to the largest. */
#define ROUTE_ERROR_SIGMOID	 4e-7f
#define ROUTE_ERROR_SQRTSOFTPLUS 5e-7f
#define ROUTE_ERROR_SOFTMAX	 4e-6f

/* What is known of a row before the choice, the same in all lanes. */
struct route_scale {
	float max;   /* logit; of softmax */
	float sum;   /* of softmax's exponentials */
	float error; /* of a score */
};

/* Without the steps that keep denormal numbers, which no score of a choice needs. */
static __device__ __forceinline__ float route_exp(float x)
{
	float power;

	asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x * 1.4426950408889634f));
	return power;
}

static __device__ __forceinline__ float route_inverse(float x)
{
	float inverse;

	asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(inverse) : "f"(x));
	return inverse;
}

template <int N>
static __device__ __forceinline__ void route_load(const struct route_args *args, const float *from,
						  uint32_t lane, float *ret_values)
{
	if (N % 4 == 0 && ROUTE_LIKELY(args->is_full)) {
		const float4 *fours = (const float4 *)(from + lane * N);

#pragma unroll
		for (int i = 0; i + 3 < N; i += 4) {
			const float4 four = __ldg(fours + i / 4);

			ret_values[i] = four.x;
			ret_values[i + 1] = four.y;
			ret_values[i + 2] = four.z;
			ret_values[i + 3] = four.w;
		}
		return;
	}
	if (N % 4 == 0 && args->has_vectors) {
#pragma unroll
		for (int i = 0; i + 3 < N; i += 4) {
			float4 four = make_float4(-ROUTE_LARGEST, -ROUTE_LARGEST, -ROUTE_LARGEST,
						  -ROUTE_LARGEST);

			if (lane * N + i < args->n)
				four = __ldg((const float4 *)(from + lane * N + i));
			ret_values[i] = four.x;
			ret_values[i + 1] = four.y;
			ret_values[i + 2] = four.z;
			ret_values[i + 3] = four.w;
		}
		return;
	}
#pragma unroll
	for (int i = 0; i < N; i++)
		ret_values[i] =
			lane * N + i < args->n ? __ldg(from + lane * N + i) : -ROUTE_LARGEST;
}

/*
 * The choosing values of a lane's columns in fp32, of mode ROUTE_BOUNDED. One loop a scoring:
 * within it nothing keeps the columns' latencies from overlapping.
 */
template <int N>
static __device__ __forceinline__ void route_values(const struct route_args *args,
						    const struct route_scale *scale, const float *x,
						    const float *bias, float *ret_values)
{
	const float sign = args->adds_bias ? 1.0f : 0.0f;

	if (ROUTE_LIKELY(args->scores_sigmoid)) {
#pragma unroll
		for (int i = 0; i < N; i++)
			ret_values[i] = fmaf(sign, bias[i], route_inverse(1.0f + route_exp(-x[i])));
	} else if (args->by_logit) {
#pragma unroll
		for (int i = 0; i < N; i++)
			ret_values[i] = fmaf(sign, bias[i], x[i]);
	} else if (args->config.scoring == MTK_ROUTE_SOFTMAX) {
		const float factor = __fdividef(1.0f, scale->sum);

#pragma unroll
		for (int i = 0; i < N; i++)
			ret_values[i] = fmaf(sign, bias[i], expf(x[i] - scale->max) * factor);
	} else {
#pragma unroll
		for (int i = 0; i < N; i++)
			ret_values[i] = fmaf(sign, bias[i],
					     sqrtf(fmaxf(x[i], 0.0f) + log1pf(expf(-fabsf(x[i])))));
	}
}

/*
 * The logistic function to 1e-12: e^-|x| by a polynomial on -ln 2 / 2 .. ln 2 / 2 and a power of
 * two, the division by a reciprocal in fp32 that one step of Newton's method makes precise.
 */
static __device__ __forceinline__ double route_sigmoid(double x)
{
	const double a = fmax(-fabs(x), -700.0);
	const double n = rint(a * 1.4426950408889634);
	const double r = fma(n, -0.69314718055994531, a);
	const double r2 = r * r, r4 = r2 * r2;
	const double low = fma(r2, fma(r, 1.0 / 6, 0.5), 1.0 + r);
	const double middle = fma(r2, fma(r, 1.0 / 5040, 1.0 / 720), fma(r, 1.0 / 120, 1.0 / 24));
	const double high = fma(r2, 1.0 / 3628800, fma(r, 1.0 / 362880, 1.0 / 40320));
	const double power =
		fma(r4, fma(r4, high, middle), low) * __hiloint2double(((int)n + 1023) << 20, 0);
	const double sum = 1.0 + power;
	double inverse = (double)__fdividef(1.0f, (float)sum);

	inverse = fma(inverse, fma(-sum, inverse, 1.0), inverse);
	return x < 0.0 ? power * inverse : inverse;
}

/* The score of one column; in fp32 of softmax, whose sum is no better. */
static __device__ __forceinline__ double route_precise(const struct route_args *args,
						       const struct route_scale *scale, double x)
{
	switch (args->config.scoring) {
	case MTK_ROUTE_SIGMOID:
		return route_sigmoid(x);
	case MTK_ROUTE_SQRTSOFTPLUS:
		return define_sqrtsoftplus(MTK_ROUTE_SOFTPLUS_LOG1P, x);
	case MTK_ROUTE_SOFTMAX:
		return (double)(expf((float)x - scale->max) / scale->sum);
	default:
		return x;
	}
}

/* Logits in this range have distinct scores in double precision. */
static __device__ __forceinline__ bool route_is_distinct(const struct mtk_route_config *config,
							 float largest, float logit)
{
	if (!(fabsf(logit) >= 1e-6f) || logit < -80.0f)
		return false;
	switch (config->scoring) {
	case MTK_ROUTE_SOFTMAX:
		return fabsf(largest) <= 64.0f && largest - logit < 80.0f;
	case MTK_ROUTE_SIGMOID:
		return logit <= 16.0f;
	default:
		return logit <= 1e30f;
	}
}

/* Whether `above` certainly comes before `below` and before whatever is less. */
static __device__ __forceinline__ bool route_is_apart(const struct route_args *args,
						      const struct route_scale *scale, float above,
						      float below)
{
	if (ROUTE_LIKELY(args->mode == ROUTE_BOUNDED))
		return above - below >
		       2.0f * scale->error + ROUTE_ROUNDING * (fabsf(above) + fabsf(below));
	if (args->mode == ROUTE_MONOTONE && below > -ROUTE_LARGEST)
		return above > below && route_is_distinct(&args->config, scale->max, above) &&
		       route_is_distinct(&args->config, scale->max, below);
	return above > below;
}

#endif
