/* SPDX-License-Identifier: MIT */
/*
 * The table of api.h: filled by the linker, or, with TEST_DLOPEN defined, by dlsym().
 */
#include "tests/fault/support/api.h"

#ifdef TEST_DLOPEN

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct api table;

/* A function's address as data, which POSIX allows and C does not spell. */
static int resolve(void *library, const char *name, void *ret_function)
{
	void *symbol = dlsym(library, name);

	memcpy(ret_function, &symbol, sizeof(symbol));
	return symbol ? 0 : -1;
}

const struct api *api_get(void)
{
	const char *folder = getenv("MOETRACE_BUILDDIR");
	char path[1024];
	void *library;

	snprintf(path, sizeof(path), "%s/libtrace/.libs/libmoetrace.so", folder ? folder : ".");
	library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (!library) {
		fprintf(stderr, "skipped: %s\n", dlerror());
		return NULL;
	}
#define API_RESOLVE(name)                                             \
	if (resolve(library, "moetrace_" #name, &table.name) != 0) {  \
		fprintf(stderr, "%s: no moetrace_" #name "\n", path); \
		abort();                                              \
	}
	API_FUNCTIONS(API_RESOLVE)
#undef API_RESOLVE
	return &table;
}

#else

static const struct api table = {
#define API_VALUE(name) .name = moetrace_##name,
	API_FUNCTIONS(API_VALUE)
#undef API_VALUE
};

const struct api *api_get(void)
{
	return &table;
}

#endif
