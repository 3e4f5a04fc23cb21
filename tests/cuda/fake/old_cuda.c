/* SPDX-License-Identifier: MIT */
/*
 * A driver that is too old, as libcuda.so.1: of the functions that the recorder needs it has the
 * first two.
 */
__attribute__((visibility("default"))) int cuInit(unsigned int flags);
__attribute__((visibility("default"))) int cuInit(unsigned int flags)
{
	(void)flags;
	return 0;
}

__attribute__((visibility("default"))) int cuDriverGetVersion(int *version);
__attribute__((visibility("default"))) int cuDriverGetVersion(int *version)
{
	*version = 9000;
	return 0;
}
