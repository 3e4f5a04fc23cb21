/* SPDX-License-Identifier: MIT */
/*
 * The logistic function on vectors, by e^-|x|, so that it neither overflows nor loses small values
 * down to x = -87.3; below, it is 0. For inclusion after the terms of a level.
 */
VEC_FN struct vec route_sigmoid(struct vec x)
{
	const struct vec zero = vec_set1(0.0f), one = vec_set1(1.0f);
	struct vec power = vec_exp(vec_sub(zero, vec_abs(x)));

	return vec_div(vec_choose_less(x, zero, power, one), vec_add(one, power));
}
