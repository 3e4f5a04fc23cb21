/* SPDX-License-Identifier: MIT */
/*
 * Libraries are those of the build: none that a system has is ever found instead.
 */
#include "tests/collectors/support/fakes.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "tests/unit/support/suite.h"

void fakes_set(const char *name, const char *value)
{
	ck_assert_int_eq(setenv(name, value, 1), 0);
}

void fakes_be_patient(void)
{
	ck_assert_int_eq(setenv("MOETRACE_COLLECTOR_TIMEOUT_MS", "60000", 0), 0);
}

void fakes_use(const char *variable, const char *library)
{
	const char *folder = getenv("MOETRACE_BUILDDIR");
	char path[1024];

	snprintf(path, sizeof(path), "%s/tests/collectors/.libs/%s", folder ? folder : ".", library);
	fakes_set(variable, path);
}

void fakes_put_file(const char *folder, const char *name, const char *text)
{
	char path[2048];
	FILE *file;

	snprintf(path, sizeof(path), "%s/%s", folder, name);
	file = fopen(path, "w");
	ck_assert_ptr_nonnull(file);
	fprintf(file, "%s\n", text);
	ck_assert_int_eq(fclose(file), 0);
}

void fakes_put_domain(const char *root, const char *folder, const char *name, const char *energy_uj)
{
	char path[1800];

	snprintf(path, sizeof(path), "%s/%s", root, folder);
	ck_assert_int_eq(mkdir(path, 0755), 0);
	fakes_put_file(path, "name", name);
	fakes_put_file(path, "max_energy_range_uj", "262143328850");
	fakes_put_file(path, "energy_uj", energy_uj);
}

const struct fake_cupti_api *fakes_cupti(void)
{
	const struct fake_cupti_api *(*get)(void);
	void *library, *symbol;

	fakes_use("MOETRACE_CUPTI", "libfake_cupti.so");
	library = dlopen(getenv("MOETRACE_CUPTI"), RTLD_NOW | RTLD_LOCAL);
	symbol = library ? dlsym(library, "fake_cupti") : NULL;
	ck_assert_ptr_nonnull(symbol);
	memcpy(&get, &symbol, sizeof(get));
	return get();
}

uint64_t fakes_realtime_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}
