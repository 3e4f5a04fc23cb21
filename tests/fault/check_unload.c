/* SPDX-License-Identifier: MIT */
/*
 * A host that unloads the recorder too early, as with plugins: the library stays while its threads
 * run, so a session that is open goes on and is closed as always, and a program may also just end.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/fault/support/hot.h"
#include "tests/unit/support/suite.h"

static const struct api *api;

/* Give up every handle that this program has. */
static void unload(void)
{
	const char *folder = getenv("MOETRACE_BUILDDIR");
	char path[1024];
	void *library;

	snprintf(path, sizeof(path), "%s/libtrace/.libs/libmoetrace.so", folder ? folder : ".");
	library = dlopen(path, RTLD_NOW | RTLD_NOLOAD);
	REQUIRE(library != NULL, "the library is not loaded: %s", dlerror());
	/* api_get() holds one, and this is the second. */
	REQUIRE(dlclose(library) == 0 && dlclose(library) == 0, "dlclose: %s", dlerror());
}

/* Unloaded before the first pass, and after the last one. */
START_TEST(test_unload_first)
{
	struct hot *hot = hot_prepare(api, HOT_DECODE);

	if (_i == 0)
		unload();
	hot_go(hot);
	if (_i == 1)
		unload();
	hot_finish(hot);
}
END_TEST

START_TEST(test_unload_and_exit)
{
	int status;
	pid_t pid = fork();

	if (pid == 0) {
		/* Still in use at the end, and no leak. */
		static struct hot *hot;

		hot = hot_prepare(api, HOT_DECODE);
		hot_go(hot);
		unload();
		exit(hot->n_begun > 0 ? 0 : 1);
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 0, "status %d", status);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("unload");
	TCase *unloads = tcase_create("unload");

	api = api_get();
	if (!api)
		return SUITE_SKIPPED;
	tcase_add_loop_test(unloads, test_unload_first, 0, 2);
	tcase_add_test(unloads, test_unload_and_exit);
	suite_add_tcase(suite, unloads);
	return suite_run(suite);
}
