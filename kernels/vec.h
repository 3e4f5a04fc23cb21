/* SPDX-License-Identifier: MIT */
/*
 * What the vector levels share: the unrolling pragma and the exponential. Included at the end of
 * vec_<level>.h, whose terms it uses; it has no meaning alone.
 */
#ifdef __clang__
#define VEC_UNROLL _Pragma("clang loop unroll(full)")
#else
#define VEC_UNROLL _Pragma("GCC unroll 16")
#endif

/*
 * e^x within 2 units in the last place. Below -87.3, where the result would be subnormal, it is 0;
 * above 88.3 it stays at e^88.3, which only sums of at most 1 and logistic functions ever meet.
 * x = n ln 2 + r with |r| <= ln(2) / 2, ln 2 in two parts; then the Taylor polynomial to r^7,
 * whose remainder, 5e-9 relative, is far below one rounding.
 */
VEC_FN struct vec vec_exp(struct vec x)
{
	const struct vec lowest = vec_set1(-87.3f);
	struct vec clamped = vec_max(lowest, vec_min(vec_set1(88.3f), x));
	struct vec n = vec_round(vec_mul(clamped, vec_set1(0x1.715476p+0f)));
	struct vec r = vec_fma(n, vec_set1(-0x1.62e400p-1f), clamped);
	struct vec sum = vec_set1(1.0f / 5040.0f);

	r = vec_fma(n, vec_set1(-0x1.7f7d1cp-20f), r);
	sum = vec_fma(sum, r, vec_set1(1.0f / 720.0f));
	sum = vec_fma(sum, r, vec_set1(1.0f / 120.0f));
	sum = vec_fma(sum, r, vec_set1(1.0f / 24.0f));
	sum = vec_fma(sum, r, vec_set1(1.0f / 6.0f));
	sum = vec_fma(sum, r, vec_set1(0.5f));
	sum = vec_fma(sum, r, vec_set1(1.0f));
	sum = vec_fma(sum, r, vec_set1(1.0f));
	return vec_unless_less(x, lowest, vec_mul(sum, vec_pow2(n)));
}
