/* SPDX-License-Identifier: MIT */
/*
 * Every library has a function that gives its version as a number, and that number its own way of
 * being put together. A library that is linked into the program is found by the function's name, if
 * the program lets it be seen. One that is not loaded is not looked for: its file may lie where reading
 * it hangs, and the loader opens files even where it shall not load them.
 */
#include "libtrace/versions.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "common/library.h"

#define DRIVER_FILE "/sys/module/nvidia/version"

void mt_versions_set(struct mt_versions *versions, const char *what, const char *version)
{
	uint32_t i = 0;

	while (i < versions->n && strcmp(versions->entries[i].what, what) != 0)
		i++;
	if (i == MT_MAX_VERSIONS)
		return;
	versions->n += i == versions->n;
	snprintf(versions->entries[i].what, sizeof(versions->entries[i].what), "%s", what);
	snprintf(versions->entries[i].version, sizeof(versions->entries[i].version), "%s", version);
}

/* 13010: 13.1 */
static void print_cuda(int number, char *ret_text, size_t text_bytes)
{
	snprintf(ret_text, text_bytes, "%d.%d", number / 1000, number % 1000 / 10);
}

/* 22809: 2.28.9; before 2.9: 2708 is 2.7.8 */
static void print_nccl(int number, char *ret_text, size_t text_bytes)
{
	int major = number < 10000 ? number / 1000 : number / 10000;
	int rest = number < 10000 ? number % 1000 : number % 10000;

	snprintf(ret_text, text_bytes, "%d.%d.%d", major, rest / 100, rest % 100);
}

static const struct library {
	const char *what, *function;
	const char *files[3]; /* NULL: no more */
	void (*print)(int number, char *ret_text, size_t text_bytes);
} libraries[] = {
	{ "cuda_driver", "cuDriverGetVersion", { "libcuda.so.1" }, print_cuda },
	{ "cuda_runtime", "cudaRuntimeGetVersion", { "libcudart.so.13", "libcudart.so.12" },
	  print_cuda },
	{ "nccl", "ncclGetVersion", { "libnccl.so.2" }, print_nccl },
};

static void *find(const struct library *library)
{
	void *function = dlsym(RTLD_DEFAULT, library->function);
	char path[PATH_MAX];

	for (int i = 0; !function && i < 3 && library->files[i]; i++) {
		void *loaded = mt_library_loaded(library->files[i], path, sizeof(path)) ?
				       dlopen(path, RTLD_NOW | RTLD_NOLOAD | RTLD_LOCAL) :
				       NULL;

		if (!loaded)
			continue;
		function = dlsym(loaded, library->function);
		dlclose(loaded);
	}
	return function;
}

static void look_at(struct mt_versions *versions, const struct library *library)
{
	void *found = find(library);
	int (*function)(int *ret_number);
	char text[64];
	int number = 0;

	/* A function's address as data, which POSIX allows and C does not spell. */
	memcpy(&function, &found, sizeof(function));
	if (!found || function(&number) || number <= 0)
		return;
	library->print(number, text, sizeof(text));
	mt_versions_set(versions, library->what, text);
}

static void look_at_driver(struct mt_versions *versions)
{
	FILE *file = fopen(DRIVER_FILE, "re");
	char text[64];

	if (!file)
		return;
	if (fgets(text, sizeof(text), file)) {
		text[strcspn(text, "\n")] = '\0';
		if (*text)
			mt_versions_set(versions, "driver", text);
	}
	fclose(file);
}

void mt_versions_look(struct mt_versions *versions)
{
	look_at_driver(versions);
	for (size_t i = 0; i < sizeof(libraries) / sizeof(libraries[0]); i++)
		look_at(versions, &libraries[i]);
}
