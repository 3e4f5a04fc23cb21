/* SPDX-License-Identifier: MIT */
/*
 * In place of libcuda.so.1 and libnccl.so.2, as far as they are asked what there is: FAKE_GPUS GPUs, of
 * which FAKE_MULTICAST can multicast. Without FAKE_GPUS the driver refuses.
 */
#include <stdlib.h>

/* The libraries' names are for everybody. */
#pragma GCC visibility push(default)

int cuInit(unsigned int flags);
int cuDriverGetVersion(int *ret_version);
int cuDeviceGetCount(int *ret_n);
int cuDeviceGetAttribute(int *ret_value, int attribute, int device);
int ncclGetVersion(int *ret_version);

static int number(const char *name)
{
	const char *value = getenv(name);

	return value ? atoi(value) : 0;
}

int cuInit(unsigned int flags)
{
	return getenv("FAKE_GPUS") && flags == 0 ? 0 : 999;
}

int cuDriverGetVersion(int *ret_version)
{
	*ret_version = 13010;
	return 0;
}

int cuDeviceGetCount(int *ret_n)
{
	*ret_n = number("FAKE_GPUS");
	return 0;
}

int cuDeviceGetAttribute(int *ret_value, int attribute, int device)
{
	*ret_value = attribute == 132 && device < number("FAKE_MULTICAST");
	return 0;
}

int ncclGetVersion(int *ret_version)
{
	*ret_version = 22903;
	return 0;
}
