/* SPDX-License-Identifier: MIT */
/*
 * Opening the CUDA driver at run time. The table is filled at most once and never emptied.
 */
#include "libtrace/cuda/driver.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include <moetrace/status.h>

#include "common/library.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* protects is_open and table */
static int is_open;
static struct mt_cu table;

/* The first of the names, separated by blanks, that the library has. */
static void *find(void *library, const char *names)
{
	char name[64];

	for (size_t length; *names; names += length + (names[length] == ' ')) {
		void *symbol;

		length = strcspn(names, " ");
		snprintf(name, sizeof(name), "%.*s", (int)length, names);
		symbol = dlsym(library, name);
		if (symbol)
			return symbol;
	}
	return NULL;
}

static int fill(void *library, char *ret_error, size_t error_bytes)
{
	struct mt_cu found;
	const struct {
		void *slot;
		const char *names;
	} functions[] = {
#define MT_CU_SLOT(member, symbols, arguments) { &found.member, symbols },
		MT_CU_FUNCTIONS(MT_CU_SLOT)
#undef MT_CU_SLOT
	};

	for (size_t i = 0; i < sizeof(functions) / sizeof(functions[0]); i++) {
		void *symbol = find(library, functions[i].names);

		if (!symbol) {
			snprintf(ret_error, error_bytes,
				 "libcuda.so.1 lacks %s: the driver is too old",
				 functions[i].names);
			return MOETRACE_E_UNSUPPORTED;
		}
		/* POSIX lets a pointer to an object hold a function's address; C does not cast it. */
		memcpy(functions[i].slot, &symbol, sizeof(symbol));
	}
	table = found;
	return MOETRACE_OK;
}

static int open_locked(char *ret_error, size_t error_bytes)
{
	enum mt_library_state state;
	char why[256];
	void *library = NULL;
	int status;
	int error;

	if (is_open)
		return MOETRACE_OK;
	state = mt_library_open("libcuda.so.1", RTLD_NOW | RTLD_LOCAL, &library, why, sizeof(why));
	if (state != MT_LIBRARY_FOUND) {
		snprintf(ret_error, error_bytes, "%s: %s",
			 state == MT_LIBRARY_WRONG ? "the CUDA driver cannot be opened" :
						     "no CUDA driver",
			 why);
		return MOETRACE_E_UNSUPPORTED;
	}
	status = fill(library, ret_error, error_bytes);
	if (status)
		goto err_library;
	error = table.init(0);
	if (error) {
		snprintf(ret_error, error_bytes, "the CUDA driver does not start: error %d %s",
			 error, mt_cu_name(&table, error));
		status = MOETRACE_E_UNSUPPORTED;
		goto err_library;
	}
	is_open = 1;
	return MOETRACE_OK;

err_library:
	dlclose(library);
	return status;
}

int mt_cu_open(const struct mt_cu **ret_cu, char *ret_error, size_t error_bytes)
{
	int status;

	pthread_mutex_lock(&lock);
	status = open_locked(ret_error, error_bytes);
	pthread_mutex_unlock(&lock);
	if (!status)
		*ret_cu = &table;
	return status;
}

int mt_cu_capture_relaxed(const struct mt_cu *cu)
{
	int mode = MT_CU_CAPTURE_RELAXED;

	/* It exchanges; without an answer there is nothing to restore. */
	return cu->capture_mode(&mode) ? -1 : mode;
}

void mt_cu_capture_restore(const struct mt_cu *cu, int mode)
{
	if (mode >= 0)
		(void)cu->capture_mode(&mode);
}

const char *mt_cu_name(const struct mt_cu *cu, int error)
{
	const char *name = NULL;

	return cu->error_name(error, &name) || !name ? "" : name;
}
