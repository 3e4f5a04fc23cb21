/* SPDX-License-Identifier: MIT */
/*
 * The frame of a test program. The folder is made before Check forks and removed after all
 * test cases, so that a case that crashed leaves nothing behind either.
 */
#include "tests/unit/support/suite.h"

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "tests/support/run_suite.h"

static char base_folder[256];

static int remove_entry(const char *path, const struct stat *info, int type, struct FTW *ftw)
{
	(void)info;
	(void)type;
	(void)ftw;
	return remove(path);
}

static bool base_create(void)
{
	const char *parent = getenv("TMPDIR");

	snprintf(base_folder, sizeof(base_folder), "%s/moetrace-test.XXXXXX",
		 parent && *parent ? parent : "/tmp");
	return mkdtemp(base_folder) != NULL;
}

int suite_run(Suite *suite)
{
	int status;

	if (!base_create()) {
		perror(base_folder);
		return EXIT_FAILURE;
	}
	status = run_suite(suite);
	nftw(base_folder, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
	return status;
}

const char *suite_path(const char *name)
{
	static char paths[16][512];
	static unsigned int n_calls;
	char *path = paths[n_calls];

	ck_assert_uint_lt(n_calls, sizeof(paths) / sizeof(paths[0]));
	snprintf(path, sizeof(paths[0]), "%s/%ld-%u-%s", base_folder, (long)getpid(), n_calls,
		 name);
	n_calls++;
	return path;
}

bool suite_is_long(void)
{
	const char *tier = getenv("MOETRACE_TEST_TIER");

	return tier && strcmp(tier, "long") == 0;
}

bool suite_has_sanitizer(const char *name)
{
	const char *sanitizers = getenv("MOETRACE_SANITIZERS");

	return sanitizers && strstr(sanitizers, name);
}

uint64_t suite_now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

void suite_sleep_ms(uint32_t duration_ms)
{
	struct timespec rest = {.tv_sec = duration_ms / 1000,
				.tv_nsec = (long)(duration_ms % 1000) * 1000000};

	while (nanosleep(&rest, &rest) != 0)
		continue;
}
